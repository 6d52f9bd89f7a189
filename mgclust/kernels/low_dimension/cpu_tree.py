"""Searches in a `mgclust.kernels.low_dimension.box_tree.BoxTree`: the inner loops.

`nearest` goes down the tree for one row at a time: its own leaf first (most rows find their nearest higher
row there), then best box first, leaving out boxes that are farther than what it has or hold no denser row. A
step tests 32 boxes or 32 rows in ~20 instructions; 2-D rows take about a dozen steps each.

`histogram` pairs every leaf with what comes after it: boxes wholly below the bracket are counted at once,
boxes beyond it are dropped, the others opened; at the leaves the 32 x 32 pairs are compared as everywhere
else. Only pairs near the shell |x - y| = dc are computed: ~ n^1.5 of them in 2-D, n^(5/3) in 3-D. `count`
and `border` do the same for one row at a time: a row meets the boxes that its sphere cuts, or that hold
another label.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import intrinsic

from mgclust.kernels.pairs.column_boxes import NO_COLUMN
from mgclust.kernels.pairs.cpu_column_boxes import box_distances, gap_step, larger, panel_distances
from mgclust.kernels.pairs.cpu_loops import FULL, pair_distances, tally
from mgclust.kernels.toolkit.cpu_compiler import allocating, inlined
from mgclust.kernels.toolkit.simd import (
    WIDTH,
    VectorFormat,
    add_to,
    bits_below,
    bits_of,
    broadcast,
    call_intrinsic,
    element,
    first_lane,
    lanes_of,
    load,
    ordered_below,
    splat,
    store,
    values_below,
    values_differ,
)

__all__ = ["border", "count", "histogram", "nearest"]

LEVELS = 8  # 32^8 leaves
LOG_WIDTH = 5


@intrinsic
def span_step(_: Any, s: Any, own_low: Any, own_high: Any, low: Any, high: Any) -> Any:
    """Add one coordinate's term of the largest squared distance between two boxes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, a, b, c, e = arguments
        span = larger(builder, builder.fsub(e, a), builder.fsub(b, c))
        return call_intrinsic(builder, f"llvm.fma.{VectorFormat(s.scalar).suffix}", [span, span, total])

    return s(s, own_low, own_high, low, high), generate


@inlined
def _box_bounds(a: Any, a_base: int, b: Any, b_base: int, step: int, d: int, low: Any, high: Any, panel: int) -> Any:
    """Bounds, below and above, of the squared distances of a box (from a to b) to a panel of boxes."""
    near = splat(a.dtype.type(0))
    far = near
    for k in range(d):
        own_low, own_high = broadcast(a, a_base + k * step), broadcast(b, b_base + k * step)
        base = (panel * d + k) * WIDTH
        y_low, y_high = load(low, base), load(high, base)
        near = gap_step(near, own_low, own_high, y_low, y_high)
        far = span_step(far, own_low, own_high, y_low, y_high)
    return near, far


@inlined
def _scan(
    x: Any, row: int, d: int, panels: Any, leaf: int, order: Any, own: Any, index: Any, best: Any, found: Any
) -> Any:
    """Compare a row with a leaf: the lexicographic minimum of (s, row number) so far."""
    s = panel_distances(x, row, d, panels, leaf, False)
    nearer = ordered_below(s, best, load(order, leaf * WIDTH), own)
    while nearer:
        lane = first_lane(nearer)
        nearer &= nearer - 1
        value, number = element(s, lane), index[leaf * WIDTH + lane]
        if value < best or (value == best and number < found):
            best, found = value, number
    return best, found


