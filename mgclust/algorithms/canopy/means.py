"""K-means and fuzzy c-means confined to canopies: a row is compared with the prototypes that share a canopy with it.

A prototype is in the canopies whose centres are within t1 of it, and in that of the nearest centre; a row that shares
none with any prototype is compared with all. The first prototypes are centres of canopies, drawn far apart as k-means++
draws rows, each with the weight of the rows that are nearest to it. Pairs of rows and prototypes come from a product of
sparse matrices. All sums over pairs are of integers, so they have the same bits on any number of ranks.
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
SHARE_BITS = 40  # of a number from 0 to 1 in a sum over the pairs of a row


class CanopyMeans(NamedTuple):
    """Clusters about means. Of a Dask array, `labels` and `memberships` are Dask arrays."""

    labels: np.ndarray  # (n_samples,) int32: the nearest prototype of those that a row is compared with
    memberships: csr_array | None  # (n_samples, n_clusters) float64, of fuzzy c-means
    cluster_centers: np.ndarray  # (n_clusters, n_features) float64
    inertia: float  # sum of the squared distances to the prototypes, weighted by the memberships to the power m
    n_iter: int
    n_compared: int  # rows with prototypes, in all iterations
    n_canopies: int
    t1: float
    t2: float


class Means(NamedTuple):
    """Findings of a rank: prototypes as all ranks have them, `labels` and `memberships` of its rows."""

    labels: np.ndarray
    memberships: csr_array | None
    centers: np.ndarray
    inertia: float
    n_iter: int
    n_compared: int


class _Sums:
    """Sums of weighted rows by prototype, as integers, and of their weights."""

    def __init__(self, context: Context, count: int) -> None:
        n, d = context.dataset_shape
        largest = 0.0
        for start, stop in own_pieces(context):
            if stop > start:
                largest = max(largest, float(abs(context.rows.read(start, stop)).max()))
        largest = float(context.comm.all_reduce(np.array([largest]), "max")[0])
        self._kernels, self._scales = context.kernels, [_unit(largest, n)] * d + [_unit(1.0, n)]
        self._integers = np.zeros((count, d + 1), np.int64)

    def add(self, x: Array, others: Array, weights: Array) -> None:
        """Add rows to the sums of the prototypes given."""
        xp = self._kernels.xp
        order = xp.argsort(others)
        values = xp.concatenate([x * weights[:, None], weights[:, None]], axis=1)[order]
        integers = xp.rint(values * xp.asarray(self._scales)).astype("int64")
        total = xp.concatenate([xp.zeros((1, integers.shape[1]), dtype="int64"), xp.cumsum(integers, axis=0)])
        edges = xp.searchsorted(others[order], xp.arange(len(self._integers) + 1))
        self._integers += self._kernels.memory.to_host(total[edges[1:]] - total[edges[:-1]])

    def means(self, context: Context, centers: np.ndarray) -> np.ndarray:
        """Means over all ranks' rows; prototypes without rows stay where they are. Sums begin again."""
        total = context.comm.all_reduce(self._integers, "sum") / self._scales
        self._integers = np.zeros_like(self._integers)
        there = total[:, -1] > 0
        moved = centers.copy()
        moved[there] = total[there, :-1] / total[there, -1:]
        return moved


