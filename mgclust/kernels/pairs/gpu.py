"""All-pairs kernels on one CUDA device: functions with the signatures of `kernels.pairs.cpu`, and ``.cu`` files.

``few_features.cu`` is for at most 16 features, ``many_features.cu`` for more. Both are compiled for the device once per
number type and norm (and, for few features, per d), and are kept in CuPy's cache on disk. If possible, many float32
pairs with many features use tensor cores (`gpu_products`). Very many pairs with few features use bounding boxes
(`gpu_column_boxes`), if most columns are far away. A call queues its kernels and returns; `synchronize` waits for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.pairs import LOG2_E
from mgclust.kernels.pairs.boxes.column_boxes import Boxes
from mgclust.kernels.pairs.boxes.gpu_column_boxes import (
    box_border,
    box_count,
    box_nearest,
    box_neighbors,
    boxes_for,
)
from mgclust.kernels.pairs.density import add_both_ways
from mgclust.kernels.pairs.gpu_launch import GROUP, LOW_DIMENSIONS, TILE, by_rows, direct, distances, launch, run_length
from mgclust.kernels.pairs.gpu_nearest_rows import nearest_of_few, sort_rows, supports_few
from mgclust.kernels.pairs.products import gpu_products
from mgclust.kernels.toolkit.gpu_compiler import Module, compiled, multiprocessors

__all__ = [
    "NEIGHBORS",
    "PRODUCT_REACH",
    "border",
    "boxes_of_columns",
    "count_within",
    "gaussian_both_ways",
    "gaussian_sum",
    "gaussian_sums",
    "kernels_of",
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

NEIGHBORS = 0  # `gaussian_sum` keeps no nearest rows: not tried on GPUs, where `nearest_higher` passes over all pairs
PRODUCT_REACH = 1.0
SCRATCH_BYTES = 256 << 20  # bytes for the group sums of one launch
MIN_SORTED_PAIRS = 1 << 27  # with this number of pairs, boxes are tried before a sort: 100 times as long per pair
VALUE_THREADS = 256  # threads per block in stored_values.cu
SLOW_KERNELS = {  # names of the kernels for direct differences, and for products
    "count_within": ("count", "classify"),
    "gaussian_sum": ("gaussian", "both_ways"),
    "nearest_higher": ("nearest", "nearest"),
    "nearest_rows": ("", "minima collect"),
    "pair_histogram": ("histogram", "classify"),
    "reduced_distances": ("distances", ""),
}


def pair_histogram(x: Array, y: Array, *, norm: str, diagonal: bool, low: int, shift: int, out: Array) -> None:
    bits = np.int32 if x.dtype == np.float32 else np.int64
    infinity = int(np.array(np.inf, dtype=x.dtype).view(bits))
    width = min((out.size - 1) << shift, infinity - low)
    unsigned = np.uint32 if bits is np.int32 else np.uint64
    bracket = {"diagonal": diagonal, "low": low, "shift": shift, "out": out}
    if gpu_products.pair_histogram(x, y, norm=norm, width=width, **bracket):
        return
    launch(
        "histogram", x, y, direct(norm), run_length(x, y, TILE),
        bits(low), unsigned(width), np.int32(shift), np.bool_(diagonal), out,
    )  # fmt: skip


def symmetric_sum_is_faster(dtype: Any, d: int) -> bool:
    return gpu_products.supports(dtype, d, "l2-dot")


def gaussian_both_ways(
    x: Array, y: Array, *, scale: float, diagonal: bool, unit: float, x_out: Array, y_out: Array
) -> None:
    outs: dict[str, Any] = {"diagonal": diagonal, "unit": unit, "x_out": x_out, "y_out": y_out}
    if not gpu_products.gaussian_both_ways(x, y, factor=scale * LOG2_E, **outs):
        add_both_ways(cp, reduced_distances, x, y, scale=scale, **outs)


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
    if near is not None or near_index is not None:
        raise ValueError("near and near_index should be None, because NEIGHBORS is 0.")
    if rows is None:
        rows = cp.full(x.shape[0], -1, dtype=np.int64)
    factor = x.dtype.type(scale * LOG2_E)

    def add(groups: Array, mine: slice = slice(None)) -> None:
        sums = out[mine]
        by_rows("add_groups", x, norm, groups, np.int32(groups.shape[0]), np.int32(len(sums)), sums)

    own = rows - y_start
    if norm == "l2-dot" and power == 1 and gpu_products.gaussian_sum(x, y, factor=scale * LOG2_E, own=own, add=add):
        return
    name = "gaussian_squared" if power == 2 else "gaussian"
    step = GROUP * max(1, SCRATCH_BYTES // (8 * max(1, x.shape[0])))
    for start in range(0, y.shape[0], step):
        columns = y[start : start + step]
        groups = cp.empty((-(-columns.shape[0] // GROUP), x.shape[0]), dtype=np.float64)
        launch(name, x, columns, norm, GROUP, factor, (own - start).astype(np.int32), groups)
        add(groups)


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
    of_row: dict[str, Any] = {"rows": rows, "y_start": y_start, "near": near, "near_index": near_index}
    for scale, sums in zip(scales, out, strict=True):
        gaussian_sum(x, y, norm=norm, scale=scale, power=power, out=sums, **of_row)


def count_within(x: Array, y: Array, *, norm: str, threshold: float, out: Array) -> None:
    if gpu_products.count_within(x, y, norm=norm, threshold=x.dtype.type(threshold), out=out):
        return
    if (boxes := boxes_for(x, y, direct(norm), threshold)) is not None:
        box_count(x, boxes, direct(norm), threshold, out)
        return
    launch("count", x, y, direct(norm), run_length(x, y, TILE), x.dtype.type(threshold), out)


def nearest_column(x: Array, y: Array, *, norm: str, y_start: int, best: Array, best_index: Array) -> None:
    if (boxes := boxes_for(x, y, direct(norm), best=best)) is not None:
        box_nearest(x, boxes, direct(norm), y_start, best, best_index)
        return
    # The rows come after all columns in the order, so every column has a "higher" density.
    after, order = cp.full(len(x), len(y), dtype=np.int32), cp.arange(len(y), dtype=np.int32)
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
    figures = {"y_start": y_start, "best": best, "best_index": best_index}
    if gpu_products.nearest_higher(x, y, x_order, y_order, norm=norm, **figures):
        return
    run = run_length(x, y, GROUP)  # not shorter, because each run starts its search from the beginning
    shape = (-(-y.shape[0] // run), x.shape[0])
    part_best = cp.empty(shape, dtype=x.dtype)
    part_index = cp.empty(shape, dtype=np.int32)
    launch("nearest", x, y, direct(norm), run, x_order, y_order, best, part_best, part_index)
    by_rows(
        "merge_nearest", x, norm, part_best, part_index, np.int32(shape[0]), np.int32(shape[1]),
        np.int64(y_start), best, best_index,
    )  # fmt: skip


def nearest_rows(
    x: Array, y: Array, *, norm: str, y_start: int, near: Array, near_index: Array, rows: Array | None = None
) -> None:
    own = _left_out(x, rows)
    lists = {"norm": norm, "y_start": y_start, "near": near, "near_index": near_index, "rows": own}
    if gpu_products.nearest_rows(x, y, **lists):
        return
    if (boxes := boxes_of_columns(x, y, norm=norm, neighbors=near.shape[1])) is not None:
        nearest_in_boxes(x, boxes, **lists)
    elif supports_few(x.dtype, x.shape[1], len(y), near.shape[1], norm):
        nearest_of_few(x, y, **lists)
    else:
        sort_rows(x, y, **lists)


def boxes_of_columns(x: Array, y: Array, *, norm: str, neighbors: int) -> Boxes | None:
    few = supports_few(x.dtype, x.shape[1], len(y), neighbors, norm)
    least = None if few else MIN_SORTED_PAIRS
    return boxes_for(x, y, direct(norm), neighbors=neighbors, least_pairs=least)


def nearest_in_boxes(
    x: Array, boxes: Boxes, *, norm: str, y_start: int, near: Array, near_index: Array, rows: Array | None = None
) -> None:
    box_neighbors(x, boxes, direct(norm), y_start, near, near_index, _left_out(x, rows))


def _left_out(x: Array, rows: Array | None) -> Array:
    return cp.full(len(x), -1, dtype=np.int64) if rows is None else rows


def border(x: Array, y: Array, x_labels: Array, y_labels: Array, *, norm: str, threshold: float, out: Array) -> None:
    threshold = x.dtype.type(threshold)
    if gpu_products.border(x, y, x_labels, y_labels, norm=norm, threshold=threshold, out=out):
        return
    if (boxes := boxes_for(x, y, direct(norm), threshold)) is not None:
        box_border(x, boxes, x_labels, y_labels, direct(norm), threshold, out)
        return
    launch("border", x, y, direct(norm), run_length(x, y, TILE), x_labels, y_labels, threshold, out)


def reduced_distances(x: Array, y: Array, *, norm: str) -> Array:
    out = cp.empty((x.shape[0], y.shape[0]), dtype=x.dtype)
    distances(x, y, norm=direct(norm), root=False, out=out)
    return out


def value_histogram(values: Array, *, n: int, low: int, shift: int, out: Array) -> None:
    if not values.shape[0]:
        return
    key = np.int32 if values.dtype == np.float32 else np.int64
    kernel = compiled("pairs/stored_values.cu", values.dtype.name).get_function("value_histogram")
    columns = min(32, -(-n // VALUE_THREADS))
    grid = (columns, max(1, min(values.shape[0], 16 * multiprocessors() // columns)))
    sizes = (values, np.int32(values.shape[0]), np.int32(n), np.int64(values.shape[1]))
    kernel(grid, (VALUE_THREADS,), (*sizes, key(low), np.int32(shift), np.int32(out.size - 1), out))


def kernels_of(function: str, d: int, dtype: Any) -> Iterator[tuple[Module, str]]:
    differences, products = SLOW_KERNELS[function]
    if d > LOW_DIMENSIONS:
        yield from ((compiled("pairs/many_features.cu", dtype.name), name) for name in differences.split())
    elif differences != "distances":
        yield from (
            (compiled("pairs/few_features.cu", dtype.name, DIM=d, ROWS=1), name) for name in differences.split()
        )
    if gpu_products.supports(dtype, d):
        module = gpu_products.program("pairs/products/split_products.cu", gpu_products.chunks_of(d))
        yield from ((module, name) for name in products.split())
