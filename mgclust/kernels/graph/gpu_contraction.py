"""Sorted adjacency rows from any list of pairs, on a CUDA device (``communities.cu`` and CuPy's sort)."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.base.errors import InsufficientMemoryError
from mgclust.kernels.graph.adjacency import Adjacency
from mgclust.kernels.graph.gpu_adjacency import THREADS, bins, by_rows, functions, whole
from mgclust.kernels.toolkit.gpu_compiler import multiprocessors, or_null

__all__ = ["contract", "keys_of_groups", "keys_of_pairs", "sum_keys", "sum_pairs", "to_rows", "weight_bits"]

Array = Any
MAX_ENTRIES = 2**31 - 1
KEY_BITS = 63


def sum_pairs(row: Array, column: Array, weight: Array | None, *, count: int) -> tuple[Array, Array, Array | None]:
    largest = int(weight.max()) if weight is not None and len(weight) else 1
    keys, bits = keys_of_pairs(row, column, weight, count, largest)
    return sum_keys(keys, weight, count, bits, None if weight is None else weight.dtype)


def contract(rows: Adjacency, ids: Array, *, count: int) -> Adjacency:
    keys, bits = keys_of_groups(rows, ids, count, bins(rows).largest)
    kind = None if rows.weights is None else rows.weights.dtype
    row, column, weight = sum_keys(keys, rows.weights, count, bits, kind)
    weight = cp.ones(len(row), cp.int32) if weight is None else weight
    return to_rows(row, column, weight, first=0, stop=count)


def to_rows(row: Array, column: Array, weight: Array | None, *, first: int, stop: int) -> Adjacency:
    starts = cp.empty(stop - first + 1, cp.int64)
    whole("row_starts", stop - first + 1, row, np.int32(first), np.int32(stop - first), starts, size=len(row))
    return Adjacency(first, starts, column, weight)


def sum_keys(
    keys: Array, weight: Array | None, count: int, bits: int, kind: np.dtype | None
) -> tuple[Array, Array, Array | None]:
    m = len(keys)
    if m > MAX_ENTRIES:
        raise InsufficientMemoryError(
            f"The number of neighbours on one GPU, {m}, should be <= {MAX_ENTRIES}: spread the graph over more GPUs."
        )
    if not m:
        none = cp.empty(0, cp.int32)
        return none, none.copy(), None if kind is None else cp.empty(0, kind)
    order = None
    if kind is not None and not bits:  # the keys have no bits left for the weights
        order = cp.argsort(keys)
        keys = keys[order]
    else:
        keys.sort()
    heads, counts = cp.empty(m, cp.int32), cp.zeros(2, cp.int64)
    _module(None)("pair_heads", m, keys, np.int32(bits), heads, counts)
    slot = cp.cumsum(heads, dtype=cp.int32)
    kept, pairs = counts.tolist()
    row, column = cp.empty(pairs, cp.int32), cp.empty(pairs, cp.int32)
    needed = kind is not None or kept != pairs
    sums = cp.zeros(pairs, kind or cp.int32) if needed else None
    arguments = (keys, np.int32(bits), slot, or_null(weight), or_null(order), np.int64(count))
    _module(kind)("pair_sums", m, *arguments, row, column, or_null(sums))
    return row, column, sums


def keys_of_pairs(row: Array, column: Array, weight: Array | None, count: int, largest: int) -> tuple[Array, int]:
    """Return a key for each pair, and the number of its bits that hold the weight."""
    bits = 0 if weight is None else weight_bits(count, largest)
    keys = cp.empty(len(row), cp.int64)
    kind = None if weight is None else weight.dtype
    _module(kind)("keys_of_pairs", len(row), row, column, or_null(weight), np.int64(count), np.int32(bits), keys)
    return keys, bits


def keys_of_groups(rows: Adjacency, ids: Array, count: int, largest: int) -> tuple[Array, int]:
    """Return a key for each entry, from the groups of its ends, and the number of its bits that hold the weight."""
    kind = None if rows.weights is None else rows.weights.dtype
    keys = cp.empty(rows.entries, cp.int64)
    bits = 0 if kind is None else weight_bits(count, largest)
    by_rows(rows, "keys", ids, np.int64(count), np.int32(bits), keys)
    return keys, bits


def weight_bits(count: int, largest: int) -> int:
    """Return the number of bits for the weight, which follows the pair in a key of 63 bits; 0 if it does not fit."""
    bits = largest.bit_length()
    return bits if (count * count).bit_length() + bits < KEY_BITS else 0


def _module(kind: np.dtype | None) -> Any:
    """Return a function that launches kernels for weights of type `kind` over all elements."""

    def launch(name: str, items: int, *arguments: Any) -> None:
        if items:
            grid = (min(-(-items // THREADS), 64 * multiprocessors()),)
            functions(kind).get_function(name)(grid, (THREADS,), (np.int64(items), *arguments))

    return launch
