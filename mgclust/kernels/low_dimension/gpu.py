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

from mgclust.kernels.low_dimension.box_tree import BoxTree
from mgclust.kernels.low_dimension.gaussian_grid import WINDOW, GaussianGrid, window_polynomials
from mgclust.kernels.toolkit.gpu_compiler import compiled

__all__ = [
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


def spread(x: Array, plan: GaussianGrid, out: Array) -> None:
    """Add rows to the grid of a Gaussian sum; see `mgclust.kernels.low_dimension.gaussian_grid`.

    Parameters
    ----------
    x : array of shape (m, d), d <= 3
        Rows, float32 or float64.
    plan : GaussianGrid
        Covers the rows.
    out : int64 array of shape plan.shape
        Added to in place; exact in any order.
    """
    _over_rows("spread", x, plan, np.float64(2.0**plan.fraction_bits), out)


def interpolate(x: Array, grid: Array, plan: GaussianGrid, out: Array) -> None:
    """Read the convolved grid at rows; see `mgclust.kernels.low_dimension.gaussian_grid`.

    Parameters
    ----------
    x : array of shape (m, d), d <= 3
        Rows, float32 or float64.
    grid : float64 array of shape plan.shape
        From `grid_convolve`.
    plan : GaussianGrid
        Covers the rows.
    out : float64 array of shape (m,)
        The Gaussian sums, each row's own 1 included; overwritten.
    """
    _over_rows("interpolate", x, plan, cp.ascontiguousarray(grid), out)


def _over_rows(name: str, x: Array, plan: GaussianGrid, *arguments: Any) -> None:
    m, d = x.shape
    if not m:
        return
    place = cp.asarray([*plan.origin, 1.0 / plan.spacing])
    strides = cp.asarray(np.cumprod([1, *plan.shape[:0:-1]])[::-1].astype(np.int64))
    kernel = compiled("low_dimension/grid.cu", x.dtype.name, DIM=d).get_function(name)
    fixed = (x, np.int64(m), place, strides, cp.asarray(window_polynomials()))
    kernel((-(-m * WINDOW // THREADS),), (THREADS,), (*fixed, *arguments))


def tree_nearest_higher(tree: BoxTree, order: Array, *, start: int, stop: int, best: Array, best_index: Array) -> None:
    """Find the nearest row of higher density for the rows at some positions of a tree: `nearest_higher`'s answer.

    Parameters
    ----------
    tree : BoxTree
        Over all rows.
    order : int32 array of shape (n,)
        Each row's unique position by decreasing density, by row number.
    start, stop : int
        Positions in the tree: row ``tree.index[start]`` and so on.
    best : array of shape (stop - start,), the rows' type
        Smallest s; infinity for the densest row; overwritten.
    best_index : int64 array of shape (stop - start,)
        Its row number; -1 for the densest row; overwritten.
    """
    by_position, by_node = tree.minima(order)
    index = tree.index.astype(np.int32)
    searched = (by_position, by_node, index, tree.first_index, np.int32(start), np.int32(stop))
    _search("tree_nearest", tree, stop - start, tree.rows, *_boxes(tree), *searched, best, best_index)


def tree_pair_histogram(tree: BoxTree, *, part: int, parts: int, low: int, shift: int, out: Array) -> None:
    """Count a share of the pairs i < j by the IEEE bits of their reduced distance; see `pair_histogram`.

    Parameters
    ----------
    tree : BoxTree
        Over all rows.
    part, parts : int
        This call does the leaves part, part + parts, ... with all that comes after each of them.
    low, shift : int
        The bracket and the bins, as for `pair_histogram`.
    out : int64 array of shape (bins + 1,)
        Added to in place.
    """
    bits = np.dtype(f"i{tree.rows.itemsize}").type
    infinity = int(np.array(np.inf, tree.rows.dtype).view(bits))
    width = np.dtype(f"u{tree.rows.itemsize}").type(min((out.size - 1) << shift, infinity - low))
    share = (np.int32(len(tree.index)), np.int32(part), np.int32(parts), np.int32(tree.n_leaves))
    mine = -(-(tree.n_leaves - part) // parts)
    _search("tree_histogram", tree, mine, *_boxes(tree), *share, bits(low), width, np.int32(shift), out)


def tree_count_within(tree: BoxTree, *, start: int, stop: int, threshold: float, out: Array) -> None:
    """Add the number of rows with s < threshold, itself included, for the rows at some positions of a tree.

    Parameters
    ----------
    tree : BoxTree
        Over all rows.
    start, stop : int
        Positions in the tree: row ``tree.index[start]`` and so on.
    threshold : float
        Rounded to the rows' type before it is compared.
    out : int64 array of shape (stop - start,)
        Added to in place.
    """
    limit = tree.rows.dtype.type(threshold)
    n = np.int32(len(tree.index))
    _search("tree_count", tree, stop - start, tree.rows, *_boxes(tree), n, limit, np.int32(start), np.int32(stop), out)


def tree_border(tree: BoxTree, labels: Array, *, start: int, stop: int, threshold: float, out: Array) -> None:
    """Mark rows that have a row of another label nearer than a threshold, at some positions of a tree.

    Parameters
    ----------
    tree : BoxTree
        Over all rows.
    labels : integer array of shape (n,)
        By row number, within int32.
    start, stop : int
        Positions in the tree: row ``tree.index[start]`` and so on.
    threshold : float
        Rounded to the rows' type before it is compared: s < threshold.
    out : uint8 array of shape (stop - start,)
        Set to 1 in place.
    """
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
