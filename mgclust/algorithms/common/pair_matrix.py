"""Parts shared by methods that are given a matrix of all pairs, whose rows are divided among the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mgclust.data import Dataset
from mgclust.engine.spmd import Context
from mgclust.errors import InputError

__all__ = ["check_square", "order_statistic"]

Array = Any
BIN_BITS = 11  # of one pass


def check_square(dataset: Dataset, parameter: str, what: str) -> None:
    """Refuse rows that are no square matrix of all pairs; `what` names its figures in the error."""
    n, d = dataset.shape
    if n != d:
        raise InputError(
            f"{parameter}='precomputed' needs a square matrix of {what}, not shape=({n}, {d}); give all {what} of n "
            f"rows, or the rows themselves with {parameter}='euclidean'."
        )


def order_statistic(context: Context, parts: Callable[[], Iterable[Array]], rank: int) -> float:
    """Find the rank-th smallest (from 1) of the numbers of all ranks, by its bits: 11 of them a pass.

    Parameters
    ----------
    context : Context
    parts : callable
        Gives the rows of this rank, some at a time, each time that it is called: arrays of shape (m, at least n), in
        the context's type, whose first n columns count; -inf is no number.
    rank : int
    """
    xp, n, dtype = context.kernels.xp, context.dataset_shape[0], context.dtype
    bits = dtype.itemsize * 8
    low, left = -(1 << (bits - 1)), bits
    while left:
        shift = max(0, left - BIN_BITS)
        counts = xp.zeros(1 + (1 << (left - shift)), dtype="int64")
        for s in parts():
            context.kernels.pairs.value_histogram(s, n=n, low=low, shift=shift, out=counts)
        upto = np.cumsum(context.kernels.memory.to_host(context.comm.all_reduce(counts, "sum")))
        low += int(np.searchsorted(upto[1:], rank)) << shift
        left = shift
    # The key of a negative number has all bits but the sign inverted.
    pattern = low if low >= 0 else low ^ ((1 << (bits - 1)) - 1)
    return float(np.array([pattern], dtype=f"i{bits // 8}").view(dtype)[0])
