"""Canopies on a CUDA device (``canopy.cu``)."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.pairs.boxes.column_boxes import MAX_FEATURES
from mgclust.kernels.pairs.boxes.gpu_column_boxes import box_mark, box_write, boxes_for, build_boxes
from mgclust.kernels.pairs.gpu_launch import SIDE, direct, is_low, launch, run_length
from mgclust.kernels.toolkit.gpu_compiler import compiled

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
MIN_BOXED = 1 << 16  # comparing fewer rows takes less time than building boxes
MAX_OFFERED = 1 << 16  # a step takes at least a millisecond, even with few candidates
WORD = 64
GROUPS = 16  # groups of threads; each group excludes the neighbours of some of the picked rows of a word
THREADS = 128
MAX_ROWS = 4096
TILE_ROWS, TILE_COLUMNS = 8192, 1024  # shape of a tile of distances, which `write_below` reads if features are many
WARPS = 4
TREE_THREADS = 256


def first_independent(x: Array, *, norm: str, threshold: float, out: Array) -> None:
    k, d = x.shape
    if k > MAX_ROWS:
        raise ValueError(f"k={k} should be <= {MAX_ROWS}.")
    if not k:
        return
    words = -(-k // WORD)
    bits = cp.empty((k, words), dtype=np.uint64)
    module = compiled("canopy/canopy.cu", x.dtype.name, direct(norm))
    sizes = (np.int32(k), np.int32(d), np.int32(words), x.dtype.type(threshold))
    module.get_function("conflicts")((-(-k // THREADS), words), (THREADS,), (x, *sizes, bits))
    module.get_function("pick")((1,), (GROUPS * WORD,), (bits, np.int32(k), np.int32(words), out))


def row_boxes(x: Array) -> Any:
    return build_boxes(x) if x.shape[1] <= MAX_FEATURES else None


def mark_near(boxes: Any, y: Array, *, norm: str, threshold: float, out: Array) -> None:
    box_mark(y, boxes, direct(norm), threshold, out)


def spanning_trees(x: Array, numbers: Array, starts: np.ndarray, *, norm: str, s: Array, other: Array) -> None:
    if len(starts) < 2:
        return
    kernel = compiled("canopy/spanning_trees.cu", x.dtype.name, direct(norm)).get_function("spanning_trees")
    order = cp.asarray(np.argsort(starts[:-1] - starts[1:]))  # the largest groups come first
    joined = cp.empty(len(x), cp.uint8)
    sizes = (x, np.int32(x.shape[1]), numbers, cp.asarray(starts), order)
    kernel((len(starts) - 1,), (TREE_THREADS,), (*sizes, joined, s, other))


def write_within(x: Array, y: Array, *, norm: str, threshold: float, starts: Array, out: Array) -> None:
    (m, d), k = x.shape, y.shape[0]
    if not m or not k:
        return
    norm, limit = direct(norm), x.dtype.type(threshold)
    if (boxes := boxes_for(x, y, norm, threshold)) is not None:
        box_write(x, boxes, norm, threshold, starts, out)
        return
    if is_low(x, norm):
        kernel = compiled("canopy/canopy.cu", x.dtype.name, norm, DIM=d).get_function("write_within")
        kernel((-(-m // THREADS),), (THREADS,), (x, np.int32(m), y, np.int32(k), limit, starts, out))
        return
    kernel = compiled("canopy/canopy.cu", x.dtype.name, norm).get_function("write_below")
    tile = cp.empty((min(m, TILE_ROWS), min(k, TILE_COLUMNS)), x.dtype)
    for start in range(0, m, TILE_ROWS):
        rows = x[start : start + TILE_ROWS]
        cursors = starts[start : start + TILE_ROWS].copy()
        for first in range(0, k, TILE_COLUMNS):
            few = y[first : first + TILE_COLUMNS]
            stride = np.int64(tile.shape[1])
            launch("distances", rows, few, norm, run_length(rows, few, SIDE), np.bool_(False), stride, tile)
            sizes = (tile, np.int32(len(rows)), np.int32(len(few)), stride, limit, np.int32(first))
            kernel((-(-len(rows) // WARPS),), (32 * WARPS,), (*sizes, cursors, out))
