"""Histogram of stored values, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.toolkit.cpu_compiler import compiled
from mgclust.kernels.toolkit.simd import WIDTH, add_to, first_lane, lanes_of, load, store
from mgclust.kernels.toolkit.simd_steps import integers_below, lanes_above, ordered_keys
from mgclust.kernels.toolkit.threads import rows_of_a_task, run_tasks

__all__ = ["merge", "value_histogram"]

Array = Any


def value_histogram(values: Array, *, n: int, low: int, shift: int, out: Array) -> None:
    limits = np.iinfo(f"i{values.itemsize}")
    bottom = min(max(low, int(limits.min)), int(limits.max))
    high = min(max(low + ((len(out) - 1) << shift), int(limits.min)), int(limits.max))
    flat, rows, width = values.reshape(-1), rows_of_a_task(n), values.shape[1]

    def task(index: int, _: int) -> None:
        start, stop = index * rows, min((index + 1) * rows, len(values))
        counts, keys, tail = np.zeros(len(out), np.int64), np.empty(WIDTH, limits.dtype), np.empty(WIDTH, values.dtype)
        count_keys(flat, width, start, stop, n, bottom, high, low, shift, keys, tail, counts)
        merge(counts, out)

    run_tasks(-(-len(values) // rows), task)


@compiled
def merge(counts: Any, out: Any) -> None:
    """Add one task's counts to the counts of all tasks."""
    for b in range(len(counts)):
        if counts[b]:
            add_to(out, b, counts[b])


@compiled
def count_keys(
    values: Any,
    width: int,
    start: int,
    stop: int,
    n: int,
    bottom: int,
    high: int,
    low: int,
    shift: int,
    keys: Any,
    tail: Any,
    out: Any,
) -> None:
    """Count the keys of rows start..stop-1: keys below `bottom` in out[0], other keys below `high` in their bins."""
    below = 0
    for i in range(start, stop):
        for k in range(0, n, WIDTH):
            lanes = min(WIDTH, n - k)
            at = i * width + k
            if lanes == WIDTH:
                v = load(values, at)
            else:
                tail[:] = -np.inf
                for lane in range(lanes):
                    tail[lane] = values[at + lane]
                v = load(tail, 0)
            key = ordered_keys(v)
            valid = lanes_above(v, values.dtype.type(-np.inf))
            less = integers_below(key, bottom) & valid
            within = (integers_below(key, high) & valid) & ~less
            below += lanes_of(less)
            if within:
                store(keys, 0, key)
            while within:
                difference = np.uint64(keys[first_lane(within)]) - np.uint64(low)
                out[1 + np.int64(difference >> np.uint64(shift))] += 1
                within &= within - 1
    out[0] += below
