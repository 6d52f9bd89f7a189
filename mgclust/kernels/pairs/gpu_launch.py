"""Launch of the all-pairs kernels: the choice of the file and of the grid."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.toolkit.gpu_compiler import Module, compiled, multiprocessors

__all__ = [
    "FEW_PAIRS",
    "GROUP",
    "LOW_DIMENSIONS",
    "TILE",
    "by_rows",
    "direct",
    "distances",
    "few_features",
    "is_low",
    "launch",
    "rows_per_thread",
    "run_length",
]

Array = Any
LOW_DIMENSIONS = 16
GROUP = 1024  # columns whose terms one block sums: GROUP in pairs.cuh
TILE = 256  # columns that a block of few_features.cu reads at a time: the shortest run
SIDE = 128  # rows and columns of a tile in many_features.cu
THREADS = 128  # threads of a block in few_features.cu
FEW_PAIRS = 1 << 16  # up to this number of pairs, and for a single row or column, one thread per pair is fast enough


def is_low(x: Array, norm: str) -> bool:
    """Return whether few_features.cu supports these rows and this norm."""
    return x.shape[1] <= LOW_DIMENSIONS and norm != "l2-dot"


def direct(norm: str) -> str:
    """Return the norm for decisions: near a threshold, products would need a second pass (see many_features.cu)."""
    return "l2" if norm == "l2-dot" else norm


def run_length(x: Array, y: Array, unit: int) -> int:
    """Return the columns per block, if results do not depend on it: long runs, but enough blocks for the device."""
    row_blocks = max(1, x.shape[0] // 512)
    runs = max(1, min(-(-16 * multiprocessors() // row_blocks), -(-y.shape[0] // unit)))
    return unit * -(-y.shape[0] // (runs * unit))


def launch(name: str, x: Array, y: Array, norm: str, run: int, *arguments: Any) -> None:
    """Start an all-pairs kernel, with rows along the x axis of the grid and runs of columns along the y axis."""
    (m, d), k = x.shape, y.shape[0]
    if not m or not k:
        return
    sizes: tuple[Any, ...]
    if is_low(x, norm) and name != "distances":  # many_features.cu writes distances for any d
        module, rows = few_features(m, d, x.dtype, norm)
        grid, threads = (-(-m // (rows * THREADS)), -(-k // run)), THREADS
        sizes = (x, np.int32(m), y, np.int32(k))
    else:
        module = compiled("pairs/many_features.cu", x.dtype.name, norm)
        grid, threads = (-(-m // SIDE), -(-k // run)), 256
        sizes = (x, np.int32(m), y, np.int32(k), np.int32(d), *_squared_norms(module, x, y, norm))
    if name not in ("gaussian", "gaussian_squared"):  # in these kernels, every run has GROUP columns
        sizes = (*sizes, np.int32(run))
    module.get_function(name)(grid, (threads,), (*sizes, *arguments))


def few_features(m: int, d: int, dtype: Any, norm: str) -> tuple[Module, int]:
    """Return the module for a number of rows and features, and the number of rows per thread."""
    rows = rows_per_thread(m, d, dtype)
    return compiled("pairs/few_features.cu", dtype.name, norm, DIM=d, ROWS=rows), rows


def rows_per_thread(m: int, d: int, dtype: Any) -> int:
    """Return the rows per thread: with more, columns are read less often; with fewer, a small m has more threads."""
    most = 4 if d > 6 or dtype == np.float64 else 8
    return next((rows for rows in (8, 4, 2) if rows <= most and m >= rows * THREADS * multiprocessors()), 1)


def _squared_norms(module: Any, x: Array, y: Array, norm: str) -> tuple[Array, Array]:
    if norm != "l2-dot":
        return x, y  # not read
    out = []
    for rows in (x, y):
        lengths = cp.empty(rows.shape[0], dtype=rows.dtype)
        blocks = (-(-rows.shape[0] // 256),)
        arguments = (rows, np.int32(rows.shape[0]), np.int32(rows.shape[1]), lengths)
        module.get_function("squared_norms")(blocks, (256,), arguments)
        out.append(lengths)
    return out[0], out[1]


def by_rows(name: str, x: Array, norm: str, *arguments: Any) -> None:
    """Start a kernel of any_features.cu with one thread per row."""
    if x.shape[0]:
        kernel = compiled("pairs/any_features.cu", x.dtype.name, norm).get_function(name)
        kernel((-(-x.shape[0] // 256),), (256,), arguments)


def distances(x: Array, y: Array, *, norm: str, root: bool, out: Array) -> None:
    """Write the reduced distances of all pairs, or their square roots, to ``out[:, : len(y)]``."""
    (m, d), k = x.shape, y.shape[0]
    if m * k <= FEW_PAIRS or min(m, k) == 1 or is_low(x, norm):
        few = cp.ascontiguousarray(out[:, :k])
        if few.size:
            kernel = compiled("pairs/any_features.cu", x.dtype.name, norm).get_function("distances")
            kernel((-(-few.size // 256),), (256,), (x, np.int32(m), y, np.int32(k), np.int32(d), few))
            out[:, :k] = cp.sqrt(few) if root else few
        return
    launch("distances", x, y, norm, run_length(x, y, SIDE), np.bool_(root), np.int64(out.shape[1]), out)
