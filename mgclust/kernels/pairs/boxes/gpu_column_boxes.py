"""Searches in boxes on a CUDA device (``column_boxes.cu``): see `mgclust.kernels.pairs.boxes.column_boxes`.

While a row is compared with 32 columns here, the kernels for all pairs compare it with several hundred columns; and it
takes time to build the boxes. So some rows are tried first, and boxes are used only if few of the panels are near.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.pairs.boxes.column_boxes import (
    MAX_FEATURES,
    WIDTH,
    Boxes,
    build,
    curve_bits,
    halved_by_sorting,
    labels_below,
    ranks_below,
)
from mgclust.kernels.toolkit.gpu_compiler import compiled, or_null

__all__ = [
    "box_border",
    "box_count",
    "box_histogram",
    "box_mark",
    "box_nearest",
    "box_nearest_higher",
    "box_neighbors",
    "box_write",
    "boxes_for",
    "build_along_curve",
    "build_boxes",
]

Array = Any
MIN_COLUMNS = 4096
MIN_PAIRS = 1 << 35  # fewer pairs take only some tens of milliseconds without boxes
TRIED_ROWS = 2048
NEAR_SHARE = 0.08  # largest mean fraction of near panels: a panel takes as long as ten panels in kernels for all pairs
WARPS = 4  # warps per block, one row each
PIECE = 1 << 22  # rows that are sorted together: 64 MiB of positions and numbers
FEW_ROWS = 1 << 14  # up to this number, rows are searched in their own order
MAX_NEIGHBORS = 480  # up to this number of neighbours, the lists of a block and the columns of a panel fit into 48 KiB
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
    """Put columns into boxes if this is faster: for few features, many pairs, and few panels near each row; else None.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows and columns.
    norm : {"l2", "l1"}
        Reduced distance to compute.
    threshold : float, optional
        Threshold of the reduced distance. If None, nearest columns are searched.
    best : array of shape (m,), optional
        Smallest reduced distances of the rows so far, if one nearest column is searched.
    neighbors : int
        Number of nearest columns to keep in lists; 0 if one nearest column is searched.
    least_pairs : int, optional
        Smallest number of pairs for which boxes are tried; by default `MIN_PAIRS`.
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
    """Put columns into boxes, by halving them along the widest feature."""
    order = halved_by_sorting(y, cp)
    return build(y[order], order, cp)


def build_along_curve(y: Array) -> tuple[Array, Boxes]:
    """Sort columns along a Morton curve, and put them into boxes; return the sorted columns and the boxes."""
    order = cp.argsort(_places(y))
    columns = cp.ascontiguousarray(y[order])
    return columns, build(columns, order, cp)


def box_count(
    x: Array,
    boxes: Boxes,
    norm: str,
    threshold: float,
    out: Array,
    visited: Array | None = None,
    *,
    in_order: bool = False,
) -> None:
    """Add to each row the number of columns with s < threshold, and to `visited` the number of panels read.

    With `in_order`, successive rows are near each other, for example along a curve, and are not sorted again.
    """
    limit, columns = x.dtype.type(threshold), np.int32(boxes.columns)
    _search("box_count", x, boxes, norm, columns, limit, out, or_null(visited), in_order=in_order)


def box_border(
    x: Array,
    boxes: Boxes,
    x_labels: Array,
    y_labels: Array,
    norm: str,
    threshold: float,
    out: Array,
    *,
    in_order: bool = False,
) -> None:
    """Mark rows that have a column with another label and s < threshold."""
    labels = x_labels.astype(np.int32, copy=False), *labels_below(boxes, y_labels, cp)
    _search("box_border", x, boxes, norm, x.dtype.type(threshold), *labels, out, in_order=in_order)


def box_mark(x: Array, boxes: Boxes, norm: str, threshold: float, out: Array) -> None:
    """Mark columns that have a row with s < threshold."""
    _search("box_mark", x, boxes, norm, x.dtype.type(threshold), boxes.index, out)


def box_write(x: Array, boxes: Boxes, norm: str, threshold: float, starts: Array, out: Array) -> None:
    """List each row's columns with s < threshold, ascending."""
    _search("box_write", x, boxes, norm, x.dtype.type(threshold), boxes.index, starts, out)


