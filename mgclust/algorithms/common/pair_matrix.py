"""Parts shared by methods that are given a matrix of all pairs, whose rows are divided among the ranks."""

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
BIN_BITS = 11  # of one pass


def check_square(dataset: Dataset, parameter: str, what: str, *, sparse: bool = False) -> None:
    """Refuse rows that are no square matrix of all pairs; `what` names its figures in the error.

    With `sparse`, they may be stored as a sparse matrix.
    """
    n, d = dataset.shape
    if isinstance(dataset, SparseRows) and not sparse:
        raise InputTypeError(
            f"{parameter}='precomputed' needs all {what}, and sparse data hold some: the others are not 0; give "
            "X.toarray() if they are 0, or the rows themselves."
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
    """Find the rank-th smallest (from 1) of the numbers of all ranks, by their bits: 11 of them a pass.

    Parameters
    ----------
    context : Context
    parts : callable
        Gives the rows of this rank, some at a time, each time that it is called: arrays of shape (m, at least n), in
        the context's type, whose first n columns count; -inf is no number.
    ranks : sequence of int
        Ascending. Those whose numbers share their first bits share the passes.
    between : (float, float), optional
        Where the numbers are believed to be; it saves passes if it is true.
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
        low, left = -(1 << (bits - 1)), bits  # for those that are not there, or not together
    return found


def _descend(
    context: Context, parts: Callable[[], Iterable[Array]], ranks: Sequence[int], low: int, left: int
) -> list[int]:
    """Keys of the ranks, as many as share all passes; none if the first is not one of the 2^left from `low` on."""
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
    """The bits of a number as an integer in the numbers' order: of a negative one, all but the sign inverted."""
    bits = dtype.itemsize * 8
    pattern = int(np.array([value], dtype).view(f"i{bits // 8}")[0])
    return pattern if pattern >= 0 else pattern ^ ((1 << (bits - 1)) - 1)


def _number(key: int, dtype: np.dtype) -> float:
    """The number of a key."""
    bits = dtype.itemsize * 8
    pattern = key if key >= 0 else key ^ ((1 << (bits - 1)) - 1)
    return float(np.array([pattern], dtype=f"i{bits // 8}").view(dtype)[0])
