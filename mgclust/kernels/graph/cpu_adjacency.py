"""Functions that graph kernels share on the CPU: division of rows among threads, weights, and sums by key of one row.

Each thread sums the weights of a row by key, a number below n, in the lists ``found`` (keys) and ``sums``. A table of
places tells whether a key is in the list: ``places[key]`` is its position in the list, plus a number that is above all
places of earlier rows. So the table need not be emptied after a row. Larger graphs have a hash table of `MOST_PLACES`,
so that many threads need little memory. Weights and their sums are integers, so the result depends neither on the
order of the entries nor on the number of threads.
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
    "add_weight",
    "clear_others",
    "degree",
    "each_part",
    "factors",
    "first_place",
    "in_one_part",
    "longest_row",
    "mix",
    "new_places",
    "parts_of",
    "score",
    "unsigned",
    "weight_of",
    "weights_or_none",
]

Array = Any
ALONE = 1 << 16  # one thread reads up to this number of entries before another thread has started
PART = 1 << 14  # minimum number of entries per task
MOST_PLACES = 1 << 14  # places of a table, unless a row has more than half as many entries
LAST_PLACE = 2**31 - 1
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


def new_places(n: int, longest: int) -> Array:
    """Return a table for `add_weight`: places of keys below n, for rows of at most `longest` entries.

    Its last element is the place of the next row's first key.
    """
    size = 1 << (max(min(n, MOST_PLACES), 2 * longest) - 1).bit_length()
    places = np.zeros(size + 1, np.int32)
    places[size] = 1
    return places


def factors(gain: Gain) -> tuple[float, tuple[float, bool]]:
    """Return the constants of `score`, which computes with integers if these are integers, else in float64."""
    two_m, resolution = (gain.two_m, 1) if gain.exact else (float(gain.two_m), float(gain.resolution))
    return two_m, (resolution, gain.directed)


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
    resolution, directed = factor
    if directed:
        return two_m * kind(weight) - resolution * kind(crossed(d, e))
    return two_m * kind(weight) - resolution * (kind(d) * kind(e))


@inlined
def crossed(d: Any, e: Any) -> Any:
    """Return 2 (out_d in_e + in_d out_e) for strengths with directions."""
    return 2 * ((d >> 32) * (e & 0xFFFFFFFF) + (d & 0xFFFFFFFF) * (e >> 32))


@inlined
def degree(factor: Any, d: Any) -> Any:
    """Return a strength without directions."""
    return (d >> 32) + (d & 0xFFFFFFFF) if factor[1] else d


mix = inlined(splitmix64)


@inlined
def first_place(places: Any, entries: int) -> Any:
    """Return the place of the first key of a row with a number of entries; empty the table if numbers have run out."""
    size = len(places) - 1
    if places[size] > LAST_PLACE - entries:
        for i in range(size):
            places[i] = 0
        places[size] = 1
    return np.int64(places[size])


@inlined
def add_weight(key: Any, weight: Any, places: Any, first: Any, found: Any, sums: Any, start: Any, count: Any) -> Any:
    """Add a weight to the sum of its key, one of `count` keys in `found` and `sums` from `start` on; return the count.

    After a row, the caller adds the count to the last element of `places`.
    """
    mask = len(places) - 2
    slot = unsigned(key & mask)
    at = np.int64(places[slot]) - first
    while at >= 0 and found[np.uint64(start + at)] != key:  # the place of another key, in a table with fewer than n
        slot = unsigned((slot + 1) & mask)
        at = np.int64(places[slot]) - first
    if at >= 0:
        sums[np.uint64(start + at)] += weight
        return count
    places[slot] = first + count
    found[np.uint64(start + count)] = key
    sums[np.uint64(start + count)] = weight
    return count + 1
