"""Columns in boxes: what `mgclust.kernels.pairs.cpu` does with all pairs, but without the columns that are far away.

The boxes, and why answers have the bits of comparing all pairs: `mgclust.kernels.pairs.column_boxes`. A row visits
one panel at a time where the all-pairs loops share a panel among 64 rows: some rows are tried first, and boxes are used
where few of the panels are near.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import intrinsic

from mgclust.kernels.pairs.column_boxes import MAX_FEATURES, Boxes, build
from mgclust.kernels.pairs.cpu_loops import MAX_EXPECTED
from mgclust.kernels.toolkit.cpu_compiler import allocating, inlined
from mgclust.kernels.toolkit.simd import (
    WIDTH,
    VectorFormat,
    absolute_step,
    broadcast,
    call_intrinsic,
    element,
    first_lane,
    lanes_of,
    load,
    splat,
    square_step,
    store,
    values_below,
    values_differ,
)
from mgclust.kernels.toolkit.threads import run_tasks

__all__ = [
    "box_border",
    "box_count",
    "box_distances",
    "box_mark",
    "box_nearest",
    "box_write",
    "boxes_for",
    "halved",
    "panel_distances",
]

Array = Any
MIN_COLUMNS = 512
MIN_PAIRS = 1 << 25  # fewer are compared before a tree is built, by a quarter of the length of long lists fewer
TRIED_ROWS = 64
NEAR_SHARE = 0.08  # of the panels, on average: a visit costs a row as much as ten panels cost the all-pairs loops
TASK_ROWS = 1024
MARKED_ROWS = 64  # of a task that marks columns: there are few rows
LEVELS = 8
SHORT = 24  # lists up to this length are sorted by insertion


def boxes_for(x: Array, y: Array, manhattan: bool, limit: Any = None, neighbors: int = 1) -> Boxes | None:
    """Put columns into boxes if that will pay: few features, many pairs, and few of the panels near a row.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
    manhattan : bool
    limit : number of the rows' type, optional
        The threshold; without one, so many nearest columns are wanted.
    neighbors : int
    """
    (m, d), k = x.shape, len(y)
    work = m * k * (neighbors // 4 if neighbors > MAX_EXPECTED else 1)
    if d > MAX_FEATURES or k < MIN_COLUMNS or work < MIN_PAIRS:
        return None
    columns = np.ascontiguousarray(y)
    boxes = build(columns, halved(columns), np)
    count, few = -(-k // WIDTH), np.ascontiguousarray(x[:: max(1, m // TRIED_ROWS)])
    if limit is None:
        near = np.full((len(few), neighbors), np.inf, x.dtype)
        lists = (np.full(len(few), -1, np.int64), near, np.full(near.shape, -1, np.int64))
        visited = nearest(few.reshape(-1), d, 0, len(few), *boxes[:5], manhattan, *lists)
    else:
        visited = visits(few.reshape(-1), d, len(few), *boxes[:5], manhattan, limit)
    return boxes if visited <= NEAR_SHARE * count * len(few) else None


def box_count(x: Array, boxes: Boxes, manhattan: bool, limit: Any, out: Array) -> None:
    """Add the number of columns with s < limit to each row's."""
    flat, d = x.reshape(-1), x.shape[1]
    _by_rows(len(x), lambda a, b: count(flat, d, a, b, *boxes[:5], manhattan, limit, out))


def box_write(x: Array, boxes: Boxes, manhattan: bool, limit: Any, starts: Array, out: Array) -> None:
    """List each row's columns with s < limit, ascending."""
    flat, d = x.reshape(-1), x.shape[1]
    _by_rows(len(x), lambda a, b: write(flat, d, a, b, *boxes[:5], manhattan, limit, starts, out))


