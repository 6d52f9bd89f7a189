"""Single linkage within canopies: only pairs of rows that share a canopy are compared.

Every canopy is sent to one rank, with its rows. Single linkage of a canopy needs only the edges of its minimum spanning
tree. Single linkage of all canopies needs only the minimum spanning forest of these edges::

    each rank    sends its rows to the ranks of their canopies    exchange of d + 2 numbers per membership
    each rank    spanning tree of each of its canopies            `spanning_trees`, m^2 / 2 distances of m rows
    each rank    spanning forest of the edges of these trees      at most n - 1 edges
    rank 0       spanning forest of the edges of all ranks

Edges are ordered by distance and by the numbers of their rows, so the forest is the same on any number of ranks.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from mgclust.base.errors import InsufficientMemoryError, ParameterWarning
from mgclust.engine.memory import human
from mgclust.engine.spmd import Context

__all__ = ["Agglomeration", "AgglomerationTree", "tree_of_canopies"]

Array = Any


class Agglomeration(NamedTuple):
    """Clusters of single linkage within canopies, and all merges, including merges beyond the requested clusters.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,), int32
        Cluster of each row. Clusters are numbered in the order of their first rows.
    n_clusters : int
        Number of clusters.
    merges : ndarray of shape (n_merges, 2), int64
        Pairs of rows whose clusters merge, nearest pairs first.
    distances : ndarray of shape (n_merges,)
        Distances of these pairs, ascending.
    n_canopies : int
        Number of canopies.
    n_pairs : int
        Number of comparisons of two rows; a pair counts once per canopy that holds both rows.
    t1, t2 : float
        The thresholds.
    """

    labels: np.ndarray
    n_clusters: int
    merges: np.ndarray
    distances: np.ndarray
    n_canopies: int
    n_pairs: int
    t1: float
    t2: float


class AgglomerationTree(NamedTuple):
    """Edges of a forest, ordered by reduced distance; ties are ordered by row numbers."""

    s: np.ndarray  # (m,), of the rows' type: reduced distance
    low: np.ndarray  # (m,), int64: row number
    high: np.ndarray  # (m,), int64: row number, larger than low

    def clusters(self, n: int, n_clusters: int | None, kept: int) -> tuple[np.ndarray, int]:
        """Return the labels of all rows and the number of clusters, after `kept` merges or down to `n_clusters`.

        Parameters
        ----------
        n : int
            Number of rows.
        n_clusters : int or None
            Number of clusters at which merging stops. None: stop after `kept` merges.
        kept : int
            Number of merges.

        Returns
        -------
        labels : ndarray of shape (n,), int32
        count : int
            Number of clusters.
        """
        if n_clusters is not None:
            kept = n - n_clusters
            if kept > len(self.s):
                warnings.warn(
                    f"n_clusters={n_clusters} cannot be reached: {n - len(self.s)} clusters remain, because no two of "
                    "them have rows in the same canopy; raise t1 to connect them.",
                    ParameterWarning,
                    stacklevel=4,
                )
        edges = self.low[:kept], self.high[:kept]
        graph = csr_array((np.ones(len(edges[0]), bool), edges), shape=(n, n))
        count, labels = connected_components(graph, directed=False)
        _, first, label_of_row = np.unique(labels, return_index=True, return_inverse=True)
        place = np.empty(count, np.int32)
        place[np.argsort(first)] = np.arange(count, dtype=np.int32)
        return place[label_of_row], int(count)


def tree_of_canopies(context: Context, memberships: csr_array, norm: str) -> tuple[AgglomerationTree, int]:
    """Find the spanning forest of all pairs of rows that share a canopy.

    Parameters
    ----------
    context : Context
    memberships : csr_array of shape (local rows, n_canopies)
        The canopies of this rank's rows.
    norm : {"l2", "l1"}
        Kind of reduced distance.

    Returns
    -------
    AgglomerationTree
        On rank 0, the forest of all pairs; on other ranks, the forest of the pairs within the rank's canopies.
    int
        Number of pairs that were compared on all ranks.
    """
    comm, kernels, n = context.comm, context.kernels, context.dataset_shape[0]
    sizes = np.bincount(memberships.indices, minlength=memberships.shape[1]).astype(np.int64)
    sizes = comm.all_reduce(sizes, "sum")
    canopies, numbers, x = _exchanged(context, memberships, sizes)
    order = np.lexsort((numbers, canopies))
    starts = np.flatnonzero(np.diff(canopies[order], prepend=-1, append=-1)).astype(np.int64)
    numbers, x = numbers[order], x[kernels.xp.asarray(order)]
    s = kernels.xp.empty(len(numbers), dtype=context.dtype)
    other = kernels.xp.empty(len(numbers), dtype="int64")
    kernels.canopy.spanning_trees(x, kernels.memory.to_device(numbers), starts, norm=norm, s=s, other=other)
    ends = kernels.memory.to_host(other)
    joined = ends != numbers
    pairs = AgglomerationTree(kernels.memory.to_host(s), np.minimum(numbers, ends), np.maximum(numbers, ends))
    tree = _tree_of(AgglomerationTree(*(part[joined] for part in pairs)), n)
    if comm.size > 1:
        gathered = AgglomerationTree(*(comm.all_gather(part) for part in tree))
        tree = _tree_of(gathered, n) if comm.rank == 0 else tree
    return tree, int((sizes * (sizes - 1) // 2).sum())


def _exchanged(context: Context, memberships: csr_array, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, Array]:
    """Exchange rows: return the canopy, row number and row of each membership in the canopies of this rank.

    The largest canopies go to different ranks.
    """
    comm, xp, rows = context.comm, context.kernels.xp, context.rows
    rank_of = np.empty(len(sizes), np.int64)
    rank_of[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes)) % comm.size
    _check_room(context, np.bincount(rank_of, sizes, comm.size).max())
    own = np.repeat(np.arange(len(rows)), np.diff(memberships.indptr))
    order = np.argsort(rank_of[memberships.indices], kind="stable")
    canopies, own = memberships.indices[order].astype(np.int64), own[order]
    x = rows.read(rows.start, rows.stop)[xp.asarray(own)]
    edges = np.searchsorted(rank_of[canopies], np.arange(comm.size + 1))
    parts = [slice(*edges[rank : rank + 2]) for rank in range(comm.size)]
    numbers = own.astype(np.int64) + rows.start
    to_canopies, to_numbers = (comm.exchange([each[part] for part in parts]) for each in (canopies, numbers))
    return to_canopies, to_numbers, comm.exchange([x[part] for part in parts])


def _check_room(context: Context, most: int) -> None:
    """Reject, on every rank, canopies whose rows do not fit into memory three times: sent, received, and sorted.

    This also rejects data whose rows are streamed, because they exceed half the memory.
    """
    needed = int(most) * (4 * context.rows.n_features * context.dtype.itemsize + 64)
    room = int(context.comm.all_reduce(np.array([context.free], np.int64), "min")[0])
    if needed > room:
        raise InsufficientMemoryError(
            f"not enough memory: the rows of a rank's canopies need {human(needed)}, and {human(room)} is free; use a "
            "smaller t1, more workers, or workers with more memory."
        )


def _tree_of(edges: AgglomerationTree, n: int) -> AgglomerationTree:
    """Return the minimum spanning forest of edges; an edge may occur twice."""
    _, first = np.unique(edges.low * n + edges.high, return_index=True)
    s, low, high = (part[first] for part in edges)
    order = np.lexsort((high, low, s))
    # Positions in the order replace distances: they have no ties, and none is 0, which SciPy treats as no edge.
    places = csr_array((np.arange(1.0, len(order) + 1), (low[order], high[order])), shape=(n, n))
    kept = order[np.sort(minimum_spanning_tree(places).data).astype(np.int64) - 1]
    return AgglomerationTree(s[kept], low[kept], high[kept])
