"""Kernels for one to three dimensions on the CPU: near-linear where `mgclust.kernels.pairs.cpu` compares all pairs.

`spread` and `interpolate` are the two halves of a non-uniform FFT (essay and error bounds: `gaussian_grid`). The
tree functions give the very bits of their all-pairs namesakes (essay: `box_tree`; inner loops: `cpu_tree`);
each does a share of the work, by position in the tree, so that ranks which all hold the tree split it
evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.kernels.low_dimension import cpu_grid, cpu_tree
from mgclust.kernels.low_dimension.box_tree import BoxTree, curve_bits
from mgclust.kernels.low_dimension.gaussian_grid import GaussianGrid, window_polynomials
from mgclust.kernels.pairs.cpu_tasks import ThreadCounts
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

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
PRIVATE_GRID_BYTES = 1 << 30  # more than this and threads do not get a grid each
TASK_ROWS = 2048
TASK_LEAVES = 16


def curve(x: Array) -> Array:
    d = x.shape[1]
    bits = curve_bits(d)
    wide = x.astype("float64")
    low = wide.min(axis=0)
    extent = wide.max(axis=0) - low
    steps = ((wide - low) * ((2.0**bits - 1) / np.where(extent > 0, extent, 1.0))).astype("int64")
    code = np.zeros(len(x), dtype="int64")
    for k in range(d):
        code |= _stretch(steps[:, k], d) << k
    return code


def _stretch(v: Array, d: int) -> Array:
    """Put d - 1 zero bits after each bit."""
    if d == 2:
        for shift, mask in (
            (16, 0x0000FFFF0000FFFF),
            (8, 0x00FF00FF00FF00FF),
            (4, 0x0F0F0F0F0F0F0F0F),
            (2, 0x3333333333333333),
            (1, 0x5555555555555555),
        ):
            v = (v | (v << shift)) & mask
    elif d == 3:
        for shift, mask in (
            (32, 0x1F00000000FFFF),
            (16, 0x1F0000FF0000FF),
            (8, 0x100F00F00F00F00F),
            (4, 0x10C30C30C30C30C3),
            (2, 0x1249249249249249),
        ):
            v = (v | (v << shift)) & mask
    return v


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


def tree_nearest_higher(tree: BoxTree, order: Array, *, start: int, stop: int, best: Array, best_index: Array) -> None:
    by_position, by_node = tree.minima(order)
    rows, panels, low, high, starts = _flat(tree)
    d = tree.rows.shape[1]
    least_order, least_index = by_node.reshape(-1), tree.first_index.reshape(-1)

    def body(a: int, b: int) -> None:
        cpu_tree.nearest(
            rows, d, a, b, panels, low, high, starts, by_position, least_order, tree.index, least_index, start, best,
            best_index,
        )  # fmt: skip

    _by_positions(start, stop, body)


def tree_pair_histogram(tree: BoxTree, *, part: int, parts: int, low: int, shift: int, out: Array) -> None:
    rows, panels, box_low, box_high, starts = _flat(tree)
    n, d = tree.rows.shape
    largest = int(np.iinfo(f"i{tree.rows.itemsize}").max)
    high = min(low + ((len(out) - 1) << shift), largest)
    leaves = range(part, tree.n_leaves, parts)
    below, counts = [0] * thread_count(), ThreadCounts(out)

    def task(index: int, thread: int) -> None:
        for leaf in leaves[index * TASK_LEAVES : (index + 1) * TASK_LEAVES]:
            below[thread] += cpu_tree.histogram(
                rows, d, n, leaf, panels, box_low, box_high, starts, min(low, largest), high, shift, *counts.of(thread),
            )  # fmt: skip

    run_tasks(-(-len(leaves) // TASK_LEAVES), task)
    counts.gather()
    out[0] += sum(below)


def tree_count_within(tree: BoxTree, *, start: int, stop: int, threshold: float, out: Array) -> None:
    rows, panels, low, high, starts = _flat(tree)
    n, d = tree.rows.shape
    limit = tree.rows.dtype.type(threshold)

    def body(a: int, b: int) -> None:
        cpu_tree.count(rows, d, n, a, b, panels, low, high, starts, limit, start, out)

    _by_positions(start, stop, body)


def tree_border(tree: BoxTree, labels: Array, *, start: int, stop: int, threshold: float, out: Array) -> None:
    rows, panels, low, high, starts = _flat(tree)
    d = tree.rows.shape[1]
    limit = tree.rows.dtype.type(threshold)
    narrow = np.asarray(labels, np.int32)
    by_position, least = tree.minima(narrow)
    minus_most = tree.minima(-narrow)[1]

    def body(a: int, b: int) -> None:
        cpu_tree.border(
            rows, d, a, b, panels, low, high, starts, by_position, least.reshape(-1), minus_most.reshape(-1), limit,
            start, out,
        )  # fmt: skip

    _by_positions(start, stop, body)


def _flat(tree: BoxTree) -> tuple[Array, Array, Array, Array, Array]:
    return (
        tree.rows.reshape(-1),
        tree.panels.reshape(-1),
        tree.low.reshape(-1),
        tree.high.reshape(-1),
        np.array(tree.level_starts),
    )


def _by_positions(start: int, stop: int, body: Callable[[int, int], None]) -> None:
    """Call ``body(a, b)`` for runs of positions."""

    def task(index: int, thread: int) -> None:
        a = start + index * TASK_ROWS
        body(a, min(a + TASK_ROWS, stop))

    run_tasks(-(-(stop - start) // TASK_ROWS), task)
