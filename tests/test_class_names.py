"""Each class of the package has a name of its own."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import mgclust

PACKAGE = Path(mgclust.__file__).parent


def test_class_names_are_unique():
    """Those of modules, if at least one of them is outside `kernels`; a class within another is named with it."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module in PACKAGE.rglob("*.py"):
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module.relative_to(PACKAGE).as_posix())
    repeated = {name: found for name, found in homes.items() if len(found) > 1}
    assert not {
        name: found for name, found in repeated.items() if not all(home.startswith("kernels/") for home in found)
    }
