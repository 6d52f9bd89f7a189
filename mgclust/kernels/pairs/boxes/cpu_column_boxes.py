"""Searches in bounding boxes: they do the work of `mgclust.kernels.pairs.cpu`, but skip columns that are far away.

`mgclust.kernels.pairs.boxes.column_boxes` describes the boxes, and why the results are bitwise identical to comparing
all pairs. Here, each row loads its panels one at a time, while the loops over all pairs load a panel once for 64 rows.
So some rows are tried first, and boxes are used only if few of the panels are near.

Every search has the same loop, which begins with box 0 of a level above the top. To open a box, the kernel marks in
`pending` those of its 32 children that may count. Then the next pending box is opened or, if it is a panel of columns,
its columns are compared. A step tests 32 boxes or 32 columns in some 20 instructions.

All searches are in one file, because they share this loop and its stack of masks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import intrinsic

from mgclust.kernels.pairs.boxes.column_boxes import (
    MAX_FEATURES,
    NO_COLUMN,
    Boxes,
    build,
    curve_bits,
    labels_below,
    ranks_below,
)
from mgclust.kernels.pairs.cpu_loops import FULL, MAX_EXPECTED, tally_rows
from mgclust.kernels.pairs.cpu_tasks import ThreadCounts
from mgclust.kernels.toolkit.cpu_compiler import allocating, inlined
from mgclust.kernels.toolkit.simd import (
    WIDTH,
    VectorFormat,
    absolute_step,
    add_to,
    bits_below,
    bits_of,
    broadcast,
    element,
    first_lane,
    lanes_of,
    load,
    ordered_below,
    splat,
    square_step,
    store,
    values_below,
    values_differ,
)
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

__all__ = [
    "box_border",
    "box_count",
    "box_mark",
    "box_nearest",
    "box_write",
    "boxes_for",
    "halved",
    "panel_distances",
]

Array = Any
MIN_COLUMNS = 512
MIN_PAIRS = 1 << 25  # for fewer pairs, a tree takes longer; for long lists, divided by a quarter of their length
TRIED_ROWS = 64
NEAR_SHARE = 0.08  # largest mean fraction of near panels: a panel takes as long as ten panels in loops over all pairs
TASK_ROWS = 1024
MARKED_ROWS = 64  # rows of a task that marks columns; a small number, because such calls have few rows
TASK_PANELS = 16
LEVELS = 8
LOG_WIDTH = 5
# For each number of features: the steps that insert zeros between the bits of an integer.
STRETCHES: dict[int, tuple[tuple[int, int], ...]] = {
    1: (),
    2: (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ),
    3: (
        (32, 0x1F00000000FFFF),
        (16, 0x1F0000FF0000FF),
        (8, 0x100F00F00F00F00F),
        (4, 0x10C30C30C30C30C3),
        (2, 0x1249249249249249),
    ),
}
SHORT = 24  # lists up to this length are sorted by insertion


def boxes_for(x: Array, y: Array, manhattan: bool, limit: Any = None, neighbors: int = 1) -> Boxes | None:
    """Put columns into boxes if this is faster: for few features, many pairs, and few panels near each row; else None.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows and columns.
    manhattan : bool
        Whether the norm is "l1".
    limit : number of the rows' type, optional
        Threshold of the reduced distance. If None, nearest columns are searched.
    neighbors : int
        Number of nearest columns to search.
    """
    (m, d), k = x.shape, len(y)
    work = m * k * (neighbors // 4 if neighbors > MAX_EXPECTED else 1)
    if d > MAX_FEATURES or k < MIN_COLUMNS or work < MIN_PAIRS:
        return None
    boxes = build_boxes(y)
    few = np.ascontiguousarray(x[:: max(1, m // TRIED_ROWS)])
    if limit is None:
        near = np.full((len(few), neighbors), np.inf, x.dtype)
        index = np.full(near.shape, -1, np.int64)
        visited = nearest(few.reshape(-1), d, 0, len(few), *_of_any_rank(few, boxes), manhattan, near, index)
    else:
        counts = np.zeros(len(few), np.int64)
        visited = count(few.reshape(-1), d, 0, len(few), *boxes[:5], k, manhattan, limit, counts)
    return boxes if visited <= NEAR_SHARE * -(-k // WIDTH) * len(few) else None


def build_boxes(y: Array) -> Boxes:
    """Put columns into boxes, by halving them along the widest feature."""
    order = halved(y)
    return build(y[order], order, np)


def build_along_curve(y: Array) -> tuple[Array, Boxes]:
    """Sort columns along a Morton curve, and put them into boxes; return the sorted columns and the boxes."""
    order = np.argsort(places(y))
    columns = y[order]
    return columns, build(columns, order, np)


def box_count(x: Array, boxes: Boxes, manhattan: bool, limit: Any, out: Array) -> None:
    """Add to each row's element of out the number of columns with s < limit."""
    flat, d = x.reshape(-1), x.shape[1]
    _by_rows(len(x), lambda a, b: count(flat, d, a, b, *boxes[:5], boxes.columns, manhattan, limit, out))


