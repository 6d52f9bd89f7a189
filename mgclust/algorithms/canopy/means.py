"""K-means confined to canopies: a row is compared with the prototypes that share a canopy with it.

A prototype is in the canopies whose centres are within t1 of it, or in that of the nearest centre. The first prototypes
are centres of canopies, drawn far apart as k-means++ draws rows, each with the weight of the rows that are nearest to
it. Means are sums of integers, so they have the same bits on any number of ranks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from mgclust.algorithms.canopy.members import Members, own_pieces
from mgclust.engine.spmd import Context

__all__ = ["CanopyMeans", "Means", "means_in_canopies"]

Array = Any
PAIRS = 1 << 22  # compared at a time
INTEGER_BITS = 62  # of a sum over all rows


class CanopyMeans(NamedTuple):
    """Clusters about means."""

    labels: np.ndarray  # (n_samples,) int32; a Dask array where the rows are one
    cluster_centers: np.ndarray  # (n_clusters, n_features) float64
    inertia: float  # sum of the squared distances from rows to the mean of their cluster
    n_iter: int
    n_compared: int  # rows with prototypes, in all iterations
    n_canopies: int
    t1: float
    t2: float


class Means(NamedTuple):
    """What every rank knows at the end; `labels` are those of its rows."""

    labels: np.ndarray
    centers: np.ndarray
    inertia: float
    n_iter: int
    n_compared: int


def means_in_canopies(
    context: Context, canopies: Array, members: Members, threshold: float, *, n_clusters: int, max_iter: int, seed: int
) -> Means:
    """Move prototypes to the means of their rows until no row changes its cluster, on every rank.

    Parameters
    ----------
    context : Context
        Of float64 rows.
    canopies : array of shape (K, n_features)
        Centres of canopies, on the device.
    members : Members
        Canopies of this rank's rows.
    threshold : float
        A prototype is in a canopy with s < threshold.
    n_clusters : int
        At most K.
    max_iter : int
    seed : int
    """
    comm, kernels, (n, d) = context.comm, context.kernels, context.dataset_shape
    xp, to_host = kernels.xp, kernels.memory.to_host
    weights = comm.all_reduce(np.bincount(members.labels, minlength=len(canopies)).astype(np.int64), "sum")
    drawn = _drawn(to_host(canopies), weights, n_clusters, seed) if comm.rank == 0 else None
    centers = canopies[xp.asarray(comm.agree(drawn))]
    scale = _scale(context, n)
    labels = np.full(len(context.rows), -1, np.int32)
    compared = 0
    for n_iter in range(1, max_iter + 1):
        near = members.memberships @ _canopies_of(context, centers, canopies, threshold).T
        near.sort_indices()
        sums, counts = np.zeros((n_clusters, d), np.int64), np.zeros(n_clusters, np.int64)
        before, labels = labels, labels.copy()
        squares = np.zeros(len(labels))
        for first, last, x in _pieces(context, near.indptr):
            index, best = _nearest(context, x, centers, near[first:last])
            labels[first:last], squares[first:last] = to_host(index), to_host(best)
            _add(kernels.xp, x, index, scale, sums, counts, to_host)
        figures = np.array([(labels != before).sum(), near.nnz], np.int64)
        changed, pairs = comm.all_reduce(figures, "sum").tolist()
        sums, counts = comm.all_reduce(sums, "sum"), comm.all_reduce(counts, "sum")
        compared += pairs
        context.progress(n_iter / max_iter)
        if not changed or n_iter == max_iter:
            break
        there = counts > 0
        moved = to_host(centers).copy()
        moved[there] = sums[there] / scale / counts[there, None]
        centers = kernels.memory.to_device(moved)
    far = float(comm.all_reduce(np.array([squares.max(initial=0.0)]), "max")[0])
    unit = _unit(far, n)
    inertia = int(comm.all_reduce(np.array([np.rint(squares * unit).astype(np.int64).sum()]), "sum")[0]) / unit
    return Means(labels, to_host(centers), inertia, n_iter, compared)


def _drawn(centers: np.ndarray, weights: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Different centres of canopies, each drawn with its weight times its squared distance to those before."""
    rng = np.random.default_rng(seed)
    shares = weights.astype(np.float64)
    nearest, drawn = np.ones(len(centers)), []
    for number in range(count):  # centres lie apart, so that none is drawn twice
        total = np.cumsum(shares * nearest)
        drawn.append(int(np.searchsorted(total, rng.random() * total[-1], side="right")))
        squares = ((centers - centers[drawn[-1]]) ** 2).sum(axis=1)
        nearest = squares if number == 0 else np.minimum(nearest, squares)
    return np.array(drawn)


