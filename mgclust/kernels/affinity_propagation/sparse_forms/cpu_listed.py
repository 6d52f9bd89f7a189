"""Message passing with neighbour lists, on the CPU; `listed` describes the method, and why it is exact.

`cpu_lists` makes and moves the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mgclust.kernels.affinity_propagation.cpu_messages import pass_columns
from mgclust.kernels.affinity_propagation.messages import Iteration
from mgclust.kernels.affinity_propagation.similarities.cpu_similarities import (
    jitter_lists,
    jitter_pairs,
    similarities_of_columns,
    similarities_of_rows,
)
from mgclust.kernels.affinity_propagation.sparse_forms.cpu_lists import (
    count_similar,
    gather_own,
    list_similar,
    move_lists,
    move_own,
    nearest_flagged,
    place_own,
    redraw_lists,
)
from mgclust.kernels.affinity_propagation.sparse_forms.cpu_recent_columns import (
    Diagonals,
    Numbers,
    Recent,
    damp_recent,
    diagonals_of,
    enter,
    finish_recent,
    place_of,
    recent_of,
    renew_diagonal,
)
from mgclust.kernels.affinity_propagation.sparse_forms.listed import ListedMessages, Step
from mgclust.kernels.toolkit.cpu_compiler import compiled, inlined
from mgclust.kernels.toolkit.simd import (
    WIDTH,
    add,
    element,
    first_lane,
    lanes_of,
    load,
    multiply,
    splat,
    store,
)
from mgclust.kernels.toolkit.simd_steps import (
    at_least,
    fixed,
    fma,
    gather,
    greater,
    lanes_above,
    largest,
    lesser,
    negative_part,
    positive_part,
    prefetch,
    scatter_fixed,
    second_largest,
    subtract,
    zero_unless,
)
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

__all__ = [
    "count_similar",
    "gather_own",
    "jitter_lists",
    "jitter_pairs",
    "list_similar",
    "move_lists",
    "move_own",
    "nearest_flagged",
    "pass_listed_iterations",
    "pass_listed_rows",
    "place_own",
    "redraw_lists",
    "similarities_of_columns",
    "similarities_of_rows",
]

Array = Any
MIN_ROWS = 64  # minimum number of rows per task
TASKS = 4  # maximum number of tasks per thread
FAR = 2 * WIDTH  # if the last pass read more elements after the own elements, active columns are read first
AHEAD = 4  # lists are prefetched this many rows ahead, because they may be anywhere in memory
FEW = 8  # if there are at most this number of own elements, processing them one by one is faster
PER_ROW = 64  # fixed cost of a row, as the number of elements that take the same time
MIN_WORK = 3 << 15  # minimum number of elements per thread; with fewer, waking a thread costs more than it saves


class ListArrays(NamedTuple):
    """The arrays of `ListedMessages` for lists and for the state of each row."""

    begin: Array
    length: Array
    own: Array
    floor: Array
    column: Array
    s: Array
    a: Array
    a_column: Array
    wanted: Array
    slack: Array
    read: Array
    undecided: Array


class Active(NamedTuple):
    """Active columns, and their order by decreasing a(k)."""

    column: Array
    s: Array
    order: Array
    values: Array  # a(k), decreasing
    outside: Any  # the largest a(k) of the other columns


class Pass(NamedTuple):
    """Arguments of passes over rows; they are valid as long as the messages keep the same arrays."""

    rows: Array
    lists: ListArrays
    recent: Recent
    diagonals: Diagonals
    outside: Array  # mask of the columns that are not active
    threads: int
    size: int  # rows per task


def pass_listed_iterations(
    messages: ListedMessages, steps: Sequence[Step], *, passed: bool, meet: Callable[[], None]
) -> None:
    prepared = _prepared(messages, np.arange(len(messages.begin)))
    for slot, numbers in steps:
        if not passed and not messages.progress[0]:
            _pass_rows(messages, prepared, numbers)
        passed = False
        meet()
        pass_columns(messages, damping=numbers.next_damping, scale=numbers.scale, slot=slot)
        if is_halted(messages):
            break


def is_halted(messages: ListedMessages) -> bool:
    """Return whether an iteration has undecided rows, so that later calls do nothing."""
    return bool(messages.progress[0])


def pass_listed_rows(messages: ListedMessages, rows: Array, numbers: Iteration, *, again: bool) -> None:
    if again:
        numbers = numbers._replace(damping=1.0)  # A does not change
    if again or not messages.progress[0]:
        _pass_rows(messages, _prepared(messages, rows), numbers)


def _prepared(messages: ListedMessages, rows: Array) -> Pass:
    m = len(rows)
    work = PER_ROW * m + int(messages.own.sum() + np.maximum(messages.read, 0).sum())
    threads = max(1, min(thread_count(), work // MIN_WORK))
    # Calling the loop takes as long as processing a few thousand elements, so the number of calls depends on the work.
    size = max(MIN_ROWS, -(-m // min(TASKS * threads, work // MIN_WORK))) if threads > 1 else max(m, 1)
    lists = ListArrays(*(getattr(messages, name) for name in ListArrays._fields))
    outside = np.ones(messages.n, bool)
    outside[messages.active] = False
    return Pass(
        rows, lists, recent_of(messages), diagonals_of(messages), outside, max(1, min(threads, -(-m // size))), size
    )


def _pass_rows(messages: ListedMessages, prepared: Pass, numbers: Iteration) -> None:
    real, n, rows, threads, size = messages.s.dtype.type, messages.n, prepared.rows, prepared.threads, prepared.size
    x = Numbers.of(numbers, real)
    if numbers.damping < 1.0:
        finish_availability(messages.c, messages.a_column, x.damping, x.rest)
    values = messages.a_column[messages.active]
    order = np.argsort(-values)
    most_outside = messages.a_column[prepared.outside].max(initial=-np.inf) if len(order) else real(-np.inf)
    active = Active(messages.active, messages.active_s, order, values[order], most_outside)
    sums, most = np.zeros((threads, n), np.int64), np.zeros(threads, np.int64)

    def task(index: int, thread: int) -> None:
        filled = sweep_lists(
            rows[index * size : (index + 1) * size], messages.first_row, prepared.lists, active, messages.c, messages.u,
            prepared.recent, prepared.diagonals, x, sums[thread],
        )  # fmt: skip
        most[thread] = max(most[thread], filled)

    run_tasks(-(-len(rows) // size), task, threads)
    messages.sums[:n] += sums.sum(axis=0) if threads > 1 else sums[0]
    messages.sums[2 * n] += np.count_nonzero(messages.undecided[rows])
    messages.recent_most[0] = max(messages.recent_most[0], most.max())


@compiled
def finish_availability(c: Any, a_column: Any, damping: Any, rest: Any) -> None:
    """Update a(k), which is A of a column in all rows whose R was never positive."""
    zero = a_column.dtype.type(0)
    for k in range(len(a_column)):
        a_column[k] = fma(damping, a_column[k], rest * min(zero, c[k]))


@inlined
def _finish(
    i: int, at: int, own: int, c: Any, u: Any, lists: Any, recent: Any, x: Any, m1: Any, j: int, m2: Any
) -> Any:
    """Update A of a row's recent places and own elements; return the two largest of A + S among them, and S at j."""
    column, s, a = lists.column, lists.s, lists.a
    zero, similarity = s.dtype.type(0), s.dtype.type(-np.inf)
    m1, j, m2 = finish_recent(i, recent, c, u, x, m1, j, m2)
    if own - at <= FEW:
        for q in range(at, own):
            k = column[q]
            r = max(zero, fma(x.sigma, s[q], -u))
            a[q] = fma(x.damping, a[q], x.rest * min(zero, c[k] - r))
            m1, j, m2 = enter(m1, j, m2, a[q] + s[q], k)
            if j == k:
                similarity = s[q]
        return m1, j, m2, similarity
    sigmas, minus_u, dampings, rests = splat(x.sigma), splat(-u), splat(x.damping), splat(x.rest)
    firsts, seconds = splat(similarity), splat(similarity)
    for q in range(at, own, WIDTH):
        near_s = load(s, q)
        r = positive_part(fma(sigmas, near_s, minus_u))
        step = multiply(rests, negative_part(subtract(gather(c, column, q), r)))
        availability = fma(dampings, load(a, q), step)
        store(a, q, availability)
        value = add(availability, near_s)
        seconds = greater(seconds, lesser(firsts, value))
        firsts = greater(firsts, value)
    top = largest(firsts)
    if top < m1:
        return m1, j, max(m2, top), similarity
    # Only now find j, the lowest column with the largest value.
    m2 = max(m1, second_largest(firsts, seconds))
    if top > m1:
        j = len(c)
    for q in range(at, own, WIDTH):
        near = at_least(add(load(a, q), load(s, q)), top)
        while near:
            lane = first_lane(near)
            near &= near - 1
            if column[q + lane] < j:
                j, similarity = column[q + lane], s[q + lane]
    return top, j, m2, similarity


