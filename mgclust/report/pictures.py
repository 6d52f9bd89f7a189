"""The pictures that suit a result, and the rows that they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust import plots
from mgclust.result import Result

__all__ = ["EdgeSample", "Sample", "draw_pictures", "sample_index", "sample_rows"]

UNCLEAR = 0.5  # a second membership of more than this share of the largest: the row lies between clusters
SAMPLE_BYTES = 256 << 20  # of wide rows fewer are drawn
MOST_EDGES = 10_000_000  # drawn of a graph, in runs from all over it
RUNS = 64


@dataclass(frozen=True)
class Sample:
    """Rows of a data set that stand for all of them in a picture.

    Attributes
    ----------
    index : ndarray of shape (m,), int
        Their row numbers, ascending.
    rows : ndarray of shape (m, n_features)
    centers : ndarray of shape (n_clusters, n_features), or None
        The centres, in label order.
    """

    index: np.ndarray
    rows: np.ndarray
    centers: np.ndarray | None


@dataclass(frozen=True)
class EdgeSample:
    """Edges of a graph that stand for all of them in a picture.

    Attributes
    ----------
    edges : ndarray of shape (m, 2) or (m, 3)
        Nodes, and weights where the graph has such.
    total : int
        Edges of the graph.
    """

    edges: np.ndarray
    total: int


def sample_rows(dataset: Any, result: Result, most: int = plots.MAX_POINTS) -> Sample | EdgeSample | None:
    """Read the rows that a picture shows: all, or an unchanging random choice, and those of the centres.

    Of a graph, whose rows are edges, a picture shows all, or runs of edges from all over it.

    Parameters
    ----------
    dataset : Dataset or Graph
        What was clustered: ``shape``, and ``take(indices)`` or ``read(start, stop)``.
    result : Result
        Has the centres, or names their rows, if its method has such.
    most : int
        Rows to choose at most; edges are read in a block and more of them are drawn.

    Returns
    -------
    Sample, EdgeSample or None
        None where the rows are no points but similarities.
    """
    if result.method == "fast-newman":
        return _sample_edges(dataset)
    if result.parameters.get("affinity") == "precomputed":
        return None
    index = sample_index(dataset.shape, most)
    centers = np.asarray(result.arrays.get("centers", ()), dtype=np.int64)
    wanted = np.union1d(index, centers)
    rows = dataset.take(wanted).astype(np.float64)
    own = rows[np.searchsorted(wanted, centers)] if len(centers) else _centers(result)
    return Sample(index, rows[np.searchsorted(wanted, index)], own)


def sample_index(shape: tuple[int, int], most: int) -> np.ndarray:
    """The rows that stand for all: the same ones whenever they are asked for."""
    n, d = shape
    most = min(most, max(1000, SAMPLE_BYTES // (8 * d)))
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, size=most, replace=False))


def _sample_edges(graph: Any) -> EdgeSample:
    """All edges, or runs that are spread evenly over the graph."""
    m = graph.shape[0]
    runs = [(0, m)]
    if m > MOST_EDGES:
        each = MOST_EDGES // RUNS
        runs = [(start, start + each) for start in np.linspace(0, m - each, RUNS).astype(int).tolist()]
    parts = [graph.read(start, stop) for start, stop in runs]
    return EdgeSample(np.concatenate([part.get() if hasattr(part, "get") else part for part in parts]), m)


def draw_pictures(result: Result, sample: Sample | EdgeSample | None = None) -> dict[str, bytes]:
    """Draw what suits the method, as PNG files by name; `sample` is needed for the scatter, and for the adjacency."""
    if result.method == "fast-newman":
        return _community_pictures(result, sample)
    assert not isinstance(sample, EdgeSample)
    pictures = {}
    if {"rho", "delta", "centers"} <= set(result.arrays):
        pictures["decision_graph"] = plots.png(plots.decision_graph(result))
    if "scan_n_clusters" in result.arrays:
        pictures["scan"] = plots.png(plots.scan(result))
    if "samples" in result.arrays and result.labels is not None:
        pictures["silhouettes"] = plots.png(plots.silhouettes(result.arrays["samples"], result.labels))
    if "objective_history" in result.arrays:
        pictures["objective"] = plots.png(plots.objective(result))
    if sample is not None and result.method == "canopy":
        assert result.labels is not None and sample.centers is not None
        near, t1, t2 = np.asarray(result.labels)[sample.index], result.scores["t1"], result.scores["t2"]
        metric = result.parameters.get("metric", "euclidean")
        ax = plots.canopies(sample.rows, near, sample.centers, t1, t2, metric=metric, total=len(result.labels))
        pictures["canopies"] = plots.png(ax)
    elif sample is not None and result.labels is not None:
        ax = plots.scatter(
            sample.rows,
            np.asarray(result.labels)[sample.index],
            sample.centers,
            halo=_faint(result, sample.index),
            total=len(result.labels),
        )
        pictures["scatter"] = plots.png(ax)
    return pictures


def _community_pictures(result: Result, sample: Any) -> dict[str, bytes]:
    """A graph without edges has neither matrix nor tree; where merges were not kept, the rounds make the curve."""
    assert result.labels is not None
    pictures = {}
    if "modularity_history" in result.arrays or result.diagnostics.get("rounds"):
        pictures["modularity"] = plots.png(plots.modularity(result))
    if sample is not None and sample.total:
        ax = plots.adjacency(sample.edges, result.labels, names=result.arrays.get("names"), total=sample.total)
        pictures["adjacency"] = plots.png(ax)
    if len(result.arrays.get("merges", ())) and result.diagnostics.get("n_components", 1) < len(result.labels):
        pictures["dendrogram"] = plots.png(plots.dendrogram(result))
    return pictures


def _centers(result: Result) -> np.ndarray | None:
    """Centres that are no rows but points among them."""
    if "cluster_centers" not in result.arrays:
        return None
    if result.method == "fuzzy-c-means" and result.parameters.get("metric", "euclidean") != "euclidean":
        return None  # they lie among rows of unit length, the picture shows the rows as they were given
    return np.asarray(result.arrays["cluster_centers"], dtype=np.float64)


def _faint(result: Result, index: np.ndarray) -> np.ndarray | None:
    """Which rows belong to a cluster only just: those of a halo, or that are nearly as much in a second cluster."""
    if "halo" in result.arrays:
        return np.asarray(result.arrays["halo"])[index]
    memberships = result.arrays.get("memberships")
    if not isinstance(memberships, np.ndarray) or memberships.shape[1] < 2:
        return None
    second, first = np.partition(memberships[index], -2, axis=1)[:, -2:].T
    return np.asarray(second > UNCLEAR * first)
