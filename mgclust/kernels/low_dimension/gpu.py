"""Kernels for one to three dimensions on a CUDA device: near-linear, where `pairs` compares all.

`spread` and `interpolate` are the two halves of a non-uniform FFT (essay and error bounds: `gaussian_grid`; inner
loops: ``grid.cu``). The tree functions give the very bits of their all-pairs namesakes (essay: `box_tree`; inner loops:
``tree.cu``); each does a share of the work, by position in the tree, so that ranks which all hold the tree
split it evenly.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.low_dimension.box_tree import BoxTree, curve_bits
from mgclust.kernels.low_dimension.gaussian_grid import WINDOW, GaussianGrid, window_polynomials
from mgclust.kernels.pairs.gpu_column_boxes import places
from mgclust.kernels.toolkit.gpu_compiler import compiled, multiprocessors

__all__ = [
    "curve",
    "interpolate",
    "spread",
    "tree_border",
    "tree_count_within",
    "tree_nearest_higher",
    "tree_pair_histogram",
]

Array = Any
WARPS = 4  # of a block in tree.cu: one row or leaf each
THREADS = 256  # of a block in grid.cu: WINDOW a row
MAX_SPREAD = 1024  # rows of a block that spreads


def curve(x: Array) -> Array:
    return places(x, curve_bits(x.shape[1]))


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


def tree_nearest_higher(tree: BoxTree, order: Array, *, start: int, stop: int, best: Array, best_index: Array) -> None:
    by_position, by_node = tree.minima(order)
    index = tree.index.astype(np.int32)
    searched = (by_position, by_node, index, tree.first_index, np.int32(start), np.int32(stop))
    _search("tree_nearest", tree, stop - start, tree.rows, *_boxes(tree), *searched, best, best_index)


def tree_pair_histogram(tree: BoxTree, *, part: int, parts: int, low: int, shift: int, out: Array) -> None:
    bits = np.dtype(f"i{tree.rows.itemsize}").type
    infinity = int(np.array(np.inf, tree.rows.dtype).view(bits))
    width = np.dtype(f"u{tree.rows.itemsize}").type(min((out.size - 1) << shift, infinity - low))
    share = (np.int32(len(tree.index)), np.int32(part), np.int32(parts), np.int32(tree.n_leaves))
    mine = -(-(tree.n_leaves - part) // parts)
    _search("tree_histogram", tree, mine, *_boxes(tree), *share, bits(low), width, np.int32(shift), out)


def tree_count_within(tree: BoxTree, *, start: int, stop: int, threshold: float, out: Array) -> None:
    limit = tree.rows.dtype.type(threshold)
    n = np.int32(len(tree.index))
    _search("tree_count", tree, stop - start, tree.rows, *_boxes(tree), n, limit, np.int32(start), np.int32(stop), out)


def tree_border(tree: BoxTree, labels: Array, *, start: int, stop: int, threshold: float, out: Array) -> None:
    narrow = labels.astype(np.int32)
    by_position, least = tree.minima(narrow)
    labelled = (by_position, least, tree.minima(-narrow)[1], tree.rows.dtype.type(threshold))
    span = (np.int32(start), np.int32(stop))
    _search("tree_border", tree, stop - start, tree.rows, *_boxes(tree), *labelled, *span, out)


def _boxes(tree: BoxTree) -> tuple[Any, ...]:
    starts = cp.asarray(np.array(tree.level_starts, np.int32))
    return tree.panels, tree.low, tree.high, starts, np.int32(len(tree.level_starts) - 1)


def _search(name: str, tree: BoxTree, warps: int, *arguments: Any) -> None:
    """Start a kernel of tree.cu with one warp for each row or leaf."""
    if warps > 0:
        kernel = compiled("low_dimension/tree.cu", tree.rows.dtype.name, DIM=tree.rows.shape[1]).get_function(name)
        kernel((-(-warps // WARPS),), (32 * WARPS,), arguments)
