"""Community detection by others, and measures of communities that all are judged by; each peer only where installed."""

from __future__ import annotations

import importlib.util
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PEERS = {"fastgreedy": "igraph", "Louvain": "igraph", "Leiden": "igraph", "leidenalg": "leidenalg"}
TO_THE_END = 50_000  # edges, up to which leidenalg runs until nothing improves


class Found(NamedTuple):
    """What a peer found."""

    labels: np.ndarray
    seconds: float  # processor time of the search alone: their graph is built before
    dendrogram: Any  # of fastgreedy, else None


def here() -> list[str]:
    """Names of the peers that this machine has."""
    return [name for name, package in PEERS.items() if importlib.util.find_spec(package)]


class Peers:
    """A graph as igraph holds it, built once for all peers."""

    def __init__(self, edges: np.ndarray, n: int) -> None:
        import igraph

        self.graph = igraph.Graph(n=n, edges=edges)

    def run(self, name: str, seed: int = 0) -> Found:
        """Run one of `PEERS`; modularity with resolution 1, edges without weights, all other options by default.

        igraph's Leiden makes the two iterations of its default; leidenalg goes on until nothing improves where that
        takes seconds, and makes two iterations on larger graphs, where it takes minutes.
        """
        random.seed(seed)  # igraph draws from there
        start, dendrogram = time.process_time(), None
        if name == "fastgreedy":
            dendrogram = self.graph.community_fastgreedy()
            clusters = dendrogram.as_clustering()
        elif name == "Louvain":
            clusters = self.graph.community_multilevel()
        elif name == "Leiden":
            clusters = self.graph.community_leiden(objective_function="modularity")
        else:
            import leidenalg

            kind = leidenalg.ModularityVertexPartition
            iterations = -1 if self.graph.ecount() <= TO_THE_END else 2
            clusters = leidenalg.find_partition(self.graph, kind, n_iterations=iterations, seed=seed)
        seconds = time.process_time() - start
        return Found(np.asarray(clusters.membership, np.int32), seconds, dendrogram)


def modularity(edges: np.ndarray, labels: np.ndarray) -> float:
    """Modularity of labels, from exact sums; edges have no weights."""
    ends = labels[edges]
    inside = int((ends[:, 0] == ends[:, 1]).sum())
    degrees = np.bincount(ends.ravel()).astype(object)
    m = len(edges)
    return inside / m - int((degrees * degrees).sum()) / (4 * m * m)


def fraction_right(truth: np.ndarray, labels: np.ndarray) -> float:
    """Share of the nodes that the best one-to-one matching of communities with clusters puts where they belong."""
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((truth.max() + 1, labels.max() + 1), np.int64)
    np.add.at(counts, (truth, labels), 1)
    return float(counts[linear_sum_assignment(-counts)].sum() / len(truth))


def agreement(truth: np.ndarray, labels: np.ndarray) -> float:
    """Normalised mutual information over the nodes that have a label."""
    from sklearn.metrics import normalized_mutual_info_score

    known = truth >= 0
    return float(normalized_mutual_info_score(truth[known], labels[known]))


def load(path: Path) -> tuple[np.ndarray, int, np.ndarray | None]:
    """Edges, the number of nodes and their classes (or None) of a ``.npz``; weights are left out."""
    with np.load(path, allow_pickle=False) as archive:
        edges, labels = archive["edges"], archive.get("labels")
        return edges, int(archive["n"]) if "n" in archive else int(edges.max()) + 1, labels
