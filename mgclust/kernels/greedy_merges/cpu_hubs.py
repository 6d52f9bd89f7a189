"""Best pairs of hubs, which have up to hundreds of thousands of neighbours, without reading all neighbours.

A hub's gain with neighbour k is a *line*, a linear function of the hub's strength D: ``two_m * w_k - D * d_k``. D only
grows. A tree over the hub's table has the winner, the cell with the largest gain, of every 16 cells, of every 16 of
these winners, and so on. Each node has the D *until* which its winner certainly stays ahead. When D has grown, only
nodes with a smaller `until` are updated. If a neighbour has grown in other merges since it was last *seen*, its line is
too high. This line is an upper bound, which is corrected when it wins.

*Times* are values of D. They are computed in float64, with a margin for the rounding errors of times and gains. So a
node may be updated too early, but never too late. At the current D, lines are compared like all pairs, by gain and then
by label.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.greedy_merges.cpu_keys import LAST, MergeGraph, gain_of, put, tie_of
from mgclust.kernels.toolkit.cpu_compiler import called, inlined

__all__ = ["FREE", "HUB", "NODES", "forget", "past_time", "refresh_hub", "update"]

Array = Any
FREE = -1
HUB = 8  # rows with tables of at least 2^HUB cells are hubs
SPAN = 4  # a node has 2^SPAN cells or nodes below it
MARGIN = 2.0**-48  # relative error of 32 roundings
PAST = -1.0  # a time that has passed

# The nodes of a table that begins at cell c begin at node c / 8, which leaves enough room. The lowest level comes
# first, the top last.
NODES = {
    "i": np.dtype(
        [
            ("until", np.float64),
            ("seen", np.int64),
            ("weight", np.int32),
            ("cell", np.int32),
        ]
    ),
    "f": np.dtype(
        [
            ("until", np.float64),
            ("seen", np.float64),
            ("weight", np.float64),
            ("cell", np.int32),
        ],
        align=True,
    ),
}


@called
def past_time(graph: MergeGraph, row: int) -> None:
    """Mark all nodes of a hub for an update."""
    first = graph.slots[row].begin >> 3
    for at in range(first, first + ((1 << np.int64(graph.bits[row])) >> 3)):
        graph.nodes[at].until = PAST


@inlined
def ahead_until(graph: MergeGraph, weight: Any, d: Any, other_weight: Any, e: Any, strength: Any) -> float:
    """Return the hub's strength until which a line that is ahead stays ahead of another, whatever the rounding."""
    if weight == other_weight and d == e:
        return np.inf  # the lines are equal for any D; labels decide, and are compared whenever a line changes
    height = graph.two_m * ((weight - other_weight) - MARGIN * max(weight, other_weight))
    slope = graph.factor * ((e - d) - MARGIN * max(d, e))
    if slope >= 0:
        return np.inf if height + strength * slope > 0 else PAST
    return height / -slope


@inlined
def lower_times(nodes: Array, first: int, at: int, bits: int, until: float) -> None:
    """Lower the times of a node and all nodes above it to at most `until`.

    The node is number `at` of its level, which has 2^bits nodes from `first` on.
    """
    while nodes[first + at].until > until:
        nodes[first + at].until = until
        if bits == 0:
            return
        first += 1 << bits
        bits, at = max(0, bits - SPAN), at >> SPAN


@inlined
def forget(graph: MergeGraph, row: int, cell: int) -> None:
    """Record that a cell loses its line; this matters only if the cell is the winner of its lowest node."""
    first = graph.slots[row].begin >> 3
    own = cell - graph.slots[row].begin
    if graph.nodes[first + (own >> SPAN)].cell == own:
        lower_times(graph.nodes, first, own >> SPAN, np.int64(graph.bits[row]) - SPAN, PAST)


@called
def update(graph: MergeGraph, row: int, cell: int) -> None:
    """Update a hub's tree for the new line of a cell, as far up as necessary.

    A node whose time has passed is left to `settle`. So are the nodes above it, because their times are not later.
    """
    strength, begin = graph.strength[row], graph.slots[row].begin
    bits: Any = np.int64(graph.bits[row])
    weight, d = graph.cells[cell].weight, graph.seen[cell]
    gain = gain_of(graph, weight, strength, d)
    label = graph.slots[graph.cells[cell].slot].label
    above, own = begin >> 3, np.int32(cell - begin)
    at, until = np.int64(own), np.inf
    while bits > 0:
        first, bits, at = above, max(0, bits - SPAN), at >> SPAN
        above = first + (1 << bits)
        node = graph.nodes[first + at]
        if node.until <= strength:
            return
        if node.cell >= 0:
            if node.cell != own:
                other = gain_of(graph, node.weight, strength, node.seen)
                its = graph.slots[graph.cells[begin + node.cell].slot].label
                if gain < other or (gain == other and label > its):
                    until = min(until, ahead_until(graph, node.weight, node.seen, weight, d, strength))
                    lower_times(graph.nodes, first, at, bits, until)
                    return
            # The old line was ahead of all others until the node's time, and the new line is ahead of the old line
            # until `until`. So the new line is ahead of all others until the earlier of both.
            until = min(until, ahead_until(graph, weight, d, node.weight, node.seen, strength))
        if until <= strength:
            lower_times(graph.nodes, first, at, bits, PAST)
            return
        node.cell, node.weight, node.seen, node.until = own, weight, d, min(node.until, until)


