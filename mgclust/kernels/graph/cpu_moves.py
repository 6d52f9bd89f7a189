"""Moves between communities on the CPU: the best community of each node, and the nodes that have to be checked again.

Each kernel reads local rows of the adjacency matrix, which takes 1 to 10 ns per entry and thread. The result for a node
depends only on the arguments. Gains are compared in the type in which `score` computes them, int64 or float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.base.hashing import GOLDEN
from mgclust.kernels.graph.adjacency import Adjacency, Gain
from mgclust.kernels.graph.cpu_adjacency import (
    EMPTY,
    clear_others,
    each_part,
    empty_table,
    factors,
    in_one_part,
    longest_row,
    mix,
    score,
    slot_of,
    table_bits,
    unsigned,
    weight_of,
    weights_or_none,
)
from mgclust.kernels.toolkit.cpu_compiler import called, compiled, inlined, signed

__all__ = ["activate_neighbors", "apply_moves", "cross_weight", "propose_moves", "sweep_alone"]

Array = Any
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
        room = _room(rows) if in_one_part(rows) else _new_room(longest_row(rows))
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
    if not in_one_part(rows):
        return False
    two_m, factor = factors(gain)
    sweep(
        rows.rows, rows.starts, rows.columns, weights_or_none(rows.weights), strength, labels, totals, active, two_m,
        factor, classes, signed(salt), activated, tally, np.empty(rows.rows, np.int32), *_room(rows),
    )  # fmt: skip
    return True


def _room(rows: Adjacency) -> tuple[Array, ...]:
    """Return work arrays that successive calls on all rows share, because small graphs take thousands of calls."""
    room = rows.plan.get("room")
    if room is None:
        room = rows.plan["room"] = _new_room(longest_row(rows))
    return room


def _new_room(longest: int) -> tuple[Array, ...]:
    return *empty_table(longest), np.empty(longest, np.int32)


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


@called
def _propose(
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
    keys: Array,
    sums: Array,
    slots: Array,
) -> Any:
    """Fill `out` for rows start..stop-1; return the number of moves, and the added modularity in units of 2^-40.

    The last three arguments are work arrays for the longest row. The hash table (`keys`, `sums`) is empty before and
    after each call.
    """
    square = np.float64(two_m) * np.float64(two_m)
    nothing = two_m * 0
    moves, gained = 0, np.int64(0)
    for row in range(start, stop):
        v = first + row
        out[v] = -1
        if active[v] == 0:
            continue
        if classes > 1:
            h = mix(np.uint64(v) * np.uint64(GOLDEN) + np.uint64(salt))
            if np.int64(h >> np.uint64(33)) % classes != turn:
                continue
        a, d = labels[v], strength[v]
        best, to, own = best_label(
            starts[row], starts[row + 1], a, d, columns, weights, labels, totals, two_m, factor, keys, sums, slots
        )
        stay = score(two_m, factor, own, d, totals[a] - d)
        if to < 0 or best <= stay:
            best, to = stay, -1
        if totals[v] == 0 and nothing > best:
            best, to = nothing, v
        if to >= 0:
            out[v] = to
            moves += 1
            rise = np.rint(np.float64(best - stay) * 2.0 / square * 1099511627776.0)
            gained += np.int64(min(rise, MAX_RISE))
    return moves, gained


@compiled
def propose(
    start: int, stop: int, first: int, starts: Array, columns: Array, weights: Array, strength: Array, labels: Array,
    totals: Array, active: Array, two_m: Any, factor: Any, classes: int, turn: int, salt: int, out: Array, keys: Array,
    sums: Array, slots: Array,
) -> Any:  # fmt: skip
    """Call `_propose`; Python can call this function."""
    return _propose(
        start, stop, first, starts, columns, weights, strength, labels, totals, active, two_m, factor, classes, turn,
        salt, out, keys, sums, slots,
    )  # fmt: skip


@compiled
def sweep(
    rows: int, starts: Array, columns: Array, weights: Array, strength: Array, labels: Array, totals: Array,
    active: Array, two_m: Any, factor: Any, classes: int, salt: int, activated: Array, tally: Array, out: Array,
    keys: Array, sums: Array, slots: Array,
) -> None:  # fmt: skip
    """Do all turns of a sweep, for `sweep_alone`."""
    for turn in range(classes):
        moves, gained = _propose(
            0, rows, 0, starts, columns, weights, strength, labels, totals, active, two_m, factor, classes, turn, salt,
            out, keys, sums, slots,
        )  # fmt: skip
        if moves:
            _move(out, strength, labels, totals)
            _activate(0, rows, 0, starts, columns, out, labels, activated)
        tally[0] += moves
        tally[1] += gained


@inlined
def better(g: Any, b: Any, best: Any, to: Any) -> bool:
    """Return whether a community b with score g comes before the best so far; ties go to the lowest number."""
    return to < 0 or g > best or (g == best and b < to)


@inlined
def best_label(
    begin: int,
    end: int,
    a: int,
    d: Any,
    columns: Any,
    weights: Any,
    labels: Any,
    totals: Any,
    two_m: Any,
    factor: Any,
    keys: Any,
    sums: Any,
    slots: Any,
) -> Any:
    """Return the best score among the labels of a row other than its own label a, its label, and the weight to a.

    The hash table is empty before and after each call. It does not hold label a, which most neighbours have.
    """
    bits, k, own = table_bits(end - begin), 0, np.int64(0)
    for entry in range(begin, end):
        b = labels[unsigned(columns[entry])]
        if b == a:
            own += weight_of(weights, entry)
            continue
        slot = slot_of(keys, bits, b)
        if keys[slot] == EMPTY:
            keys[slot] = b
            slots[k] = slot
            k += 1
        sums[slot] += weight_of(weights, entry)
    best, to = two_m * 0, np.int64(-1)
    for i in range(k):
        slot = slots[i]
        b, g = keys[slot], score(two_m, factor, sums[slot], d, totals[unsigned(keys[slot])])
        if better(g, b, best, to):
            best, to = g, np.int64(b)
        keys[slot], sums[slot] = EMPTY, 0
    return best, to, own


@called
def _move(proposal: Array, strength: Array, labels: Array, totals: Array) -> None:
    """Move nodes and their strength to the proposed communities."""
    for v in range(len(proposal)):
        to = proposal[v]
        if to >= 0:
            totals[labels[v]] -= strength[v]
            totals[to] += strength[v]
            labels[v] = to


@called
def _activate(
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
def move(proposal: Array, strength: Array, labels: Array, totals: Array) -> None:
    """Call `_move`; Python can call this function."""
    _move(proposal, strength, labels, totals)


@compiled
def activate(
    start: int, stop: int, first: int, starts: Array, columns: Array, proposal: Array, labels: Array, active: Array
) -> None:
    """Call `_activate`; Python can call this function."""
    _activate(start, stop, first, starts, columns, proposal, labels, active)


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
