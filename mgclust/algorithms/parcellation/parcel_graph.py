"""Graph whose nodes are parcels: which parcels are neighbours, and the sums of their series.

Two parcels are neighbours if they have rows that are neighbours. So if each node is replaced by the cluster to which it
belongs, the clusters are the nodes of a smaller graph of the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from mgclust.algorithms.parcellation.merge_cuts import labels_after, numbered
from mgclust.kernels.parcels.ward import ward_merges

__all__ = ["ParcelGraph"]


@dataclass(frozen=True)
class ParcelGraph:
    """Parcels as the nodes of a graph of neighbours."""

    labels: np.ndarray  # int32 array of shape (n,): node of each row; nodes are numbered by their smallest rows
    sums: np.ndarray  # shape (n_nodes, n_features): sum of the series of each node
    size: np.ndarray  # number of rows of each node
    starts: np.ndarray  # int64 array of shape (n_nodes + 1,)
    columns: np.ndarray  # int32 array: neighbours of each node

    @classmethod
    def of_rows(cls, rows: np.ndarray, starts: np.ndarray, columns: np.ndarray) -> Self:
        """Return the graph in which each row is a node."""
        return cls(np.arange(len(rows), dtype=np.int32), rows, np.ones(len(rows), np.int32), starts, columns)

    @cached_property
    def merges(self) -> np.ndarray:
        """Merges of all nodes by Ward's criterion; see `ward_merges`."""
        return ward_merges(self.sums, self.starts, self.columns, lambda done: None, self.size)[0]

    def merged(self, k: int) -> np.ndarray:
        """Merge nodes by Ward's criterion until k clusters are left; return the cluster of each row, int32.

        k is at least the number of connected components of the graph, and at most the number of nodes.
        """
        return numbered(labels_after(self.merges, len(self.size), k)[self.labels])

    def contracted(self, clusters: np.ndarray) -> ParcelGraph:
        """Return the graph whose nodes are clusters of the nodes.

        Parameters
        ----------
        clusters : int array of shape (n_nodes,)
            Cluster of each node; clusters are numbered from 0 by their smallest nodes.
        """
        count = int(clusters.max()) + 1
        sums = np.zeros((count, self.sums.shape[1]))
        np.add.at(sums, clusters, self.sums)
        size = np.zeros(count, np.int32)
        np.add.at(size, clusters, self.size)
        ends = np.repeat(clusters, np.diff(self.starts)), clusters[self.columns]
        apart = ends[0] != ends[1]
        graph = csr_array((np.ones(apart.sum(), np.int32), (ends[0][apart], ends[1][apart])), shape=(count, count))
        graph.sum_duplicates()  # which also sorts the neighbours
        starts, columns = graph.indptr.astype(np.int64), graph.indices.astype(np.int32)
        return ParcelGraph(clusters[self.labels], sums, size, starts, columns)
