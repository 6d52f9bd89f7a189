"""A graph spread over the ranks, from its edges down to ever coarser graphs of communities.

Every rank owns consecutive nodes and their adjacency rows. Vectors with one number per node are on every rank. Each
level is contracted from the previous level: the nodes of a group become one node, and the weights between two groups
are summed to one weight. Entries are summed only once, by the rank that owns the group: the other ranks send the rows
of the group's nodes to this rank without summing them, but leave out entries within the group. If one group has more
than one rank's equal part of the entries, the owner of the group would receive too many entries. Then all ranks sum
their entries before they send them.

Weights are always integers, so that sums do not depend on the order. Integer weights stay unchanged if twice their
total is below 2^51. Other weights are multiplied by the power of two with which twice the total just fits into 51 bits,
and rounded; positive weights stay positive. Gains are exact (int64) with integer weights and resolution 1, if twice the
total is below 2^31. Otherwise gains are float64, computed from exact sums with each operation rounded.

With directions, rows are the same: the weight between two nodes is the sum of both arcs. Only strengths differ, see
`Gain`. The total of all weights is then below 2^31; other weights are rounded to 30 instead of 50 bits of their total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.engine.partition import Partition
from mgclust.engine.spmd import Context
from mgclust.engine.transport.comm import Comm, SoloComm
from mgclust.kernels import Kernels
from mgclust.kernels.graph.adjacency import Adjacency, Gain

__all__ = [
    "MAX_RESOLUTION",
    "Level",
    "WeightScale",
    "at_resolution",
    "contract",
    "modularity_of",
    "read_level",
    "spread",
]

Array = Any
EXACT_LIMIT = 2**31  # gains are exact if two_m is below this
MAX_RESOLUTION = 1e6  # far above values at which nodes share communities, and far below values at which gains overflow
WIDE_BITS, DIRECTED_BITS = 51, 32  # twice the total of integer weights is below this power of two
MAX_ARCS = 1 << 30  # with this number of directed edges, scaled weights are still below 2^31 in total
SHARED_ENTRIES = 1 << 20  # up to this size, each rank has the whole graph and does all the work, so no rank waits


@dataclass
class Level:
    """A graph; each rank has some of its rows, or all rows if the graph is small."""

    kernels: Kernels
    comm: Comm  # the ranks that share the rows; a `SoloComm` if every rank has all rows
    n: int  # number of nodes
    entries: int  # number of neighbours of all nodes, which is twice the number of edges
    rows: Adjacency  # rows of this rank's nodes, without self-loops
    strength: Array  # int64 array of shape (n,): sum of each node's weights, self-loops count twice; see `Gain`
    gain: Gain
    shared: int = SHARED_ENTRIES  # every rank has all rows of a coarser graph with at most this many entries
    bounds: Sequence[int] = ()  # first node of each rank that shares the rows, and n
    fixed: Array | None = None  # uint8 array of shape (n,): 1 for nodes that never move; None: there are none


@dataclass(frozen=True)
class WeightScale:
    """Scale by which weights became integers: they were multiplied by ``2**shift``, and rounded."""

    shift: int = 0
    rounding: float = 0.0  # largest change of a weight, as a fraction of the mean weight; 0 for integers


def read_level(
    context: Context, n: int, shared: int = SHARED_ENTRIES, *, directed: bool = False
) -> tuple[Level, WeightScale]:
    """Read the edges, which are this rank's rows, and send them to the ranks that own their nodes; resolution 1.

    Parameters
    ----------
    context : Context
        Its rows are (u, v) in int32 or (u, v, weight) in float64. Their memory is freed.
    n : int
        Number of nodes.
    shared : int
        See `Level`.
    directed : bool
        Whether edges have a direction, from u to v. There are at most ``MAX_ARCS`` then.
    """
    xp, kernels, comm = context.kernels.xp, context.kernels, context.comm
    scale, integers = _weight_scale(context, directed)
    pieces: list[tuple[Array, Array, Array | None]] = []
    for chunk in context.rows.chunks():
        u, v = (chunk.x[:, column].astype(np.int32) for column in (0, 1))
        weight = None if scale is None else _integers(xp, chunk.x[:, 2], scale)
        if weight is not None and len(weight):
            kept = weight > 0  # an edge of weight 0 does not connect its nodes
            u, v, weight = u[kept], v[kept], weight[kept]
        pieces.append((u, v, weight))
    context.rows.release()
    rows = None
    if scale is None and not directed:
        rows = kernels.graph.rows_of_edges(pieces, count=n, summed=comm.size == 1)
    if rows is not None and rows.entries == 2 * sum(len(u) for u, _, _ in pieces):
        strength = xp.diff(rows.starts)  # no edges were summed or dropped
    else:
        strength = _strength(kernels, pieces, n, directed)
    comm.queue_reduce(strength, "sum")
    gain = Gain(0, 1.0, False, directed)
    two_m = int(gain.degree(strength).sum())
    exact = integers and two_m < EXACT_LIMIT
    if rows is None:
        narrow = np.int32 if exact else np.int64
        pieces = [(u, v, None if weight is None else weight.astype(narrow, copy=False)) for u, v, weight in pieces]
        rows = kernels.graph.rows_of_edges(pieces, count=n, summed=comm.size == 1)
    del pieces
    gain = replace(gain, two_m=two_m, exact=exact)
    return spread(kernels, comm, rows, strength, gain, shared), scale or WeightScale()


def spread(kernels: Kernels, comm: Comm, rows: Adjacency, strength: Array, gain: Gain, shared: int) -> Level:
    """Return the graph whose edges the ranks have.

    Parameters
    ----------
    kernels, comm
        Kernels and ranks.
    rows : Adjacency
        A row for each node, with this rank's edges in both directions. If there is only one rank, equal edges must be
        summed already.
    strength, gain, shared
        See `Level`.
    """
    n = len(strength)
    if comm.size == 1:
        return Level(kernels, comm, n, rows.entries, rows, strength, gain)
    bounds = _bounds(kernels, _summed(comm, kernels.xp.diff(rows.starts)), comm.size)
    cuts = kernels.memory.to_host(rows.starts[kernels.xp.asarray(np.array(bounds, np.int64))]).tolist()

    def sent(array: Array, places: Sequence[int]) -> Array:
        return comm.exchange([array[start:stop] for start, stop in pairwise(places)])

    lengths = sent(_lengths(kernels, rows), bounds)
    columns = sent(rows.columns, cuts)
    weights = None if rows.weights is None else sent(rows.weights, cuts)
    del rows
    first, stop = bounds[comm.rank : comm.rank + 2]
    rows = kernels.graph.join_rows(lengths, columns, weights, count=n, first=first, rows=stop - first)
    del lengths, columns, weights
    if comm.all_reduce(np.array([rows.weights is not None], np.int64), "max")[0]:
        rows = replace(rows, weights=_weights(kernels, rows, gain))
    return _of_ranks(kernels, comm, rows, strength, gain, shared, bounds)


def at_resolution(level: Level, resolution: float) -> Level:
    """Return the same graph, with the gain of another resolution.

    Parameters
    ----------
    level : Level
        The graph at resolution 1.
    resolution : float
    """
    gain = level.gain
    return replace(level, gain=replace(gain, resolution=resolution, exact=gain.exact and resolution == 1.0))


def contract(level: Level, ids: Array, count: int) -> Level:
    """Return the graph of groups.

    Parameters
    ----------
    level : Level
    ids : int32 array of shape (n,)
        Group of each node, 0 .. count - 1.
    count : int
        Number of groups.
    """
    kernels, rows, gain, size = level.kernels, level.rows, level.gain, level.comm.size
    strength = kernels.graph.sum_by_id(level.strength, ids, count)
    entries = None  # number of entries of each group
    if size > 1:
        own = ids[rows.first : rows.first + rows.rows]
        entries = _summed(level.comm, kernels.graph.sum_by_id(kernels.xp.diff(rows.starts), own, count))
    if entries is not None and int(entries.max()) * size <= level.entries:
        coarse = _contracted_by_owners(level, ids, count, strength, _bounds(kernels, entries, size))
    else:
        rows = kernels.graph.contract(rows, ids, count=count)
        if size > 1:
            rows = replace(rows, weights=_weights(kernels, rows, gain))
        coarse = spread(kernels, level.comm, rows, strength, gain, level.shared)
    if level.fixed is not None:  # a group with a fixed node does not move
        coarse.fixed = kernels.xp.zeros(count, np.uint8)
        coarse.fixed[ids[kernels.xp.flatnonzero(level.fixed)]] = 1
    return coarse


def modularity_of(level: Level, labels: Array) -> float:
    """Return the modularity of communities; the result is the same on any number of ranks and on any device.

    Parameters
    ----------
    level : Level
    labels : int32 array of shape (n,)
        Community of each node, below n.

    Returns
    -------
    float
        0.0 if there are no edges.
    """
    kernels, gain = level.kernels, level.gain
    if not gain.two_m:
        return 0.0
    cross = np.array([kernels.graph.cross_weight(level.rows, labels)], np.int64)
    inside = gain.two_m - int(level.comm.all_reduce(cross)[0])
    totals = kernels.graph.sum_by_id(level.strength, labels, level.n)
    leaving, entering = gain.halves(totals)
    if gain.two_m < EXACT_LIMIT:
        squares = float(int((leaving * entering).sum()))
    else:
        both = (kernels.memory.to_host(each).astype(np.float64) for each in (leaving, entering))
        squares = float(np.multiply(*both).sum())
    return inside / gain.two_m - gain.resolution * squares / gain.two_m**2


def _weight_scale(context: Context, directed: bool) -> tuple[WeightScale | None, bool]:
    """Return the scale that makes weights integers (None without weights), and whether they are integers already."""
    if context.dataset_shape[1] == 2:
        return None, True
    xp, comm = context.kernels.xp, context.comm

    def facts(x: Array) -> Array:
        weight = x[..., 2]
        with np.errstate(over="ignore"):  # an infinite sum is rejected below
            total = weight.sum(axis=1)
        return xp.stack([total, (weight != xp.rint(weight)).sum(axis=1).astype(np.float64)], axis=1)

    total, broken = (float(value) for value in context.sum_over_blocks(facts))
    if not math.isfinite(total):
        raise InputError("the sum of all weights overflows float64; rescale the weights.")
    least = xp.full(1, np.inf)
    for chunk in context.rows.chunks():
        if len(chunk.x):
            least = xp.minimum(least, xp.where(chunk.x[:, 2] > 0, chunk.x[:, 2], np.inf).min())
    least = float(comm.all_reduce(least, "min")[0])
    bits = DIRECTED_BITS if directed else WIDE_BITS
    if total == 0 or (not broken and 2 * total < 2.0**bits):
        return WeightScale(), True
    # With directions, positive weights that are rounded up to 1 may double the total.
    shift = bits - directed - math.frexp(2 * total)[1]
    mean = total / context.dataset_shape[0]
    error = 0.5 if math.ldexp(least, shift) >= 0.5 else 1.0  # in units of the integers
    return WeightScale(shift, math.ldexp(error, -shift) / mean), False


def _strength(kernels: Kernels, edges: list[tuple[Array, Array, Array | None]], n: int, directed: bool) -> Array:
    """Return the sum of each node's weights, as `Level.strength` describes."""
    xp = kernels.xp
    strength = xp.zeros(n, np.int64)
    for u, v, weight in edges:
        values = xp.ones(len(u), np.int64) if weight is None else weight
        for ends, unit in ((u, 1 << 32 if directed else 1), (v, 1)):
            strength += kernels.graph.sum_by_id(values, ends, n) * unit
    return strength


