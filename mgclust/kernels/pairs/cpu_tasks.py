"""Tasks of the pair kernels on the CPU: columns are packed into panels in batches, rows are divided among threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.kernels.pairs import cpu_loops as pairs
from mgclust.kernels.pairs.cpu_loops import SUM_TILE
from mgclust.kernels.toolkit.simd import WIDTH
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

__all__ = ["ThreadCounts", "batch_columns", "by_rows", "each_task", "nearest_in_batch", "pack", "padded"]

Array = Any
BATCH_BYTES = 4 << 20
TASK_PAIRS = 4 << 20
LINE_BYTES = 64
MIN_TASK = 1 << 22  # multiply-adds of a task: for fewer, waking a thread does not pay
MAX_APART = 1 << 16  # up to this number of bins (half a megabyte), each thread has its own counts


class ThreadCounts:
    """Counts of a call: each thread has its own counts if there are few bins, else all threads share one array.

    Distances of many features lie in a few hundred bins. If threads shared these bins, the bins' memory would move from
    core to core with every pair, which takes 20 times as long on two cores.

    Parameters
    ----------
    out : int64 array
        Array for the final counts: first the number of pairs below the bins, then the number in each bin.
    """

    def __init__(self, out: Array) -> None:
        self._out = out
        self._shared = len(out) - 1 > MAX_APART and thread_count() > 1
        self._others: dict[int, Array] = {}

    def of(self, thread: int) -> tuple[Array, bool]:
        """Return the array of this thread, and whether other threads also add to it."""
        if self._shared or not thread:
            return self._out, self._shared
        if thread not in self._others:
            self._others[thread] = np.zeros_like(self._out)
        return self._others[thread], False

    def gather(self) -> None:
        """Add the counts of all threads to `out`."""
        for counts in self._others.values():
            self._out += counts


def each_task(x: Array, y: Array, body: Callable[[int, int, Array, int, int, int], None]) -> None:
    """Call ``body(start, stop, panels, first, columns, thread)`` until all rows are combined with all columns.

    `first` is the first column of a batch. Batches are processed one at a time, in ascending order.
    """
    (m, d), k = x.shape, y.shape[0]
    batch = batch_columns(x)
    panels = empty_panels(min(batch, k), x)
    for first in range(0, k, batch):
        columns = min(batch, k - first)
        pack(y[first : first + columns], panels)

        def task(start: int, stop: int, thread: int, first: int = first, columns: int = columns) -> None:
            body(start, stop, panels, first, columns, thread)

        by_rows(m, d, columns, task)


def batch_columns(x: Array) -> int:
    """Return the number of columns of a batch, which are packed together."""
    return int(max(1, BATCH_BYTES // (x.shape[1] * x.itemsize * SUM_TILE)) * SUM_TILE)


def by_rows(m: int, d: int, columns: int, body: Callable[[int, int, int], None]) -> None:
    """Call ``body(start, stop, thread)`` until all rows are done; each task has enough pairs."""
    rows = MIN_TASK // (columns * d)
    if rows < m:
        rows = max(-(-m // (4 * thread_count())), rows)
    rows = max(8, -(-min(rows, TASK_PAIRS // columns) // 4) * 4)
    run_tasks(-(-m // rows), lambda index, thread: body(index * rows, min((index + 1) * rows, m), thread))


def empty_panels(columns: int, x: Array) -> Array:
    """Allocate panels at the start of a cache line, because a load across two cache lines takes twice as long."""
    size = -(-columns // WIDTH) * WIDTH * x.shape[1]
    room = np.empty(size + LINE_BYTES // x.itemsize, x.dtype)
    start = -room.ctypes.data % LINE_BYTES // x.itemsize
    return room[start : start + size]


def pack(y: Array, panels: Array) -> None:
    """Fill panels with all columns of y."""
    count, step = -(-y.shape[0] // WIDTH), 64
    if step < count:
        step = max(step, -(-count // thread_count()))
    run_tasks(-(-count // step), lambda t, _: pairs.pack(y, 0, panels, t * step, min((t + 1) * step, count)))


def padded(values: Array, fill: int) -> Array:
    """Return an int32 copy, padded to a multiple of WIDTH."""
    out = np.full(-(-len(values) // WIDTH) * WIDTH, fill, np.int32)
    out[: len(values)] = values
    return out


def nearest_in_batch(
    x: Array, y: Array, x_order: Array, y_order: Array, norm: str, y_start: int, best: Array, best_index: Array
) -> None:
    """Update each row's nearest column of higher density so far with one batch of columns."""
    columns = len(y)
    ascending = np.argsort(y_order)
    panels = empty_panels(columns, x)
    pack(y[ascending], panels)
    order = padded(y_order[ascending], np.iinfo(np.int32).max)
    numbers = y_start + ascending

    def body(start: int, stop: int, thread: int) -> None:
        rows = start + np.argsort(x_order[start:stop])
        own, own_order, near, found = x[rows].reshape(-1), x_order[rows], best[rows], best_index[rows]
        pairs.nearest(own, x.shape[1], len(rows), panels, columns, norm == "l1", own_order, order, numbers, near, found)
        best[rows], best_index[rows] = near, found

    by_rows(x.shape[0], x.shape[1], columns, body)
