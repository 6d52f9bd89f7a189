"""Constants of neighbour lists, for tests in which lists are short or change often."""

from __future__ import annotations

from typing import Any

from pytest import MonkeyPatch

from mgclust.algorithms.affinity_propagation.rows import list_storage, listed_rows


def set_constant(monkeypatch: MonkeyPatch, name: str, value: Any) -> None:
    """Set a constant in each module of the lists that reads it."""
    modules = [module for module in (listed_rows, list_storage) if hasattr(module, name)]
    assert modules, name
    for module in modules:
        monkeypatch.setattr(module, name, value)