def _integers(xp: Any, weight: Array, scale: WeightScale) -> Array:
    """Return weights as integers; positive weights stay positive, because their edges may connect two parts."""
    rounded = xp.rint(xp.ldexp(weight, scale.shift)).astype(np.int64)
    return xp.where(weight > 0, xp.maximum(rounded, 1), 0)


def _contracted_by_owners(level: Level, ids: Array, count: int, strength: Array, bounds: list[int]) -> Level:
    """Send the row of every node to the rank that owns its group, which sums the rows of the group."""
    kernels, xp, comm, rows = level.kernels, level.kernels.xp, level.comm, level.rows
    first, stop = bounds[comm.rank : comm.rank + 2]
    parts = [
        kernels.graph.crossing_rows(rows, ids, first=start, stop=end)
        if rank != comm.rank
        else (_lengths(kernels, rows), rows.columns, rows.weights)  # `contract` skips rows of other owners
        for rank, (start, end) in enumerate(pairwise(bounds))
    ]
    lengths, columns = (comm.exchange([part[index] for part in parts]) for index in (0, 1))
    weights = None if rows.weights is None else comm.exchange([part[2] for part in parts])
    del parts
    # Ranks own ascending nodes and send their rows in this order, so the nodes of the rows are known.
    there = (ids >= first) & (ids < stop)
    there[rows.first : rows.first + rows.rows] = True
    groups = ids[xp.flatnonzero(there)]
    received = Adjacency(0, _starts(kernels, lengths), columns, weights)
    del lengths, columns, weights, there
    summed = kernels.graph.contract(received, ids, count=count, groups=groups, first=first, stop=stop)
    del received
    summed = replace(summed, weights=_weights(kernels, summed, level.gain))
    return _of_ranks(kernels, comm, summed, strength, level.gain, level.shared, bounds)


