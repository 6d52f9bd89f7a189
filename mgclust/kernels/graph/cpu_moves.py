"""Moves between communities on the CPU: the best community of each node, and the nodes that have to be checked again.

Each kernel reads local rows of the adjacency matrix, which takes 1 to 10 ns per entry and thread. The result for a node
depends only on the arguments. Gains are compared in the type in which `score` computes them, int64 or float64.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mgclust.base.hashing import GOLDEN
from mgclust.kernels.graph.adjacency import Adjacency, Gain
from mgclust.kernels.graph.cpu_adjacency import (
    add_weight,
    clear_others,
    each_part,
    factors,
    first_place,
    in_one_part,
    longest_row,
    mix,
    new_places,
    score,
    unsigned,
    weight_of,
    weights_or_none,
)
from mgclust.kernels.toolkit.cpu_compiler import called, compiled, inlined, signed
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

__all__ = ["activate_neighbors", "apply_moves", "cross_weight", "propose_moves", "sweep_alone"]

Array = Any
NODES = 1 << 11  # minimum number of nodes per task
MAX_RISE = 2.0**41  # no move raises modularity by more than 2; rises of other objectives are cut off there


def propose_moves(
    rows: Adjacency,
    strength: Array,
    labels: Array,
    totals: Array,
    active: Array,
    *,
    gain: Gain,
    classes: int,
    turn: int,
    salt: int,
    out: Array,
    tally: Array,
) -> None:
    two_m, factor = factors(gain)
    weights, salt = weights_or_none(rows.weights), signed(salt)
    clear_others(rows, out)
    sums = []

    def body(start: int, stop: int) -> None:
        room = _room(rows, 0, len(labels)) if in_one_part(rows) else _new_room(rows, len(labels))
        sums.append(
            propose(
                start, stop, rows.first, rows.starts, rows.columns, weights, strength, labels, totals, active, two_m,
                factor, classes, turn, salt, out, *room,
            )
        )  # fmt: skip

    each_part(rows, body)
    for moves, gained in sums:
        tally[0] += moves
        tally[1] += gained


def sweep_alone(
    rows: Adjacency,
    strength: Array,
    labels: Array,
    totals: Array,
    active: Array,
    *,
    gain: Gain,
    classes: int,
    salt: int,
    activated: Array,
    tally: Array,
) -> bool:
    if rows.rows < len(labels):
        return False
    two_m, factor = factors(gain)
    graph = rows.starts, rows.columns, weights_or_none(rows.weights), strength, labels, totals
    queue, proposal = np.empty(rows.rows, np.int32), np.empty(rows.rows, np.int32)
    first = np.zeros(classes + 1, np.int64)
    if in_one_part(rows):
        room = _room(rows, 0, len(labels))
        sweep(*graph, active, two_m, factor, signed(salt), activated, tally, queue, first, proposal, *room)
        return True
    list_active(active, signed(salt), proposal, queue, first)
    for begin, end in pairwise(first.tolist()):
        tasks = max(1, min(8 * thread_count(), (end - begin) // NODES))
        bounds = [begin + (end - begin) * index // tasks for index in range(tasks + 1)]
        tally += _turn_in_threads(rows, graph, (two_m, factor), queue, proposal, activated, bounds)
    return True


def _turn_in_threads(
    rows: Adjacency,
    graph: tuple[Array, ...],
    constants: tuple[Any, Any],
    queue: Array,
    proposal: Array,
    activated: Array,
    bounds: list[int],
) -> Array:
    """Do a turn of a sweep, for the nodes between the bounds of a queue; return the turn's `tally`."""
    starts, columns, _, strength, labels, totals = graph
    tally = np.zeros((len(bounds) - 1, 2), np.int64)

    def propose_part(index: int, thread: int) -> None:
        room = _room(rows, thread, len(labels))
        tally[index] = propose_queued(bounds[index], bounds[index + 1], queue, *graph, *constants, proposal, *room)

    def activate_part(index: int, _: int) -> None:
        activate_queued(bounds[index], bounds[index + 1], queue, proposal, starts, columns, labels, activated)

    run_tasks(len(tally), propose_part)
    move_queued(bounds[0], bounds[-1], queue, proposal, strength, labels, totals)
    run_tasks(len(tally), activate_part)
    sums: Array = tally.sum(axis=0)
    return sums


def _room(rows: Adjacency, thread: int, n: int) -> tuple[Array, ...]:
    """Return work arrays of a thread, which successive calls share."""
    rooms = rows.plan.setdefault("rooms", {})
    if thread not in rooms:
        rooms[thread] = _new_room(rows, n)
    return rooms[thread]


def _new_room(rows: Adjacency, n: int) -> tuple[Array, ...]:
    longest = longest_row(rows)
    return new_places(n, longest), np.empty(longest, np.int32), np.empty(longest, np.int64)


