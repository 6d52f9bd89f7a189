"""Affinity propagation on a CUDA device: similarities, and one iteration of messages (``messages.cu``)."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.affinity_propagation.messages import Messages, Vectors
from mgclust.kernels.pairs.gpu_launch import direct, is_low, launch, run_length
from mgclust.kernels.toolkit.gpu_compiler import compiled, multiprocessors

__all__ = ["jitter", "pass_columns", "pass_rows", "similarities"]

Array = Any
THREADS = 256  # also of a block in messages.cu and few_features.cu
SIDE = 128  # of a tile in pairs/many_features.cu and similarity.cu
SLAB = 32  # features of a stage in similarity.cu
SPLIT_SHARED = max(2 * 4 * SIDE * (SLAB + 8) * 2, SIDE * 133 * 4 + SIDE * SIDE)  # bytes of its blocks
LARGEST_GRID_Y = 65535


def similarities(
    x: Array, y: Array, *, norm: str, factor: float, first_row: int, y_start: int, seed: int, out: Array
) -> None:
    (m, d), k = x.shape, y.shape[0]
    if not m or not k:
        return
    real = x.dtype.type
    tiny = real(100 * np.finfo(x.dtype).tiny)
    place = (real(factor), np.int32(first_row), np.int32(y_start), np.uint64(seed), tiny, np.int64(out.shape[1]), out)
    if norm == "l2-dot" and x.dtype == np.float32:
        _split_similarities(x, y, first_row == y_start, place)
    elif is_low(x, norm):
        kernel = compiled("affinity_propagation/few_features.cu", x.dtype.name, direct(norm), DIM=d).get_function(
            "similarities_low"
        )
        grid = (-(-k // (4 * THREADS)), _rows_of_grid(m, -(-k // (4 * THREADS))))
        kernel(grid, (THREADS,), (x, np.int32(m), y, np.int32(k), *place))
    else:
        launch("similarities", x, y, norm, run_length(x, y, SIDE), *place)


def _split_similarities(x: Array, y: Array, same_place: bool, place: tuple[Any, ...]) -> None:
    """Use tensor cores (``similarity.cu``); where the columns are the rows, each pair of tiles once."""
    (m, d), k = x.shape, y.shape[0]
    width = -(-d // SLAB) * SLAB
    symmetric = same_place and m == k and x.data.ptr == y.data.ptr
    module = compiled("affinity_propagation/similarity.cu", "float32")
    sides: list[Any] = []
    for rows in (x,) if symmetric else (x, y):
        hi, lo = (cp.empty((len(rows), width), cp.float16) for _ in range(2))
        unscale, norms = (cp.empty(len(rows), cp.float32) for _ in range(2))
        sizes = (np.int32(len(rows)), np.int32(d), np.int32(width))
        split = module.get_function("split_rows")
        split((-(-len(rows) // (THREADS // 32)),), (THREADS,), (rows, *sizes, hi, lo, unscale, norms))
        sides.append((hi, lo, unscale, norms, np.int32(len(rows))))
    tiles = (-(-k // SIDE), -(-m // SIDE))
    grid = (tiles[0] * (tiles[0] + 1) // 2,) if symmetric else tiles
    kernel = module.get_function("similarities_split")
    kernel.max_dynamic_shared_size_bytes = SPLIT_SHARED
    arguments = (*sides[0], *sides[-1], np.int32(width), np.bool_(symmetric), *place)
    kernel(grid, (THREADS,), arguments, shared_mem=SPLIT_SHARED)


def jitter(s: Array, *, n: int, first_row: int, seed: int, draw: int, tiny: float) -> None:
    if not s.shape[0]:
        return
    kernel = compiled("affinity_propagation/few_features.cu", s.dtype.name).get_function("jitter")
    columns = -(-n // (4 * THREADS))
    least = s.dtype.type(tiny * np.finfo(s.dtype).tiny)
    sizes = (s, np.int32(s.shape[0]), np.int32(n), np.int64(s.shape[1]), np.int32(first_row))
    kernel((columns, _rows_of_grid(s.shape[0], columns)), (THREADS,), (*sizes, np.uint64(seed), np.uint32(draw), least))


def pass_rows(
    messages: Messages,
    *,
    sigma: float,
    next_sigma: float,
    damping: float,
    next_damping: float,
    scale: float,
    negligible: float,
) -> None:
    m, stride = messages.s.shape
    if not m:
        return
    kernel = compiled("affinity_propagation/messages.cu", messages.s.dtype.name).get_function("pass_rows")
    sizes = (messages.n, messages.first_row, stride, messages.hot_column.shape[1])
    arrays = (
        messages.s, messages.a, messages.u, messages.hot_column, messages.hot_e, messages.hot_a, messages.hot_most,
        messages.c, messages.r_diagonal, messages.a_diagonal, messages.preference, messages.sums,
    )  # fmt: skip
    numbers = (sigma, next_sigma, damping, next_damping, scale, negligible)
    kernel((m,), (THREADS,), (*map(np.int32, sizes), *arrays, *map(np.float64, numbers)))


def pass_columns(messages: Vectors, *, damping: float, scale: float, slot: int) -> None:
    counts = messages.counts[slot]
    cp.cuda.runtime.memsetAsync(counts.data.ptr, 0, counts.nbytes, cp.cuda.get_current_stream().ptr)
    kernel = compiled("affinity_propagation/messages.cu", messages.c.dtype.name).get_function("pass_columns")
    vectors = (messages.sums, messages.c, messages.r_diagonal, messages.a_diagonal)
    flags = (messages.exemplars[slot], messages.last_exemplars, counts)
    numbers = (np.float64(damping), np.float64(scale))
    kernel((-(-messages.n // 256),), (256,), (np.int32(messages.n), *vectors, *flags, *numbers))


def _rows_of_grid(m: int, columns: int) -> int:
    """Number of rows that are begun at a time: enough blocks for the device, each with several rows."""
    return max(1, min(m, LARGEST_GRID_Y, -(-32 * multiprocessors() // columns)))
