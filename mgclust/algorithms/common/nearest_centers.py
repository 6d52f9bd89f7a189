"""The nearest of some centres of each row."""

from __future__ import annotations

import numpy as np

from mgclust.engine.spmd import Context

__all__ = ["nearest_centers"]


def nearest_centers(context: Context, centers: np.ndarray) -> np.ndarray:
    """The nearest centre of each row, of equally near ones the first; int32, on the host of every rank."""
    kernels, xp, rows = context.kernels, context.kernels.xp, context.rows
    v = kernels.memory.to_device(centers.astype(context.dtype))
    labels = xp.zeros(len(rows), dtype="int32")
    for chunk in context.chunks():
        count = len(chunk.x)
        if count:
            best, index = xp.full(count, xp.inf, dtype=context.dtype), xp.full(count, -1, dtype="int64")
            kernels.pairs.nearest_column(chunk.x, v, norm="l2", y_start=0, best=best, best_index=index)
            labels[chunk.start - rows.start : chunk.stop - rows.start] = index
    return np.asarray(kernels.memory.to_host(context.comm.all_gather(labels)))
