"""Peaks of the density on a graph of rows, and the saddles at which they merge; see `separation`.

These lines define the result; an edge joins each row to each of its nearest rows::

    each row leads to the densest of its nearest rows if it is less dense than this row; otherwise, it is a peak
    the cluster of a peak consists of all rows that lead to it
    for edges (i, j) between different clusters, by decreasing min(rho_i, rho_j):
        p, q = the peaks of both clusters, p the denser one
        saddle[q], into[q] = min(rho_i, rho_j), p
        merge both clusters; p is the peak
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["MAX_NEIGHBORS", "MIN_NEIGHBORS", "SpanningTree", "neighbors_of", "tree_of"]

# Each row is joined to this fraction of the rows of the sample, within these limits.
NEIGHBOR_SHARE, MIN_NEIGHBORS, MAX_NEIGHBORS = 0.02, 6, 16
# A group of rows hangs on a neck if at most NECK times as many edges leave it as cross a point of a curve, and if the
# group has at least NECK_SIZE times as many rows as a row has neighbours.
NECK, NECK_SIZE = 0.5, 2


class SpanningTree(NamedTuple):
    """Peaks of a sample of m rows, and their merges; p is the number of peaks."""

    rows: np.ndarray  # (p,): rows of the sample that are peaks, densest first
    rho: np.ndarray  # (p,): density of each peak
    saddle: np.ndarray  # (p,): density at which the peak's cluster touches a cluster with a denser peak; 0: none
    into: np.ndarray  # (p,): the peak that each peak merges into at this saddle; -1: none
    apart: np.ndarray  # (p,): number of rows of the cluster at this saddle, if only a neck leads to other rows; else 0
    peak: np.ndarray  # (m,): the peak that each row of the sample leads to


def neighbors_of(m: int) -> int:
    """Return the number of nearest rows to which each row of a sample of m rows is joined.

    Parameters
    ----------
    m : int

    Returns
    -------
    int
    """
    return min(max(round(NEIGHBOR_SHARE * m), MIN_NEIGHBORS), MAX_NEIGHBORS, m - 1)


def tree_of(rho: np.ndarray, near: np.ndarray) -> SpanningTree:
    """Find the peaks of the density on a graph, and the densities at which they merge.

    Parameters
    ----------
    rho : float64 array of shape (m,)
        Density of each row.
    near : int64 array of shape (m, k)
        The rows to which each row is joined; edges count in both directions.

    Returns
    -------
    SpanningTree
    """
    (m, k), columns = near.shape, np.ascontiguousarray(near.T)
    by_density = np.argsort(-rho, kind="stable")
    place = np.empty(m, np.int32)
    place[by_density] = np.arange(m, dtype=np.int32)
    joined = place.take(columns)  # from here on, rows are numbered by their place in the order of density
    up = np.empty(m, np.int32)
    up[place] = np.minimum(joined.min(axis=0), place)
    while True:
        further = up[up]
        if np.array_equal(further, up):
            break
        up = further
    peaks = np.flatnonzero(up == np.arange(m))
    number = np.empty(m, np.int32)
    number[peaks] = np.arange(len(peaks))
    basin = number[up]
    peak, other = basin[place], basin.take(joined)
    differs = np.flatnonzero(other != peak)
    row = differs % m
    one, other = peak[row], other.reshape(-1)[differs]
    low = np.maximum(place[row], joined.reshape(-1)[differs])
    edge = (np.minimum(one, other) * np.int64(len(peaks)) + np.maximum(one, other)) * m + low
    edge.sort()  # by pair of peaks, and within each pair the densest edge first
    pair = edge // m
    begin = np.flatnonzero(np.diff(pair, prepend=-1))
    edges = np.diff(begin, append=len(pair))
    (a, b), border = np.divmod(pair[begin], len(peaks)), edge[begin] % m
    parent, members = list(range(len(peaks))), [[at] for at in range(len(peaks))]
    into, saddle, apart = np.full(len(peaks), -1), np.zeros(len(peaks)), np.zeros(len(peaks))
    size = np.bincount(peak, minlength=len(peaks)).tolist()

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    order = np.argsort(border, kind="stable")
    for first, second, low in zip(a[order].tolist(), b[order].tolist(), border[order].tolist(), strict=True):
        stays, goes = root(first), root(second)
        if stays == goes:
            continue
        if goes < stays:
            stays, goes = goes, stays
        if k >= MAX_NEIGHBORS and size[goes] >= NECK_SIZE * k:
            inside = np.zeros(len(peaks), bool)
            inside[members[goes]] = True
            if edges[inside[a] != inside[b]].sum() <= NECK * k * (k + 2) / 4:
                apart[goes] = size[goes]
        parent[goes] = into[goes] = stays
        saddle[goes] = rho[by_density[low]]
        size[stays] += size[goes]
        members[stays] += members[goes]
        if len(members[stays]) == len(peaks):
            break
    alone = into < 0
    apart[alone] = np.array(size)[alone]
    rows = by_density[peaks]
    return SpanningTree(rows, rho[rows], saddle, into, apart, peak)
