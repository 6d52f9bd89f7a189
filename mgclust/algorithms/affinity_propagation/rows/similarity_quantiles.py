"""Median and quantiles of the similarities of all pairs, for preferences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import Similarities
from mgclust.algorithms.common.pair_matrix import order_statistics
from mgclust.engine.spmd import Context

__all__ = ["median", "median_ranks", "quantile"]

Array = Any


def median(context: Context, similarities: Similarities, *, with_diagonal: bool) -> float:
    """Return the median of the similarities of pairs, with or without the diagonal."""

    def parts() -> Iterator[Array]:
        yield from similarities.numbers()
        if with_diagonal and context.rank == 0:
            yield context.kernels.xp.asarray(similarities.diagonal, context.dtype)[None]

    ranks = median_ranks(similarities.count() + (context.dataset_shape[0] if with_diagonal else 0))
    return sum(order_statistics(context, parts, ranks, similarities.typical(0.5))) / 2


def quantile(context: Context, similarities: Similarities, share: float) -> float:
    """Return a quantile of the similarities of pairs, without the diagonal; interpolates as `numpy.quantile` does."""
    count = similarities.count()
    place = share * (count - 1)
    below = int(place)
    ranks = (below + 1, min(below + 2, count))
    low, high = order_statistics(context, similarities.numbers, ranks, similarities.typical(share))
    return low + (place - below) * (high - low)


def median_ranks(count: int) -> tuple[int, int]:
    """Return the ranks (from 1) of the two values whose mean is the median of `count` values."""
    return (count + 1) // 2, count // 2 + 1
