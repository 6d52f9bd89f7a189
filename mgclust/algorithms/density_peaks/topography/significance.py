r"""Clusters whose peaks are significant: automatic topography of the density.

The method follows d'Errico, Facco, Laio and Rodriguez, Automatic topography of high-dimensional data sets by
non-parametric density peak clustering, Information Sciences 560:476-492, 2021. Each row has a log density and its
standard error (`mgclust.algorithms.density_peaks.topography.adaptive_density`). The neighbourhood of row i consists of
its k_i nearest rows. Rows are ordered by ``log density - error``, and "denser" refers to this order::

    peak      a row that has no denser row in its neighbourhood, and is not in the neighbourhood of a denser row; each
              other row belongs to the peak to which its links to nearest denser rows lead
    border    row i of cluster c, unless it is a peak, borders on c' if the first row j of its neighbourhood outside c
              belongs to c', and no row of c in the list of j is nearer to j than i
    saddle    of c and c': the densest of all border rows of c that border on c', and of c' that border on c
    height    of the peak of c over this saddle: difference of both log densities / sum of both errors
    merge     while a height is less than `significance`: among the saddles with such a height, take the saddle with the
              largest log density; of its two clusters, the cluster with the lower height joins the other cluster,
              which takes over its saddles

Each remaining peak exceeds the saddle to each neighbouring cluster by at least `significance` errors. Clusters without
a common border do not merge. The halo of a cluster consists of its rows with a smaller log density than its densest
saddle.

Cost. The ranks exchange a few vectors of n numbers, and read each list once. Every rank finds saddles and merges, in
time that grows with the number of pairs of clusters with a common border.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.density_peaks.decision_graph import assign_labels
from mgclust.algorithms.density_peaks.passes.all_pairs import Neighbors
from mgclust.algorithms.density_peaks.topography.adaptive_density import LogDensity
from mgclust.engine.spmd import Context

__all__ = [
    "CLEAR_HEIGHT",
    "CLEAR_NEIGHBORS",
    "FEW_IN_CLUSTER",
    "Peaks",
    "Topography",
    "merge_peaks",
    "significant_clusters",
]

Array = Any
# In noise, the lowest peak exceeds its saddle by at most 2.55; see benchmarks/results/density_peaks/significance.json.
CLEAR_HEIGHT = 3.0
# With densities from this number of nearest rows, small clusters stand out, and noise does not.
CLEAR_NEIGHBORS = 24
# A cluster of fewer rows is smaller than the smallest neighbourhood.
FEW_IN_CLUSTER = 3
Saddles = dict[int, dict[int, int]]  # saddles[a][b] and saddles[b][a]: row of the saddle of two clusters


class Peaks(NamedTuple):
    """Evidence for the clusters: heights of their peaks, saddles, and counts for warnings."""

    heights: np.ndarray  # (n_clusters,), float64: least height over a saddle, in errors; infinite without a saddle
    saddles: np.ndarray  # (n_saddles, 3), int64: two clusters, and the row at the densest border
    found: int  # number of peaks before merges
    merged: float | None  # largest height of a peak that was merged
    standing: int = 0  # number of centres that stand out clearly with densities from `CLEAR_NEIGHBORS` nearest rows
    joined: int = 0  # number of clusters that hold several of these centres
    tiny: int = 0  # number of clusters of fewer than `FEW_IN_CLUSTER` rows


class Topography(NamedTuple):
    """The clusters; every rank has the same values."""

    centers: np.ndarray  # (n_clusters,), int64: by decreasing rho * delta
    labels: np.ndarray  # (n,), int32
    halo: np.ndarray  # (n,), bool
    peaks: Peaks


def significant_clusters(
    context: Context,
    density: LogDensity,
    near: Neighbors,
    order: Array,
    nearest_higher: Array,
    gamma: np.ndarray,
    significance: float,
) -> Topography:
    """Find the significant clusters, on every rank.

    Parameters
    ----------
    context : Context
    density : LogDensity
        Densities of all rows.
    near : Neighbors
        Nearest rows of this rank's rows.
    order : int32 array of shape (n,)
        Position of each row by decreasing ``log density - error``.
    nearest_higher : int64 array of shape (n,)
        Nearest denser row of each row.
    gamma : ndarray of shape (n,)
        ``rho * delta``, by which clusters are numbered.
    significance : float
        Least height of a peak over its saddles, in errors.

    Returns
    -------
    Topography
    """
    xp, host = context.kernels.xp, context.kernels.memory.to_host
    peaks = host(_peaks(context, density.k, near, order))
    labels = assign_labels(xp, nearest_higher, peaks)
    first, second, rows = _borders(context, density.k, near, labels, peaks)
    value, error, position = host(density.value), host(density.error), host(order)
    saddles: Saddles = {}
    by_density = np.argsort(position[rows], kind="stable")
    for a, b, row in zip(*(each[by_density].tolist() for each in (first, second, rows)), strict=True):
        if b not in saddles.setdefault(a, {}):
            saddles[a][b] = saddles.setdefault(b, {})[a] = row
    into, merged = merge_peaks(value, error, peaks, saddles, significance)
    kept = np.flatnonzero(into == np.arange(len(peaks)))
    kept = kept[np.argsort(-gamma[peaks[kept]], kind="stable")]
    number = np.full(len(peaks), -1, np.int32)
    number[kept] = np.arange(len(kept), dtype=np.int32)
    found = number[into][host(labels)]
    left = sorted(
        (int(number[a]), int(number[b]), row)
        for a in kept.tolist()
        for b, row in saddles.get(a, {}).items()
        if number[a] < number[b]
    )
    heights, highest = np.full(len(kept), np.inf), np.full(len(kept), -np.inf)
    for *two, row in left:
        for cluster in two:
            over = height(value, error, int(peaks[kept[cluster]]), row)
            heights[cluster] = min(heights[cluster], over)
            highest[cluster] = max(highest[cluster], value[row])
    evidence = Peaks(
        heights,
        np.array(left, np.int64).reshape(-1, 3),
        len(peaks),
        max(merged, default=None),
        tiny=int((np.bincount(found) < FEW_IN_CLUSTER).sum()),
    )
    return Topography(peaks[kept], found, value < highest[found], evidence)


def _peaks(context: Context, k: Array, near: Neighbors, order: Array) -> Array:
    """Find rows without a denser row in their neighbourhood, and in no denser row's neighbourhood; int64, ascending."""
    xp, rows = context.kernels.xp, context.rows
    own = order[rows.start : rows.stop, None]
    inside = xp.arange(near.s.shape[1]) < k[rows.start : rows.stop, None]
    exceeded = xp.zeros(len(order), dtype="uint8")
    higher = order[near.index]
    exceeded[rows.start : rows.stop] = (inside & (higher < own)).view("uint8").max(axis=1)
    exceeded[near.index[inside & (higher > own)]] = 1
    return xp.flatnonzero(context.comm.all_reduce(exceeded, "max") == 0)


