"""Passes over the pairs of a sample of rows that every rank has: nearest rows, and densities at several dc.

Each rank computes consecutive rows of the sample, and the results of all ranks are gathered. With precomputed
distances, the sample is a matrix whose rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mgclust.algorithms.density_peaks.cutoff_distance.row_sample import RowSample
from mgclust.algorithms.density_peaks.decision_graph import density_order
from mgclust.algorithms.density_peaks.passes.all_pairs import Neighbors
from mgclust.algorithms.density_peaks.passes.precomputed_pairs import GIVEN
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.density import add_density, computed_tiles, density_of
from mgclust.kernels.pairs.metrics import Metric

__all__ = ["densities_at", "nearest_denser", "nearest_rows"]

Array = Any
BLOCK_ROWS = 8192  # number of columns between two checks for a cancelled run
GIVEN_ROWS = 256  # number of rows of distances that are sorted at once


def nearest_rows(context: Context, measure: Metric, sample: RowSample, k: int) -> Neighbors:
    """Find the k nearest other rows for this rank's rows of the sample."""
    xp, x, own = context.kernels.xp, sample.x, _own(context, len(sample))
    shape, rows = (own.stop - own.start, k), xp.arange(own.start, own.stop)
    near = Neighbors(xp.full(shape, xp.inf, dtype=x.dtype), xp.full(shape, -1, dtype="int64"))
    if measure is GIVEN:
        for start in range(own.start, own.stop, GIVEN_ROWS):
            s = x[start : min(start + GIVEN_ROWS, own.stop)].copy()
            s[xp.arange(len(s)), xp.arange(start, start + len(s))] = xp.inf
            here = slice(start - own.start, start - own.start + len(s))
            near.index[here] = xp.argsort(s, axis=1, kind="stable")[:, :k]
            near.s[here] = xp.take_along_axis(s, near.index[here], axis=1)
        return near
    for start, columns in _blocks(context, x):
        context.kernels.pairs.nearest_rows(
            x[own], columns, norm=measure.norm, y_start=start, near=near.s, near_index=near.index, rows=rows
        )
    return near


def densities_at(context: Context, measure: Metric, sample: RowSample, cuts: list[float]) -> list[Array]:
    """Compute Gaussian densities at each dc, float64 on the device, from one pass over all pairs of the sample."""
    equal = sample.weights is None or bool((sample.weights == sample.weights[0]).all())
    if measure is GIVEN or not equal:
        return _weighted_densities(context, measure, sample, cuts)
    xp, pairs, x, own = context.kernels.xp, context.kernels.pairs, sample.x, _own(context, len(sample))
    mine = x[own]
    sums = xp.zeros((len(cuts), len(mine)), dtype="float64")
    how: dict[str, Any] = {"norm": measure.norm, "power": measure.power, "scales": [measure.scale(dc) for dc in cuts]}
    rows = xp.arange(own.start, own.stop)
    for start, columns in _blocks(context, x):
        pairs.gaussian_sums(mine, columns, **how, out=sums, rows=rows, y_start=start)
    every = context.comm.all_gather(xp.ascontiguousarray(sums.T)).T
    weight = 1.0 if sample.weights is None else float(sample.weights[0])
    return [weight * xp.ascontiguousarray(rho) + max(weight - 1.0, 0.0) for rho in every]


def _weighted_densities(context: Context, measure: Metric, sample: RowSample, cuts: list[float]) -> list[Array]:
    xp, own = context.kernels.xp, _own(context, len(sample))
    mine = sample.x[own]
    weights = None if sample.weights is None else xp.asarray(sample.weights.astype(sample.x.dtype))
    equal, others = (xp.zeros((len(cuts), len(mine)), dtype="float64") for _ in range(2))
    tiles: Any = ((slice(at, at + GIVEN_ROWS), slice(0, len(sample)), mine[at : at + GIVEN_ROWS])
                  for at in range(0, len(mine), GIVEN_ROWS))  # fmt: skip
    if measure is not GIVEN:
        tiles = computed_tiles(context.kernels, mine, sample.x, measure.norm, context.spare)
    for rows, columns, s in tiles:
        for at, dc in enumerate(cuts):
            add_density(
                s, None if weights is None else weights[columns], density="gaussian", cut=measure.reduced(dc),
                power=measure.power, equal=equal[at, rows], others=others[at, rows], xp=xp,
            )  # fmt: skip
    every = context.comm.all_gather(xp.ascontiguousarray(density_of(equal, others, xp).T)).T
    return [xp.ascontiguousarray(rho) for rho in every]


def nearest_denser(context: Context, measure: Metric, sample: RowSample, rho: Array, near: Neighbors) -> np.ndarray:
    """Return the distance delta of each row of the sample to its nearest denser row, on the host."""
    xp, kernels, x = context.kernels.xp, context.kernels, sample.x
    order = density_order(xp, rho)
    best = context.comm.all_gather(_nearest_higher(context, measure, x, order, near))
    densest = int(xp.argmin(order))
    row = x[densest : densest + 1]
    far = row if measure is GIVEN else kernels.pairs.reduced_distances(row, x, norm=measure.norm)
    best[densest] = far.max()
    return np.asarray(kernels.memory.to_host(measure.distances(best.astype("float64"), xp)))


def _own(context: Context, m: int) -> slice:
    """Return the rows of the sample that this rank computes."""
    return slice(m * context.rank // context.size, m * (context.rank + 1) // context.size)


def _blocks(context: Context, x: Array) -> Iterator[tuple[int, Array]]:
    """Yield blocks of columns, each with the number of its first column."""
    for start in range(0, len(x), BLOCK_ROWS):
        context.progress(start / len(x))
        yield start, x[start : start + BLOCK_ROWS]


def _nearest_higher(context: Context, measure: Metric, x: Array, order: Array, near: Neighbors) -> Array:
    """Return the reduced distance of this rank's rows to their nearest denser row."""
    xp, own = context.kernels.xp, _own(context, len(x))
    higher = order[near.index] < order[own][:, None]
    first = higher.argmax(axis=1)[:, None]  # the nearest denser row, because lists ascend by distance
    best = xp.take_along_axis(near.s, first, axis=1)[:, 0]
    which = own.start + xp.flatnonzero(~higher.any(axis=1))
    if measure is GIVEN:
        for at in which.tolist():
            best[at - own.start] = xp.where(order < order[at], x[at], xp.inf).min()
        return best
    s, at = xp.full(len(which), xp.inf, dtype=x.dtype), xp.full(len(which), -1, dtype="int64")
    mine, own_order = x[which], order[which]
    for start, columns in _blocks(context, x):
        context.kernels.pairs.nearest_higher(
            mine, columns, own_order, order[start : start + len(columns)],
            norm=measure.norm, y_start=start, best=s, best_index=at,
        )  # fmt: skip
    best[which - own.start] = s
    return best
