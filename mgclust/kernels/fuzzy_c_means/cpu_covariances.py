"""Clusters with their own norms, on the CPU: distances in these norms, and sums from which covariances are computed.

Rows come in panels of 32, one row per lane. The distances to a centre v with the upper triangular factor R
are computed for a whole panel::

    y_f = x_f - v_f                                     d subtractions
    z_e = sum over f >= e of R_ef y_f, s = sum z_e^2     four e at a time, about d^2 / 2 multiply-adds

The covariances need sum_i g_i y_if y_ih for h >= f with y_d = 1, over a batch of panels. Four h are computed at a time,
and the number of operations is about the same. Each lane adds its own rows, and the lanes are added at the end of the
batch. Batches are added in ascending order, and so are groups. So the sums are bitwise independent of the threads, and
of the split of rows into parts if each part is a multiple of a group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.fuzzy_c_means.cpu_steps import GROUP, add_partial
from mgclust.kernels.toolkit.cpu_compiler import compiled, inlined
from mgclust.kernels.toolkit.simd import WIDTH, broadcast, load, multiply, splat, store, total
from mgclust.kernels.toolkit.simd_panels import pack_rows
from mgclust.kernels.toolkit.simd_steps import fma, lesser, subtract
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

__all__ = ["norm_distances", "scatter_sums"]

Array = Any
TASK = 1 << 22  # multiply-adds per task
BATCH_BYTES = 1 << 17  # bytes per batch of panels: at most half of the L2 cache
PARTIAL_BYTES = 1 << 26  # bytes of groups' sums that are kept before they are added to blocks


def norm_distances(x: Array, centers: Array, factors: Array, *, out: Array) -> None:
    (k, d), c = x.shape, len(centers)
    step = max(1, TASK // (WIDTH * c * d * (d + 8))) * WIDTH
    flat, middle, triangles = x.reshape(-1), centers.reshape(-1), factors.reshape(-1)
    most = np.finfo(x.dtype).max

    def task(index: int, _: int) -> None:
        start = index * step
        panel, about, lanes = (np.empty(count, x.dtype) for count in (d * WIDTH, d * WIDTH, WIDTH))
        stop = min(start + step, k)
        write_distances(flat, d, start, stop, middle, triangles, c, most, panel, about, lanes, out)

    run_tasks(-(-k // step), task)


def scatter_sums(x: Array, centers: Array, g: Array, *, first_row: int, block_rows: int, out: Array) -> None:
    if first_row % GROUP or block_rows % GROUP:
        raise ValueError(f"first_row={first_row} and block_rows={block_rows} should be multiples of {GROUP}.")
    (k, d), c = x.shape, len(centers)
    packed, groups = (d + 1) * (d + 2) // 2, -(-k // GROUP)
    wave = max(1, min(groups, PARTIAL_BYTES // (8 * c * packed)))
    batch = max(1, min(GROUP // WIDTH, BATCH_BYTES // (2 * x.itemsize * (d + 1) * WIDTH)))
    counts = (d * WIDTH, WIDTH, batch * (d + 1) * WIDTH, batch * (d + 1) * WIDTH)
    spaces = [[np.empty(count, x.dtype) for count in counts] for _ in range(thread_count())]
    partial, totals = np.empty(wave * c * packed), out.reshape(-1)
    flat, middle, weighs = x.reshape(-1), centers.reshape(-1), g.reshape(-1)
    for begin in range(0, groups, wave):
        end = min(begin + wave, groups)

        def task(index: int, thread: int, begin: int = begin) -> None:
            group, j = begin + index // c, index % c
            first = group * GROUP
            stop = min(first + GROUP, k)
            add_scatter(flat, d, first, stop, middle, weighs, c, j, batch, *spaces[thread], partial, index * packed)

        run_tasks((end - begin) * c, task)
        blocks = (first_row // GROUP + np.arange(begin, end)) // (block_rows // GROUP) - first_row // block_rows
        add_partial(partial, blocks, c * packed, 0, c * packed, totals)


@inlined
def _about_center(panel: Any, at: int, d: int, centers: Any, base: int, about: Any, to: int) -> None:
    """Write the panel's rows minus a centre."""
    for f in range(d):
        store(about, to + f * WIDTH, subtract(load(panel, at + f * WIDTH), broadcast(centers, base + f)))


