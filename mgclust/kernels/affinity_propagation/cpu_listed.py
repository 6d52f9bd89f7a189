"""Message passing on neighbour lists, on the CPU. The equations, and why this is exact: `listed`.

`cpu_lists` makes and moves the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mgclust.kernels.affinity_propagation.cpu_lists import (
    count_similar,
    gather_own,
    list_similar,
    move_lists,
    move_own,
    nearest_flagged,
    place_own,
    redraw_lists,
)
from mgclust.kernels.affinity_propagation.cpu_messages import enter, pass_columns
from mgclust.kernels.affinity_propagation.cpu_similarities import (
    jitter_lists,
    jitter_pairs,
    jitter_rows,
    similarities_of_columns,
    similarities_of_rows,
)
from mgclust.kernels.affinity_propagation.listed import ListedMessages, Step
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
    lanes_above,
    negative_part,
    positive_part,
    prefetch,
    scatter_fixed,
    subtract,
    zero_unless,
)
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

__all__ = [
    "count_similar",
    "gather_own",
    "jitter_lists",
    "jitter_pairs",
    "jitter_rows",
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
MIN_ROWS = 64  # of a task
FAR = 2 * WIDTH  # elements behind the own ones: active columns are looked at where more were read
AHEAD = 4  # rows: their lists lie anywhere, and are asked for that much earlier
FEW = 8  # own elements that are faster one by one
PER_ROW = 64  # elements that are passed in the time that a row takes beside
MIN_WORK = 1 << 17  # elements for each thread: less is not worth waking it


def pass_listed_iterations(
    messages: ListedMessages, steps: Sequence[Step], *, passed: bool, meet: Callable[[], None]
) -> None:
    rows = np.arange(len(messages.begin))
    for slot, numbers in steps:
        if not passed:
            pass_listed_rows(messages, rows, again=False, **numbers)
        passed = False
        meet()
        pass_columns(messages, damping=numbers["next_damping"], scale=numbers["scale"], slot=slot)
        if is_halted(messages):
            break


def is_halted(messages: ListedMessages) -> bool:
    """Tell whether what follows would do nothing."""
    return bool(messages.progress[0])


def pass_listed_rows(
    messages: ListedMessages,
    rows: Array,
    *,
    again: bool,
    sigma: float,
    next_sigma: float,
    damping: float,
    next_damping: float,
    scale: float,
    negligible: float,
) -> None:
    real, m, n = messages.s.dtype.type, len(rows), messages.n
    if messages.progress[0] and not again:
        return
    if again:
        damping = 1.0  # A stays
    else:
        finish_availability(messages.c, messages.a_column, real(damping), real(1.0 - damping))
    values = messages.a_column[messages.active]
    order = np.argsort(-values)
    outside = real(-np.inf)
    if len(order):
        others = np.ones(n, bool)
        others[messages.active] = False
        outside = messages.a_column[others].max(initial=-np.inf)
    work = PER_ROW * m + int(messages.own.sum() + np.maximum(messages.read, 0).sum())
    threads = max(1, min(thread_count(), work // MIN_WORK))
    size = max(MIN_ROWS, -(-m // (4 * threads))) if threads > 1 else max(m, 1)
    tasks = -(-m // size)
    threads = max(1, min(threads, tasks))
    sums, most = np.zeros((threads, n), np.int64), np.zeros(threads, np.int64)
    bits = messages.sums.view(np.float64)[n : 2 * n]

    def task(index: int, thread: int) -> None:
        filled = sweep_lists(
            rows[index * size : (index + 1) * size], messages.first_row, messages.begin, messages.length,
            messages.own, messages.floor, messages.column, messages.s, messages.a, messages.a_column,
            messages.active, messages.active_s, order, values[order], outside, messages.c, messages.u,
            messages.recent_argmax, messages.hot_place, messages.hot_s, messages.hot_e, messages.hot_a,
            messages.a_diagonal, messages.r_diagonal, messages.preference, real(sigma), real(next_sigma),
            real(damping), real(1.0 - damping), float(next_damping), float(scale), real(negligible), sums[thread],
            bits, messages.wanted, messages.slack, messages.read, messages.undecided,
        )  # fmt: skip
        most[thread] = max(most[thread], filled)

    run_tasks(tasks, task, threads)
    messages.sums[:n] += sums.sum(axis=0) if threads > 1 else sums[0]
    messages.sums[2 * n] += np.count_nonzero(messages.undecided[rows])
    messages.hot_most[0] = max(messages.hot_most[0], most.max())


@compiled
def finish_availability(c: Any, a_column: Any, damping: Any, rest: Any) -> None:
    """A of a column wherever R <= 0."""
    zero = a_column.dtype.type(0)
    for k in range(len(a_column)):
        a_column[k] = fma(damping, a_column[k], rest * min(zero, c[k]))


@inlined
def _finish(
    i: int, at: int, own: int, c: Any, u: Any, column: Any, s: Any, a: Any, recent_argmax: Any, hot_s: Any, hot_e: Any,
    hot_a: Any, sigma: Any, damping: Any, rest: Any, m1: Any, j: int, m2: Any,
) -> Any:  # fmt: skip
    """A of a row's hot places and of its own elements; the two largest of A + S among them, and S at j."""
    zero, similarity = s.dtype.type(0), s.dtype.type(-np.inf)
    h = 0
    while h < recent_argmax.shape[1] and recent_argmax[i, h] >= 0:
        k = recent_argmax[i, h]
        r = fma(sigma, hot_s[i, h], -u) - hot_e[i, h]
        hot_a[i, h] = fma(damping, hot_a[i, h], rest * min(zero, c[k] - max(zero, r)))
        m1, j, m2 = enter(m1, j, m2, hot_a[i, h] + hot_s[i, h], k)
        h += 1
    if own - at <= FEW:
        for q in range(at, own):
            k = column[q]
            r = max(zero, fma(sigma, s[q], -u))
            a[q] = fma(damping, a[q], rest * min(zero, c[k] - r))
            m1, j, m2 = enter(m1, j, m2, a[q] + s[q], k)
            if j == k:
                similarity = s[q]
        return m1, j, m2, similarity
    sigmas, minus_u, dampings, rests = splat(sigma), splat(-u), splat(damping), splat(rest)
    for q in range(at, own, WIDTH):
        near_s = load(s, q)
        r = positive_part(fma(sigmas, near_s, minus_u))
        step = multiply(rests, negative_part(subtract(gather(c, column, q), r)))
        availability = fma(dampings, load(a, q), step)
        store(a, q, availability)
        value = add(availability, near_s)
        near = at_least(value, m2)
        while near:
            lane = first_lane(near)
            near &= near - 1
            m1, j, m2 = enter(m1, j, m2, element(value, lane), column[q + lane])
            if j == column[q + lane]:
                similarity = s[q + lane]
    return m1, j, m2, similarity


