"""Sums of float64 parts whose bits do not depend on their order, nor on which rank holds which part.

Every element has a power of two of its own, above the largest of its parts; parts become integers on that scale, small
enough for the sum not to overflow, and integers add up the same in any order. What is rounded off is below 2^-53 of
the largest part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.exact_sums import ZERO

__all__ = ["column_sums", "from_integers", "integer_sums", "largest_exponents"]

Array = Any
SIDE_BY_SIDE = 4096


@np.errstate(over="ignore", invalid="ignore")  # what overflows is for the caller to refuse
def column_sums(x: Array, about: Array | None = None) -> Array:
    if about is not None:
        x = (x - about) ** 2
    # Many rows side by side: few columns of many rows are summed slowly.
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
