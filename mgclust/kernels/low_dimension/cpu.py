"""Kernels for one to three dimensions on the CPU, in near-linear time; `mgclust.kernels.pairs.cpu` compares all pairs.

`spread` and `interpolate` are the two halves of a non-uniform FFT (method and error bounds: `gaussian_grid`). The
searches in boxes call `mgclust.kernels.pairs.boxes.cpu_column_boxes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.low_dimension import cpu_grid
from mgclust.kernels.low_dimension.gaussian_grid import GaussianGrid, window_polynomials
from mgclust.kernels.pairs.boxes.column_boxes import Boxes
from mgclust.kernels.pairs.boxes.cpu_column_boxes import (
    box_border,
    box_count,
    box_histogram,
    box_nearest_higher,
    build_along_curve,
)
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

__all__ = [
    "border_in_boxes",
    "boxes_along_curve",
    "count_in_boxes",
    "interpolate",
    "nearest_higher_in_boxes",
    "pair_histogram_in_boxes",
    "spread",
]

Array = Any
PRIVATE_GRID_BYTES = 1 << 30  # maximum bytes of the grids of all threads; if grids are large, fewer threads are used


def boxes_along_curve(x: Array) -> tuple[Array, Boxes]:
    return build_along_curve(x)


def count_in_boxes(x: Array, boxes: Boxes, *, threshold: float, out: Array) -> None:
    box_count(x, boxes, False, x.dtype.type(threshold), out)


def border_in_boxes(x: Array, boxes: Boxes, x_labels: Array, labels: Array, *, threshold: float, out: Array) -> None:
    box_border(x, boxes, x_labels, labels, False, x.dtype.type(threshold), out)


def nearest_higher_in_boxes(
    rows: Array, boxes: Boxes, order: Array, *, start: int, stop: int, best: Array, best_index: Array
) -> None:
    box_nearest_higher(rows[start:stop], boxes, order, start, best, best_index)


def pair_histogram_in_boxes(
    rows: Array, boxes: Boxes, *, part: int, parts: int, low: int, shift: int, out: Array
) -> None:
    largest = int(np.iinfo(f"i{rows.itemsize}").max)
    high = min(low + ((len(out) - 1) << shift), largest)
    box_histogram(rows, boxes, part, parts, min(low, largest), high, shift, out)


def spread(x: Array, plan: GaussianGrid, out: Array) -> None:
    m, d = x.shape
    flat, origin, inverse, polynomials, strides = _grid_arguments(x, plan)
    threads = max(1, min(thread_count(), m // 4096, PRIVATE_GRID_BYTES // out.nbytes))
    grids = [out.reshape(-1)] + [np.zeros(out.size, np.int64) for _ in range(threads - 1)]
    bounds = [m * t // threads for t in range(threads + 1)]

    def task(index: int, thread: int) -> None:
        start, stop = bounds[index : index + 2]
        factor = 2.0**plan.fraction_bits
        cpu_grid.spread(flat, d, start, stop, origin, inverse, polynomials, strides, factor, grids[index])

    run_tasks(threads, task)
    for grid in grids[1:]:
        grids[0] += grid


def interpolate(x: Array, grid: Array, plan: GaussianGrid, out: Array) -> None:
    m, d = x.shape
    flat, origin, inverse, polynomials, strides = _grid_arguments(x, plan)
    cells = grid.reshape(-1)

    def task(index: int, thread: int) -> None:
        start, stop = index * 4096, min((index + 1) * 4096, m)
        cpu_grid.interpolate(flat, d, start, stop, origin, inverse, polynomials, strides, cells, out)

    run_tasks(-(-m // 4096), task)


def _grid_arguments(x: Array, plan: GaussianGrid) -> tuple[Array, Array, float, Array, Array]:
    strides = np.cumprod([1, *plan.shape[:0:-1]])[::-1].copy()
    return x.reshape(-1), np.array(plan.origin), 1.0 / plan.spacing, window_polynomials().reshape(-1), strides
