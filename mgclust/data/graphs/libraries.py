"""Graphs of networkx and igraph, which are recognised without importing these packages."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.graphs.arrays import ArrayGraph
from mgclust.data.graphs.base import Graph, as_weights, reject_empty
from mgclust.data.graphs.node_names import names_of
from mgclust.outside.quoting import shortened

__all__ = ["DEFAULT_WEIGHT", "open_igraph", "open_networkx"]

DEFAULT_WEIGHT = "weight"
_FEW_EDGES = 1000  # edges whose attributes are checked for numbers that could be weights


def open_networkx(graph: Any, weight: str | None, name: str = "") -> Graph:
    """Open a networkx graph. Node number i is the i-th of ``graph.nodes``; weights are an edge attribute."""
    nodes = list(graph.nodes)
    name = name or f"networkx {type(graph).__name__}"
    reject_empty(len(nodes), name)
    number = {node: i for i, node in enumerate(nodes)}
    edges = list(graph.edges(data=True))
    ends = (number[node] for u, v, _ in edges for node in (u, v))
    pairs = np.fromiter(ends, np.int32, 2 * len(edges)).reshape(-1, 2)
    samples = [(str(key), value) for _, _, data in edges[:_FEW_EDGES] for key, value in data.items()]
    weights = _Weights([data.get(weight) for _, _, data in edges], weight, samples, edges, name)
    opened = ArrayGraph(pairs, weights.array, len(nodes), name, names=names_of(nodes), **_direction(graph))
    weights.mention(opened)
    return opened


def open_igraph(graph: Any, weight: str | None) -> Graph:
    """Open an igraph graph. Names are the vertex attribute ``name``; weights are an edge attribute."""
    name = "igraph Graph"
    reject_empty(graph.vcount(), name)
    pairs = np.array(graph.get_edgelist(), np.int32).reshape(-1, 2)
    attributes = graph.es.attributes()
    samples = [(key, value) for key in attributes for value in graph.es[:_FEW_EDGES][key]]
    values = graph.es[weight] if weight in attributes else [None] * len(pairs)
    weights = _Weights(values, weight, samples, pairs, name)
    names = names_of(graph.vs["name"]) if "name" in graph.vs.attributes() else None
    opened = ArrayGraph(pairs, weights.array, graph.vcount(), name, names=names, **_direction(graph))
    weights.mention(opened)
    return opened


def _direction(graph: Any) -> dict[str, bool]:
    directed = bool(graph.is_directed())
    return {"directed": directed, "undirected": not directed}


class _Weights:
    """Weights of edges from an attribute: 1 for an edge without the attribute; no weights if no edge has it.

    Parameters
    ----------
    values : list
        Value of the attribute for each edge; None for an edge without the attribute.
    weight : str or None
        Name of the attribute; None if the weights are not used.
    samples : list of (str, object)
        Names and values of attributes of some edges, one of which the user may have meant.
    edges : iterable
        The edges; each begins with its two nodes.
    name : str
        Name of the graph in messages.
    """

    def __init__(
        self, values: list[Any], weight: str | None, samples: list[tuple[str, Any]], edges: Iterable[Any], name: str
    ) -> None:
        self.array: np.ndarray | None = None
        self._weight, self._missing, self._unused = weight, 0, list[str]()
        if weight is None:
            return
        missing = sum(value is None for value in values)
        if missing < len(values):
            given = [1.0 if value is None else value for value in values]
            self.array = as_weights(given, edges, name, "open_graph(graph, weight=None)")
            self._missing = missing
            return
        numeric = {key for key, value in samples if isinstance(value, numbers.Real) and not isinstance(value, bool)}
        if weight != DEFAULT_WEIGHT and values:
            listed = ", ".join(map(repr, sorted(numeric)))
            there = shortened(f"attributes that are numbers: {listed}" if numeric else "no attribute is a number")
            raise InputError(f"weight={shortened(weight)!r} is not an attribute of the edges of {name}; {there}.")
        self._unused = sorted(numeric)

    def mention(self, graph: Graph) -> None:
        """Add warnings to the graph, about edges without a weight or about attributes that the user may have meant."""
        if self._missing:
            graph.mention_missing(str(self._weight), self._missing)
        if self._unused:
            first = shortened(self._unused[0])
            remedy = f"open_graph(graph, weight={first!r}) uses it as weights, weight=None uses none"
            graph.mention(self._unused, remedy)
