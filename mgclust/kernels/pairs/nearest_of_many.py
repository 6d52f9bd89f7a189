"""Lists of nearest columns from a block of distances, without sorting all of them: array expressions for either device.

The k-th smallest of the least distances of groups of columns is a bound: so many columns lie within it at least. What
does, a few k columns of most rows, is sorted with the list so far. Where much of the block does, as with many equal
distances, all of it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.masks import count_true

__all__ = ["keep_nearest", "leave_out"]

Array = Any

GROUP = 64  # columns
MANY = 8  # of so many distances one within the bound: all are sorted


def leave_out(s: Array, columns: Array, xp: Any) -> None:
    """Make one distance of each row infinite, in place: of the column with this number, if there is one."""
    here = (columns >= 0) & (columns < s.shape[1])
    row, at = xp.arange(len(s)), xp.where(here, columns, 0)
    s[row, at] = xp.where(here, np.inf, s[row, at]).astype(s.dtype)


def keep_nearest(s: Array, y_start: int, near: Array, near_index: Array, xp: Any) -> None:
    """Keep each row's nearest columns so far; equal distances: the lower number.

    Parameters
    ----------
    s : array of shape (m, c)
        Distances, infinite where a column is left out.
    y_start : int
        Number of the first column, higher than those in the lists.
    near : array of shape (m, k)
        Ascending (infinity at first), in place.
    near_index : int64 array of shape (m, k)
        Numbers (-1 at first), in place.
    xp : module
        numpy or cupy.
    """
    m, c = s.shape
    count, groups = near.shape[1], c // GROUP
    limit = near[:, -1]
    if groups >= count:
        least = s[:, : groups * GROUP].reshape(m, groups, GROUP).min(axis=2)
        limit = xp.minimum(limit, xp.sort(least, axis=1)[:, count - 1])
    within = s <= limit[:, None]
    if count_true(within) * MANY > m * c:
        found, index = s, xp.broadcast_to(xp.arange(y_start, y_start + c), s.shape)
    else:
        row, column = xp.nonzero(within)
        counts = xp.diff(xp.searchsorted(row, xp.arange(m + 1)))
        place = xp.arange(len(row)) - (xp.cumsum(counts) - counts)[row]
        found = xp.full((m, int(counts.max())), np.inf, dtype=s.dtype)
        index = xp.full(found.shape, -1, dtype="int64")
        found[row, place], index[row, place] = s[row, column], column + y_start
    # Columns that were kept come first and have lower numbers: of equal ones, the order stays.
    every, index = xp.concatenate([near, found], axis=1), xp.concatenate([near_index, index], axis=1)
    order = xp.argsort(every, axis=1, kind="stable")[:, :count]
    near[:] = xp.take_along_axis(every, order, axis=1)
    near_index[:] = xp.where(xp.isfinite(near), xp.take_along_axis(index, order, axis=1), -1)
