"""Functions that graph kernels share on a CUDA device: launches over rows and arrays, classes of rows by length."""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency, Gain
from mgclust.kernels.toolkit.gpu_compiler import compiled, multiprocessors, or_null

__all__ = ["BLOCK", "THREADS", "bins", "by_rows", "functions", "kernel", "row_arguments", "warp_grid", "whole"]

Array = Any
THREADS = 256
BLOCK = 512  # threads per block in launches over rows
SHORT_ROW, LONG_ROW = 64, 1024  # as in communities.cu


class Bins(NamedTuple):
    """Classes of rows by length."""

    medium: Array
    longer: Array
    longest: int
    largest: int  # largest weight


def bins(rows: Adjacency) -> Bins:
    """Return the classes of rows by length, which are computed only once."""
    if "bins" not in rows.plan:
        kind = None if rows.weights is None else rows.weights.dtype
        medium, longer = (cp.empty(rows.entries // length, cp.int32) for length in (SHORT_ROW, LONG_ROW))
        counts = cp.zeros(4, cp.int64)
        if rows.entries:
            items = max(rows.rows, rows.entries if kind is not None else 0)
            grid = (max(1, min(-(-items // THREADS), 16 * multiprocessors())),)
            functions(kind).get_function("bin_rows")(grid, (THREADS,), (*row_arguments(rows), medium, longer, counts))
        n_medium, n_longer, longest, largest = counts.tolist()
        rows.plan["bins"] = Bins(medium[:n_medium], longer[:n_longer], longest, max(1, largest))
    return rows.plan["bins"]


def whole(name: str, items: int, *arguments: Any, size: int | None = None) -> None:
    """Launch a kernel over `items` elements; its first argument is `size`, by default `items`."""
    if not items:
        return
    grid = (min(-(-items // THREADS), 64 * multiprocessors()),)
    functions(None).get_function(name)(grid, (THREADS,), (np.int64(items if size is None else size), *arguments))


def functions(kind: np.dtype | None) -> Any:
    """Return the kernels for weights of type `kind` (None: all weights are 1) and integer gains."""
    width = 0 if kind is None else 8 * kind.itemsize
    return compiled("graph/communities.cu", "float64", WEIGHT=width, EXACT=1, DIRECTED=0)


def by_rows(rows: Adjacency, name: str, *arguments: Any, gain: Gain | None = None) -> None:
    """Launch a kernel over all rows: with one thread block per long row, and one warp per other row."""
    if not rows.entries:
        return
    longer = bins(rows).longer
    blocks = max(min(len(longer), 2 * multiprocessors()), min(-(-rows.rows // BLOCK), 8 * multiprocessors()))
    listed = (longer, np.int32(len(longer)))
    kernel(rows, gain, name)((blocks,), (BLOCK,), (*row_arguments(rows), *listed, *arguments))


def row_arguments(rows: Adjacency) -> tuple[Any, ...]:
    """Return the first arguments of a kernel that is launched over rows."""
    return np.int32(rows.first), np.int32(rows.rows), rows.starts, rows.columns, or_null(rows.weights)


def warp_grid(rows: Adjacency) -> tuple[int]:
    """Return the number of blocks for a launch with one warp per row."""
    return (max(1, min(-(-rows.rows // THREADS), 16 * multiprocessors())),)


def kernel(rows: Adjacency, gain: Gain | None, name: str) -> Any:
    """Return the kernel `name` for the types of the rows' weights and of the gains."""
    width = 0 if rows.weights is None else 8 * rows.weights.dtype.itemsize
    exact, directed = (1, 0) if gain is None else (int(gain.exact), int(gain.directed))
    module = compiled("graph/communities.cu", "float64", WEIGHT=width, EXACT=exact, DIRECTED=directed)
    return module.get_function(name)
