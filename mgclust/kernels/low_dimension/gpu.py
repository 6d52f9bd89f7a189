"""Kernels for one to three dimensions on a CUDA device, in near-linear time; `pairs` compares all pairs.

`spread` and `interpolate` are the two halves of a non-uniform FFT (method and error bounds: `gaussian_grid`; inner
loops: ``grid.cu``). The searches in boxes call `mgclust.kernels.pairs.boxes.gpu_column_boxes`.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.low_dimension.gaussian_grid import WINDOW, GaussianGrid, window_polynomials
from mgclust.kernels.pairs.boxes.column_boxes import Boxes
from mgclust.kernels.pairs.boxes.gpu_column_boxes import (
    box_border,
    box_count,
    box_histogram,
    box_nearest_higher,
    build_along_curve,
)
from mgclust.kernels.toolkit.gpu_compiler import compiled, multiprocessors

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
THREADS = 256  # threads per block in grid.cu, WINDOW of them per row
MAX_SPREAD = 1024  # maximum number of rows per block of the kernel `spread`


def boxes_along_curve(x: Array) -> tuple[Array, Boxes]:
    return build_along_curve(x)


def count_in_boxes(x: Array, boxes: Boxes, *, threshold: float, out: Array) -> None:
    box_count(x, boxes, "l2", threshold, out, in_order=True)


def border_in_boxes(x: Array, boxes: Boxes, x_labels: Array, labels: Array, *, threshold: float, out: Array) -> None:
    box_border(x, boxes, x_labels, labels, "l2", threshold, out, in_order=True)


def nearest_higher_in_boxes(
    rows: Array, boxes: Boxes, order: Array, *, start: int, stop: int, best: Array, best_index: Array
) -> None:
    box_nearest_higher(rows[start:stop], boxes, order, start, best, best_index)


def pair_histogram_in_boxes(
    rows: Array, boxes: Boxes, *, part: int, parts: int, low: int, shift: int, out: Array
) -> None:
    box_histogram(boxes, rows.dtype, rows.shape[1], part, parts, low, shift, out)


def spread(x: Array, plan: GaussianGrid, out: Array) -> None:
    rows = min(MAX_SPREAD, max(THREADS // WINDOW, len(x) // (8 * multiprocessors())))
    _over_rows("spread", x, plan, rows, np.float64(2.0**plan.fraction_bits), np.int32(rows), out)


def interpolate(x: Array, grid: Array, plan: GaussianGrid, out: Array) -> None:
    _over_rows("interpolate", x, plan, THREADS // WINDOW, cp.ascontiguousarray(grid), out)


def _over_rows(name: str, x: Array, plan: GaussianGrid, rows: int, *arguments: Any) -> None:
    m, d = x.shape
    if not m:
        return
    place = cp.asarray([*plan.origin, 1.0 / plan.spacing])
    strides = cp.asarray(np.cumprod([1, *plan.shape[:0:-1]])[::-1].astype(np.int64))
    kernel = compiled("low_dimension/grid.cu", x.dtype.name, DIM=d).get_function(name)
    fixed = (x, np.int64(m), place, strides, cp.asarray(window_polynomials()))
    kernel((-(-m // rows),), (THREADS,), (*fixed, *arguments))
