"""All pairs by products: the inner loops of `mgclust.kernels.pairs.products.cpu_products`, which derives the bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.pairs.cpu_loops import (
    FULL,
    NO_COLUMN,
    ROWS,
    SUM_TILE,
    four_distances,
    keep_nearer,
    mark_own,
    swap_own,
    tally,
    valid_lanes,
)
from mgclust.kernels.toolkit.cpu_compiler import called, compiled, inlined
from mgclust.kernels.toolkit.simd import (
    WIDTH,
    add,
    broadcast,
    exp2_of,
    lanes_of,
    load,
    splat,
    store,
    total,
    values_below,
)
from mgclust.kernels.toolkit.simd_steps import exceeds, fma

__all__ = ["count", "gaussian", "histogram", "neighbors", "squared_lengths"]

GROUP = 8  # rows whose products with a panel stay in registers
CHAIN = 32  # features of a chain of multiply-adds
SPARE, SPARE_SHARE = 2, 8  # spare columns of a list: one per SPARE_SHARE requested columns, but at least SPARE
MAX_OPEN = 4  # if more than one in MAX_OPEN combinations of row and panel is open, direct differences do the rest


@compiled
def squared_lengths(x: Any, d: int, start: int, stop: int, out: Any) -> None:
    """Sum the squares of each row in float64; every fourth feature is added to the same partial sum."""
    for i in range(start, stop):
        row = x[i * d : (i + 1) * d]
        s0 = s1 = s2 = s3 = 0.0
        for k in range(0, d - 3, 4):
            s0 += np.float64(row[k]) * np.float64(row[k])
            s1 += np.float64(row[k + 1]) * np.float64(row[k + 1])
            s2 += np.float64(row[k + 2]) * np.float64(row[k + 2])
            s3 += np.float64(row[k + 3]) * np.float64(row[k + 3])
        for k in range(d - d % 4, d):
            s0 += np.float64(row[k]) * np.float64(row[k])
        out[i] = (s0 + s1) + (s2 + s3)


@inlined
def row_products(x: Any, i: int, last: int, d: int, panels: Any, p: int, out: Any) -> None:
    """Products of rows i..i+7 with a panel; row `last` is used instead of later rows.

    There is one chain per 32 features, because sums of few products are small, and so are their rounding errors.
    """
    a0, a1, a2, a3 = i * d, min(i + 1, last) * d, min(i + 2, last) * d, min(i + 3, last) * d
    a4, a5, a6, a7 = min(i + 4, last) * d, min(i + 5, last) * d, min(i + 6, last) * d, min(i + 7, last) * d
    base = p * d * WIDTH
    zero = splat(x.dtype.type(0))
    for first in range(0, d, CHAIN):
        s0, s1, s2, s3, s4, s5, s6, s7 = zero, zero, zero, zero, zero, zero, zero, zero
        for k in range(first, min(first + CHAIN, d)):
            y = load(panels, base + k * WIDTH)
            s0 = fma(broadcast(x, a0 + k), y, s0)
            s1 = fma(broadcast(x, a1 + k), y, s1)
            s2 = fma(broadcast(x, a2 + k), y, s2)
            s3 = fma(broadcast(x, a3 + k), y, s3)
            s4 = fma(broadcast(x, a4 + k), y, s4)
            s5 = fma(broadcast(x, a5 + k), y, s5)
            s6 = fma(broadcast(x, a6 + k), y, s6)
            s7 = fma(broadcast(x, a7 + k), y, s7)
        if first:
            s0, s1 = add(load(out, 0), s0), add(load(out, WIDTH), s1)
            s2, s3 = add(load(out, 2 * WIDTH), s2), add(load(out, 3 * WIDTH), s3)
            s4, s5 = add(load(out, 4 * WIDTH), s4), add(load(out, 5 * WIDTH), s5)
            s6, s7 = add(load(out, 6 * WIDTH), s6), add(load(out, 7 * WIDTH), s7)
        store(out, 0, s0)
        store(out, WIDTH, s1)
        store(out, 2 * WIDTH, s2)
        store(out, 3 * WIDTH, s3)
        store(out, 4 * WIDTH, s4)
        store(out, 5 * WIDTH, s5)
        store(out, 6 * WIDTH, s6)
        store(out, 7 * WIDTH, s7)


@inlined
def _lower_bound(dot: Any, p: int, i: int, rows: Any, columns: Any) -> Any:
    return fma(dot, splat(rows.dtype.type(-2)), add(load(columns, p * WIDTH), broadcast(rows, i)))


@inlined
def _begin_lists(begin: int, end: int, share: Any, near: Any, rough: Any, rough_index: Any) -> None:
    """Fill the rough lists with a bound: they then keep only columns that may be nearer than a row's last column."""
    for r in range(end - begin):
        for q in range(rough.shape[1]):
            rough[r, q] = near[begin + r, near.shape[1] - 1] / share
            rough_index[r, q] = -1


