"""Recent columns of rows on the CPU, with their S and places, for messages with lists or with some columns.

A row's filled places come before its free places. The equations are in `messages`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgclust.kernels.affinity_propagation.messages import Iteration, Vectors
from mgclust.kernels.toolkit.cpu_compiler import inlined
from mgclust.kernels.toolkit.simd_steps import fma

__all__ = [
    "Diagonals",
    "Numbers",
    "Recent",
    "damp_recent",
    "diagonals_of",
    "enter",
    "finish_recent",
    "place_of",
    "recent_of",
    "renew_diagonal",
]

Array = Any


class Recent(NamedTuple):
    """The arrays of recent columns, with one row for each row of this rank."""

    column: Array
    place: Array
    s: Array
    e: Array
    a: Array


class Diagonals(NamedTuple):
    """Diagonals of A and R and preferences of all rows, and the array to which a sweep writes the new R(k,k)."""

    a: Array
    r: Array
    preference: Array
    bits: Array


class Numbers(NamedTuple):
    """Numbers of an `Iteration`, in the types with which the loops compute."""

    sigma: Any
    next_sigma: Any
    damping: Any
    rest: Any  # 1 - damping
    next_damping: float
    scale: float
    negligible: Any

    @classmethod
    def of(cls, numbers: Iteration, real: Any) -> Numbers:
        """Convert the numbers of an iteration for similarities of type `real`."""
        return cls(
            real(numbers.sigma), real(numbers.next_sigma), real(numbers.damping), real(1.0 - numbers.damping),
            float(numbers.next_damping), float(numbers.scale), real(numbers.negligible),
        )  # fmt: skip


def recent_of(messages: Any) -> Recent:
    """Return the arrays of recent columns of messages with lists or with some columns."""
    return Recent(
        messages.recent_argmax, messages.recent_place, messages.recent_s, messages.recent_e, messages.recent_a
    )


def diagonals_of(messages: Vectors) -> Diagonals:
    """Return the diagonals of messages; the new R(k,k) is written to `sums`."""
    n = messages.n
    bits = messages.sums.view(np.float64)[n : 2 * n]
    return Diagonals(messages.a_diagonal, messages.r_diagonal, messages.preference, bits)


@inlined
def enter(m1: Any, j: int, m2: Any, value: Any, column: int) -> Any:
    """Return the two largest values after one more value, and the lowest column j of the largest."""
    if value > m1 or (value == m1 and column < j):
        return value, column, m1
    return m1, j, max(m2, value)


@inlined
def renew_diagonal(diagonals: Any, g: int, x: Any, others: Any) -> None:
    """Compute R(k,k) of row g from the largest A + S of its other columns."""
    fresh = diagonals.preference[g] - np.float64(others)
    diagonals.bits[g] = x.next_damping * diagonals.r[g] + (1.0 - x.next_damping) * fresh


@inlined
def place_of(i: int, k: int, column: Any) -> int:
    """Return the recent place of a column in a row, or -1."""
    h = 0
    while h < column.shape[1] and column[i, h] >= 0:
        if column[i, h] == k:
            return h
        h += 1
    return -1


@inlined
def finish_recent(i: int, recent: Any, c: Any, u: Any, x: Any, m1: Any, j: int, m2: Any) -> Any:
    """Update A in a row's recent places; return the two largest of A + S with these places included."""
    zero = recent.s.dtype.type(0)
    h = 0
    while h < recent.column.shape[1] and recent.column[i, h] >= 0:
        k = recent.column[i, h]
        r = fma(x.sigma, recent.s[i, h], -u) - recent.e[i, h]
        recent.a[i, h] = fma(x.damping, recent.a[i, h], x.rest * min(zero, c[k] - max(zero, r)))
        m1, j, m2 = enter(m1, j, m2, recent.a[i, h] + recent.s[i, h], k)
        h += 1
    return m1, j, m2


@inlined
def damp_recent(
    i: int, at: int, recent: Any, a: Any, a_column: Any, forgets: bool, u: Any, x: Any, j: int, j_place: int,
    similarity: Any, step: Any,
) -> int:  # fmt: skip
    """Damp E, and add `step` at column j (-1: nowhere); return the new number of filled places.

    In `a`, the elements of this row begin at `at`; `j_place` is the place of column j among these elements, or -1. If
    `forgets` is true, a column whose A is a(k) needs no recent place.
    """
    real = recent.e.dtype.type
    kept, found, h = 0, j < 0, 0
    while h < recent.column.shape[1] and recent.column[i, h] >= 0:
        k, e, place = recent.column[i, h], real(x.next_damping) * recent.e[i, h], recent.place[i, h]
        if k == j:
            e += step
            found = True
        elif abs(e) <= x.negligible * max(abs(u), abs(recent.s[i, h])):
            # E is negligible, so the column is no longer recent: its A moves to its place among the row's elements. If
            # it has no such place, it stays recent with E = 0, which has the same effect.
            if place >= 0:
                a[at + place] = recent.a[i, h]
                h += 1
                continue
            if forgets and recent.a[i, h] == a_column[k]:
                h += 1
                continue
            e = real(0)
        recent.column[i, kept], recent.place[i, kept], recent.s[i, kept] = k, place, recent.s[i, h]
        recent.e[i, kept], recent.a[i, kept] = e, recent.a[i, h]
        kept += 1
        h += 1
    filled = h
    if not found:
        availability = a_column[j]
        if j_place >= 0:
            availability = a[at + j_place]
            a[at + j_place] = real(-np.inf)
        recent.column[i, kept], recent.place[i, kept], recent.s[i, kept] = j, j_place, similarity
        recent.e[i, kept], recent.a[i, kept] = step, availability
        kept += 1
    for h in range(kept, filled):
        recent.column[i, h] = -1
    return kept
