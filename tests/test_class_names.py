"""Each class of the package has a name of its own."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import mgclust


def test_class_names_are_unique():
    """Those of modules; a class within another is named with it."""
    modules = Path(mgclust.__file__).parent.rglob("*.py")
    bodies = [ast.parse(module.read_text(encoding="utf-8")).body for module in modules]
    names = Counter(node.name for body in bodies for node in body if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []
