"""Tests and counts of Boolean masks, without kernels that CuPy compiles slowly from CUB's headers."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["all_true", "any_true", "count_true", "occurrences"]

Array = Any

# On a GPU, the smallest or largest byte comes from a kernel that CuPy ships. For each of `mask.all()` and `mask.any()`,
# CuPy compiles two kernels from CUB's headers, which take a second or more each. It also compiles kernels from these
# headers for tests with `axis=1`, for sums, and for `bincount`.


def all_true(mask: Array) -> bool:
    """Return whether every element is true."""
    return not mask.size or bool(mask.view("uint8").min())


def any_true(mask: Array) -> bool:
    """Return whether at least one element is true."""
    return bool(mask.size) and bool(mask.view("uint8").max())


def count_true(mask: Array) -> int:
    """Return how many elements are true."""
    # CuPy ships a kernel that sums 64-bit integers. For the sum of a mask or `count_nonzero`, it would compile two
    # kernels from CUB's headers, as above.
    return int(np.count_nonzero(mask)) if isinstance(mask, np.ndarray) else int(mask.astype("int64").sum())


def occurrences(values: Array, bins: int, xp: Any) -> Array:
    """Return how often each number below `bins` occurs, as uint64, because CuPy's `add.at` supports this type."""
    out = xp.zeros(bins, dtype="uint64")
    xp.add.at(out, values, xp.ones(len(values), dtype="uint64"))
    return out
