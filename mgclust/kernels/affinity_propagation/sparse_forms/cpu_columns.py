"""Message passing with some columns, on the CPU; `columns` describes the method, and why it is exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.affinity_propagation.messages import Iteration
from mgclust.kernels.affinity_propagation.sparse_forms.columns import ColumnMessages
from mgclust.kernels.affinity_propagation.sparse_forms.cpu_listed import finish_availability
from mgclust.kernels.affinity_propagation.sparse_forms.cpu_recent_columns import (
    Diagonals,
    Numbers,
    Recent,
    damp_recent,
    diagonals_of,
    enter,
    finish_recent,
    recent_of,
    renew_diagonal,
)
from mgclust.kernels.toolkit.cpu_compiler import compiled
from mgclust.kernels.toolkit.simd import WIDTH, load, splat
from mgclust.kernels.toolkit.simd_steps import add_fixed, fixed, fma, lanes_above, positive_part
from mgclust.kernels.toolkit.threads import rows_of_a_task, run_tasks, thread_count

__all__ = [
    "add_positive",
    "add_positive_products",
    "finish_columns",
    "pass_column_rows",
    "place_listed",
    "replay",
]

Array = Any


def add_positive(s: Array, u: Array, *, n: int, sigma: float, scale: float, out: Array) -> None:
    flat, width, rows = s.reshape(-1), s.shape[1], rows_of_a_task(s.shape[1])
    tasks = -(-len(s) // rows)
    threads = max(1, min(thread_count(), tasks))
    sums = np.zeros((threads, width), np.int64)

    def task(index: int, thread: int) -> None:
        start, stop = index * rows, min((index + 1) * rows, len(s))
        sum_positive(flat, width, start, stop, u, s.dtype.type(sigma), scale, sums[thread])

    run_tasks(tasks, task, threads)
    out[:n] += sums.sum(axis=0)[:n]


def add_positive_products(
    x: Array, y: Array, u: Array, most: Array | None, *, norm: str, factor: float, first_row: int, seed: int,
    sigma: float, scale: float, out: Array,
) -> Array | None:  # fmt: skip
    return None


def finish_columns(messages: ColumnMessages, *, damping: float) -> None:
    real = messages.s.dtype.type
    finish_availability(messages.c, messages.a_column, real(damping), real(1.0 - damping))


def pass_column_rows(messages: ColumnMessages, rows: Array, numbers: Iteration, *, again: bool, outside: float) -> None:
    m, n, real = messages, messages.n, messages.s.dtype.type
    if again:
        numbers = numbers._replace(damping=1.0)  # A does not change
    size = rows_of_a_task(64 + 8 * len(m.columns))
    tasks = -(-len(rows) // size)
    threads = max(1, min(thread_count(), tasks))
    sums, most = np.zeros((threads, n), np.int64), np.zeros(threads, np.int64)
    x, recent, diagonals = Numbers.of(numbers, real), recent_of(m), diagonals_of(m)
    s, a = m.s.reshape(-1), m.a.reshape(-1)

    def task(index: int, thread: int) -> None:
        filled = sweep_columns(
            rows[index * size : (index + 1) * size], m.first_row, m.columns, s, a, m.a_column, m.nearest,
            real(outside), m.c, m.u, recent, diagonals, x, sums[thread], m.slack, m.undecided,
        )  # fmt: skip
        most[thread] = max(most[thread], filled)

    run_tasks(tasks, task, threads)
    m.sums[:n] += sums.sum(axis=0)
    m.sums[2 * n] += np.count_nonzero(m.undecided[rows])
    m.recent_most[0] = max(m.recent_most[0], most.max())


def place_listed(begin: Array, own: Array, column: Array, values: Array, where: Array, out: Array) -> None:
    find_places(begin, own, column, values, where, out)


def replay(s: Array, a: Array, c: Array, u: Array, first: int, sigmas: list[float], dampings: list[float]) -> None:
    real = s.dtype.type
    numbers = np.array(sigmas, real), np.array(dampings, real), np.array([1.0 - each for each in dampings], real)
    rows = rows_of_a_task(max(1, s.shape[1] * len(sigmas)))

    def task(index: int, _: int) -> None:
        repeat(index * rows, min((index + 1) * rows, len(s)), s, a, c, u, first, *numbers)

    run_tasks(-(-len(s) // rows), task)


@compiled
def sum_positive(s: Any, width: int, start: int, stop: int, u: Any, sigma: Any, scale: float, sums: Any) -> None:
    """Add max(0, R) of rows start..stop-1, without E; the diagonal and the padding are -inf, and add nothing."""
    sigmas, zero = splat(sigma), s.dtype.type(0)
    for i in range(start, stop):
        minus_u = splat(-u[i])
        for k in range(0, width, WIDTH):
            r = fma(sigmas, load(s, i * width + k), minus_u)
            if lanes_above(r, zero):
                add_fixed(sums, k, positive_part(r), scale)


@compiled
def sweep_columns(
    rows: Any,
    first_row: int,
    columns: Any,
    s: Any,
    a: Any,
    a_column: Any,
    nearest: Any,
    outside: Any,
    c: Any,
    u: Any,
    recent: Recent,
    diagonals: Diagonals,
    x: Numbers,
    sums: Any,
    slack: Any,
    undecided: Any,
) -> int:
    """Do `pass_column_rows` for some rows; return the largest number of recent places that a row fills."""
    real = s.dtype.type
    zero = real(0)
    most = 0
    for t in range(len(rows)):
        i = rows[t]
        g, at, old_u = first_row + i, i * len(columns), real(u[i])
        m1, j, m2 = real(diagonals.a[g] + diagonals.preference[g]), g, real(-np.inf)
        m1, j, m2 = finish_recent(i, recent, c, old_u, x, m1, j, m2)
        place = -1
        for p in range(len(columns)):
            k = columns[p]
            r = max(zero, fma(x.sigma, s[at + p], -old_u))
            a[at + p] = fma(x.damping, a[at + p], x.rest * min(zero, c[k] - r))
            m1, j, m2 = enter(m1, j, m2, a[at + p] + s[at + p], k)
            if j == k:
                place = p
        slack[i] = m2 - nearest[i]
        undecided[i] = 0
        if not outside + nearest[i] < m2:
            undecided[i] = 1
            continue
        u[i] = x.next_damping * u[i] + (1.0 - x.next_damping) * m1
        new_u = real(u[i])
        step = real(1.0 - x.next_damping) * (m2 - m1)
        similarity = s[at + place] if place >= 0 else zero
        own = j if j != g else -1
        filled = damp_recent(i, at, recent, a, a_column, False, new_u, x, own, place, similarity, step)
        most = max(most, filled)
        renew_diagonal(diagonals, g, x, m1 if j != g else m2)
        for h in range(filled):  # correct R by E
            r = fma(x.next_sigma, recent.s[i, h], -new_u)
            sums[recent.column[i, h]] += fixed(max(zero, r - recent.e[i, h]), x.scale) - fixed(max(zero, r), x.scale)
    return most


@compiled
def find_places(begin: Any, own: Any, column: Any, values: Any, where: Any, out: Any) -> None:
    """Do `place_listed` on plain arrays."""
    for i in range(len(begin)):
        for q in range(begin[i], begin[i] + own[i]):
            if where[column[q]] >= 0:
                out[i, where[column[q]]] = values[q]


@compiled
def repeat(
    start: int, stop: int, s: Any, a: Any, c: Any, u: Any, first: int, sigmas: Any, dampings: Any, rests: Any
) -> None:
    """Do `replay` for rows start..stop-1."""
    zero = s.dtype.type(0)
    for i in range(start, stop):
        for p in range(s.shape[1]):
            availability = a[i, p]
            for t in range(len(sigmas)):
                r = max(zero, fma(sigmas[t], s[i, p], -u[t, first + i]))
                availability = fma(dampings[t], availability, rests[t] * min(zero, c[t, p] - r))
            a[i, p] = availability
