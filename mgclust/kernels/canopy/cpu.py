"""Canopies on the CPU: greedy choice of an independent set, rows near the chosen rows, and lists of near columns.

All functions use the same reduced distances as the other kernels, so they agree with these on which pairs are near.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.pairs import cpu_loops
from mgclust.kernels.pairs.boxes.column_boxes import MAX_FEATURES
from mgclust.kernels.pairs.boxes.cpu_column_boxes import box_mark, box_write, boxes_for, build_boxes, panel_distances
from mgclust.kernels.pairs.cpu_loops import FULL, ROWS, pair_distances, valid_lanes
from mgclust.kernels.pairs.cpu_sparse import sparse_columns
from mgclust.kernels.pairs.cpu_tasks import each_task, pack
from mgclust.kernels.toolkit.cpu_compiler import compiled, inlined
from mgclust.kernels.toolkit.simd import WIDTH, first_lane, store, values_below
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

__all__ = [
    "MAX_OFFERED",
    "MIN_BOXED",
    "first_independent",
    "mark_near",
    "row_boxes",
    "spanning_trees",
    "write_within",
]

Array = Any
# With 6 features and 300,000 rows, boxes took more time than they saved; with 1,000,000 rows, they saved a little.
MIN_BOXED = 1 << 20
MAX_OFFERED = 4096  # in larger steps, candidates would be compared with more other candidates


def first_independent(x: Array, *, norm: str, threshold: float, out: Array) -> None:
    k, d = x.shape
    if (columns := sparse_columns(x, x, norm)) is not None:
        columns.pick(x.dtype.type(threshold), out)
        return
    panels = np.empty(-(-k // WIDTH) * WIDTH * d, x.dtype)
    pack(x, panels)
    pick(x.reshape(-1), d, k, panels, norm == "l1", x.dtype.type(threshold), np.zeros(-(-k // WIDTH), np.int64), out)


def row_boxes(x: Array) -> Any:
    return build_boxes(x) if x.shape[1] <= MAX_FEATURES else None


def mark_near(boxes: Any, y: Array, *, norm: str, threshold: float, out: Array) -> None:
    box_mark(y, boxes, norm == "l1", y.dtype.type(threshold), out)


def spanning_trees(x: Array, numbers: Array, starts: np.ndarray, *, norm: str, s: Array, other: Array) -> None:
    flat, d = x.reshape(-1), x.shape[1]
    largest = int(np.diff(starts).max(initial=0))
    count = -(-largest // WIDTH)
    scratch = [
        (np.empty(count * WIDTH * d, x.dtype), np.empty(count * WIDTH, x.dtype), np.empty(largest, bool))
        for _ in range(thread_count())
    ]
    order = np.argsort(-np.diff(starts))  # the largest groups come first, so that no thread ends with a large group

    def task(index: int, thread: int) -> None:
        first, last = starts[order[index]], starts[order[index] + 1]
        panels, found, joined = scratch[thread]
        cpu_loops.pack(x[first:last], 0, panels, 0, -(-(last - first) // WIDTH))
        join(flat, d, first, last, panels, found, joined, norm == "l1", numbers, s, other)

    run_tasks(len(order), task)


def write_within(x: Array, y: Array, *, norm: str, threshold: float, starts: Array, out: Array) -> None:
    flat, d, limit = x.reshape(-1), x.shape[1], x.dtype.type(threshold)
    if (boxes := boxes_for(x, y, norm == "l1", limit)) is not None:
        box_write(x, boxes, norm == "l1", limit, starts, out)
        return
    if (columns := sparse_columns(x, y, norm)) is not None:
        columns.write(limit, starts, out)
        return
    ends = np.array(starts, np.int64)  # current ends of the lists; they grow with each batch

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        write(flat, d, start, stop, panels, columns, norm == "l1", limit, first, ends, out)

    each_task(x, y, body)


@compiled
def pick(x: Any, d: int, rows: int, panels: Any, manhattan: bool, threshold: Any, near: Any, out: Any) -> None:
    """Set `out` to 1 for picked rows and to 0 for others; the bits of `near` mark rows that are ruled out."""
    limit = x.dtype.type(threshold)
    for i in range(rows):
        own = i // WIDTH
        out[i] = 0
        if (near[own] >> (i % WIDTH)) & 1:
            continue
        out[i] = 1
        for p in range(own, len(near)):
            if near[p] != FULL:
                near[p] |= values_below(panel_distances(x, i, d, panels, p, manhattan), limit)


@inlined
def _before(s: Any, a: int, b: int, t: Any, c: int, e: int) -> bool:
    """Return whether the edge between rows a and b, at distance s, comes before the edge (c, e) at distance t."""
    if s != t:
        return bool(s < t)
    low, least = min(a, b), min(c, e)
    return low < least or (low == least and max(a, b) < max(c, e))


@compiled
def join(
    x: Any,
    d: int,
    first: int,
    last: int,
    panels: Any,
    found: Any,
    joined: Any,
    manhattan: bool,
    numbers: Any,
    best: Any,
    other: Any,
) -> None:
    """Join rows first..last-1 to the tree of row `first`, always by the first edge in the order of `_before`."""
    rows = last - first
    for i in range(rows):
        best[first + i] = np.inf
        other[first + i] = numbers[first]
        joined[i] = False
    joined[0] = True
    new = 0
    for _ in range(rows - 1):
        own = numbers[first + new]
        for p in range((rows + WIDTH - 1) // WIDTH):
            store(found, p * WIDTH, panel_distances(x, first + new, d, panels, p, manhattan))
        new = -1
        for i in range(rows):
            if joined[i]:
                continue
            at = first + i
            if _before(found[i], numbers[at], own, best[at], numbers[at], other[at]):
                best[at] = found[i]
                other[at] = own
            if new < 0 or _before(
                best[at], numbers[at], other[at], best[first + new], numbers[first + new], other[first + new]
            ):
                new = i
        joined[new] = True


@inlined
def _append(mask: int, row: int, first: int, ends: Any, out: Any) -> None:
    """Append the columns whose bits are set to a row's list."""
    at = ends[row]
    while mask:
        out[at] = first + first_lane(mask)
        at += 1
        mask &= mask - 1
    ends[row] = at


@compiled
def write(
    x: Any,
    d: int,
    start: int,
    stop: int,
    panels: Any,
    columns: int,
    manhattan: bool,
    threshold: Any,
    number: int,
    ends: Any,
    out: Any,
) -> None:
    """Append the columns with s < threshold to the lists of rows start..stop-1; `number` is the number of column 0."""
    limit = x.dtype.type(threshold)
    for begin in range(start, stop, ROWS):
        end = min(begin + ROWS, stop)
        for p in range((columns + WIDTH - 1) // WIDTH):
            valid = valid_lanes(p, columns)
            first = number + p * WIDTH
            for i in range(begin, end, 4):
                s0, s1, s2, s3 = pair_distances(x, i, end - 1, d, panels, p, manhattan)
                _append(values_below(s0, limit) & valid, i, first, ends, out)
                if i + 1 < end:
                    _append(values_below(s1, limit) & valid, i + 1, first, ends, out)
                if i + 2 < end:
                    _append(values_below(s2, limit) & valid, i + 2, first, ends, out)
                if i + 3 < end:
                    _append(values_below(s3, limit) & valid, i + 3, first, ends, out)
