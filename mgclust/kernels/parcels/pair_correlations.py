"""Sums of the correlations of pairs of near rows, by distance, for many label vectors at once, on the CPU.

Rows are divided into blocks of 32 rows that are near each other: the rows are halved along the longest axis again and
again. Each pair of blocks whose bounding boxes are near enough is processed once, 4 rows of one block ("rows") with the
32 rows of the other ("columns") at a time::

    bins     bin of each of the 4 x 32 pairs, from the distances; if no pair has a bin, the 4 rows are skipped
    r        correlations of the 4 x 32 pairs, by one chain of fused multiply-adds over the features
    sums     for each label vector, sums over the columns with the label of the row: few or no columns in most cases

Correlations are added as integers, so the sums do not depend on the order of the pairs or on the number of threads. No
pair is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.kernels.toolkit.cpu_compiler import called, compiled, inlined
from mgclust.kernels.toolkit.simd import WIDTH, broadcast, first_lane, load, splat, store, values_differ
from mgclust.kernels.toolkit.simd_steps import fixed, fma
from mgclust.kernels.toolkit.threads import run_tasks, thread_count

__all__ = ["correlations_by_distance", "spatial_blocks"]

Array = Any
FULL = (1 << WIDTH) - 1
NO_BIN = np.int32(-1)
# A distance that exceeds the upper end of a bin by less than this fraction of the bin's width is in the bin. Otherwise,
# because of rounding errors, pairs of voxels with the same offset could be in two bins.
SLACK = 1e-6
MAX_BITS = 30  # the fixed-point sums have at most this number of bits after the point
TASK_BLOCKS = 4  # number of blocks per task; a task has the pairs of its blocks with themselves and with later blocks


def correlations_by_distance(
    unit: Array,
    coordinates: Array,
    labels: Array,
    bin_width: float,
    n_bins: int,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Sum the correlations of all pairs with the same label, for each label vector and each bin of distance.

    Parameters
    ----------
    unit : float32 or float64 array of shape (n, n_features)
        Rows with mean 0 and length 1, so that the product of two rows is their correlation. Constant rows are 0.
    coordinates : float64 array of shape (n, 3)
        Finite coordinates of the rows, in mm.
    labels : int32 array of shape (n_vectors, n)
        Label vectors; rows with a negative label are in no pair.
    bin_width : float
        Width of a bin in mm. Bin b has the distances from ``b * bin_width`` (excluded) to ``(b + 1) * bin_width``.
    n_bins : int
        Number of bins; pairs with larger distances are left out.
    on_progress : callable, optional
        Receives the completed fraction of the work, in the calling thread. If it raises an error, the work ends.

    Returns
    -------
    sums : float64 array of shape (n_vectors, n_bins)
        Sum of the correlations of the pairs.
    counts : int64 array of shape (n_vectors, n_bins)
        Number of pairs; each pair counts once.
    """
    n, n_features = unit.shape
    order = spatial_blocks(coordinates)
    blocks = -(-n // WIDTH)
    padded = blocks * WIDTH
    numbers = np.full((len(labels), padded), -1, np.int32)
    numbers[:, :n] = labels[:, order]
    places = np.zeros((3, padded))
    places[:, :n] = coordinates[order].T
    # The padding repeats the last row, so that it does not enlarge the box of the last block.
    places[:, n:] = places[:, n - 1 : n]
    boxes = places.reshape(3, blocks, WIDTH)
    lows, highs = np.ascontiguousarray(boxes.min(axis=2).T), np.ascontiguousarray(boxes.max(axis=2).T)
    panels = np.zeros((blocks, n_features, WIDTH), unit.dtype)
    for block in range(blocks):
        rows = order[block * WIDTH : (block + 1) * WIDTH]
        panels[block, :, : len(rows)] = unit[rows].T
    bits = min(MAX_BITS, 62 - (n * n // 2).bit_length())
    threads = thread_count()
    found = np.zeros((threads, len(labels), n_bins, 2), np.int64)
    room = [
        (np.empty(4 * WIDTH, np.int32), np.empty(4 * WIDTH, unit.dtype), np.empty(4, np.int64)) for _ in range(threads)
    ]
    flat_panels, flat_numbers = panels.reshape(-1), numbers.reshape(-1)

    tasks = -(-blocks // TASK_BLOCKS)

    def task(index: int, thread: int) -> None:
        if thread == 0:  # the calling thread
            on_progress(index / tasks)
        first = index * TASK_BLOCKS
        add_pairs(
            flat_panels,
            n_features,
            places[0],
            places[1],
            places[2],
            flat_numbers,
            lows,
            highs,
            n,
            first,
            min(first + TASK_BLOCKS, blocks),
            float(bin_width),
            n_bins,
            2.0**bits,
            *room[thread],
            found[thread].reshape(-1),
        )

    run_tasks(tasks, task, threads)
    together = found.sum(axis=0)
    return together[:, :, 0] / 2.0**bits, together[:, :, 1].copy()


def spatial_blocks(coordinates: Array) -> np.ndarray:
    """Order rows so that the 32 rows of each block of consecutive rows are near each other.

    Parameters
    ----------
    coordinates : float64 array of shape (n, 3)

    Returns
    -------
    int64 array of shape (n,)
        Rows in the new order.
    """
    order = np.arange(len(coordinates))
    parts = [(0, len(coordinates))]
    while parts:
        first, last = parts.pop()
        blocks = -(-(last - first) // WIDTH)
        if blocks < 2:
            continue
        own = order[first:last]
        near = coordinates[own]
        axis = int(np.argmax(near.max(axis=0) - near.min(axis=0)))
        order[first:last] = own[np.argsort(near[:, axis], kind="stable")]
        middle = first + blocks // 2 * WIDTH
        parts += [(first, middle), (middle, last)]
    return order


@inlined
def four_products(panels: Any, a: int, b: int, lane: int, d: int) -> Any:
    """Return the products of four rows of block a, from row `lane` on, with all rows of block b, as four vectors."""
    x, y = a * d * WIDTH + lane, b * d * WIDTH
    s0 = splat(panels.dtype.type(0))
    s1 = s0
    s2 = s0
    s3 = s0
    for k in range(d):
        column = load(panels, y + k * WIDTH)
        at = x + k * WIDTH
        s0 = fma(broadcast(panels, at), column, s0)
        s1 = fma(broadcast(panels, at + 1), column, s1)
        s2 = fma(broadcast(panels, at + 2), column, s2)
        s3 = fma(broadcast(panels, at + 3), column, s3)
    return s0, s1, s2, s3


@called
def find_bins(
    x: Any, y: Any, z: Any, row: int, column: int, bin_width: float, n_bins: int, bins: Any, masks: Any
) -> bool:
    """Write the bins of the pairs of four rows with 32 columns, and masks of the pairs that have a bin.

    Return whether any pair has a bin.
    """
    some = False
    for q in range(4):
        for lane in range(WIDTH):
            u, v, w = x[row + q] - x[column + lane], y[row + q] - y[column + lane], z[row + q] - z[column + lane]
            number = np.ceil(np.sqrt(u * u + v * v + w * w) / bin_width - SLACK)
            bins[q * WIDTH + lane] = np.int32(number if 0 < number <= n_bins else 0.0) - np.int32(1)
        masks[q] = values_differ(load(bins, q * WIDTH), NO_BIN)
        some |= masks[q] != 0
    return some


@inlined
def apart(lows: Any, highs: Any, a: int, b: int) -> float:
    """Return the squared distance between the bounding boxes of two blocks."""
    total = 0.0
    for axis in range(3):
        gap = max(lows[a, axis] - highs[b, axis], lows[b, axis] - highs[a, axis], 0.0)
        total += gap * gap
    return total


@compiled
def add_pairs(
    panels: Any,
    d: int,
    x: Any,
    y: Any,
    z: Any,
    labels: Any,
    lows: Any,
    highs: Any,
    n: int,
    first: int,
    last: int,
    bin_width: float,
    n_bins: int,
    scale: float,
    bins: Any,
    values: Any,
    masks: Any,
    found: Any,
) -> None:
    """Add the pairs of blocks first..last-1 with themselves and with later blocks to `found`."""
    blocks, padded = len(lows), len(x)
    reach = bin_width * (n_bins + 1)
    for a in range(first, last):
        for b in range(a, blocks):
            if apart(lows, highs, a, b) > reach * reach:
                continue
            for lane in range(0, min(WIDTH, n - a * WIDTH), 4):
                row = a * WIDTH + lane
                if not find_bins(x, y, z, row, b * WIDTH, bin_width, n_bins, bins, masks):
                    continue
                s0, s1, s2, s3 = four_products(panels, a, b, lane, d)
                store(values, 0, s0)
                store(values, WIDTH, s1)
                store(values, 2 * WIDTH, s2)
                store(values, 3 * WIDTH, s3)
                for q in range(4):
                    # A pair within a block is counted only once, for its earlier row.
                    valid = masks[q] & (FULL ^ ((2 << (lane + q)) - 1) if a == b else FULL)
                    if valid:
                        add_row(
                            labels, row + q, b * WIDTH, padded, n_bins, scale, q * WIDTH, bins, values, valid, found
                        )


@called
def add_row(
    labels: Any,
    row: int,
    column: int,
    padded: int,
    n_bins: int,
    scale: float,
    at: int,
    bins: Any,
    values: Any,
    valid: int,
    found: Any,
) -> None:
    """Add the pairs of a row with 32 columns to the sums and counts of each label vector."""
    for c in range(len(labels) // padded):
        own = labels[c * padded + row]
        if own >= 0:
            same = valid & ~values_differ(load(labels, c * padded + column), own)
            while same:
                lane = first_lane(same)
                same &= same - 1
                to = 2 * (c * n_bins + bins[at + lane])
                found[to] += fixed(values[at + lane], scale)
                found[to + 1] += 1