def means_in_canopies(
    context: Context,
    canopies: Array,
    members: Members,
    threshold: float,
    *,
    n_clusters: int,
    m: float | None,
    max_iter: int,
    shift: float,
    seed: int,
) -> Means:
    """Move prototypes to the means of their rows until they rest, on every rank.

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
    m : float or None
        Fuzzifier; None: a row belongs to its nearest prototype alone.
    max_iter : int
    shift : float
        With a fuzzifier, prototypes rest that move by at most this; without one, those whose rows stay the same.
    seed : int
    """
    comm, kernels, n = context.comm, context.kernels, context.dataset_shape[0]
    xp, to_host = kernels.xp, kernels.memory.to_host
    weights = comm.all_reduce(np.bincount(members.labels, minlength=len(canopies)).astype(np.int64), "sum")
    drawn = _drawn(to_host(canopies), weights, n_clusters, seed) if comm.rank == 0 else None
    centers = to_host(canopies[xp.asarray(comm.agree(drawn))])
    sums = _Sums(context, n_clusters)
    labels, squares = np.full(len(context.rows), -1, np.int32), np.zeros(len(context.rows))
    compared = 0
    for n_iter in range(1, max_iter + 1):
        at = kernels.memory.to_device(centers)
        near = _compared(members.memberships, _canopies_of(context, at, canopies, threshold))
        before, labels, shares = labels, labels.copy(), np.empty(near.nnz)
        for first, last, x in _pieces(context, near.indptr):
            pairs = _Pairs(xp, x, at, near[first:last])
            labels[first:last] = to_host(pairs.nearest)
            if m is None:
                squares[first:last] = to_host(pairs.best)
                sums.add(x, pairs.nearest, xp.ones(len(x)))
                continue
            u = pairs.memberships(m)
            squares[first:last] = to_host(pairs.objective(u**m))
            shares[near.indptr[first] : near.indptr[last]] = to_host(u)
            sums.add(x[pairs.rows], pairs.others, u**m)
        figures = np.array([(labels != before).sum(), near.nnz], np.int64)
        changed, met = comm.all_reduce(figures, "sum").tolist()
        compared += met
        moved = sums.means(context, centers)
        context.progress(n_iter / max_iter)
        resting = not changed if m is None else np.sqrt(((moved - centers) ** 2).sum(axis=1)).max() <= shift
        if resting or n_iter == max_iter:
            break
        centers = moved
    unit = _unit(float(comm.all_reduce(np.array([squares.max(initial=0.0)]), "max")[0]), n)
    inertia = int(comm.all_reduce(np.array([np.rint(squares * unit).astype(np.int64).sum()]), "sum")[0]) / unit
    fuzzy = None if m is None else csr_array((shares, near.indices, near.indptr), shape=near.shape)
    return Means(labels, fuzzy, centers, inertia, n_iter, compared)


class _Pairs:
    """Rows of a piece with the prototypes that they are compared with."""

    def __init__(self, xp: Any, x: Array, centers: Array, near: csr_array) -> None:
        self._xp = xp
        self.rows = xp.asarray(np.repeat(np.arange(len(x)), np.diff(near.indptr)))
        self.others = xp.asarray(near.indices.astype(np.int32))
        self.s = xp.zeros(len(self.rows))
        for feature in range(x.shape[1]):
            self.s += (x[self.rows, feature] - centers[self.others, feature]) ** 2
        self.best = xp.full(len(x), xp.inf)
        # By their bits, which are ordered as they are: CuPy takes the least of float64 numbers in float32.
        xp.minimum.at(self.best.view("uint64"), self.rows, self.s.view("uint64"))
        least = self.s == self.best[self.rows]
        self.nearest = xp.full(len(x), len(centers), dtype="int32")
        xp.minimum.at(self.nearest, self.rows[least], self.others[least])

    def memberships(self, m: float) -> Array:
        """Memberships, which sum to 1 in each row; a row on prototypes belongs to these alone."""
        xp, nearest = self._xp, self.best[self.rows]
        apart = self.s > 0
        ratio = xp.where(apart, (nearest / xp.where(apart, self.s, 1)) ** (1 / (m - 1)), 1)
        return ratio / self._by_row(ratio)[self.rows]

    def objective(self, weights: Array) -> Array:
        """Weighted sum of each row's squared distances, of which none exceeds that of the nearest prototype."""
        xp, nearest = self._xp, self.best[self.rows]
        apart = nearest > 0
        return self._by_row(xp.where(apart, weights * self.s / xp.where(apart, nearest, 1), 0)) * self.best

    def _by_row(self, shares: Array) -> Array:
        """Sums of numbers from 0 to 1 over each row's pairs, in whatever order."""
        xp = self._xp
        total = xp.zeros(len(self.best), dtype="uint64")
        xp.add.at(total, self.rows, xp.rint(shares * 2.0**SHARE_BITS).astype("uint64"))
        return total / 2.0**SHARE_BITS


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


def _compared(memberships: csr_array, of_prototypes: csr_array) -> csr_array:
    """The prototypes that each row is compared with, ascending: all, where it shares a canopy with none."""
    near = csr_array(memberships @ of_prototypes.T)
    alone = np.diff(near.indptr) == 0
    if alone.any():
        near = csr_array(near + csr_array(alone[:, None]) @ csr_array(np.ones((1, near.shape[1]), bool)))
    near.sort_indices()
    return near


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


def _unit(largest: float, n: int) -> float:
    """Power of two by which n numbers up to the largest are multiplied: their sum stays below 2**62."""
    return float(2.0 ** (INTEGER_BITS - int(np.frexp(largest)[1]) - int(n).bit_length()))