def _borders(
    context: Context, k: Array, near: Neighbors, labels: Array, peaks: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the border rows: return the cluster of each row, the cluster that it borders on, and its row number."""
    xp, rows, host = context.kernels.xp, context.rows, context.kernels.memory.to_host
    own = slice(rows.start, rows.stop)
    label = labels[near.index]
    other = (xp.arange(near.s.shape[1]) < k[own, None]) & (label != labels[own, None])
    borders = other.view("uint8").max(axis=1)
    borders[xp.asarray(peaks[(peaks >= rows.start) & (peaks < rows.stop)]) - rows.start] = 0
    mine = xp.flatnonzero(borders)
    row, there = mine + rows.start, near.index[mine, other[mine].view("uint8").argmax(axis=1)]
    row, there = context.comm.all_gather(row), context.comm.all_gather(there)
    # The rank that owns the row on the other side of a border has the list of this row.
    nearer = xp.zeros(len(row), dtype="uint8")
    here = xp.flatnonzero((there >= rows.start) & (there < rows.stop))
    same = label[there[here] - rows.start] == labels[row[here], None]
    nearest = near.index[there[here] - rows.start, same.view("uint8").argmax(axis=1)]
    nearer[here] = same.view("uint8").max(axis=1) & (nearest != row[here]).view("uint8")
    kept = context.comm.all_reduce(nearer, "max") == 0
    row, there = row[kept], there[kept]
    return host(labels[row]), host(labels[there]), host(row)


def height(value: np.ndarray, error: np.ndarray, peak: int, saddle: int) -> float:
    """Return the height of a peak over a saddle, relative to the sum of their errors."""
    return float((value[peak] - value[saddle]) / (error[peak] + error[saddle]))


def merge_peaks(
    value: np.ndarray, error: np.ndarray, peaks: np.ndarray, saddles: Saddles, significance: float
) -> tuple[np.ndarray, list[float]]:
    """Merge clusters until each peak is significant.

    Parameters
    ----------
    value, error : ndarray of shape (n,)
        Log density of each row, and its error.
    peaks : ndarray of shape (m,), int
        Row number of the peak of each cluster.
    saddles : dict
        Row of the saddle of two clusters, ``saddles[a][b]`` and ``saddles[b][a]``. Changed in place: merged clusters
        have no saddles left.
    significance : float
        Least height of a peak over its saddles, in errors.

    Returns
    -------
    into : ndarray of shape (m,), int
        The cluster that each cluster became part of; itself if it was not merged.
    merged : list of float
        Heights of the merged peaks.
    """
    into, merged = np.arange(len(peaks)), []

    def heights(a: int, b: int) -> tuple[float, float]:
        row = saddles[a][b]
        return height(value, error, int(peaks[a]), row), height(value, error, int(peaks[b]), row)

    def entry(a: int, b: int) -> tuple[float, int, int, int]:
        return -value[saddles[a][b]], min(a, b), max(a, b), saddles[a][b]

    queue = [entry(a, b) for a in saddles for b in saddles[a] if a < b and min(heights(a, b)) < significance]
    heapq.heapify(queue)
    while queue:
        _, a, b, row = heapq.heappop(queue)
        if saddles.get(a, {}).get(b) != row:
            continue  # one of the clusters was merged, or a denser saddle replaced this one
        of_a, of_b = heights(a, b)
        stays, goes = (a, b) if of_a >= of_b else (b, a)
        merged.append(min(of_a, of_b))
        into[goes] = stays
        for other, saddle in saddles.pop(goes).items():
            del saddles[other][goes]
            if other == stays:
                continue
            known = saddles[stays].get(other)
            if known is None or value[saddle] > value[known]:
                saddles[stays][other] = saddles[other][stays] = saddle
                if min(heights(stays, other)) < significance:
                    heapq.heappush(queue, entry(stays, other))
    while True:
        further = into[into]
        if (further == into).all():
            return into, merged
        into = further
