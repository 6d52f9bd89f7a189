"""Sorted adjacency rows from any list of pairs, on a CUDA device (``communities.cu`` around a library's sort)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from mgclust.errors import InsufficientMemoryError
from mgclust.kernels.graph.adjacency import Adjacency
from mgclust.kernels.toolkit.gpu_compiler import compiled, multiprocessors, or_null

__all__ = ["Bins", "bins", "contract", "contract_parts", "pair_parts", "sum_pairs", "sum_parts", "to_rows", "whole"]

Array = Any
THREADS = 256
BLOCK = 512  # threads for a long row
SHORT_ROW, LONG_ROW = 64, 1024  # as in communities.cu
MOST_ENTRIES = 2**31 - 1
KEY_BITS = 63


class Bins(NamedTuple):
    """Rows by their length."""

    medium: Array
    longer: Array
    longest: int
    largest: int  # weight


def sum_pairs(row: Array, column: Array, weight: Array | None, *, count: int) -> tuple[Array, Array, Array | None]:
    largest = int(weight.max()) if weight is not None and len(weight) else 1
    keys, bits = _keys_of_pairs(row, column, weight, count, largest)
    return _sum_keys(keys, weight, count, bits, None if weight is None else weight.dtype)


def contract(rows: Adjacency, ids: Array, *, count: int) -> tuple[Array, Array, Array | None]:
    keys, bits = _keys_of_groups(rows, ids, count, bins(rows).largest)
    kind = None if rows.weights is None else rows.weights.dtype
    row, column, weight = _sum_keys(keys, rows.weights, count, bits, kind)
    return row, column, cp.ones(len(row), cp.int32) if weight is None else weight


def pair_parts(
    row: Array, column: Array, weight: Array | None, *, count: int, bounds: Sequence[int], largest: int
) -> list[Array]:
    if largest and weight is None:
        weight = cp.ones(len(row), cp.int32)
    keys, bits = _keys_of_pairs(row, column, weight, count, largest)
    return _cut(keys, weight, bits, count, bounds)


def contract_parts(rows: Adjacency, ids: Array, *, count: int, bounds: Sequence[int], largest: int) -> list[Array]:
    keys, bits = _keys_of_groups(rows, ids, count, largest)
    return _cut(keys, rows.weights, bits, count, bounds)


def sum_parts(parts: Array, *, count: int, largest: int, kind: np.dtype | None) -> tuple[Array, Array, Array | None]:
    if parts.ndim == 2:
        return _sum_keys(cp.ascontiguousarray(parts[:, 0]), parts[:, 1].astype(kind), count, 0, kind)
    return _sum_keys(parts, None, count, 0 if kind is None else _weight_bits(count, largest), kind)


def to_rows(row: Array, column: Array, weight: Array | None, *, first: int, stop: int) -> Adjacency:
    starts = cp.empty(stop - first + 1, cp.int64)
    whole("row_starts", stop - first + 1, row, np.int32(first), np.int32(stop - first), starts, size=len(row))
    return Adjacency(first, starts, column, weight)


def bins(rows: Adjacency) -> Bins:
    """Sort rows by their length, once."""
    if "bins" not in rows.plan:
        kind = None if rows.weights is None else rows.weights.dtype
        medium, longer = (cp.empty(rows.entries // length, cp.int32) for length in (SHORT_ROW, LONG_ROW))
        counts = cp.zeros(4, cp.int64)
        if rows.entries:
            weights = np.uint64(0) if kind is None else rows.weights
            own = (np.int32(rows.first), np.int32(rows.rows), rows.starts, rows.columns, weights)
            items = max(rows.rows, rows.entries if kind is not None else 0)
            grid = (max(1, min(-(-items // THREADS), 16 * multiprocessors())),)
            _functions(kind).get_function("bin_rows")(grid, (THREADS,), (*own, medium, longer, counts))
        n_medium, n_longer, longest, largest = counts.tolist()
        rows.plan["bins"] = Bins(medium[:n_medium], longer[:n_longer], longest, max(1, largest))
    return rows.plan["bins"]


def whole(name: str, items: int, *arguments: Any, size: int | None = None) -> None:
    """Launch a kernel over all elements of arrays; its first argument is their number."""
    if not items:
        return
    grid = (min(-(-items // THREADS), 64 * multiprocessors()),)
    _functions(None).get_function(name)(grid, (THREADS,), (np.int64(items if size is None else size), *arguments))


def _sum_keys(
    keys: Array, weight: Array | None, count: int, bits: int, kind: np.dtype | None
) -> tuple[Array, Array, Array | None]:
    m = len(keys)
    if m > MOST_ENTRIES:
        raise InsufficientMemoryError(
            f"{m} neighbours on one GPU should be <= {MOST_ENTRIES}: spread the graph over more GPUs."
        )
    if not m:
        none = cp.empty(0, cp.int32)
        return none, none.copy(), None if kind is None else cp.empty(0, kind)
    order = None
    if kind is not None and not bits:  # weights too large to travel within the keys
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


def _keys_of_pairs(row: Array, column: Array, weight: Array | None, count: int, largest: int) -> tuple[Array, int]:
    """A key for each pair, and how many of its bits hold the weight."""
    bits = 0 if weight is None else _weight_bits(count, largest)
    keys = cp.empty(len(row), cp.int64)
    kind = None if weight is None else weight.dtype
    _module(kind)("keys_of_pairs", len(row), row, column, or_null(weight), np.int64(count), np.int32(bits), keys)
    return keys, bits


def _keys_of_groups(rows: Adjacency, ids: Array, count: int, largest: int) -> tuple[Array, int]:
    """A key for each entry, by the groups of its ends."""
    kind = None if rows.weights is None else rows.weights.dtype
    keys = cp.empty(rows.entries, cp.int64)
    bits = 0 if kind is None else _weight_bits(count, largest)
    if rows.entries:
        own = (np.int32(rows.first), np.int32(rows.rows), rows.starts, rows.columns, or_null(rows.weights))
        arguments = (ids, np.int64(count), np.int32(bits), keys)
        grid = (max(1, min(-(-rows.rows // THREADS), 16 * multiprocessors())),)
        _functions(kind).get_function("keys_short")(grid, (THREADS,), (*own, *arguments))
        longer = bins(rows).longer
        if len(longer):
            grid = (min(len(longer), 4 * multiprocessors()),)
            listed = (longer, np.int32(len(longer)))
            _functions(kind).get_function("keys_long")(grid, (BLOCK,), (*own, *listed, *arguments))
    return keys, bits


def _cut(keys: Array, weight: Array | None, bits: int, count: int, bounds: Sequence[int]) -> list[Array]:
    """Keys by the range that each rank owns, without the dropped ones; weights beside those that hold none."""
    beside = weight is not None and not bits
    kind = weight.dtype if weight is not None and beside else None
    owners = len(bounds) - 1
    limits = cp.asarray(np.array([(stop * count) << bits for stop in bounds[1:]], np.int64))
    counts = cp.zeros(owners, cp.int64)
    grid = (max(1, min(-(-len(keys) // (8 * THREADS)), 16 * multiprocessors())),)
    which = (np.int64(len(keys)), keys)
    _functions(None).get_function("count_parts")(
        grid, (THREADS,), (*which, limits, np.int32(owners), counts), shared_mem=4 * owners
    )
    stops = np.cumsum(cp.asnumpy(counts))
    after = cp.asarray(stops) - counts
    parts = cp.empty((int(stops[-1]), 2) if beside else int(stops[-1]), cp.int64)
    _functions(kind).get_function("place_parts")(
        grid,
        (THREADS,),
        (*which, or_null(weight if beside else None), limits, np.int32(owners), after, parts),
        shared_mem=12 * owners,
    )
    return [parts[start:stop] for start, stop in pairwise([0, *stops.tolist()])]


def _weight_bits(count: int, largest: int) -> int:
    """Bits for weights behind the pairs in a key of 63; 0 where there is no room."""
    bits = largest.bit_length()
    return bits if (count * count).bit_length() + bits < KEY_BITS else 0


def _functions(kind: np.dtype | None) -> Any:
    return compiled("graph/communities.cu", "float64", WEIGHT=0 if kind is None else 8 * kind.itemsize, EXACT=1)


def _module(kind: np.dtype | None) -> Any:
    """Launch a kernel of the weights' type over all elements."""

    def launch(name: str, items: int, *arguments: Any) -> None:
        if items:
            grid = (min(-(-items // THREADS), 64 * multiprocessors()),)
            _functions(kind).get_function(name)(grid, (THREADS,), (np.int64(items), *arguments))

    return launch
