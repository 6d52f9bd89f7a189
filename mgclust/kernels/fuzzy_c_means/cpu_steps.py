"""Inner loops of `mgclust.kernels.fuzzy_c_means.cpu`, for a panel of rows and all centres.

Values for the next loop are stored in `g`, 32 rows per centre: 128 bytes per centre in float32, which stay in the L1 or
L2 cache. Measured on a Zen 5 core with at most 120e9 multiply-adds per second: distances 92e9 per second,
`add_by_features` 108e9, `add_by_lanes` 75e9 to 90e9. In addition, a division and a logarithm take 0.35 ns per pair, and
a power takes half as much again if m is not 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.toolkit.cpu_compiler import called, compiled, inlined
from mgclust.kernels.toolkit.simd import (
    WIDTH,
    add,
    broadcast,
    exp2_of,
    load,
    multiply,
    splat,
    square_step,
    store,
    total,
)
from mgclust.kernels.toolkit.simd_panels import fetch, pack_rows
from mgclust.kernels.toolkit.simd_steps import (
    add_doubles,
    divide,
    fma,
    greater,
    lesser,
    log2_of,
    quotient_or_one,
    subtract,
)

__all__ = ["CENTERS", "GROUP", "add_groups", "add_partial", "weigh_tile", "write_memberships"]

GROUP = 1024  # rows whose sums are in `real`
CENTERS = 6  # number of centres whose sums are in registers at a time if the lanes are features
LOWEST = -1e6  # used instead of log2 0: 2^LOWEST is 0, and so is 0 * LOWEST
CHAIN = 32  # number of centres whose p are added one after another


@inlined
def _distances(centers: Any, c: int, d: int, base: int, panels: Any, at: int, limit: Any, g: Any, to: int) -> Any:
    """Write s of a panel to all centres, 32 per centre; return the smallest. No s is infinite."""
    most = splat(limit)
    least = most
    zero = splat(panels.dtype.type(0))
    for j in range(0, c, 4):
        j1, j2, j3 = min(j + 1, c - 1), min(j + 2, c - 1), min(j + 3, c - 1)
        b0, b1, b2, b3 = base + j * d, base + j1 * d, base + j2 * d, base + j3 * d
        s0, s1, s2, s3 = zero, zero, zero, zero
        for f in range(d):
            row = load(panels, at + f * WIDTH)
            s0 = square_step(s0, row, broadcast(centers, b0 + f))
            s1 = square_step(s1, row, broadcast(centers, b1 + f))
            s2 = square_step(s2, row, broadcast(centers, b2 + f))
            s3 = square_step(s3, row, broadcast(centers, b3 + f))
        s0, s1, s2, s3 = lesser(s0, most), lesser(s1, most), lesser(s2, most), lesser(s3, most)
        store(g, to + j * WIDTH, s0)
        store(g, to + j1 * WIDTH, s1)
        store(g, to + j2 * WIDTH, s2)
        store(g, to + j3 * WIDTH, s3)
        least = lesser(least, lesser(lesser(s0, s1), lesser(s2, s3)))
    return least


@inlined
def _powers(least: Any, c: int, exponent: Any, plain: bool, times_ratio: bool, g: Any, to: int) -> Any:
    """Replace s in g by p, or by p r if `times_ratio`; return the sums of p, of p^2 and of p log2 p."""
    real = g.dtype.type
    zero = splat(real(0))
    sum_p, sum_squares, sum_logs = zero, zero, zero
    lowest, power = splat(real(LOWEST)), splat(exponent)
    # The additions form short chains. In one long chain, each of a thousand small p would be added to a sum with a
    # large p, and rounded to the precision of this sum.
    for first in range(0, c, CHAIN):
        few_p, few_squares, few_logs = zero, zero, zero
        for j in range(first, min(first + CHAIN, c)):
            at = to + j * WIDTH
            r = quotient_or_one(least, load(g, at))
            if plain:
                t, p = greater(log2_of(r), lowest), r
            else:
                t = greater(multiply(log2_of(r), power), lowest)
                p = exp2_of(t)
            store(g, at, multiply(p, r) if times_ratio else p)
            few_p = add(few_p, p)
            few_squares = fma(p, p, few_squares)
            few_logs = fma(p, t, few_logs)
        sum_p, sum_squares, sum_logs = add(sum_p, few_p), add(sum_squares, few_squares), add(sum_logs, few_logs)
    return sum_p, sum_squares, sum_logs


@inlined
def _accumulate(array: Any, at: int, value: Any) -> None:
    store(array, at, add(load(array, at), value))


@inlined
def _weigh(
    weight: Any, least: Any, sum_p: Any, sum_squares: Any, sum_logs: Any, c: int, constants: Any, plain: bool, g: Any,
    to: int, lanes: Any, base: int,
) -> None:  # fmt: skip
    """Replace p r in g by w u^m; add to the lanes' sums of w u^m, of the objective, of w u^2 and of -w u log2 u."""
    real = g.dtype.type
    inverse = divide(splat(real(1)), sum_p)
    logarithm = log2_of(sum_p)
    weighted = multiply(weight, inverse)
    if plain:
        factor, share = multiply(weighted, inverse), weighted
    else:
        m, scale, highest = constants[1], splat(constants[2]), splat(constants[3])
        factor = multiply(weight, exp2_of(lesser(fma(splat(-m), logarithm, scale), highest)))
        share = multiply(weight, exp2_of(lesser(fma(splat(real(1) - m), logarithm, scale), highest)))
    for j in range(c):
        value = multiply(load(g, to + j * WIDTH), factor)
        store(g, to + j * WIDTH, value)
        _accumulate(lanes, base + j * WIDTH, value)
    last = base + c * WIDTH
    _accumulate(lanes, last, multiply(share, least))
    _accumulate(lanes, last + WIDTH, multiply(multiply(weighted, inverse), sum_squares))
    _accumulate(lanes, last + 2 * WIDTH, fma(weight, logarithm, multiply(weighted, subtract(splat(real(0)), sum_logs))))


