"""Result of greedy merging: the list of merges, the modularity after each merge, and cuts into k communities.

The smallest node of a community is its number. The merge (i, j), i < j, merges community j into i. So each community is
absorbed exactly once, and the list is a forest: parent[j] = i. The first n - k merges give the cut into k communities.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from mgclust.base.errors import InputError

__all__ = ["MergeTree"]

Array = Any
HALF = 32  # bits of the lower part of a sum
UNIT = 2.0**30  # unit of the upper part if gains are floating-point numbers


class MergeTree:
    """Merges in their order, with the modularity after each merge.

    Parameters
    ----------
    n : int
        Number of nodes.
    merges : int array of shape (k, 2)
        Pairs (kept, absorbed) of communities, kept < absorbed; the number of a community is its smallest node.
    gains : int64 or float64 array of shape (k,)
        ``g = two_m * m_ij - d_i * d_j`` of each merge, which adds ``2 g / two_m**2`` to the modularity.
    two_m : int or float
        Sum of all strengths, twice the weight of all edges.
    start : float
        Modularity of n communities of one node each.

    Attributes
    ----------
    history : float64 array of shape (k + 1,)
        Modularity after 0, 1, ... k merges. Integer gains are added exactly, floating-point gains to 2**-62.
    best : int
        Number of merges after which the modularity is largest; ties go to the smallest number.
    """

    def __init__(self, n: int, merges: Array, gains: Array, two_m: float, start: float) -> None:
        self.n = int(n)
        self.merges = np.asarray(merges, np.int32).reshape(-1, 2)
        self.gains = np.asarray(gains)
        self.two_m = two_m
        self.start = float(start)
        kept, absorbed = self.merges.T
        if len(self.gains) != len(self.merges) or len(self.merges) > max(self.n - 1, 0):
            raise ValueError(f"{len(self.merges)} merges with {len(self.gains)} gains do not fit {self.n} nodes")
        if len(self.merges) and not (kept.min() >= 0 and (kept < absorbed).all() and absorbed.max() < self.n):
            raise ValueError(f"merges should be pairs kept < absorbed of nodes 0 .. {self.n - 1}")
        self.history = self._history()
        self.best = self._best()

    def _history(self) -> Array:
        high, low, unit = _parts(self.gains, self.two_m)
        low = np.cumsum(low)
        high = np.cumsum(high) + (low >> HALF)
        sums = (high * 2.0**HALF + (low & (2**HALF - 1))) * unit
        return np.concatenate([[self.start], self.start + sums])

    def _best(self) -> int:
        positive = self.gains > 0
        front = len(positive) if positive.all() else int(positive.argmin())
        if positive[front:].any():  # the merges were not greedy, so the curve may rise again
            return int(self.history.argmax())
        return front

    def n_clusters_at(self, merges_done: int) -> int:
        """Return the number of communities after some merges."""
        return self.n - merges_done

    def join_components(self, strength: Array, resolution: float = 1.0) -> MergeTree:
        """Continue the merges below the number of components, down to one community.

        No edge connects the remaining communities, so the best pair is the two communities of smallest strength.

        Parameters
        ----------
        strength : array of shape (n,)
            Strength of each node, in the type of the gains.
        resolution : float
            Factor in the gain of joining i and j, ``-resolution * d_i * d_j``.

        Returns
        -------
        MergeTree
            Tree with n - 1 merges. It begins with the merges of this tree. Each further merge joins the two communities
            of smallest strength (ties: smallest number).
        """
        roots = self._roots(len(self.merges))
        total = np.zeros(self.n, self.gains.dtype)
        np.add.at(total, roots, np.asarray(strength, self.gains.dtype))
        left = np.flatnonzero(roots == np.arange(self.n))
        heap = list(zip(total[left].tolist(), left.tolist(), strict=True))
        heapq.heapify(heap)
        merges, gains = [], []
        factor = int(resolution) if self.gains.dtype.kind == "i" else resolution
        while len(heap) > 1:
            d, i = heapq.heappop(heap)
            e, j = heap[0]
            merges.append((min(i, j), max(i, j)))
            gains.append(-factor * (d * e))
            heapq.heapreplace(heap, (d + e, min(i, j)))
        joined = np.concatenate([self.merges, np.array(merges, np.int32).reshape(-1, 2)])
        return MergeTree(
            self.n, joined, np.concatenate([self.gains, np.array(gains, self.gains.dtype)]), self.two_m, self.start
        )

    def _roots(self, merges_done: int) -> Array:
        """Return the smallest node of each node's community."""
        parent = np.arange(self.n, dtype=np.int32)
        kept, absorbed = self.merges[:merges_done].T
        parent[absorbed] = kept
        while True:  # each pass halves the depth
            above = parent[parent]
            if (above == parent).all():
                return parent
            parent = above

    def cut(self, k: int) -> Array:
        """Return labels of k communities, numbered by their smallest node.

        Parameters
        ----------
        k : int
            Number of communities, up to n. On a tree from `join_components`, at least 1; else at least the number of
            components.

        Returns
        -------
        int32 array of shape (n,)
        """
        if not self.n - len(self.merges) <= k <= self.n:
            lowest = self.n - len(self.merges)
            why = "" if lowest <= 1 else f", because the graph has {lowest} components"
            raise InputError(f"n_clusters={k} should be from {max(lowest, 1)} to {self.n}{why}.")
        roots = self._roots(self.n - k)
        number = np.cumsum(roots == np.arange(self.n), dtype=np.int32) - 1
        return number[roots]

    def joins(self) -> Array:
        """Return merges in the format of igraph: nodes are 0 .. n - 1, and merge t creates community n + t.

        Returns
        -------
        int64 array of shape (k, 2)
            The smaller number of each pair comes first.
        """
        number = list(range(self.n))
        out = []
        for t, (kept, absorbed) in enumerate(self.merges.tolist()):
            out.append((number[kept], number[absorbed]))
            number[kept] = self.n + t
        return np.sort(np.array(out, np.int64).reshape(-1, 2), axis=1)

    def linkage(self) -> Array:
        """Return merges in the format of SciPy's dendrograms; the height is the number of the merge, from 1 on.

        Returns
        -------
        float64 array of shape (n - 1, 4)
            The two communities, the height, and the number of their nodes.
        """
        if len(self.merges) != self.n - 1:
            raise InputError(
                f"n_clusters={self.n - len(self.merges)} components are left, but a linkage ends at one community; "
                "call join_components first."
            )
        size = [1] * self.n
        sizes = []
        for kept, absorbed in self.merges.tolist():
            size[kept] += size[absorbed]
            sizes.append(size[kept])
        return np.column_stack([self.joins(), np.arange(1, self.n), sizes]).astype(np.float64).reshape(-1, 4)


def _parts(gains: Array, two_m: float) -> tuple[Array, Array, float]:
    """Return integers with ``(high * 2**HALF + low) * unit == 2 * gains / two_m**2``; low is not negative."""
    if gains.dtype.kind == "i":
        return gains >> HALF, gains & (2**HALF - 1), 2.0 / float(two_m) ** 2 if two_m else 0.0
    scaled = gains * (2.0 / float(two_m) ** 2 * UNIT if two_m else 0.0)
    high = np.floor(scaled)
    low = np.rint((scaled - high) * 2.0**HALF)
    return high.astype(np.int64), low.astype(np.int64), 1.0 / (UNIT * 2.0**HALF)
