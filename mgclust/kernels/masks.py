"""Tests of whether all elements of a mask are true, or any."""

from __future__ import annotations

from typing import Any

__all__ = ["all_true", "any_true"]

Array = Any

# On a GPU the least or largest byte comes from a kernel that CuPy ships. For `mask.all()` and `mask.any()` it compiles
# two each from CUB's headers, a second or more apiece.


def all_true(mask: Array) -> bool:
    """Return whether every element is true."""
    return not mask.size or bool(mask.view("uint8").min())


def any_true(mask: Array) -> bool:
    """Return whether an element is true."""
    return bool(mask.size) and bool(mask.view("uint8").max())