def _of_ranks(
    kernels: Kernels, comm: Comm, rows: Adjacency, strength: Array, gain: Gain, shared: int, bounds: Sequence[int]
) -> Level:
    """Return the graph whose rows the ranks own; every rank gets all rows if they are few."""
    entries = int(comm.all_reduce(np.array([rows.entries], np.int64))[0])
    if entries <= shared:
        rows = _gathered(kernels, comm, rows)
        comm = SoloComm(Partition(1, 1, 1), 1)
    return Level(kernels, comm, len(strength), entries, rows, strength, gain, shared, bounds)


def _weights(kernels: Kernels, rows: Adjacency, gain: Gain) -> Array:
    """Return the weights of rows, or ones if the rows have none, in the type that all ranks use."""
    kind = np.dtype(np.int32 if gain.exact else np.int64)
    return kernels.xp.ones(rows.entries, kind) if rows.weights is None else rows.weights.astype(kind, copy=False)


def _lengths(kernels: Kernels, rows: Adjacency) -> Array:
    """Return the number of entries of each row, in the type that ranks send."""
    return kernels.xp.diff(rows.starts).astype(np.int32)


def _starts(kernels: Kernels, lengths: Array) -> Array:
    starts = kernels.xp.zeros(len(lengths) + 1, np.int64)
    starts[1:] = kernels.xp.cumsum(lengths, dtype=np.int64)
    return starts


def _gathered(kernels: Kernels, comm: Comm, rows: Adjacency) -> Adjacency:
    """Return the rows of all ranks."""
    starts = _starts(kernels, comm.all_gather(_lengths(kernels, rows)))
    weights = None if rows.weights is None else comm.all_gather(rows.weights)
    return Adjacency(0, starts, comm.all_gather(rows.columns), weights)


def _summed(comm: Comm, counts: Array) -> Array:
    """Return the sums of all ranks, in place."""
    comm.queue_reduce(counts, "sum")
    return counts


def _bounds(kernels: Kernels, entries: Array, size: int) -> list[int]:
    """Return the first node of each rank, and n, so that ranks have about equal numbers of entries."""
    xp = kernels.xp
    sums = xp.cumsum(entries)
    total = int(sums[-1])
    wanted = xp.asarray(np.array([total * rank // size for rank in range(1, size)], np.int64))
    return [0, *(int(node) for node in kernels.memory.to_host(xp.searchsorted(sums, wanted))), len(entries)]