@called
def weigh_run(
    centers: Any, base: int, c: int, d: int, count: int, constants: Any, plain: bool, panels: Any, weights: int,
    g: Any, lanes: Any, to: int, x: Any, ahead: int,
) -> None:  # fmt: skip
    """Compute g of a batch of panels for one model; the weights of the rows begin at ``panels[weights]``.

    Meanwhile, the rows from x[ahead] on are prefetched. Otherwise, memory and arithmetic would wait for each other.
    """
    line = 64 // panels.itemsize
    for p in range(count):
        at = p * c * WIDTH
        for place in range(ahead + p * WIDTH * d, min(ahead + (p + 1) * WIDTH * d, len(x)), line):
            fetch(x, place)
        weight = load(panels, weights + p * WIDTH)
        least = _distances(centers, c, d, base, panels, p * d * WIDTH, constants[4], g, at)
        if plain:
            sum_p, sum_squares, sum_logs = _powers(least, c, constants[0], np.bool_(True), np.bool_(True), g, at)
            _weigh(weight, least, sum_p, sum_squares, sum_logs, c, constants, np.bool_(True), g, at, lanes, to)
        else:
            sum_p, sum_squares, sum_logs = _powers(least, c, constants[0], np.bool_(False), np.bool_(True), g, at)
            _weigh(weight, least, sum_p, sum_squares, sum_logs, c, constants, np.bool_(False), g, at, lanes, to)


@called
def add_by_lanes(panels: Any, g: Any, count: int, c: int, d: int, partial: Any, out: int) -> None:
    """Add sum_i g_ij x_if of a batch, for two centres and four features at a time; the lanes are rows."""
    zero = splat(panels.dtype.type(0))
    for f in range(0, d, 4):
        f1, f2, f3 = min(f + 1, d - 1) * WIDTH, min(f + 2, d - 1) * WIDTH, min(f + 3, d - 1) * WIDTH
        for j in range(0, c, 2):
            j1 = min(j + 1, c - 1)
            a0, a1, a2, a3 = zero, zero, zero, zero
            b0, b1, b2, b3 = zero, zero, zero, zero
            for p in range(count):
                row, weight = p * d * WIDTH, p * c * WIDTH
                g0, g1 = load(g, weight + j * WIDTH), load(g, weight + j1 * WIDTH)
                x0, x1 = load(panels, row + f * WIDTH), load(panels, row + f1)
                x2, x3 = load(panels, row + f2), load(panels, row + f3)
                a0, a1, a2, a3 = fma(g0, x0, a0), fma(g0, x1, a1), fma(g0, x2, a2), fma(g0, x3, a3)
                b0, b1, b2, b3 = fma(g1, x0, b0), fma(g1, x1, b1), fma(g1, x2, b2), fma(g1, x3, b3)
            at, room = out + j * d + f, d - f
            partial[at] += np.float64(total(a0))
            if room > 1:
                partial[at + 1] += np.float64(total(a1))
            if room > 2:
                partial[at + 2] += np.float64(total(a2))
            if room > 3:
                partial[at + 3] += np.float64(total(a3))
            if j1 > j:
                partial[at + d] += np.float64(total(b0))
                if room > 1:
                    partial[at + d + 1] += np.float64(total(b1))
                if room > 2:
                    partial[at + d + 2] += np.float64(total(b2))
                if room > 3:
                    partial[at + d + 3] += np.float64(total(b3))


