r"""The k nearest rows of each row, exact, on any number of ranks.

Each rank owns some rows. The rows of all ranks stream past it, and each local row keeps the k nearest rows so far,
ordered by (distance, row number). A row is not its own neighbour: rows are identified by their number. There is never
an n x n array.

Time: n^2 distances of d multiply-adds, shared by the ranks; with few features, bounding boxes of distant rows are
skipped (`common.nearest_rows`). Memory: k row numbers and distances per row; if these lists do not fit, each rank takes
its rows in batches. Distances are computed by direct differences, and depend only on the two rows. So the result is
bitwise identical on any number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgclust.algorithms.common.nearest_rows import search_all_rows
from mgclust.algorithms.common.preparation import prepare_beside, prepare_rows
from mgclust.engine.memory import Estimate
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.metrics import METRICS

__all__ = ["NearestNeighborsOutput", "estimate", "search_neighbors"]

MIN_PIECE = 256  # minimum number of rows in a batch; lists of a batch must fit in addition to the finished lists


@dataclass(frozen=True)
class NearestNeighborsOutput:
    """Results on rank 0: statistics of the distances from all rows to the last of their nearest rows."""

    median: float
    largest: float
    distance_error: float  # see `Prepared.error_of`


def search_neighbors(context: Context, *, metric: str, n_neighbors: int) -> NearestNeighborsOutput | None:
    """Run the method on every rank; each rank delivers "distances" and "indices" of its rows or queries."""
    measure, rows, xp, host = METRICS[metric], context.rows, context.kernels.xp, context.kernels.memory.to_host
    with context.stage("prepare"):
        prepared, share, queries = prepare_rows(context, measure, gaussian=False), (rows.start, rows.stop), None
        if context.beside is not None:
            queries = prepare_beside(context, measure, prepared, gaussian=False, name="queries")
            share = context.beside.start, context.beside.stop
    with context.stage("neighbors"):
        distances = np.empty((share[1] - share[0], n_neighbors), context.dtype)
        indices = np.empty(distances.shape, np.int64)
        row_bytes = n_neighbors * (distances.itemsize + indices.itemsize)
        pieces = context.cut_rows(row_bytes, None if queries is None else share)
        for done, (start, stop) in enumerate(pieces):
            at = slice(start - share[0], stop - share[0])
            x = rows.read(start, stop) if queries is None else queries[at]
            own = xp.arange(start, stop) if queries is None else None
            near = xp.full((stop - start, n_neighbors), xp.inf, dtype=context.dtype)
            index = xp.full(near.shape, -1, dtype="int64")
            for part in search_all_rows(context, x, measure.norm, near, index, own):
                context.progress((done + part) / len(pieces))
            distances[at] = host(measure.distances(near, xp))
            indices[at] = host(index)
            _order_ties(distances[at], indices[at])
        context.deliver(distances=distances, indices=indices)
        last = distances[:, -1]
        last = context.comm.exchange([last, *[last[:0]] * (context.size - 1)])
    if context.rank != 0:
        return None
    return NearestNeighborsOutput(float(np.median(last)), float(last.max()), prepared.error_of(measure, last))


def _order_ties(distances: np.ndarray, indices: np.ndarray) -> None:
    """Sort neighbours at the same distance by row number, in place.

    The lists are sorted by squared distances, and the roots of two different squares can be rounded to the same number.
    """
    wrong = (distances[:, 1:] == distances[:, :-1]) & (indices[:, 1:] < indices[:, :-1])
    some = np.flatnonzero(wrong.any(axis=1))
    order = np.lexsort((indices[some], distances[some]), axis=1)
    indices[some] = np.take_along_axis(indices[some], order, axis=1)


def estimate(
    shape: tuple[int, int],
    itemsize: int,
    size: int,
    room: int,
    *,
    n_neighbors: int,
    queries: int | None,
    links: bool = False,
) -> Estimate:
    """Estimate the memory of a rank in addition to its rows; rank 0 also has one distance per row.

    links: whether the run makes a graph.
    """
    lists, rows = n_neighbors * (itemsize + 8), shape[0] if queries is None else queries
    what = {
        "neighbours of local rows": lists * -(-rows // size),
        "one distance per row": 2 * itemsize * rows,
        "neighbours of a batch of rows": 2 * MIN_PIECE * lists,
    }
    if links:
        what["edges of the graph"] = 4 * n_neighbors * rows
    if queries is not None:
        what["queries"] = -(-queries // size) * shape[1] * (16 + itemsize)
    return Estimate(what)