def box_border(
    x: Array, boxes: Boxes, x_labels: Array, y_labels: Array, manhattan: bool, limit: Any, out: Array
) -> None:
    """Mark rows that have a column of another label with s < limit."""
    flat, d = x.reshape(-1), x.shape[1]
    own = np.asarray(x_labels, np.int32)
    labels = np.zeros(len(boxes.index), np.int32)
    labels[: len(boxes.order)] = np.asarray(y_labels)[boxes.order]
    _by_rows(len(x), lambda a, b: border(flat, d, a, b, *boxes[:5], manhattan, own, labels, limit, out))


def box_mark(x: Array, boxes: Boxes, manhattan: bool, limit: Any, out: Array) -> None:
    """Mark columns that have a row with s < limit; threads that mark the same one write the same."""
    flat, d = x.reshape(-1), x.shape[1]
    _by_rows(len(x), lambda a, b: mark(flat, d, a, b, *boxes[:5], manhattan, limit, out), MARKED_ROWS)


def box_nearest(
    x: Array, boxes: Boxes, manhattan: bool, y_start: int, numbers: Array, near: Array, near_index: Array
) -> None:
    """Insert each row's nearest columns into its sorted list, of equally near ones the first; one is left out."""
    flat, d = x.reshape(-1), x.shape[1]
    shifted = boxes._replace(index=boxes.index + y_start)
    _by_rows(len(x), lambda a, b: nearest(flat, d, a, b, *shifted[:5], manhattan, numbers, near, near_index))


