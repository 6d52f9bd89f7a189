"""Similarities of consecutive rows or of any rows on a CUDA device, and the noise that breaks ties."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.pairs.gpu_launch import direct, is_low, launch, run_length
from mgclust.kernels.toolkit.gpu_compiler import compiled, compiled_for_hopper, is_hopper, multiprocessors

__all__ = [
    "SIDE",
    "jitter",
    "jitter_lists",
    "jitter_pairs",
    "similarities",
    "similarities_of_columns",
    "similarities_of_rows",
    "split_rows",
    "start_split",
    "tie_tiny",
]

Array = Any
THREADS = 256  # threads per block in few_features.cu, similarity.cu and chosen_pairs.cu
SIDE = 128  # rows and columns of a tile in pairs/many_features.cu and similarity.cu
SLAB = 32  # features of a stage in similarity.cu
SPLIT_SHARED = max(2 * 4 * SIDE * (SLAB + 8) * 2, SIDE * 133 * 4 + SIDE * SIDE)  # bytes per block in similarity.cu
CHUNK = 64  # features of a tile in similarity_hopper.cu
PACKED_THREADS, PACKED_SHARED = 384, 227 * 1024  # threads and bytes per block in similarity_hopper.cu
LARGEST_GRID_Y = 65535
NO_NUMBERS = np.uint64(0)  # a null pointer, which means that rows are consecutive


def similarities(
    x: Array, y: Array, *, norm: str, factor: float, first_row: int, y_start: int, seed: int, out: Array
) -> None:
    if not len(x) or not len(y):
        return
    real = x.dtype.type
    place = (np.int32(first_row), np.int32(y_start), np.uint64(seed), tie_tiny(x, 100), np.int64(out.shape[1]), out)
    if norm == "l2-dot" and x.dtype == np.float32:
        _split_similarities(x, y, first_row == y_start, (real(factor), *place))
    elif is_low(x, norm):
        _low_similarities(x, y, norm, real(factor), NO_NUMBERS, *place)
    else:
        launch("similarities", x, y, norm, run_length(x, y, SIDE), real(factor), NO_NUMBERS, *place)


def _low_similarities(x: Array, y: Array, norm: str, *arguments: Any) -> None:
    """Start the kernel for few features."""
    (m, d), k = x.shape, y.shape[0]
    module = compiled("affinity_propagation/similarities/few_features.cu", x.dtype.name, direct(norm), DIM=d)
    grid = (-(-k // (4 * THREADS)), _rows_of_grid(m, -(-k // (4 * THREADS))))
    module.get_function("similarities_low")(grid, (THREADS,), (x, np.int32(m), y, np.int32(k), *arguments))


def _split_similarities(x: Array, y: Array, same_place: bool, place: tuple[Any, ...]) -> None:
    """Use tensor cores (``similarity.cu``); if the columns are the rows, compute each pair of tiles once."""
    m, k = len(x), len(y)
    symmetric = same_place and m == k and x.data.ptr == y.data.ptr
    if is_hopper():
        _packed_similarities(x, y, symmetric, place)
        return
    sides = [split_rows(rows) for rows in ((x,) if symmetric else (x, y))]
    tiles = (-(-k // SIDE), -(-m // SIDE))
    grid = (tiles[0] * (tiles[0] + 1) // 2,) if symmetric else tiles
    arguments = (*sides[0], *sides[-1], np.int32(sides[0][0].shape[1]), np.bool_(symmetric), *place)
    start_split("similarities_split", grid, arguments)


def _packed_similarities(x: Array, y: Array, symmetric: bool, place: tuple[Any, ...]) -> None:
    """Compute bitwise identical similarities in less time, with ``similarity_hopper.cu``."""
    sides = [_pack_rows(rows) for rows in ((x,) if symmetric else (x, y))]
    kernel = compiled_for_hopper("affinity_propagation/similarities/similarity_hopper.cu").get_function(
        "similarities_packed"
    )
    kernel.max_dynamic_shared_size_bytes = PACKED_SHARED
    arguments = (*sides[0], *sides[-1], np.int32(x.shape[1]), np.bool_(symmetric), *place)
    kernel((multiprocessors(),), (PACKED_THREADS,), arguments, shared_mem=PACKED_SHARED)


def _pack_rows(rows: Array) -> tuple[Any, ...]:
    """Return rows as ``similarity_hopper.cu`` reads them: halves in tiles, scales, squared lengths, number of rows."""
    m, d = rows.shape
    chunks, tiles = -(-d // CHUNK), -(-m // SIDE)
    packed = cp.empty(tiles * chunks * SIDE * CHUNK * 4, cp.uint8)
    unscale, norms = (cp.empty(tiles * SIDE, cp.float32) for _ in range(2))
    kernel = compiled_for_hopper("affinity_propagation/similarities/similarity_hopper.cu").get_function("pack_rows")
    sizes = (np.int32(m), np.int32(d), np.int32(chunks))
    kernel((tiles * SIDE // (THREADS // 32),), (THREADS,), (rows, *sizes, packed, unscale, norms))
    return packed, unscale, norms, np.int32(m)


def split_rows(rows: Array) -> tuple[Any, ...]:
    """Return rows as ``similarity.cu`` reads them: halves hi and lo, scales, squared lengths, number of rows."""
    m, d = rows.shape
    width = -(-d // SLAB) * SLAB
    hi, lo = (cp.empty((m, width), cp.float16) for _ in range(2))
    unscale, norms = (cp.empty(m, cp.float32) for _ in range(2))
    kernel = compiled("affinity_propagation/similarities/similarity.cu", "float32").get_function("split_rows")
    sizes = (np.int32(m), np.int32(d), np.int32(width))
    kernel((-(-m // (THREADS // 32)),), (THREADS,), (rows, *sizes, hi, lo, unscale, norms))
    return hi, lo, unscale, norms, np.int32(m)


def start_split(name: str, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
    """Start a kernel of ``similarity.cu``."""
    kernel = compiled("affinity_propagation/similarities/similarity.cu", "float32").get_function(name)
    kernel.max_dynamic_shared_size_bytes = SPLIT_SHARED
    kernel(grid, (THREADS,), arguments, shared_mem=SPLIT_SHARED)


def jitter(s: Array, numbers: Array, *, n: int, seed: int, draw: int, tiny: float) -> None:
    if not s.shape[0]:
        return
    kernel = compiled("affinity_propagation/similarities/few_features.cu", s.dtype.name).get_function("jitter")
    columns = -(-n // (4 * THREADS))
    sizes = (s, np.int32(s.shape[0]), np.int32(n), np.int64(s.shape[1]), numbers)
    kernel(
        (columns, _rows_of_grid(s.shape[0], columns)),
        (THREADS,),
        (*sizes, np.uint64(seed), np.uint32(draw), tie_tiny(s, tiny)),
    )


def jitter_pairs(s: Array, numbers: Array, columns: Array, *, seed: int, draw: int, tiny: float) -> None:
    if s.size:
        kernel = compiled("affinity_propagation/similarities/chosen_pairs.cu", s.dtype.name).get_function(
            "jitter_pairs"
        )
        sizes, wide = tuple(map(np.int32, s.shape)), columns.astype(np.int64)
        noise = (np.uint64(seed), np.uint32(draw), tie_tiny(s, tiny))
        kernel((-(-s.size // THREADS),), (THREADS,), (s, *sizes, numbers, wide, *noise))


def jitter_lists(s: Array, bounds: Array, numbers: Array, columns: Array, *, seed: int, draw: int, tiny: float) -> None:
    if len(numbers):
        kernel = compiled("affinity_propagation/similarities/chosen_pairs.cu", s.dtype.name).get_function(
            "jitter_lists"
        )
        noise = (np.uint64(seed), np.uint32(draw), tie_tiny(s, tiny))
        kernel((len(numbers),), (THREADS,), (s, bounds, numbers, columns, *noise))


def similarities_of_rows(
    x: Array, numbers: Array, y: Array, *, norm: str, factor: float, seed: int, out: Array
) -> None:
    if not len(x) or not len(y):
        return
    real = x.dtype.type
    place = (np.uint64(seed), tie_tiny(x, 100), np.int64(out.shape[1]), out)
    numbered = (real(factor), numbers, np.int32(0), np.int32(0), *place)
    if norm == "l2-dot" and x.dtype == np.float32:
        _chosen(x, numbers, y, NO_NUMBERS, real(factor), *place)
    elif is_low(x, norm):
        _low_similarities(x, y, norm, *numbered)
    else:
        launch("similarities", x, y, norm, run_length(x, y, SIDE), *numbered)


def similarities_of_columns(
    x: Array, numbers: Array, y: Array, columns: Array, *, norm: str, factor: float, seed: int, out: Array
) -> None:
    if not out.size:
        return
    real, wide = x.dtype.type, columns.astype(np.int64)
    noise = (np.uint64(seed), tie_tiny(x, 100))
    if norm == "l2-dot" and x.dtype == np.float32:
        _chosen(x, numbers, y, wide, real(factor), *noise, np.int64(out.shape[1]), out)
        return
    kernel = compiled("affinity_propagation/similarities/chosen_pairs.cu", x.dtype.name, norm).get_function(
        "similarities_of_pairs"
    )
    sizes = (x, np.int32(len(x)), y, np.int32(len(y)), np.int32(x.shape[1]))
    kernel((-(-out.size // THREADS),), (THREADS,), (*sizes, numbers, wide, real(factor), *noise, out))


def _chosen(x: Array, rows: Array, y: Array, columns: Array, *arguments: Any) -> None:
    """Use tensor cores for rows and columns with ascending numbers; NO_NUMBERS: all columns."""
    sides = (*split_rows(x), *split_rows(y))
    grid = (-(-len(y) // SIDE), -(-len(x) // SIDE))
    start_split("similarities_chosen", grid, (*sides, np.int32(sides[0].shape[1]), rows, columns, *arguments))


def tie_tiny(s: Array, times: float) -> Any:
    """Return the offset of the tie noise as a number of the matrix's type."""
    return s.dtype.type(times * np.finfo(s.dtype).tiny)


def _rows_of_grid(m: int, columns: int) -> int:
    """Return the number of rows that run at a time.

    It gives enough blocks for the device, and several rows to each block, one after another.
    """
    return max(1, min(m, LARGEST_GRID_Y, -(-32 * multiprocessors() // columns)))
