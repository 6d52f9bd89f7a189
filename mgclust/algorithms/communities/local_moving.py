"""Local moving: nodes move to the neighbouring community that raises the modularity most.

The nodes are divided into classes, which move one after the other. All nodes of a class see the same state and move at
once. A node's class is a hash of its number that changes from sweep to sweep, so two neighbours seldom swap
communities. If nodes have many neighbours, there are more classes: nodes that move together do not take each other's
moves into account, and if too many nodes move together, sweeps lower the modularity as often as they raise it. A node
is checked again if a neighbour has moved and is not in the node's community. `Gain` compares gains, and ties go to
the lower label, so the result depends only on the graph. Except for classes, a sweep does the same as these lines::

    for node in active nodes:
        label[node] = the label among its neighbours and its own with the largest modularity; ties: the lowest label
    active nodes = neighbours of moved nodes that are not in the new community of the moved node

Cost per sweep: the weights of the active nodes are read about once; there is one exchange of n int32 for each class,
and one of n bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.communities.levels import Level, contract
from mgclust.base.hashing import GOLDEN

__all__ = ["compact", "local_moving", "move_nodes"]

Array = Any
MAX_SWEEPS = 30
NEIGHBORS = 32  # largest mean number of a node's neighbours in one class, unless there would be more than MAX_CLASSES
MAX_CLASSES = 32
MIN_RISE = int(2e-5 * 2**40)  # smallest rise of modularity after which another sweep follows, in units of 2^-40


def move_nodes(level: Level, labels: Array, salt: int, classes: int) -> Array:
    """Move nodes until a sweep raises the modularity by less than 2e-5.

    Parameters
    ----------
    level : Level
    labels : int32 array of shape (n,)
        Community of each node, any numbers below n.
    salt : int
        Determines the classes.
    classes : int
        Minimum number of classes. With fewer classes, a sweep takes fewer exchanges, but more nodes move at once.

    Returns
    -------
    int32 array of shape (n,)
        New labels, below n.
    """
    kernels, comm, n = level.kernels, level.comm, level.n
    xp = kernels.xp
    classes = max(classes, min(MAX_CLASSES, 1 + level.entries // (NEIGHBORS * max(1, n))))
    labels = labels.copy()
    totals = kernels.graph.sum_by_id(level.strength, labels, n)
    free = None if level.fixed is None else 1 - level.fixed
    active = xp.ones(n, np.uint8) if free is None else free.copy()
    proposal = xp.empty(n, np.int32)
    for sweep in range(MAX_SWEEPS):
        activated, tally = xp.zeros(n, np.uint8), xp.zeros(2, np.int64)
        state = level.rows, level.strength, labels, totals, active
        of_sweep: dict[str, Any] = {
            "gain": level.gain,
            "classes": classes,
            "salt": (salt * MAX_SWEEPS + sweep + 1) * GOLDEN % 2**64,
            "tally": tally,
        }
        alone = comm.size == 1 and kernels.graph.sweep_alone(*state, activated=activated, **of_sweep)
        for turn in () if alone else range(classes):
            kernels.graph.propose_moves(*state, turn=turn, out=proposal, **of_sweep)
            comm.queue_gather(proposal, level.bounds)
            kernels.graph.apply_moves(proposal, level.strength, labels, totals)
            kernels.graph.activate_neighbors(level.rows, proposal, labels, activated)
        comm.queue_reduce(tally, "sum")
        comm.queue_reduce(activated, "max")
        moved, rise = kernels.memory.to_host(tally).tolist()
        if not moved or rise < MIN_RISE:
            break
        active = activated if free is None else activated & free
    return labels


def local_moving(level: Level, labels: Array, salt: int, classes: int) -> tuple[Array, Level]:
    """Move nodes, then whole communities, then communities of communities, until no more of them join (Louvain).

    Parameters
    ----------
    level : Level
    labels : int32 array of shape (n,)
        Labels at the start.
    salt, classes : int
        See `move_nodes`.

    Returns
    -------
    labels : int32 array of shape (n,)
        Labels below n.
    groups : Level
        The contracted graph, in which each community is one node.
    """
    steps = []
    while True:
        labels = move_nodes(level, labels, salt, classes)
        ids, count = compact(level, labels)
        steps.append(ids)
        if count == level.n:
            break
        level = contract(level, ids, count)
        labels = level.kernels.xp.arange(count, dtype=np.int32)
    labels = steps.pop()
    while steps:
        labels = labels[steps.pop()]
    return labels, level


def compact(level: Level, labels: Array) -> tuple[Array, int]:
    """Number the communities without gaps, in the order of their labels.

    Returns
    -------
    ids : int32 array of shape (n,)
    count : int
    """
    xp = level.kernels.xp
    there = xp.zeros(level.n, np.int32)
    there[labels] = 1
    ranks = xp.cumsum(there, dtype=np.int32)
    return ranks[labels] - 1, int(ranks[-1])