def box_write(x: Array, boxes: Boxes, manhattan: bool, limit: Any, starts: Array, out: Array) -> None:
    """List each row's columns with s < limit, ascending."""
    flat, d = x.reshape(-1), x.shape[1]
    _by_rows(len(x), lambda a, b: write(flat, d, a, b, *boxes[:5], manhattan, limit, starts, out))


def box_border(
    x: Array, boxes: Boxes, x_labels: Array, y_labels: Array, manhattan: bool, limit: Any, out: Array
) -> None:
    """Mark rows that have a column with another label and s < limit."""
    flat, d = x.reshape(-1), x.shape[1]
    labels = x_labels.astype(np.int32, copy=False), *labels_below(boxes, y_labels, np)
    _by_rows(len(x), lambda a, b: border(flat, d, a, b, *boxes[:5], manhattan, *labels, limit, out))


def box_mark(x: Array, boxes: Boxes, manhattan: bool, limit: Any, out: Array) -> None:
    """Mark columns that have a row with s < limit; several threads may write the same value to a column."""
    flat, d = x.reshape(-1), x.shape[1]
    _by_rows(len(x), lambda a, b: mark(flat, d, a, b, *boxes[:5], manhattan, limit, out), MARKED_ROWS)


def box_nearest(
    x: Array, boxes: Boxes, manhattan: bool, y_start: int, numbers: Array, near: Array, near_index: Array
) -> None:
    """Insert each row's nearest columns, except the column in `numbers`, into its list; ties go to the first column."""
    flat, d = x.reshape(-1), x.shape[1]
    searched = _of_any_rank(x, boxes, y_start, numbers)
    _by_rows(len(x), lambda a, b: nearest(flat, d, a, b, *searched, manhattan, near, near_index))


def box_nearest_higher(x: Array, boxes: Boxes, ranks: Array, first: int, best: Array, best_index: Array) -> None:
    """Find each row's nearest column of lower rank; the rows are the columns at the positions from `first` on."""
    flat, d = x.reshape(-1), x.shape[1]
    by_position, by_box = ranks_below(boxes, ranks, np)
    numbers, own = np.full(len(x), -1), by_position[first : first + len(x)]
    searched = *boxes[:6], 0, numbers, by_position, by_box, own, first
    best[:], best_index[:] = np.inf, NO_COLUMN
    near, near_index = best[:, None], best_index[:, None]
    _by_rows(len(x), lambda a, b: nearest(flat, d, a, b, *searched, False, near, near_index))
    best_index[best_index == NO_COLUMN] = -1


