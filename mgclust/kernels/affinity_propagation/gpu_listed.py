"""Message passing on neighbour lists on a CUDA device (``listed.cu``), and the lists (``lists.cu``); see `listed`."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.affinity_propagation.gpu_similarities import (
    jitter_lists,
    jitter_pairs,
    jitter_rows,
    similarities_of_columns,
    similarities_of_rows,
)
from mgclust.kernels.affinity_propagation.listed import ListedMessages
from mgclust.kernels.toolkit.gpu_compiler import Module, compiled

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
    "pass_listed_rows",
    "place_own",
    "redraw_lists",
    "similarities_of_columns",
    "similarities_of_rows",
]

Array = Any
THREADS = 256  # of a block in listed.cu and lists.cu
ROWS = 8  # of a block in listed.cu: WARPS


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
    m, n, each = messages, np.int32(messages.n), len(rows)
    arguments: tuple[Any, ...]
    if again:
        damping = 1.0  # A stays
    module = compiled("affinity_propagation/listed.cu", m.s.dtype.name)
    active = (m.active, np.int32(len(m.active)))
    if len(m.active):
        cp.cuda.runtime.memsetAsync(m.outside.data.ptr, 0, m.outside.nbytes, cp.cuda.get_current_stream().ptr)
    waits = (m.progress, np.bool_(again))
    arguments = (n, m.c, m.a_column, *active, m.outside, *waits, np.float64(damping))
    module.get_function("begin_listed")((-(-messages.n // THREADS),), (THREADS,), arguments)
    if not each:
        return
    sizes = (np.int32(each), n, np.int32(m.first_row), np.int32(m.hot_column.shape[1]))
    lists = (m.begin, m.length, m.own, m.floor, m.column, m.s, m.a, m.a_column, m.active, m.active_s, active[1])
    hot = (m.hot_column, m.hot_place, m.hot_s, m.hot_e, m.hot_a, m.hot_most)
    vectors = (m.c, m.r_diagonal, m.a_diagonal, m.preference, m.sums)
    found = (m.wanted, m.slack, m.read, m.undecided)
    numbers = map(np.float64, (sigma, next_sigma, damping, next_damping, scale, negligible))
    arguments = (rows, *sizes, *lists, m.outside, m.u, *hot, *vectors, *waits, *found, *numbers)
    module.get_function("pass_listed_rows")((-(-each // ROWS),), (THREADS,), arguments)


def count_similar(s: Array, low: Array, *, out: Array) -> None:
    _by_row(s, "count_similar", len(s), s, np.int64(s.shape[1]), low, out)


def list_similar(s: Array, low: Array, begin: Array, *, column: Array, out: Array) -> None:
    _by_row(s, "list_similar", len(s), s, np.int64(s.shape[1]), low, begin, column, out)


def move_lists(messages: ListedMessages, begin: Array, *, values: Array, out: Array) -> None:
    name = "move_columns" if values.dtype.kind == "i" else "move_lists"
    _by_row(messages.s, name, len(begin), messages.begin, messages.length, values, begin, out)


def move_own(rows: Array, begin: Array, to: Array, length: Array, own: Array, a: Array) -> None:
    _by_row(a, "move_own", len(rows), rows, begin, to, length, own, a)


def gather_own(messages: ListedMessages, rows: Array) -> tuple[Array, Array, Array]:
    counts = messages.own[rows]
    ends = cp.cumsum(counts)
    total = int(ends[-1]) if len(rows) else 0
    columns, values = cp.empty(total, np.int32), cp.empty(total, messages.a.dtype)
    lists = (messages.begin, counts, ends - counts, messages.column, messages.a)
    _by_row(values, "gather_own", len(rows), rows, *lists, columns, values)
    return counts, columns, values


def place_own(messages: ListedMessages, rows: Array, counts: Array, columns: Array, values: Array) -> None:
    m, ends, order = messages, cp.cumsum(counts), cp.arange(len(columns))
    if len(columns):  # the columns of each row in ascending order
        row = cp.searchsorted(ends, order, side="right")
        order = cp.lexsort(cp.stack([columns.astype(np.int64), row]))
    _by_row(
        m.a, "place_own", len(rows), rows, counts, ends - counts, columns[order], values[order], m.begin, m.length,
        m.own, m.column, m.a, m.a_column, m.hot_column, m.hot_place, np.int32(m.hot_column.shape[1]),
    )  # fmt: skip


def redraw_lists(messages: ListedMessages, numbers: Array, *, seed: int, draw: int, tiny: float) -> None:
    m = messages
    least = m.s.dtype.type(tiny * np.finfo(m.s.dtype).tiny)
    _by_row(
        m.s, "redraw_lists", len(numbers), numbers, m.begin, m.length, m.own, m.column, m.s, m.a, m.a_column,
        m.hot_column, m.hot_place, m.hot_s, np.int32(m.hot_column.shape[1]), np.uint64(seed), np.uint32(draw), least,
    )  # fmt: skip


def nearest_flagged(messages: ListedMessages, flags: Array, *, out: Array, out_s: Array) -> None:
    m = len(messages.begin)
    if m:
        kernel = _lists(messages.s).get_function("nearest_flagged")
        lists = (messages.begin, messages.length, messages.column, messages.s)
        kernel((-(-m // (THREADS // 32)),), (THREADS,), (np.int32(m), *lists, flags, out, out_s))


def _lists(s: Array) -> Module:
    return compiled("affinity_propagation/lists.cu", s.dtype.name)


def _by_row(s: Array, name: str, rows: int, *arguments: Any) -> None:
    """Start a kernel of ``lists.cu`` with a block a row; `s` has the similarities' type."""
    if rows:
        _lists(s).get_function(name)((rows,), (THREADS,), arguments)