@inlined
def _hot_of(i: int, k: int, recent_argmax: Any) -> int:
    """The hot place of a column in a row, or -1."""
    h = 0
    while h < recent_argmax.shape[1] and recent_argmax[i, h] >= 0:
        if recent_argmax[i, h] == k:
            return h
        h += 1
    return -1


@inlined
def _look(
    i: int, at: int, own: int, stop: int, floor: Any, column: Any, s: Any, a_column: Any, active: Any, active_s: Any,
    order: Any, values: Any, outside: Any, recent_argmax: Any, m1: Any, j: int, m2: Any, similarity: Any, read: Any,
    slack: Any,
) -> Any:  # fmt: skip
    """The two largest of A + S with all other elements, and whether the list or the active columns decide them.

    Active columns come first where the list was read far, or they decided before; else where the list does not decide.
    """
    lowest = s.dtype.type(-np.inf)
    top = s[own] if own < stop else floor  # no other element is more similar
    before, reached = (m1, j, m2, similarity), m2
    by_active = len(order) > 0 and (read[i] < 0 or read[i] > FAR)
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
                    near &= near - 1
                    k = column[q + lane]
                    if q + lane < stop and _hot_of(i, k, recent_argmax) < 0:
                        m1, j, m2 = enter(m1, j, m2, element(value, lane), k)
                        if j == k:
                            similarity = s[q + lane]
                skipped = 0
                q += WIDTH
                if max(q, own) >= stop:
                    break
            read[i] = max(q - own, 0)
            decided = floor <= m2
        else:
            last, last_column = (s[own - 1], column[own - 1]) if own > at else (lowest, -1)
            for p in range(len(order)):
                if values[p] + top < m2:
                    break
                k, own_s = active[order[p]], active_s[i, order[p]]
                value = values[p] + own_s
                behind = own == at or own_s < last or (own_s == last and k > last_column)
                if value >= m2 and behind and _hot_of(i, k, recent_argmax) < 0:
                    m1, j, m2 = enter(m1, j, m2, value, k)
                    if j == k:
                        similarity = own_s
            read[i] = -1
            decided = outside + top < m2
        reached = max(reached, m2)  # the second largest is not below
        if decided or by_list == by_active or len(order) == 0:
            slack[i] = reached - top
            return m1, j, m2, similarity, reached, decided
        m1, j, m2, similarity = before  # what was found so far would be found again
        by_list = not by_list


