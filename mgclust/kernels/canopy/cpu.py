"""CPU kernels of canopies: a greedily chosen independent set of a few rows, rows near it, and lists of near columns.

All decide with the reduced distances of every other kernel, so that a pair is near for all of them or for none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.pairs.column_boxes import MOST_FEATURES, build
from mgclust.kernels.pairs.cpu_column_boxes import box_mark, box_write, boxes_for, halved, panel_distances
from mgclust.kernels.pairs.cpu_loops import FULL, ROWS, pair_distances, valid_lanes
from mgclust.kernels.pairs.cpu_tasks import each_task, pack
from mgclust.kernels.toolkit.cpu_compiler import compiled, inlined
from mgclust.kernels.toolkit.simd import WIDTH, first_lane, values_below

__all__ = ["first_independent", "mark_near", "row_boxes", "write_within"]

Array = Any


def first_independent(x: Array, *, norm: str, threshold: float, out: Array) -> None:
    k, d = x.shape
    panels = np.empty(-(-k // WIDTH) * WIDTH * d, x.dtype)
    pack(x, panels)
    pick(x.reshape(-1), d, k, panels, norm == "l1", x.dtype.type(threshold), np.zeros(-(-k // WIDTH), np.int64), out)


def row_boxes(x: Array) -> Any:
    return build(x, halved(x), np) if x.shape[1] <= MOST_FEATURES else None


def mark_near(boxes: Any, y: Array, *, norm: str, threshold: float, out: Array) -> None:
    box_mark(y, boxes, norm == "l1", y.dtype.type(threshold), out)


def write_within(x: Array, y: Array, *, norm: str, threshold: float, starts: Array, out: Array) -> None:
    flat, d, limit = x.reshape(-1), x.shape[1], x.dtype.type(threshold)
    if (boxes := boxes_for(x, y, norm == "l1", limit)) is not None:
        box_write(x, boxes, norm == "l1", limit, starts, out)
        return
    ends = np.array(starts, np.int64)  # of the lists so far: a copy, which moves on from batch to batch

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        write(flat, d, start, stop, panels, columns, norm == "l1", limit, first, ends, out)

    each_task(x, y, body)


@compiled
def pick(x: Any, d: int, rows: int, panels: Any, manhattan: bool, threshold: Any, near: Any, out: Any) -> None:
    """Set out to 1 for rows that are picked, to 0 for the others; one bit a row tells which are ruled out."""
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
    """Append the columns with s < threshold to the lists of rows start..stop-1; column 0 has this number."""
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
