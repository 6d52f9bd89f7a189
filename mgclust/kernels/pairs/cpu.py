"""Pair kernels on the CPU. They use all cores and vectors of 32 columns; the bits depend only on the data.

A call pairs m rows of x with k rows of y (the *columns*), and never stores the m x k distances::

    for each batch of columns (<= BATCH_BYTES, a multiple of SUM_TILE)
        pack it into panels                              2 k d reals moved, once per call
        for each task of rows, on any thread             ~TASK_PAIRS pairs
            cpu_loops.<kernel>(rows, panels)            cost per pair: see there

The result of a row does not depend on the other rows, the threads, or the batches. Each reduced distance is a single
chain of fused multiply-adds, counts are integers, and minima break ties by index. Gaussian sums are added in a fixed
order, if y starts at a multiple of SUM_TILE of the global rows. For each tile of SUM_TILE columns, 32 lanes are summed
in the rows' type, and then added by halves. The sums of tiles are added in float64.

The first call of a kernel for a dtype compiles the kernel, which takes less than a second; Numba keeps it on disk.
`mgclust.kernels.pairs.gpu` has the same names and signatures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgclust.kernels.pairs import LOG2_E
from mgclust.kernels.pairs import cpu_loops as pairs
from mgclust.kernels.pairs.boxes.column_boxes import Boxes
from mgclust.kernels.pairs.boxes.cpu_column_boxes import box_border, box_count, box_nearest, boxes_for
from mgclust.kernels.pairs.cpu_sparse import sparse_columns
from mgclust.kernels.pairs.cpu_tasks import ThreadCounts, batch_columns, each_task, nearest_in_batch, padded
from mgclust.kernels.pairs.cpu_values import value_histogram
from mgclust.kernels.pairs.density import add_both_ways
from mgclust.kernels.pairs.products import cpu_products as products
from mgclust.kernels.pairs.products.cpu_products import Lengths, Lists, from_column
from mgclust.kernels.toolkit.simd import WIDTH
from mgclust.kernels.toolkit.threads import thread_count

__all__ = [
    "NEIGHBORS",
    "PRODUCT_REACH",
    "border",
    "boxes_of_columns",
    "count_within",
    "gaussian_both_ways",
    "gaussian_sum",
    "gaussian_sums",
    "nearest_column",
    "nearest_higher",
    "nearest_in_boxes",
    "nearest_rows",
    "pair_histogram",
    "reduced_distances",
    "symmetric_sum_is_faster",
    "value_histogram",
]

Array = Any
PRODUCT_REACH = 0.25  # if one near row outweighs all others, a density is only as accurate as the term of this row
NEIGHBORS = 8  # nearest rows that `gaussian_sum` keeps: takes 5 to 10% more time, but saves a pass of `nearest_higher`


def pair_histogram(x: Array, y: Array, *, norm: str, diagonal: bool, low: int, shift: int, out: Array) -> None:
    largest = int(np.iinfo(f"i{x.itemsize}").max)
    high = min(low + ((len(out) - 1) << shift), largest)
    low = min(low, largest)
    below, counts = [0] * thread_count(), ThreadCounts(out)
    flat, d, m = x.reshape(-1), x.shape[1], x.shape[0]
    surely_below = np.zeros(m, np.int64)
    lengths = products.filtering(x, y, norm) if low > 0 else None  # with low = 0, products would decide no pair
    if lengths is not None:
        limits = lengths.limits(_value(low, x.dtype), _value(high, x.dtype))

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        skip, bracket, into = first if diagonal else m + WIDTH, (low, high, shift), counts.of(thread)
        if lengths is not None:
            given = from_column(first, *limits)
            room = products.room_for_open(x.dtype)
            start = products.histogram(
                flat, d, start, stop, panels, columns, skip, *bracket, given, *into, surely_below, *room
            )
        below[thread] += pairs.histogram(flat, d, start, stop, panels, columns, norm == "l1", skip, *bracket, *into)

    each_task(x, y, body)
    counts.gather()
    out[0] += sum(below) + int(surely_below.sum())


def symmetric_sum_is_faster(dtype: Any, d: int) -> bool:
    return False  # a pass of `gaussian_sum` also keeps the nearest rows


def gaussian_both_ways(
    x: Array, y: Array, *, scale: float, diagonal: bool, unit: float, x_out: Array, y_out: Array
) -> None:
    outs: dict[str, Any] = {"x_out": x_out, "y_out": y_out}
    add_both_ways(np, reduced_distances, x, y, scale=scale, diagonal=diagonal, unit=unit, **outs)


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
    if norm == "l2-dot" and power == 1 and products.supports(x, norm) and (lengths := Lengths(x, y)).fit:
        if near is None or near_index is None:
            near, near_index = _no_neighbors(x)
        numbers, flat, d, factor = _numbers(x, rows), x.reshape(-1), x.shape[1], x.dtype.type(-scale * LOG2_E)
        listed = Lists(x, y, y_start, near, near_index)
        (lower, share), scaled = lengths.lower(), lengths.scaled(float(factor))

        def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
            products.gaussian(
                flat, d, start, stop, panels, columns, factor, out, numbers, y_start + first,
                *from_column(first, scaled, lower), share, *listed.of(first),
                *products.room_for_sums(1, columns, x.dtype), *products.room_for_lists(near.shape[1], x.dtype),
            )  # fmt: skip
            listed.complete(start, stop, panels, first, columns)

        each_task(x, y, body)
        return
    of_row: dict[str, Any] = {"rows": rows, "y_start": y_start, "near": near, "near_index": near_index}
    gaussian_sums(x, y, norm=norm, scales=[scale], power=power, out=out[None], **of_row)


def gaussian_sums(
    x: Array,
    y: Array,
    *,
    norm: str,
    scales: Sequence[float],
    power: int,
    out: Array,
    rows: Array | None = None,
    y_start: int = 0,
    near: Array | None = None,
    near_index: Array | None = None,
) -> None:
    if near is None or near_index is None:
        near, near_index = _no_neighbors(x)
    numbers, flat, d, factors = (
        _numbers(x, rows),
        x.reshape(-1),
        x.shape[1],
        (-LOG2_E * np.array(scales)).astype(x.dtype),
    )

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        pairs.gaussian(
            flat, d, start, stop, panels, columns, norm == "l1", factors, power, out, numbers, y_start + first, near,
            near_index, *pairs.room_for_sums(len(factors), columns, x.dtype),
        )  # fmt: skip

    each_task(x, y, body)


def count_within(x: Array, y: Array, *, norm: str, threshold: float, out: Array) -> None:
    flat, d, limit = x.reshape(-1), x.shape[1], x.dtype.type(threshold)
    if (boxes := boxes_for(x, y, norm == "l1", limit)) is not None:
        box_count(x, boxes, norm == "l1", limit, out)
        return
    if (columns := sparse_columns(x, y, norm)) is not None:
        columns.count(limit, out)
        return
    if (lengths := products.filtering(x, y, norm)) is not None:
        limits = lengths.limits(float(limit), float(limit))

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        if lengths is not None:
            given = from_column(first, *limits)
            room = products.room_for_open(x.dtype)
            start = products.count(flat, d, start, stop, panels, columns, limit, given, out, *room)
        pairs.count(flat, d, start, stop, panels, columns, norm == "l1", limit, out)

    each_task(x, y, body)


def nearest_column(x: Array, y: Array, *, norm: str, y_start: int, best: Array, best_index: Array) -> None:
    if (boxes := boxes_for(x, y, norm == "l1")) is not None:
        box_nearest(x, boxes, norm == "l1", y_start, _numbers(x, None), best[:, None], best_index[:, None])
        return
    if (columns := sparse_columns(x, y, norm)) is not None:
        columns.nearest(y_start, best, best_index)
        return
    # The rows come after all columns in the order, so every column has a "higher" density.
    after, order = np.full(len(x), len(y), np.int32), np.arange(len(y), dtype=np.int32)
    nearest_higher(x, y, after, order, norm=norm, y_start=y_start, best=best, best_index=best_index)


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
    batch = batch_columns(x)
    for first in range(0, len(y), batch):
        part = slice(first, first + batch)
        nearest_in_batch(x, y[part], x_order, y_order[part], norm, y_start + first, best, best_index)


def nearest_rows(
    x: Array, y: Array, *, norm: str, y_start: int, near: Array, near_index: Array, rows: Array | None = None
) -> None:
    if (boxes := boxes_of_columns(x, y, norm=norm, neighbors=near.shape[1])) is not None:
        nearest_in_boxes(x, boxes, norm=norm, y_start=y_start, near=near, near_index=near_index, rows=rows)
        return
    numbers, flat, d = _numbers(x, rows), x.reshape(-1), x.shape[1]
    if (lengths := products.filtering(x, y, norm, near.shape[1])) is not None:
        (lower, share), listed = lengths.lower(), Lists(x, y, y_start, near, near_index, numbers)

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        if lengths is not None and listed.pay:
            products.neighbors(
                flat, d, start, stop, panels, columns, numbers, y_start + first, *from_column(first, lower),
                share, *listed.of(first), *products.room_for_lists(near.shape[1], x.dtype),
            )  # fmt: skip
            listed.complete(start, stop, panels, first, columns)
            return
        pairs.neighbors(flat, d, start, stop, panels, columns, norm == "l1", numbers, y_start + first, near, near_index)

    each_task(x, y, body)


def boxes_of_columns(x: Array, y: Array, *, norm: str, neighbors: int) -> Boxes | None:
    return boxes_for(x, y, norm == "l1", neighbors=neighbors)


def nearest_in_boxes(
    x: Array, boxes: Boxes, *, norm: str, y_start: int, near: Array, near_index: Array, rows: Array | None = None
) -> None:
    box_nearest(x, boxes, norm == "l1", y_start, _numbers(x, rows), near, near_index)


def border(x: Array, y: Array, x_labels: Array, y_labels: Array, *, norm: str, threshold: float, out: Array) -> None:
    flat, d, limit = x.reshape(-1), x.shape[1], x.dtype.type(threshold)
    own, others = np.asarray(x_labels, np.int32), padded(y_labels, 0)
    if (boxes := boxes_for(x, y, norm == "l1", limit)) is not None:
        box_border(x, boxes, own, others, norm == "l1", limit, out)
        return
    if (columns := sparse_columns(x, y, norm)) is not None:
        found = np.zeros(len(x), np.int64)
        columns.count(limit, found, (own, others[: len(y)]))
        out[found > 0] = 1
        return

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        pairs.border(flat, d, start, stop, panels, columns, norm == "l1", own, others[first:], limit, out)

    each_task(x, y, body)


def reduced_distances(x: Array, y: Array, *, norm: str) -> Array:
    out = np.empty((x.shape[0], y.shape[0]), x.dtype)
    flat, d = x.reshape(-1), x.shape[1]

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        buffer = np.empty(4 * WIDTH, x.dtype)
        pairs.distances(flat, d, start, stop, panels, columns, norm == "l1", first, out, buffer)

    each_task(x, y, body)
    return out


def _value(bits: int, dtype: Any) -> float:
    """Return the number with these bits; the bits of NaN give infinity."""
    value = float(np.array(bits, f"i{dtype.itemsize}").view(dtype))
    return np.inf if np.isnan(value) else value


def _no_neighbors(x: Array) -> tuple[Array, Array]:
    return np.empty((len(x), 0), x.dtype), np.empty((len(x), 0), np.int64)


def _numbers(x: Array, rows: Array | None) -> Array:
    """Return the column that each row skips; -1 for none."""
    return np.full(len(x), -1, np.int64) if rows is None else rows
