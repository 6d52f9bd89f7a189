"""All pairs, by tiles: the inner loops of `mgclust.kernels.pairs.cpu`.

Columns are packed into *panels* of 32, feature by feature, so that a panel's k-th feature is one vector::

    y (k, d) row-major          panels: [panel][feature][column within the panel]

         rows of x              one panel (d x 32 reals: in L1 up to d ~ 300, in L2 beyond)
       i  . . . . d      k=0  |y0 y1 y2 ... y31|     s_i    += (x_i   - y)^2     4 rows x 32 columns of s
       i+1. . . . d      k=1  |y0 y1 y2 ... y31|     s_i+1  += (x_i+1 - y)^2     stay in registers while
       i+2               ...  |                |     s_i+2  += (x_i+2 - y)^2     k runs over the features
       i+3               d-1  |                |     s_i+3  += (x_i+3 - y)^2

Each pair takes d subtractions and d fused multiply-adds, in one chain over k, and almost no memory traffic
(a panel is reused by ROWS rows: 128 d bytes per 32 * ROWS pairs). A product of two rows takes only the d
multiply-adds, but also needs an error bound, and a second pass over borderline pairs. `cpu_products` uses products for
more than 16 features, and these loops decide the pairs that products leave open.

Further cost per pair: Gaussian 13 instructions, count and neighbors 1 compare, histogram 2 compares, nearest 2
compares. Rare cases (a pair inside the bracket, a nearer point) are found as set bits of the compare's mask.

All functions release the GIL and take flat arrays. A row's result is computed in one call.
All loops are in one file, because each loop processes the four rows whose distances `pair_distances` has computed.

The code for each of the four rows is written out, here and in other uses of `pair_distances`. An inlined function that
is called for each row gave the same bits. But with it, 20,000 x 64 rows took 3% (border) to 5% (neighbors) more time of
a core, and neighbors took 0.5 s to compile instead of 0.3 s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.toolkit.cpu_compiler import compiled, inlined
from mgclust.kernels.toolkit.simd import (
    WIDTH,
    absolute_step,
    add,
    bits_below,
    broadcast,
    element,
    exp2_of,
    first_lane,
    lanes_of,
    load,
    multiply,
    ordered_below,
    splat,
    square_step,
    store,
    total,
    values_below,
    values_differ,
)
from mgclust.kernels.toolkit.simd_steps import add_bins, lesser

__all__ = [
    "MAX_EXPECTED",
    "NO_COLUMN",
    "ROWS",
    "SUM_TILE",
    "border",
    "count",
    "distances",
    "gaussian",
    "histogram",
    "nearest",
    "neighbors",
    "pack",
    "room_for_sums",
]

SUM_TILE = 512
ROWS = 64  # rows that are combined with a panel while it is in L1; their partial sums are 64 * 32 reals
FULL = (1 << WIDTH) - 1
NO_COLUMN = np.int64(-1)  # no column is skipped; an int64, because a literal would be compiled separately
CHEAP = 16  # up to this number of features, `neighbors` computes distances twice
MAX_EXPECTED, MIN_EXPECTED = 23, 4  # bounds for this: at most 23 neighbours (of WIDTH lanes), and at least 4 panels


@compiled
def pack(y: Any, start: int, panels: Any, first: int, last: int) -> None:
    """Fill panels first..last-1 with the columns of y from row `start` on, and with infinity after the last column."""
    n, d = y.shape
    for p in range(first, last):
        for lane in range(WIDTH):
            j = start + p * WIDTH + lane
            base = p * d * WIDTH + lane
            if j < n:
                for k in range(d):
                    panels[base + k * WIDTH] = y[j, k]
            else:
                for k in range(d):
                    panels[base + k * WIDTH] = np.inf


@inlined
def pair_distances(x: Any, i: int, last: int, d: int, panels: Any, p: int, manhattan: bool) -> Any:
    """Reduced distances of rows i..i+3 to a panel, as four vectors; row `last` is used instead of later rows."""
    return four_distances(x, i, min(i + 1, last), min(i + 2, last), min(i + 3, last), d, panels, p, manhattan)


@inlined
def four_distances(
    x: Any, first: int, second: int, third: int, fourth: int, d: int, panels: Any, p: int, manhattan: bool
) -> Any:
    """Reduced distances of four rows to a panel, as four vectors."""
    a, b, c, e = first * d, second * d, third * d, fourth * d
    base = p * d * WIDTH
    s0 = splat(x.dtype.type(0))
    s1 = s0
    s2 = s0
    s3 = s0
    if manhattan:
        for k in range(d):
            y = load(panels, base + k * WIDTH)
            s0 = absolute_step(s0, broadcast(x, a + k), y)
            s1 = absolute_step(s1, broadcast(x, b + k), y)
            s2 = absolute_step(s2, broadcast(x, c + k), y)
            s3 = absolute_step(s3, broadcast(x, e + k), y)
    else:
        for k in range(d):
            y = load(panels, base + k * WIDTH)
            s0 = square_step(s0, broadcast(x, a + k), y)
            s1 = square_step(s1, broadcast(x, b + k), y)
            s2 = square_step(s2, broadcast(x, c + k), y)
            s3 = square_step(s3, broadcast(x, e + k), y)
    return s0, s1, s2, s3


@inlined
def valid_lanes(panel: int, columns: int) -> int:
    """Mask of a panel's lanes that are columns, not padding."""
    return FULL if (panel + 1) * WIDTH <= columns else (1 << (columns - panel * WIDTH)) - 1


