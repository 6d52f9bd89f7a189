"""Graphs whose edges have a direction, for directed modularity (Leicht and Newman 2008)."""

from __future__ import annotations

from mgclust.algorithms.communities.levels import MAX_ARCS
from mgclust.base.errors import InputError
from mgclust.data import Graph
from mgclust.outside.quoting import shortened

__all__ = ["check_directions"]


def check_directions(graph: Graph) -> None:
    """Reject a graph whose edges have no direction, or too many edges for directed modularity."""
    if graph.undirected:
        raise InputError(
            f"directed=True needs edges with a direction, but {shortened(graph.name, 60)} is undirected; leave "
            "directed out, or give the arcs."
        )
    if graph.shape[0] > MAX_ARCS:
        raise InputError(
            f"directed=True takes at most {MAX_ARCS:,} edges, and {shortened(graph.name, 60)} has {graph.shape[0]:,}; "
            "leave directed out, or sum the weights of repeated edges."
        )
