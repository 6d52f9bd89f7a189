"""Contraction of groups of nodes to a smaller graph, on the CPU: entries are summed by pairs of groups.

::

    groups                              list the rows of each group
    groups, by several threads          read the entries of its rows, and add up weights by the group of the other end
    all groups                          copy the threads' parts to consecutive places

The columns of a new row are in the order in which they were found, because sorting them takes as long as the sums, and
no function needs an order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency
from mgclust.kernels.graph.cpu_adjacency import (
    add_weight,
    first_place,
    new_places,
    parts_of,
    unsigned,
    weight_of,
    weights_or_none,
)
from mgclust.kernels.toolkit.cpu_compiler import called, compiled, inlined
from mgclust.kernels.toolkit.threads import run_tasks

__all__ = ["contract", "crossing_rows", "join_rows", "rows_of_edges", "sum_pairs"]

Array = Any
SHORT = 24  # up to this number of columns are sorted by insertion, and more by digits
RADIX = 8  # bits per digit


def rows_of_edges(edges: list[tuple[Array, Array, Array | None]], *, count: int, summed: bool = True) -> Adjacency:
    row, column = (np.concatenate([each[end] for each in edges for end in ends]) for ends in ((0, 1), (1, 0)))
    parts = [weight for _, _, weight in edges for _ in range(2) if weight is not None]
    weight = np.concatenate(parts) if parts else None
    if summed:
        return sum_pairs(row, column, weight, count=count, first=0, stop=count)
    starts, columns, moved = _sorted_by_row(row, column, weights_or_none(weight), 0, count)
    return Adjacency(0, starts, columns, None if weight is None else moved)


def join_rows(lengths: Array, columns: Array, weights: Array | None, *, count: int, first: int, rows: int) -> Adjacency:
    numbers = np.arange(first, first + rows, dtype=np.int32)
    row = np.repeat(np.tile(numbers, len(lengths) // max(rows, 1)), lengths)
    return sum_pairs(row, columns, weights, count=count, first=first, stop=first + rows)


def sum_pairs(row: Array, column: Array, weight: Array | None, *, count: int, first: int, stop: int) -> Adjacency:
    """Return rows first .. stop - 1 of pairs in any order: equal pairs are summed, and loops are dropped."""
    starts, columns, moved = _sorted_by_row(row, column, weights_or_none(weight), first, stop)
    sums = moved if len(moved) else np.empty(len(columns), moved.dtype)
    longest = int(np.diff(starts).max(initial=1))

    def fold(begin: int, end: int, lengths: Array, places: Array) -> int:
        work = np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(1 << RADIX, np.int64)
        return fold_rows(begin, end, first, count, starts, columns, moved, sums, lengths, places, *work)

    lengths = _in_parts(starts, count, longest, fold, columns, sums)
    alike = weight is None and (not len(sums) or sums.max() == 1)
    return Adjacency(first, _starts(lengths), columns, None if alike else sums)


def contract(
    rows: Adjacency,
    ids: Array,
    *,
    count: int,
    groups: Array | None = None,
    first: int = 0,
    stop: int | None = None,
) -> Adjacency:
    weights = weights_or_none(rows.weights)
    if groups is None:
        groups = ids[rows.first : rows.first + rows.rows]
    wanted = (count if stop is None else stop) - first
    members, first_member = np.empty(rows.rows, np.int32), np.zeros(wanted + 1, np.int64)
    room = np.zeros(wanted + 1, np.int64)  # where the entries of a group begin if all of them are kept
    longest = list_members(groups, first, rows.starts, members, first_member, room)
    columns, sums = np.empty(room[-1], np.int32), np.empty(room[-1], weights.dtype)

    def merge(begin: int, end: int, lengths: Array, places: Array) -> int:
        return merge_rows(
            begin, end, first, rows.starts, rows.columns, weights, ids, members, first_member, int(room[begin]),
            columns, sums, lengths, places,
        )  # fmt: skip

    lengths = _in_parts(room, count, longest, merge, columns, sums)
    return Adjacency(first, _starts(lengths), columns, sums)


def crossing_rows(rows: Adjacency, ids: Array, *, first: int, stop: int) -> tuple[Array, Array, Array | None]:
    groups = ids[rows.first : rows.first + rows.rows]
    listed = np.flatnonzero((groups >= first) & (groups < stop))
    room = _starts(np.diff(rows.starts)[listed])
    columns = np.empty(room[-1], np.int32)
    weights = None if rows.weights is None else np.empty(room[-1], rows.weights.dtype)

    def copy(begin: int, end: int, lengths: Array, _: Array) -> int:
        return copy_crossing(
            begin, end, listed, rows.starts, rows.columns, weights_or_none(rows.weights), groups, ids,
            int(room[begin]), columns, weights_or_none(weights), lengths,
        )  # fmt: skip

    arrays = [columns] if weights is None else [columns, weights]
    return _in_parts(room, 1, 1, copy, *arrays), columns, weights


def _sorted_by_row(row: Array, column: Array, weights: Array, first: int, stop: int) -> tuple[Array, Array, Array]:
    """Return starts, columns and weights of rows first .. stop - 1."""
    starts = np.zeros(stop - first + 1, np.int64)
    columns, moved = np.empty(len(row), np.int32), np.empty(len(weights), weights.dtype)
    sort_by_row(row, column, weights, first, starts, columns, moved)
    return starts, columns, moved


def _starts(lengths: Array) -> Array:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _in_parts(
    starts: Array,
    keys: int,
    longest: int,
    write: Callable[[int, int, Array, Array], int],
    *arrays: Array,
) -> Array:
    """Call `write` for parts of the rows, close the gaps between the parts, and return the lengths of the rows.

    ``write(begin, end, lengths, places)`` writes the entries of rows begin..end-1 to `arrays`, without gaps from
    ``starts[begin]`` on, and returns their number. The keys are below `keys`, and the longest row has `longest` entries
    before equal keys are summed.
    """
    lengths = np.empty(len(starts) - 1, np.int32)
    longest = min(keys, longest)
    parts = parts_of(starts)
    written = np.zeros(len(parts), np.int64)
    places: dict[int, Array] = {}  # a table for each thread

    def task(index: int, thread: int) -> None:
        if thread not in places:
            places[thread] = new_places(keys, longest)
        written[index + 1] = write(parts[index], parts[index + 1], lengths, places[thread])

    run_tasks(len(parts) - 1, task)
    ends = written.cumsum()
    for index in range(1, len(parts) - 1):
        begin, end, gap = ends[index], ends[index + 1], starts[parts[index]] - ends[index]
        for array in arrays:
            array[begin:end] = array[begin + gap : end + gap]
    total = int(ends[-1])
    for array in arrays:
        array.resize(total, refcheck=False)
    return lengths


@compiled
def sort_by_row(
    row: Array, column: Array, weights: Array, first: int, starts: Array, columns: Array, moved: Array
) -> None:
    """Sort pairs by row with a counting sort: fill `starts`, which is 0 before, `columns` and `moved`."""
    for i in range(len(row)):
        starts[row[i] - first] += 1
    at = 0
    for r in range(len(starts)):
        length = starts[r]
        starts[r] = at
        at += length
    for i in range(len(row)):
        at = starts[row[i] - first]
        starts[row[i] - first] = at + 1
        columns[at] = column[i]
        if len(weights):
            moved[at] = weights[i]
    _ends_to_starts(starts)


@compiled
def list_members(groups: Array, first: int, starts: Array, members: Array, first_member: Array, room: Array) -> int:
    """List the rows by group in `members`; fill `first_member` and `room`, which are 0 before, from each group's start.

    The groups are numbered from `first` on, and rows of other groups are not listed. `room` counts the entries of a
    group's rows. Return the largest number of entries of a group, at least 1.
    """
    longest = 1
    for row in range(len(members)):
        i = groups[row] - first
        if 0 <= i < len(room) - 1:
            first_member[i + 1] += 1
            room[i + 1] += starts[row + 1] - starts[row]
    for i in range(1, len(room)):
        longest = max(longest, room[i])
        first_member[i] += first_member[i - 1]
        room[i] += room[i - 1]
    for row in range(len(members)):
        i = groups[row] - first
        if 0 <= i < len(room) - 1:
            members[first_member[i]] = row
            first_member[i] += 1
    _ends_to_starts(first_member)
    return longest


@inlined
def _ends_to_starts(starts: Array) -> None:
    """Replace the end of each row by its start, which is the end of the row before it."""
    for i in range(len(starts) - 1, 0, -1):
        starts[i] = starts[i - 1]
    starts[0] = 0


@compiled
def merge_rows(
    begin: int,
    end: int,
    first: int,
    starts: Array,
    columns: Array,
    weights: Array,
    ids: Array,
    members: Array,
    first_member: Array,
    at: int,
    found: Array,
    sums: Array,
    lengths: Array,
    places: Array,
) -> int:
    """Write the sums of groups first + begin .. first + end - 1 from place `at` on; return the number of sums."""
    begun = at
    for i in range(begin, end):
        entries = 0
        for j in range(first_member[i], first_member[i + 1]):
            entries += starts[members[j] + 1] - starts[members[j]]
        place, k = first_place(places, entries), 0
        for j in range(first_member[i], first_member[i + 1]):
            row = members[j]
            for entry in range(starts[row], starts[row + 1]):
                key = ids[unsigned(columns[entry])]
                if key != first + i:
                    k = add_weight(key, weight_of(weights, entry), places, place, found, sums, at, k)
        places[len(places) - 1] = place + k
        lengths[i] = k
        at += k
    return at - begun


@compiled
def copy_crossing(
    begin: int,
    end: int,
    listed: Array,
    starts: Array,
    columns: Array,
    weights: Array,
    groups: Array,
    ids: Array,
    at: int,
    out: Array,
    out_weights: Array,
    lengths: Array,
) -> int:
    """Copy entries of listed rows begin..end-1 to other groups, into `out` from place `at` on; return their number."""
    begun = at
    for i in range(begin, end):
        row, before = listed[i], at
        for entry in range(starts[row], starts[row + 1]):
            if ids[unsigned(columns[entry])] != groups[row]:
                out[at] = columns[entry]
                if len(weights):
                    out_weights[at] = weights[entry]
                at += 1
        lengths[i] = at - before
    return at - begun


@compiled
def fold_rows(
    begin: int,
    end: int,
    first: int,
    count: int,
    starts: Array,
    columns: Array,
    weights: Array,
    sums: Array,
    lengths: Array,
    places: Array,
    order: Array,
    spare: Array,
    ends: Array,
) -> int:
    """Sort rows begin..end-1 and add up equal columns, in place; return the number of entries that are left.

    The entries are packed from ``starts[begin]`` on. The last three arguments are work arrays for the longest of the
    rows. The rows are numbered from `first` on, and their columns are less than `count`.
    """
    at = starts[begin]
    for row in range(begin, end):
        place, k = first_place(places, starts[row + 1] - starts[row]), 0
        for entry in range(starts[row], starts[row + 1]):
            key, weight = columns[entry], weight_of(weights, entry)
            if key != first + row:
                k = add_weight(key, weight, places, place, columns, sums, at, k)
        places[len(places) - 1] = place + k
        for i in range(k):
            order[i] = np.int64(columns[at + i]) << 32 | i
        if k > SHORT:
            sort_digits(order, spare, ends, k, count)
        else:
            insert_all(order, k)
        for i in range(k):
            spare[i] = sums[at + (order[i] & 0xFFFFFFFF)]
        for i in range(k):
            columns[at + i], sums[at + i] = order[i] >> 32, spare[i]
        at += k
        lengths[row] = k
    return at - starts[begin]


@inlined
def insert_all(found: Array, k: int) -> None:
    """Sort the first k elements by insertion, because they are often nearly sorted."""
    for i in range(1, k):
        value = found[i]
        j = i
        while j > 0 and found[j - 1] > value:
            found[j] = found[j - 1]
            j -= 1
        found[j] = value


@called
def sort_digits(found: Array, spare: Array, ends: Array, k: int, count: int) -> None:
    """Sort the first k elements by their upper halves, digit by digit from the lowest digit."""
    shift, mask = 32, (1 << RADIX) - 1
    while (count - 1) >> (shift - 32):
        ends[:] = 0
        for i in range(k):
            ends[found[i] >> shift & mask] += 1
        total = 0
        for digit in range(1 << RADIX):
            total += ends[digit]
            ends[digit] = total
        for i in range(k - 1, -1, -1):
            digit = found[i] >> shift & mask
            ends[digit] -= 1
            spare[ends[digit]] = found[i]
        for i in range(k):
            found[i] = spare[i]
        shift += RADIX
