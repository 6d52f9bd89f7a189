"""Parcels by affinity propagation between neighbours, level by level; Ward's merges make their number exact.

Only neighbours have a similarity: -(1 - r) / 2, if r is the correlation of their series. So a cluster consists of an
exemplar and some of its neighbours, and is connected. The clusters of a level are the nodes of the next level. In
outline::

    nodes = {each row}
    while there are more nodes than requested parcels, and the last level had more nodes than this level:
        S[a, b] = -(1 - r(mean series of a, mean series of b)) / 2, for all neighbours a and b
        S[a, a] = 0.7 median(S) + 0.3 mean(S[a, neighbours of a])
        clusters = affinity propagation of S (Frey and Dueck 2007)
        nodes = the clusters; two clusters are neighbours if they have rows that are neighbours
    take the last level that has at least as many nodes as parcels are requested
    merge neighbouring nodes of this level by Ward's criterion until the number is exact

A level of voxels has about a quarter of the nodes of the level before. So the last level has at most about four times
the requested number of nodes. Instead of Ward's merges, a search for a preference could make the number exact, but on a
BOLD series the parcels of this search were less homogeneous and differed more in size. Lower preferences, which need
fewer levels, were also worse.

S is symmetric. If all nodes had the same preference S[a, a], either of two neighbours could be the exemplar of the
other, and noise would decide which: the parcels of a BOLD series with two seeds had an adjusted Rand index of 0.6.
Here, a node that is more similar to its neighbours has a higher preference, so the series decide.

The clusters of a level equal the clusters of `AffinityPropagation` with damping 0.9, these preferences, the same seed
and a sparse matrix of the similarities. The messages are computed on the device of rank 0. If the messages have not
converged, a node may have no similarity to any exemplar; this node becomes a cluster of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.affinity_propagation.ranks import affinity_propagation
from mgclust.algorithms.affinity_propagation.rows.sparse_pairs import estimate_of_pairs
from mgclust.algorithms.parcellation.merge_cuts import numbered
from mgclust.algorithms.parcellation.parcel_graph import ParcelGraph
from mgclust.algorithms.parcellation.unit_rows import unit_rows
from mgclust.data.arrays import ArrayDataset
from mgclust.engine.abort import Abort
from mgclust.engine.partition import Partition
from mgclust.engine.rows import Rows
from mgclust.engine.spmd import Context
from mgclust.engine.transport.comm import SoloComm
from mgclust.kernels.parcels.borders import edge_products

__all__ = ["ExemplarLevels", "needed_by_levels"]

MAX_ITER = 200  # iterations per level; 1,000 were no better, and some messages of a brain still oscillated after them
OWN = 0.3  # weight of a node's own similarities in its preference
FEW_NODES = 1024  # up to this number, messages are float64, as in `AffinityPropagation`; else they are float32
MESSAGES: dict[str, Any] = {
    "affinity": "precomputed",
    "damping": 0.9,
    "max_iter": MAX_ITER,
    "convergence_iter": 15,
    "preference_quantile": None,
    "n_clusters": None,
    "algorithm": "sparse",
}


class ExemplarLevels:
    """Levels of affinity propagation on the graph of neighbours of one set of series.

    Parameters
    ----------
    context : Context
        Context of rank 0.
    rows : float32 array of shape (n, n_features)
        Series of mean 0 and length 1, or 0.
    starts, columns : int64 array of shape (n + 1,), int32 array
        Graph of neighbours.
    seed : int
        Seed of the noise that breaks ties between similarities.

    Attributes
    ----------
    levels : list of ParcelGraph
        The levels that have been computed; the nodes of the first level are the rows.
    unconverged : list of int
        For each level whose exemplars still changed in the last iterations, its number of nodes.
    """

    def __init__(self, context: Context, rows: np.ndarray, starts: np.ndarray, columns: np.ndarray, seed: int) -> None:
        self._context, self._seed, self._ended = context, seed, False
        self.levels = [ParcelGraph.of_rows(rows, starts, columns)]
        self.unconverged: list[int] = []

    def parcels(self, k: int) -> np.ndarray:
        """Return the parcel of each row, for k parcels; int32 array of shape (n,).

        k is at least the number of connected components of the graph.
        """
        while not self._ended and len(self.levels[-1].size) > k:
            self._add_level()
        return next(level for level in reversed(self.levels) if len(level.size) >= k).merged(k)

    def _add_level(self) -> None:
        """Add a level whose nodes are the clusters of the last level, unless each cluster is only one node."""
        level = self.levels[-1]
        clusters = self._clusters(level) if len(level.columns) else np.arange(len(level.size))
        self._ended = int(clusters.max()) + 1 == len(clusters)
        if not self._ended:
            self.levels.append(level.contracted(clusters))

    def _clusters(self, level: ParcelGraph) -> np.ndarray:
        """Return the cluster of each node."""
        products = edge_products(unit_rows(level.sums, centered=False), level.starts, level.columns)
        values = np.minimum((products - 1) / 2, 0.0)
        pairs = {"values": values, "columns": level.columns, "bounds": level.starts}
        context, preference = self._context_of(level), preferences(values, level.starts)
        output = affinity_propagation(context, **MESSAGES, preference=preference, seed=self._seed, pairs=pairs)
        if output is not None and not output.converged:
            self.unconverged.append(len(level.size))
        labels = context.delivered["labels"].astype(np.int64)
        alone = np.flatnonzero(labels < 0)
        labels[alone] = len(labels) + alone
        return numbered(labels)

    def _context_of(self, level: ParcelGraph) -> Context:
        """Return a context of one rank for the nodes of a level; its work ends if the run is cancelled."""
        outer, n = self._context, len(level.size)
        left = len(level.columns) / len(self.levels[0].columns)

        def emit(event: dict[str, Any]) -> None:
            done = event["fraction"] if event["stage"] == "messages" else 0.0
            outer.progress(1 - left * (1 - done), n_clusters=n)

        partition = Partition.plan(n, 1)
        return Context(
            comm=SoloComm(partition, n),
            partition=partition,
            rows=Rows(
                ArrayDataset(np.diff(level.starts)[:, None]),  # number of pairs of each row; the pairs are an argument
                0,
                n,
                dtype=np.dtype("float64" if n <= FEW_NODES else "float32"),
                kernels=outer.kernels,
                block_rows=partition.block_rows,
            ),
            kernels=outer.kernels,
            free=outer.free,
            spare=outer.spare,
            abort=Abort(),
            emit=emit,
            host_free=lambda: outer.host_room(0),
        )


def preferences(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the preference of each node.

    Parameters
    ----------
    values : float64 array of shape (n_pairs,)
        Similarities of each node to its neighbours.
    starts : int64 array of shape (n_nodes + 1,)
        Position in `values` of the first similarity of each node, and the length of `values`.
    """
    count, median = np.diff(starts), np.median(values)
    own = np.bincount(np.repeat(np.arange(len(count)), count), values, len(count))
    means = np.divide(own, count, out=np.full(len(count), median), where=count > 0)
    return (1 - OWN) * median + OWN * means


def needed_by_levels(n: int, n_features: int, entries: int) -> dict[str, Any]:
    """Estimate the memory of the levels.

    Parameters
    ----------
    n, n_features : int
        Shape of the series.
    entries : int
        Number of neighbours of all rows together.
    """
    pairs = estimate_of_pairs((n, n), 4, 1, 0, pairs=entries)
    return {"sums of all levels": 4 * n * n_features, **pairs.what}