def box_nearest(
    x: Array, boxes: Boxes, norm: str, y_start: int, best: Array, best_index: Array, visited: Array | None = None
) -> None:
    """Update each row's nearest column so far; ties go to the first column."""
    figures = boxes.index, boxes.least, np.int64(y_start)
    _search("box_nearest", x, boxes, norm, *figures, best, best_index, or_null(visited))


def box_nearest_higher(x: Array, boxes: Boxes, ranks: Array, first: int, best: Array, best_index: Array) -> None:
    """Find each row's nearest column of lower rank; the rows are the columns at the positions from `first` on."""
    figures = boxes.index, boxes.least, *ranks_below(boxes, ranks, cp), np.int32(first)
    _search("box_nearest_higher", x, boxes, "l2", *figures, best, best_index, in_order=True)


def box_histogram(boxes: Boxes, dtype: Any, d: int, part: int, parts: int, low: int, shift: int, out: Array) -> None:
    """Count pairs i < j of columns by the bits of s; i lies in every `parts`-th panel from `part` on, j anywhere."""
    infinity = int(np.array(np.inf, dtype).view(f"i{dtype.itemsize}"))
    width = np.dtype(f"u{dtype.itemsize}").type(min((out.size - 1) << shift, infinity - low))
    bracket = np.dtype(f"i{dtype.itemsize}").type(low), width, np.int32(shift)
    warps = -(-(-(-boxes.columns // WIDTH) - part) // parts)
    if warps > 0:
        kernel = compiled("pairs/boxes/column_boxes.cu", dtype.name, DIM=d).get_function("box_histogram")
        sizes = np.int32(boxes.columns), np.int32(part), np.int32(parts)
        kernel((-(-warps // WARPS),), (32 * WARPS,), (*_searched(boxes), *sizes, *bracket, out))


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
    """Do the work of `PairKernels.nearest_rows` for lists of at most `MAX_NEIGHBORS` columns."""
    count, room = near.shape[1], 2 * WIDTH
    while room < count + WIDTH:
        room *= 2
    figures = boxes.index, boxes.least, np.int64(y_start), np.int32(count), np.int32(room), rows
    shared = WARPS * room * (8 + x.itemsize)
    _search("box_neighbors", x, boxes, norm, *figures, near, near_index, or_null(visited), shared_mem=shared)


def _places(x: Array) -> Array:
    """Return int64 positions of rows along a Morton curve: the interleaved bits of integer features."""
    n, d = x.shape
    bits = curve_bits(d)
    low, high = (cp.asnumpy(end).astype(np.float64) for end in (x.min(axis=0), x.max(axis=0)))
    scale = (2.0**bits - 1) / np.where(high > low, high - low, 1.0)
    codes = cp.empty(n, np.int64)
    kernel = compiled("pairs/boxes/column_boxes.cu", x.dtype.name, DIM=d).get_function("curve")
    place = cp.asarray(np.stack([low, scale]))
    kernel((-(-n // THREADS),), (THREADS,), (cp.ascontiguousarray(x), np.int64(n), np.int32(bits), place, codes))
    return codes


def _searched(boxes: Boxes) -> tuple[Any, ...]:
    levels = cp.asarray(boxes.starts[:-1].astype(np.int32))
    return boxes.panels, boxes.low, boxes.high, levels, np.int32(len(levels))


def _search(
    name: str, x: Array, boxes: Boxes, norm: str, *arguments: Any, shared_mem: int = 0, in_order: bool = False
) -> None:
    """Start a kernel with one warp per row; rows are sorted, if necessary, so that near rows run together."""
    m, d = x.shape
    kernel = compiled("pairs/boxes/column_boxes.cu", x.dtype.name, norm, DIM=d).get_function(name)
    searched, piece = _searched(boxes), max(m, 1) if in_order else PIECE
    for start in range(0, m, piece):
        few = min(piece, m - start)
        order = None
        if m > FEW_ROWS and not in_order:
            order = cp.argsort(_places(x[start : start + few])) + start
        kernel(
            (-(-few // WARPS),),
            (32 * WARPS,),
            (x, or_null(order), np.int32(few), *searched, *arguments),
            shared_mem=shared_mem,
        )
