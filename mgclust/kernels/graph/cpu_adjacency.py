"""Functions that graph kernels share on the CPU: division of rows among threads, weights, and sums by key of one row.

Each task computes sums by key in a small hash table. The size of the table depends on the longest row, not on the
graph. So the table stays in the nearest cache, and many threads need little memory. Weights and their sums are
integers, so the result depends neither on the order of the entries nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.base.hashing import splitmix64
from mgclust.kernels.graph.adjacency import Adjacency, Gain
from mgclust.kernels.toolkit.cpu_compiler import inlined
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

__all__ = [
    "EMPTY",
    "clear_others",
    "each_part",
    "empty_table",
    "factors",
    "longest_row",
    "mix",
    "parts_of",
    "score",
    "slot_of",
    "table_bits",
    "unsigned",
    "weight_of",
    "weights_or_none",
]

Array = Any
EMPTY = -1
ALONE = 1 << 16  # one thread reads up to this number of entries before another thread has started
PART = 1 << 14  # minimum number of entries per task
FINEST = 3  # log2 of the size of the smallest table
NO_WEIGHTS = np.empty(0, np.int32)


def parts_of(starts: Array) -> list[int]:
    """Return the bounds of parts with about the same number of entries; one part if several threads save no time."""
    rows, entries = len(starts) - 1, int(starts[-1] - starts[0])
    threads = thread_count() if entries > ALONE else 1
    if threads == 1:
        return [0, rows]
    count = min(8 * threads, entries // PART)
    inner = np.searchsorted(starts, starts[0] + entries * np.arange(1, count) // count)
    return [0, *inner.tolist(), rows]


def in_one_part(rows: Adjacency) -> bool:
    """Return whether one thread processes all rows."""
    parts = rows.plan.get("parts")
    if parts is None:
        parts = rows.plan["parts"] = parts_of(rows.starts)
    return len(parts) == 2


def each_part(rows: Adjacency, body: Callable[[int, int], None]) -> None:
    """Call ``body(start, stop)`` for ranges of the rows, in several threads if these save time."""
    if in_one_part(rows):
        body(0, rows.rows)
    else:
        parts = rows.plan["parts"]
        run_tasks(len(parts) - 1, lambda index, _: body(parts[index], parts[index + 1]))


def longest_row(rows: Adjacency) -> int:
    """Return the number of entries of the longest row, at least 1."""
    longest = rows.plan.get("longest")
    if longest is None:
        longest = rows.plan["longest"] = np.diff(rows.starts).max(initial=1)
    return int(longest)


def weights_or_none(weights: Array | None) -> Array:
    """Return weights for `weight_of`; it reads an empty array as ones, so that one compiled kernel is enough."""
    return NO_WEIGHTS if weights is None else weights


def empty_table(keys: int) -> tuple[Array, Array]:
    """Return an empty hash table for sums by up to `keys` keys: its keys and its sums; see `table_bits`."""
    size = 1 << max(FINEST, (2 * keys - 1).bit_length())
    return np.full(size, EMPTY, np.int32), np.zeros(size, np.int64)


def factors(gain: Gain) -> tuple[float, float]:
    """Return the constants of `score`, which computes with integers if these are integers, else in float64."""
    return (gain.two_m, 1) if gain.exact else (float(gain.two_m), float(gain.resolution))


def clear_others(rows: Adjacency, out: Array) -> None:
    """Set the elements of nodes that this rank does not own to -1."""
    if rows.rows < len(out):
        out[: rows.first] = -1
        out[rows.first + rows.rows :] = -1


@inlined
def unsigned(index: Any) -> Any:
    """Return a nonnegative index as unsigned, so that Numba does not test for negative indices."""
    return np.uint32(index)


@inlined
def weight_of(weights: Any, entry: int) -> Any:
    """Return the weight of an entry."""
    return np.int64(weights[entry]) if len(weights) else np.int64(1)


@inlined
def score(two_m: Any, factor: Any, weight: Any, d: Any, e: Any) -> Any:
    """Return the gain of a merge in the type of two_m, int64 or float64, without fused operations."""
    kind = type(two_m)
    return two_m * kind(weight) - factor * (kind(d) * kind(e))


mix = inlined(splitmix64)


@inlined
def table_bits(keys: int) -> int:
    """Return log2 of the size of a table that is at most half full with `keys` keys."""
    bits = FINEST
    while (1 << bits) < 2 * keys:
        bits += 1
    return bits


@inlined
def slot_of(keys: Any, bits: int, key: Any) -> Any:
    """Return the slot that holds a key, or the empty slot where it belongs."""
    mask = (1 << bits) - 1
    slot = (np.int64(key) * 2654435769 & 0xFFFFFFFF) >> (32 - bits)
    while keys[slot] != key and keys[slot] != EMPTY:
        slot = (slot + 1) & mask
    return slot
