"""Each class of the package has a name of its own."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import mgclust

PACKAGE = Path(mgclust.__file__).parent


def test_class_names_are_unique():
    """A class within another is named with it."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module in PACKAGE.rglob("*.py"):
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module.relative_to(PACKAGE).as_posix())
    assert not {name: found for name, found in homes.items() if len(found) > 1}
