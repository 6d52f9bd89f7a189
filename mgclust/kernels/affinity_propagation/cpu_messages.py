"""Message passing on the CPU: one sweep over A and S per iteration. The equations are in `messages`.

Each row is swept once, 32 columns at a time. For each vector::

    load S, A, c;  A <- the new A;  store A            12 bytes per element in float32, 5 arithmetic operations
    A + S >= m2 so far,  or  next_sigma S > a lower bound of the new u?       one branch, rarely taken

The recent columns and the diagonal come first. They include the maxima of the last iterations, so m1 and m2 start near
their final values. m1, and the new u with it, can only grow during the sweep. So the lower bound of the new u finds
every column with R > 0, and few others. The vectors with these columns are listed, and are read again when u is known.

Each row is processed by one thread. Column sums are integers; each thread has its own sums, which are added at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.affinity_propagation.messages import Iteration, Messages, Vectors
from mgclust.kernels.affinity_propagation.sparse_forms.cpu_recent_columns import (
    Diagonals,
    Numbers,
    diagonals_of,
    enter,
    renew_diagonal,
)
from mgclust.kernels.toolkit.cpu_compiler import compiled, inlined
from mgclust.kernels.toolkit.simd import WIDTH, add, element, first_lane, lanes_of, load, multiply, splat, store
from mgclust.kernels.toolkit.simd_steps import (
    add_fixed,
    at_least,
    fixed,
    fma,
    lanes_above,
    negative_part,
    positive_part,
    reaches,
    subtract,
    zero_unless,
)
from mgclust.kernels.toolkit.threads import rows_of_a_task, run_tasks, thread_count

__all__ = ["pass_columns", "pass_rows"]

Array = Any
MIN_WORK = 1 << 20  # minimum number of elements per thread; with fewer, waking a thread costs more than it saves
FEW = 4  # if at most this number of lanes have R > 0, these are added one by one


def pass_rows(messages: Messages, numbers: Iteration) -> None:
    s = messages.s
    real, (m, width) = s.dtype.type, s.shape
    threads = max(1, min(thread_count(), m * width // MIN_WORK))
    rows = max(1, min(rows_of_a_task(width), -(-m // (4 * threads)))) if threads > 1 else max(m, 1)
    sums = np.zeros((threads, width), np.int64)
    n = messages.n
    x, diagonals = Numbers.of(numbers, real), diagonals_of(messages)
    most = np.zeros(threads, np.int64)
    listed = np.empty((threads, width // WIDTH), np.int32)
    a, flat = messages.a.reshape(-1), s.reshape(-1)

    def task(index: int, thread: int) -> None:
        filled = sweep_rows(
            index * rows, min((index + 1) * rows, m), messages.first_row, width, a, flat, messages.c, messages.u,
            messages.recent_argmax, messages.recent_e, messages.recent_a, diagonals, x, sums[thread], listed[thread],
        )  # fmt: skip
        most[thread] = max(most[thread], filled)

    run_tasks(-(-m // rows), task, threads)
    messages.sums[:n] += sums.sum(axis=0)[:n] if threads > 1 else sums[0, :n]
    messages.recent_most[0] = max(messages.recent_most[0], most.max())


def pass_columns(messages: Vectors, *, damping: float, scale: float, slot: int) -> None:
    n, totals = messages.n, messages.totals
    if totals[2 * n]:
        messages.progress[0] = 1
        return
    finish_columns(
        n, totals, totals.view(np.float64)[n:], messages.c, messages.r_diagonal, messages.a_diagonal,
        messages.exemplars[slot], messages.last_exemplars, messages.counts[slot], float(damping), float(scale),
    )  # fmt: skip
    messages.sums[...] = 0
    messages.progress[1] += 1


@inlined
def _finish_recent(
    i: int,
    base: int,
    s: Any,
    c: Any,
    u: Any,
    recent_argmax: Any,
    recent_e: Any,
    recent_a: Any,
    x: Any,
    m1: Any,
    j: int,
    m2: Any,
) -> Any:
    """Update A in a row's recent places; return the two largest of A + S so far, and the number of filled places."""
    zero = s.dtype.type(0)
    filled = 0
    while filled < recent_argmax.shape[1] and recent_argmax[i, filled] >= 0:
        k = recent_argmax[i, filled]
        r = fma(x.sigma, s[base + k], -u) - recent_e[i, filled]
        recent_a[i, filled] = fma(x.damping, recent_a[i, filled], x.rest * min(zero, c[k] - max(zero, r)))
        m1, j, m2 = enter(m1, j, m2, recent_a[i, filled] + s[base + k], k)
        filled += 1
    return m1, j, m2, filled