@inlined
def _row_distances(x: Any, y: Any, numbers: Any, first: int, last: int, number: int) -> Any:
    """Reduced distances of a row to four columns of a list, as four scalars; after `last`, its column is repeated."""
    d = x.size
    at = (numbers[first] - number) * d
    a = y[at : at + d]
    at = (numbers[min(first + 1, last)] - number) * d
    b = y[at : at + d]
    at = (numbers[min(first + 2, last)] - number) * d
    c = y[at : at + d]
    at = (numbers[min(first + 3, last)] - number) * d
    e = y[at : at + d]
    s0 = x.dtype.type(0)
    s1, s2, s3 = s0, s0, s0
    for k in range(d):
        s0 = fma(x[k] - a[k], x[k] - a[k], s0)
        s1 = fma(x[k] - b[k], x[k] - b[k], s1)
        s2 = fma(x[k] - c[k], x[k] - c[k], s2)
        s3 = fma(x[k] - e[k], x[k] - e[k], s3)
    return s0, s1, s2, s3


@inlined
def _insert(value: Any, number: int, near: Any, near_index: Any) -> None:
    """Insert a column into a list that is sorted by distance, and by number at equal distances."""
    q = near.size - 1
    if value < near[q] or (value == near[q] and number < near_index[q]):
        while q > 0 and (near[q - 1] > value or (near[q - 1] == value and near_index[q - 1] > number)):
            near[q], near_index[q] = near[q - 1], near_index[q - 1]
            q -= 1
        near[q], near_index[q] = value, number


@called
def _settle(
    x: Any, d: int, begin: int, end: int, y: Any, number: int, share: Any, rough: Any, rough_index: Any, near: Any,
    near_index: Any, doubtful: Any, merged: Any, merged_index: Any,
) -> None:  # fmt: skip
    """Insert the candidates of rows begin..end-1 into the rows' lists.

    If a column that is no candidate may belong in a list, the row is marked as doubtful, and its list does not change.
    """
    for i in range(begin, end):
        bounds, candidates = rough[i - begin], rough_index[i - begin]
        last = 0
        while last < candidates.size and candidates[last] >= 0:
            last += 1
        if not last:
            continue
        for q in range(merged.size):
            merged[q], merged_index[q] = near[i, q], near_index[i, q]
        for q in range(0, last, 4):
            s0, s1, s2, s3 = _row_distances(x[i * d : (i + 1) * d], y, candidates, q, last - 1, number)
            _insert(s0, candidates[q], merged, merged_index)
            if q + 1 < last:
                _insert(s1, candidates[q + 1], merged, merged_index)
            if q + 2 < last:
                _insert(s2, candidates[q + 2], merged, merged_index)
            if q + 3 < last:
                _insert(s3, candidates[q + 3], merged, merged_index)
        if last < candidates.size or merged[-1] < bounds[-1] * share:
            for q in range(merged.size):
                near[i, q], near_index[i, q] = merged[q], merged_index[q]
        else:
            doubtful[i] = 1