@inlined
def _look(
    i: int, at: int, own: int, stop: int, lists: Any, active: Any, recent_argmax: Any, m1: Any, j: int, m2: Any,
    similarity: Any,
) -> Any:  # fmt: skip
    """Return the two largest of A + S including all other elements, and whether lists or active columns decide them.

    Active columns are read first if the last pass read far into the list, or if active columns decided in the last
    pass. Otherwise they are read only if the list does not decide.
    """
    column, s, a_column, floor = lists.column, lists.s, lists.a_column, lists.floor[i]
    order, values = active.order, active.values
    lowest = s.dtype.type(-np.inf)
    top = s[own] if own < stop else floor  # upper bound of the similarities of all other elements
    before, reached = (m1, j, m2, similarity), m2
    by_active = len(order) > 0 and (lists.read[i] < 0 or lists.read[i] > FAR)
    by_list = not by_active
    while True:
        if by_list:
            first = at + (own - at) // WIDTH * WIDTH
            skipped = own - first  # lanes of own elements
            q = first
            while q < stop and s[max(q, own)] >= m2:
                value = add(gather(a_column, column, q), load(s, q))
                near = at_least(value, m2) >> skipped << skipped
                while near:
                    lane = first_lane(near)
                    k = column[q + lane]
                    if q + lane < stop and place_of(i, k, recent_argmax) < 0:
                        m1, j, m2 = enter(m1, j, m2, element(value, lane), k)
                        if j == k:
                            similarity = s[q + lane]
                    near &= (near - 1) & at_least(value, m2)
                skipped = 0
                q += WIDTH
                if max(q, own) >= stop:
                    break
            lists.read[i] = max(q - own, 0)
            decided = floor <= m2
        else:
            last, last_column = (s[own - 1], column[own - 1]) if own > at else (lowest, -1)
            for p in range(len(order)):
                if values[p] + top < m2:
                    break
                k, own_s = active.column[order[p]], active.s[i, order[p]]
                value = values[p] + own_s
                behind = own == at or own_s < last or (own_s == last and k > last_column)
                if value >= m2 and behind and place_of(i, k, recent_argmax) < 0:
                    m1, j, m2 = enter(m1, j, m2, value, k)
                    if j == k:
                        similarity = own_s
            lists.read[i] = -1
            decided = active.outside + top < m2
        reached = max(reached, m2)  # lower bound of the second largest value
        if decided or by_list == by_active or len(order) == 0:
            lists.slack[i] = reached - top
            return m1, j, m2, similarity, reached, decided
        m1, j, m2, similarity = before  # undo the first way; otherwise the same elements would count twice
        by_list = not by_list


