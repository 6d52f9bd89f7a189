"""Message passing with some columns, on a CUDA device (``columns.cu``; sums in ``similarity.cu``); see `columns`."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.affinity_propagation.messages import Iteration
from mgclust.kernels.affinity_propagation.similarities.gpu_similarities import SIDE, split_rows, start_split, tie_tiny
from mgclust.kernels.affinity_propagation.sparse_forms.columns import ColumnMessages
from mgclust.kernels.affinity_propagation.sparse_forms.gpu_listed import module_of
from mgclust.kernels.toolkit.gpu_compiler import Module, compiled

__all__ = [
    "add_positive",
    "add_positive_products",
    "finish_columns",
    "pass_column_rows",
    "place_listed",
    "replay",
]

Array = Any
THREADS = 256  # threads per block in columns.cu and listed.cu
ROWS = 8  # rows per block; equals WARPS in columns.cu
STRIP = 64  # rows per thread in sum_positive


def add_positive(s: Array, u: Array, *, n: int, sigma: float, scale: float, out: Array) -> None:
    if len(s):
        sizes = (np.int32(len(s)), np.int32(n), np.int64(s.shape[1]))
        arguments = (s, *sizes, u, np.float64(sigma), np.float64(scale), out)
        grid = (-(-n // THREADS), -(-len(s) // STRIP))
        _columns(s).get_function("sum_positive")(grid, (THREADS,), arguments)


def add_positive_products(
    x: Array, y: Array, u: Array, most: Array | None, *, norm: str, factor: float, first_row: int, seed: int,
    sigma: float, scale: float, out: Array,
) -> Array | None:  # fmt: skip
    if norm != "l2-dot" or x.dtype != np.float32 or not len(x):
        return None
    m, k = len(x), len(y)
    symmetric = m == k and x.data.ptr == y.data.ptr
    sides = [split_rows(rows) for rows in ((x,) if symmetric else (x, y))]
    across, down = -(-k // SIDE), -(-m // SIDE)
    grid = (across * (across + 1) // 2,) if symmetric else (across, down)
    known = most is not None
    most = cp.empty((down, across), cp.float32) if most is None else most
    least_u = cp.full(down * SIDE, cp.inf, cp.float32)
    least_u[:m] = u
    place = (np.bool_(symmetric), np.float32(factor), np.int32(first_row), np.uint64(seed), tie_tiny(x, 100))
    sums = (
        u,
        least_u.reshape(down, SIDE).min(axis=1),
        np.float32(sigma),
        np.float64(scale),
        most,
        np.bool_(known),
        out,
    )
    start_split("add_positive_split", grid, (*sides[0], *sides[-1], np.int32(sides[0][0].shape[1]), *place, *sums))
    return most


def finish_columns(messages: ColumnMessages, *, damping: float) -> None:
    m = messages
    none = (m.columns, np.int32(0), m.a_column, m.a_column)  # arguments for active columns: here there are none
    arguments = (np.int32(m.n), m.c, m.a_column, *none, m.progress, np.bool_(False), np.float64(damping))
    kernel = module_of(m.s.dtype.name, active=False).get_function("begin_listed")
    kernel((-(-m.n // THREADS),), (THREADS,), arguments)


def pass_column_rows(messages: ColumnMessages, rows: Array, numbers: Iteration, *, again: bool, outside: float) -> None:
    if not len(rows):
        return
    m = messages
    if again:
        numbers = numbers._replace(damping=1.0)  # A does not change
    sizes = (np.int32(len(rows)), np.int32(m.n), np.int32(m.first_row), np.int32(m.recent_argmax.shape[1]))
    kept = (m.columns, np.int32(len(m.columns)), m.s, m.a, m.nearest, np.float64(outside))
    recent = (m.recent_argmax, m.recent_place, m.recent_s, m.recent_e, m.recent_a, m.recent_most)
    vectors = (m.c, m.r_diagonal, m.a_diagonal, m.preference, m.sums, m.slack, m.undecided)
    kernel = _columns(m.s).get_function("pass_column_rows")
    kernel(
        (-(-len(rows) // ROWS),), (THREADS,), (rows, *sizes, *kept, m.u, *recent, *vectors, *map(np.float64, numbers))
    )


def place_listed(begin: Array, own: Array, column: Array, values: Array, where: Array, out: Array) -> None:
    if len(begin):
        arguments = (begin, own, column, values, where, np.int32(out.shape[1]), out)
        _columns(out).get_function("place_listed")((len(begin),), (THREADS,), arguments)


def replay(s: Array, a: Array, c: Array, u: Array, first: int, sigmas: list[float], dampings: list[float]) -> None:
    if not s.size:
        return
    sizes = (*map(np.int32, s.shape), np.int32(len(sigmas)))
    course = (
        c,
        u,
        np.int32(u.shape[1]),
        np.int32(first),
        cp.asarray(sigmas, cp.float64),
        cp.asarray(dampings, cp.float64),
    )
    _columns(s).get_function("replay")((-(-s.size // THREADS),), (THREADS,), (s, a, *sizes, *course))


def _columns(s: Array) -> Module:
    return compiled("affinity_propagation/sparse_forms/columns.cu", s.dtype.name)
