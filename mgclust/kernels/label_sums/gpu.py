"""Sums over columns that share a label, on a CUDA device (``label_sums.cu``, and the ``.cu`` files of pairs).

A partial sum adds the columns of one label within a group of 1024 columns in ascending order. Partial sums are added as
integers. So the sums are bitwise independent of the split of columns over calls, of rows over ranks, and of blocks over
the device. Distances to clusters with known means are computed on tensor cores and rounded to integers one by one
(``centred_sums.cu``).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from mgclust.kernels.label_sums import PARTIAL
from mgclust.kernels.pairs.gpu_launch import GROUP, direct, distances, is_low, rows_per_thread
from mgclust.kernels.pairs.products import gpu_products
from mgclust.kernels.toolkit.gpu_compiler import compiled, multiprocessors

__all__ = ["add_by_label", "best_columns", "cluster_sums", "group_sums", "near_share", "same_label_sums"]

Array = Any
THREADS = 256
LOW_THREADS = 128  # threads per block in pairs/few_features.cu
SIDE = 128  # rows per block in pairs/many_features.cu
FOUR = 4  # columns are first added to each other in groups of this number
PIECE = 32  # columns of a partial sum in label_sums.cu
STAGED = 16  # rows per thread block of add_by_label
FEWEST_ROWS = 1 << 16  # minimum number of rows of the whole data for which means are faster
FEWEST_MEMBERS = 4096  # minimum mean cluster size for means, because rows are packed again for each cluster
MAX_LABELINGS = 4  # with more labelings, distances are stored and read again instead of computed for each labeling
TILE_NUMBERS = 1 << 24  # distances that one kernel writes and the next reads: 64 MB, mostly in the cache


def near_share(x: Array, *, n: int, norm: str, root: bool, labelings: int, clusters: int) -> float:
    d = x.shape[1]
    enough = n >= FEWEST_ROWS and labelings <= MAX_LABELINGS and n * labelings >= FEWEST_MEMBERS * clusters
    if not (root and enough and gpu_products.supports(x.dtype, d, norm) and d <= gpu_products.MAX_FEATURES):
        return 0.0
    return _share(gpu_products.chunks_of(d))


def cluster_sums(
    x: Array,
    y: Array,
    labels: Array,
    *,
    norm: str,
    root: bool,
    scale: float,
    y_start: int,
    out: Array,
    about: tuple[Array, Array] | None = None,
) -> None:
    if y_start % GROUP:
        raise ValueError(f"y_start={y_start} should be a multiple of {GROUP}.")
    if not x.shape[0] or not y.shape[0]:
        return
    norm = direct(norm)
    if about is not None:
        for labeling in labels:
            _centred_sums(x, y, labeling, *about, scale, out)
        return
    if is_low(x, norm) or len(labels) == 1:
        for labeling in labels:
            _fused_cluster_sums(x, y, labeling, norm, root, scale, out)
        return
    # With many features, computing distances costs more than storing them and reading them again for each labeling.
    pieces = _pieces(labels)
    rows = min(x.shape[0], 16384)
    columns = max(1, TILE_NUMBERS // (rows * GROUP)) * GROUP
    tile = cp.empty((rows, min(columns, y.shape[0])), x.dtype)
    for start in range(0, x.shape[0], rows):
        part = x[start : start + rows]
        for first in range(0, y.shape[0], columns):
            few = y[first : first + columns]
            distances(part, few, norm=norm, root=root, out=tile)
            _add_pieces(tile[: len(part)], len(few), pieces, first, scale, out[start : start + rows])


def add_by_label(values: Array, labels: Array, *, n: int, scale: float, out: Array) -> None:
    if values.shape[0]:
        _add_pieces(values, n, _pieces(labels), 0, scale, out)


def group_sums(x: Array, labels: Array, *, scale: float, out: Array) -> None:
    if x.size:
        kernel = compiled("label_sums/label_sums.cu", x.dtype.name).get_function("group_sums")
        sizes = (np.int64(x.size), np.int32(x.shape[1]))
        kernel((-(-x.size // THREADS),), (THREADS,), (x, *sizes, labels, np.float64(scale), out))


def same_label_sums(s: Array, labels: Array, *, n: int, first_row: int, scale: float, out: Array) -> None:
    m = s.shape[0]
    if m:
        columns = -(-n // THREADS)
        rows = max(1, -(-m * columns // (32 * multiprocessors())))
        kernel = compiled("label_sums/label_sums.cu", s.dtype.name).get_function("same_label_sums")
        sizes = (s, np.int32(m), np.int32(n), np.int64(s.shape[1]), np.int32(first_row))
        kernel((columns, -(-m // rows)), (THREADS,), (*sizes, labels, np.float64(scale), np.int32(rows), out))


def best_columns(s: Array, columns: Array, *, out: Array) -> None:
    if s.shape[0]:
        kernel = compiled("label_sums/label_sums.cu", s.dtype.name).get_function("best_columns")
        sizes = (s, np.int32(s.shape[0]), np.int64(s.shape[1]), columns, np.int32(columns.size))
        kernel((-(-s.shape[0] // (THREADS // 32)),), (THREADS,), (*sizes, out))


class _Pieces(NamedTuple):
    """Columns sorted by labeling, group and label, cut into pieces (see add_by_label in label_sums.cu)."""

    order: Array  # (n_labelings * n,) columns
    start: Array  # (pieces + 1,) position in `order` at which each piece begins
    label: Array  # (pieces,) label of each piece
    first: Array  # (n_labelings, groups + 1) first piece of each group
    groups: int


def _pieces(labels: Array) -> _Pieces:
    count, n = labels.shape
    groups = -(-n // GROUP)
    order, starts, firsts, found = [], [], [], 0
    for labeling in range(count):
        group = cp.arange(n, dtype=cp.int64) // GROUP
        key = (group << 32) | labels[labeling]
        by_key = cp.argsort(key, kind="stable")
        begins = _piece_begins(key[by_key], PIECE)
        order.append(by_key.astype(cp.int32))
        starts.append(begins + labeling * n)
        firsts.append(cp.searchsorted(begins, cp.arange(groups + 1) * GROUP) + found)
        found += len(begins)
    every, start = cp.concatenate(order), cp.concatenate(starts)
    label = labels.reshape(-1)[every[start].astype(cp.int64) + start // n * n]
    start = cp.concatenate([start, cp.asarray([count * n])]).astype(cp.int32)
    return _Pieces(every, start, label, cp.stack(firsts).astype(cp.int32), groups)


def _piece_begins(key: Array, most: int) -> Array:
    """Return the positions in a sorted array at which a key begins, and every `most` positions after its beginning."""
    begins = cp.ones(len(key), bool)
    begins[1:] = key[1:] != key[:-1]
    where = cp.flatnonzero(begins)
    position = cp.arange(len(key)) - where[cp.cumsum(begins) - 1]
    return cp.flatnonzero(position % most == 0)


def _add_pieces(values: Array, n: int, pieces: _Pieces, first: int, scale: float, out: Array) -> None:
    """Add the values of columns ``first`` to ``first + n - 1`` by label; `first` is a multiple of GROUP."""
    m, stride = values.shape
    kernel = compiled("label_sums/label_sums.cu", values.dtype.name).get_function("add_by_label")
    shared = STAGED * (GROUP + 1) * values.itemsize
    kernel.max_dynamic_shared_size_bytes = shared
    grid = (-(-m // STAGED), -(-n // GROUP))
    sizes = (values, np.int32(m), np.int32(n), np.int64(stride), np.int32(first))
    lists = (pieces.order, pieces.start, pieces.label, pieces.first, np.int32(len(pieces.first)))
    kernel(
        grid, (THREADS,), (*sizes, *lists, np.int32(pieces.groups), np.float64(scale), np.int32(out.shape[1]), out),
        shared_mem=shared,
    )  # fmt: skip


def _fused_cluster_sums(x: Array, y: Array, labels: Array, norm: str, root: bool, scale: float, out: Array) -> None:
    """Compute and add distances in one kernel; `labels` belong to one labeling.

    Columns are sorted by cluster and then by group, so a row's total stays in a register for a whole cluster.
    """
    (m, d), k = x.shape, len(y)
    key = (labels.astype(cp.int64) << 32) | (cp.arange(k, dtype=cp.int64) // GROUP)
    order = cp.argsort(key, kind="stable")
    begins = _piece_begins(key[order], PARTIAL)
    lengths = cp.diff(cp.concatenate([begins, cp.asarray([k])]))
    stops = cp.cumsum(-(-lengths // FOUR))  # counted in fours, because partial sums begin at multiples of four
    starts = stops - -(-lengths // FOUR)
    total = int(stops[-1])
    partial = cp.searchsorted(begins, cp.arange(k), side="right") - 1
    place = starts[partial] * FOUR + cp.arange(k) - begins[partial]
    columns = cp.zeros(total * FOUR, cp.int64)
    columns[place] = order
    cluster = cp.full(total * FOUR, -1, cp.int32)
    cluster[place] = labels[order]
    ends = cp.zeros(total, cp.int32)
    last = cp.ones(len(starts), bool)
    last[:-1] = cluster[starts[1:] * FOUR] != cluster[starts[:-1] * FOUR]
    ends[stops - 1] = cp.where(last, 3, 1)

    low = is_low(x, norm)
    rows = rows_per_thread(m, d, x.dtype) * LOW_THREADS if low else SIDE
    count = max(1, min(-(-16 * multiprocessors() // -(-m // rows)), -(-k // GROUP)))
    # Each run begins with a partial sum. With few columns, several runs may begin with the same partial sum; then all
    # of them except one are empty.
    cuts = cp.concatenate([starts, cp.asarray([total])])
    runs = cuts[cp.searchsorted(cuts, cp.arange(count + 1) * total // count)]
    ends[runs[1:] - 1] = 3
    lists = ((runs * FOUR).astype(cp.int32), cluster, ends)
    sums = (np.bool_(root), np.float64(scale), np.int32(out.shape[1]), out)
    if low:
        module = compiled("pairs/few_features.cu", x.dtype.name, norm, DIM=d, ROWS=rows // LOW_THREADS)
        sizes: tuple[Any, ...] = (x, np.int32(m), y[columns])
    else:
        module = compiled("pairs/many_features.cu", x.dtype.name, norm)
        sizes = (x, np.int32(m), y[columns], np.int32(d))
    grid = (-(-m // rows), count)
    module.get_function("cluster_sums")(grid, (LOW_THREADS if low else THREADS,), (*sizes, *lists, *sums))


def _centred_sums(x: Array, y: Array, labels: Array, means: Array, spread: Array, scale: float, out: Array) -> None:
    """Add distances cluster by cluster, from rows and columns minus the cluster's mean, on tensor cores."""
    (m, d), chunks = x.shape, gpu_products.chunks_of(x.shape[1])
    module = gpu_products.program("label_sums/centred_sums.cu", chunks)
    kernel = module.get_function("centred_sums")
    kernel.max_dynamic_shared_size_bytes = gpu_products.SHARED_BYTES

    order = cp.argsort(labels, kind="stable")
    edges = cp.searchsorted(labels[order], cp.arange(out.shape[1] + 1, dtype=labels.dtype)).get().tolist()
    most = gpu_products.most_rows(chunks)
    for start in range(0, m, most):
        part, sums = x[start : start + most], out[start : start + most]
        for cluster, (first, last) in enumerate(pairwise(edges)):
            if first == last:
                continue
            mean = means[cluster]
            rows = gpu_products.pack_about(module, part, mean)
            for begin in range(first, last, most):
                members = order[begin : min(begin + most, last)]
                columns = gpu_products.pack_about(module, y, mean, members)
                run = gpu_products.run_of(len(part), len(members))
                grid = (-(-len(part) // gpu_products.ROWS), -(-len(members) // (run * gpu_products.ROWS)))
                sides = (part, *rows, np.int32(len(part)), y, *columns, members, np.int32(len(members)))
                sizes = (np.int32(d), np.int32(chunks), np.int32(run), spread[cluster:])
                target = (np.float32(_share(chunks)), np.float64(scale), np.int32(out.shape[1]), sums[:, cluster:])
                kernel(
                    grid, (gpu_products.THREADS,), (*sides, *sizes, *target), shared_mem=gpu_products.SHARED_BYTES
                )  # fmt: skip


def _share(chunks: int) -> float:
    """Return the value of `near_share`; it grows with `chunks`, because products are cut off every 16 features."""
    return max(2, chunks) / 512
