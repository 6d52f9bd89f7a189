"""Rows of a graph whose communities merge: one hash table of neighbours per row."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.greedy_merges.cpu_hubs import FREE, HUB, forget, past_time, update
from mgclust.kernels.greedy_merges.cpu_keys import MergeGraph
from mgclust.kernels.toolkit.cpu_compiler import called, compiled, inlined

__all__ = [
    "CELLS",
    "fill",
    "find",
    "insert",
    "is_full",
    "lay_out",
    "remove",
    "repack",
    "widen",
]

Array = Any
GOLDEN = 2654435769  # 2^32 over the golden ratio

# A neighbour's slot and the weight of the edge to it are stored together, so that a look-up reads only one cache line.
# Integer weights are below 2^31.
CELLS = {
    "i": np.dtype([("slot", np.int32), ("weight", np.int32)]),
    "f": np.dtype([("slot", np.int32), ("weight", np.float64)], align=True),
}


@inlined
def home(slot: int, bits: int) -> int:
    """Return the position in a table at which the search for a slot begins."""
    return ((slot * GOLDEN) & 0xFFFFFFFF) >> (32 - bits)


@inlined
def is_full(length: int, bits: int) -> bool:
    """Return whether a table is too full for this number of neighbours."""
    return length > (3 << bits) >> 2


@inlined
def table_bits(length: int) -> int:
    """Return log2 of the size of the smallest table for this number of neighbours."""
    bits = 1
    while is_full(length, bits):
        bits += 1
    return bits


@inlined
def find(graph: MergeGraph, row: int, slot: int) -> int:
    """Return the cell that holds a neighbour, or the free cell where it belongs."""
    cells, begin, bits = graph.cells, graph.slots[row].begin, np.int64(graph.bits[row])
    mask = (1 << bits) - 1
    at = home(slot, bits)
    while True:
        held = cells[begin + at].slot
        if held == slot or held < 0:
            return begin + at
        at = (at + 1) & mask


@inlined
def insert(graph: MergeGraph, row: int, cell: int, slot: int, weight: Any) -> None:
    """Write a neighbour to the free cell that `find` returned."""
    graph.cells[cell].slot, graph.cells[cell].weight = slot, weight
    graph.slots[row].length += 1


@called
def remove(graph: MergeGraph, row: int, slot: int) -> None:
    """Drop a neighbour; cells that it displaced move back, so that no search stops too early."""
    cells, begin, bits = graph.cells, graph.slots[row].begin, np.int64(graph.bits[row])
    mask = (1 << bits) - 1
    hole = find(graph, row, slot) - begin
    if bits >= HUB:
        forget(graph, row, begin + hole)
    probe = (hole + 1) & mask
    while cells[begin + probe].slot != FREE:
        reach = (probe - home(cells[begin + probe].slot, bits)) & mask
        if reach >= (probe - hole) & mask:
            cells[begin + hole].slot, cells[begin + hole].weight = (
                cells[begin + probe].slot,
                cells[begin + probe].weight,
            )
            if bits >= HUB:
                forget(graph, row, begin + probe)
                graph.seen[begin + hole] = graph.seen[begin + probe]
                update(graph, row, begin + hole)
            hole = probe
        probe = (probe + 1) & mask
    cells[begin + hole].slot = FREE
    graph.slots[row].length -= 1


@called
def widen(graph: MergeGraph, row: int) -> None:
    """Move a row to a table of twice the size, at the tail; the caller ensures that there is room."""
    cells, seen, old, bits = graph.cells, graph.seen, graph.slots[row].begin, np.int64(graph.bits[row])
    new = graph.tail[0]
    graph.tail[0] = new + (2 << bits)
    graph.slots[row].begin = new
    graph.bits[row] = bits + 1
    for at in range(new, new + (2 << bits)):
        cells[at].slot = FREE
    for at in range(old, old + (1 << bits)):
        slot = cells[at].slot
        if slot != FREE:
            to = find(graph, row, slot)
            cells[to].slot, cells[to].weight = slot, cells[at].weight
            if bits + 1 >= HUB:
                seen[to] = seen[at] if bits >= HUB else graph.strength[slot]
    if bits + 1 >= HUB:
        past_time(graph, row)


@compiled
def lay_out(starts: Array, slots: Array, bits: Array) -> int:
    """Give every row a table; return the number of cells of all tables."""
    tail: Any = np.int64(0)
    for row in range(len(slots)):
        slots[row].length = starts[row + 1] - starts[row]
        slots[row].label = row
        slots[row].begin = tail
        bits[row] = table_bits(starts[row + 1] - starts[row])
        tail += 1 << np.int64(bits[row])
    return tail


@compiled
def fill(graph: MergeGraph, starts: Array, columns: Array, weights: Array) -> None:
    """Write all neighbours to the tables."""
    cells = graph.cells
    for at in range(graph.tail[0]):
        cells[at].slot = FREE
    for row in range(len(graph.slots)):
        hub = graph.bits[row] >= HUB
        for i in range(starts[row], starts[row + 1]):
            at = find(graph, row, columns[i])
            cells[at].slot, cells[at].weight = columns[i], weights[i]
            if hub:
                graph.seen[at] = graph.strength[columns[i]]
        if hub:
            past_time(graph, row)


@compiled
def repack(graph: MergeGraph, cells: Array, seen: Array, nodes: Array) -> None:
    """Copy the remaining rows to other arrays, without gaps."""
    tail: Any = np.int64(0)
    for row in range(len(graph.slots)):
        slot = graph.slots[row]
        if slot.length == 0:
            continue
        size = 1 << np.int64(graph.bits[row])
        for i in range(size):
            cells[tail + i] = graph.cells[slot.begin + i]
        if graph.bits[row] >= HUB:
            for i in range(size):
                seen[tail + i] = graph.seen[slot.begin + i]
            for i in range(size >> 3):
                nodes[(tail >> 3) + i] = graph.nodes[(slot.begin >> 3) + i]
        slot.begin = tail
        tail += size
    graph.tail[0] = tail