def apply_moves(proposal: Array, strength: Array, labels: Array, totals: Array) -> None:
    move(proposal, strength, labels, totals)


def activate_neighbors(rows: Adjacency, proposal: Array, labels: Array, active: Array) -> None:

    def body(start: int, stop: int) -> None:
        activate(start, stop, rows.first, rows.starts, rows.columns, proposal, labels, active)

    each_part(rows, body)


def cross_weight(rows: Adjacency, labels: Array) -> int:
    weights = weights_or_none(rows.weights)
    sums: list[int] = []

    def body(start: int, stop: int) -> None:
        sums.append(crossing(start, stop, rows.first, rows.starts, rows.columns, weights, labels))

    each_part(rows, body)
    return sum(sums)


@compiled
def propose(
    start: int,
    stop: int,
    first: int,
    starts: Array,
    columns: Array,
    weights: Array,
    strength: Array,
    labels: Array,
    totals: Array,
    active: Array,
    two_m: Any,
    factor: Any,
    classes: int,
    turn: int,
    salt: int,
    out: Array,
    places: Array,
    found: Array,
    sums: Array,
) -> Any:
    """Fill `out` for rows start..stop-1; return the number of moves, and the added modularity in units of 2^-40.

    The last three arguments are work arrays for the longest row; see `add_weight`.
    """
    moves, gained = 0, np.int64(0)
    for row in range(start, stop):
        v = first + row
        out[v] = -1
        if active[v] == 0 or class_of(v, classes, salt) != turn:
            continue
        to, rise = best_move(
            v, starts[row], starts[row + 1], columns, weights, strength, labels, totals, two_m, factor, places, found,
            sums,
        )  # fmt: skip
        if to >= 0:
            out[v] = to
            moves += 1
            gained += rise
    return moves, gained


@inlined
def class_of(v: int, classes: int, salt: int) -> Any:
    """Return the turn of a node."""
    h = mix(np.uint64(v) * np.uint64(GOLDEN) + np.uint64(salt))
    return np.int64(h >> np.uint64(33)) % classes


@called
def _list_active(active: Array, salt: int, turns: Array, queue: Array, first: Array) -> None:
    """List the active nodes by turn in `queue`, and fill `first`, which is 0 before; `turns` is a work array."""
    for v in range(len(active)):
        if active[v]:
            turns[v] = class_of(v, len(first) - 1, salt)
            first[turns[v] + 1] += 1
    for turn in range(1, len(first)):
        first[turn] += first[turn - 1]
    for v in range(len(active)):
        if active[v]:
            queue[first[turns[v]]] = v
            first[turns[v]] += 1
    for turn in range(len(first) - 1, 0, -1):
        first[turn] = first[turn - 1]
    first[0] = 0


@called
def _propose_queued(
    begin: int,
    end: int,
    queue: Array,
    starts: Array,
    columns: Array,
    weights: Array,
    strength: Array,
    labels: Array,
    totals: Array,
    two_m: Any,
    factor: Any,
    proposal: Array,
    places: Array,
    found: Array,
    sums: Array,
) -> Any:
    """Do `propose` for the nodes at begin..end-1 of a queue; `proposal` has the order of the queue."""
    moves, gained = 0, np.int64(0)
    for i in range(begin, end):
        v = queue[i]
        to, rise = best_move(
            v, starts[v], starts[v + 1], columns, weights, strength, labels, totals, two_m, factor, places, found, sums
        )
        proposal[i] = to
        if to >= 0:
            moves += 1
            gained += rise
    return moves, gained


@called
def _move_queued(
    begin: int, end: int, queue: Array, proposal: Array, strength: Array, labels: Array, totals: Array
) -> None:
    """Move the nodes at begin..end-1 of a queue, and their strength, to the proposed communities."""
    for i in range(begin, end):
        if proposal[i] >= 0:
            v, to = queue[i], proposal[i]
            totals[labels[v]] -= strength[v]
            totals[to] += strength[v]
            labels[v] = to


@called
def _activate_queued(
    begin: int, end: int, queue: Array, proposal: Array, starts: Array, columns: Array, labels: Array, active: Array
) -> None:
    """Do `activate` for the nodes at begin..end-1 of a queue."""
    for i in range(begin, end):
        if proposal[i] >= 0:
            v = queue[i]
            for entry in range(starts[v], starts[v + 1]):
                if labels[columns[entry]] != labels[v]:
                    active[columns[entry]] = 1