def box_histogram(
    columns: Array, boxes: Boxes, part: int, parts: int, low: int, high: int, shift: int, out: Array
) -> None:
    """Count pairs i < j of columns by the bits of s; i lies in every `parts`-th panel from `part` on, j anywhere."""
    flat, (k, d) = columns.reshape(-1), columns.shape
    panels = range(part, -(-k // WIDTH), parts)
    below, counts = [0] * thread_count(), ThreadCounts(out)

    def task(index: int, thread: int) -> None:
        for own in panels[index * TASK_PANELS : (index + 1) * TASK_PANELS]:
            below[thread] += histogram(flat, d, own, *boxes[1:5], k, low, high, shift, *counts.of(thread))

    run_tasks(-(-len(panels) // TASK_PANELS), task)
    counts.gather()
    out[0] += sum(below)


def _of_any_rank(x: Array, boxes: Boxes, y_start: int = 0, numbers: Array | None = None) -> tuple[Any, ...]:
    """Return the arguments of `nearest` for columns of all ranks; each row skips the column with its number."""
    none = np.empty(0, np.int32)
    return *boxes[:6], y_start, np.full(len(x), -1) if numbers is None else numbers, none, none, none, 0


def _by_rows(m: int, body: Callable[[int, int], object], rows: int = TASK_ROWS) -> None:
    def task(index: int, _: int) -> None:
        body(index * rows, min((index + 1) * rows, m))

    run_tasks(-(-m // rows), task)


def halved(y: Array) -> Array:
    """Find an order of columns for `build` by partitions, because sorts are more work on a CPU."""
    order = np.arange(len(y))
    pending = [(0, len(y))]
    while pending:
        a, b = pending.pop()
        if b - a <= WIDTH:
            continue
        unit = WIDTH  # columns of the largest nodes smaller than this run; no node may lie on both sides
        while unit * WIDTH < b - a:
            unit *= WIDTH
        middle = max(1, round((b - a) / (2 * unit))) * unit
        part = y[order[a:b]]
        widest = part[:, np.argmax(part.max(axis=0) - part.min(axis=0))]
        order[a:b] = order[a:b][np.argpartition(widest, middle - 1)]
        pending += [(a, a + middle), (a + middle, b)]
    return order


def places(x: Array) -> Array:
    """Return int64 positions of rows along a Morton curve: the interleaved bits of up to three integer features."""
    d = x.shape[1]
    wide = x.astype("float64")
    low = wide.min(axis=0)
    extent = wide.max(axis=0) - low
    steps = ((wide - low) * ((2.0 ** curve_bits(d) - 1) / np.where(extent > 0, extent, 1.0))).astype("int64")
    codes = np.zeros(len(x), dtype="int64")
    for k in range(d):
        codes |= _stretched(steps[:, k], d) << k
    return codes


def _stretched(v: Array, d: int) -> Array:
    """Insert d - 1 zero bits after each bit."""
    for shift, mask in STRETCHES[d]:
        v = (v | (v << shift)) & mask
    return v


@intrinsic
def gap_between(_: Any, own_low: Any, own_high: Any, low: Any, high: Any) -> Any:
    """The gap between two intervals; 0 if they overlap."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, c, e = arguments
        gap = _larger(builder, builder.fsub(c, b), builder.fsub(a, e))
        return _larger(builder, gap, VectorFormat(own_low.scalar).constant(0.0))

    return own_low(own_low, own_high, low, high), generate


@intrinsic
def span_of(_: Any, own_low: Any, own_high: Any, low: Any, high: Any) -> Any:
    """The largest difference between numbers of two intervals; its size is infinite if an interval is empty."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, c, e = arguments
        return _larger(builder, builder.fsub(e, a), builder.fsub(b, c))

    return own_low(own_low, own_high, low, high), generate


def _larger(builder: Any, a: Any, b: Any) -> Any:
    """Emit the larger of two vectors, lane by lane."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@inlined
def box_distances(x: Any, row: int, d: int, low: Any, high: Any, panel: int, manhattan: bool) -> Any:
    """Lower bounds of the reduced distances of a row to a panel of boxes."""
    zero = splat(x.dtype.type(0))
    s, base = zero, panel * d * WIDTH
    if manhattan:
        for k in range(d):
            own, at = broadcast(x, row * d + k), base + k * WIDTH
            s = absolute_step(s, gap_between(own, own, load(low, at), load(high, at)), zero)
    else:
        for k in range(d):
            own, at = broadcast(x, row * d + k), base + k * WIDTH
            s = square_step(s, gap_between(own, own, load(low, at), load(high, at)), zero)
    return s


@inlined
def box_bounds(
    a: Any, a_base: int, b: Any, b_base: int, step: int, d: int, low: Any, high: Any, panel: int, manhattan: bool
) -> Any:
    """Lower and upper bounds of the reduced distances of a box (from a to b) to a panel of boxes."""
    zero = splat(a.dtype.type(0))
    near, far, base = zero, zero, panel * d * WIDTH
    for k in range(d):
        own_low, own_high = broadcast(a, a_base + k * step), broadcast(b, b_base + k * step)
        y_low, y_high = load(low, base + k * WIDTH), load(high, base + k * WIDTH)
        gap, span = gap_between(own_low, own_high, y_low, y_high), span_of(own_low, own_high, y_low, y_high)
        if manhattan:
            near, far = absolute_step(near, gap, zero), absolute_step(far, span, zero)
        else:
            near, far = square_step(near, gap, zero), square_step(far, span, zero)
    return near, far


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
def _next_box(pending: Any, panel: Any, level: int, top: int) -> Any:
    """Take the next pending box: return its position in its level, or -1 if there is none, and the level."""
    while level <= top:
        left = pending[level]
        if left:
            pending[level] = left & (left - 1)
            return panel[level] * WIDTH + first_lane(left), level
        level += 1
    return -1, level


@inlined
def _last_lane(node: int, level: int, columns: int) -> int:
    """Lane of the level's last box among the children of a node; above 31 if the box is not a child of the node."""
    return ((columns - 1) >> (LOG_WIDTH * (level + 1))) - node * WIDTH


@inlined
def _columns_in(mask: int, node: int, level: int, columns: int) -> int:
    """Number of columns in the children of a node that the mask marks; all boxes are full, except the level's last."""
    size = WIDTH << (LOG_WIDTH * level)
    held = lanes_of(mask) * size
    last = _last_lane(node, level, columns)
    if last < WIDTH and (mask >> last) & 1:
        held -= (node * WIDTH + last + 1) * size - columns
    return held


@allocating
def count(
    x: Any, d: int, start: int, stop: int, index: Any, panels: Any, low: Any, high: Any, starts: Any, columns: int,
    manhattan: bool, limit: Any, out: Any,
) -> int:  # fmt: skip
    """Add to out the number of columns with s < limit, for rows start..stop-1; return the number of near panels."""
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    top, compared, inside = len(starts) - 2, 0, 0
    for row in range(start, stop):
        within = 0
        node, level = 0, top + 1
        while node >= 0:
            if level:
                level -= 1
                panel[level] = node
                near, far = box_bounds(x, row * d, x, row * d, 1, d, low, high, starts[level] + node, manhattan)
                whole = values_below(far, limit)
                if whole:
                    held = _columns_in(whole, node, level, columns)
                    within += held
                    inside += held
                pending[level] = values_below(near, limit) & ~whole
            else:
                compared += 1
                within += lanes_of(values_below(panel_distances(x, row, d, panels, node, manhattan), limit))
            node, level = _next_box(pending, panel, level, top)
        out[row] += within
    return compared + inside // WIDTH


@allocating
def write(
    x: Any, d: int, start: int, stop: int, index: Any, panels: Any, low: Any, high: Any, starts: Any, manhattan: bool,
    limit: Any, firsts: Any, out: Any,
) -> None:  # fmt: skip
    """Write each row's columns with s < limit, ascending, to out from firsts[row] on, for rows start..stop-1."""
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    top = len(starts) - 2
    for row in range(start, stop):
        first = firsts[row]
        end = first
        node, level = 0, top + 1
        while node >= 0:
            if level:
                level -= 1
                panel[level] = node
                s = box_distances(x, row, d, low, high, starts[level] + node, manhattan)
                pending[level] = values_below(s, limit)
            else:
                near = values_below(panel_distances(x, row, d, panels, node, manhattan), limit)
                while near:
                    out[end] = index[node * WIDTH + first_lane(near)]
                    end += 1
                    near &= near - 1
            node, level = _next_box(pending, panel, level, top)
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
    """Set out to 1 for columns that have s < limit to any of the rows start..stop-1."""
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    top = len(starts) - 2
    for row in range(start, stop):
        node, level = 0, top + 1
        while node >= 0:
            if level:
                level -= 1
                panel[level] = node
                s = box_distances(x, row, d, low, high, starts[level] + node, manhattan)
                pending[level] = values_below(s, limit)
            else:
                near = values_below(panel_distances(x, row, d, panels, node, manhattan), limit)
                while near:
                    out[index[node * WIDTH + first_lane(near)]] = 1
                    near &= near - 1
            node, level = _next_box(pending, panel, level, top)


@allocating
def border(
    x: Any, d: int, start: int, stop: int, index: Any, panels: Any, low: Any, high: Any, starts: Any, manhattan: bool,
    x_labels: Any, y_labels: Any, least: Any, minus_most: Any, limit: Any, out: Any,
) -> None:  # fmt: skip
    """Set out to 1 for rows that have a column with another label and s < limit; labels are from `labels_below`."""
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    top = len(starts) - 2
    for row in range(start, stop):
        own = x_labels[row]
        node, level = 0, top + 1
        while node >= 0:
            if level:
                level -= 1
                panel[level] = node
                base = starts[level] + node
                mixed = values_differ(load(least, base * WIDTH), own)
                mixed |= values_differ(load(minus_most, base * WIDTH), -own)
                pending[level] = values_below(box_distances(x, row, d, low, high, base, manhattan), limit) & mixed
            elif values_below(panel_distances(x, row, d, panels, node, manhattan), limit) & values_differ(
                load(y_labels, node * WIDTH), own
            ):
                out[row] = 1
                break
            node, level = _next_box(pending, panel, level, top)


@inlined
def _insert(value: Any, number: int, row: int, near: Any, near_index: Any) -> None:
    """Insert a column into a row's list, which is sorted by (s, number), and drop the last column."""
    q = near.shape[1] - 1
    while q > 0 and (near[row, q - 1] > value or (near[row, q - 1] == value and near_index[row, q - 1] > number)):
        near[row, q] = near[row, q - 1]
        near_index[row, q] = near_index[row, q - 1]
        q -= 1
    near[row, q] = value
    near_index[row, q] = number


@inlined
def _compare_panel(
    x: Any, row: int, d: int, panels: Any, node: int, manhattan: bool, index: Any, left_out: int, ranks: Any, own: int,
    y_start: int, near: Any, near_index: Any, limit: Any, number: int,
) -> Any:  # fmt: skip
    """Insert the columns of a panel into a row's list, whose last entry is (limit, number); return the new last entry.

    If there are ranks, columns with the rank `own` or a higher rank are skipped.
    """
    s, last = panel_distances(x, row, d, panels, node, manhattan), near.shape[1] - 1
    if len(ranks):
        maybe = ordered_below(s, limit, load(ranks, node * WIDTH), own)
    else:
        maybe = values_below(s, np.nextafter(limit, x.dtype.type(np.inf)))
    while maybe:
        lane = first_lane(maybe)
        maybe &= maybe - 1
        value, found = element(s, lane), index[node * WIDTH + lane]
        if found != left_out and (value < limit or (value == limit and found < number)):
            _insert(value, found + y_start, row, near, near_index)
            limit, number = near[row, last], near_index[row, last] - y_start
    return limit, number


@inlined
def _nearest_box(
    bounds: Any, pending: Any, panel: Any, level: int, top: int, starts: Any, least: Any, limit: Any, number: int
) -> Any:
    """Take the nearest pending box within the limit, from the lowest level that has one; return as `_next_box` does.

    A box exactly at the limit counts if it has a column with a lower number.
    """
    while level <= top:
        left = pending[level]
        if not left:
            level += 1
            continue
        lane = first_lane(left)
        bound = bounds[level * WIDTH + lane]
        left &= left - 1
        while left:
            other = first_lane(left)
            left &= left - 1
            if bounds[level * WIDTH + other] < bound:
                lane, bound = other, bounds[level * WIDTH + other]
        if bound > limit:
            level += 1
            continue
        pending[level] &= ~(np.int64(1) << lane)
        node = panel[level] * WIDTH + lane
        if bound < limit or least[starts[level] * WIDTH + node] < number:
            return node, level
    return -1, level


@allocating
def nearest(
    x: Any, d: int, start: int, stop: int, index: Any, panels: Any, low: Any, high: Any, starts: Any, least: Any,
    y_start: int, numbers: Any, ranks: Any, least_ranks: Any, own_ranks: Any, first: int, manhattan: bool, near: Any,
    near_index: Any,
) -> int:  # fmt: skip
    """Insert the smallest (s, index) of all columns into sorted lists, and return the number of panels compared.

    The nearest boxes are opened first. Each row skips the column with the number numbers[row].

    With ranks from `ranks_below`, only columns with a lower rank than the row count. The rows are then the columns from
    the position `first` on, and a row's own panel is compared first, because most rows have their nearest column of
    lower rank close by.
    """
    top, last = len(starts) - 2, near.shape[1] - 1
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    bounds = np.empty(LEVELS * WIDTH, x.dtype)
    infinity = x.dtype.type(np.inf)
    ranked, own, seen = len(ranks) > 0, np.int32(0), 0
    for row in range(start, stop):
        left_out = numbers[row] - y_start
        limit, number = near[row, last], near_index[row, last] - y_start
        if ranked:
            own, node = own_ranks[row], (first + row) // WIDTH
            limit, number = _compare_panel(
                x, row, d, panels, node, manhattan, index, left_out, ranks, own, y_start, near, near_index, limit,
                number,
            )  # fmt: skip
        node, level = 0, top + 1
        while node >= 0:
            if level:
                level -= 1
                panel[level] = node
                s = box_distances(x, row, d, low, high, starts[level] + node, manhattan)
                store(bounds, level * WIDTH, s)
                if ranked:
                    pending[level] = ordered_below(s, limit, load(least_ranks, (starts[level] + node) * WIDTH), own)
                else:
                    pending[level] = values_below(s, infinity)
            else:
                seen += 1
                limit, number = _compare_panel(
                    x, row, d, panels, node, manhattan, index, left_out, ranks, own, y_start, near, near_index, limit,
                    number,
                )  # fmt: skip
            node, level = _nearest_box(bounds, pending, panel, level, top, starts, least, limit, number)
    return seen


@inlined
def _pairs_of_panels(
    x: Any, d: int, columns: int, own: int, panels: Any, other: int, low: int, high: int, shift: int, out: Any,
    shared: bool,
) -> int:  # fmt: skip
    """Count the pairs of a panel's columns with another panel's columns, or with later columns of the same panel."""
    below, end = 0, min((own + 1) * WIDTH, columns)
    valid = FULL if (other + 1) * WIDTH <= columns else (1 << (columns - other * WIDTH)) - 1
    for i in range(own * WIDTH, end, 4):
        first = i - own * WIDTH + 1 if own == other else -WIDTH
        below += tally_rows(x, i, end, d, panels, other, False, valid, first, low, high, shift, out, shared)
    return below


@allocating
def histogram(
    x: Any, d: int, own: int, panels: Any, box_low: Any, box_high: Any, starts: Any, columns: int, low: int, high: int,
    shift: int, out: Any, shared: bool,
) -> int:  # fmt: skip
    """Count pairs of a panel's columns with each other and with all later columns, like `cpu_loops.histogram`."""
    pending, panel = np.zeros(LEVELS, np.int64), np.zeros(LEVELS, np.int64)
    top, below = len(starts) - 2, 0
    rows = min(WIDTH, columns - own * WIDTH)
    box = (own // WIDTH * d) * WIDTH + own % WIDTH
    node, level = 0, top + 1
    while node >= 0:
        if level:
            level -= 1
            panel[level] = node
            near, far = box_bounds(
                box_low, box, box_high, box, WIDTH, d, box_low, box_high, starts[level] + node, False
            )
            last = _last_lane(node, level, columns)
            later = FULL if last >= WIDTH - 1 else (1 << (last + 1)) - 1
            ancestor = (own >> (LOG_WIDTH * level)) - node * WIDTH  # negative: all boxes come later
            if ancestor >= 0:
                later &= FULL << (ancestor + 1)
            inside = bits_below(far, low) & later
            if inside:
                below += _columns_in(inside, node, level, columns) * rows
            undecided = bits_below(near, high) & later & ~inside
            left = undecided
            while left:  # if the bounds of a box are in one bin, all of its pairs are
                lane = first_lane(left)
                left &= left - 1
                first = bits_of(near, lane)
                if first >= low and (first - low) >> shift == (bits_of(far, lane) - low) >> shift:
                    only = np.int64(1) << lane
                    undecided &= ~only
                    pairs = _columns_in(only, node, level, columns) * rows
                    if shared:
                        add_to(out, 1 + ((first - low) >> shift), pairs)
                    else:
                        out[1 + ((first - low) >> shift)] += pairs
            if ancestor >= 0:
                undecided |= np.int64(1) << ancestor
            pending[level] = undecided
        else:
            below += _pairs_of_panels(x, d, columns, own, panels, node, low, high, shift, out, shared)
        node, level = _next_box(pending, panel, level, top)
    return below
