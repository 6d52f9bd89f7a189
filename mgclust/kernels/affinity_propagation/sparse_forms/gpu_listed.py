"""Message passing with neighbour lists, on a CUDA device (``listed.cu``; lists: ``lists.cu``); see `listed`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.affinity_propagation.messages import Iteration
from mgclust.kernels.affinity_propagation.similarities.gpu_similarities import (
    jitter_lists,
    jitter_pairs,
    similarities_of_columns,
    similarities_of_rows,
)
from mgclust.kernels.affinity_propagation.sparse_forms.listed import ListedMessages, Step
from mgclust.kernels.toolkit.gpu_compiler import Module, compiled

__all__ = [
    "count_similar",
    "gather_own",
    "jitter_lists",
    "jitter_pairs",
    "list_similar",
    "module_of",
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
THREADS = 256  # threads per block in listed.cu and lists.cu
ROW_THREADS = 64  # threads per block that passes rows in listed.cu
EACH = 4  # elements that a lane reads together in listed.cu
# Lanes per row in listed.cu, without and with active columns. There are active columns if there are few clusters; then
# rows have more own elements.
LANES = {False: 8, True: 16}


def pass_listed_iterations(
    messages: ListedMessages, steps: Sequence[Step], *, passed: bool, meet: Callable[[], None]
) -> None:
    m, turn = messages, 0
    module, slots = _listed(m), [slot for slot, _ in steps]
    # Arguments that all iterations share are prepared only once, because this takes longer than an iteration does on
    # the device.
    active_a = _of_active(m)
    order = cp.argsort(cp.maximum(m.own, m.read))  # rows with more elements come later; the kernel begins at the end
    rows_before, rows_after = _arguments_of_rows(m, order, active_a, again=False)
    vectors = (m.totals, m.sums, m.progress, m.c, m.r_diagonal, m.a_diagonal, m.exemplars, m.last_exemplars, m.counts)
    columns = (np.int32(m.n), *vectors, m.a_column, m.active, np.int32(len(m.active)), active_a, m.outside)
    pass_rows, pass_columns = module.get_function("pass_listed_rows"), module.get_function("pass_listed_columns")
    row_blocks, blocks, threads = (_row_blocks(m, len(m.begin)),), (-(-m.n // THREADS),), (THREADS,)
    # Slots are used in a cycle: after the last slot comes the first.
    ends = [at for at in range(1, len(slots)) if slots[at] < slots[at - 1]]
    for part in filter(None, (slots[: ends[0]], slots[ends[0] :]) if ends else (slots,)):
        m.counts[part[0] : part[-1] + 1] = 0
    if passed:
        m.outside[...] = 0
    else:
        _begin(m, active_a, steps[0][1].damping, again=False)
    for at, (slot, numbers) in enumerate(steps):
        if row_blocks[0] and (at or not passed):
            pass_rows(
                row_blocks, (ROW_THREADS,), (*rows_before, np.int32(turn), *rows_after, *map(np.float64, numbers))
            )
        meet()
        turn = 1 - turn
        following = (np.int32(slot), np.int32(turn), np.bool_(at + 1 < len(steps)))
        last = (np.float64(numbers.next_damping), np.float64(numbers.scale))
        pass_columns(blocks, threads, (*columns, *following, *last))


def pass_listed_rows(messages: ListedMessages, rows: Array, numbers: Iteration, *, again: bool) -> None:
    if again:
        numbers = numbers._replace(damping=1.0)  # A does not change
    active_a = _of_active(messages)
    _begin(messages, active_a, numbers.damping, again=again)
    if len(rows):
        before, after = _arguments_of_rows(messages, rows, active_a, again=again)
        kernel = _listed(messages).get_function("pass_listed_rows")
        arguments = (*before, np.int32(0), *after, *map(np.float64, numbers))
        kernel((_row_blocks(messages, len(rows)),), (ROW_THREADS,), arguments)


def _of_active(messages: ListedMessages) -> Array:
    """Allocate an array for a(k) of the active columns: `finish_column` of the kernels writes it, and rows read it."""
    return cp.empty(-(-len(messages.active) // EACH) * EACH, messages.s.dtype)


def _begin(messages: ListedMessages, active_a: Array, damping: float, *, again: bool) -> None:
    m = messages
    if len(m.active):
        m.outside[...] = 0
    active = (m.active, np.int32(len(m.active)), active_a, m.outside)
    arguments = (np.int32(m.n), m.c, m.a_column, *active, m.progress, np.bool_(again), np.float64(damping))
    _listed(m).get_function("begin_listed")((-(-m.n // THREADS),), (THREADS,), arguments)


def _arguments_of_rows(
    messages: ListedMessages, rows: Array, active_a: Array, *, again: bool
) -> tuple[tuple[Any, ...], ...]:
    """Return the arguments of the kernel pass_listed_rows before `turn`, and between `turn` and the numbers."""
    m = messages
    sizes = map(np.int32, (len(rows), m.n, m.first_row, m.recent_argmax.shape[1]))
    lists = (m.begin, m.length, m.own, m.floor, m.column, m.s, m.a, m.a_column)
    active = (m.active, m.active_s, np.int32(len(m.active)), active_a, m.outside)
    recent = (m.u, m.recent_argmax, m.recent_place, m.recent_s, m.recent_e, m.recent_a, m.recent_most)
    vectors = (m.c, m.r_diagonal, m.a_diagonal, m.preference, m.sums, m.progress, np.bool_(again))
    return (rows, *sizes, *lists, *active), (*recent, *vectors, m.wanted, m.slack, m.read, m.undecided)


def _row_blocks(messages: ListedMessages, rows: int) -> int:
    return -(-rows * LANES[len(messages.active) > 0] // ROW_THREADS)


def module_of(dtype: str, active: bool) -> Module:
    """Return the kernels of ``listed.cu``; kernels without active columns need fewer registers."""
    lanes = LANES[active]
    return compiled(
        "affinity_propagation/sparse_forms/listed.cu", dtype, ACTIVE=int(active), LANES=lanes, ROW_THREADS=ROW_THREADS
    )


def _listed(messages: ListedMessages) -> Module:
    return module_of(messages.s.dtype.name, len(messages.active) > 0)


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
    if len(columns):  # sort the columns of each row
        row = cp.searchsorted(ends, order, side="right")
        order = cp.lexsort(cp.stack([columns.astype(np.int64), row]))
    _by_row(
        m.a, "place_own", len(rows), rows, counts, ends - counts, columns[order], values[order], m.begin, m.length,
        m.own, m.column, m.a, m.a_column, m.recent_argmax, m.recent_place, np.int32(m.recent_argmax.shape[1]),
    )  # fmt: skip


def redraw_lists(messages: ListedMessages, numbers: Array, *, seed: int, draw: int, tiny: float) -> None:
    m = messages
    least = m.s.dtype.type(tiny * np.finfo(m.s.dtype).tiny)
    _by_row(
        m.s, "redraw_lists", len(numbers), numbers, m.begin, m.length, m.own, m.column, m.s, m.a, m.a_column,
        m.recent_argmax, m.recent_place, m.recent_s, np.int32(m.recent_argmax.shape[1]), np.uint64(seed),
        np.uint32(draw), least,
    )  # fmt: skip


def nearest_flagged(messages: ListedMessages, flags: Array, *, out: Array, out_s: Array) -> None:
    m = len(messages.begin)
    if m:
        kernel = _lists(messages.s).get_function("nearest_flagged")
        lists = (messages.begin, messages.length, messages.column, messages.s)
        kernel((-(-m // (THREADS // 32)),), (THREADS,), (np.int32(m), *lists, flags, out, out_s))


def _lists(s: Array) -> Module:
    return compiled("affinity_propagation/sparse_forms/lists.cu", s.dtype.name)


def _by_row(s: Array, name: str, rows: int, *arguments: Any) -> None:
    """Start a kernel of ``lists.cu`` with one block per row; `s` has the similarities' type."""
    if rows:
        _lists(s).get_function(name)((rows,), (THREADS,), arguments)