@inlined
def look_at_cells(graph: MergeGraph, row: int, index: int) -> None:
    """Set the winner of a lowest node, and the time until which it wins."""
    cells, seen, strength, begin = graph.cells, graph.seen, graph.strength[row], graph.slots[row].begin
    node, start = graph.nodes[(begin >> 3) + index], begin + (index << SPAN)
    found, gain, until = -1, graph.lowest, np.inf
    for at in range(start, start + (1 << SPAN)):
        slot = cells[at].slot
        if slot == FREE:
            continue
        own = gain_of(graph, cells[at].weight, strength, seen[at])
        label = graph.slots[slot].label
        if found < 0 or own > gain or (own == gain and label < graph.slots[cells[found].slot].label):
            found, gain = at, own
    node.cell = -1
    if found >= 0:
        weight, d = cells[found].weight, seen[found]
        for at in range(start, start + (1 << SPAN)):
            if cells[at].slot != FREE and at != found:
                until = min(
                    until,
                    ahead_until(graph, weight, d, cells[at].weight, seen[at], strength),
                )
        node.cell, node.weight, node.seen = found - begin, weight, d
    node.until = until


@inlined
def look_at_nodes(graph: MergeGraph, row: int, start: int, stop: int, into: int) -> None:
    """Set the winner of node `into`, and its time, from nodes start..stop-1, which are up to date."""
    cells, nodes, strength, begin = graph.cells, graph.nodes, graph.strength[row], graph.slots[row].begin
    found, gain, until = -1, graph.lowest, np.inf
    for at in range(start, stop):
        until = min(until, nodes[at].until)
        if nodes[at].cell < 0:
            continue
        own = gain_of(graph, nodes[at].weight, strength, nodes[at].seen)
        label = graph.slots[cells[begin + nodes[at].cell].slot].label
        if (
            found < 0
            or own > gain
            or (own == gain and label < graph.slots[cells[begin + nodes[found].cell].slot].label)
        ):
            found, gain = at, own
    nodes[into].cell = -1
    if found >= 0:
        weight, d = nodes[found].weight, nodes[found].seen
        for at in range(start, stop):
            if nodes[at].cell >= 0 and at != found:
                until = min(
                    until,
                    ahead_until(graph, weight, d, nodes[at].weight, nodes[at].seen, strength),
                )
        nodes[into].cell, nodes[into].weight, nodes[into].seen = nodes[found].cell, weight, d
    nodes[into].until = until


@called
def settle(graph: MergeGraph, row: int) -> int:
    """Update the nodes of a hub's tree whose time has passed, from below to the top; return the position of the top.

    The path to the current node is stored in `graph.way`, because a function that calls itself cannot be cached on
    disk.
    """
    nodes, strength = graph.nodes, graph.strength[row]
    first, index, ahead = graph.way[0], graph.way[1], graph.way[2]
    bits: Any = np.int64(graph.bits[row]) - SPAN
    level = 1
    first[1] = graph.slots[row].begin >> 3
    while bits > 0:
        first[level + 1] = first[level] + (1 << bits)
        bits, level = max(0, bits - SPAN), level + 1
    top = level
    index[top] = ahead[top] = 0
    if nodes[first[top]].until > strength:
        return first[top]
    while level <= top:
        if level == 1:
            look_at_cells(graph, row, index[1])
            level = 2
            continue
        stop = min(first[level - 1] + ((index[level] + 1) << SPAN), first[level])
        child = first[level - 1] + ahead[level]
        while child < stop and nodes[child].until > strength:
            child += 1
        if child < stop:
            level -= 1
            index[level] = child - first[level]
            ahead[level + 1] = index[level] + 1
            ahead[level] = index[level] << SPAN
        else:
            look_at_nodes(graph, row, first[level - 1] + (index[level] << SPAN), stop, first[level] + index[level])
            level += 1
    return first[top]


@called
def refresh_hub(graph: MergeGraph, row: int) -> None:
    """Set a hub's key to the winner of its tree; if the winner's line is too high, it is corrected first, once."""
    cells, seen, begin = graph.cells, graph.seen, graph.slots[row].begin
    cell = begin + graph.nodes[settle(graph, row)].cell
    if cell < begin:
        put(graph.keys, graph.levels, row, graph.lowest, LAST)
        return
    if seen[cell] != graph.strength[cells[cell].slot]:
        seen[cell] = graph.strength[cells[cell].slot]
        update(graph, row, cell)
        cell = begin + graph.nodes[settle(graph, row)].cell
    slot = cells[cell].slot
    gain = gain_of(graph, cells[cell].weight, graph.strength[row], seen[cell])
    put(graph.keys, graph.levels, row, gain, tie_of(graph.slots[row].label, graph.slots[slot].label))
    graph.keys[row].other = slot
    graph.keys[row].stamp = graph.slots[slot].version if seen[cell] == graph.strength[slot] else -1