@inlined
def _gaussian_step(sums: Any, r: int, s: Any, coefficient: Any, squared: bool) -> None:
    if squared:
        s = multiply(s, s)
    store(sums, r * WIDTH, add(load(sums, r * WIDTH), exp2_of(multiply(s, coefficient))))


@inlined
def keep_nearer(s: Any, i: int, valid: int, number: int, own: int, near: Any, near_index: Any) -> None:
    """Insert the lanes nearer than row i's last neighbour into its sorted list, except the column `own`.

    Equal distances keep their order of arrival.
    """
    last = near.shape[1] - 1
    nearer = values_below(s, near[i, last]) & valid
    while nearer:
        lane = first_lane(nearer)
        nearer &= nearer - 1
        value = element(s, lane)
        q = last
        if value < near[i, q] and number + lane != own:
            while q > 0 and near[i, q - 1] > value:
                near[i, q] = near[i, q - 1]
                near_index[i, q] = near_index[i, q - 1]
                q -= 1
            near[i, q] = value
            near_index[i, q] = number + lane


@inlined
def expect(s: Any, i: int, near: Any) -> None:
    """Fill the empty list of row i with a bound: the (length + 1)-th nearest lane, as one may be the row itself."""
    far = near.dtype.type(-1)
    for lane in range(WIDTH):
        value = element(s, lane)
        if value > far and lanes_of(values_below(s, value)) <= near.shape[1]:
            far = value
    for q in range(near.shape[1]):
        near[i, q] = np.nextafter(far, near.dtype.type(np.inf))


@inlined
def mark_own(own: Any, numbers: Any, start: int, stop: int, number: int, mark: bool) -> None:
    """Mark the panels that contain columns that rows skip; skipped columns of other batches are in no panel."""
    for i in range(start, stop):
        p = (numbers[i] - number) // WIDTH
        if 0 <= p < own.size:
            own[p] = mark


@inlined
def swap_own(sums: Any, saved: Any, r: int, rows: int, numbers: Any, i: int, number: int) -> None:
    """Save the sums of lanes that rows from i on skip, before a panel is added; a second call restores these sums."""
    for q in range(rows):
        lane = numbers[i + q] - number
        if 0 <= lane < WIDTH:
            at = (r + q) * WIDTH + lane
            saved[q], sums[at] = sums[at], saved[q]