@compiled
def sweep(
    starts: Array, columns: Array, weights: Array, strength: Array, labels: Array, totals: Array, active: Array,
    two_m: Any, factor: Any, salt: int, activated: Array, tally: Array, queue: Array, first: Array, proposal: Array,
    places: Array, found: Array, sums: Array,
) -> None:  # fmt: skip
    """Do all turns of a sweep, for `sweep_alone`."""
    _list_active(active, salt, proposal, queue, first)
    for turn in range(len(first) - 1):
        begin, end = first[turn], first[turn + 1]
        moves, gained = _propose_queued(
            begin, end, queue, starts, columns, weights, strength, labels, totals, two_m, factor, proposal, places,
            found, sums,
        )  # fmt: skip
        if moves:
            _move_queued(begin, end, queue, proposal, strength, labels, totals)
            _activate_queued(begin, end, queue, proposal, starts, columns, labels, activated)
        tally[0] += moves
        tally[1] += gained


@compiled
def list_active(active: Array, salt: int, turns: Array, queue: Array, first: Array) -> None:
    """Call `_list_active`; Python can call this function."""
    _list_active(active, salt, turns, queue, first)


@compiled
def propose_queued(
    begin: int, end: int, queue: Array, starts: Array, columns: Array, weights: Array, strength: Array, labels: Array,
    totals: Array, two_m: Any, factor: Any, proposal: Array, places: Array, found: Array, sums: Array,
) -> Any:  # fmt: skip
    """Call `_propose_queued`; Python can call this function."""
    return _propose_queued(
        begin, end, queue, starts, columns, weights, strength, labels, totals, two_m, factor, proposal, places, found,
        sums,
    )  # fmt: skip


@compiled
def move_queued(
    begin: int, end: int, queue: Array, proposal: Array, strength: Array, labels: Array, totals: Array
) -> None:
    """Call `_move_queued`; Python can call this function."""
    _move_queued(begin, end, queue, proposal, strength, labels, totals)


@compiled
def activate_queued(
    begin: int, end: int, queue: Array, proposal: Array, starts: Array, columns: Array, labels: Array, active: Array
) -> None:
    """Call `_activate_queued`; Python can call this function."""
    _activate_queued(begin, end, queue, proposal, starts, columns, labels, active)


@inlined
def best_move(
    v: int,
    begin: int,
    end: int,
    columns: Any,
    weights: Any,
    strength: Any,
    labels: Any,
    totals: Any,
    two_m: Any,
    factor: Any,
    places: Any,
    found: Any,
    sums: Any,
) -> Any:
    """Return the label to which a node moves, or -1, and the modularity that this adds, in units of 2^-40."""
    a, d = labels[v], strength[v]
    place, k, own = first_place(places, end - begin), np.int64(0), np.int64(0)
    for entry in range(begin, end):
        b = labels[unsigned(columns[entry])]
        if b == a:  # most neighbours have this label
            own += weight_of(weights, entry)
        else:
            k = add_weight(b, weight_of(weights, entry), places, place, found, sums, np.int64(0), k)
    places[len(places) - 1] = place + k
    stay, to = score(two_m, factor, own, d, totals[a] - d), np.int64(-1)
    best = stay
    for i in range(k):
        b = np.int64(found[i])
        g = score(two_m, factor, sums[i], d, totals[unsigned(b)])
        if g > best or (g == best and 0 <= b < to):  # ties go to the label of the node, then to the lowest label
            best, to = g, b
    nothing = two_m * 0
    if totals[v] == 0 and nothing > best:
        best, to = nothing, np.int64(v)
    if to < 0:
        return to, np.int64(0)
    square = np.float64(two_m) * np.float64(two_m)
    rise = np.rint(np.float64(best - stay) * 2.0 / square * 1099511627776.0)
    return to, np.int64(min(rise, MAX_RISE))


@compiled
def move(proposal: Array, strength: Array, labels: Array, totals: Array) -> None:
    """Move nodes and their strength to the proposed communities."""
    for v in range(len(proposal)):
        to = proposal[v]
        if to >= 0:
            totals[labels[v]] -= strength[v]
            totals[to] += strength[v]
            labels[v] = to


@compiled
def activate(
    start: int, stop: int, first: int, starts: Array, columns: Array, proposal: Array, labels: Array, active: Array
) -> None:
    """Activate neighbours of rows start..stop-1; several threads may set the same element to 1 at the same time."""
    for row in range(start, stop):
        if proposal[first + row] >= 0:
            label = labels[first + row]
            for entry in range(starts[row], starts[row + 1]):
                if labels[columns[entry]] != label:
                    active[columns[entry]] = 1


@compiled
def crossing(start: int, stop: int, first: int, starts: Array, columns: Array, weights: Array, labels: Array) -> Any:
    """Return the sum of the weights between communities, for rows start..stop-1."""
    total = np.int64(0)
    for row in range(start, stop):
        label = labels[first + row]
        for entry in range(starts[row], starts[row + 1]):
            if labels[columns[entry]] != label:
                total += weight_of(weights, entry)
    return total