@inlined
def _own_place(at: int, own: int, j: int, column: Any) -> int:
    """Return the position of a column among a row's own elements, or -1."""
    for q in range(at, own):
        if column[q] == j:
            return q - at
    return -1


@inlined
def _add(i: int, at: int, own: int, stop: int, u: Any, lists: Any, recent: Any, x: Any, sums: Any) -> int:
    """Add the positive R of a row to the sums; return the new number of own elements."""
    column, s, a, a_column, recent_argmax = lists.column, lists.s, lists.a, lists.a_column, recent.column
    zero, lowest = s.dtype.type(0), s.dtype.type(-np.inf)
    h = 0
    while h < recent_argmax.shape[1] and recent_argmax[i, h] >= 0:
        r = fma(x.next_sigma, recent.s[i, h], -u) - recent.e[i, h]
        if r > zero:
            sums[recent_argmax[i, h]] += fixed(r, x.scale)
        h += 1
    sigmas, minus_u = splat(x.next_sigma), splat(-u)
    q, end = at, False
    while not end and q < own:
        r = fma(sigmas, load(s, q), minus_u)
        positive = lanes_above(r, zero)
        if lanes_of(positive) > own - q:
            break  # some of these elements come after the own elements
        end = lanes_of(positive) < WIDTH
        if positive:
            scatter_fixed(sums, column, q, zero_unless(positive & lanes_above(load(a, q), lowest), r), x.scale)
        q += lanes_of(positive)
    while not end and q < stop:
        r = fma(x.next_sigma, s[q], -u)
        if not r > zero:
            break
        k = column[q]
        if q >= own:
            a[q] = a_column[k]
            h = place_of(i, k, recent_argmax)
            if h >= 0:
                a[q], recent.place[i, h] = lowest, q - at
        if a[q] > lowest:
            sums[k] += fixed(r, x.scale)
        q += 1
    own = max(own, q)
    while own > q:
        k = column[own - 1]
        if a[own - 1] == lowest:
            h = place_of(i, k, recent_argmax)
            if h < 0:
                break
            recent.place[i, h] = -1
        elif a[own - 1] != a_column[k]:
            break
        own -= 1
        a[own] = lowest
    return own - at


