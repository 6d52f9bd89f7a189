"""Graphs for tests: the stored ones, random ones, and what a list of merges means."""

from __future__ import annotations

import heapq
from pathlib import Path

import numpy as np

from oracles import fast_newman as reference

DATA = Path(__file__).parents[1] / "sets"

# What Newman's rule gives with gains compared as integers and ties to the smallest pair: Q, communities, merges. And
# the modularity of igraph's Louvain method. All from the table that came with the graphs.
KNOWN = {
    "karate": (0.3807, 3, 31, 0.4188),
    "celegans-metabolic": (0.4002, 10, 443, 0.4449),
    "netscience": (0.9551, 404, 1185, 0.9591),
    "cora": (0.8068, 106, 2602, 0.8170),
    "citeseer": (0.8702, 486, 2841, 0.8899),
    "power": (0.9341, 42, 4899, 0.9344),
    "hep-th": (0.8102, 1416, 6945, 0.8480),
}


def load_graph(name: str) -> tuple[np.ndarray, int]:
    """Edges and number of nodes of a stored graph."""
    with np.load(DATA / f"{name}.npz") as file:
        return file["edges"], int(file["n"])


def random_graph(seed: int, n: int, m: int, weights: str = "none") -> np.ndarray:
    """Edges drawn one by one: with loops, repeated edges and nodes without any, and many ties."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, n, (m, 2))
    if weights == "none":
        return edges.astype(np.int32)
    drawn = rng.integers(0, 9, m).astype(float) if weights == "integers" else rng.random(m)
    return np.column_stack([edges.astype(float), drawn])


def planted(seed: int, k: int, size: int, within: float, between: float) -> np.ndarray:
    """Simple edges of `k` communities, drawn pair by pair."""
    rng = np.random.default_rng(seed)
    n = k * size
    same = np.arange(n) // size
    u, v = np.triu_indices(n, 1)
    drawn = rng.random(len(u)) < np.where(same[u] == same[v], within, between)
    return np.column_stack([u[drawn], v[drawn]]).astype(np.int32)


def whole_reference(edges: np.ndarray, n: int, resolution: float = 1) -> reference.GreedyReference:
    """The exact merges down to one community: below the components, always the two of the smallest strength.

    An edge of weight 0 joins nothing.
    """
    edges = edges[edges[:, 2] > 0] if edges.shape[1] == 3 else edges
    found = reference.greedy(edges, n, resolution)
    strength = reference.tables(edges, n)[1]
    for kept, absorbed in found.merges:
        strength[kept] += strength[absorbed]
    gone = {absorbed for _, absorbed in found.merges}
    heap = [(strength[i], i) for i in range(n) if i not in gone]
    heapq.heapify(heap)
    factor = reference.exact(resolution)
    while len(heap) > 1:
        (d, i), (e, j) = heapq.heappop(heap), heapq.heappop(heap)
        found.merges.append((min(i, j), max(i, j)))
        found.gains.append(-factor * d * e)
        heapq.heappush(heap, (d + e, min(i, j)))
    return found


def cut_of(merges: np.ndarray, n: int, k: int) -> np.ndarray:
    """Labels after the first n - k merges, one merge after the other, numbered by the smallest member."""
    labels = np.arange(n)
    for kept, absorbed in np.asarray(merges)[: n - k].tolist():
        labels[labels == labels[absorbed]] = labels[kept]
    return numbered(labels)


def numbered(labels: np.ndarray) -> np.ndarray:
    """The same communities, numbered in the order of their smallest members."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def connected_communities(edges: np.ndarray, labels: np.ndarray) -> bool:
    """Whether every community hangs together by its own edges; those of weight 0 join nothing."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = edges[edges[:, 2] > 0] if edges.shape[1] == 3 else edges
    u, v = edges[:, 0].astype(int), edges[:, 1].astype(int)
    own = labels[u] == labels[v]
    n = len(labels)
    matrix = coo_array((np.ones(own.sum()), (u[own], v[own])), shape=(n, n))
    parts = connected_components(matrix, directed=False)[1]
    return len(np.unique(parts)) == len(np.unique(labels))
