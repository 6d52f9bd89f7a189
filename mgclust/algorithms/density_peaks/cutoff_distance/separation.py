r"""Clusters separated by low density: a second analysis of the densities that choose ``dc_fraction``.

``rho * delta`` favours dense clusters, and takes two dense places of one long cluster for two clusters. Here, a graph
joins each row to its nearest rows, and rows are added by decreasing density. A row without a denser neighbour begins a
cluster. If two clusters touch, the less dense peak becomes part of the other cluster. This is the zero-dimensional
persistence of ToMATo (Chazal, Guibas, Oudot, Skraba, Persistence-based clustering in Riemannian manifolds, J. ACM
60:41, 2013). The prominence of a peak p over the saddle s at which it merges is::

    Z = 2 (sqrt(rho_p) - sqrt(rho_s)) 2^(d / 4) / sqrt(2),    rho_s = 0 if its cluster touches no denser cluster

Unit of Z. Twice the square root of a count has variance 1, whatever its mean is. A sum of ``exp(-(r / dc)^2)`` in d
dimensions has 2^(-d / 2) times the variance of a count. d is the intrinsic dimension (TwoNN), at most 4. Z is in units
of the standard error for d = 2. In uniform and normal noise of 1,000 to 4,000 rows, peaks other than the highest have
Z up to 2.3.

Lower bound of Z. A cluster of c rows that touches no other has a Z of at least ``2 sqrt(c)``: the square root of its
count against 0. The bound is needed because dense clusters make dc too small for sparse clusters.

The same bound holds for a cluster behind a neck, because a bridge of a few rows may be as dense as the clusters that
it joins. A cluster behind a neck has at least 2 k rows, with few edges to other rows. Few means at most half the
``k (k + 2) / 4`` edges that cross a point of a curve if each of its rows is joined to its k nearest rows. If k is less
than 16, the bound is not used for necks, because curves then have necks by chance.

Number of clusters. Z_k is the k-th largest Z at a fraction, at most `CERTAIN_Z`. k clusters are rated by
``(max(Z_k, 1) / max(Z_k+1, 1))^k``, in the geometric mean over two neighbouring fractions. The power is needed because
the few largest of many values lie farthest apart. At one of the two fractions, Z_k must be at least `MIN_Z`. The mean
ratio, without the power, must be at least `MIN_RATIO`.

Clusters of all rows. From each peak of the sample, merged or not, links to nearest denser rows are followed as long as
each link is shorter than `Separated.reach` of the peak. The row at the end is a peak of all rows, and its own link is
cut. This peak begins its cluster, or joins the cluster that the saddles lead to. All other rows follow their links.

Equal rows of the sample are one row of the graph, with the density of all of them. The result does not depend on the
number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.density_peaks.cutoff_distance.row_sample import RowSample
from mgclust.algorithms.density_peaks.cutoff_distance.sample_passes import nearest_rows
from mgclust.algorithms.density_peaks.cutoff_distance.spanning_tree import (
    MIN_NEIGHBORS,
    SpanningTree,
    neighbors_of,
    tree_of,
)
from mgclust.algorithms.density_peaks.decision_graph import assign_labels
from mgclust.algorithms.density_peaks.passes.all_pairs import Neighbors
from mgclust.algorithms.density_peaks.topography.intrinsic_dimension import two_nearest_dimension
from mgclust.base.errors import InputError
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.metrics import Metric

__all__ = [
    "BetterNumber",
    "FullPeaks",
    "Separated",
    "SeparationGraph",
    "Shown",
    "best_number",
    "clusters_of",
    "full_peaks",
    "graph_of",
    "heads_of",
    "least_within",
    "most_prominent",
    "prominences",
    "separated_number",
]

Array = Any

MIN_Z, CERTAIN_Z, MIN_RATIO = 2.6, 20.0, 1.5
MIN_WITHIN = 3.5  # average number of rows within dc that a fraction needs; the two largest fractions always count
SURE_RATIO = 2.0  # least ratio if a number stands out by rho * delta, or if fewer clusters than centres are separated
SURE_Z = 3.0  # least Z of each separated cluster if a number stands out
STABLE_DROP = 3.0  # many centres are stable if rho * delta drops by this factor at two fractions
MAX_DIMENSION = 4.0
MAX_CLUSTERS = 256


class Separated(NamedTuple):
    """Peaks of the sample, by which all rows are clustered; the lists begin with the densest peak."""

    rows: list[int]  # row numbers among all rows
    into: list[int]  # the peak that each peak merges into; -1: none
    prominence: list[float]  # Z of each peak
    reach: list[float]  # reduced distance within which no row of the sample is denser
    n_clusters: int
    unless: int = 0  # if all rows show this number of centres, their clusters may be kept; 0: never
    doubted: bool = False  # used only if all rows show the same number, and the other clusters cut across these
    saddle: Sequence[float] = ()  # density at which each peak merges, as a fraction of its own density; 0: never


class FullPeaks(NamedTuple):
    """The peaks of `Separated` among all rows, on the host; `select_centers` needs them for other choices."""

    rows: np.ndarray  # (p,), int64: the peak of all rows that each peak of the sample leads to
    into: np.ndarray  # (p,), int64: as in `Separated`
    prominence: np.ndarray  # (p,), float64: as in `Separated`
    saddle: np.ndarray  # (p,), float64: as in `Separated`


class Shown(NamedTuple):
    """Centres that stand out in the sample by rho * delta."""

    at: int  # position of their fraction
    centers: np.ndarray  # rows of the sample
    drop: float  # drop of rho * delta after them
    both: float  # geometric mean of the drops at two neighbouring fractions
    chosen: bool  # whether the fraction was chosen for their number
    least: Callable[[int], float]  # drop that noise does not reach after this number of centres

    def clear(self, number: int) -> bool:
        """Return whether the drop exceeds the drop that noise has after this number of centres."""
        return self.drop >= self.least(number)

    def stable(self, number: int) -> bool:
        """Return whether the drop at two neighbouring fractions is clearly larger than in noise."""
        return self.both >= STABLE_DROP * self.least(number) / self.least(MAX_CLUSTERS)


def least_within(m: int, fractions: tuple[float, ...]) -> int:
    """Count the descending fractions at which the m rows of a sample have enough rows within dc."""
    return max(2, sum(fraction * (m - 1) >= MIN_WITHIN for fraction in fractions))


def prominences(tree: SpanningTree, dimension: float) -> np.ndarray:
    """Return the prominence Z of each peak."""
    scale = 2 ** (min(max(dimension, 1.0), MAX_DIMENSION) / 4) / np.sqrt(2)
    return np.maximum(2 * scale * (np.sqrt(tree.rho) - np.sqrt(tree.saddle)), 2 * np.sqrt(tree.apart))


def dimension_of(s: np.ndarray) -> float:
    """Return the intrinsic dimension from the distances of distinct rows to their two nearest rows, shape (m, 2)."""
    apart = s[:, 0] > 0
    return two_nearest_dimension(np.log(s[apart, 1] / s[apart, 0]))


def best_number(prominence: list[np.ndarray]) -> tuple[int, int, float] | None:
    """Find the number of clusters that low density separates best.

    Parameters
    ----------
    prominence : list of ndarray
        Z of the peaks at each fraction.

    Returns
    -------
    at : int
        Position of the fraction.
    n_clusters : int
        Number of clusters, at least 2.
    ratio : float
        Mean ratio of Z_k to Z_k+1. The function returns None instead of the three values if no number stands out.
    """
    z = np.zeros((len(prominence), MAX_CLUSTERS + 1))
    for row, values in zip(z, prominence, strict=True):
        largest = np.sort(values)[::-1][: len(row)]
        row[: len(largest)] = largest
    clipped = np.log(np.clip(z, 1.0, CERTAIN_Z))
    gap = clipped[:, 1:-1] - clipped[:, 2:]  # after 2, 3, ... clusters
    both = (gap[:-1] + gap[1:]) / 2
    number = np.arange(2, gap.shape[1] + 2)
    evidence = np.where(np.maximum(z[:-1], z[1:])[:, 1:-1] >= MIN_Z, both * number, -np.inf)
    at, which = (int(each) for each in np.unravel_index(evidence.argmax(), evidence.shape))
    if evidence[at, which] <= 0 or both[at, which] < np.log(MIN_RATIO):
        return None
    return at + int(gap[at + 1, which] > gap[at, which]), which + 2, float(np.exp(both[at, which]))


def cluster_of_peaks(into: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """Number the heads, the peaks that begin clusters, and return the cluster of each peak; -1: none."""
    cluster = np.full(len(into), -1)
    cluster[heads] = np.arange(len(heads))
    for peak, other in enumerate(into.tolist()):  # densest first, so the cluster of the denser peak is known
        if cluster[peak] < 0 <= other:
            cluster[peak] = cluster[other]
    return cluster


def most_prominent(prominence: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """Return the `count` most prominent peaks; if several peaks lead to one row, only the most prominent of them."""
    order = np.argsort(-prominence, kind="stable")
    _, first = np.unique(rows[order], return_index=True)
    return order[np.sort(first)[:count]]


class BetterNumber(NamedTuple):
    """Separated clusters that replace the clusters of rho * delta."""

    at: int  # position of their fraction
    n_clusters: int
    ratio: float  # prominence of the last cluster relative to the next peak
    unless: int  # as in `Separated`
    doubted: bool = False


class SeparationGraph:
    """Graph that joins rows of a sample to their nearest rows; with the densities at any dc, it separates clusters.

    Parameters
    ----------
    context : Context
    measure : Metric
    sample : RowSample
    near : Neighbors
        The nearest rows of this rank's rows of the sample, at least ``neighbors_of(m)`` for each.
    """

    def __init__(self, context: Context, measure: Metric, sample: RowSample, near: Neighbors) -> None:
        host, k = context.kernels.memory.to_host, neighbors_of(len(sample))
        s, self.index = (host(context.comm.all_gather(each[:, :k].copy())) for each in near)
        self.reach, self._sample = s[:, -1], sample
        self.dimension = dimension_of(measure.distances(s[:, :2].astype("float64"), np))

    def tree(self, rho: np.ndarray) -> tuple[SpanningTree, np.ndarray]:
        """Return the peaks of the density of the sample, with their saddles and their Z."""
        tree = tree_of(self._sample.per_row(rho), self.index)
        return tree, prominences(tree, self.dimension)

    def separated(
        self, rho: np.ndarray, n_clusters: int | None, better: BetterNumber | None, *, compared: bool
    ) -> Separated | None:
        """Return the peaks by which all rows are clustered.

        Parameters
        ----------
        rho : float64 array of shape (m,)
            Densities of the sample at the dc of all rows.
        n_clusters : int or None
            Number of clusters. If it is None, the number comes from `better`. Without `better`, it is the number that
            stands out, or else the number of peaks above noise. If `compared`: the number of the other clusters.
        better : BetterNumber or None
            The number that the sample shows.
        compared : bool
            Whether these clusters are only compared with other clusters.

        Returns
        -------
        Separated or None
            None only if `compared`, and if no number stands out, or a number other than `n_clusters` stands out but is
            not clear.
        """
        tree, prominence = self.tree(rho)
        if better is None:
            found = best_number([prominence, prominence])
            if compared:
                if found is None or (found[1] != n_clusters and found[2] < SURE_RATIO):
                    return None
                n_clusters = found[1]
            n_clusters = n_clusters or (found[1] if found else max(1, int((prominence >= SURE_Z).sum())))
            better = BetterNumber(0, n_clusters, 0.0, 0)
        rows = self._sample.numbers[tree.rows].tolist()
        reach = self.reach[tree.rows].tolist()
        saddle = (tree.saddle / np.maximum(tree.rho, np.finfo(float).tiny)).tolist()
        number, into = better.n_clusters, tree.into.tolist()
        return Separated(rows, into, prominence.tolist(), reach, number, better.unless, better.doubted, saddle)


def graph_of(context: Context, measure: Metric, sample: RowSample) -> SeparationGraph:
    """Find the nearest rows of a sample, and return its graph."""
    if len(sample) <= MIN_NEIGHBORS:
        raise InputError(
            f"assignment='separated' needs more than {MIN_NEIGHBORS} distinct rows, and there are {len(sample)}; "
            "use assignment='denser'."
        )
    return SeparationGraph(context, measure, sample, nearest_rows(context, measure, sample, neighbors_of(len(sample))))


def separated_number(graph: SeparationGraph, densities: list[np.ndarray], shown: Shown | None) -> BetterNumber | None:
    """Find out whether low density separates other clusters: at which fraction, how many, and how clearly.

    The centres `shown` by rho * delta decide whether separated clusters replace them:

    - More separated clusters than centres: if the centres are clear, or their fraction was chosen for their number,
      the separated clusters must also be clear.
    - Fewer: the separated clusters must be twice as clear as another number. If the centres that share a cluster are
      stable, or the fraction was chosen for their number, the separated clusters are `doubted`.
    - The same number: the centres are kept if they are clear, or if they are stable and each is in its own cluster,
      unless all rows show another number.

    If there are no centres to compare with, the separated clusters are used.
    """
    trees = [graph.tree(rho) for rho in densities]
    prominence = [each for _, each in trees]
    found = best_number(prominence)
    if found is None:
        return None
    at, count, ratio = found
    if shown is None:
        return BetterNumber(at, count, ratio, 0)
    number, unless = len(shown.centers), 0
    tree = trees[at][0]
    heads = most_prominent(prominence[at], tree.rows, count)
    of_centers = cluster_of_peaks(tree.into, heads)[tree.peak[shown.centers]]
    if count > number and (shown.chosen or shown.clear(number)):
        if ratio < SURE_RATIO or prominence[at][heads[-1]] < SURE_Z:
            return None
    elif count < number:
        shared = int(np.bincount(of_centers + 1, minlength=2)[1:].max())
        if ratio < SURE_RATIO:
            return None
        if shown.chosen or shown.stable(shared):
            return BetterNumber(shown.at, count, ratio, 0, doubted=True)
    elif count == number and (
        shown.clear(number) or (shown.stable(MAX_CLUSTERS) and len(set(of_centers.tolist()) - {-1}) == count)
    ):
        at, unless = shown.at, count
    return BetterNumber(at, count, ratio, unless)


def full_peaks(found: Separated, best: np.ndarray, nearest: np.ndarray) -> FullPeaks:
    """Follow the peaks of the sample to the peaks of all rows.

    Parameters
    ----------
    found : Separated
    best : ndarray of shape (n,)
        Reduced distance of each row to its nearest denser row; on the host, because a few peaks take many steps.
    nearest : int64 ndarray of shape (n,)
        Nearest denser row of each row; -1: none.

    Returns
    -------
    FullPeaks
    """
    at, reach = np.array(found.rows, np.int64), np.array(found.reach)
    while (going := (best[at] < reach) & (nearest[at] >= 0)).any():
        at = np.where(going, nearest[at], at)
    into, prominence, saddle = np.array(found.into, np.int64), np.array(found.prominence), np.array(found.saddle)
    return FullPeaks(at, into, prominence, saddle)


def clusters_of(
    xp: Any, peaks: FullPeaks, rho: Array, gamma: Array, nearest: Array, heads: np.ndarray
) -> tuple[np.ndarray, Array]:
    """Cluster all rows by separated peaks.

    Parameters
    ----------
    xp : module
        numpy or cupy.
    peaks : FullPeaks
    rho, gamma : float64 arrays of shape (n,)
        Density of each row, and ``rho * delta``.
    nearest : int64 array of shape (n,)
        Nearest denser row of each row; -1: none.
    heads : int array
        The peak that begins each cluster, from `most_prominent` or `heads_of`.

    Returns
    -------
    centers : ndarray of shape (n_clusters,), int64
        The densest peak of each cluster, by decreasing gamma; the densest row is one of them.
    labels : int32 array of shape (n,)
    """
    cluster = cluster_of_peaks(peaks.into, heads)
    # If several peaks lead to one peak of all rows, the first in this order decides.
    order = np.argsort(-peaks.prominence, kind="stable")
    order = np.concatenate([heads, order])
    order = order[cluster[order] >= 0]
    roots: dict[int, int] = {}
    for row, number in zip(peaks.rows[order].tolist(), cluster[order].tolist(), strict=True):
        roots.setdefault(row, number)
    roots.setdefault(int(rho.argmax()), 0)
    rows = np.array(sorted(roots), np.int64)
    of_root = np.array([roots[row] for row in rows.tolist()])
    density, product = (np.array(each[xp.asarray(rows)].tolist()) for each in (rho, gamma))
    top: dict[int, int] = {}
    for head in np.argsort(-density, kind="stable").tolist():  # among equal densities, the lower row comes first
        top.setdefault(int(of_root[head]), head)
    ranked = sorted(top.values(), key=lambda head: (-product[head], rows[head]))
    number_of = np.empty(int(of_root.max()) + 1, np.int32)
    number_of[of_root[ranked]] = np.arange(len(ranked))
    labels = xp.asarray(number_of[of_root])[assign_labels(xp, nearest, rows)]
    return rows[ranked], labels


def heads_of(peaks: FullPeaks, count: int | None, chosen: np.ndarray | None, nearest: np.ndarray) -> np.ndarray:
    """Return the peak that begins each cluster: `count` peaks, or the distinct peaks that the chosen rows lead to."""
    if chosen is None:
        heads = most_prominent(peaks.prominence, peaks.rows, count or 1)
        if count is not None and len(heads) < count:
            raise InputError(
                f"n_clusters={count} should be at most {len(heads)}, the number of peaks, with "
                "assignment='separated'; request fewer clusters, or use assignment='denser'."
            )
        return heads
    ends = np.union1d(peaks.rows, np.flatnonzero(nearest < 0))
    best = {int(peaks.rows[at]): int(at) for at in np.argsort(peaks.prominence, kind="stable")}
    most = int(peaks.prominence.argmax())
    leads = ends[assign_labels(np, nearest, ends)[chosen]].tolist()
    return np.array(list(dict.fromkeys(best.get(row, most) for row in leads)), np.int64)