@compiled
def sweep_lists(
    rows: Any, first_row: int, lists: ListArrays, active: Active, c: Any, u: Any, recent: Recent, diagonals: Diagonals,
    x: Numbers, sums: Any,
) -> int:  # fmt: skip
    """Do `pass_listed_rows` for some rows; return the largest number of recent places that a row fills."""
    begin, column, s, a = lists.begin, lists.column, lists.s, lists.a
    real = s.dtype.type
    zero = real(0)
    most = 0
    for t in range(len(rows)):
        i = rows[t]
        if t + AHEAD < len(rows):
            later = begin[rows[t + AHEAD]]
            for q in range(later, later + WIDTH, 64 // s.itemsize):
                prefetch(column, q)
                prefetch(s, q)
                prefetch(a, q)
        g, at, end, stop = first_row + i, begin[i], begin[i] + lists.own[i], begin[i] + lists.length[i]
        m1, j, m2 = real(diagonals.a[g] + diagonals.preference[g]), g, real(-np.inf)
        m1, j, m2, similarity = _finish(i, at, end, c, real(u[i]), lists, recent, x, m1, j, m2)
        m1, j, m2, similarity, reached, decided = _look(
            i, at, end, stop, lists, active, recent.column, m1, j, m2, similarity
        )
        next_u = x.next_damping * u[i] + (1.0 - x.next_damping) * m1
        lists.undecided[i] = 0
        if not decided or fma(x.next_sigma, lists.floor[i], -real(next_u)) > zero:
            lists.undecided[i] = 2 if decided else 1
            reach = real(next_u) / x.next_sigma
            lists.wanted[i] = reach if decided else min(reached, reach)
            continue
        u[i] = next_u
        step = real(1.0 - x.next_damping) * (m2 - m1)
        own = j if j != g else -1
        place = _own_place(at, end, own, column) if own >= 0 and place_of(i, own, recent.column) < 0 else -1
        filled = damp_recent(i, at, recent, a, lists.a_column, True, real(next_u), x, own, place, similarity, step)
        most = max(most, filled)
        renew_diagonal(diagonals, g, x, m1 if j != g else m2)
        lists.own[i] = _add(i, at, end, stop, real(next_u), lists, recent, x, sums)
    return most
