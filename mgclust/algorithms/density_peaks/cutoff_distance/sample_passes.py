"""Passes over the pairs of a sample of rows, which every rank has: nearest rows, and densities at several dc.

Each rank answers for consecutive rows of the sample, and gathers what the others have found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mgclust.algorithms.density_peaks.decision_graph import density_order
from mgclust.algorithms.density_peaks.passes.all_pairs import Neighbors
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.metrics import Metric

__all__ = ["densities_at", "nearest_rows"]

Array = Any
BLOCK_ROWS = 8192  # columns between two looks at whether the run was cancelled


def nearest_rows(context: Context, measure: Metric, x: Array, k: int) -> Neighbors:
    """The k nearest other rows of own ones of the rows x, which every rank has."""
    xp, own = context.kernels.xp, _own(context, len(x))
    shape, rows = (own.stop - own.start, k), xp.arange(own.start, own.stop)
    near = Neighbors(xp.full(shape, xp.inf, dtype=x.dtype), xp.full(shape, -1, dtype="int64"))
    for start, columns in _blocks(context, x):
        context.kernels.pairs.nearest_rows(
            x[own], columns, norm=measure.norm, y_start=start, near=near.s, near_index=near.index, rows=rows
        )
    return near


def densities_at(
    context: Context, measure: Metric, x: Array, cuts: list[float], near: Neighbors, alike: Array
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """rho and delta of the rows x, which every rank has, at each dc."""
    xp, kernels = context.kernels.xp, context.kernels
    for rho in _pair_densities(context, measure, x, cuts, alike):
        order = density_order(xp, rho)
        best = context.comm.all_gather(_nearest_higher(context, measure, x, order, near))
        densest = int(xp.argmin(order))
        best[densest] = kernels.pairs.reduced_distances(x[densest : densest + 1], x, norm=measure.norm).max()
        delta = measure.distances(best.astype("float64"), xp)
        yield kernels.memory.to_host(rho), kernels.memory.to_host(delta)


def _own(context: Context, m: int) -> slice:
    """The rows of the sample that this rank answers for."""
    return slice(m * context.rank // context.size, m * (context.rank + 1) // context.size)


def _blocks(context: Context, x: Array) -> Iterator[tuple[int, Array]]:
    """Columns, and the number of the first, some at a time."""
    for start in range(0, len(x), BLOCK_ROWS):
        context.progress(start / len(x))
        yield start, x[start : start + BLOCK_ROWS]


def _pair_densities(context: Context, measure: Metric, x: Array, cuts: list[float], alike: Array) -> Array:
    """Gaussian densities at each dc, by one pass over all pairs."""
    xp, pairs, own = context.kernels.xp, context.kernels.pairs, _own(context, len(x))
    mine = x[own]
    sums = xp.zeros((len(cuts), len(mine)), dtype="float64")
    how: dict[str, Any] = {"norm": measure.norm, "power": measure.power, "scales": [measure.scale(dc) for dc in cuts]}
    for start, columns in _blocks(context, x):
        pairs.gaussian_sums(mine, columns, **how, out=sums, rows=alike[own], y_start=start)
    return xp.ascontiguousarray(context.comm.all_gather(xp.ascontiguousarray(sums.T)).T)


def _nearest_higher(context: Context, measure: Metric, x: Array, order: Array, near: Neighbors) -> Array:
    """Reduced distance of each own row to its nearest denser one."""
    xp, own = context.kernels.xp, _own(context, len(x))
    higher = order[near.index] < order[own][:, None]
    first = higher.argmax(axis=1)[:, None]  # lists ascend
    best = xp.take_along_axis(near.s, first, axis=1)[:, 0]
    which = own.start + xp.flatnonzero(~higher.any(axis=1))
    s, at = xp.full(len(which), xp.inf, dtype=x.dtype), xp.full(len(which), -1, dtype="int64")
    mine, own_order = x[which], order[which]
    for start, columns in _blocks(context, x):
        context.kernels.pairs.nearest_higher(
            mine, columns, own_order, order[start : start + len(columns)],
            norm=measure.norm, y_start=start, best=s, best_index=at,
        )  # fmt: skip
    best[which - own.start] = s
    return best