@allocating
def nearest(
    x: Any, d: int, start: int, stop: int, panels: Any, low: Any, high: Any, starts: Any, order: Any, least_order: Any,
    index: Any, least_index: Any, offset: int, best: Any, best_index: Any,
) -> None:  # fmt: skip
    """Nearest denser row of the rows at positions start..stop-1, written from best[start - offset] on."""
    top = len(starts) - 2
    pending = np.zeros(LEVELS, np.int64)
    panel = np.zeros(LEVELS, np.int64)
    bounds = np.empty(LEVELS * WIDTH, x.dtype)
    for row in range(start, stop):
        own = order[row]
        near, found = x.dtype.type(np.inf), np.int64(NO_COLUMN)
        near, found = _scan(x, row, d, panels, row // WIDTH, order, own, index, near, found)
        level = top
        panel[level] = starts[level]
        s = box_distances(x, row, d, low, high, panel[level], False)
        store(bounds, level * WIDTH, s)
        pending[level] = ordered_below(s, near, load(least_order, panel[level] * WIDTH), own)
        while level <= top:
            if not pending[level]:
                level += 1
                continue
            left = pending[level]
            lane = first_lane(left)
            bound = bounds[level * WIDTH + lane]
            left &= left - 1
            while left:  # the nearest of the boxes that are left
                other = first_lane(left)
                left &= left - 1
                if bounds[level * WIDTH + other] < bound:
                    lane, bound = other, bounds[level * WIDTH + other]
            if bound > near:
                pending[level] = 0
                continue
            pending[level] &= ~(np.int64(1) << lane)
            node = panel[level] * WIDTH + lane
            if bound == near and least_index[node] >= found:
                continue
            child = node - starts[level] * WIDTH
            if level == 0:
                near, found = _scan(x, row, d, panels, child, order, own, index, near, found)
                continue
            level -= 1
            panel[level] = starts[level] + child
            s = box_distances(x, row, d, low, high, panel[level], False)
            store(bounds, level * WIDTH, s)
            pending[level] = ordered_below(s, near, load(least_order, panel[level] * WIDTH), own)
        best[row - offset] = near
        best_index[row - offset] = found if found != NO_COLUMN else -1


@inlined
def _nodes(panel: int, level: int, n: int) -> int:
    """Number of nodes of a panel."""
    size = WIDTH << (LOG_WIDTH * level)
    return min(WIDTH, (n + size - 1) // size - panel * WIDTH)


@inlined
def _rows_in(mask: int, panel: int, level: int, nodes: int, n: int) -> int:
    """Number of rows that a mask's nodes hold together: all are full but the last of all."""
    size = WIDTH << (LOG_WIDTH * level)
    rows = lanes_of(mask) * size
    if (mask >> (nodes - 1)) & 1:
        rows -= max(0, (panel * WIDTH + nodes) * size - n)
    return rows


@allocating
def count(
    x: Any, d: int, n: int, start: int, stop: int, panels: Any, low: Any, high: Any, starts: Any, threshold: Any,
    offset: int, out: Any,
) -> None:  # fmt: skip
    """Number of rows with s < threshold, for the rows at positions start..stop-1; added from out[start - offset] on."""
    limit = x.dtype.type(threshold)
    top = len(starts) - 2
    pending = np.zeros(LEVELS, np.int64)
    panel = np.zeros(LEVELS, np.int64)
    for row in range(start, stop):
        within = 0
        level = top
        panel[level] = 0
        fresh = True
        while level <= top:
            if fresh:
                fresh = False
                near, far = _box_bounds(x, row * d, x, row * d, 1, d, low, high, starts[level] + panel[level])
                nodes = _nodes(panel[level], level, n)
                exists = FULL if nodes == WIDTH else (1 << nodes) - 1
                inside = values_below(far, limit) & exists
                if inside:
                    within += _rows_in(inside, panel[level], level, nodes, n)
                pending[level] = values_below(near, limit) & exists & ~inside
            if not pending[level]:
                level += 1
                continue
            node = panel[level] * WIDTH + first_lane(pending[level])
            pending[level] &= pending[level] - 1
            if level:
                level -= 1
                panel[level] = node
                fresh = True
            else:
                within += lanes_of(values_below(panel_distances(x, row, d, panels, node, False), limit))
        out[row - offset] += within


@allocating
def border(
    x: Any, d: int, start: int, stop: int, panels: Any, low: Any, high: Any, starts: Any, labels: Any, least: Any,
    minus_most: Any, threshold: Any, offset: int, out: Any,
) -> None:  # fmt: skip
    """Mark rows that have a row of another label with s < threshold; labels by position, their extremes by node."""
    limit = x.dtype.type(threshold)
    top = len(starts) - 2
    pending = np.zeros(LEVELS, np.int64)
    panel = np.zeros(LEVELS, np.int64)
    for row in range(start, stop):
        own = labels[row]
        level = top
        panel[level] = 0
        fresh = True
        while level <= top:
            if fresh:
                fresh = False
                base = starts[level] + panel[level]
                mixed = values_differ(load(least, base * WIDTH), own)
                mixed |= values_differ(load(minus_most, base * WIDTH), -own)
                pending[level] = values_below(box_distances(x, row, d, low, high, base, False), limit) & mixed
            if not pending[level]:
                level += 1
                continue
            node = panel[level] * WIDTH + first_lane(pending[level])
            pending[level] &= pending[level] - 1
            if level:
                level -= 1
                panel[level] = node
                fresh = True
            elif values_below(panel_distances(x, row, d, panels, node, False), limit) & values_differ(
                load(labels, node * WIDTH), own
            ):
                out[row - offset] = 1
                break


@inlined
def _leaf_pairs(
    x: Any, d: int, n: int, leaf: int, panels: Any, other: int, low: int, high: int, shift: int, out: Any,
    shared: bool,
) -> int:  # fmt: skip
    """Compare the rows of a leaf with those of another one, or with the later ones of the same."""
    below = 0
    end = min((leaf + 1) * WIDTH, n)
    valid = FULL if (other + 1) * WIDTH <= n else (1 << (n - other * WIDTH)) - 1
    same = leaf == other
    for i in range(leaf * WIDTH, end, 4):
        s0, s1, s2, s3 = pair_distances(x, i, end - 1, d, panels, other, False)
        m0, m1, m2, m3 = valid, valid, valid, valid
        if same:
            after = FULL << (i - leaf * WIDTH + 1)
            m0 &= after
            m1 &= after << 1
            m2 &= after << 2
            m3 &= after << 3
        below += tally(s0, m0, low, high, shift, out, shared)
        if i + 1 < end:
            below += tally(s1, m1, low, high, shift, out, shared)
        if i + 2 < end:
            below += tally(s2, m2, low, high, shift, out, shared)
        if i + 3 < end:
            below += tally(s3, m3, low, high, shift, out, shared)
    return below


@allocating
def histogram(
    x: Any, d: int, n: int, leaf: int, panels: Any, box_low: Any, box_high: Any, starts: Any, low: int, high: int,
    shift: int, out: Any, shared: bool,
) -> int:  # fmt: skip
    """Pairs of a leaf's rows with each other and with all later ones; as `cpu_loops.histogram` counts them."""
    below = 0
    top = len(starts) - 2
    open_boxes = np.zeros(LEVELS, np.int64)
    panel = np.zeros(LEVELS, np.int64)
    rows = min(WIDTH, n - leaf * WIDTH)
    own = (leaf // WIDTH * d) * WIDTH + leaf % WIDTH
    level = top
    panel[level] = 0
    fresh = True
    while level <= top:
        if fresh:
            fresh = False
            near, far = _box_bounds(
                box_low, own, box_high, own, WIDTH, d, box_low, box_high, starts[level] + panel[level]
            )
            nodes = _nodes(panel[level], level, n)
            exists = FULL if nodes == WIDTH else (1 << nodes) - 1
            ancestor = (leaf >> (LOG_WIDTH * level)) - panel[level] * WIDTH
            later = exists if ancestor < 0 else exists & (FULL << (ancestor + 1))
            inside = bits_below(far, low) & later
            if inside:
                below += _rows_in(inside, panel[level], level, nodes, n) * rows
            undecided = bits_below(near, high) & later & ~inside
            left = undecided
            while left:  # boxes all of whose pairs fall into one bin
                lane = first_lane(left)
                left &= left - 1
                first = bits_of(near, lane)
                if first >= low and (first - low) >> shift == (bits_of(far, lane) - low) >> shift:
                    undecided &= ~(np.int64(1) << lane)
                    only = np.int64(1) << lane
                    held = _rows_in(only, panel[level], level, nodes, n)
                    if shared:
                        add_to(out, 1 + ((first - low) >> shift), held * rows)
                    else:
                        out[1 + ((first - low) >> shift)] += held * rows
            if ancestor >= 0:
                undecided |= np.int64(1) << ancestor
            open_boxes[level] = undecided
        if not open_boxes[level]:
            level += 1
            continue
        lane = first_lane(open_boxes[level])
        open_boxes[level] &= open_boxes[level] - 1
        node = panel[level] * WIDTH + lane
        if level == 0:
            below += _leaf_pairs(x, d, n, leaf, panels, node, low, high, shift, out, shared)
        else:
            level -= 1
            panel[level] = node
            fresh = True
    return below