def room_for_lists(wanted: int, dtype: Any) -> tuple[Any, ...]:
    """Allocate the arrays for one call of `gaussian` or `neighbors` that keeps `wanted` columns per row."""
    kept = wanted + max(SPARE, wanted // SPARE_SHARE)
    rough = np.empty((ROWS, kept), dtype), np.empty((ROWS, kept), np.int64)
    return (np.empty(GROUP * WIDTH, dtype), *rough, np.empty(wanted, dtype), np.empty(wanted, np.int64))


def room_for_open(dtype: Any) -> tuple[Any, Any, Any]:
    """Allocate the arrays for one call of `count` or `histogram`."""
    return np.empty(GROUP * WIDTH, dtype), np.empty(ROWS, np.int64), np.empty(ROWS, np.int64)


@compiled
def gaussian(
    x: Any,
    d: int,
    start: int,
    stop: int,
    panels: Any,
    columns: int,
    factor: Any,
    out: Any,
    numbers: Any,
    number: int,
    scaled: Any,
    lower: Any,
    factor_of_bounds: float,
    y: Any,
    near: Any,
    near_index: Any,
    doubtful: Any,
    sums: Any,
    saved: Any,
    own: Any,
    dots: Any,
    rough: Any,
    rough_index: Any,
    merged: Any,
    merged_index: Any,
) -> None:
    """Add to out the sum of 2^(factor s), and keep each row's nearest columns of y, as `cpu_loops.gaussian` does.

    If products cannot decide a row's list, the row is marked as doubtful, and its list does not change.
    """
    row_numbers, column_numbers = scaled
    (row_bounds, column_bounds), share = lower, x.dtype.type(factor_of_bounds)
    count = (columns + WIDTH - 1) // WIDTH
    wanted = near.shape[1]
    coefficient = splat(x.dtype.type(-2 * factor))
    tile = SUM_TILE // WIDTH
    for begin in range(start, stop, ROWS):
        end = min(begin + ROWS, stop)
        mark_own(own, numbers, begin, end, number, np.bool_(True))
        if wanted:
            _begin_lists(begin, end, share, near, rough, rough_index)
        for first in range(0, count, tile):
            sums[:] = 0
            for p in range(first, min(first + tile, count)):
                valid, j = valid_lanes(p, columns), number + p * WIDTH
                for i in range(begin, end, GROUP):
                    row_products(x, i, end - 1, d, panels, p, dots)
                    for row in range(i, min(i + GROUP, end)):
                        dot, r = load(dots, (row - i) * WIDTH), row - begin
                        if wanted:
                            s = _lower_bound(dot, p, row, row_bounds, column_bounds)
                            keep_nearer(s, r, valid, j, NO_COLUMN, rough, rough_index)
                        lengths = add(load(column_numbers, p * WIDTH), broadcast(row_numbers, row))
                        if own[p]:
                            swap_own(sums, saved, r, np.int64(1), numbers, row, j)
                        store(sums, r * WIDTH, add(load(sums, r * WIDTH), exp2_of(fma(dot, coefficient, lengths))))
                        if own[p]:
                            swap_own(sums, saved, r, np.int64(1), numbers, row, j)
            for i in range(begin, end):
                out[i] += np.float64(total(load(sums, (i - begin) * WIDTH)))
        mark_own(own, numbers, begin, end, number, np.bool_(False))
        if wanted:
            _settle(
                x, d, begin, end, y, number, share, rough, rough_index, near, near_index, doubtful, merged, merged_index
            )


@compiled
def neighbors(
    x: Any,
    d: int,
    start: int,
    stop: int,
    panels: Any,
    columns: int,
    numbers: Any,
    number: int,
    lower: Any,
    factor_of_bounds: float,
    y: Any,
    near: Any,
    near_index: Any,
    doubtful: Any,
    dots: Any,
    rough: Any,
    rough_index: Any,
    merged: Any,
    merged_index: Any,
) -> None:
    """Insert each row's nearest columns of y into a sorted list, as `cpu_loops.neighbors` does.

    If products cannot decide a row's list, the row is marked as doubtful, and its list does not change.
    """
    (row_bounds, column_bounds), share = lower, x.dtype.type(factor_of_bounds)
    for begin in range(start, stop, ROWS):
        end = min(begin + ROWS, stop)
        _begin_lists(begin, end, share, near, rough, rough_index)
        for p in range((columns + WIDTH - 1) // WIDTH):
            valid, j = valid_lanes(p, columns), number + p * WIDTH
            for i in range(begin, end, GROUP):
                row_products(x, i, end - 1, d, panels, p, dots)
                for row in range(i, min(i + GROUP, end)):
                    s = _lower_bound(load(dots, (row - i) * WIDTH), p, row, row_bounds, column_bounds)
                    keep_nearer(s, row - begin, valid, j, numbers[row], rough, rough_index)
        _settle(
            x, d, begin, end, y, number, share, rough, rough_index, near, near_index, doubtful, merged, merged_index
        )


@inlined
def _compare(
    x: Any, i: int, last: int, d: int, panels: Any, p: int, mask: int, skipped: int, limits: Any, dots: Any,
    sure: Any, open_rows: Any, open_lanes: Any, found: int,
) -> int:  # fmt: skip
    """Compare rows i..i+7 with a panel: count the lanes that are surely nearer, and list the rows with open lanes.

    Returns the number of listed rows.
    """
    below, above = limits
    row_products(x, i, last, d, panels, p, dots)
    for row in range(i, min(i + GROUP, last + 1)):
        lanes = mask & (FULL << max(0, row - skipped))
        dot = load(dots, (row - i) * WIDTH)
        nearer = exceeds(dot, add(load(below[1], p * WIDTH), broadcast(below[0], row))) & lanes
        farther = exceeds(add(load(above[1], p * WIDTH), broadcast(above[0], row)), dot)
        sure[row] += lanes_of(nearer)
        lanes &= ~(nearer | farther)
        if lanes:
            open_rows[found], open_lanes[found] = row, lanes
            found += 1
    return found


@inlined
def _open_distances(x: Any, d: int, panels: Any, p: int, rows: Any, q: int, found: int) -> Any:
    last = found - 1
    second, third, fourth = rows[min(q + 1, last)], rows[min(q + 2, last)], rows[min(q + 3, last)]
    return four_distances(x, rows[q], second, third, fourth, d, panels, p, np.bool_(False))


@compiled
def count(
    x: Any, d: int, start: int, stop: int, panels: Any, columns: int, threshold: Any, limits: Any, out: Any, dots: Any,
    rows: Any, lanes: Any,
) -> int:  # fmt: skip
    """Add to out the number of columns with s < threshold, for rows from start on; return the first row left."""
    limit = x.dtype.type(threshold)
    for begin in range(start, stop, ROWS):
        end = min(begin + ROWS, stop)
        opened, met = np.int64(0), 0
        for p in range((columns + WIDTH - 1) // WIDTH):
            valid, found = valid_lanes(p, columns), np.int64(0)
            for i in range(begin, end, GROUP):
                found = _compare(x, i, end - 1, d, panels, p, valid, end, limits, dots, out, rows, lanes, found)
            for q in range(0, found, 4):
                s0, s1, s2, s3 = _open_distances(x, d, panels, p, rows, q, found)
                out[rows[q]] += lanes_of(values_below(s0, limit) & lanes[q])
                if q + 1 < found:
                    out[rows[q + 1]] += lanes_of(values_below(s1, limit) & lanes[q + 1])
                if q + 2 < found:
                    out[rows[q + 2]] += lanes_of(values_below(s2, limit) & lanes[q + 2])
                if q + 3 < found:
                    out[rows[q + 3]] += lanes_of(values_below(s3, limit) & lanes[q + 3])
            opened, met = opened + found, met + end - begin
        if opened * MAX_OPEN > met:
            return end
    return stop


@compiled
def histogram(
    x: Any,
    d: int,
    start: int,
    stop: int,
    panels: Any,
    columns: int,
    skip: int,
    low: int,
    high: int,
    shift: int,
    limits: Any,
    out: Any,
    shared: bool,
    below: Any,
    dots: Any,
    rows: Any,
    lanes: Any,
) -> int:
    """Count pairs by the bits of s, as `cpu_loops.histogram` does, for rows from start on; return the first row left.

    Pairs that are surely below low are added to `below` of their row. Other pairs below low are added to `below` of one
    of the rows that are compared at the same time, because the caller uses only the sum.
    """
    for begin in range(start, stop, ROWS):
        end = min(begin + ROWS, stop)
        opened, met = np.int64(0), 1
        for p in range(max(0, begin - skip + 1) // WIDTH, (columns + WIDTH - 1) // WIDTH):
            valid, found = valid_lanes(p, columns), np.int64(0)
            skipped = skip - 1 + p * WIDTH  # the row whose first column is the panel's first lane
            for i in range(begin, min(end, skipped + WIDTH), GROUP):
                found = _compare(x, i, end - 1, d, panels, p, valid, skipped, limits, dots, below, rows, lanes, found)
            for q in range(0, found, 4):
                s0, s1, s2, s3 = _open_distances(x, d, panels, p, rows, q, found)
                nearer = tally(s0, lanes[q], low, high, shift, out, shared)
                if q + 1 < found:
                    nearer += tally(s1, lanes[q + 1], low, high, shift, out, shared)
                if q + 2 < found:
                    nearer += tally(s2, lanes[q + 2], low, high, shift, out, shared)
                if q + 3 < found:
                    nearer += tally(s3, lanes[q + 3], low, high, shift, out, shared)
                below[rows[q]] += nearer
            opened, met = opened + found, met + end - begin
        if opened * MAX_OPEN > met:
            return end
    return stop
