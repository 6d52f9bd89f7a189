"""Calls of igraph: community detection in undirected graphs."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mgclust.accel.calls import AccelSettings, Call, Unsupported
from mgclust.accel.communities import communities

__all__ = ["CALLS"]


def community_fastgreedy(settings: AccelSettings, graph: Any, weights: Any = None) -> Any:
    """Merge the pair of communities with the largest gain until only the connected components are left.

    If several pairs have the same gain, mgclust and igraph may merge different pairs.
    """
    from mgclust.algorithms import FastNewman

    if graph.has_multiple():
        raise Unsupported("the graph has several edges between two nodes, which igraph rejects")
    model = FastNewman(**settings.place)
    result = model.fit_dataset(_opened(graph, weights), provenance=False)
    merges = graph.vcount() - result.diagnostics["n_components"]
    joins = model.linkage()[:merges, :2].astype(int).tolist()
    # If several numbers of communities have the largest modularity, igraph takes the smallest number.
    history = model.modularity_history_[: merges + 1]
    count = graph.vcount() - (len(history) - 1 - int(np.argmax(history[::-1])))
    return sys.modules["igraph"].VertexDendrogram(
        graph, [tuple(pair) for pair in joins], count, modularity_params={"weights": weights}
    )


def community_multilevel(
    settings: AccelSettings, graph: Any, weights: Any = None, return_levels: bool = False, resolution: float = 1
) -> Any:
    """Move nodes between communities until no move raises the modularity (Louvain)."""
    if return_levels:
        raise Unsupported("return_levels=True: mgclust returns only the last level")
    model = communities(settings, _opened(graph, weights), resolution)
    return sys.modules["igraph"].VertexClustering(
        graph, model.labels_.tolist(), modularity_params={"weights": weights, "resolution": resolution}
    )


def community_leiden(
    settings: AccelSettings,
    graph: Any,
    objective_function: str = "CPM",
    weights: Any = None,
    resolution: float = 1.0,
    beta: float = 0.01,
    initial_membership: Any = None,
    n_iterations: int = 2,
    node_weights: Any = None,
    node_in_weights: Any = None,
) -> Any:
    """Move nodes as Louvain does and refine each level, so that communities are connected (Leiden)."""
    objective = objective_function.lower()  # as igraph does
    if objective not in ("modularity", "cpm"):
        raise Unsupported(f"objective_function={objective_function!r}: mgclust maximises modularity or CPM")
    given = {
        "initial_membership": initial_membership, "node_weights": node_weights, "node_in_weights": node_in_weights
    }  # fmt: skip
    for name, value in given.items():
        if value is not None:
            raise Unsupported(f"{name} is given, but mgclust does not have this argument")
    model = communities(settings, _opened(graph, weights), resolution, objective=objective)
    quality = model.quality_
    if objective == "cpm":  # igraph's scale: pairs have both orders, and the pairs of equal nodes count
        total = graph.ecount() if weights is None else float(np.sum(_numbers(graph, weights)))
        quality = (2 * quality - resolution * graph.vcount()) / (2 * total) if total else 0.0
    about = {"resolution": resolution} | ({} if weights is None else {"weights": weights})
    return sys.modules["igraph"].VertexClustering(
        graph, model.labels_.tolist(), params={"quality": quality}, modularity_params=about
    )


def _opened(graph: Any, weights: Any) -> Any:
    """Open the graph with mgclust; `weights` is None, the name of an edge attribute, or one number per edge."""
    from mgclust.data import open_graph

    if graph.is_directed():
        raise Unsupported("the graph is directed, and mgclust needs an undirected graph")
    if not graph.ecount():
        raise Unsupported("the graph has no edges, and mgclust needs at least one")
    edges = np.array(graph.get_edgelist(), np.int32).reshape(-1, 2)
    source = (edges, graph.vcount()) if weights is None else (edges, _numbers(graph, weights), graph.vcount())
    return open_graph(source)


def _numbers(graph: Any, weights: Any) -> np.ndarray:
    return np.array(graph.es[weights] if isinstance(weights, str) else weights, np.float64)


CALLS = (
    Call(
        home="igraph",
        path="Graph.community_fastgreedy",
        shown="igraph.Graph.community_fastgreedy",
        ours=community_fastgreedy,
    ),
    Call(
        home="igraph",
        path="Graph.community_multilevel",
        shown="igraph.Graph.community_multilevel",
        ours=community_multilevel,
        another=True,
    ),
    Call(
        home="igraph",
        path="Graph.community_leiden",
        shown="igraph.Graph.community_leiden",
        ours=community_leiden,
        another=True,
    ),
)
