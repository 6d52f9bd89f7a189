"""Columns in boxes on a CUDA device (``column_boxes.cu``): see `mgclust.kernels.pairs.column_boxes`.

A row looks at 32 columns for what the all-pairs kernels take for some hundreds, and boxes take a while to make: some
rows are tried first, and boxes are used where few of the panels are near.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.pairs.column_boxes import MAX_FEATURES, WIDTH, Boxes, build, halved_by_sorting, least_numbers
from mgclust.kernels.toolkit.gpu_compiler import compiled, or_null

__all__ = [
    "box_border",
    "box_count",
    "box_mark",
    "box_nearest",
    "box_neighbors",
    "box_write",
    "boxes_for",
    "build_boxes",
    "places",
]

Array = Any
MIN_COLUMNS = 4096
MIN_PAIRS = 1 << 35  # fewer take some tens of milliseconds
TRIED_ROWS = 2048
NEAR_SHARE = 0.08  # of the panels, on average: a panel costs a row as much as ten cost the all-pairs kernels
WARPS = 4  # of a block, a row each
PIECE = 1 << 22  # rows that are put into order together: 64 MiB of places and numbers
FEW_ROWS = 1 << 14  # are searched in their own order
MAX_NEIGHBORS = 480  # of a row: lists of a block, and what a panel adds, in 48 KiB
CURVE_BITS = 62  # of a place, over all features
THREADS = 256


def boxes_for(
    x: Array,
    y: Array,
    norm: str,
    threshold: float | None = None,
    best: Array | None = None,
    neighbors: int = 0,
    least_pairs: int | None = None,
) -> Boxes | None:
    """Put columns into boxes if that will pay: few features, many pairs, and few of the panels near a row.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
    norm : {"l2", "l1"}
    threshold : float, optional
        Without one, the nearest column is wanted.
    best : array of shape (m,), optional
        The rows' smallest reduced distances so far, where the nearest column is wanted.
    neighbors : int
        So many nearest ones are, if not 0.
    least_pairs : int, optional
        Fewer take too little time; `MIN_PAIRS` by default.
    """
    (m, d), k = x.shape, len(y)
    least_pairs = MIN_PAIRS if least_pairs is None else least_pairs
    if d > MAX_FEATURES or k < MIN_COLUMNS or m * k < least_pairs or neighbors > MAX_NEIGHBORS:
        return None
    boxes = build_boxes(y)
    step = max(1, m // TRIED_ROWS)
    few, visited = cp.ascontiguousarray(x[::step]), cp.zeros(1, np.uint64)
    if threshold is not None:
        box_count(few, boxes, norm, threshold, cp.zeros(len(few), np.int64), visited)
    elif neighbors:
        near, index = cp.full((len(few), neighbors), cp.inf, x.dtype), cp.full((len(few), neighbors), -1, np.int64)
        box_neighbors(few, boxes, norm, 0, near, index, cp.full(len(few), -1, np.int64), visited)
    else:
        near = cp.full(len(few), cp.inf, x.dtype) if best is None else best[::step].copy()
        box_nearest(few, boxes, norm, 0, near, cp.full(len(few), -1, np.int64), visited)
    return boxes if int(visited[0]) <= NEAR_SHARE * -(-k // WIDTH) * len(few) else None


def build_boxes(y: Array) -> Boxes:
    """Put columns into boxes."""
    return build(y, halved_by_sorting(y, cp), cp)


def box_count(x: Array, boxes: Boxes, norm: str, threshold: float, out: Array, visited: Array | None = None) -> None:
    """Add the number of columns with s < threshold to each row's, and to `visited` how many panels were looked at."""
    _search("box_count", x, boxes, norm, x.dtype.type(threshold), out, or_null(visited))


def box_border(
    x: Array, boxes: Boxes, x_labels: Array, y_labels: Array, norm: str, threshold: float, out: Array
) -> None:
    """Mark rows that have a column of another label with s < threshold."""
    labels = cp.zeros(len(boxes.index), np.int32)
    labels[: len(boxes.order)] = y_labels[boxes.order]
    _search("box_border", x, boxes, norm, x.dtype.type(threshold), x_labels.astype(np.int32), labels, out)


def box_mark(x: Array, boxes: Boxes, norm: str, threshold: float, out: Array) -> None:
    """Mark columns that have a row with s < threshold."""
    _search("box_mark", x, boxes, norm, x.dtype.type(threshold), boxes.index, out)


def box_write(x: Array, boxes: Boxes, norm: str, threshold: float, starts: Array, out: Array) -> None:
    """List each row's columns with s < threshold, ascending."""
    _search("box_write", x, boxes, norm, x.dtype.type(threshold), boxes.index, starts, out)


def box_nearest(
    x: Array, boxes: Boxes, norm: str, y_start: int, best: Array, best_index: Array, visited: Array | None = None
) -> None:
    """Lower each row's best to its nearest column, of equally near ones the first."""
    _search("box_nearest", x, boxes, norm, boxes.index, np.int64(y_start), best, best_index, or_null(visited))


def box_neighbors(
    x: Array,
    boxes: Boxes,
    norm: str,
    y_start: int,
    near: Array,
    near_index: Array,
    rows: Array,
    visited: Array | None = None,
) -> None:
    """Do what `Pairs.nearest_rows` does, for lists of at most `MAX_NEIGHBORS`."""
    count, room = near.shape[1], 2 * WIDTH
    while room < count + WIDTH:
        room *= 2
    figures = boxes.index, least_numbers(boxes, cp), np.int64(y_start), np.int32(count), np.int32(room), rows
    shared = WARPS * room * (8 + x.itemsize)
    _search("box_neighbors", x, boxes, norm, *figures, near, near_index, or_null(visited), shared_mem=shared)


def places(x: Array, bits: int) -> Array:
    """Places of rows along a Morton curve: features as whole numbers of so many bits, interleaved; int64."""
    n, d = x.shape
    low, high = (cp.asnumpy(end).astype(np.float64) for end in (x.min(axis=0), x.max(axis=0)))
    scale = (2.0**bits - 1) / np.where(high > low, high - low, 1.0)
    codes = cp.empty(n, np.int64)
    kernel = compiled("pairs/column_boxes.cu", x.dtype.name, DIM=d).get_function("curve")
    place = cp.asarray(np.stack([low, scale]))
    kernel((-(-n // THREADS),), (THREADS,), (cp.ascontiguousarray(x), np.int64(n), np.int32(bits), place, codes))
    return codes


def _search(name: str, x: Array, boxes: Boxes, norm: str, *arguments: Any, shared_mem: int = 0) -> None:
    """Start a kernel with one warp a row, neighbouring rows together."""
    m, d = x.shape
    kernel = compiled("pairs/column_boxes.cu", x.dtype.name, norm, DIM=d).get_function(name)
    levels = cp.asarray(boxes.starts[:-1].astype(np.int32))
    tree = (boxes.panels, boxes.low, boxes.high, levels, np.int32(len(levels)))
    for start in range(0, m, PIECE):
        few = min(PIECE, m - start)
        order = None
        if m > FEW_ROWS:
            order = cp.argsort(places(x[start : start + few], CURVE_BITS // d)) + start
        kernel(
            (-(-few // WARPS),),
            (32 * WARPS,),
            (x, or_null(order), np.int32(few), *tree, *arguments),
            shared_mem=shared_mem,
        )