@called
def add_by_features(rows: Any, g: Any, count: int, c: int, d: int, found: Any, partial: Any, out: int) -> None:
    """Add sum_i g_ij x_if of a batch, for six centres at a time, row by row; the lanes are features."""
    zero = splat(rows.dtype.type(0))
    for f in range(0, d, WIDTH):
        for j in range(0, c, CENTERS):
            a0, a1, a2, a3, a4, a5 = zero, zero, zero, zero, zero, zero
            j1, j2, j3 = min(j + 1, c - 1) * WIDTH, min(j + 2, c - 1) * WIDTH, min(j + 3, c - 1) * WIDTH
            j4, j5 = min(j + 4, c - 1) * WIDTH, min(j + 5, c - 1) * WIDTH
            for p in range(count):
                at, row = p * c * WIDTH, (f // WIDTH * count + p) * WIDTH
                for lane in range(WIDTH):
                    x = load(rows, (row + lane) * WIDTH)
                    a0 = fma(broadcast(g, at + lane + j * WIDTH), x, a0)
                    a1 = fma(broadcast(g, at + lane + j1), x, a1)
                    a2 = fma(broadcast(g, at + lane + j2), x, a2)
                    a3 = fma(broadcast(g, at + lane + j3), x, a3)
                    a4 = fma(broadcast(g, at + lane + j4), x, a4)
                    a5 = fma(broadcast(g, at + lane + j5), x, a5)
            store(found, 0, a0)
            store(found, WIDTH, a1)
            store(found, 2 * WIDTH, a2)
            store(found, 3 * WIDTH, a3)
            store(found, 4 * WIDTH, a4)
            store(found, 5 * WIDTH, a5)
            at = out + j * d + f
            for q in range(min(CENTERS, c - j)):
                if f + WIDTH <= d:
                    add_doubles(partial, at + q * d, load(found, q * WIDTH))
                else:
                    for lane in range(d - f):
                        partial[at + q * d + lane] += np.float64(found[q * WIDTH + lane])


@inlined
def _take_weights(weights: Any, row: int, end: int, count: int, panels: Any, to: int) -> None:
    """Copy the rows' weights, or 1 if there are none, to the lanes of `count` panels; 0 after the last row."""
    one = splat(panels.dtype.type(1))
    for p in range(count):
        first, at = row + p * WIDTH, to + p * WIDTH
        if first + WIDTH <= end:
            store(panels, at, load(weights, first) if len(weights) else one)
        else:
            for lane in range(WIDTH):
                w = weights[first + lane] if len(weights) and first + lane < end else 1
                panels[at + lane] = w if first + lane < end else 0


@inlined
def _copy(x: Any, d: int, row: int, end: int, count: int, rows: Any) -> None:
    """Copy rows row..end-1 in the layout [32 features][row][feature]; add rows of 0 up to a total of `count` rows."""
    for f in range(0, d, WIDTH):
        for i in range(count):
            at, to = (row + i) * d + f, (f // WIDTH * count + i) * WIDTH
            if row + i < end and at + WIDTH <= len(x):
                store(rows, to, load(x, at))
            else:
                for lane in range(WIDTH):
                    rows[to + lane] = x[at + lane] if row + i < end and f + lane < d else 0


@inlined
def _finish(lanes: Any, base: int, c: int, d: int, partial: Any, out: int) -> None:
    """Add up the lanes of a group's sums: g of each centre, the objective, w u^2 and the entropy."""
    for q in range(c + 3):
        partial[out + c * d + q] += np.float64(total(load(lanes, base + q * WIDTH)))
    partial[out + c * d + c + 2] *= np.log(2.0)


@compiled
def add_groups(
    x: Any, k: int, d: int, weights: Any, first: int, last: int, origin: int, centers: Any, models: int, c: int,
    constants: Any, plain: bool, batch: int, by_features: bool, panels: Any, rows: Any, g: Any, lanes: Any, found: Any,
    partial: Any,
) -> None:  # fmt: skip
    """Write the sums of groups first..last-1 to `partial`, which begins with group `origin`.

    The thread has its own arrays `panels`, `rows`, `g`, `lanes` and `found`.
    """
    size, each, ones = c * d + c + 3, (c + 3) * WIDTH, batch * d
    for group in range(first, last):
        out = (group - origin) * models * size
        partial[out : out + models * size] = 0
        lanes[:] = 0
        stop = min((group + 1) * GROUP, k)
        for row in range(group * GROUP, stop, batch):
            end = min(row + batch, stop)
            count = (end - row + WIDTH - 1) // WIDTH
            pack_rows(x, d, row, end, count, panels, 0)
            _take_weights(weights, row, end, count, panels, ones)
            if by_features:
                _copy(x, d, row, end, count * WIDTH, rows)
            for r in range(models):
                ahead = (row + batch) * d if r == 0 else len(x)
                weigh_run(
                    centers, r * c * d, c, d, count, constants, plain, panels, ones, g, lanes, r * each, x, ahead
                )  # fmt: skip
                if by_features:
                    add_by_features(rows, g, count, c, d, found, partial, out + r * size)
                else:
                    add_by_lanes(panels, g, count, c, d, partial, out + r * size)
        for r in range(models):
            _finish(lanes, r * each, c, d, partial, out + r * size)


@compiled
def add_partial(partial: Any, blocks: Any, columns: int, start: int, stop: int, out: Any) -> None:
    """Add each group's sums to the sums of its block, in ascending order, in columns start..stop-1."""
    for t in range(len(blocks)):
        for q in range(start, stop):
            out[blocks[t] * columns + q] += partial[t * columns + q]


@compiled
def write_memberships(
    x: Any, d: int, start: int, stop: int, centers: Any, c: int, constants: Any, plain: bool, panels: Any, g: Any,
    out: Any,
) -> None:  # fmt: skip
    """Do `memberships` for rows start..stop-1."""
    origin = np.int64(0)
    for row in range(start, stop, WIDTH):
        end = min(row + WIDTH, stop)
        pack_rows(x, d, row, end, np.int64(1), panels, 0)
        least = _distances(centers, c, d, origin, panels, origin, constants[4], g, origin)
        if plain:
            sum_p, _, _ = _powers(least, c, constants[0], np.bool_(True), np.bool_(False), g, origin)
        else:
            sum_p, _, _ = _powers(least, c, constants[0], np.bool_(False), np.bool_(False), g, origin)
        for j in range(c):
            store(g, j * WIDTH, divide(load(g, j * WIDTH), sum_p))
        for i in range(row, end):
            for j in range(c):
                out[i, j] = g[j * WIDTH + i - row]


@compiled
def weigh_tile(
    tile: Any, c: int, start: int, stop: int, weights: Any, constants: Any, plain: bool, only_u: bool, g: Any,
    lanes: Any, scores: Any,
) -> None:  # fmt: skip
    """Do `tile_memberships` for rows start..stop-1; `lanes` is a work array of `_weigh` for one panel."""
    origin = np.int64(0)
    for row in range(start, stop, WIDTH):
        end = min(row + WIDTH, stop)
        for i in range(WIDTH):
            for j in range(c):
                g[j * WIDTH + i] = tile[(min(row + i, end - 1)) * c + j]
        least = splat(constants[4])
        for j in range(c):
            least = lesser(least, load(g, j * WIDTH))
        if plain:
            sum_p, sum_squares, sum_logs = _powers(least, c, constants[0], np.bool_(True), not only_u, g, origin)
        else:
            sum_p, sum_squares, sum_logs = _powers(least, c, constants[0], np.bool_(False), not only_u, g, origin)
        if only_u:
            for j in range(c):
                store(g, j * WIDTH, divide(load(g, j * WIDTH), sum_p))
        else:
            _take_weights(weights, row, end, np.int64(1), lanes, origin)
            weight = load(lanes, 0)
            lanes[:] = 0
            if plain:
                _weigh(
                    weight, least, sum_p, sum_squares, sum_logs, c, constants, np.bool_(True), g, origin, lanes, origin
                )
            else:
                _weigh(
                    weight, least, sum_p, sum_squares, sum_logs, c, constants, np.bool_(False), g, origin, lanes, origin
                )
            for i in range(row, end):
                at = c * WIDTH + i - row
                scores[i, 0], scores[i, 1] = lanes[at], lanes[at + WIDTH]
                scores[i, 2] = lanes[at + 2 * WIDTH] * np.log(2.0)
        for i in range(row, end):
            for j in range(c):
                tile[i * c + j] = g[j * WIDTH + i - row]
