"""Fuzzy c-means on a CUDA device: one kernel for few centres; products or stored tiles of distances for many centres.

The kernels are in ``fuzzy.cu``. Kernels that use products are in ``few_centers.cu`` and ``products.cu`` (launched by
`gpu_few_centers` and `gpu_products`). Kernels for clusters with their own norms are in ``covariances.cu``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from mgclust.kernels.fuzzy_c_means import gpu_few_centers, gpu_products
from mgclust.kernels.pairs.gpu_launch import SIDE, launch, run_length
from mgclust.kernels.toolkit.gpu_compiler import Module, compiled, or_null

__all__ = [
    "fuzzy_sums",
    "kernels_of",
    "memberships",
    "norm_distances",
    "scatter_sums",
    "tile_memberships",
    "weighted_means",
]

Array = Any
TILE_CLUSTERS, TILE_FEATURES = 8, 4  # clusters and features whose sums a thread holds
GROUP_ROWS, SHORT_ROWS, MIN_ROWS = 1024, 512, 128  # rows that a block, or a thread, adds in the rows' type
SHARED_WANTED, SHARED_MOST = 64 << 10, 224 << 10  # bytes per block if three blocks, or one, fit on a multiprocessor
SHARED_FOR_TWO = 28 << 10  # maximum bytes per block with two buffers; eight blocks fit on a multiprocessor
THREADS_FOR_TILES = ((64, 16), (128, 128), (256, 256))  # threads per block, and how many of them may hold sums
SCRATCH_BYTES = 512 << 20  # maximum bytes of the groups' sums of one launch
TILE_NUMBERS = (
    1 << 25
)  # distances that one kernel writes and the next reads: fewer would stay in the cache, but launches would be short
ADDERS = 128
MAX_PIECES = 1 << 15  # maximum number of pieces of rows per launch, which is the grid's last dimension
WARPS = 8  # rows per block of tile_memberships
ROWS_OF_BLOCK, FEATURE_SIDE = 128, 16  # ROWS_OF_BLOCK and SIDE in covariances.cu
STAGED_NUMBERS = 3 * 2 * 16 * 128  # STAGES of DEPTH rows of the tile and of x, in fuzzy.cu


class _Exponents(NamedTuple):
    """Constants of the powers of memberships, in the rows' type: `Powers` in ``fuzzy.cu``."""

    m: Any
    slope: Any  # 1 / (m - 1)
    log2_scale: Any

    @classmethod
    def of(cls, m: float, log2_scale: float, dtype: Any) -> _Exponents:
        return cls(dtype.type(m), dtype.type(1.0 / (m - 1.0)), dtype.type(log2_scale))

    @property
    def power(self) -> int:
        """Value of POWER in ``fuzzy.cu``: 0 if memberships are ratios because m is 2, else 1."""
        return int(self.m != 2 or self.log2_scale != 0)


