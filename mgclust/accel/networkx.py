"""Calls of networkx: community detection."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mgclust.accel.calls import AccelSettings, Call, Unsupported
from mgclust.accel.communities import communities

__all__ = ["CALLS"]

NO_THRESHOLD = 0.0000001  # default of networkx: smaller gains count as 0


def greedy_modularity_communities(
    settings: AccelSettings,
    G: Any,
    weight: str | None = None,
    resolution: float = 1,
    cutoff: int = 1,
    best_n: int | None = None,
) -> list[Any]:
    """Merge the pair of communities with the largest gain until the gain is negative.

    If several pairs have the same gain, mgclust and networkx may merge different pairs.
    """
    from mgclust.algorithms import FastNewman

    graph = _opened(G, weight)
    n = len(G)
    most = n if best_n is None else best_n
    if not (isinstance(cutoff, int) and isinstance(most, int) and 1 <= cutoff <= most <= n and most > 1):
        raise Unsupported(
            f"cutoff={cutoff!r}, best_n={best_n!r}: mgclust needs integers with 1 <= cutoff <= best_n <= {n} and "
            "best_n > 1"
        )
    model = FastNewman(resolution=resolution, **settings.place)
    result = model.fit_dataset(graph, provenance=False)
    components = result.diagnostics["n_components"]
    if most < components:
        raise Unsupported(
            f"best_n={best_n} is below {components}, the number of connected components, which no edge connects"
        )
    k = max(cutoff, min(most, model.n_clusters_))
    return sorted(_communities(G, model.cut(k), frozenset), key=len, reverse=True)


def louvain_communities(
    settings: AccelSettings,
    G: Any,
    weight: str | None = "weight",
    resolution: float = 1,
    threshold: float = NO_THRESHOLD,
    max_level: int | None = None,
    seed: Any = None,
) -> list[Any]:
    """Move nodes between communities until no move raises the modularity (Louvain)."""
    if threshold != NO_THRESHOLD:
        raise Unsupported(f"threshold={threshold!r}: mgclust does not have this argument")
    return leiden_communities(settings, G, weight, resolution, max_level, seed)


def leiden_communities(
    settings: AccelSettings,
    G: Any,
    weight: str | None = "weight",
    resolution: float = 1,
    max_level: int | None = None,
    seed: Any = None,
) -> list[Any]:
    """Move nodes as Louvain does and refine each level, so that communities are connected (Leiden)."""
    if max_level is not None:
        raise Unsupported(f"max_level={max_level!r}: mgclust continues while the modularity grows")
    if seed is not None and not (settings.seeded and isinstance(seed, int)):
        given = "an integer" if isinstance(seed, int) else f"a {type(seed).__name__}"
        raise Unsupported(
            f"seed is {given}, so networkx computes the communities; with --seeded, mgclust accepts integer seeds"
        )
    graph = _opened(G, weight, directions=True)
    model = communities(settings, graph, resolution, seed, directed=graph.directed)
    return _communities(G, model.labels_, set)


def _opened(G: Any, weight: str | None, *, directions: bool = False) -> Any:
    """Open the graph with mgclust; reject graphs without edges, and directed graphs unless directions are kept."""
    from mgclust.data import open_graph

    if not isinstance(G, sys.modules["networkx"].Graph):
        raise Unsupported(f"the graph has type {type(G).__name__}, which is not a graph of networkx")
    if G.is_directed() and not directions:
        raise Unsupported("the graph is directed, and mgclust needs an undirected graph")
    if not G.number_of_edges():
        raise Unsupported("the graph has no edges, and mgclust needs at least one")
    return open_graph(G, weight=weight)


def _communities(G: Any, labels: np.ndarray, kind: type) -> list[Any]:
    """Return sets of nodes, ordered by their first nodes."""
    groups: list[list[Any]] = [[] for _ in range(int(labels.max()) + 1)]
    for node, label in zip(G, labels.tolist(), strict=True):
        groups[label].append(node)
    return [kind(group) for group in groups]


CALLS = (
    Call(
        home="networkx.algorithms.community.modularity_max",
        path="greedy_modularity_communities",
        shown="networkx.community.greedy_modularity_communities",
        ours=greedy_modularity_communities,
    ),
    Call(
        home="networkx.algorithms.community.louvain",
        path="louvain_communities",
        shown="networkx.community.louvain_communities",
        ours=louvain_communities,
        another=True,
    ),
    Call(
        home="networkx.algorithms.community.leiden",
        path="leiden_communities",
        shown="networkx.community.leiden_communities",
        ours=leiden_communities,
        another=True,
    ),
)
