"""Peaks of a graph of rows with densities, and how they merge; see `separation`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["MAX_NEIGHBORS", "MIN_NEIGHBORS", "SpanningTree", "neighbors_of", "tree_of"]

MIN_NEIGHBORS, MAX_NEIGHBORS, NEIGHBOR_SHARE = 6, 16, 0.02  # that a row is joined to; the share of the sample
NECK, NECK_SIZE = 0.5, 2  # edges that a neck has at most, by those of a curve; rows behind it, by the neighbours of one


class SpanningTree(NamedTuple):
    """Peaks of a sample, and how they merge."""

    rows: np.ndarray  # (p,): of the sample, densest first
    rho: np.ndarray  # (p,)
    saddle: np.ndarray  # (p,): density where it meets a denser one; 0: nowhere
    into: np.ndarray  # (p,): the peak it becomes part of there; -1: nowhere
    apart: np.ndarray  # (p,): rows of its cluster there, if no more than a neck leads on; else 0
    peak: np.ndarray  # (m,): the one that each row of the sample leads to


def neighbors_of(m: int) -> int:
    """Nearest rows that each of m is joined to."""
    return min(max(round(NEIGHBOR_SHARE * m), MIN_NEIGHBORS), MAX_NEIGHBORS, m - 1)


def tree_of(rho: np.ndarray, near: np.ndarray) -> SpanningTree:
    """Find the peaks of a graph, and at which density they merge.

    Parameters
    ----------
    rho : float64 array of shape (m,)
    near : int64 array of shape (m, k)
        The rows that each is joined to, both ways.

    Returns
    -------
    SpanningTree
    """
    (m, k), columns = near.shape, np.ascontiguousarray(near.T)
    by_density = np.argsort(-rho, kind="stable")
    place = np.empty(m, np.int32)
    place[by_density] = np.arange(m, dtype=np.int32)
    joined = place.take(columns)  # by place from here on
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
    edge.sort()  # pair by pair, of each the densest first
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
