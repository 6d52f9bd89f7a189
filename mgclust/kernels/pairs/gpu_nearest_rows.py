"""The nearest columns of each row on a CUDA device: a bound on the last of them, a list within it, and a selection.

1. A pass over all pairs keeps the least distance of each row to some groups of columns. So many columns as there are
   groups lie within the largest of their minima: the (k + 1)-th smallest is a bound (a row may be left out itself).
2. A second pass lists the columns within the bound: with four groups for each one wanted, a few more than k.
3. Those are sorted by (distance, number) with what is known, a warp a row.

Rows whose list is too short, because many columns are about as near, are looked at by `sort_rows`. Few features pass by
direct differences here, many by products in `gpu_products`; sort_rows serves the other types, and long lists.
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
SORTED_ROWS, SORTED_COLUMNS = 2048, 8192  # distances that are looked at together
GROUPS = 4  # of a run of columns: COLUMNS in few_features.cu
SPARE_GROUPS = 4  # for each column that is wanted
MAX_MINIMA = 1024  # of a row: MAX_GROUPS in listed_pairs.cu
MAX_KEYS = 2048  # of a row, when its nearest are selected: MAX_KEYS in listed_pairs.cu
SCRATCH_BYTES = 256 << 20  # minima and lists of the rows that are selected at a time
SHARE_OF_FREE = 16  # of the free memory, no more than one part of so many
FEWEST_ROWS = 1024
FEW_SPARE = 256  # columns: direct differences list none in vain but those at one distance


class Selection:
    """Lists of columns for some rows, and what becomes of them.

    Parameters
    ----------
    x : float32 array of shape (m, d)
    near, near_index : arrays of shape (m, k)
        What is known; in place.
    own : int64 array of shape (m,)
        The column that each row leaves out, -1 for none.
    room : int
        Columns that a row may list.
    norm : {"l2", "l1"}

    Attributes
    ----------
    limits : float32 array of shape (m,)
        Bounds on the last of the nearest, once `bound` has lowered them; what is known at first.
    listed, counts : int32 arrays of shape (m, room) and (m,)
        For a kernel to fill.
    """

    def __init__(self, x: Array, near: Array, near_index: Array, own: Array, room: int, norm: str) -> None:
        self._x, self._near, self._index, self._own, self.room = x, near, near_index, own, np.int32(room)
        self._norm = norm
        self._module = compiled("pairs/products/listed_pairs.cu", "float32", norm)
        self.limits = near[:, -1].copy()
        self.listed = cp.empty((len(x), room), dtype=np.int32)
        self.counts = cp.zeros(len(x), dtype=np.int32)

    def bound(self, minima: Array, wide: float = 1.0) -> None:
        """Lower the limits by minima of shape (m, groups); `wide` is what direct differences may be beyond them."""
        m, groups = minima.shape
        rank = np.int32(self._near.shape[1] + 1)  # the column that is left out may be among them
        arguments = (minima, np.int32(m), np.int32(groups), rank, np.float32(wide), self.limits)
        self._module.get_function("kth_smallest")((-(-m // 4),), (128,), arguments)

    def take(self, y: Array, y_start: int) -> None:
        """Keep the nearest of the listed columns of y, of which the first has this number."""
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
    """Columns that a row may list where so many are wanted."""
    return min(MAX_KEYS - count, 2 * count + spare)


def rows_at_once(room: int, groups: int) -> int:
    """Rows whose minima and lists are made at a time."""
    return int(max(FEWEST_ROWS, affordable(SCRATCH_BYTES) // (4 * (room + groups))))


def affordable(most: int) -> int:
    """Bytes that scratch memory may take."""
    return min(most, free_memory() // SHARE_OF_FREE)


def nearest_of_few(x: Array, y: Array, *, norm: str, y_start: int, near: Array, near_index: Array, rows: Array) -> None:
    """Do what `Pairs.nearest_rows` does for few features in float32, where `supports_few` says so."""
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
    """Return whether `nearest_of_few` finds so many of so many columns."""
    wanted = SPARE_GROUPS * (count + 1)
    return dtype == np.float32 and d <= LOW_DIMENSIONS and norm != "l2-dot" and wanted <= min(MAX_MINIMA, columns)


def sort_rows(x: Array, y: Array, *, norm: str, y_start: int, near: Array, near_index: Array, rows: Array) -> None:
    """Do what `Pairs.nearest_rows` does by writing distances, a tile at a time, and sorting those within a bound."""
    for start in range(0, len(x), SORTED_ROWS):
        own = slice(start, start + SORTED_ROWS)
        for first in range(0, len(y), SORTED_COLUMNS):
            columns = y[first : first + SORTED_COLUMNS]
            s = cp.empty((len(x[own]), len(columns)), dtype=x.dtype)
            distances(x[own], columns, norm=direct(norm), root=False, out=s)
            leave_out(s, rows[own] - (y_start + first), cp)
            keep_nearest(s, y_start + first, near[own], near_index[own], cp)