@inlined
def _renew(
    i: int, at: int, own: int, a: Any, a_column: Any, u: Any, recent_argmax: Any, hot_place: Any, hot_s: Any, hot_e:
    Any, hot_a: Any, damping: Any, j: int, similarity: Any, step: Any, negligible: Any, column: Any, s: Any,
) -> int:  # fmt: skip
    """E <- damping E, and step added at column j (-1: nowhere); how many places are filled then."""
    real = hot_e.dtype.type
    kept = 0
    found = j < 0
    h = 0
    while h < recent_argmax.shape[1] and recent_argmax[i, h] >= 0:
        k, e, place = recent_argmax[i, h], damping * hot_e[i, h], hot_place[i, h]
        if k == j:
            e += step
            found = True
        elif abs(e) <= negligible * max(abs(u), abs(hot_s[i, h])):
            # Without E the column is as any other: it goes where it belongs, or, with an A that differs from a(k) and
            # no place for that, stays with E = 0, which is the same.
            if place >= 0:
                a[at + place] = hot_a[i, h]
                h += 1
                continue
            if hot_a[i, h] == a_column[k]:
                h += 1
                continue
            e = real(0)
        recent_argmax[i, kept], hot_place[i, kept], hot_s[i, kept] = k, place, hot_s[i, h]
        hot_e[i, kept], hot_a[i, kept] = e, hot_a[i, h]
        kept += 1
        h += 1
    filled = h
    if not found:
        place, availability = -1, a_column[j]
        for q in range(at, own):
            if column[q] == j:
                place, availability = q - at, a[q]
                a[q] = real(-np.inf)
        recent_argmax[i, kept], hot_place[i, kept], hot_s[i, kept] = j, place, similarity
        hot_e[i, kept], hot_a[i, kept] = step, availability
        kept += 1
    for h in range(kept, filled):
        recent_argmax[i, h] = -1
    return kept


