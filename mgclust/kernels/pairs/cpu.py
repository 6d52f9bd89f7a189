"""Pair kernels on the CPU: every core, 32 columns at a time, bits that depend on the data alone.

A call meets m rows of x with k rows of y (the *columns*) and never stores the m x k distances::

    for each chunk of columns (<= CHUNK_BYTES, a multiple of SUM_TILE)
        pack it into panels                              2 k d reals moved, once per call
        for each task of rows, on any thread             ~TASK_PAIRS pairs
            cpu_loops.<kernel>(rows, panels)            cost per pair: see there

What a row receives does not depend on the other rows, the threads, or the chunks: reduced distances are
single chains of fused multiply-adds, counts are integers, minima break ties by index, and Gaussian sums add
in a fixed order (32 lanes within SUM_TILE columns in `real`, halved; tiles in float64), so long as y starts
at a multiple of SUM_TILE of the global rows. The first call of each kernel for a dtype compiles it (under a
second; Numba keeps it on disk).

`mgclust.kernels.pairs.gpu` has the same names and signatures.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.pairs import cpu_loops as pairs
from mgclust.kernels.pairs.cpu_column_boxes import box_border, box_count, box_nearest, boxes_for
from mgclust.kernels.pairs.cpu_tasks import chunk_columns, each_task, nearest_in_chunk, padded
from mgclust.kernels.toolkit.simd import WIDTH
from mgclust.kernels.toolkit.threads import thread_count

__all__ = [
    "NEIGHBORS",
    "border",
    "count_within",
    "gaussian_sum",
    "nearest_higher",
    "pair_histogram",
    "reduced_distances",
]

Array = Any
LOG2_E = 1.4426950408889634
NEIGHBORS = 8  # rows that `gaussian_sum` remembers for each: 5 to 10% more time, and no pass of `nearest_higher`


def pair_histogram(x: Array, y: Array, *, norm: str, diagonal: bool, low: int, shift: int, out: Array) -> None:
    """Count pairs by the IEEE bits of their reduced distance, an order that is exact.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.
    diagonal : bool
        x is y, and only pairs i < j count.
    low, shift : int
        With b = (bits - low) >> shift: pairs with bits < low are added to out[0], pairs with
        0 <= b < bins to out[1 + b], the others to none.
    out : int64 array of shape (bins + 1,)
        Added to in place.
    """
    largest = int(np.iinfo(f"i{x.itemsize}").max)
    high = min(low + ((len(out) - 1) << shift), largest)
    below = [0] * thread_count()
    flat, d, m = x.reshape(-1), x.shape[1], x.shape[0]

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        skip = first if diagonal else m + WIDTH
        below[thread] += pairs.histogram(
            flat, d, start, stop, panels, columns, norm == "l1", skip, min(low, largest), high, shift, out
        )

    each_task(x, y, body)
    out[0] += sum(below)


def gaussian_sum(
    x: Array,
    y: Array,
    *,
    norm: str,
    scale: float,
    power: int,
    out: Array,
    rows: Array | None = None,
    y_start: int = 0,
    near: Array | None = None,
    near_index: Array | None = None,
) -> None:
    """Add to each row the sum over all columns of ``exp(-scale * s**power)``.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.
    scale : float
        Positive.
    power : {1, 2}
        2 where the distance is proportional to s.
    out : float64 array of shape (m,)
        Added to in place, columns in ascending order.
    rows : int64 array of shape (m,), optional
        Global number of the column that each row leaves out: its own, or one that is equal to the row. (Subtracting its
        1 afterwards would lose the digits of a small sum.)
    y_start : int
        Global number of the first column, a multiple of 1024.
    near : array of shape (m, NEIGHBORS), the rows' type, optional
        The smallest s so far, the row's own among them, ascending (infinity at first), in place: what
        `mgclust.kernels.pairs.neighbors` needs. Only where this module's NEIGHBORS is not 0.
    near_index : int64 array of shape (m, NEIGHBORS), optional
        Their global numbers (-1 at first), in place.
    """
    if near is None or near_index is None:
        near, near_index = np.empty((len(x), 0), x.dtype), np.empty((len(x), 0), np.int64)
    numbers = np.full(len(x), -1, np.int64) if rows is None else rows
    flat, d, factor = x.reshape(-1), x.shape[1], x.dtype.type(-scale * LOG2_E)

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        pairs.gaussian(
            flat, d, start, stop, panels, columns, norm == "l1", factor, power, out, numbers, y_start + first, near,
            near_index,
        )  # fmt: skip

    each_task(x, y, body)


def count_within(x: Array, y: Array, *, norm: str, threshold: float, out: Array) -> None:
    """Add to each row the number of columns with s < threshold, itself included.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.
    threshold : float
        Rounded to the rows' type before it is compared.
    out : int64 array of shape (m,)
        Added to in place.
    """
    flat, d, limit = x.reshape(-1), x.shape[1], x.dtype.type(threshold)
    if (boxes := boxes_for(x, y, norm == "l1", limit)) is not None:
        box_count(x, boxes, norm == "l1", limit, out)
        return

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        pairs.count(flat, d, start, stop, panels, columns, norm == "l1", limit, out)

    each_task(x, y, body)


def nearest_higher(
    x: Array,
    y: Array,
    x_order: Array,
    y_order: Array,
    *,
    norm: str,
    y_start: int,
    best: Array,
    best_index: Array,
) -> None:
    """Lower each row's best to its nearest column of higher density; equal distances: the lower index.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64.
    x_order, y_order : int32 arrays of shape (m,) and (k,)
        Each row's unique position by decreasing density; a column is higher when its order is smaller.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.
    y_start : int
        Global number of y's first row.
    best : array of shape (m,), the rows' type
        Smallest s so far (infinity at first), in place.
    best_index : int64 array of shape (m,)
        Its global row (-1 at first), in place.
    """
    every = bool(len(x) and len(y) and y_order.max() < x_order.min())  # column is higher than every row
    if every and (boxes := boxes_for(x, y, norm == "l1")) is not None:
        box_nearest(x, boxes, norm == "l1", y_start, best, best_index)
        return
    chunk = chunk_columns(x)
    for first in range(0, len(y), chunk):
        part = slice(first, first + chunk)
        nearest_in_chunk(x, y[part], x_order, y_order[part], norm, y_start + first, best, best_index)


def border(x: Array, y: Array, x_labels: Array, y_labels: Array, *, norm: str, threshold: float, out: Array) -> None:
    """Mark rows that have a column of another label nearer than a threshold.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64.
    x_labels, y_labels : integer arrays of shape (m,) and (k,)
        Labels within int32.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.
    threshold : float
        Rounded to the rows' type before it is compared: s < threshold.
    out : uint8 array of shape (m,)
        Set to 1 in place.
    """
    flat, d, limit = x.reshape(-1), x.shape[1], x.dtype.type(threshold)
    own, others = np.asarray(x_labels, np.int32), padded(y_labels, 0)
    if (boxes := boxes_for(x, y, norm == "l1", limit)) is not None:
        box_border(x, boxes, own, others, norm == "l1", limit, out)
        return

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        pairs.border(flat, d, start, stop, panels, columns, norm == "l1", own, others[first:], limit, out)

    each_task(x, y, body)


def reduced_distances(x: Array, y: Array, *, norm: str) -> Array:
    """Return the reduced distances, the same bits as every other kernel sees.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64; m small.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.

    Returns
    -------
    array of shape (m, k)
        In the rows' type.
    """
    out = np.empty((x.shape[0], y.shape[0]), x.dtype)
    flat, d = x.reshape(-1), x.shape[1]

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        pairs.distances(flat, d, start, stop, panels, columns, norm == "l1", first, out)

    each_task(x, y, body)
    return out
