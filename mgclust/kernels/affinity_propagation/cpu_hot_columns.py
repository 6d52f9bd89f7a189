"""Hot columns of a row on the CPU, with S and the place of each beside it: for lists and for some columns.

A row's filled places come first. The equations: `messages`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgclust.kernels.affinity_propagation.messages import Iteration, Vectors
from mgclust.kernels.toolkit.cpu_compiler import inlined
from mgclust.kernels.toolkit.simd_steps import fma

__all__ = [
    "Diagonals",
    "Hot",
    "Numbers",
    "damp_hot",
    "diagonals_of",
    "enter",
    "finish_hot",
    "hot_of",
    "place_of",
    "renew_diagonal",
]

Array = Any


class Hot(NamedTuple):
    """The arrays of hot columns: a row for each own row."""

    column: Array
    place: Array
    s: Array
    e: Array
    a: Array


class Diagonals(NamedTuple):
    """Vectors of all rows, and where a sweep writes the new R(k,k)."""

    a: Array
    r: Array
    preference: Array
    bits: Array


class Numbers(NamedTuple):
    """`Iteration` in the types in which the loops compute."""

    sigma: Any
    next_sigma: Any
    damping: Any
    rest: Any  # 1 - damping
    next_damping: float
    scale: float
    negligible: Any

    @classmethod
    def of(cls, numbers: Iteration, real: Any) -> Numbers:
        """Convert for similarities of this type."""
        return cls(
            real(numbers.sigma), real(numbers.next_sigma), real(numbers.damping), real(1.0 - numbers.damping),
            float(numbers.next_damping), float(numbers.scale), real(numbers.negligible),
        )  # fmt: skip


def hot_of(messages: Any) -> Hot:
    """The arrays of hot columns of messages on lists or on some columns."""
    return Hot(messages.recent_argmax, messages.hot_place, messages.hot_s, messages.hot_e, messages.hot_a)


def diagonals_of(messages: Vectors) -> Diagonals:
    """The diagonals of messages; the new R(k,k) goes into their sums."""
    n = messages.n
    bits = messages.sums.view(np.float64)[n : 2 * n]
    return Diagonals(messages.a_diagonal, messages.r_diagonal, messages.preference, bits)


@inlined
def enter(m1: Any, j: int, m2: Any, value: Any, column: int) -> Any:
    """The two largest after one more value; of equal ones the lowest column is j."""
    if value > m1 or (value == m1 and column < j):
        return value, column, m1
    return m1, j, max(m2, value)


@inlined
def renew_diagonal(diagonals: Any, g: int, x: Any, others: Any) -> None:
    """R(k,k) of row g, with the largest A + S of its other columns."""
    fresh = diagonals.preference[g] - np.float64(others)
    diagonals.bits[g] = x.next_damping * diagonals.r[g] + (1.0 - x.next_damping) * fresh


@inlined
def place_of(i: int, k: int, column: Any) -> int:
    """The hot place of a column in a row, or -1."""
    h = 0
    while h < column.shape[1] and column[i, h] >= 0:
        if column[i, h] == k:
            return h
        h += 1
    return -1


@inlined
def finish_hot(i: int, hot: Any, c: Any, u: Any, x: Any, m1: Any, j: int, m2: Any) -> Any:
    """A of a row's hot places, and the two largest of A + S with them."""
    zero = hot.s.dtype.type(0)
    h = 0
    while h < hot.column.shape[1] and hot.column[i, h] >= 0:
        k = hot.column[i, h]
        r = fma(x.sigma, hot.s[i, h], -u) - hot.e[i, h]
        hot.a[i, h] = fma(x.damping, hot.a[i, h], x.rest * min(zero, c[k] - max(zero, r)))
        m1, j, m2 = enter(m1, j, m2, hot.a[i, h] + hot.s[i, h], k)
        h += 1
    return m1, j, m2


@inlined
def damp_hot(
    i: int, at: int, hot: Any, a: Any, a_column: Any, forgets: bool, u: Any, x: Any, j: int, j_place: int,
    similarity: Any, step: Any,
) -> int:  # fmt: skip
    """E <- damping E, and step added at column j (-1: nowhere); how many places are filled then.

    `a` has the elements of this row that have places from `at` on; `j_place` is the place of column j, or -1. With
    `forgets`, a column whose A is a(k) needs no place.
    """
    real = hot.e.dtype.type
    kept, found, h = 0, j < 0, 0
    while h < hot.column.shape[1] and hot.column[i, h] >= 0:
        k, e, place = hot.column[i, h], real(x.next_damping) * hot.e[i, h], hot.place[i, h]
        if k == j:
            e += step
            found = True
        elif abs(e) <= x.negligible * max(abs(u), abs(hot.s[i, h])):
            # Without E the column is as any other: it goes where it belongs, or stays with E = 0, which is the same.
            if place >= 0:
                a[at + place] = hot.a[i, h]
                h += 1
                continue
            if forgets and hot.a[i, h] == a_column[k]:
                h += 1
                continue
            e = real(0)
        hot.column[i, kept], hot.place[i, kept], hot.s[i, kept] = k, place, hot.s[i, h]
        hot.e[i, kept], hot.a[i, kept] = e, hot.a[i, h]
        kept += 1
        h += 1
    filled = h
    if not found:
        availability = a_column[j]
        if j_place >= 0:
            availability = a[at + j_place]
            a[at + j_place] = real(-np.inf)
        hot.column[i, kept], hot.place[i, kept], hot.s[i, kept] = j, j_place, similarity
        hot.e[i, kept], hot.a[i, kept] = step, availability
        kept += 1
    for h in range(kept, filled):
        hot.column[i, h] = -1
    return kept
