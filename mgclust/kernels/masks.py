"""Tests of masks, and counts, by kernels that CuPy need not compile from CUB's headers."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["all_true", "any_true", "count_true", "occurrences"]

Array = Any

# On a GPU the least or largest byte comes from a kernel that CuPy ships. For `mask.all()` and `mask.any()` it compiles
# two each from CUB's headers, a second or more apiece; so it does for those of each row (`axis=1`), for sums,
# and in `bincount`.


def all_true(mask: Array) -> bool:
    """Return whether every element is true."""
    return not mask.size or bool(mask.view("uint8").min())


def any_true(mask: Array) -> bool:
    """Return whether an element is true."""
    return bool(mask.size) and bool(mask.view("uint8").max())


def count_true(mask: Array) -> int:
    """Return how many elements are true."""
    # CuPy ships a sum of 64-bit integers; for one of a mask, or `count_nonzero`, it compiles two kernels as above.
    return int(np.count_nonzero(mask)) if isinstance(mask, np.ndarray) else int(mask.astype("int64").sum())


def occurrences(values: Array, bins: int, xp: Any) -> Array:
    """Return how often each number below `bins` occurs; uint64, the integers that CuPy adds at places."""
    out = xp.zeros(bins, dtype="uint64")
    xp.add.at(out, values, xp.ones(len(values), dtype="uint64"))
    return out