def room_for_sums(factors: int, columns: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Allocate the arrays for one call of `gaussian` with this number of factors."""
    panels = (columns + WIDTH - 1) // WIDTH
    return (np.empty(factors * rows_at_a_time(factors) * WIDTH, dtype), np.empty(4, dtype), np.zeros(panels, np.bool_))


def rows_at_a_time(factors: int) -> int:
    """Return the number of rows to combine with a panel, so that the partial sums of all factors stay in L1."""
    return max(4, ROWS // factors // 4 * 4)


@compiled
def gaussian(
    x: Any,
    d: int,
    start: int,
    stop: int,
    panels: Any,
    columns: int,
    manhattan: bool,
    factors: Any,
    power: int,
    out: Any,
    numbers: Any,
    number: int,
    near: Any,
    near_index: Any,
    sums: Any,
    saved: Any,
    own: Any,
) -> None:
    """Add to out[f] the sum of 2^(factors[f] s^power), for rows start..stop-1; `number` is the number of column 0.

    Row i skips the column with the number numbers[i]. If `near` has columns, the nearest columns are also kept in it,
    sorted by s. The last three arguments are temporary arrays; `own` marks panels with skipped columns.
    """
    count = (columns + WIDTH - 1) // WIDTH
    step = len(sums) // (len(factors) * WIDTH)
    squared = power == 2
    keep = near.shape[1] > 0
    tile = SUM_TILE // WIDTH
    for begin in range(start, stop, step):
        end = min(begin + step, stop)
        mark_own(own, numbers, begin, end, number, np.bool_(True))
        for first in range(0, count, tile):
            sums[:] = 0
            for p in range(first, min(first + tile, count)):
                valid = valid_lanes(p, columns)
                meets_itself = own[p]
                for i in range(begin, end, 4):
                    s0, s1, s2, s3 = pair_distances(x, i, end - 1, d, panels, p, manhattan)
                    if keep:
                        j = number + p * WIDTH
                        keep_nearer(s0, i, valid, j, NO_COLUMN, near, near_index)
                        if i + 1 < end:
                            keep_nearer(s1, i + 1, valid, j, NO_COLUMN, near, near_index)
                        if i + 2 < end:
                            keep_nearer(s2, i + 2, valid, j, NO_COLUMN, near, near_index)
                        if i + 3 < end:
                            keep_nearer(s3, i + 3, valid, j, NO_COLUMN, near, near_index)
                    for f in range(len(factors)):
                        r, coefficient = i - begin + f * step, broadcast(factors, f)
                        if meets_itself:
                            swap_own(sums, saved, r, min(4, end - i), numbers, i, number + p * WIDTH)
                        _gaussian_step(sums, r, s0, coefficient, squared)
                        _gaussian_step(sums, r + 1, s1, coefficient, squared)
                        _gaussian_step(sums, r + 2, s2, coefficient, squared)
                        _gaussian_step(sums, r + 3, s3, coefficient, squared)
                        if meets_itself:
                            swap_own(sums, saved, r, min(4, end - i), numbers, i, number + p * WIDTH)
            for f in range(len(factors)):
                for i in range(begin, end):
                    out[f, i] += np.float64(total(load(sums, (i - begin + f * step) * WIDTH)))
        mark_own(own, numbers, begin, end, number, np.bool_(False))


@compiled
def neighbors(
    x: Any,
    d: int,
    start: int,
    stop: int,
    panels: Any,
    columns: int,
    manhattan: bool,
    numbers: Any,
    number: int,
    near: Any,
    near_index: Any,
) -> None:
    """Insert the nearest columns into sorted lists, for rows start..stop-1; `number` is the number of column 0.

    Row i skips the column with the number numbers[i]. If distances are cheap, a first pass finds the smallest distance
    in each lane over all panels. Without this pass, several times as many columns would be inserted and removed again.
    """
    count = (columns + WIDTH - 1) // WIDTH
    infinite = near.dtype.type(np.inf)
    expects = d <= CHEAP and near.shape[1] <= MAX_EXPECTED and count >= MIN_EXPECTED
    for begin in range(start, stop, ROWS):
        end = min(begin + ROWS, stop)
        if expects:
            for i in range(begin, end, 4):
                m0 = splat(infinite)
                m1 = m0
                m2 = m0
                m3 = m0
                for p in range(count):
                    s0, s1, s2, s3 = pair_distances(x, i, end - 1, d, panels, p, manhattan)
                    m0, m1, m2, m3 = lesser(m0, s0), lesser(m1, s1), lesser(m2, s2), lesser(m3, s3)
                if near[i, 0] == infinite:
                    expect(m0, i, near)
                if i + 1 < end and near[i + 1, 0] == infinite:
                    expect(m1, i + 1, near)
                if i + 2 < end and near[i + 2, 0] == infinite:
                    expect(m2, i + 2, near)
                if i + 3 < end and near[i + 3, 0] == infinite:
                    expect(m3, i + 3, near)
        for p in range(count):
            valid, j = valid_lanes(p, columns), number + p * WIDTH
            for i in range(begin, end, 4):
                s0, s1, s2, s3 = pair_distances(x, i, end - 1, d, panels, p, manhattan)
                keep_nearer(s0, i, valid, j, numbers[i], near, near_index)
                if i + 1 < end:
                    keep_nearer(s1, i + 1, valid, j, numbers[i + 1], near, near_index)
                if i + 2 < end:
                    keep_nearer(s2, i + 2, valid, j, numbers[i + 2], near, near_index)
                if i + 3 < end:
                    keep_nearer(s3, i + 3, valid, j, numbers[i + 3], near, near_index)


@compiled
def count(
    x: Any,
    d: int,
    start: int,
    stop: int,
    panels: Any,
    columns: int,
    manhattan: bool,
    threshold: Any,
    out: Any,
) -> None:
    """Add to out the number of columns with s < threshold, for rows start..stop-1."""
    limit = x.dtype.type(threshold)
    for begin in range(start, stop, ROWS):
        end = min(begin + ROWS, stop)
        for p in range((columns + WIDTH - 1) // WIDTH):
            valid = valid_lanes(p, columns)
            for i in range(begin, end, 4):
                s0, s1, s2, s3 = pair_distances(x, i, end - 1, d, panels, p, manhattan)
                out[i] += lanes_of(values_below(s0, limit) & valid)
                if i + 3 < end:
                    out[i + 1] += lanes_of(values_below(s1, limit) & valid)
                    out[i + 2] += lanes_of(values_below(s2, limit) & valid)
                    out[i + 3] += lanes_of(values_below(s3, limit) & valid)
                else:
                    if i + 1 < end:
                        out[i + 1] += lanes_of(values_below(s1, limit) & valid)
                    if i + 2 < end:
                        out[i + 2] += lanes_of(values_below(s2, limit) & valid)


@inlined
def tally(s: Any, valid: int, low: int, high: int, shift: int, out: Any, shared: bool) -> int:
    """Count a vector: return how many lanes are below the bracket, and add lanes within the bracket to their bins."""
    below = bits_below(s, low) & valid
    within = (bits_below(s, high) & valid) ^ below
    if within:
        add_bins(out, shared, s, within, low, shift)
    return lanes_of(below)


@inlined
def tally_rows(
    x: Any, i: int, end: int, d: int, panels: Any, p: int, manhattan: bool, valid: int, first: int, low: int, high: int,
    shift: int, out: Any, shared: bool,
) -> int:  # fmt: skip
    """Count the pairs of rows i..i+3 with a panel: lanes from `first` on for row i, and one lane fewer per next row."""
    s0, s1, s2, s3 = pair_distances(x, i, end - 1, d, panels, p, manhattan)
    m0, m1, m2, m3 = valid, valid, valid, valid
    if first + 3 > 0:
        m0 &= FULL << max(first, 0)
        m1 &= FULL << max(first + 1, 0)
        m2 &= FULL << max(first + 2, 0)
        m3 &= FULL << max(first + 3, 0)
    below = tally(s0, m0, low, high, shift, out, shared)
    if i + 1 < end:
        below += tally(s1, m1, low, high, shift, out, shared)
    if i + 2 < end:
        below += tally(s2, m2, low, high, shift, out, shared)
    if i + 3 < end:
        below += tally(s3, m3, low, high, shift, out, shared)
    return below


@compiled
def histogram(
    x: Any,
    d: int,
    start: int,
    stop: int,
    panels: Any,
    columns: int,
    manhattan: bool,
    skip: int,
    low: int,
    high: int,
    shift: int,
    out: Any,
    shared: bool,
) -> int:
    """Count pairs by the bits of s: return the number below low, and add pairs from low to below high to bins of out.

    Column j is paired with row i if j > i - skip; skip >= stop takes all columns.
    """
    below = 0
    for begin in range(start, stop, ROWS):
        end = min(begin + ROWS, stop)
        for p in range(max(0, begin - skip + 1) // WIDTH, (columns + WIDTH - 1) // WIDTH):
            valid = valid_lanes(p, columns)
            for i in range(begin, end, 4):
                first = i - skip + 1 - p * WIDTH  # lane of row i's first column
                if first >= WIDTH:
                    break
                below += tally_rows(x, i, end, d, panels, p, manhattan, valid, first, low, high, shift, out, shared)
    return below


@inlined
def _improve(
    s: Any, order: Any, x_order: Any, i: int, valid: int, numbers: Any, j: int, best: Any, best_index: Any
) -> None:
    nearer = ordered_below(s, best[i], order, x_order[i]) & valid
    while nearer:
        lane = first_lane(nearer)
        nearer &= nearer - 1
        value, number = element(s, lane), numbers[j + lane]
        if value < best[i] or (value == best[i] and number < best_index[i]):
            best[i] = value
            best_index[i] = number


@compiled
def nearest(
    x: Any,
    d: int,
    rows: int,
    panels: Any,
    columns: int,
    manhattan: bool,
    x_order: Any,
    y_order: Any,
    numbers: Any,
    best: Any,
    best_index: Any,
) -> None:
    """Lower (best, best_index) to the smallest (s, numbers[j]) of columns with y_order[j] < x_order[i].

    Rows and columns must be sorted by order, so that about half of the pairs can be skipped; y_order is padded.
    """
    for begin in range(0, rows, ROWS):
        end = min(begin + ROWS, rows)
        for p in range((columns + WIDTH - 1) // WIDTH):
            j = p * WIDTH
            if y_order[j] >= x_order[end - 1]:
                break
            valid = valid_lanes(p, columns)
            order = load(y_order, j)
            for i in range(begin, end, 4):
                if y_order[j] >= x_order[min(i + 3, end - 1)]:
                    continue
                s0, s1, s2, s3 = pair_distances(x, i, end - 1, d, panels, p, manhattan)
                _improve(s0, order, x_order, i, valid, numbers, j, best, best_index)
                if i + 1 < end:
                    _improve(s1, order, x_order, i + 1, valid, numbers, j, best, best_index)
                if i + 2 < end:
                    _improve(s2, order, x_order, i + 2, valid, numbers, j, best, best_index)
                if i + 3 < end:
                    _improve(s3, order, x_order, i + 3, valid, numbers, j, best, best_index)


@compiled
def border(
    x: Any,
    d: int,
    start: int,
    stop: int,
    panels: Any,
    columns: int,
    manhattan: bool,
    x_labels: Any,
    y_labels: Any,
    threshold: Any,
    out: Any,
) -> None:
    """Set out to 1 for rows that have a column with another label and s < threshold; y_labels is padded."""
    limit = x.dtype.type(threshold)
    for begin in range(start, stop, ROWS):
        end = min(begin + ROWS, stop)
        for p in range((columns + WIDTH - 1) // WIDTH):
            valid = valid_lanes(p, columns)
            labels = load(y_labels, p * WIDTH)
            for i in range(begin, end, 4):
                s0, s1, s2, s3 = pair_distances(x, i, end - 1, d, panels, p, manhattan)
                if values_below(s0, limit) & values_differ(labels, x_labels[i]) & valid:
                    out[i] = 1
                if i + 1 < end and values_below(s1, limit) & values_differ(labels, x_labels[i + 1]) & valid:
                    out[i + 1] = 1
                if i + 2 < end and values_below(s2, limit) & values_differ(labels, x_labels[i + 2]) & valid:
                    out[i + 2] = 1
                if i + 3 < end and values_below(s3, limit) & values_differ(labels, x_labels[i + 3]) & valid:
                    out[i + 3] = 1


@compiled
def distances(
    x: Any, d: int, start: int, stop: int, panels: Any, columns: int, manhattan: bool, first: int, out: Any, buffer: Any
) -> None:
    """Write s into out[i, first + j] for rows start..stop-1; the buffer has room for 4 rows and a panel."""
    for p in range((columns + WIDTH - 1) // WIDTH):
        width = min(WIDTH, columns - p * WIDTH)
        for i in range(start, stop, 4):
            s0, s1, s2, s3 = pair_distances(x, i, stop - 1, d, panels, p, manhattan)
            store(buffer, 0, s0)
            store(buffer, WIDTH, s1)
            store(buffer, 2 * WIDTH, s2)
            store(buffer, 3 * WIDTH, s3)
            for r in range(min(4, stop - i)):
                for lane in range(width):
                    out[i + r, first + p * WIDTH + lane] = buffer[r * WIDTH + lane]
