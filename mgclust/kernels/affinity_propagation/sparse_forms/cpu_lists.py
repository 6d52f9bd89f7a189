"""Functions that make, move and search the neighbour lists of message passing on the CPU; see `listed`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.affinity_propagation.similarities.cpu_similarities import noise_of, with_noise
from mgclust.kernels.affinity_propagation.sparse_forms.listed import ListedMessages
from mgclust.kernels.toolkit.cpu_compiler import compiled, inlined, signed
from mgclust.kernels.toolkit.simd import WIDTH, element, first_lane, lanes_of, load, splat
from mgclust.kernels.toolkit.simd_steps import at_least
from mgclust.kernels.toolkit.threads import rows_of_a_task, run_tasks

__all__ = [
    "count_similar",
    "gather_own",
    "list_similar",
    "move_lists",
    "move_own",
    "nearest_flagged",
    "place_own",
    "redraw_lists",
]

Array = Any
LONG = 320  # longer lists are sorted by NumPy


def count_similar(s: Array, low: Array, *, out: Array) -> None:
    flat, rows = s.reshape(-1), rows_of_a_task(s.shape[1])

    def task(index: int, _: int) -> None:
        count_row(flat, s.shape[1], index * rows, min((index + 1) * rows, len(s)), low, out)

    run_tasks(-(-len(s) // rows), task)


def list_similar(s: Array, low: Array, begin: Array, *, column: Array, out: Array) -> None:
    flat, rows = s.reshape(-1), rows_of_a_task(s.shape[1])

    def task(index: int, _: int) -> None:
        start, stop = index * rows, min((index + 1) * rows, len(s))
        counts = np.empty(stop - start, np.int64)
        fill_row(flat, s.shape[1], start, stop, low, begin, column, out, counts)
        for i in np.flatnonzero(counts > LONG):
            sort_list(column, out, slice(begin[start + i], begin[start + i] + counts[i]))

    run_tasks(-(-len(s) // rows), task)


def move_lists(messages: ListedMessages, begin: Array, *, values: Array, out: Array) -> None:
    behind = values.dtype.type(0 if values.dtype.kind == "i" else -np.inf)
    copy_lists(messages.begin, messages.length, values, begin, out, behind)


def move_own(rows: Array, begin: Array, to: Array, length: Array, own: Array, a: Array) -> None:
    copy_own(rows, begin, to, length, own, a)


def gather_own(messages: ListedMessages, rows: Array) -> tuple[Array, Array, Array]:
    counts = messages.own[rows]
    columns, values = np.empty(counts.sum(), np.int32), np.empty(counts.sum(), messages.a.dtype)
    take_own(rows, messages.begin, counts, messages.column, messages.a, columns, values)
    return counts, columns, values


def place_own(messages: ListedMessages, rows: Array, counts: Array, columns: Array, values: Array) -> None:
    m = messages
    put_own(
        rows, counts, columns, values, np.full(m.n, -1, np.int64), m.begin, m.length, m.own, m.column, m.a, m.a_column,
        m.recent_argmax, m.recent_place,
    )  # fmt: skip


def nearest_flagged(messages: ListedMessages, flags: Array, *, out: Array, out_s: Array) -> None:
    find_flagged(messages.begin, messages.length, messages.column, messages.s, flags, out, out_s)


def redraw_lists(messages: ListedMessages, numbers: Array, *, seed: int, draw: int, tiny: float) -> None:
    m, (eps, offset) = messages, noise_of(messages.s.dtype, tiny)
    rows = rows_of_a_task(WIDTH * max(1, len(m.s) // max(1, len(numbers))))

    def task(index: int, _: int) -> None:
        redraw_rows(
            index * rows, min((index + 1) * rows, len(numbers)), numbers, m.begin, m.length, m.own, m.column, m.s, m.a,
            m.a_column, m.recent_argmax, m.recent_place, m.recent_s, signed(seed), draw, eps, offset,
        )  # fmt: skip

    run_tasks(-(-len(numbers) // rows), task)


@compiled
def count_row(s: Any, width: int, start: int, stop: int, low: Any, out: Any) -> None:
    """Count the elements of rows start..stop-1 that are at least `low`; the padding of s is -inf."""
    for i in range(start, stop):
        count = 0
        for p in range(width // WIDTH):
            count += lanes_of(at_least(load(s, i * width + p * WIDTH), low[i]))
        out[i] = count


def sort_list(column: Array, s: Array, place: slice) -> None:
    """Sort a long list, whose columns ascend, with NumPy, which is faster for more than a few hundred elements."""
    for kind in (None, "stable"):  # the faster default may swap equal similarities; these are rare
        order = np.argsort(-s[place], kind=kind)
        values = s[place][order]
        if (values[1:] < values[:-1]).all():
            break
    s[place], column[place] = values, column[place][order]


@compiled
def fill_row(
    s: Any, width: int, start: int, stop: int, low: Any, begin: Any, column: Any, out: Any, counts: Any
) -> None:
    """Write the elements that `count_row` counts, in descending order; ties by ascending column.

    Lists are padded with -inf to a multiple of WIDTH. Lists of more than LONG elements stay in the order of columns.
    """
    for i in range(start, stop):
        at = begin[i]
        count = 0
        for p in range(width // WIDTH):
            near = at_least(load(s, i * width + p * WIDTH), low[i])
            while near:
                k = p * WIDTH + first_lane(near)
                near &= near - 1
                column[at + count] = k
                out[at + count] = s[i * width + k]
                count += 1
        for q in range(at + count, at + (count + WIDTH - 1) // WIDTH * WIDTH):
            column[q], out[q] = 0, out.dtype.type(-np.inf)
        counts[i - start] = count
        # Shell's sort with Ciura's gaps.
        gap = 132 if count <= LONG else 0
        while gap > 0:
            for q in range(gap, count):
                value, k = out[at + q], column[at + q]
                p = q - gap
                while p >= 0 and (out[at + p] < value or (out[at + p] == value and column[at + p] > k)):
                    out[at + p + gap], column[at + p + gap] = out[at + p], column[at + p]
                    p -= gap
                out[at + p + gap], column[at + p + gap] = value, k
            gap = (
                57 if gap == 132 else 23 if gap == 57 else 10 if gap == 23 else 4 if gap == 10 else
                1 if gap == 4 else 0
            )  # fmt: skip


@compiled
def copy_lists(begin: Any, length: Any, values: Any, to: Any, out: Any, behind: Any) -> None:
    """Copy one array of all lists, and pad each list with `behind` to a multiple of WIDTH."""
    for i in range(len(begin)):
        for q in range(length[i]):
            out[to[i] + q] = values[begin[i] + q]
        for q in range(length[i], (length[i] + WIDTH - 1) // WIDTH * WIDTH):
            out[to[i] + q] = behind


@compiled
def copy_own(rows: Any, begin: Any, to: Any, length: Any, own: Any, a: Any) -> None:
    """Copy A of some rows' own elements from the old starts of their lists to the new starts; pad them with -inf."""
    for t in range(len(rows)):
        for q in range(own[rows[t]]):
            a[to[t] + q] = a[begin[t] + q]
        for q in range(own[rows[t]], (length[t] + WIDTH - 1) // WIDTH * WIDTH):
            a[to[t] + q] = a.dtype.type(-np.inf)


@compiled
def take_own(rows: Any, begin: Any, counts: Any, column: Any, a: Any, columns: Any, values: Any) -> None:
    """Copy the columns and A of the own elements of some rows, row by row."""
    at = 0
    for t in range(len(rows)):
        for q in range(counts[t]):
            columns[at], values[at] = column[begin[rows[t]] + q], a[begin[rows[t]] + q]
            at += 1


@compiled
def put_own(
    rows: Any, counts: Any, columns: Any, values: Any, where: Any, begin: Any, length: Any, own: Any, column: Any,
    a: Any, a_column: Any, recent_argmax: Any, recent_place: Any,
) -> None:  # fmt: skip
    """Write A of own elements to the new lists of their rows; `columns` has the columns of the elements."""
    at = 0
    for t in range(len(rows)):
        i = rows[t]
        for p in range(at, at + counts[t]):
            where[columns[p]] = p
        left, q = counts[t], 0
        while left > 0 and q < length[i]:
            k = column[begin[i] + q]
            a[begin[i] + q] = a_column[k]
            if where[k] >= 0:
                a[begin[i] + q] = values[where[k]]
                left -= 1
            q += 1
        own[i] = q
        for p in range(at, at + counts[t]):
            where[columns[p]] = -1
        at += counts[t]
        h = 0
        while h < recent_argmax.shape[1] and recent_argmax[i, h] >= 0:
            recent_place[i, h] = -1
            for p in range(q):
                if column[begin[i] + p] == recent_argmax[i, h]:
                    recent_place[i, h] = p
                    a[begin[i] + p] = a.dtype.type(-np.inf)
            h += 1


@compiled
def find_flagged(begin: Any, length: Any, column: Any, s: Any, flags: Any, out: Any, out_s: Any) -> None:
    """Find the most similar flagged column (-1: none) of each row's list, and its similarity."""
    for i in range(len(begin)):
        out[i] = -1
        for q in range(begin[i], begin[i] + length[i]):
            if flags[column[q]]:
                out[i], out_s[i] = column[q], s[q]
                break


@inlined
def _noisy(value: Any, k: int, row: int, draw: int, seed: int, factor: Any, tiny: Any) -> Any:
    """Return a similarity with tie noise."""
    first = k // WIDTH * WIDTH
    return element(with_noise(splat(value), first, row, draw, seed, factor, tiny), k - first)


@compiled
def redraw_rows(
    start: int, stop: int, numbers: Any, begin: Any, length: Any, own: Any, column: Any, s: Any, a: Any, a_column: Any,
    recent_argmax: Any, recent_place: Any, recent_s: Any, seed: int, draw: int, eps: Any, offset: Any,
) -> None:  # fmt: skip
    """Add tie noise to lists and recent columns of rows start..stop-1; sort the lists together with their A."""
    factor, tiny, infinite = splat(eps), splat(offset), a.dtype.type(np.inf)
    for i in range(start, stop):
        at, end = begin[i], begin[i] + length[i]
        for h in range(recent_argmax.shape[1]):
            k = recent_argmax[i, h]
            if k < 0:
                continue
            recent_s[i, h] = _noisy(recent_s[i, h], k, numbers[i], draw, seed, factor, tiny)
            if recent_place[i, h] >= 0:
                a[at + recent_place[i, h]] = infinite  # marks the element as recent; A is never infinite
            recent_place[i, h] = -1
        for q in range(at, end):
            value = _noisy(s[q], column[q], numbers[i], draw, seed, factor, tiny)
            k, availability, p = column[q], a[q], q - 1
            while p >= at and (s[p] < value or (s[p] == value and column[p] > k)):
                s[p + 1], column[p + 1], a[p + 1] = s[p], column[p], a[p]
                p -= 1
            s[p + 1], column[p + 1], a[p + 1] = value, k, availability
        while end > at and a[end - 1] == -infinite:
            end -= 1
        own[i] = end - at
        for q in range(at, end):
            if abs(a[q]) == infinite:
                a[q] = a_column[column[q]]
                for h in range(recent_argmax.shape[1]):
                    if recent_argmax[i, h] == column[q]:
                        recent_place[i, h], a[q] = q - at, -infinite
