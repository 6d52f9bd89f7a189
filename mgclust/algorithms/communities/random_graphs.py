"""Random graphs that are made from a graph: with the same degrees, or without some of the edges.

`rewired` exchanges ends of edges: the edges (a, b) and (c, d) become (a, d) and (c, b). So every node keeps its degree,
and no edge becomes a self-loop or equal to another edge (Maslov and Sneppen 2002). Weights stay with the edges, so
nodes of weighted graphs keep their degrees but not their strengths. Self-loops stay. `exchange_ends` does the same as
these lines::

    order the edges at random
    for each of 20 rounds, with a random number r:
        slot i is paired with slot (r - i) mod E
        new edges of a pair: (a, d) and (c, b), or with c and d exchanged          # at random
        the pair is exchanged if no new edge is a self-loop, and no other edge, old or new, has the hash of a new edge

About half of the pairs are exchanged in each round, unless a few nodes have most of the edges. After five rounds, 1% of
the edges of a ring lattice of 25,000 edges were left. All random numbers are hashes of positions in the list of edges,
which is sorted by nodes. So a result is the same on any number of ranks and on CPU and GPU.

Cost. Every rank holds all edges during the exchange, in about 130 bytes per edge, and passes over them 20 times.

References
----------
S. Maslov, K. Sneppen, Specificity and stability in topology of protein networks, Science 296:910-913 (2002).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mgclust.algorithms.communities.levels import Level, spread
from mgclust.base.hashing import GOLDEN, splitmix64
from mgclust.engine.rows import share_of
from mgclust.kernels import Kernels
from mgclust.kernels.graph.adjacency import Adjacency, Gain

__all__ = ["entry_rows", "exchange_ends", "rewired", "thinned", "with_entries"]

Array = Any
ROUNDS = 20
SLOTS = 8  # counters of hashes per edge; with fewer counters, more pairs are left unchanged


def rewired(level: Level, seed: int) -> Level:
    """Return a random graph with the degrees of a graph.

    Parameters
    ----------
    level : Level
        The graph, with the strengths and the gain of modularity at resolution 1.
    seed : int
        Determines the random numbers.

    Returns
    -------
    Level
    """
    kernels, comm = level.kernels, level.comm
    row, column, weights = entry_rows(level), level.rows.columns, level.rows.weights
    upper = row < column
    u, v = comm.all_gather(row[upper]), comm.all_gather(column[upper])
    weights = None if weights is None else comm.all_gather(weights[upper])
    # The columns of a row have no fixed order, and the exchange depends on the order of the edges.
    order = kernels.xp.argsort((u.astype(np.int64) << 32) | v)
    u, v, weights = u[order], v[order], None if weights is None else weights[order]
    old = _sums(kernels, u, v, weights, level.n)
    u, v, source = exchange_ends(kernels, u, v, seed)
    weights = None if weights is None else weights[source]
    strength = level.strength - old + _sums(kernels, u, v, weights, level.n)
    begin, stop = share_of(len(u), comm.rank, comm.size)
    u, v = u[begin:stop], v[begin:stop]
    weights = None if weights is None else weights[begin:stop]
    rows = kernels.graph.rows_of_edges([(u, v, weights)], count=level.n, summed=comm.size == 1)
    return spread(kernels, comm, rows, strength, level.gain, level.shared)


def thinned(level: Level, seed: int, removed: float) -> Level:
    """Return a graph without a random part of its edges.

    Parameters
    ----------
    level : Level
        See `rewired`.
    seed : int
        Determines the random numbers.
    removed : float
        Probability with which an edge is removed.

    Returns
    -------
    Level
        Self-loops stay.
    """
    row, rows = entry_rows(level), level.rows
    kept = _edge_hash(level.kernels.xp, row, rows.columns, _mixed(seed)) >= np.uint64(int(removed * 2**64))
    gone = row[~kept]
    weights = None if rows.weights is None else rows.weights[~kept].astype(np.int64)
    lost = level.kernels.graph.sum_by_id(
        level.kernels.xp.ones(len(gone), np.int64) if weights is None else weights, gone, level.n
    )
    level.comm.queue_reduce(lost, "sum")
    return with_entries(level, kept, rows.weights, level.strength - lost)


def with_entries(level: Level, kept: Array, weights: Array | None, strength: Array) -> Level:
    """Return a graph with some of the entries of a graph.

    Parameters
    ----------
    level : Level
    kept : bool array of shape (entries,)
        Entries of this rank that stay; both directions of an edge have the same value.
    weights : int array of shape (entries,), optional
        Weights of all entries of this rank; None: all are 1.
    strength : int64 array of shape (n,)
        Strengths of the new graph.

    Returns
    -------
    Level
        Its gain has resolution 1.
    """
    xp, rows = level.kernels.xp, level.rows
    sums = xp.zeros(len(kept) + 1, np.int64)
    sums[1:] = xp.cumsum(kept, dtype=np.int64)
    weights = None if weights is None else weights[kept]
    thin = Adjacency(rows.first, sums[rows.starts], rows.columns[kept], weights)
    entries = int(level.comm.all_reduce(np.array([thin.entries], np.int64))[0])
    gain = Gain(int(strength.sum()), 1.0, level.gain.exact)
    return replace(level, entries=entries, rows=thin, strength=strength, gain=gain)


def entry_rows(level: Level, start: int = 0, stop: int | None = None) -> Array:
    """Return the node of each entry of this rank's rows from `start` to `stop`, int32; by default, of all entries."""
    xp, rows = level.kernels.xp, level.rows
    position = xp.arange(start, rows.entries if stop is None else min(stop, rows.entries), dtype=np.int64)
    return (xp.searchsorted(rows.starts, position, side="right") - 1 + rows.first).astype(np.int32)


