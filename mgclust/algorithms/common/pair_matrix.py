"""Functions for methods that take a matrix of all pairs, whose rows are divided among the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data import Dataset
from mgclust.data.base import InputTypeError
from mgclust.data.sparse import SparseRows
from mgclust.engine.spmd import Context

__all__ = ["check_square", "order_statistic", "order_statistics"]

Array = Any
BIN_BITS = 11  # bits of the numbers that one pass finds


def check_square(dataset: Dataset, parameter: str, what: str, *, sparse: bool = False) -> None:
    """Reject data that are not a square matrix of all pairs; `what` names the values of the matrix in the error.

    With `sparse`, the data may be a sparse matrix.
    """
    n, d = dataset.shape
    if isinstance(dataset, SparseRows) and not sparse:
        raise InputTypeError(
            f"{parameter}='precomputed' needs all {what}, but sparse data hold only some, and the others are not 0; "
            "give X.toarray() if the others are 0, or the rows themselves."
        )
    if n != d:
        raise InputError(
            f"{parameter}='precomputed' needs a square matrix of {what}, not shape=({n}, {d}); give all {what} of n "
            f"rows, or the rows themselves with {parameter}='euclidean'."
        )


def order_statistic(context: Context, parts: Callable[[], Iterable[Array]], rank: int) -> float:
    """Find the rank-th smallest of the numbers of all ranks; see `order_statistics`."""
    return order_statistics(context, parts, [rank])[0]


def order_statistics(
    context: Context,
    parts: Callable[[], Iterable[Array]],
    ranks: Sequence[int],
    between: tuple[float, float] | None = None,
) -> list[float]:
    """Find the k-th smallest of the numbers of all ranks, for some k; each pass finds 11 bits of the results.

    Parameters
    ----------
    context : Context
    parts : callable
        At each call, yields the rows of this rank, some at a time: arrays of shape (m, at least n) in the context's
        type. Only the first n columns count, and -inf does not count as a number.
    ranks : sequence of int
        The values of k, from 1, ascending. Results with the same first bits are found in the same passes.
    between : (float, float), optional
        Range in which the results probably lie. It saves passes if they do lie in this range.
    """
    dtype = context.dtype
    bits = dtype.itemsize * 8
    low, left = -(1 << (bits - 1)), bits
    if between is not None:
        low = _key(between[0], dtype)
        left = max(1, (_key(between[1], dtype) - low).bit_length())
    found: list[float] = []
    while len(found) < len(ranks):
        keys = _descend(context, parts, ranks[len(found) :], low, left)
        found += [_number(key, dtype) for key in keys]
        low, left = -(1 << (bits - 1)), bits  # for the numbers that this search has not found
    return found


def _descend(
    context: Context, parts: Callable[[], Iterable[Array]], ranks: Sequence[int], low: int, left: int
) -> list[int]:
    """Return the keys of the numbers at the first `ranks`, as many as the same passes can find.

    The list is empty if the key at the first rank is not among the 2^left keys from `low` on.
    """
    xp, n = context.kernels.xp, context.dataset_shape[0]
    keys = [low]
    while left:
        shift = max(0, left - BIN_BITS)
        counts = xp.zeros(1 + (1 << (left - shift)), dtype="int64")
        for s in parts():
            context.kernels.pairs.value_histogram(s, n=n, low=keys[0], shift=shift, out=counts)
        upto = np.cumsum(context.kernels.memory.to_host(context.comm.all_reduce(counts, "sum")))
        ranks = [rank for rank in ranks if upto[0] < rank <= upto[-1]] if upto[0] < ranks[0] <= upto[-1] else []
        if not ranks:
            return []
        keys = [keys[0] + (int(np.searchsorted(upto[1:], rank)) << shift) for rank in ranks]
        if shift:
            ranks = ranks[: keys.count(keys[0])]
        left = shift
    return keys


def _key(value: float, dtype: np.dtype) -> int:
    """Return the bits of a number as an integer, so that integers sort like numbers.

    For a negative number, all bits except the sign are inverted.
    """
    bits = dtype.itemsize * 8
    pattern = int(np.array([value], dtype).view(f"i{bits // 8}")[0])
    return pattern if pattern >= 0 else pattern ^ ((1 << (bits - 1)) - 1)


def _number(key: int, dtype: np.dtype) -> float:
    """Return the number that has a key, the inverse of `_key`."""
    bits = dtype.itemsize * 8
    pattern = key if key >= 0 else key ^ ((1 << (bits - 1)) - 1)
    return float(np.array([pattern], dtype=f"i{bits // 8}").view(dtype)[0])
