"""The k nearest columns of each row on a CUDA device: a bound, a list of the columns within it, and a selection.

1. A pass over all pairs finds the smallest distance (the minimum) of each row to each of several groups of columns. At
   least k + 1 columns lie within the (k + 1)-th smallest minimum; one of them may be the column that the row skips. So
   this minimum is an upper bound of the distance to the k-th nearest column.
2. A second pass lists the columns within the bound. With four groups per requested column, these are a few more than k.
3. A kernel sorts the listed columns by (distance, number), together with the nearest columns so far, one warp per row.

If many columns have nearly the same distance, a row's list may be too short. Such rows are passed to `sort_rows`.

For few features, the passes use direct differences here; for many features, they use products in `gpu_products`.
`sort_rows` serves all other number types, and long lists.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.memory.gpu import free_memory
from mgclust.kernels.pairs.gpu_launch import LOW_DIMENSIONS, TILE, direct, distances, launch, run_length
from mgclust.kernels.pairs.nearest_of_many import keep_nearest, leave_out
from mgclust.kernels.toolkit.gpu_compiler import compiled

__all__ = [
    "MAX_MINIMA",
    "Selection",
    "affordable",
    "nearest_of_few",
    "room_of",
    "rows_at_once",
    "sort_rows",
    "supports_few",
]

Array = Any
SORTED_ROWS, SORTED_COLUMNS = 2048, 8192  # rows and columns of a tile of distances in `sort_rows`
GROUPS = 4  # groups of a run of columns: COLUMNS in few_features.cu
SPARE_GROUPS = 4  # groups per requested column
MAX_MINIMA = 1024  # largest number of minima of a row: MAX_GROUPS in listed_pairs.cu
MAX_KEYS = 2048  # largest number of columns from which a row's nearest are selected: MAX_KEYS in listed_pairs.cu
SCRATCH_BYTES = 256 << 20  # bytes for the minima and lists of the rows that are processed together
SHARE_OF_FREE = 16  # scratch memory takes at most one part in SHARE_OF_FREE of the free memory
FEWEST_ROWS = 1024
FEW_SPARE = 256  # spare columns of a list: direct differences list unneeded columns only at equal distances


class Selection:
    """Lists of columns for some rows, and the selection of the nearest columns from the lists.

    Parameters
    ----------
    x : float32 array of shape (m, d)
    near, near_index : arrays of shape (m, k)
        Smallest distances and numbers of the nearest columns so far; changed in place.
    own : int64 array of shape (m,)
        Number of the column that each row skips; -1 for none.
    room : int
        Largest number of columns that a row may list.
    norm : {"l2", "l1"}

    Attributes
    ----------
    limits : float32 array of shape (m,)
        Upper bounds of the distance to the last of the nearest columns: at first the last distance so far, which
        `bound` may lower.
    listed, counts : int32 arrays of shape (m, room) and (m,)
        Listed columns of each row, and their number. A kernel fills both arrays.
    """

    def __init__(self, x: Array, near: Array, near_index: Array, own: Array, room: int, norm: str) -> None:
        self._x, self._near, self._index, self._own, self.room = x, near, near_index, own, np.int32(room)
        self._norm = norm
        self._module = compiled("pairs/products/listed_pairs.cu", "float32", norm)
        self.limits = near[:, -1].copy()
        self.listed = cp.empty((len(x), room), dtype=np.int32)
        self.counts = cp.zeros(len(x), dtype=np.int32)

    def bound(self, minima: Array, wide: float = 1.0) -> None:
        """Lower the limits to bounds from the minima, enlarged by the factor `wide`.

        Parameters
        ----------
        minima : float32 array of shape (m, groups)
            Smallest distances of each row to groups of columns.
        wide : float
            Largest ratio of a direct difference to a distance in the minima.
        """
        m, groups = minima.shape
        rank = np.int32(self._near.shape[1] + 1)  # one more, because the skipped column may be among the minima
        arguments = (minima, np.int32(m), np.int32(groups), rank, np.float32(wide), self.limits)
        self._module.get_function("kth_smallest")((-(-m // 4),), (128,), arguments)

    def take(self, y: Array, y_start: int) -> None:
        """Keep the nearest of the listed columns of y; y_start is the number of the first column of y."""
        m, d = self._x.shape
        self._module.get_function("select_nearest")(
            (-(-m // 2),), (64,),
            (self._x, np.int32(m), y, np.int32(d), self.listed, self.counts, self.room, np.int32(self._near.shape[1]),
             np.int64(y_start), self._own, self._near, self._index),
        )  # fmt: skip
        many = cp.flatnonzero(self.counts > self.room)
        if many.size:
            near, index = self._near[many], self._index[many]
            lists = {"near": near, "near_index": index, "rows": self._own[many]}
            sort_rows(self._x[many], y, norm=self._norm, y_start=y_start, **lists)
            self._near[many], self._index[many] = near, index


def room_of(count: int, spare: int) -> int:
    """Return the number of columns that a row may list if `count` nearest columns are requested."""
    return min(MAX_KEYS - count, 2 * count + spare)


def rows_at_once(room: int, groups: int) -> int:
    """Return the number of rows whose minima and lists are computed together."""
    return int(max(FEWEST_ROWS, affordable(SCRATCH_BYTES) // (4 * (room + groups))))


def affordable(most: int) -> int:
    """Return the number of bytes that scratch memory may take: at most `most`, and a fraction of the free memory."""
    return min(most, free_memory() // SHARE_OF_FREE)


def nearest_of_few(x: Array, y: Array, *, norm: str, y_start: int, near: Array, near_index: Array, rows: Array) -> None:
    """Do the work of `PairKernels.nearest_rows` for few features in float32, if `supports_few` returns True."""
    count = near.shape[1]
    room, wanted = room_of(count, FEW_SPARE), SPARE_GROUPS * (count + 1)
    step = rows_at_once(room, MAX_MINIMA)
    for start in range(0, len(x), step):
        mine = slice(start, start + step)
        own = x[mine]
        selection = Selection(own, near[mine], near_index[mine], rows[mine], room, norm)
        run = min(run_length(own, y, TILE), len(y) * GROUPS // wanted)
        run = max(run, -(-len(y) * GROUPS // MAX_MINIMA))
        minima = cp.empty((len(own), GROUPS * -(-len(y) // run)), dtype=np.float32)
        launch("minima", own, y, norm, run, minima)
        selection.bound(minima)
        lists = selection.limits, selection.listed, selection.counts, selection.room
        launch("collect", own, y, norm, run_length(own, y, TILE), *lists)
        selection.take(y, y_start)


def supports_few(dtype: Any, d: int, columns: int, count: int, norm: str = "l2") -> bool:
    """Return whether `nearest_of_few` can find the `count` nearest of this number of columns."""
    wanted = SPARE_GROUPS * (count + 1)
    return dtype == np.float32 and d <= LOW_DIMENSIONS and norm != "l2-dot" and wanted <= min(MAX_MINIMA, columns)


def sort_rows(x: Array, y: Array, *, norm: str, y_start: int, near: Array, near_index: Array, rows: Array) -> None:
    """Do the work of `PairKernels.nearest_rows` by tiles of distances; the distances within a bound are sorted."""
    for start in range(0, len(x), SORTED_ROWS):
        own = slice(start, start + SORTED_ROWS)
        for first in range(0, len(y), SORTED_COLUMNS):
            columns = y[first : first + SORTED_COLUMNS]
            s = cp.empty((len(x[own]), len(columns)), dtype=x.dtype)
            distances(x[own], columns, norm=direct(norm), root=False, out=s)
            leave_out(s, rows[own] - (y_start + first), cp)
            keep_nearest(s, y_start + first, near[own], near_index[own], cp)
