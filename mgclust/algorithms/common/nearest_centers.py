"""The nearest centre of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mgclust.algorithms.common.preparation import Prepared, prepare_again
from mgclust.data import Dataset
from mgclust.engine.dask.cluster import connect
from mgclust.engine.spmd import Context, RunSpec, run
from mgclust.kernels.pairs.metrics import METRICS

__all__ = ["labels_by_centers", "nearest_centers"]

Array = Any


def nearest_centers(context: Context, centers: np.ndarray, norm: str = "l2") -> Array:
    """Return the nearest centre of each local row (ties: the first), int32, on the device."""
    kernels, xp, rows = context.kernels, context.kernels.xp, context.rows
    v = kernels.memory.to_device(centers.astype(context.dtype))
    labels = xp.zeros(len(rows), dtype="int32")
    for chunk in context.chunks():
        for start in range(0, len(chunk.x), rows.piece):
            x = chunk.x[start : start + rows.piece]
            best, index = xp.full(len(x), xp.inf, dtype=context.dtype), xp.full(len(x), -1, dtype="int64")
            kernels.pairs.nearest_column(x, v, norm=norm, y_start=0, best=best, best_index=index)
            at = chunk.start + start - rows.start
            labels[at : at + len(x)] = index
    return labels


def nearest_given(context: Context, *, centers: np.ndarray, metric: str) -> None:
    """Run on every rank: prepare the rows and the centres, and deliver the nearest centre of each row.

    The centres are in the units of the rows before their preparation.
    """
    measure, origin = METRICS[metric], np.zeros(context.dataset_shape[1])
    prepare_again(context, measure, Prepared(0.0, origin))
    among = measure.prepare(origin)(np.asarray(centers, np.float64))
    context.deliver(labels=nearest_centers(context, among, measure.norm))


def labels_by_centers(
    dataset: Dataset,
    centers: np.ndarray,
    metric: str,
    place: Mapping[str, Any],
    memory_limit: int | None,
) -> Any:
    """Find the nearest centre of each row of a data set; rows and centres are in the same units.

    Parameters
    ----------
    dataset : Dataset
        The rows. Each rank reads its own rows.
    centers : ndarray of shape (n_clusters, n_features)
    metric : str
        One of `METRICS`.
    place : mapping
        Where to compute, as arguments of `connect`.
    memory_limit : int, optional
        Bytes of memory that each rank may use on its device.

    Returns
    -------
    ndarray or Dask array of shape (n_samples,), int32
        Ties go to the first centre. Distances are computed in float64.
    """
    arguments = {"centers": centers, "metric": metric}
    spec = RunSpec(nearest_given, arguments, dtype="float64", memory_limit=memory_limit, resident=False)
    with connect(**place, optional=True) as cluster:
        return run(spec, dataset, cluster).arrays["labels"]
