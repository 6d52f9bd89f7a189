"""Pair kernels on the CPU: every core, 32 columns at a time, bits that depend on the data alone.

A call meets m rows of x with k rows of y (the *columns*) and never stores the m x k distances::

    for each chunk of columns (<= CHUNK_BYTES, a multiple of SUM_TILE)
        pack it into panels                              2 k d reals moved, once per call
        for each task of rows, on any thread             ~TASK_PAIRS pairs
            _cpu_pairs.<kernel>(rows, panels)            cost per pair: see there

What a row receives does not depend on the other rows, the threads, or the chunks: reduced distances are
single chains of fused multiply-adds, counts are integers, minima break ties by index, and Gaussian sums add
in a fixed order (32 lanes within SUM_TILE columns in `real`, halved; tiles in float64), so long as y starts
at a multiple of SUM_TILE of the global rows. The first call of each kernel for a dtype compiles it (under a
second; Numba keeps it on disk).

`mgclust.kernels.gpu` has the same names and signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import psutil

from mgclust.kernels import _cpu_pairs as pairs
from mgclust.kernels import _cpu_similarities
from mgclust.kernels._cpu_boxes import box_border, box_count, box_nearest, boxes_for
from mgclust.kernels._cpu_canopy import first_independent, write_within
from mgclust.kernels._cpu_communities import apply_moves, cross_weight, propose_moves, wake
from mgclust.kernels._cpu_contraction import contract, sum_pairs, to_rows
from mgclust.kernels._cpu_fuzzy import fuzzy_sums, memberships, weighted_means
from mgclust.kernels._cpu_greedy import greedy_merges
from mgclust.kernels._cpu_groups import number, spread_roots, sum_by_id, weights_before
from mgclust.kernels._cpu_labels import add_by_label, best_columns, cluster_sums, group_sums, same_label_sums
from mgclust.kernels._cpu_low import (
    interpolate,
    spread,
    tree_border,
    tree_count_within,
    tree_nearest_higher,
    tree_pair_histogram,
)
from mgclust.kernels._cpu_messages import pass_columns, pass_rows
from mgclust.kernels._cpu_partners import best_partners, pair_up
from mgclust.kernels._cpu_similarities import jitter, noise_of, signed, value_histogram
from mgclust.kernels._cpu_sums import from_integers, integer_sums, largest_exponents
from mgclust.kernels._cpu_tasks import chunk_columns, each_task, nearest_in_chunk, padded
from mgclust.kernels._cpu_travel import contract_parts, pair_parts, sum_parts
from mgclust.kernels._simd import WIDTH
from mgclust.kernels._threads import thread_count

__all__ = [
    "NEIGHBORS",
    "add_by_label",
    "apply_moves",
    "arriving",
    "best_columns",
    "best_partners",
    "border",
    "cluster_sums",
    "contract",
    "contract_parts",
    "count_within",
    "cross_weight",
    "first_independent",
    "free_memory",
    "from_integers",
    "fuzzy_sums",
    "gaussian_sum",
    "greedy_merges",
    "group_sums",
    "host_empty",
    "integer_sums",
    "interpolate",
    "jitter",
    "largest_exponents",
    "memberships",
    "nearest_higher",
    "number",
    "pair_histogram",
    "pair_parts",
    "pair_up",
    "pass_columns",
    "pass_rows",
    "propose_moves",
    "reduced_distances",
    "same_label_sums",
    "similarities",
    "spread",
    "spread_roots",
    "start_to_host",
    "sum_by_id",
    "sum_pairs",
    "sum_parts",
    "synchronize",
    "to_device",
    "to_host",
    "to_rows",
    "tree_border",
    "tree_count_within",
    "tree_nearest_higher",
    "tree_pair_histogram",
    "value_histogram",
    "wake",
    "weighted_means",
    "weights_before",
    "write_within",
    "xp",
]

Array = Any
xp = np
LOG2_E = 1.4426950408889634
NEIGHBORS = 8  # rows that `gaussian_sum` remembers for each: 5 to 10% more time, and no pass of `nearest_higher`


def to_device(array: Array) -> Array:
    """Return the rows where the kernels read them: C-contiguous in memory."""
    return np.ascontiguousarray(array)


def to_host(array: Array) -> np.ndarray:
    """Return a NumPy array of the same values."""
    return np.asarray(array)


def start_to_host(array: Array) -> np.ndarray:
    """An array of the same values, which nobody changes."""
    return np.array(array)


def host_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Memory to keep rows in."""
    return np.empty(shape, dtype)