def exchange_ends(kernels: Kernels, u: Array, v: Array, seed: int, rounds: int = ROUNDS) -> tuple[Array, Array, Array]:
    """Exchange ends of the edges of a graph.

    Parameters
    ----------
    kernels : Kernels
    u, v : int32 arrays of shape (edges,)
        Ends of each edge; no self-loops, and no edge twice.
    seed : int
        Determines the random numbers.
    rounds : int

    Returns
    -------
    u, v : int32 arrays of shape (edges,)
        New edges.
    source : int64 array of shape (edges,)
        Number of the given edge whose weight a new edge has.
    """
    xp, count = kernels.xp, len(u)
    salt, slots = _mixed(seed), min(SLOTS * count, 2**31 - 1)
    position = xp.arange(count, dtype=np.int64)
    source = xp.argsort(_hash(position.astype(np.uint64), salt))
    u, v = u[source], v[source]
    if count < 2:
        return u, v, source
    for step in range(rounds):
        salt = _mixed(salt + step)
        partner = (salt % count - position) % count
        first = position[position < partner]
        second = partner[position < partner]
        flip = _hash(first.astype(np.uint64), salt) >= np.uint64(2**63)
        a, b = u[first], v[first]
        c, d = xp.where(flip, v[second], u[second]), xp.where(flip, u[second], v[second])
        ends = (u, v), (a, d), (c, b)
        old, one, two = ((_edge_hash(xp, *each, salt) % np.uint64(slots)).astype(np.int32) for each in ends)
        every = xp.concatenate([old, one, two])
        used = kernels.graph.sum_by_id(xp.ones(len(every), np.int64), every, slots)
        free = (a != d) & (c != b) & (used[one] == 1) & (used[two] == 1)
        first, second = first[free], second[free]
        v[first], u[second], v[second] = d[free], c[free], b[free]
    return u, v, source


def _sums(kernels: Kernels, u: Array, v: Array, weights: Array | None, n: int) -> Array:
    """Return the sum of each node's weights, int64 of shape (n,)."""
    wide = kernels.xp.ones(len(u), np.int64) if weights is None else weights.astype(np.int64)
    return kernels.graph.sum_by_id(wide, u, n) + kernels.graph.sum_by_id(wide, v, n)


def _mixed(number: int) -> int:
    """Return a random number from 0 to 2^63 - 1."""
    with np.errstate(over="ignore"):
        return int(splitmix64(np.uint64((number + 1) * GOLDEN % 2**64)) >> np.uint64(1))


def _hash(values: Array, salt: int) -> Array:
    """Return a random uint64 number for each uint64 number, one to one."""
    return splitmix64(values * np.uint64(GOLDEN) + np.uint64(salt))


def _edge_hash(xp: Any, u: Array, v: Array, salt: int) -> Array:
    """Return a random uint64 number for each edge; the order of its ends does not matter."""
    low, high = xp.minimum(u, v).astype(np.uint64), xp.maximum(u, v).astype(np.uint64)
    return _hash((low << np.uint64(32)) | high, salt)
