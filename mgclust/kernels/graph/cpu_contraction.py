"""Contraction of groups of nodes to a smaller graph, on the CPU: entries are summed by pairs of groups.

::

    local rows, by several threads      count the entries that leave the row's group
    local rows in the order of groups   compute each row's place, after the other rows of its group
    local rows, by several threads      write the counted entries to the row's place: groups of their ends, weights
    new rows, by several threads        add up equal columns in a small hash table, then sort the columns
    all new rows                        copy the threads' parts to consecutive places

If communities are good, few entries leave their group, so most need only the first step. Everything except the hash
table is read sequentially.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency
from mgclust.kernels.graph.cpu_adjacency import (
    EMPTY,
    each_part,
    empty_table,
    parts_of,
    slot_of,
    table_bits,
    weight_of,
    weights_or_none,
)
from mgclust.kernels.toolkit.cpu_compiler import called, compiled, inlined
from mgclust.kernels.toolkit.threads import run_tasks

__all__ = ["ascending", "contract", "rows_of_edges", "sum_pairs"]

Array = Any
SHORT = 24  # up to this number of columns are sorted by insertion, and more by digits
RADIX = 8  # bits per digit


def rows_of_edges(edges: list[tuple[Array, Array, Array | None]], *, count: int) -> Adjacency:
    row, column = (np.concatenate([each[end] for each in edges for end in ends]) for ends in ((0, 1), (1, 0)))
    weights = [weight for _, _, weight in edges for _ in range(2) if weight is not None]
    return sum_pairs(row, column, np.concatenate(weights) if weights else None, count=count, first=0, stop=count)


def sum_pairs(row: Array, column: Array, weight: Array | None, *, count: int, first: int, stop: int) -> Adjacency:
    """Return the rows first .. stop - 1 of pairs in any order; equal pairs become one, and loops are dropped."""
    weights = weights_or_none(weight)
    starts = np.zeros(stop - first + 1, np.int64)
    columns, moved = np.empty(len(row), np.int32), np.empty(len(weights), weights.dtype)
    sort_by_row(row, column, weights, first, starts, columns, moved)
    rows = _fold(first, count, starts, columns, moved)
    if weight is None and (not rows.entries or rows.weights.max() == 1):
        rows.weights = None
    return rows


def contract(rows: Adjacency, ids: Array, *, count: int) -> Adjacency:
    weights = weights_or_none(rows.weights)
    places, starts = np.empty(rows.rows, np.int64), np.zeros(count + 1, np.int64)
    each_part(rows, lambda start, stop: leaving(start, stop, rows.first, rows.starts, rows.columns, ids, places))
    arrange(ids, rows.first, places, starts)
    kept = int(starts[count])
    columns, moved = np.empty(kept, np.int32), np.empty(min(kept, len(weights)), weights.dtype)

    def body(start: int, stop: int) -> None:
        leave(start, stop, rows.first, rows.starts, rows.columns, weights, ids, places, columns, moved)

    each_part(rows, body)
    return _fold(0, count, starts, columns, moved)


def ascending(rows: Adjacency) -> Adjacency:
    return rows


def _fold(first: int, count: int, starts: Array, columns: Array, weights: Array) -> Adjacency:
    """Add up equal columns of each row, and close the gaps, in place: fresh memory takes more time than the sums.

    The rows are numbered from `first` on, and their columns are less than `count`.
    """
    sums = weights if len(weights) else np.empty(len(columns), weights.dtype)
    lengths = np.empty(len(starts) - 1, np.int32)
    parts = parts_of(starts)
    written = np.zeros(len(parts), np.int64)

    def add_up(index: int, _: int) -> None:
        begin, end = parts[index], parts[index + 1]
        longest = max(1, int((starts[begin + 1 : end + 1] - starts[begin:end]).max(initial=0)))
        keys, table = empty_table(longest)
        found, spare, ends = (np.empty(size, np.int64) for size in (longest, longest, 1 << RADIX))
        room = keys, table, found, spare, ends
        written[index + 1] = fold(begin, end, first, count, starts, columns, weights, sums, lengths, *room)

    run_tasks(len(parts) - 1, add_up)
    ends = written.cumsum()
    for index in range(1, len(parts) - 1):
        begin, end, gap = ends[index], ends[index + 1], starts[parts[index]] - ends[index]
        for array in (columns, sums):
            array[begin:end] = array[begin + gap : end + gap]
    total = int(ends[-1])
    columns.resize(total, refcheck=False)
    sums.resize(total, refcheck=False)
    starts[0] = 0
    np.cumsum(lengths, out=starts[1:])
    return Adjacency(first, starts, columns, sums)


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
def leaving(start: int, stop: int, first: int, starts: Array, columns: Array, ids: Array, counts: Array) -> None:
    """Count the entries of rows start..stop-1 that leave the group."""
    for row in range(start, stop):
        own, count = ids[first + row], 0
        for entry in range(starts[row], starts[row + 1]):
            count += ids[columns[entry]] != own
        counts[row] = count


@compiled
def arrange(ids: Array, first: int, places: Array, starts: Array) -> None:
    """Replace each row's count by its place in the order of groups; fill `starts`, which is 0 before."""
    for row in range(len(places)):
        starts[ids[first + row]] += places[row]
    at = 0
    for i in range(len(starts)):
        length = starts[i]
        starts[i] = at
        at += length
    for row in range(len(places)):
        i = ids[first + row]
        at = starts[i]
        starts[i] += places[row]
        places[row] = at
    _ends_to_starts(starts)


