"""All pairs of rows with many features by products of split halves: starts ``split_products.cu`` and decides its lists.

Each function returns whether it has done the work. If it has not, the caller uses the kernels of direct differences:
for other types, metrics and devices, for few pairs, and for numbers that are not finite. The caller also uses them if
so many pairs are doubtful that listing them does not pay: if distances are small compared with the distances of the
rows from the origin.

Gaussian sums are an exception: the choice depends on the rows' type and number of features, but never on the number of
pairs of a call, because the bits of the sums would then depend on this number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from mgclust.kernels.pairs.gpu_launch import GROUP
from mgclust.kernels.pairs.gpu_nearest_rows import MAX_MINIMA, Selection, affordable, room_of, rows_at_once
from mgclust.kernels.toolkit.gpu_compiler import Module, compiled, compiled_for_hopper, is_hopper, multiprocessors

__all__ = [
    "border",
    "count_within",
    "gaussian_both_ways",
    "gaussian_sum",
    "nearest_higher",
    "nearest_rows",
    "pair_histogram",
]

Array = Any
ROWS = 128  # rows of a tile, and columns of a tile: split_products.cuh
CHUNK = 64  # features of a tile
STAYING = 2  # largest number of chunks with which the rows of a block stay in shared memory
SHARED_BYTES = 225 * 1024
THREADS = 384
FEWEST_FEATURES = 17
MAX_FEATURES = 256  # up to here, sums of three products are as accurate as the worst case of float32 multiply-adds
FEWEST_MULTIPLICATIONS = 1 << 32  # multiplications of a call: direct differences take half a millisecond for these
PACKED_BYTES = 512 << 20  # bytes of rows, and bytes of columns, that are packed at a time
LIST_PAIRS = 1 << 25  # pairs of the longest list: 256 MiB
MAX_DOUBTFUL = 1 / 32  # fraction of the pairs: if more are doubtful, direct differences of all pairs are faster
LARGEST = 14  # exponent of the largest number: squares stay far from overflow, and low halves far from underflow
WAVES = 16  # blocks per multiprocessor
ROW_TILES = 32  # tiles of rows that blocks share while they run: `row_tile` in split_products.cu
AHEAD_OF_ALL = 1 << 24  # offset in tiles with which every column comes after every row
NEAREST_RUN = 64  # tiles per block of `nearest`: later blocks begin with the distances that earlier blocks found
SUMMED_ROWS = 1 << 18  # maximum of rows and of columns in a launch of `gaussian`, whose sums then take 512 MiB
MINIMA = 32  # groups of a run of columns: GROUPS in split_products.cu
SPARE_COLUMNS = 1024  # spare columns of a row's list: if distances differ little, many columns stay open


class Packed(NamedTuple):
    """Rows in tiles, in the layout that the tensor cores read."""

    start: int
    size: int
    tiles: Array
    norms: Array
    sizes: Array
    largest: Array


class Products:
    """The rows and columns of one call.

    Parameters
    ----------
    x, y : float32 arrays of shape (m, d) and (k, d)
    x_which, y_which : int64 arrays, optional
        Indices of the rows and columns to use, in this order; by default all.
    reach : float, optional
        Number from which the scale follows, if every call must use the same scale; by default, the largest number of
        the rows and columns.

    Attributes
    ----------
    fits : bool
        Whether halves can hold the scaled numbers.
    """

    def __init__(
        self, x: Array, y: Array, x_which: Array | None = None, y_which: Array | None = None, reach: float = 0.0
    ) -> None:
        self.x, self.y = x, y
        self._x_which, self._y_which = x_which, y_which
        self.m, self.k = (len(rows) if which is None else len(which) for rows, which in ((x, x_which), (y, y_which)))
        self._same = x.data.ptr == y.data.ptr and x.shape == y.shape and x_which is y_which
        self.d = x.shape[1]
        self.chunks = chunks_of(self.d)
        largest = max(float(cp.maximum(rows.max(), -rows.min())) for rows in ((x,) if self._same else (x, y)))
        exponent = math.frexp(reach or largest)[1] if largest > 0 and math.isfinite(largest) else 0
        # The scale is a power of two, so that numbers keep their digits. The bounds keep its square finite in float32.
        self.scale = 2.0 ** min(max(LARGEST - exponent, -60), 60)
        self.fits = largest * self.scale <= 2.0 ** (LARGEST + 1)
        # Direct differences in float32 may differ from s by (d + 2) 2^-24 s; a few times this error is allowed.
        self.wide = 1.0 + (self.d + 4) * 2.0**-21
        self.most = most_rows(self.chunks)

    def pieces(self) -> Iterator[tuple[Packed, Packed]]:
        """Yield packed rows with packed columns; for the same rows, the columns ascend."""
        for start in range(0, self.m, self.most):
            rows = self.rows(start, min(self.most, self.m - start))
            for first in range(0, self.k, self.most):
                same = self._same and first == start
                yield rows, rows if same else self.columns(first, min(self.most, self.k - first))

    def rows(self, start: int, count: int) -> Packed:
        """Pack some of the rows."""
        return self._pack(self.x, self._x_which, start, count)

    def columns(self, start: int, count: int) -> Packed:
        """Pack some of the columns."""
        return self._pack(self.y, self._y_which, start, count)

    def launch(self, name: str, x: Packed, y: Packed, run: int, *arguments: Any) -> None:
        """Start a kernel with blocks of `run` tiles of columns."""
        kernel = program("pairs/products/split_products.cu", self.chunks).get_function(name)
        kernel.max_dynamic_shared_size_bytes = SHARED_BYTES
        row_tiles = -(-x.size // ROWS)
        grid = (min(ROW_TILES, row_tiles), -(-y.size // (run * ROWS)), -(-row_tiles // ROW_TILES))
        sides = (*x[2:], np.int32(x.size), *y[2:], np.int32(y.size))
        kernel(grid, (THREADS,), (*sides, np.int32(self.chunks), np.int32(run), *arguments), shared_mem=SHARED_BYTES)

    def scaled(self, s: float) -> np.float32:
        """Return the reduced distance of scaled rows that corresponds to the reduced distance s."""
        with np.errstate(over="ignore"):
            return np.float32(s * self.scale**2)

    def _pack(self, x: Array, which: Array | None, start: int, count: int) -> Packed:
        tiles = -(-count // ROWS)
        packed = cp.empty(tiles * self.chunks * 2 * ROWS * CHUNK * 2, dtype=np.uint8)
        norms = cp.empty(tiles * ROWS, dtype=np.float32)
        sizes, largest = cp.empty((tiles * ROWS, 2), dtype=np.float32), cp.empty((tiles, 2), dtype=np.float32)
        rows, places = (x[start:], np.uint64(0)) if which is None else (x, which[start : start + count])
        module = program("pairs/products/split_products.cu", self.chunks)
        sizes_of_x = np.int32(count), np.int32(self.d), np.int32(self.chunks), np.float32(self.scale)
        module.get_function("pack")((tiles * ROWS // 8,), (256,), (rows, places, *sizes_of_x, packed, norms, sizes))
        module.get_function("largest_sizes")((tiles,), (ROWS,), (sizes, largest))
        return Packed(start, count, packed, norms, sizes, largest)


def run_of(rows: int, columns: int, unit: int = 1) -> int:
    """Return the tiles of columns per block, a multiple of `unit`: long runs, but enough blocks for the device."""
    row_tiles, tiles = -(-rows // ROWS), -(-columns // ROWS)
    runs = max(1, min(-(-WAVES * multiprocessors() // row_tiles), tiles))
    return unit * -(-tiles // (runs * unit))


def program(file: str, chunks: int) -> Module:
    """Return the kernels of a file that passes over tiles, for rows with this number of chunks of features."""
    return compiled_for_hopper(file, FEW_CHUNKS=int(chunks <= STAYING))


def chunks_of(d: int) -> int:
    """Return the number of chunks into which the features of a row are divided."""
    return -(-d // CHUNK)


def pack_about(module: Any, x: Array, centre: Array, which: Array | None = None) -> tuple[Array, Array]:
    """Pack rows, or some of the rows, relative to a centre; return tiles and norms from ``centred_sums.cu``."""
    count, d, chunks = len(x) if which is None else len(which), x.shape[1], chunks_of(x.shape[1])
    padded = -(-count // ROWS) * ROWS
    tiles, norms = cp.empty(padded * chunks * CHUNK * 4, dtype=np.uint8), cp.empty((padded, 2), dtype=np.float32)
    places, sizes = np.uint64(0) if which is None else which, (np.int32(count), np.int32(d), np.int32(chunks))
    module.get_function("pack_about")((padded // 8,), (256,), (x, places, centre, *sizes, tiles, norms))
    return tiles, norms


def most_rows(chunks: int) -> int:
    """Return the largest number of rows, with this number of chunks of features, that are packed at a time."""
    return max(GROUP, affordable(PACKED_BYTES) // (chunks * CHUNK * 4) // GROUP * GROUP)


def supports(dtype: Any, d: int, norm: str = "l2") -> bool:
    """Return whether these kernels support the type, the number of features and the norm on this device."""
    return dtype == np.float32 and norm != "l1" and d >= FEWEST_FEATURES and is_hopper()


def pay(dtype: Any, m: int, k: int, d: int, norm: str = "l2") -> bool:
    """Return whether these kernels support the rows, and are faster than direct differences."""
    return supports(dtype, d, norm) and m * k * d >= FEWEST_MULTIPLICATIONS


def gaussian_sum(x: Array, y: Array, *, factor: float, own: Array, add: Callable[[Array, slice], None]) -> bool:
    """Pass sums of ``exp2(-factor * s)`` over groups of columns to `add`, which adds them for a slice of the rows."""
    if not supports(x.dtype, x.shape[1], "l2-dot") or not x.size or not y.size:
        return False
    call = Products(x, y, reach=_reach(factor))
    if not call.fits:
        return False
    call.most = min(call.most, SUMMED_ROWS)
    for rows, columns in call.pieces():
        groups = cp.empty((-(-columns.size // GROUP), rows.size), dtype=np.float64)
        mine = slice(rows.start, rows.start + rows.size)
        left_out = cp.clip(own[mine] - columns.start, -1, columns.size).astype(np.int32)
        scaled = np.float32(-factor / call.scale**2)
        call.launch("gaussian", rows, columns, run_of(rows.size, columns.size, GROUP // ROWS), scaled, left_out, groups)
        add(groups, mine)
    return True


def gaussian_both_ways(
    x: Array, y: Array, *, factor: float, diagonal: bool, unit: float, x_out: Array, y_out: Array
) -> bool:
    """Do the work of `PairKernels.gaussian_both_ways`, with terms ``exp2(-factor * s)``."""
    if not x.size or not y.size:
        return True
    if not supports(x.dtype, x.shape[1], "l2-dot") or not (call := Products(x, y, reach=_reach(factor))).fits:
        return False
    scaled = np.float32(-factor / call.scale**2)
    for rows, columns in call.pieces():
        if diagonal and columns.start < rows.start:
            continue
        ahead = np.int32((columns.start - rows.start) // ROWS if diagonal else AHEAD_OF_ALL)
        sides = x_out[rows.start :], y_out[columns.start :]
        call.launch(
            "both_ways", rows, columns, run_of(rows.size, columns.size), scaled, np.float32(unit), ahead, *sides
        )
    return True


def _reach(factor: float) -> float:
    """Return the `reach` for Gaussian sums. It follows from the distance at which terms decay.

    So rows have the same halves in every call.
    """
    return 4 / math.sqrt(factor)


class Doubtful:
    """A list, on the device, of the pairs that one product does not decide."""

    def __init__(self, call: Products) -> None:
        self._room = min(affordable(8 * LIST_PAIRS) // 8, max(GROUP, int(call.m * call.k * MAX_DOUBTFUL)))
        self._pairs = cp.empty((self._room, 2), dtype=np.int32)
        self._count = cp.zeros(1, dtype=np.int64)

    def start(self) -> tuple[Any, ...]:
        """Empty the list, and return the arguments for a kernel that appends to it."""
        self._count.fill(0)
        return self._pairs, self._count, np.int64(self._room)

    def decide(self, name: str, x: Array, y: Array, *arguments: Any) -> None:
        """Decide the listed pairs with a kernel of listed_pairs.cu."""
        kernel = compiled("pairs/products/listed_pairs.cu", "float32").get_function(name)
        kernel((8 * multiprocessors(),), (128,), (x, y, np.int32(x.shape[1]), self._pairs, self._count, *arguments))

    def filter(
        self, call: Products, find: Callable[[Packed, Packed], None], decide: Callable[[Packed, Packed], None]
    ) -> bool:
        """List and decide pairs piece by piece, with fewer columns if the list is too short.

        Returns False if so many pairs are doubtful that direct differences of all pairs are faster.
        """
        for rows, every in call.pieces():
            left = [every]
            while left:
                columns = left.pop(0)
                find(rows, columns)
                if (found := int(self._count[0])) <= self._room:
                    decide(rows, columns)
                    continue
                if found > MAX_DOUBTFUL * rows.size * columns.size or columns.size <= GROUP:
                    return False
                step = max(GROUP, columns.size * self._room // (2 * found) // GROUP * GROUP)
                starts = range(columns.start, stop := columns.start + columns.size, step)
                left[:0] = [call.columns(start, min(step, stop - start)) for start in starts]
        return True


def pair_histogram(
    x: Array, y: Array, *, norm: str, diagonal: bool, low: int, width: int, shift: int, out: Array
) -> bool:
    """Do the work of `PairKernels.pair_histogram`; the bracket is [low, low + width), as bits."""
    if x.dtype != np.float32:
        return False
    ends = np.array([low, low + width], dtype=np.int32).view(np.float32)
    return _classify(x, y, norm, ends, out, diagonal, "histogram", np.int32(low), np.uint32(width), np.int32(shift))


def count_within(x: Array, y: Array, *, norm: str, threshold: float, out: Array) -> bool:
    """Do the work of `PairKernels.count_within`."""
    return _classify(x, y, norm, np.full(2, threshold, dtype=np.float32), out, False, "count", np.float32(threshold))


def _classify(
    x: Array, y: Array, norm: str, ends: np.ndarray, out: Array, diagonal: bool, name: str, *arguments: Any
) -> bool:
    """Count the pairs that are surely below the first end, and list pairs that may lie between both ends.

    The kernel `name` of listed_pairs.cu decides the listed pairs.
    """
    if not pay(x.dtype, len(x), len(y), x.shape[1], norm) or not (call := Products(x, y)).fits:
        return False
    low, high = call.scaled(float(ends[0]) * (2.0 - call.wide)), call.scaled(float(ends[1]) * call.wide)
    if not np.isfinite(high):
        return False
    doubtful, total, sure = Doubtful(call), cp.zeros_like(out), cp.zeros_like(out)
    by_row = name == "count"

    def find(rows: Packed, columns: Packed) -> None:
        sure.fill(0)
        # If each pair would count twice, pairs whose column comes before their row are skipped.
        ahead = np.int32((columns.start - rows.start) // ROWS if diagonal else AHEAD_OF_ALL)
        run = run_of(rows.size, columns.size)
        to = sure[rows.start :] if by_row else sure
        call.launch("classify", rows, columns, run, low, high, ahead, np.bool_(by_row), to, *doubtful.start())

    def decide(rows: Packed, columns: Packed) -> None:
        nonlocal total
        total += sure
        to = total[rows.start :] if by_row else total
        doubtful.decide(name, x[rows.start :], y[columns.start :], *arguments, to)

    if not doubtful.filter(call, find, decide):
        return False
    out += total
    return True


def border(x: Array, y: Array, x_labels: Array, y_labels: Array, *, norm: str, threshold: float, out: Array) -> bool:
    """Do the work of `PairKernels.border`."""
    if not pay(x.dtype, len(x), len(y), x.shape[1], norm) or not (call := Products(x, y)).fits:
        return False
    limit = np.float32(threshold)
    low, high = call.scaled(float(limit) * (2.0 - call.wide)), call.scaled(float(limit) * call.wide)
    if not np.isfinite(high):
        return False
    mine, theirs = x_labels.astype(np.int32), y_labels.astype(np.int32)
    doubtful = Doubtful(call)

    def find(rows: Packed, columns: Packed) -> None:
        labels = mine[rows.start :], theirs[columns.start :]
        run, to = run_of(rows.size, columns.size), out[rows.start :]
        call.launch("border", rows, columns, run, low, high, *labels, to, *doubtful.start())

    def decide(rows: Packed, columns: Packed) -> None:
        doubtful.decide("border", x[rows.start :], y[columns.start :], limit, out[rows.start :])

    return doubtful.filter(call, find, decide)


def nearest_higher(
    x: Array, y: Array, x_order: Array, y_order: Array, *, norm: str, y_start: int, best: Array, best_index: Array
) -> bool:
    """Do the work of `PairKernels.nearest_higher`.

    Rows and columns are sorted by density, so that half of the tiles hold no column of higher density.
    """
    if not pay(x.dtype, len(x), len(y), x.shape[1], norm):
        return False
    x_which, y_which = cp.argsort(x_order), cp.argsort(y_order)
    call = Products(x, y, x_which, y_which)
    if not call.fits:
        return False
    x_sorted, y_sorted = x_order[x_which], y_order[y_which]
    limits = (best[x_which] * np.float32(call.scale) * np.float32(call.scale) * np.float32(call.wide)).view(np.int32)
    found = cp.full(len(x), 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
    doubtful = Doubtful(call)

    def find(rows: Packed, columns: Packed) -> None:
        call.launch(
            "nearest", rows, columns, NEAREST_RUN, np.float32(call.wide), x_sorted[rows.start :],
            y_sorted[columns.start :], limits[rows.start :], *doubtful.start(),
        )  # fmt: skip

    def decide(rows: Packed, columns: Packed) -> None:
        doubtful.decide("nearest", x, y, x_which[rows.start :], y_which[columns.start :], found)

    if not doubtful.filter(call, find, decide):
        return False
    kernel = compiled("pairs/products/listed_pairs.cu", "float32").get_function("take_nearest")
    kernel((-(-len(x) // 256),), (256,), (found, np.int32(len(x)), np.int64(y_start), best, best_index))
    return True


def nearest_rows(x: Array, y: Array, *, norm: str, y_start: int, near: Array, near_index: Array, rows: Array) -> bool:
    """Do the work of `PairKernels.nearest_rows`."""
    count = near.shape[1]
    runs = min(MAX_MINIMA // MINIMA, max(8, -(-4 * (count + 1) // MINIMA)))
    room = room_of(count, SPARE_COLUMNS)
    if not pay(x.dtype, len(x), len(y), x.shape[1], norm) or room < count + 1 or len(y) < 4 * ROWS * runs:
        return False
    if not (call := Products(x, y)).fits:
        return False
    call.most = min(call.most, max(GROUP, rows_at_once(room, MINIMA * runs) // GROUP * GROUP))
    for own, columns in call.pieces():
        mine = slice(own.start, own.start + own.size)
        selection = Selection(x[mine], near[mine], near_index[mine], rows[mine], room, norm)
        selection.limits *= np.float32(call.scale) * np.float32(call.scale) * np.float32(call.wide)
        run = -(-columns.size // (ROWS * runs))
        minima = cp.empty((own.size, MINIMA * -(-columns.size // (ROWS * run))), dtype=np.float32)
        call.launch("minima", own, columns, run, minima)
        selection.bound(minima, call.wide)
        lists = selection.limits, selection.listed, selection.counts, selection.room
        call.launch("collect", own, columns, run_of(own.size, columns.size), *lists)
        these = y[columns.start : columns.start + columns.size]
        selection.take(these, y_start + columns.start)
    return True
