"""Fuzzy c-means on the CPU: one pass over the rows, without storing memberships.

Rows form *groups* of 1024, which begin at multiples of 1024 in the global numbering, and *panels* of 32 rows, one row
per lane. For each panel and model::

    s_j  = |x - v_j|^2, four centres at a time           d subtractions, d multiply-adds       g[j] <- s_j
    r_j  = s_min / s_j,  p_j = r_j^(1/(m-1))             a division, a logarithm, a power      g[j] <- p_j r_j
    P = sum p_j;  also sum p_j^2 and sum p_j log2 p_j
    g_j  = p_j r_j * w 2^scale / P^m                     since p_j^m = p_j r_j                 g[j] <- g_j

With u_j = p_j / P, g_j is w u_j^m 2^scale. The row's term in the objective needs no sum over the centres::

    sum_j u_j^m s_j = s_min P / P^m        entropy = log P - sum p_j log p_j / P, both terms >= 0

Then sum_i g_ij x_if of a batch of panels is a product of two small matrices; eight or 192 of its sums are in registers
at a time. With few features, each lane adds its own rows, and the 32 lanes are added at the end of the batch
(`add_by_lanes`). With many features, the lanes are 32 features, and rows are added one after another
(`add_by_features`). The choice depends on c and d.

If each cluster has its own norm (`cpu_covariances`), there are three passes over a tile: distances, memberships, and
the sums of products.

The sums over the centres of a row, and chains of at most 512 additions within a group, are in `real`. Groups are added
in float64, in ascending order. So the sums are bitwise independent of the threads, and of the split of rows at
multiples of 1024.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.fuzzy_c_means.cpu_covariances import norm_distances, scatter_sums
from mgclust.kernels.fuzzy_c_means.cpu_steps import (
    CENTERS,
    GROUP,
    add_groups,
    add_partial,
    weigh_tile,
    write_memberships,
)
from mgclust.kernels.toolkit.simd import WIDTH
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

__all__ = ["fuzzy_sums", "memberships", "norm_distances", "scatter_sums", "tile_memberships", "weighted_means"]

Array = Any
HIGHEST = {4: 100.0, 8: 900.0}  # largest exponents without overflow in sums over many rows, by bytes per number
SHORT = 128  # rows per batch if the lanes are features: their g for a thousand centres stays in the L2 cache
BATCH_BYTES = 1 << 16  # bytes of panels and g per batch if the lanes are rows: little more than the L1 cache
PARTIAL_BYTES = 1 << 24  # bytes of groups' sums that are kept before they are added to blocks
MAX_BYTES = 1 << 30  # maximum bytes of these sums, even if some threads are idle
MIN_TASK, TASK = 1 << 20, 1 << 23  # multiply-adds per task: fewer are not worth a thread, and more balance badly


def fuzzy_sums(
    x: Array,
    centers: Array,
    *,
    m: float,
    log2_scale: float = 0.0,
    weights: Array | None,
    first_row: int,
    block_rows: int,
    out: Array,
) -> None:
    if first_row % GROUP or block_rows % GROUP:
        raise ValueError(f"first_row={first_row} and block_rows={block_rows} should be multiples of {GROUP}.")
    (k, d), (models, c, _) = x.shape, centers.shape
    columns, groups, threads = models * (c * d + c + 3), -(-k // GROUP), thread_count()
    by_features, batch = _plan(c, d, x.itemsize)
    wave = max(1, PARTIAL_BYTES // (8 * columns), min(2 * threads, MAX_BYTES // (8 * columns)))
    wave = max(1, min(groups, wave))
    work = GROUP * models * c * (d + 8)
    step = max(1, MIN_TASK // work, min(TASK // work, -(-wave // (4 * threads))))
    counts = (batch * (d + 1), batch * padded(d) * by_features, batch * c, models * (c + 3) * WIDTH, CENTERS * WIDTH)
    spaces = [[aligned(count, x.dtype) for count in counts] for _ in range(threads)]
    partial = np.empty(wave * columns)
    flat, middle = x.reshape(-1), centers.reshape(-1)
    own = flat[:0] if weights is None else np.ascontiguousarray(weights, x.dtype)
    constants, plain = _constants(m, log2_scale, x.dtype), m == 2 and log2_scale == 0

    for begin in range(0, groups, wave):
        end = min(begin + wave, groups)

        def task(index: int, thread: int, begin: int = begin, end: int = end) -> None:
            first = begin + index * step
            add_groups(
                flat, k, d, own, first, min(first + step, end), begin, middle, models, c, constants, plain, batch,
                by_features, *spaces[thread], partial,
            )  # fmt: skip

        run_tasks(-(-(end - begin) // step), task)
        blocks = (first_row // GROUP + np.arange(begin, end)) // (block_rows // GROUP) - first_row // block_rows
        _merge(partial, blocks, out.reshape(-1), columns)


def memberships(x: Array, centers: Array, *, m: float, out: Array) -> None:
    (k, d), c = x.shape, len(centers)
    constants, step = _constants(m, 0.0, x.dtype), max(1, TASK // (WIDTH * c * (d + 8))) * WIDTH
    flat, middle = x.reshape(-1), centers.reshape(-1)

    def task(index: int, _: int) -> None:
        start = index * step
        panels, g = aligned(d * WIDTH, x.dtype), aligned(c * WIDTH, x.dtype)
        write_memberships(flat, d, start, min(start + step, k), middle, c, constants, m == 2, panels, g, out)

    run_tasks(-(-k // step), task)


def tile_memberships(
    tile: Array, *, m: float, log2_scale: float = 0.0, weights: Array | None = None, scores: Array | None = None
) -> None:
    k, c = tile.shape
    constants, plain = _constants(m, log2_scale, tile.dtype), m == 2 and log2_scale == 0
    step = max(1, MIN_TASK // (8 * WIDTH * c)) * WIDTH
    own = tile[:0, 0] if weights is None else np.ascontiguousarray(weights, tile.dtype)
    flat, found = tile.reshape(-1), np.empty((0, 3)) if scores is None else scores

    def task(index: int, _: int) -> None:
        g, lanes = aligned(c * WIDTH, tile.dtype), aligned((c + 3) * WIDTH, tile.dtype)
        start, stop = index * step, min((index + 1) * step, k)
        weigh_tile(flat, c, start, stop, own, constants, plain, scores is None, g, lanes, found)

    run_tasks(-(-k // step), task)


def _plan(c: int, d: int, itemsize: int) -> tuple[bool, int]:
    """Return whether the lanes of the sums are features, and the number of rows per batch."""
    if 4 * c * d >= 3 * (-(-c // CENTERS) * CENTERS * padded(d)):
        return True, SHORT
    batch = GROUP
    while batch > 2 * SHORT and batch * (c + d) * itemsize > BATCH_BYTES:
        batch //= 2
    return False, batch


def _constants(m: float, log2_scale: float, dtype: Any) -> Array:
    """Return the constants of the powers (see `_weigh`), and the largest finite number."""
    return np.array([1 / (m - 1), m, log2_scale, HIGHEST[dtype.itemsize], np.finfo(dtype).max], dtype)


def _merge(partial: Array, blocks: Array, out: Array, columns: int) -> None:
    """Add the sums of groups to the sums of their blocks."""
    share = max(1 << 14, -(-columns // thread_count()))

    def task(index: int, _: int) -> None:
        add_partial(partial, blocks, columns, index * share, min((index + 1) * share, columns), out)

    run_tasks(-(-columns // share), task)


def padded(d: int) -> int:
    """Return the number of features, rounded up to whole vectors."""
    return -(-d // WIDTH) * WIDTH


def aligned(count: int, dtype: Any) -> Array:
    """Allocate an array that begins with a cache line; a vector across two lines takes twice as long to load."""
    itemsize = np.dtype(dtype).itemsize
    raw = np.empty(count + 64 // itemsize, dtype)
    skip = -raw.ctypes.data % 64 // itemsize
    return raw[skip : skip + count]


def weighted_means(sums: Array, centers: Array) -> Array:
    models, c, d = centers.shape
    weights = sums[:, c * d : c * d + c, None]
    means = sums[:, : c * d].reshape(models, c, d) / np.where(weights > 0, weights, 1.0)
    return np.where(weights > 0, means, centers)
