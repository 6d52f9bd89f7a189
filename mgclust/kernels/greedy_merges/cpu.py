"""Exact greedy modularity on the CPU: Newman's rule, in some microseconds per merge.

If communities i and j merge, most gains stay the same or decrease. If k is a neighbour of i but not of j, the gain
``2m * m_ik - d_i * d_k`` of i and k decreases by ``d_j * d_k``. So a computed gain remains an upper bound until k is
a neighbour in the smaller of two merging rows. A merge costs

    fold        add the smaller row to the larger: a few look-ups and a new gain for each neighbour
    refresh     search for the best pair again, in rows that come first only because of an upper bound
    put         update a tree over the keys of all rows: about one step for each key that changes

A pair belongs to the row with the smaller table, which can be searched quickly. If the other row is a *hub*, the pair
also belongs to the hub. Otherwise, all neighbours of the hub would have to be refreshed whenever the hub grows. A hub
stores its pairs in a kinetic tree (`cpu_hubs`): the 317,079 merges of com-dblp take 1 s instead of 30 s.

All decisions compare gains that are computed from the current weights and strengths, in int64 or float64 as given.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.kernels.greedy_merges.cpu_hubs import FREE, HUB, NODES, refresh_hub, update
from mgclust.kernels.greedy_merges.cpu_keys import (
    LAST,
    SLOTS,
    MergeGraph,
    gain_of,
    lowest_of,
    new_keys,
    put,
    raise_key,
    tie_of,
)
from mgclust.kernels.greedy_merges.cpu_rows import (
    CELLS,
    fill,
    find,
    insert,
    is_full,
    lay_out,
    remove,
    repack,
    widen,
)
from mgclust.kernels.toolkit.cpu_compiler import called, compiled, inlined

__all__ = ["greedy_merges"]

Array = Any
SLICE = 0.1  # seconds between two calls of `on_progress`


def greedy_merges(
    starts: Array,
    columns: Array,
    weights: Array,
    strength: Array,
    *,
    resolution: float,
    on_progress: Callable[[int], None],
) -> tuple[np.ndarray, np.ndarray]:
    graph = _graph(np.asarray(starts), np.asarray(columns), np.asarray(weights), np.asarray(strength), resolution)
    # True if every gain that can decrease does decrease. If not, the pair (k, i) may have the same gain after a merge
    # but come earlier, because i has got a smaller label. Then the keys of all neighbours have to be updated.
    strict = graph.strength.dtype.kind == "i" and bool((graph.strength > 0).all())
    most = max(len(strength) - 1, 0)
    merges, gains = np.empty((most, 2), np.int32), np.empty(most, graph.strength.dtype)
    done, step = 0, 256
    while graph.keys["tie"][-1] != LAST:
        began = time.perf_counter()
        done, short = advance(graph, strict, merges, gains, done, done + step)
        if short:
            graph = _repacked(graph)
        step = max(64, int(step * min(2.0, SLICE / (time.perf_counter() - began + 1e-9))))
        on_progress(done)
    return merges[:done].copy(), gains[:done].copy()


def _graph(starts: Array, columns: Array, weights: Array, strength: Array, resolution: float) -> MergeGraph:
    """Make the tables of all rows; `advance` computes the keys of rows when it needs them."""
    n, dtype = len(strength), strength.dtype
    slots, bits = np.zeros(n, SLOTS), np.empty(n, np.uint8)
    used = lay_out(starts, slots, bits)
    keys, levels = new_keys(n, dtype)
    graph = MergeGraph(
        *_cells(used + used // 2, dtype),
        tail=np.array([used]),
        slots=slots,
        bits=bits,
        strength=strength.copy(),
        keys=keys,
        levels=levels,
        way=np.zeros((3, 16), np.int64),
        two_m=strength.sum(),
        factor=dtype.type(resolution),
        lowest=lowest_of(dtype),
    )
    fill(graph, starts, columns, weights)
    return graph


def _cells(count: int, dtype: Any) -> tuple[Array, Array, Array]:
    """Allocate the cells, and arrays for hubs; parts of these arrays that no hub uses are never touched."""
    return (np.empty(count, CELLS[dtype.kind]), np.empty(count, dtype), np.empty(count >> 3, NODES[dtype.kind]))


def _repacked(graph: MergeGraph) -> MergeGraph:
    """Copy a graph without the cells of absorbed rows, and with room for any row to grow."""
    sizes = np.left_shift(1, graph.bits, dtype=np.int64)
    live = int(sizes[graph.slots["length"] > 0].sum())
    cells, seen, nodes = _cells(live + max(live // 2, 2 * int(sizes.max())), graph.strength.dtype)
    repack(graph, cells, seen, nodes)
    return graph._replace(cells=cells, seen=seen, nodes=nodes)


@called
def refresh(graph: MergeGraph, row: int) -> None:
    """Find the best of the pairs that belong to a row.

    All pairs of a hub belong to it. For another row, only pairs with rows that are not hubs and whose table is not
    smaller belong to it.
    """
    own = np.int64(graph.bits[row])
    if own >= HUB:
        refresh_hub(graph, row)
        return
    cells, slots, begin, d = graph.cells, graph.slots, graph.slots[row].begin, graph.strength[row]
    found, gain, tie = -1, graph.lowest, LAST
    for at in range(begin, begin + (1 << own)):
        slot = cells[at].slot
        if slot == FREE or graph.bits[slot] < own or graph.bits[slot] >= HUB:
            continue
        its = gain_of(graph, cells[at].weight, d, graph.strength[slot])
        if its > gain or (its == gain and slots[slot].label < slots[found].label):
            found, gain = slot, its
    if found >= 0:
        tie = tie_of(slots[row].label, slots[found].label)
        graph.keys[row].other = found
        graph.keys[row].stamp = slots[found].version
    put(graph.keys, graph.levels, row, gain, tie)


@inlined
def offer(graph: MergeGraph, row: int, cell: int, slot: int, its_cell: int) -> None:
    """Update the rows to which the changed pair of a row and a slot belongs."""
    gain = gain_of(graph, graph.cells[cell].weight, graph.strength[row], graph.strength[slot])
    own, its = graph.bits[row], graph.bits[slot]
    if own >= HUB:
        graph.seen[cell] = graph.strength[slot]
        update(graph, row, cell)
    if its >= HUB:
        graph.seen[its_cell] = graph.strength[row]
        update(graph, slot, its_cell)
    if its >= HUB or (its <= own and own < HUB):
        raise_key(graph, slot, row, gain)
    if own >= HUB or (own <= its and its < HUB):
        raise_key(graph, row, slot, gain)


@called
def fold(graph: MergeGraph, a: int, b: int, strict: bool) -> None:
    """Merge slot b into slot a, whose row is at least as long."""
    cells, slots, keys = graph.cells, graph.slots, graph.keys
    bits, relabelled = graph.bits[a], slots[b].label < slots[a].label
    graph.strength[a] += graph.strength[b]
    slots[a].label = min(slots[a].label, slots[b].label)
    slots[a].version += 1
    slots[b].version += 1
    keys[a].stamp = -1
    put(keys, graph.levels, b, graph.lowest, LAST)
    remove(graph, a, b)
    for cell in range(slots[b].begin, slots[b].begin + (1 << np.int64(graph.bits[b]))):
        k = cells[cell].slot
        if k < 0 or k == a:
            continue
        own = find(graph, a, k)
        if cells[own].slot == k:
            cells[own].weight += cells[cell].weight
        else:
            if is_full(slots[a].length + 1, np.int64(graph.bits[a])):
                widen(graph, a)
                own = find(graph, a, k)
            insert(graph, a, own, k, cells[cell].weight)
        remove(graph, k, b)
        its = find(graph, k, a)
        if cells[its].slot == a:
            cells[its].weight = cells[own].weight
        else:
            insert(graph, k, its, a, cells[own].weight)
        offer(graph, a, own, k, its)
    slots[b].length = 0
    # If a has a larger table now, some of its pairs belong to other rows. If not every gain has decreased, pairs with
    # equal gains may come earlier, because a has a new label.
    if graph.bits[a] > bits or (relabelled and not strict):
        offer_all(graph, a)


@called
def offer_all(graph: MergeGraph, row: int) -> None:
    """Update all rows to which the pairs of a row belong."""
    begin = graph.slots[row].begin
    for cell in range(begin, begin + (1 << np.int64(graph.bits[row]))):
        slot = graph.cells[cell].slot
        if slot != FREE:
            offer(graph, row, cell, slot, find(graph, slot, row))


@compiled
def advance(graph: MergeGraph, strict: bool, merges: Array, gains: Array, done: int, stop: int) -> tuple[int, bool]:
    """Merge until `stop` merges are done, no pair is left or there are too few cells.

    Returns the number of merges, and whether there are too few cells.
    """
    slots, keys = graph.slots, graph.keys
    top = keys[len(keys) - 1]
    while done < stop and top.tie != LAST:
        a = top.other
        b = keys[a].other
        if keys[a].stamp != slots[b].version:
            refresh(graph, a)
            continue
        if slots[a].length < slots[b].length:
            a, b = b, a
        bits = np.int64(graph.bits[a])
        if is_full(slots[a].length + slots[b].length, bits) and graph.tail[0] + (2 << bits) > len(graph.cells):
            return done, True
        merges[done, 0], merges[done, 1] = top.tie >> 32, top.tie & 0x7FFFFFFF
        gains[done] = top.gain
        fold(graph, a, b, strict)
        done += 1
    return done, False