def arriving(pieces: Iterable[np.ndarray]) -> Iterator[Array]:
    """Arrays where the kernels read them, one after the other.

    Parameters
    ----------
    pieces : iterable of ndarray

    Yields
    ------
    array
        Valid until the next but one is asked for.
    """
    return (to_device(piece) for piece in pieces)


def synchronize() -> None:
    """Wait for kernels that still run: none do, here."""


def free_memory() -> int:
    """Bytes that the host can still give (all its processes together)."""
    return int(psutil.virtual_memory().available)


def pair_histogram(x: Array, y: Array, *, norm: str, diagonal: bool, low: int, shift: int, out: Array) -> None:
    """Count pairs by the IEEE bits of their reduced distance, an order that is exact.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.
    diagonal : bool
        x is y, and only pairs i < j count.
    low, shift : int
        With b = (bits - low) >> shift: pairs with bits < low are added to out[0], pairs with
        0 <= b < bins to out[1 + b], the others to none.
    out : int64 array of shape (bins + 1,)
        Added to in place.
    """
    largest = int(np.iinfo(f"i{x.itemsize}").max)
    high = min(low + ((len(out) - 1) << shift), largest)
    below = [0] * thread_count()
    flat, d, m = x.reshape(-1), x.shape[1], x.shape[0]

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        skip = first if diagonal else m + WIDTH
        below[thread] += pairs.histogram(
            flat, d, start, stop, panels, columns, norm == "l1", skip, min(low, largest), high, shift, out
        )

    each_task(x, y, body)
    out[0] += sum(below)


def gaussian_sum(
    x: Array,
    y: Array,
    *,
    norm: str,
    scale: float,
    power: int,
    out: Array,
    rows: Array | None = None,
    y_start: int = 0,
    near: Array | None = None,
    near_index: Array | None = None,
) -> None:
    """Add to each row the sum over all columns of ``exp(-scale * s**power)``.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.
    scale : float
        Positive.
    power : {1, 2}
        2 where the distance is proportional to s.
    out : float64 array of shape (m,)
        Added to in place, columns in ascending order.
    rows : int64 array of shape (m,), optional
        Global number of the column that each row leaves out: its own, or one that is equal to the row. (Subtracting its
        1 afterwards would lose the digits of a small sum.)
    y_start : int
        Global number of the first column, a multiple of 1024.
    near : array of shape (m, NEIGHBORS), the rows' type, optional
        The smallest s so far, the row's own among them, ascending (infinity at first), in place: what
        `mgclust.kernels.neighbors` needs. Only where this module's NEIGHBORS is not 0.
    near_index : int64 array of shape (m, NEIGHBORS), optional
        Their global numbers (-1 at first), in place.
    """
    if near is None or near_index is None:
        near, near_index = np.empty((len(x), 0), x.dtype), np.empty((len(x), 0), np.int64)
    numbers = np.full(len(x), -1, np.int64) if rows is None else rows
    flat, d, factor = x.reshape(-1), x.shape[1], x.dtype.type(-scale * LOG2_E)

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        pairs.gaussian(
            flat, d, start, stop, panels, columns, norm == "l1", factor, power, out, numbers, y_start + first, near,
            near_index,
        )  # fmt: skip

    each_task(x, y, body)


def count_within(x: Array, y: Array, *, norm: str, threshold: float, out: Array) -> None:
    """Add to each row the number of columns with s < threshold, itself included.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.
    threshold : float
        Rounded to the rows' type before it is compared.
    out : int64 array of shape (m,)
        Added to in place.
    """
    flat, d, limit = x.reshape(-1), x.shape[1], x.dtype.type(threshold)
    if (boxes := boxes_for(x, y, norm == "l1", limit)) is not None:
        box_count(x, boxes, norm == "l1", limit, out)
        return

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        pairs.count(flat, d, start, stop, panels, columns, norm == "l1", limit, out)

    each_task(x, y, body)


