"""Graphs that are hard for searches of communities, with all objectives, on 1 to 4 ranks."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from mgclust import Communities
from mgclust.algorithms import base

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("workers"), pytest.mark.filterwarnings("ignore::UserWarning")]

CLIQUES = [(8 * c + u, 8 * c + v) for c in range(20) for u, v in combinations(range(8), 2)]
BRIDGES = [(8 * c, 8 * c + 8) for c in range(19)]


def weighted(edges, weights) -> np.ndarray:
    return np.column_stack([np.asarray(edges, float), np.asarray(weights, float)])


GRAPHS = {
    "star": (np.array([(0, leaf) for leaf in range(1, 301)]), 301),
    "path": (np.array([(v, v + 1) for v in range(299)]), 300),
    "cliques joined by an edge": (np.array(CLIQUES + BRIDGES), 160),
    "sums of weights above 2^31": (weighted(CLIQUES + BRIDGES, [2**30] * (len(CLIQUES) + len(BRIDGES))), 160),
    "weights far apart": (weighted(CLIQUES + BRIDGES, [1e-9] * len(CLIQUES) + [1e-12] * len(BRIDGES)), 160),
    "isolated nodes": (np.array(CLIQUES[:56]), 1000),
    "zero weights": (weighted(CLIQUES + BRIDGES, [1] * len(CLIQUES) + [0] * len(BRIDGES)), 160),
    "an edge 100,000 times": (np.array(CLIQUES[:56] + BRIDGES[:1] + [(8, 9)] * 100_000), 16),
}
SEARCHES = {
    "modularity": {},
    "directed": {"directed": True},
    "cpm": {"objective": "cpm", "resolution": 0.2},
    "consensus": {"consensus": 3},
    "init": {"init": "halves"},
}


def objective(edges, n, labels, name) -> Fraction:
    """The definitions, in exact numbers."""
    weights = [Fraction(w) for w in edges[:, 2].tolist()] if edges.shape[1] == 3 else [Fraction(1)] * len(edges)
    ends = edges[:, :2].astype(int).tolist()
    inside = sum((w for (u, v), w in zip(ends, weights, strict=True) if labels[u] == labels[v]), Fraction(0))
    if name == "cpm":
        return inside - sum(Fraction(0.2) * k * (k - 1) / 2 for k in np.bincount(labels).tolist())
    m = sum(weights)
    leaving, entering = ({label: Fraction(0) for label in set(labels.tolist())} for _ in range(2))
    for (u, v), w in zip(ends, weights, strict=True):
        leaving[labels[u]] += w
        entering[labels[v]] += w
    if name == "directed":
        return inside / m - sum(leaving[c] * entering[c] for c in leaving) / m**2
    return inside / m - sum((leaving[c] + entering[c]) ** 2 for c in leaving) / (4 * m**2)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_communities_are_connected_scored_and_the_same_on_all_ranks(graph, search, ranks, monkeypatch):
    edges, n = GRAPHS[graph]
    parameters = {**SEARCHES[search], "null": 0}
    if search == "init":
        parameters["init"] = np.arange(n) % 2
    found = []
    for size in (1, 2, 3, 4):
        monkeypatch.setattr(base, "connect", lambda size=size, **_: ranks(size))
        model = Communities(device="cpu", **parameters).fit((edges, n))
        found.append((model.labels_.tolist(), model.quality_, model.modularity_))
    assert all(each == found[0] for each in found)
    kept = edges if edges.shape[1] == 2 else edges[edges[:, 2] > 0]
    net = nx.Graph()
    net.add_nodes_from(range(n))
    net.add_edges_from(kept[:, :2].astype(int).tolist())
    groups = [np.flatnonzero(model.labels_ == label).tolist() for label in np.unique(model.labels_)]
    assert all(nx.is_connected(net.subgraph(nodes)) for nodes in groups)
    exact = float(objective(edges, n, model.labels_, search))
    assert model.quality_ == pytest.approx(exact, rel=1e-6, abs=1e-9)
    if "clique" in graph or ("weights" in graph and search in ("modularity", "directed")):
        assert all(len(set(model.labels_[8 * c : 8 * c + 8].tolist())) == 1 for c in range(20))
