"""Labels of new rows: each takes the label of its nearest denser fitted row, or of a centre if the centre is nearer.

The density of a new row is computed as if this row had been added to the fitted rows, whose densities stay unchanged.
A centre is a candidate whatever its density is: a new row that is denser than the centre of its cluster would itself be
the centre, and its nearest denser row belongs to another cluster. A new row that is equal to fitted rows takes the
label of the first of them.

If low density separates the clusters, links to denser rows could jump over the sparse rows between clusters. So each
new row takes the label of its nearest fitted row.

With ``k="adaptive"``, a new row has as many neighbours as its nearest fitted row.

Each rank labels a part of the new rows. The fitted rows of all ranks stream past this part in two passes. The result
is bitwise identical on any number of ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.common.preparation import prepare_beside, prepare_rows
from mgclust.algorithms.density_peaks.decision_graph import density_order
from mgclust.algorithms.density_peaks.topography.adaptive_density import (
    PIECE_BYTES,
    adaptive_error,
    adaptive_rho,
    shells,
)
from mgclust.engine.memory import Estimate
from mgclust.engine.rows import Block
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.density import TILE_BYTES, add_density, computed_tiles
from mgclust.kernels.pairs.metrics import METRICS, Metric

__all__ = ["estimate_prediction", "predict_labels"]

Array = Any


def predict_labels(
    context: Context,
    *,
    metric: str,
    density: str,
    k: int,
    dim: float | None,
    fitted_k: np.ndarray | None,
    dc: float,
    rho: np.ndarray,
    labels: np.ndarray,
    centers: np.ndarray,
    separated: bool = False,
    weights: np.ndarray | None = None,
) -> None:
    """Label the new rows, on every rank; each rank delivers "labels" of its part.

    k: number of nearest rows; 0 if the density needs none.
    dc: the cut-off distance; its value has no effect if the density needs none.
    separated: whether low density separates the clusters.
    dim, fitted_k: with ``k="adaptive"``, the intrinsic dimension and the number of neighbours of each fitted row.
    weights: weights of the fitted rows of this rank.
    """
    measure, kernels, xp = METRICS[metric], context.kernels, context.kernels.xp
    at: dict[str, Any]
    gaussian = density == "gaussian"
    with context.stage("prepare"):
        own_weights = None if weights is None else xp.asarray(weights, "float64")
        prepared = prepare_rows(context, measure, own_weights, gaussian=gaussian)
        x = prepare_beside(context, measure, prepared, gaussian=gaussian)
        every_weight = None if own_weights is None else context.comm.all_gather(own_weights)
        if every_weight is not None:  # rows of weight 0 come last, so no row takes their label
            rho = np.where(kernels.memory.to_host(every_weight) > 0, rho, -1.0)
            every_weight = every_weight.astype(context.dtype)
        order = density_order(xp, kernels.memory.to_device(rho))
        order[xp.asarray(centers)] = 0  # the densest row is a centre, so every row has a denser one

    def nearest() -> tuple[Array, Array]:
        return xp.full(len(x), xp.inf, dtype=context.dtype), xp.full(len(x), -1, dtype="int64")

    if separated:
        with context.stage("delta"):
            s, index = nearest()
            for done, block in enumerate(context.comm.stream(context.rows)):
                at = {"norm": measure.norm, "y_start": block.start}
                kernels.pairs.nearest_column(x, block.x, **at, best=s, best_index=index)
                context.progress((done + 1) / context.comm.stream_length())
            context.deliver(labels=kernels.memory.to_device(labels)[index])
        return
    with context.stage("rho"):
        s, equal = nearest()
        own, count = xp.zeros(len(x), dtype="float64"), xp.zeros(len(x), dtype="int64")
        near = xp.full((len(x), k), xp.inf, dtype=context.dtype)
        near_index = xp.full(near.shape, -1, dtype="int64")
        for done, block in enumerate(context.comm.stream(context.rows)):
            at = {"norm": measure.norm, "y_start": block.start}
            kernels.pairs.nearest_column(x, block.x, **at, best=s, best_index=equal)
            if every_weight is not None:
                _add_weighted(context, measure, x, block, every_weight, density, measure.reduced(dc), own)
            elif density == "knn":
                kernels.pairs.nearest_rows(x, block.x, **at, near=near, near_index=near_index)
            elif density == "cutoff":
                kernels.pairs.count_within(x, block.x, norm=measure.norm, threshold=measure.reduced(dc), out=count)
            else:
                kernels.pairs.gaussian_sum(x, block.x, **at, scale=measure.scale(dc), power=measure.power, out=own)
            context.progress((done + 1) / context.comm.stream_length())
        if dim is not None and fitted_k is not None:
            own = _adaptive_density(context, measure, near, near_index, dim, fitted_k)
        elif density == "knn":
            last = measure.distances(near[:, -1].astype("float64"), xp)
            own = xp.where(last > 0, 1.0 / xp.where(last > 0, last, 1.0), xp.inf)
        elif density == "cutoff" and weights is None:
            own = count.astype("float64")
        # Rows that are at least as dense come first in the order, and centres before them.
        ascending = kernels.memory.to_device(np.sort(rho))
        denser = xp.maximum(len(rho) - xp.searchsorted(ascending, own), 1).astype("int32")
    with context.stage("delta"):
        best, index = nearest()
        for done, block in enumerate(context.comm.stream(context.rows)):
            kernels.pairs.nearest_higher(
                x,
                block.x,
                denser,
                order[block.start : block.stop],
                norm=measure.norm,
                y_start=block.start,
                best=best,
                best_index=index,
            )
            context.progress((done + 1) / context.comm.stream_length())
        context.deliver(labels=kernels.memory.to_device(labels)[xp.where(s == 0, equal, index)])


def _adaptive_density(
    context: Context, measure: Metric, near: Array, near_index: Array, dim: float, fitted: np.ndarray
) -> Array:
    """Compute the density of new rows; each has as many neighbours as its nearest fitted row."""
    xp = context.kernels.xp
    k = context.kernels.memory.to_device(fitted)[near_index[:, 0]]
    r = measure.distances(near.astype("float64"), xp)
    radius = xp.take_along_axis(r, k[:, None].astype("int64") - 1, axis=1)[:, 0]
    some = xp.where(radius > 0, radius, 1.0)
    rho = adaptive_rho(shells(r, some, k, dim, xp), adaptive_error(k, xp), some, dim, xp)
    return xp.where(radius > 0, rho, xp.inf)


def _add_weighted(
    context: Context,
    measure: Metric,
    x: Array,
    block: Block,
    weights: Array,
    density: str,
    cut: float,
    out: Array,
) -> None:
    """Add the contribution of a block of weighted rows to the density of new rows."""
    kernels, mine = context.kernels, weights[block.start : block.stop]
    for own, columns, s in computed_tiles(kernels, x, block.x, measure.norm, context.spare):
        add_density(
            s,
            mine[columns],
            density=density,
            cut=cut,
            power=measure.power,
            equal=out[own],
            others=out[own],
            xp=kernels.xp,
        )


def estimate_prediction(
    shape: tuple[int, int],
    itemsize: int,
    size: int,
    room: int,
    *,
    rows: int,
    k: int,
    weighted: bool,
    adaptive: bool,
) -> Estimate:
    """Estimate the memory of a rank in addition to the fitted rows."""
    what = {
        "new rows": -(-rows // size) * (shape[1] * (16 + itemsize) + k * (itemsize + 8) + 64),
        "vectors of all rows": 32 * shape[0],
    }
    if weighted:
        what["tile"] = TILE_BYTES
    if adaptive:
        what["densities"] = PIECE_BYTES * -(-rows // size)
    return Estimate(what)