def _canopies_of(context: Context, x: Array, canopies: Array, threshold: float) -> csr_array:
    """Canopies of prototypes."""
    kernels, xp = context.kernels, context.kernels.xp
    counts = xp.zeros(len(x), dtype="int64")
    kernels.pairs.count_within(x, canopies, norm="l2", threshold=threshold, out=counts)
    starts = xp.concatenate([xp.zeros(1, dtype="int64"), xp.cumsum(counts)])
    lists = xp.empty(int(starts[-1]), dtype="int32")
    kernels.canopy.write_within(x, canopies, norm="l2", threshold=threshold, starts=starts[:-1], out=lists)
    best, index = xp.full(len(x), xp.inf), xp.full(len(x), -1, dtype="int64")
    kernels.pairs.nearest_column(x, canopies, norm="l2", y_start=0, best=best, best_index=index)
    found, edges, nearest = (kernels.memory.to_host(array) for array in (lists, starts, index))
    shape = (len(x), len(canopies))
    near = csr_array((np.ones(len(found), bool), found, edges.astype(np.int32)), shape=shape)
    return csr_array(near + csr_array((np.ones(len(x), bool), (np.arange(len(x)), nearest)), shape=shape))


def _pieces(context: Context, starts: np.ndarray) -> Any:
    """First and last own row, and the rows, of pieces with about as many pairs as are compared at a time."""
    for start, stop in own_pieces(context):
        x, first = context.rows.read(start, stop), start - context.rows.start
        at, end = first, stop - context.rows.start
        while at < end:
            last = int(np.searchsorted(starts, starts[at] + PAIRS, side="right")) - 1
            last = min(max(last, at + 1), end)
            yield at, last, x[at - first : last - first]
            at = last


def _nearest(context: Context, x: Array, centers: Array, near: csr_array) -> tuple[Array, Array]:
    """Each row's nearest prototype among those that it is near, or of all where there are none; and its distance."""
    kernels, xp = context.kernels, context.kernels.xp
    rows = xp.asarray(np.repeat(np.arange(len(x)), np.diff(near.indptr)))
    others = xp.asarray(near.indices.astype(np.int32))
    s = xp.zeros(len(rows))
    for feature in range(x.shape[1]):
        s += (x[rows, feature] - centers[others, feature]) ** 2
    best, index = xp.full(len(x), xp.inf), xp.full(len(x), len(centers), dtype="int32")
    xp.minimum.at(best, rows, s)
    least = s == best[rows]
    xp.minimum.at(index, rows[least], others[least])
    alone = xp.flatnonzero(xp.asarray(np.diff(near.indptr) == 0))
    if len(alone):
        left, found = xp.full(len(alone), xp.inf), xp.full(len(alone), -1, dtype="int64")
        kernels.pairs.nearest_column(
            xp.ascontiguousarray(x[alone]), centers, norm="l2", y_start=0, best=left, best_index=found
        )
        best[alone], index[alone] = left, found
    return index, best


def _add(xp: Any, x: Array, labels: Array, scale: float, sums: np.ndarray, counts: np.ndarray, to_host: Any) -> None:
    """Add rows to the sums of their clusters, as integers, and to the numbers of their rows."""
    order = xp.argsort(labels)
    integers = xp.rint(x[order] * scale).astype("int64")
    total = xp.concatenate([xp.zeros((1, x.shape[1]), dtype="int64"), xp.cumsum(integers, axis=0)])
    edges = xp.searchsorted(labels[order], xp.arange(len(counts) + 1))
    sums += to_host(total[edges[1:]] - total[edges[:-1]])
    counts += to_host(edges[1:] - edges[:-1])


def _scale(context: Context, n: int) -> float:
    """Power of two by which features are multiplied: the sum over all rows stays below 2**62."""
    largest = 0.0
    for start, stop in own_pieces(context):
        if stop > start:
            largest = max(largest, float(abs(context.rows.read(start, stop)).max()))
    return _unit(float(context.comm.all_reduce(np.array([largest]), "max")[0]), n)


def _unit(largest: float, n: int) -> float:
    """Power of two by which n numbers up to the largest are multiplied: their sum stays below 2**62."""
    return float(2.0 ** (INTEGER_BITS - int(np.frexp(largest)[1]) - int(n).bit_length()))