@inlined
def _add(
    i: int, at: int, own: int, stop: int, u: Any, column: Any, s: Any, a: Any, a_column: Any, recent_argmax: Any,
    hot_place: Any, hot_s: Any, hot_e: Any, next_sigma: Any, scale: float, sums: Any,
) -> int:  # fmt: skip
    """Add R > 0 to the sums; how many elements are own ones from now on."""
    zero, lowest = s.dtype.type(0), s.dtype.type(-np.inf)
    h = 0
    while h < recent_argmax.shape[1] and recent_argmax[i, h] >= 0:
        r = fma(next_sigma, hot_s[i, h], -u) - hot_e[i, h]
        if r > zero:
            sums[recent_argmax[i, h]] += fixed(r, scale)
        h += 1
    sigmas, minus_u = splat(next_sigma), splat(-u)
    q, end = at, False
    while not end and q < own:
        r = fma(sigmas, load(s, q), minus_u)
        positive = lanes_above(r, zero)
        if lanes_of(positive) > own - q:
            break  # beyond the own elements
        end = lanes_of(positive) < WIDTH
        if positive:
            scatter_fixed(sums, column, q, zero_unless(positive & lanes_above(load(a, q), lowest), r), scale)
        q += lanes_of(positive)
    while not end and q < stop:
        r = fma(next_sigma, s[q], -u)
        if not r > zero:
            break
        k = column[q]
        if q >= own:
            a[q] = a_column[k]
            h = _hot_of(i, k, recent_argmax)
            if h >= 0:
                a[q], hot_place[i, h] = lowest, q - at
        if a[q] > lowest:
            sums[k] += fixed(r, scale)
        q += 1
    own = max(own, q)
    while own > q:
        k = column[own - 1]
        if a[own - 1] == lowest:
            h = _hot_of(i, k, recent_argmax)
            if h < 0:
                break
            hot_place[i, h] = -1
        elif a[own - 1] != a_column[k]:
            break
        own -= 1
        a[own] = lowest
    return own - at


@compiled
def sweep_lists(
    rows: Any,
    first_row: int,
    begin: Any,
    length: Any,
    own: Any,
    floor: Any,
    column: Any,
    s: Any,
    a: Any,
    a_column: Any,
    active: Any,
    active_s: Any,
    order: Any,
    values: Any,
    outside: Any,
    c: Any,
    u: Any,
    recent_argmax: Any,
    hot_place: Any,
    hot_s: Any,
    hot_e: Any,
    hot_a: Any,
    a_diagonal: Any,
    r_diagonal: Any,
    preference: Any,
    sigma: Any,
    next_sigma: Any,
    damping: Any,
    rest: Any,
    next_damping: float,
    scale: float,
    negligible: Any,
    sums: Any,
    bits: Any,
    wanted: Any,
    slack: Any,
    read: Any,
    undecided: Any,
) -> int:
    """`pass_listed_rows` for some rows; R(k,k) goes to `bits`. Returns the most hot places that a row fills."""
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
        g, at, end, stop = first_row + i, begin[i], begin[i] + own[i], begin[i] + length[i]
        m1, j, m2 = real(a_diagonal[g] + preference[g]), g, real(-np.inf)
        m1, j, m2, similarity = _finish(
            i, at, end, c, real(u[i]), column, s, a, recent_argmax, hot_s, hot_e, hot_a, sigma, damping, rest, m1, j, m2
        )
        m1, j, m2, similarity, reached, decided = _look(
            i, at, end, stop, floor[i], column, s, a_column, active, active_s, order, values, outside, recent_argmax,
            m1, j, m2, similarity, read, slack,
        )  # fmt: skip
        next_u = next_damping * u[i] + (1.0 - next_damping) * m1
        undecided[i] = 0
        if not decided or fma(next_sigma, floor[i], -real(next_u)) > zero:
            undecided[i] = 2 if decided else 1
            wanted[i] = real(next_u) / next_sigma if decided else min(reached, real(next_u) / next_sigma)
            continue
        u[i] = next_u
        step = real(1.0 - next_damping) * (m2 - m1)
        filled = _renew(
            i, at, end, a, a_column, real(next_u), recent_argmax, hot_place, hot_s, hot_e, hot_a, real(next_damping),
            j if j != g else -1, similarity, step, negligible, column, s,
        )  # fmt: skip
        most = max(most, filled)
        others = m1 if j != g else m2
        bits[g] = next_damping * r_diagonal[g] + (1.0 - next_damping) * (preference[g] - np.float64(others))
        own[i] = _add(
            i, at, end, stop, real(next_u), column, s, a, a_column, recent_argmax, hot_place, hot_s, hot_e, next_sigma,
            scale, sums,
        )  # fmt: skip
    return most