@inlined
def _ends_to_starts(starts: Array) -> None:
    """Replace the end of each row by its start, which is the end of the row before it."""
    for i in range(len(starts) - 1, 0, -1):
        starts[i] = starts[i - 1]
    starts[0] = 0


@compiled
def leave(
    start: int,
    stop: int,
    first: int,
    starts: Array,
    columns: Array,
    weights: Array,
    ids: Array,
    places: Array,
    kept: Array,
    moved: Array,
) -> None:
    """Write, to the rows' places, those entries of rows start..stop-1 that leave their group."""
    for row in range(start, stop):
        own, at = ids[first + row], places[row]
        for entry in range(starts[row], starts[row + 1]):
            i = ids[columns[entry]]
            if i != own:
                kept[at] = i
                if len(weights):
                    moved[at] = weights[entry]
                at += 1


@compiled
def fold(
    begin: int,
    end: int,
    first: int,
    count: int,
    starts: Array,
    columns: Array,
    weights: Array,
    sums: Array,
    lengths: Array,
    keys: Array,
    table: Array,
    found: Array,
    spare: Array,
    ends: Array,
) -> int:
    """Sort rows begin..end-1 and add up equal columns, in place; return the number of entries that are left.

    The entries are packed from ``starts[begin]`` on. The last five arguments are work arrays for the longest of the
    rows; the hash table (`keys`, `table`) is empty before and after.
    """
    at = starts[begin]
    for row in range(begin, end):
        start, k = starts[row], starts[row + 1] - starts[row]
        k = sum_columns(first + row, start, k, columns, weights, keys, table, found)
        if k > SHORT:
            sort_digits(found, spare, ends, k, count)
        else:
            insert_all(found, k)
        for i in range(k):
            slot = found[i] & 0xFFFFFFFF
            columns[at + i], sums[at + i] = found[i] >> 32, table[slot]
            keys[slot], table[slot] = EMPTY, 0
        at += k
        lengths[row] = k
    return at - starts[begin]


@inlined
def sum_columns(row: int, first: int, k: int, columns: Any, weights: Any, keys: Any, table: Any, found: Any) -> int:
    """Add up equal columns of a row, except for the row's own number; return the number of distinct columns.

    For each column, ``column << 32 | slot`` is written to `found`; this slot of the table has the column's sum.
    """
    bits, kept = table_bits(k), 0
    for i in range(first, first + k):
        key = columns[i]
        if key == row:
            continue
        slot = slot_of(keys, bits, key)
        if keys[slot] == EMPTY:
            keys[slot] = key
            found[kept] = np.int64(key) << 32 | slot
            kept += 1
        table[slot] += weight_of(weights, i)
    return kept


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
