"""Consensus of several partitions (Lancichinetti and Fortunato 2012), on the edges of the graph (Tandon et al. 2019).

::

    weights = the graph's own weights
    repeat at most 10 times:
        find k partitions of the graph with these weights, each with another seed
        weight of an edge = number of partitions in which both ends are in one community; at least k / 2, else 0
        stop if every weight was 0 or k
    communities = the connected parts of the first partition
    nodes that are alone join the neighbouring community that raises the objective most

The edges, not the pairs of nodes, have weights, so memory does not grow with the square of the sizes of communities.
All weights are integers, so the result is the same on any number of ranks.

References
----------
A. Lancichinetti, S. Fortunato, Consensus clustering in complex networks, Scientific Reports 2:336 (2012);
A. Tandon et al., Fast consensus clustering in complex networks, Phys. Rev. E 99:042301 (2019).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mgclust.algorithms.communities.continuation import connected_parts
from mgclust.algorithms.communities.levels import EXACT_LIMIT, Level, at_resolution, modularity_of
from mgclust.algorithms.communities.local_moving import move_nodes
from mgclust.algorithms.communities.random_graphs import entry_rows, with_entries
from mgclust.kernels.masks import count_true

__all__ = ["consensus_of"]

Array = Any
MAX_ROUNDS = 10


def consensus_of(
    level: Level, find: Callable[[Level, int], Array], partitions: int, seed: int
) -> tuple[Array, list[dict[str, Any]]]:
    """Find the consensus of several partitions, for modularity.

    Parameters
    ----------
    level : Level
        The graph.
    find : callable
        ``find(level, seed)`` returns connected communities, int32 labels of shape (n,).
    partitions : int
        Number of partitions per round.
    seed : int

    Returns
    -------
    labels : int32 array of shape (n,)
        Connected communities, numbered by their smallest node.
    report : list of dict
        State of each round: ``cycle`` (its number), ``n_clusters`` (median of its partitions), ``modularity`` (of the
        first partition) and ``unsure`` (fraction of the edges on which the partitions do not agree).
    """
    kernels, xp, rows = level.kernels, level.kernels.xp, level.rows
    row, graph = entry_rows(level), level
    report: list[dict[str, Any]] = []
    for number in range(MAX_ROUNDS):
        found = [find(graph, seed + 1000 * number + each) for each in range(partitions)]
        together = xp.zeros(rows.entries, np.int64)
        for labels in found:
            together += labels[row] == labels[rows.columns]
        unsure = count_true((together > 0) & (together < partitions))
        unsure = int(level.comm.all_reduce(np.array([unsure], np.int64))[0])
        communities = sorted(int(labels.max()) + 1 for labels in found)[partitions // 2]
        score = modularity_of(level, found[0])
        report.append(
            {
                "cycle": number + 1,
                "n_clusters": communities,
                "unsure": unsure / max(level.entries, 1),
                "modularity": score,
            }
        )
        if not unsure:
            break
        together[2 * together < partitions] = 0
        strength = kernels.graph.sum_by_id(together, row, level.n)
        level.comm.queue_reduce(strength, "sum")
        exact = int(strength.sum()) < EXACT_LIMIT
        graph = with_entries(level, together > 0, together.astype(np.int32 if exact else np.int64), strength)
        graph = replace(graph, gain=replace(graph.gain, exact=exact))
        graph = at_resolution(graph, level.gain.resolution)
    labels = connected_parts(level, found[0])
    return _with_lone_nodes(level, labels, seed), report


def _with_lone_nodes(level: Level, labels: Array, seed: int) -> Array:
    """Move nodes that are alone to neighbouring communities, if that raises the objective; others stay."""
    kernels, xp = level.kernels, level.kernels.xp
    sizes = kernels.graph.sum_by_id(xp.ones(level.n, np.int64), labels, level.n)
    moved = move_nodes(replace(level, fixed=(sizes[labels] > 1).astype(np.uint8)), labels, seed, 2)
    return connected_parts(level, moved)