def _by_rows(m: int, body: Callable[[int, int], object], rows: int = TASK_ROWS) -> None:
    def task(index: int, _: int) -> None:
        body(index * rows, min((index + 1) * rows, m))

    run_tasks(-(-m // rows), task)


def halved(y: Array) -> Array:
    """Find an order of columns for `build`, by partitions: on a CPU less work than sorts."""
    order = np.arange(len(y))
    pending = [(0, len(y))]
    while pending:
        a, b = pending.pop()
        if b - a <= WIDTH:
            continue
        unit = WIDTH  # of the largest nodes that are smaller than this run: none is to lie on both sides
        while unit * WIDTH < b - a:
            unit *= WIDTH
        middle = max(1, round((b - a) / (2 * unit))) * unit
        part = y[order[a:b]]
        widest = part[:, np.argmax(part.max(axis=0) - part.min(axis=0))]
        order[a:b] = order[a:b][np.argpartition(widest, middle - 1)]
        pending += [(a, a + middle), (a + middle, b)]
    return order


def larger(builder: Any, a: Any, b: Any) -> Any:
    """Emit the larger of two vectors, lane by lane."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@intrinsic
def gap_step(_: Any, s: Any, own_low: Any, own_high: Any, low: Any, high: Any) -> Any:
    """Add one coordinate's term of the least squared distance between two boxes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, a, b, c, e = arguments
        fmt = VectorFormat(s.scalar)
        gap = larger(builder, builder.fsub(c, b), builder.fsub(a, e))
        gap = larger(builder, gap, fmt.constant(0.0))
        return call_intrinsic(builder, f"llvm.fma.{fmt.suffix}", [gap, gap, total])

    return s(s, own_low, own_high, low, high), generate


@intrinsic
def gap_absolute(_: Any, s: Any, own: Any, low: Any, high: Any) -> Any:
    """s + the gap between a number and an interval, 0 inside: one term of a Manhattan distance to a box."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, x, c, e = arguments
        gap = larger(builder, builder.fsub(c, x), VectorFormat(s.scalar).constant(0.0))
        return builder.fadd(total, larger(builder, builder.fsub(x, e), gap))

    return s(s, own, low, high), generate


@inlined
def box_distances(x: Any, row: int, d: int, low: Any, high: Any, panel: int, manhattan: bool) -> Any:
    """Lower bounds of the reduced distances of a row to a panel of boxes."""
    s = splat(x.dtype.type(0))
    base = panel * d * WIDTH
    if manhattan:
        for k in range(d):
            at = base + k * WIDTH
            s = gap_absolute(s, broadcast(x, row * d + k), load(low, at), load(high, at))
    else:
        for k in range(d):
            at = base + k * WIDTH
            own = broadcast(x, row * d + k)
            s = gap_step(s, own, own, load(low, at), load(high, at))
    return s


@inlined
def panel_distances(x: Any, row: int, d: int, panels: Any, panel: int, manhattan: bool) -> Any:
    """Reduced distances of a row to a panel."""
    s = splat(x.dtype.type(0))
    base = panel * d * WIDTH
    if manhattan:
        for k in range(d):
            s = absolute_step(s, broadcast(x, row * d + k), load(panels, base + k * WIDTH))
    else:
        for k in range(d):
            s = square_step(s, broadcast(x, row * d + k), load(panels, base + k * WIDTH))
    return s


@inlined
def _next_panel(
    x: Any, row: int, d: int, low: Any, high: Any, starts: Any, manhattan: bool, limit: Any, pending: Any, panel: Any,
    level: int,
) -> Any:  # fmt: skip
    """The next panel whose bound is below the limit, or -1, and the level to continue from; begins above the top."""
    top = len(starts) - 2
    if level > top:
        level = top
        panel[top] = 0
        pending[top] = values_below(box_distances(x, row, d, low, high, starts[top], manhattan), limit)
    while level <= top:
        left = pending[level]
        if left == 0:
            level += 1
            continue
        node = panel[level] * WIDTH + first_lane(left)
        pending[level] = left & (left - 1)
        if level == 0:
            return node, level
        level -= 1
        panel[level] = node
        pending[level] = values_below(box_distances(x, row, d, low, high, starts[level] + node, manhattan), limit)
    return -1, level


@allocating
def visits(
    x: Any, d: int, rows: int, index: Any, panels: Any, low: Any, high: Any, starts: Any, manhattan: bool, limit: Any
) -> int:
    """Number of panels that some rows have to look at."""
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    seen = 0
    for row in range(rows):
        node, level = _next_panel(x, row, d, low, high, starts, manhattan, limit, pending, panel, LEVELS)
        while node >= 0:
            seen += 1
            node, level = _next_panel(x, row, d, low, high, starts, manhattan, limit, pending, panel, level)
    return seen


@allocating
def count(
    x: Any, d: int, start: int, stop: int, index: Any, panels: Any, low: Any, high: Any, starts: Any, manhattan: bool,
    limit: Any, out: Any,
) -> None:  # fmt: skip
    """Add to out the number of columns with s < limit, for rows start..stop-1."""
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    for row in range(start, stop):
        within = 0
        node, level = _next_panel(x, row, d, low, high, starts, manhattan, limit, pending, panel, LEVELS)
        while node >= 0:
            within += lanes_of(values_below(panel_distances(x, row, d, panels, node, manhattan), limit))
            node, level = _next_panel(x, row, d, low, high, starts, manhattan, limit, pending, panel, level)
        out[row] += within


@allocating
def write(
    x: Any, d: int, start: int, stop: int, index: Any, panels: Any, low: Any, high: Any, starts: Any, manhattan: bool,
    limit: Any, firsts: Any, out: Any,
) -> None:  # fmt: skip
    """Write the columns with s < limit, ascending, from firsts on, for rows start..stop-1."""
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    for row in range(start, stop):
        first = firsts[row]
        end = first
        node, level = _next_panel(x, row, d, low, high, starts, manhattan, limit, pending, panel, LEVELS)
        while node >= 0:
            near = values_below(panel_distances(x, row, d, panels, node, manhattan), limit)
            while near:
                out[end] = index[node * WIDTH + first_lane(near)]
                end += 1
                near &= near - 1
            node, level = _next_panel(x, row, d, low, high, starts, manhattan, limit, pending, panel, level)
        if end - first > SHORT:
            out[first:end].sort()
            continue
        for i in range(first + 1, end):
            value = out[i]
            j = i - 1
            while j >= first and out[j] > value:
                out[j + 1] = out[j]
                j -= 1
            out[j + 1] = value


@allocating
def mark(
    x: Any, d: int, start: int, stop: int, index: Any, panels: Any, low: Any, high: Any, starts: Any, manhattan: bool,
    limit: Any, out: Any,
) -> None:  # fmt: skip
    """Set out for columns with s < limit to one of the rows start..stop-1."""
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    for row in range(start, stop):
        node, level = _next_panel(x, row, d, low, high, starts, manhattan, limit, pending, panel, LEVELS)
        while node >= 0:
            near = values_below(panel_distances(x, row, d, panels, node, manhattan), limit)
            while near:
                out[index[node * WIDTH + first_lane(near)]] = 1
                near &= near - 1
            node, level = _next_panel(x, row, d, low, high, starts, manhattan, limit, pending, panel, level)


@allocating
def border(
    x: Any, d: int, start: int, stop: int, index: Any, panels: Any, low: Any, high: Any, starts: Any, manhattan: bool,
    x_labels: Any, y_labels: Any, limit: Any, out: Any,
) -> None:  # fmt: skip
    """Set out for rows that have a column of another label with s < limit; y_labels by position."""
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    for row in range(start, stop):
        node, level = _next_panel(x, row, d, low, high, starts, manhattan, limit, pending, panel, LEVELS)
        while node >= 0:
            differ = values_differ(load(y_labels, node * WIDTH), x_labels[row])
            if values_below(panel_distances(x, row, d, panels, node, manhattan), limit) & differ:
                out[row] = 1
                break
            node, level = _next_panel(x, row, d, low, high, starts, manhattan, limit, pending, panel, level)


@inlined
def _insert(value: Any, number: int, row: int, near: Any, near_index: Any) -> None:
    """Insert a column into a row's list, sorted by (s, number), if it comes before the last one there."""
    q = near.shape[1] - 1
    if value > near[row, q] or (value == near[row, q] and number > near_index[row, q]):
        return
    while q > 0 and (near[row, q - 1] > value or (near[row, q - 1] == value and near_index[row, q - 1] > number)):
        near[row, q] = near[row, q - 1]
        near_index[row, q] = near_index[row, q - 1]
        q -= 1
    near[row, q] = value
    near_index[row, q] = number


@allocating
def nearest(
    x: Any, d: int, start: int, stop: int, index: Any, panels: Any, low: Any, high: Any, starts: Any, manhattan: bool,
    numbers: Any, near: Any, near_index: Any,
) -> int:  # fmt: skip
    """Insert the least (s, index) of all columns into sorted lists, nearest boxes first; returns the panels visited.

    A row leaves out the column of the number given for it.
    """
    top, last = len(starts) - 2, near.shape[1] - 1
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    bounds = np.empty(LEVELS * WIDTH, x.dtype)
    infinity = x.dtype.type(np.inf)
    seen = 0
    for row in range(start, stop):
        level = top
        panel[top] = 0
        fresh = True
        while level <= top:
            if fresh:
                fresh = False
                s = box_distances(x, row, d, low, high, starts[level] + panel[level], manhattan)
                store(bounds, level * WIDTH, s)
                pending[level] = values_below(s, infinity)
            left = pending[level]
            lane, bound = 0, infinity
            while left:
                other = first_lane(left)
                left &= left - 1
                if bounds[level * WIDTH + other] < bound:
                    lane, bound = other, bounds[level * WIDTH + other]
            if bound > near[row, last] or pending[level] == 0:
                level += 1
                continue
            pending[level] &= ~(np.int64(1) << lane)
            node = panel[level] * WIDTH + lane
            if level:
                level -= 1
                panel[level] = node
                fresh = True
                continue
            seen += 1
            s = panel_distances(x, row, d, panels, node, manhattan)
            maybe = values_below(s, np.nextafter(near[row, last], infinity))
            while maybe:
                at = first_lane(maybe)
                maybe &= maybe - 1
                if index[node * WIDTH + at] != numbers[row]:
                    _insert(element(s, at), index[node * WIDTH + at], row, near, near_index)
    return seen