@inlined
def _sweep(
    base: int, width: int, a: Any, s: Any, c: Any, old_u: Any, u: float, x: Any, m1: Any, j: int, m2: Any, listed: Any
) -> Any:
    """Sweep a row: compute A, m1, j, m2, and list the vectors that may have R > 0."""
    real = s.dtype.type
    sigmas, minus_u, dampings, rests = splat(x.sigma), splat(-old_u), splat(x.damping), splat(x.rest)
    next_sigmas = splat(x.next_sigma)
    seconds, minus_low = splat(m2), splat(-real(x.next_damping * u + (1.0 - x.next_damping) * m1))
    count = 0
    for p in range(width // WIDTH):
        at = base + p * WIDTH
        similarity = load(s, at)
        r = positive_part(fma(sigmas, similarity, minus_u))
        step = multiply(rests, negative_part(subtract(load(c, p * WIDTH), r)))
        availability = fma(dampings, load(a, at), step)
        store(a, at, availability)
        value = add(availability, similarity)
        if reaches(value, seconds, fma(next_sigmas, similarity, minus_low)):
            near = at_least(value, m2)
            while near:
                lane = first_lane(near)
                near &= near - 1
                m1, j, m2 = enter(m1, j, m2, element(value, lane), p * WIDTH + lane)
            seconds, minus_low = splat(m2), splat(-real(x.next_damping * u + (1.0 - x.next_damping) * m1))
            if lanes_above(fma(next_sigmas, similarity, minus_low), real(0)):
                listed[count] = p
                count += 1
    return m1, j, m2, count


@inlined
def _renew_recent(
    i: int, base: int, filled: int, a: Any, s: Any, u: Any, recent_argmax: Any, recent_e: Any, recent_a: Any, x: Any,
    own: int, step: Any,
) -> int:  # fmt: skip
    """Damp E, and add `step` at column `own` (-1: nowhere); return the new number of filled places."""
    real = recent_e.dtype.type
    kept = 0
    found = False
    for q in range(filled):
        k, e = recent_argmax[i, q], real(x.next_damping) * recent_e[i, q]
        if k == own:
            e += step
            found = True
        elif abs(e) <= x.negligible * max(abs(u), abs(s[base + k])):
            a[base + k] = recent_a[i, q]
            continue
        recent_argmax[i, kept], recent_e[i, kept], recent_a[i, kept] = k, e, recent_a[i, q]
        kept += 1
    if own >= 0 and not found:
        recent_argmax[i, kept], recent_e[i, kept], recent_a[i, kept] = own, step, a[base + own]
        a[base + own] = real(-np.inf)
        kept += 1
    for q in range(kept, filled):
        recent_argmax[i, q] = -1
    return kept


@inlined
def _add_positive(
    i: int, base: int, filled: int, count: int, a: Any, s: Any, u: Any, x: Any, recent_argmax: Any, recent_e: Any,
    listed: Any, sums: Any,
) -> None:  # fmt: skip
    """Add the positive R of a row to the sums: of recent columns, and of listed vectors except lanes with A = -inf."""
    real = s.dtype.type
    zero, lowest = real(0), real(-np.inf)
    next_sigmas, minus_u = splat(x.next_sigma), splat(-u)
    for q in range(filled):
        r = fma(x.next_sigma, s[base + recent_argmax[i, q]], -u) - recent_e[i, q]
        if r > zero:
            sums[recent_argmax[i, q]] += fixed(r, x.scale)
    for t in range(count):
        at = base + listed[t] * WIDTH
        r = fma(next_sigmas, load(s, at), minus_u)
        positive = lanes_above(r, zero) & lanes_above(load(a, at), lowest)
        if lanes_of(positive) > FEW:
            add_fixed(sums, listed[t] * WIDTH, zero_unless(positive, r), x.scale)
            continue
        while positive:
            lane = first_lane(positive)
            positive &= positive - 1
            sums[listed[t] * WIDTH + lane] += fixed(element(r, lane), x.scale)


@compiled
def sweep_rows(
    start: int,
    stop: int,
    first_row: int,
    width: int,
    a: Any,
    s: Any,
    c: Any,
    u: Any,
    recent_argmax: Any,
    recent_e: Any,
    recent_a: Any,
    diagonals: Diagonals,
    x: Numbers,
    sums: Any,
    listed: Any,
) -> int:
    """Do `pass_rows` for rows start..stop-1; return the largest number of recent places that a row fills."""
    real = s.dtype.type
    most = 0
    for i in range(start, stop):
        g, base, old_u = first_row + i, i * width, real(u[i])
        m1, j, m2 = real(diagonals.a[g] + diagonals.preference[g]), g, real(-np.inf)
        m1, j, m2, filled = _finish_recent(i, base, s, c, old_u, recent_argmax, recent_e, recent_a, x, m1, j, m2)
        m1, j, m2, count = _sweep(base, width, a, s, c, old_u, u[i], x, m1, j, m2, listed)
        u[i] = x.next_damping * u[i] + (1.0 - x.next_damping) * m1
        own, step = (j, real(1.0 - x.next_damping) * (m2 - m1)) if j != g else (-1, real(0))
        filled = _renew_recent(i, base, filled, a, s, real(u[i]), recent_argmax, recent_e, recent_a, x, own, step)
        most = max(most, filled)
        renew_diagonal(diagonals, g, x, m1 if j != g else m2)
        _add_positive(i, base, filled, count, a, s, real(u[i]), x, recent_argmax, recent_e, listed, sums)
    return most


@compiled
def finish_columns(
    n: int,
    sums: Any,
    bits: Any,
    c: Any,
    r_diagonal: Any,
    a_diagonal: Any,
    exemplars: Any,
    last_exemplars: Any,
    counts: Any,
    damping: float,
    scale: float,
) -> None:
    """Do `pass_columns` on plain arrays; `bits` holds R(k,k)."""
    total, changed = 0, 0
    for k in range(n):
        r, t = bits[k], np.float64(sums[k]) / scale
        c[k] = r + t
        r_diagonal[k] = r
        a_diagonal[k] = damping * a_diagonal[k] + (1.0 - damping) * t
        is_exemplar = int(a_diagonal[k] + r > 0.0)
        exemplars[k] = is_exemplar
        total += is_exemplar
        changed += is_exemplar != last_exemplars[k]
        last_exemplars[k] = is_exemplar
    counts[0] = total
    counts[1] = changed
