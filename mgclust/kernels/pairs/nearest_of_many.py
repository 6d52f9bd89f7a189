"""Lists of nearest columns from a block of distances, without a sort of all distances: array expressions.

The code is the same for both devices. It finds the smallest distance of each group of columns. The k-th smallest of
these minima is a bound: at least k columns lie within it. Only the columns within the bound, for most rows a few times
k, are sorted together with the list so far. If many columns lie within the bound, as with many equal distances, the
whole block is sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.masks import count_true

__all__ = ["keep_nearest", "leave_out"]

Array = Any

GROUP = 64  # columns
MANY = 8  # if more than one in MANY distances is within the bound, all distances are sorted


def leave_out(s: Array, columns: Array, xp: Any) -> None:
    """Make the distance of one column of each row infinite, in place; ``columns`` has its position in the block.

    A position outside the block has no effect.
    """
    here = (columns >= 0) & (columns < s.shape[1])
    row, at = xp.arange(len(s)), xp.where(here, columns, 0)
    s[row, at] = xp.where(here, np.inf, s[row, at]).astype(s.dtype)


def keep_nearest(s: Array, y_start: int, near: Array, near_index: Array, xp: Any) -> None:
    """Keep each row's nearest columns so far; ties go to the lower number.

    Parameters
    ----------
    s : array of shape (m, c)
        Distances; infinite if a row skips the column.
    y_start : int
        Number of the first column, higher than all numbers in the lists.
    near : array of shape (m, k)
        Smallest distances so far, ascending (infinity at first), changed in place.
    near_index : int64 array of shape (m, k)
        Numbers of these columns (-1 at first), changed in place.
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
    # Kept columns come first and have lower numbers, so a stable sort puts equal distances in the right order.
    every, index = xp.concatenate([near, found], axis=1), xp.concatenate([near_index, index], axis=1)
    order = xp.argsort(every, axis=1, kind="stable")[:, :count]
    near[:] = xp.take_along_axis(every, order, axis=1)
    near_index[:] = xp.where(xp.isfinite(near), xp.take_along_axis(index, order, axis=1), -1)
