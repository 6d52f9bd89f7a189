"""Sums of float64 parts, bitwise independent of the order of the parts and of the ranks that have them.

Each element has its own power of two, which is above the largest of its parts. Parts are rounded to integers on this
scale; the integers are so small that their sum does not overflow. Sums of integers do not depend on their order. The
rounding error is below 2^-53 of the largest part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.exact_sums import ZERO

__all__ = ["column_sums", "from_integers", "integer_sums", "largest_exponents"]

Array = Any
SIDE_BY_SIDE = 4096


@np.errstate(over="ignore", invalid="ignore")  # the caller rejects values that overflow
def column_sums(x: Array, about: Array | None = None) -> Array:
    if about is not None:
        x = (x - about) ** 2
    # Several rows are treated as one long row, because NumPy is slow for many rows with few columns.
    blocks, m, d = x.shape
    side = max(1, SIDE_BY_SIDE // d)
    whole = m // side * side
    sums = x[:, :whole].reshape(blocks, -1, side * d).sum(axis=1, dtype="float64").reshape(blocks, side, d).sum(axis=1)
    return sums + x[:, whole:].sum(axis=1, dtype="float64")


def largest_exponents(parts: Array) -> Array:
    if not len(parts):
        return np.full(parts.shape[1:], ZERO, np.int32)
    largest = abs(parts).max(axis=0)
    return np.where(largest > 0, np.frexp(largest)[1], ZERO).astype(np.int32)


def integer_sums(parts: Array, exponents: Array, *, bits: int) -> Array:
    return np.asarray(np.rint(np.ldexp(parts, bits - exponents)).astype(np.int64).sum(axis=0))


def from_integers(integers: Array, exponents: Array, *, bits: int) -> Array:
    return np.ldexp(integers.astype(np.float64), exponents - bits)
