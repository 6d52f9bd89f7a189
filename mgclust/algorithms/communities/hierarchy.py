"""List of merges that leads from single nodes to given communities, and on to one community.

Within each community, matching (see `matching`) is repeated until one node is left, whatever the gain. Between the
communities, merging is exact and greedy. Within a round, the nodes of a group merge in this order: the two nodes that
chose each other, the lower number first, and then the nodes that followed them, in ascending order. The gain of each
merge is computed exactly from the weights to the earlier nodes of the group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.communities.levels import Level, contract, modularity_of
from mgclust.algorithms.communities.matching import Round, rounds
from mgclust.algorithms.communities.merge_tree import MergeTree
from mgclust.engine.spmd import Context
from mgclust.kernels import load

__all__ = ["greedy_tree", "nested_tree"]

Array = Any
GREEDY_LIMIT = 2**32  # gains are exact below this two_m; local moving allows only half, because it adds two products
DENSE = 64  # with this many neighbours per node, a GPU merges faster than one core of its host (measured: 2 to 11 x)


def greedy_tree(context: Context, level: Level, device: str) -> MergeTree | None:
    """Merge greedily and exactly, on one device.

    Parameters
    ----------
    context : Context
    level : Level
    device : {"auto", "cpu", "cuda"}
        "auto": a GPU if there is one and the graph is dense, else the host.

    Returns
    -------
    MergeTree or None
        None on ranks other than 0.
    """
    start = modularity_of(level, level.kernels.xp.arange(level.n, dtype=np.int32))
    merged = _greedy(context, level, device)
    if merged is None:
        return None
    merges, gains = merged
    tree = MergeTree(level.n, merges, gains, level.gain.two_m, start)
    return tree.join_components(level.kernels.memory.to_host(level.strength), level.gain.resolution)


def nested_tree(context: Context, level: Level, labels: Array, device: str) -> MergeTree | None:
    """Merge nodes to given communities, and continue greedily from there.

    Parameters
    ----------
    context : Context
    level : Level
    labels : int32 array of shape (n,)
        Connected communities, 0 .. K - 1, numbered by their smallest node.
    device : {"auto", "cpu", "cuda"}
        As for `greedy_tree`.

    Returns
    -------
    MergeTree or None
        The first n - K merges lead to the given communities. None on ranks other than 0.
    """
    kernels, n, gain = level.kernels, level.n, level.gain
    start = modularity_of(level, kernels.xp.arange(n, dtype=np.int32))
    strength = kernels.memory.to_host(level.strength)
    names = np.arange(n, dtype=np.int64)  # the smallest node in each group
    merges, gains = [], []
    top, within = level, labels
    for step in rounds(level, labels, salt=0, noise=0.0, any_sign=True):
        kept, absorbed, gained, names = _merges_of(step, names)
        merges.append(np.stack([kept, absorbed], axis=1))
        gains.append(gained)
        top, within = step.after, step.within
        context.progress(1.0 - top.n / n, n_clusters=top.n)
    # The remaining graph has one node per community; sort the nodes in the order of the communities.
    top = contract(top, within, top.n)
    order = np.argsort(kernels.memory.to_host(within))
    merged = _greedy(context, top, device)
    if merged is None:
        return None
    names = names[order]
    merges.append(names[merged[0]])
    gains.append(merged[1])
    kind = np.int64 if gain.exact else np.float64
    tree = MergeTree(
        n, np.concatenate(merges), np.concatenate([each.astype(kind) for each in gains]), gain.two_m, start
    )
    return tree.join_components(strength, gain.resolution)


def _merges_of(step: Round, names: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the merges of a round in their order, their gains, and the names of the groups."""
    level, kernels = step.level, step.level.kernels
    xp = kernels.xp
    node = xp.arange(level.n, dtype=np.int64)
    paired = (step.partner >= 0) & (step.partner[step.partner] == xp.arange(level.n, dtype=np.int32))
    order = xp.where(step.representative == node, node, xp.where(paired, node + level.n, node + 2 * level.n))
    before = level.comm.all_gather(kernels.graph.weights_before(level.rows, step.ids, order))
    ids, order, before = (kernels.memory.to_host(each) for each in (step.ids, order, before))
    strength = kernels.memory.to_host(level.strength)
    turn = np.lexsort((order, ids))
    ids, before, strength, names = ids[turn], before[turn], strength[turn], names[turn]
    first = np.ones(len(turn), bool)
    first[1:] = ids[1:] != ids[:-1]
    sums = np.cumsum(strength) - strength
    earlier = sums - sums[first][np.cumsum(first) - 1]  # strength of the group so far
    # Smallest name so far in each group: a running minimum, shifted so that each group starts below the previous one.
    below = -ids.astype(np.int64) * (int(names.max()) + 1)
    smallest = np.minimum.accumulate(names + below) - below
    if level.gain.exact:
        gained = level.gain.two_m * before - strength * earlier
    else:
        product = strength.astype(np.float64) * earlier.astype(np.float64)
        gained = float(level.gain.two_m) * before.astype(np.float64) - level.gain.resolution * product
    joins = ~first
    so_far = smallest[np.flatnonzero(joins) - 1]
    own = names[joins]
    last = np.append(first[1:], True)
    return np.minimum(so_far, own), np.maximum(so_far, own), gained[joins], smallest[last]


def _greedy(context: Context, level: Level, device: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Run the exact kernel on rank 0, which gets the whole graph."""
    comm, rows = level.comm, level.rows
    lengths = comm.all_gather(level.kernels.xp.diff(rows.starts))
    columns = comm.all_gather(rows.columns)
    weights = level.kernels.xp.ones(rows.entries, np.int32) if rows.weights is None else rows.weights
    weights = comm.all_gather(weights)
    if context.rank != 0:
        comm.barrier(limited=False)
        return None
    to_host = level.kernels.memory.to_host
    starts = np.concatenate([[0], np.cumsum(to_host(lengths))])
    # With this limit, 2m m_ij and d_i d_j fit into 63 bits. Scaled weights have a far larger sum, so their gains are
    # not exact.
    exact = level.gain.resolution == 1.0 and level.gain.two_m < GREEDY_LIMIT
    kind = np.int64 if exact else np.float64
    kernels = load("cuda" if device == "cuda" or (device == "auto" and _gpu_pays(level, len(columns))) else "cpu")

    def progress(done: int) -> None:
        context.progress(done / level.n, n_clusters=level.n - done)

    arrays = [starts, to_host(columns), to_host(weights).astype(kind), to_host(level.strength).astype(kind)]
    merged: tuple[np.ndarray, np.ndarray] = kernels.greedy_merges.greedy_merges(
        *map(kernels.memory.to_device, arrays), resolution=level.gain.resolution, on_progress=progress
    )
    comm.barrier(limited=False)
    return merged


def _gpu_pays(level: Level, entries: int) -> bool:
    """Return whether a GPU is available, is faster than its host for a graph of this density, and has enough memory."""
    if level.kernels.device != "cuda" or not DENSE * level.n <= entries < 2**31:
        return False
    return 100 * (entries + level.n) <= level.kernels.memory.free_memory()
