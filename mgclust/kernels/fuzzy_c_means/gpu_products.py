"""Launches of ``products.cu``: the sums of fuzzy c-means with many centres, by products of split halves.

These kernels are used for m = 2 and float32 rows with 33 to 128 features on compute capability 9.0. The choice depends
only on the data, because the sums are not bitwise identical to sums by direct differences. Pieces of rows for which
products are not suitable are marked; their sums are computed by direct differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.memory.gpu import start_to_host
from mgclust.kernels.pairs.products import gpu_products as pairs
from mgclust.kernels.toolkit.gpu_compiler import Module, compiled_for_hopper, is_hopper, multiprocessors

__all__ = ["PIECE_ROWS", "PackedCenters", "PackedRows", "bytes_of_piece", "module", "supports"]

Array = Any
ROWS = pairs.ROWS  # rows per tile
PIECE = 8  # tiles per piece, whose sums are in float32; equals PIECE in products.cu
PIECE_ROWS = PIECE * ROWS
FEWEST_FEATURES, MAX_FEATURES = 33, 128  # packed rows have 128
BYTES_OF_ROW = MAX_FEATURES * 4  # bytes of a packed row
SHARE = 1 / 32  # direct differences compute the distances of near pairs: s <= SHARE * (|x|^2 + |v|^2)
# Up to this number of near pairs per row, or this fraction of all pairs, computing their distances one by one is faster
# than marking the piece.
NEAR_OF_ROW, NEAR_SHARE = 4, 1 / 128
WARP_ROWS = 16
WAVES = 16  # blocks per multiprocessor


def supports(dtype: Any, d: int, power: int) -> bool:
    """Return whether these kernels support the rows, given that there are more centres than one block holds."""
    return not power and dtype == np.float32 and FEWEST_FEATURES <= d <= MAX_FEATURES and is_hopper()


def module() -> Module:
    """Return the kernels."""
    return compiled_for_hopper("fuzzy_c_means/products.cu")


def bytes_of_piece() -> int:
    """Return the number of bytes that a piece of packed rows takes."""
    return PIECE_ROWS * (BYTES_OF_ROW + 8 + 16)


def _pack(x: Array) -> tuple[Array, Array, Array]:
    """Return the rows, their tiles of halves, and their squared lengths and powers of two."""
    k, d = x.shape
    padded = -(-k // ROWS) * ROWS
    tiles, geometry = cp.empty(padded * BYTES_OF_ROW, np.uint8), cp.empty((padded, 2), np.float32)
    module().get_function("pack")((padded // 16,), (256,), (x, np.int32(k), np.int32(d), tiles, geometry))
    return x, tiles, geometry


class PackedCenters:
    """Packed centres of one model.

    Parameters
    ----------
    centers : float32 array of shape (c, d)
    """

    def __init__(self, centers: Array) -> None:
        self.count, self.packed = len(centers), _pack(cp.ascontiguousarray(centers))


class PackedRows:
    """Packed rows.

    Parameters
    ----------
    x : float32 array of shape (k, d)
    weights : float32 array of shape (k,), optional
    """

    def __init__(self, x: Array, weights: Array | None) -> None:
        self._k, self._d = x.shape
        self._packed = _pack(x)
        self._weights = weights

    def sums(self, centers: PackedCenters, partial: Array) -> Callable[[], list[range]]:
        """Write the sums of pieces of PIECE_ROWS rows to the rows of `partial`, in the layout of `fuzzy_sums`.

        Returns
        -------
        callable
            Waits until the marked pieces are known, and returns runs of them. The caller then has to write the sums of
            these pieces.
        """
        tiles, c_tiles = -(-self._k // ROWS), -(-centers.count // ROWS)
        pieces = -(-tiles // PIECE)
        of_rows, marked = cp.empty((tiles * ROWS, 4), np.float32), cp.zeros(pieces, np.uint8)
        sizes = np.int32(self._k), np.int32(centers.count), np.int32(self._d)
        sides = (*self._packed, sizes[0], *centers.packed, *sizes[1:], np.float32(SHARE))
        near = np.int32(WARP_ROWS * max(NEAR_OF_ROW, int(NEAR_SHARE * centers.count)))
        weights = np.uint64(0) if self._weights is None else self._weights

        run = max(1, tiles // (WAVES // 2 * multiprocessors()))
        _start("totals", (-(-tiles // run),), sides, near, np.int32(run), weights, of_rows, marked)
        told = start_to_host(marked)
        known = cp.cuda.Event(disable_timing=True)
        known.record()

        run = max(1, pieces * c_tiles // (WAVES * multiprocessors()))
        stride, entropies = np.int64(partial.strides[0] // 4), cp.empty((pieces, c_tiles, 8), np.float32)
        grid, of_pieces = (c_tiles, -(-pieces // run)), (stride, partial, entropies)
        _start("sums", grid, sides, np.int32(run), of_rows, marked, *of_pieces)
        module().get_function("scores")((pieces,), (32,), (*sizes, of_rows, entropies, stride, partial))

        def wait() -> list[range]:
            known.synchronize()
            edges = np.flatnonzero(np.diff(told, prepend=0, append=0))
            return [range(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]

        return wait


def _start(name: str, grid: tuple[int, ...], sides: tuple[Any, ...], *arguments: Any) -> None:
    kernel = module().get_function(name)
    kernel.max_dynamic_shared_size_bytes = pairs.SHARED_BYTES
    kernel(grid, (pairs.THREADS,), (*sides, *arguments), shared_mem=pairs.SHARED_BYTES)