def nearest_higher(
    x: Array,
    y: Array,
    x_order: Array,
    y_order: Array,
    *,
    norm: str,
    y_start: int,
    best: Array,
    best_index: Array,
) -> None:
    """Lower each row's best to its nearest column of higher density; equal distances: the lower index.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64.
    x_order, y_order : int32 arrays of shape (m,) and (k,)
        Each row's unique position by decreasing density; a column is higher when its order is smaller.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.
    y_start : int
        Global number of y's first row.
    best : array of shape (m,), the rows' type
        Smallest s so far (infinity at first), in place.
    best_index : int64 array of shape (m,)
        Its global row (-1 at first), in place.
    """
    every = bool(len(x) and len(y) and y_order.max() < x_order.min())  # column is higher than every row
    if every and (boxes := boxes_for(x, y, norm == "l1")) is not None:
        box_nearest(x, boxes, norm == "l1", y_start, best, best_index)
        return
    chunk = chunk_columns(x)
    for first in range(0, len(y), chunk):
        part = slice(first, first + chunk)
        nearest_in_chunk(x, y[part], x_order, y_order[part], norm, y_start + first, best, best_index)


def border(x: Array, y: Array, x_labels: Array, y_labels: Array, *, norm: str, threshold: float, out: Array) -> None:
    """Mark rows that have a column of another label nearer than a threshold.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64.
    x_labels, y_labels : integer arrays of shape (m,) and (k,)
        Labels within int32.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.
    threshold : float
        Rounded to the rows' type before it is compared: s < threshold.
    out : uint8 array of shape (m,)
        Set to 1 in place.
    """
    flat, d, limit = x.reshape(-1), x.shape[1], x.dtype.type(threshold)
    own, others = np.asarray(x_labels, np.int32), padded(y_labels, 0)
    if (boxes := boxes_for(x, y, norm == "l1", limit)) is not None:
        box_border(x, boxes, own, others, norm == "l1", limit, out)
        return

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        pairs.border(flat, d, start, stop, panels, columns, norm == "l1", own, others[first:], limit, out)

    each_task(x, y, body)


def reduced_distances(x: Array, y: Array, *, norm: str) -> Array:
    """Return the reduced distances, the same bits as every other kernel sees.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64; m small.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance.

    Returns
    -------
    array of shape (m, k)
        In the rows' type.
    """
    out = np.empty((x.shape[0], y.shape[0]), x.dtype)
    flat, d = x.reshape(-1), x.shape[1]

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        pairs.distances(flat, d, start, stop, panels, columns, norm == "l1", first, out)

    each_task(x, y, body)
    return out


def similarities(
    x: Array, y: Array, *, norm: str, factor: float, first_row: int, y_start: int, seed: int, out: Array
) -> None:
    """Write similarities, minus the distances, with the noise that breaks ties.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows, both float32 or both float64.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance s.
    factor : float
        The similarity is ``-factor * s``; noise as in `jitter`, draw 0 and tiny 100.
    first_row, y_start : int
        Global numbers of the first rows of x and y; y_start a multiple of 16.
    seed : int
        Below 2**64.
    out : array of shape (m, padded(n)), the rows' type
        Columns y_start .. y_start + k - 1 are written; -inf where a row meets itself.
    """
    if y_start % 16:
        raise ValueError(f"y_start={y_start} is not a multiple of 16")
    flat, d, negated = x.reshape(-1), x.shape[1], x.dtype.type(-factor)
    eps, offset = noise_of(x.dtype, 100.0)
    matrix, width = out.reshape(-1), out.shape[1]

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        _cpu_similarities.similarities(
            flat, d, start, stop, panels, columns, norm == "l1", negated, first_row, y_start + first, width,
            signed(seed), eps, offset, matrix,
        )  # fmt: skip

    each_task(x, y, body)