@compiled
def write_distances(
    x: Any, d: int, start: int, stop: int, centers: Any, factors: Any, c: int, limit: Any, panel: Any, about: Any,
    lanes: Any, out: Any,
) -> None:  # fmt: skip
    """Do `norm_distances` for rows start..stop-1; no distance is infinite."""
    zero, most = splat(x.dtype.type(0)), splat(limit)
    for row in range(start, stop, WIDTH):
        end = min(row + WIDTH, stop)
        pack_rows(x, d, row, end, 1, panel, 0)
        for j in range(c):
            _about_center(panel, 0, d, centers, j * d, about, 0)
            s = zero
            for e in range(0, d, 4):
                left = d - e
                r0 = (j * d + e) * d
                r1, r2, r3 = r0 + d * min(1, left - 1), r0 + d * min(2, left - 1), r0 + d * min(3, left - 1)
                z0, z1, z2, z3 = zero, zero, zero, zero
                for f in range(e, d):  # elements below the diagonal are 0
                    y = load(about, f * WIDTH)
                    z0, z1 = fma(broadcast(factors, r0 + f), y, z0), fma(broadcast(factors, r1 + f), y, z1)
                    z2, z3 = fma(broadcast(factors, r2 + f), y, z2), fma(broadcast(factors, r3 + f), y, z3)
                s = fma(z0, z0, s)
                if left > 1:
                    s = fma(z1, z1, s)
                if left > 2:
                    s = fma(z2, z2, s)
                if left > 3:
                    s = fma(z3, z3, s)
            store(lanes, 0, lesser(s, most))
            for i in range(row, end):
                out[i, j] = lanes[i - row]


@compiled
def add_scatter(
    x: Any, d: int, first: int, stop: int, centers: Any, g: Any, c: int, j: int, batch: int, panel: Any, lanes: Any,
    about: Any, weighed: Any, partial: Any, to: int,
) -> None:  # fmt: skip
    """Write the packed sums of one group of rows and one centre."""
    columns = d + 1
    for place in range(to, to + columns * (columns + 1) // 2):
        partial[place] = 0.0
    zero, one = splat(x.dtype.type(0)), splat(x.dtype.type(1))
    for row in range(first, stop, batch * WIDTH):
        end = min(row + batch * WIDTH, stop)
        count = (end - row + WIDTH - 1) // WIDTH
        for p in range(count):
            at, begin = p * columns * WIDTH, row + p * WIDTH
            pack_rows(x, d, begin, min(begin + WIDTH, end), 1, panel, 0)
            _about_center(panel, 0, d, centers, j * d, about, at)
            store(about, at + d * WIDTH, one)
            for lane in range(WIDTH):
                lanes[lane] = g[(begin + lane) * c + j] if begin + lane < end else 0
            weight = load(lanes, 0)
            for f in range(columns):
                store(weighed, at + f * WIDTH, multiply(weight, load(about, at + f * WIDTH)))
        place = to
        for f in range(columns):
            for h in range(f, columns, 4):
                left = columns - h
                h1, h2, h3 = min(1, left - 1), min(2, left - 1), min(3, left - 1)
                a0, a1, a2, a3 = zero, zero, zero, zero
                for p in range(count):
                    at = p * columns * WIDTH
                    w, at = load(weighed, at + f * WIDTH), at + h * WIDTH
                    a0, a1 = fma(w, load(about, at), a0), fma(w, load(about, at + h1 * WIDTH), a1)
                    a2, a3 = fma(w, load(about, at + h2 * WIDTH), a2), fma(w, load(about, at + h3 * WIDTH), a3)
                partial[place] += total(a0)
                if left > 1:
                    partial[place + 1] += total(a1)
                if left > 2:
                    partial[place + 2] += total(a2)
                if left > 3:
                    partial[place + 3] += total(a3)
                place += min(left, 4)