class TileLayout(NamedTuple):
    """Division of the work among the threads of a block; see ``fuzzy.cu``."""

    rows: int  # rows per thread
    clusters: int  # clusters per thread
    cluster_lanes: int
    slices: int
    threads: int
    buffers: int  # tiles of rows; with two, the next tile is loaded while one is processed

    def stride(self, d: int) -> int:
        """Return how many numbers a row takes in shared memory."""
        quads = -(-d // (4 * self.slices))
        padded = 4 * self.slices * quads
        return padded if self.slices >= 8 or quads % 2 else padded + 4 * self.slices

    def shared(self, d: int, itemsize: int) -> int:
        """Return the bytes of shared memory per block."""
        tile_rows = self.rows * self.threads // (self.cluster_lanes * self.slices)
        centers = self.clusters * self.cluster_lanes
        numbers = (self.buffers * tile_rows + centers) * self.stride(d) + tile_rows * (centers + 4)
        return itemsize * max(numbers, TILE_CLUSTERS * TILE_FEATURES * self.threads)

    def sum_tiles(self, d: int) -> int:
        """Return the number of threads that are needed to hold the sums of all centres and features."""
        return self.clusters * self.cluster_lanes // TILE_CLUSTERS * -(-d // TILE_FEATURES)


@functools.cache
def layout_of(d: int, c: int, itemsize: int) -> TileLayout | None:
    """Return the layout for d features and c centres; None if one block cannot hold the sums.

    On an H200, this layout was within a few percent of the fastest of all layouts that were tried. Blocks are small if
    there are few sums, and a row gets as few threads as shared memory allows.
    """
    clusters = 8 if c <= 8 or itemsize == 8 else 16
    lanes = 1 << (-(-c // clusters) - 1).bit_length()
    rows = 2 if itemsize == 8 or (d <= 32 and lanes == 1) else 4
    sum_tiles = clusters * lanes // TILE_CLUSTERS * -(-d // TILE_FEATURES)
    # There also has to be a thread for each centre, which sums the centre's column of memberships.
    enough = (threads for threads, most in THREADS_FOR_TILES if sum_tiles <= most and clusters * lanes <= threads)
    threads = next(enough, None)
    if threads is None:
        return None
    every = [
        TileLayout(rows, clusters, lanes, slices, threads, 1) for slices in (1, 2, 4, 8, 16, 32) if slices * lanes <= 32
    ]
    fitting = [layout for layout in every if layout.shared(d, itemsize) <= SHARED_MOST]
    if not fitting:
        return None
    chosen = next((layout for layout in fitting if layout.shared(d, itemsize) <= SHARED_WANTED), fitting[-1])
    twice = chosen._replace(buffers=2)
    return twice if twice.shared(d, itemsize) <= SHARED_FOR_TWO else chosen


def fuzzy_sums(
    x: Array,
    centers: Array,
    *,
    m: float,
    log2_scale: float = 0.0,
    weights: Array | None,
    first_row: int,
    block_rows: int,
    out: Array,
) -> None:
    if not len(x):
        return
    layout = layout_of(x.shape[1], centers.shape[1], x.dtype.itemsize)
    exponents = _Exponents.of(m, log2_scale, x.dtype)
    if gpu_few_centers.supports(x.dtype, x.shape[1], centers.shape[1], exponents.power):
        _sums_in_warps(x, centers, weights, first_row, block_rows, out)
    elif layout is None and gpu_products.supports(x.dtype, x.shape[1], exponents.power):
        _sums_by_products(x, centers, exponents, weights, first_row, block_rows, out)
    elif layout is None:
        _sums_by_tiles(x, centers, exponents, weights, first_row, block_rows, out)
    else:
        _sums_in_one(x, centers, exponents, weights, first_row, block_rows, out, layout)


def kernels_of(function: str, d: int, dtype: Any, *, clusters: int, m: float) -> Iterator[tuple[Module, str]]:
    for c in (1, clusters):  # one cluster gives the mean of all rows
        if (layout := layout_of(d, c, dtype.itemsize)) is not None:
            yield module_of(dtype.name, d, layout, int(m != 2)), function


def memberships(x: Array, centers: Array, *, m: float, out: Array) -> None:
    if len(x):
        _distances(x, centers, out)
        _memberships_of_tile(out, _Exponents.of(m, 0.0, out.dtype), None, only_u=True, scores=out)


def norm_distances(x: Array, centers: Array, factors: Array, *, out: Array) -> None:
    (k, d), c = x.shape, len(centers)
    if not k:
        return
    kernel = compiled("fuzzy_c_means/covariances.cu", x.dtype.name).get_function("norm_distances")
    sizes = (cp.ascontiguousarray(x.T), np.int64(k), np.int32(d), centers, factors, np.int32(c), out)
    kernel((-(-k // ROWS_OF_BLOCK), c), (ROWS_OF_BLOCK,), sizes)


def tile_memberships(
    tile: Array, *, m: float, log2_scale: float = 0.0, weights: Array | None = None, scores: Array | None = None
) -> None:
    if len(tile):
        exponents, only_u = _Exponents.of(m, log2_scale, tile.dtype), scores is None
        _memberships_of_tile(tile, exponents, weights, only_u=only_u, scores=tile if scores is None else scores)


def scatter_sums(x: Array, centers: Array, g: Array, *, first_row: int, block_rows: int, out: Array) -> None:
    (k, d), c, packed = x.shape, len(centers), out.shape[2]
    kernel = compiled("fuzzy_c_means/covariances.cu", x.dtype.name).get_function("scatter")
    add = compiled("fuzzy_c_means/fuzzy.cu", x.dtype.name, POWER=0).get_function("add_pieces")
    tiles = -(-(d + 1) // FEATURE_SIDE)
    fit = min(MAX_PIECES, SCRATCH_BYTES // (x.itemsize * c * packed)) * SHORT_ROWS
    most = max(1, fit // GROUP_ROWS) * GROUP_ROWS
    for start in range(0, k, most):
        part, weighs = x[start : start + most], g[start : start + most]
        partial = cp.empty((-(-len(part) // SHORT_ROWS), c, packed), x.dtype)
        grid, sizes = (tiles * (tiles + 1) // 2, c, len(partial)), (np.int64(len(part)), np.int32(d))
        arguments = (part, *sizes, centers, weighs, np.int32(c), np.int32(SHORT_ROWS), partial)
        kernel(grid, (FEATURE_SIDE * FEATURE_SIDE,), arguments)
        _add_runs(add, partial, first_row + start, len(part), SHORT_ROWS, block_rows, out, first_row)


def weighted_means(sums: Array, centers: Array) -> Array:
    _, c, d = centers.shape
    return _MOVE(sums, centers, c, d, sums.shape[1], cp.empty_like(centers))


_MOVE = cp.ElementwiseKernel(
    "raw float64 sums, float64 center, int64 c, int64 d, int64 length",
    "float64 moved",
    """
    const long long model = i / (c * d), at = i % (c * d);
    const double weight = sums[model * length + c * d + at / d];
    moved = weight > 0 ? sums[model * length + at] / weight : center;
    """,
    "weighted_means",
)


def _sums_in_warps(
    x: Array, centers: Array, weights: Array | None, first_row: int, block_rows: int, out: Array
) -> None:
    (models, c, d), group = centers.shape, _group_of(GROUP_ROWS, block_rows)
    groups = max(1, SCRATCH_BYTES // (4 * models * (c * d + c + 3)))
    most = min(groups, MAX_PIECES) * group
    partial = cp.empty((-(-min(most, len(x)) // group), models, c * d + c + 3), x.dtype)
    add = compiled("fuzzy_c_means/fuzzy.cu", x.dtype.name, POWER=0).get_function("add_pieces")
    for start in range(0, len(x), most):
        part = x[start : start + most]
        heavy = None if weights is None else weights[start : start + most]
        gpu_few_centers.start(part, centers, heavy, group, partial[: -(-len(part) // group)])
        _add_runs(add, partial, first_row + start, len(part), group, block_rows, out, first_row)


def _sums_in_one(
    x: Array,
    centers: Array,
    exponents: _Exponents,
    weights: Array | None,
    first_row: int,
    block_rows: int,
    out: Array,
    layout: TileLayout,
) -> None:
    (_, d), (models, c, _) = x.shape, centers.shape
    length = c * d + c + 3
    group = _group_rows(block_rows, layout, d)
    fused = _fused(x.dtype.name, d, layout, exponents.power)
    groups = min(SCRATCH_BYTES // (8 * models * length), MAX_PIECES)
    step = max(1, groups // (block_rows // group)) * block_rows
    start = 0
    while start < len(x):
        # A launch ends at the end of a block of rows.
        stop = min(len(x), (first_row + start) // block_rows * block_rows + step - first_row)
        part, groups = x[start:stop], -(-(stop - start) // group)
        partial = cp.empty((groups, models, length))
        heavy = None if weights is None else weights[start:stop]
        sizes = (
            part,
            np.int64(len(part)),
            centers,
            np.int32(c),
            *exponents,
            or_null(heavy),
            np.int32(group),
        )
        fused.kernel((models, groups), (layout.threads,), (*sizes, partial), shared_mem=layout.shared(d, x.itemsize))
        _add_runs(fused.add, partial, first_row + start, len(part), group, block_rows, out, first_row)
        start = stop


def _sums_by_tiles(
    x: Array, centers: Array, exponents: _Exponents, weights: Array | None, first_row: int, block_rows: int, out: Array
) -> None:
    (_, d), (models, c, _) = x.shape, centers.shape
    length = c * d + c + 3
    fit = min(TILE_NUMBERS // c, SCRATCH_BYTES // (8 * models * length) * SHORT_ROWS)
    most = max(1, fit // GROUP_ROWS) * GROUP_ROWS
    tiles = _Tiles(min(most, len(x)), c, exponents, x.dtype)
    partial = cp.empty((-(-len(tiles.distances) // SHORT_ROWS), models, length), x.dtype)
    add = compiled("fuzzy_c_means/fuzzy.cu", x.dtype.name, POWER=exponents.power).get_function("add_pieces")
    for start in range(0, len(x), most):
        part = x[start : start + most]
        heavy = None if weights is None else weights[start : start + most]
        for model in range(models):
            tiles.sums(part, centers[model], heavy, partial[:, model])
        _add_runs(add, partial, first_row + start, len(part), SHORT_ROWS, block_rows, out, first_row)


class _Tiles:
    """A tile of distances, which are replaced by g, and the sums of rows with the weights g.

    Parameters
    ----------
    rows, c : int
        Number of rows and centres of the tile.
    exponents : _Exponents
    dtype : dtype
        Type of rows and centres.
    """

    def __init__(self, rows: int, c: int, exponents: _Exponents, dtype: Any) -> None:
        self.distances, self._scores = cp.empty((rows, c), dtype), cp.empty((rows, 3))
        self._exponents = exponents
        module = compiled("fuzzy_c_means/fuzzy.cu", dtype.name, POWER=exponents.power)
        self._kernel = module.get_function("tile_sums")
        self._kernel.max_dynamic_shared_size_bytes = self._shared = STAGED_NUMBERS * dtype.itemsize

    def sums(self, x: Array, centers: Array, weights: Array | None, partial: Array) -> None:
        """Write the sums of pieces of SHORT_ROWS rows to the rows of `partial`."""
        (k, d), c = x.shape, len(centers)
        tile = self.distances[:k]
        _distances(x, centers, tile)
        _memberships_of_tile(tile, self._exponents, weights, only_u=False, scores=self._scores)
        grid = (-(-d // SIDE), -(-c // SIDE), -(-k // SHORT_ROWS))
        sizes = (tile, np.int32(k), np.int32(c), x, np.int32(d), self._scores, np.int32(SHORT_ROWS))
        stride = np.int64(partial.strides[0] // partial.itemsize)
        self._kernel(grid, (256,), (*sizes, stride, partial), shared_mem=self._shared)


def _sums_by_products(
    x: Array, centers: Array, exponents: _Exponents, weights: Array | None, first_row: int, block_rows: int, out: Array
) -> None:
    (_, d), (models, c, _) = x.shape, centers.shape
    length = c * d + c + 3
    piece = gpu_products.PIECE_ROWS
    every = [gpu_products.PackedCenters(centers[model]) for model in range(models)]
    most = max(1, SCRATCH_BYTES // (gpu_products.bytes_of_piece() + 4 * models * length)) * piece
    partial = cp.empty((-(-min(most, len(x)) // piece), models, length), x.dtype)
    add = compiled("fuzzy_c_means/fuzzy.cu", x.dtype.name, POWER=exponents.power).get_function("add_pieces")
    for start in range(0, len(x), most):
        part = x[start : start + most]
        heavy = None if weights is None else weights[start : start + most]
        rows = gpu_products.PackedRows(part, heavy)
        left = [rows.sums(every[model], partial[:, model]) for model in range(models)]
        for model, wait in enumerate(left):
            for run in wait():  # the sums of these pieces are still missing
                few = part[run.start * piece : run.stop * piece]
                weights_of_few = None if heavy is None else heavy[run.start * piece : run.stop * piece]
                _sums_of_pieces(few, centers[model], exponents, weights_of_few, partial[run.start : run.stop, model])
        _add_runs(add, partial, first_row + start, len(part), piece, block_rows, out, first_row)


def _sums_of_pieces(x: Array, centers: Array, exponents: _Exponents, weights: Array | None, partial: Array) -> None:
    """Write the sums of pieces of GROUP_ROWS rows by direct differences; each piece has two halves of SHORT_ROWS."""
    most = max(1, TILE_NUMBERS // (len(centers) * GROUP_ROWS))
    tiles = _Tiles(min(len(x), most * GROUP_ROWS), len(centers), exponents, x.dtype)
    for piece in range(0, len(partial), most):
        rows, pieces = slice(piece * GROUP_ROWS, (piece + most) * GROUP_ROWS), partial[piece : piece + most]
        halves = cp.zeros((GROUP_ROWS // SHORT_ROWS * len(pieces), partial.shape[1]), x.dtype)
        tiles.sums(x[rows], centers, None if weights is None else weights[rows], halves)
        cp.add(halves[::2], halves[1::2], out=pieces)


def _distances(x: Array, centers: Array, out: Array) -> None:
    """Write the squared distances of all pairs, by direct differences."""
    launch("distances", x, centers, "l2", run_length(x, centers, SIDE), np.bool_(False), np.int64(out.shape[1]), out)


def _memberships_of_tile(
    tile: Array, exponents: _Exponents, weights: Array | None, *, only_u: bool, scores: Array
) -> None:
    kernel = compiled("fuzzy_c_means/fuzzy.cu", tile.dtype.name, POWER=exponents.power).get_function("tile_memberships")
    sizes = (tile, np.int32(tile.shape[0]), np.int32(tile.shape[1]), *exponents)
    kernel((-(-len(tile) // WARPS),), (32 * WARPS,), (*sizes, or_null(weights), np.bool_(only_u), scores))


def _add_runs(
    kernel: Any, partial: Array, first_row: int, rows: int, run_rows: int, block_rows: int, out: Array, out_row: int
) -> None:
    """Add the sums of runs of rows, in order, to the sums of their blocks."""
    length = out[0].size
    first, last = first_row // block_rows, (first_row + rows - 1) // block_rows
    sizes = (np.int64(first_row), np.int64(rows), np.int32(run_rows), np.int64(block_rows), np.int64(length))
    grid = (-(-length // ADDERS), last - first + 1)
    kernel(grid, (ADDERS,), (partial, *sizes, out[first - out_row // block_rows :]))


def _group_rows(block_rows: int, layout: TileLayout, d: int) -> int:
    """Return how many rows a thread block adds up; only the size of the data decides, so that all ranks agree."""
    return _group_of(GROUP_ROWS if layout.threads >= 2 * layout.sum_tiles(d) else SHORT_ROWS, block_rows)


def _group_of(most: int, block_rows: int) -> int:
    # With few rows, groups are short, so that there are several thread blocks for each multiprocessor.
    group = MIN_ROWS
    while 2 * group <= min(most, block_rows // 8):
        group *= 2
    return group


class _Fused(NamedTuple):
    kernel: Any
    add: Any


def module_of(dtype: str, d: int, layout: TileLayout, power: int) -> Module:
    """Return the kernels of one layout."""
    sizes = {name.upper(): value for name, value in layout._asdict().items()}
    return compiled("fuzzy_c_means/fuzzy.cu", dtype, DIM=d, POWER=power, **sizes)


@functools.cache
def _fused(dtype: str, d: int, layout: TileLayout, power: int) -> _Fused:
    module = module_of(dtype, d, layout, power)
    kernel = module.get_function("fuzzy_sums")
    kernel.max_dynamic_shared_size_bytes = layout.shared(d, np.dtype(dtype).itemsize)
    return _Fused(kernel, module.get_function("add_groups"))
