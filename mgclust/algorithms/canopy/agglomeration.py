"""Single linkage confined to canopies: only pairs of rows that share a canopy are compared.

Every canopy goes to one rank, with its rows. A canopy's spanning tree holds all that its pairs say of single linkage,
and a tree of the trees' edges all that the canopies say::

    each rank    sends its rows to the ranks of their canopies    exchange of d + 2 numbers a membership
    each rank    spanning tree of each of its canopies            `spanning_trees`, m^2 / 2 distances of m rows
    each rank    the tree of these trees' edges                   at most n - 1 edges
    rank 0       the tree of all ranks' edges

Edges have one order, by distance and the numbers of their rows, so there is one tree, on any number of ranks.
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
    """Clusters, and the merges that make them and larger ones."""

    labels: np.ndarray  # (n_samples,) int32; clusters in the order of their first rows
    n_clusters: int
    merges: np.ndarray  # (n_merges, 2) int64: two rows whose clusters merge, nearest ones first
    distances: np.ndarray  # (n_merges,) at which they do, ascending
    n_canopies: int
    n_pairs: int  # of rows that were compared, once for each canopy that they share
    t1: float
    t2: float


class AgglomerationTree(NamedTuple):
    """Edges of a forest, by reduced distance and then by the numbers of their rows."""

    s: np.ndarray  # (m,), the rows' type
    low: np.ndarray  # (m,) int64
    high: np.ndarray  # (m,) int64, above low

    def clusters(self, n: int, n_clusters: int | None, kept: int) -> tuple[np.ndarray, int]:
        """Labels of all rows after the first `kept` merges, or down to a number of clusters; and how many there are."""
        if n_clusters is not None:
            kept = n - n_clusters
            if kept > len(self.s):
                warnings.warn(
                    f"n_clusters={n_clusters}: rows that share canopies make {n - len(self.s)} clusters, which no pair "
                    "connects; raise t1 to connect them.",
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
    memberships : csr_array of shape (own rows, n_canopies)
        The canopies of this rank's rows.
    norm : {"l2", "l1"}
        Which reduced distance.

    Returns
    -------
    AgglomerationTree
        On rank 0 of all pairs, on others of their canopies.
    int
        How many pairs were compared on all ranks.
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
    """Canopy, row number and row of each membership of this rank's canopies; large ones go to different ranks."""
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
    """Refuse, on every rank, what a rank cannot hold: the rows of its canopies, sent and received, and sorted.

    So rows that are streamed are refused, too: they exceed half the memory.
    """
    needed = int(most) * (4 * context.rows.n_features * context.dtype.itemsize + 64)
    room = int(context.comm.all_reduce(np.array([context.free], np.int64), "min")[0])
    if needed > room:
        raise InsufficientMemoryError(
            f"not enough memory: the rows of a rank's canopies need {human(needed)}, there {human(room)}. What would "
            "fit: a smaller t1, more workers, or workers with more memory."
        )


def _tree_of(edges: AgglomerationTree, n: int) -> AgglomerationTree:
    """The spanning forest of edges, some of which may be there twice."""
    _, first = np.unique(edges.low * n + edges.high, return_index=True)
    s, low, high = (part[first] for part in edges)
    order = np.lexsort((high, low, s))
    # Places in the order are distances without ties, and none is 0, which SciPy takes for no edge.
    places = csr_array((np.arange(1.0, len(order) + 1), (low[order], high[order])), shape=(n, n))
    kept = order[np.sort(minimum_spanning_tree(places).data).astype(np.int64) - 1]
    return AgglomerationTree(s[kept], low[kept], high[kept])
