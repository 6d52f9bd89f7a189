"""Known communities at the start of a fit, and ids that stay the same.

Local moving begins with the connected parts of the known communities, because edges may have been removed since these
communities were found. Nodes without a community begin alone. If nodes are fixed, the parts with fixed nodes of one
community stay together, even if no path inside the community connects them.

After the fit, communities get ids by these rules::

    each initial community goes to the new community that holds most of its nodes    # ties: the smallest node
    of the initial communities that went to a new community, the one with the most nodes there gives its id
                                                                                     # ties: the smallest id
    a new community with fixed nodes has the id of their initial community in any case
    other new communities get the smallest numbers that no initial community has, in the order of their smallest nodes
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.communities.levels import Level
from mgclust.kernels.masks import all_true

__all__ = ["KnownCommunities", "connected_parts", "start_labels", "with_initial_ids"]

Array = Any


class KnownCommunities(NamedTuple):
    """Known communities."""

    labels: Array  # int32 array of shape (n,): id of each node's community; -1 for nodes without one
    fixed: Array | None  # ascending int32 array of nodes that keep their community; None: no such nodes


def connected_parts(level: Level, labels: Array) -> Array:
    """Divide communities into their connected parts; parts with fixed nodes of one community stay together.

    Parameters
    ----------
    level : Level
    labels : int32 array of shape (n,)
        Community of each node.

    Returns
    -------
    int32 array of shape (n,)
        The parts, numbered by their smallest node.
    """
    return level.kernels.graph.relabel(_roots(level, labels))[0]


def start_labels(level: Level, start: KnownCommunities) -> Array:
    """Return labels with which local moving begins: the smallest node of each node's part.

    A community must have a label that no node outside of it can take when it begins a community of its own.

    Parameters
    ----------
    level : Level
    start : KnownCommunities

    Returns
    -------
    int32 array of shape (n,)
    """
    xp = level.kernels.xp
    alone = -1 - xp.arange(level.n, dtype=np.int32)
    return _roots(level, xp.where(start.labels >= 0, start.labels, alone))


def with_initial_ids(level: Level, labels: Array, start: KnownCommunities) -> Array:
    """Return the labels of a fit with the ids of the initial communities, by the rules of this module.

    Parameters
    ----------
    level : Level
    labels : int32 array of shape (n,)
        Communities of the fit, numbered by their smallest node.
    start : KnownCommunities

    Returns
    -------
    int32 array of shape (n,)
        May have gaps; new communities have the smallest numbers that are not in ``start.labels``.
    """
    xp, memory = level.kernels.xp, level.kernels.memory
    count = int(labels.max()) + 1
    pairs = start.labels.astype(np.int64) * count + labels  # below 0 for nodes without an initial community
    keys = xp.sort(pairs[start.labels >= 0])
    ends = xp.flatnonzero(keys[1:] != keys[:-1])
    ends = np.append(memory.to_host(ends), np.arange(len(keys) - 1, len(keys))[: len(keys)])
    found = memory.to_host(keys[memory.to_device(ends)])
    common = np.diff(ends, prepend=-1)
    if start.fixed is not None:
        common[np.isin(found, memory.to_host(pairs[start.fixed]))] += level.n
    initial, new = np.divmod(found, count)
    best = _first_of_each(initial, (new, -common, initial))
    initial, new, common = initial[best], new[best], common[best]
    named = _first_of_each(new, (initial, -common, new))
    ids = np.full(count, -1, np.int32)
    ids[new[named]] = initial[named]
    others = np.flatnonzero(ids < 0)
    ids[others] = np.setdiff1d(np.arange(len(others) + len(initial)), initial)[: len(others)]
    return memory.to_device(ids)[labels]


def _first_of_each(group: np.ndarray, order: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the index of the first element of each group, in the order of `numpy.lexsort`; the last key is `group`."""
    index = np.lexsort(order)
    return index[np.append(True, np.diff(group[index]) != 0)[: len(index)]]


def _roots(level: Level, labels: Array) -> Array:
    """Return the smallest node of each node's connected part; parts with fixed nodes of one community are one part."""
    xp, memory = level.kernels.xp, level.kernels.memory
    roots = xp.arange(level.n, dtype=np.int32)
    while True:
        before = roots.copy()
        # If one of several ranks has all rows, it knows that it is done, but the other ranks do not.
        if level.kernels.graph.propagate_roots(level.rows, labels, roots) and level.comm.size == 1:
            break
        level.comm.queue_reduce(roots, "min")
        roots = roots[roots]
        if all_true(roots == before):
            break
    if level.fixed is None:
        return roots
    nodes = xp.flatnonzero(level.fixed)
    part, community = memory.to_host(roots[nodes]), memory.to_host(labels[nodes])
    first = _first_of_each(community, (part, community))
    smallest = np.zeros(int(community.max(initial=0)) + 1, np.int32)
    smallest[community[first]] = part[first]
    joined = xp.arange(level.n, dtype=np.int32)
    joined[memory.to_device(part)] = memory.to_device(smallest[community])
    return joined[roots]
