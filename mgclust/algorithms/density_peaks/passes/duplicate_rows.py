"""Bitwise identical densities for duplicate rows: all of them leave out the same column.

The Gaussian density of a row is a sum without the row's own term, which is 1. The terms are added in the order of the
columns, so the rounding of the sum depends on which 1 is left out. If each row left out itself, the densities of equal
rows could differ in the last bit, and the rule for ties (see `mgclust.algorithms.density_peaks.ranks`) would not apply
to them. So each row leaves out the first row that is equal to it: the sum is the same, and all equal rows add the same
terms in the same order.

Equal rows have equal hashes. One gather of 8 bytes per row shows which hashes occur twice. Rows with such a hash are
compared before they count as equal.
"""

from __future__ import annotations

from typing import Any

from mgclust.algorithms.common.row_hashes import row_hashes
from mgclust.engine.rows import Block
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import any_true

__all__ = ["DuplicateRows", "first_of_duplicates", "kinds_of_rows"]

Array = Any


class DuplicateRows:
    """Map from each row of this rank to the first row, on any rank, that is equal to it.

    Parameters
    ----------
    context : Context
        All ranks must call the constructor together.
    """

    def __init__(self, context: Context) -> None:
        xp, rows = context.kernels.xp, context.rows
        self._xp, self._start = xp, rows.start
        self._first = kinds_of_rows(context)[1][rows.start : rows.stop].copy()
        self._some = any_true(self._first != xp.arange(rows.start, rows.stop))

    def columns(self, chunk: Block, block: Block) -> Array:
        """Return the column that each row of a chunk leaves out; blocks must come in ascending order.

        Parameters
        ----------
        chunk, block : Block
            Chunk and block that `Context.all_pairs` yields.

        Returns
        -------
        int64 array of shape (rows of the chunk,)
            The row's own number if no earlier row is equal to it. Row numbers in later blocks can still change.
        """
        first = self._first[chunk.start - self._start : chunk.stop - self._start]
        if self._some:
            xp = self._xp
            number = xp.arange(chunk.start, chunk.stop)
            here = xp.flatnonzero((first >= block.start) & (first < block.stop) & (first != number))
            first[here] = compared(chunk.x[here], block.x[first[here] - block.start], number[here], first[here], xp)
        return first


def first_of_duplicates(rows: Array, wanted: Array, xp: Any) -> Array:
    """Find the first row that is equal to each of a few rows.

    Parameters
    ----------
    rows : array of shape (n, d)
        All rows.
    wanted : int64 array of shape (k,)
        Row numbers of the few rows.
    xp : module
        numpy or cupy.

    Returns
    -------
    int64 array of shape (k,)
        Row number of the first equal row, for each of the few rows.
    """
    first = first_with_hash(row_hashes(rows, xp), xp)[wanted]
    return compared(rows[wanted], rows[first], wanted, first, xp)


def kinds_of_rows(context: Context) -> tuple[Array, Array]:
    """Return the hash of each row of all ranks, and the first row with the same hash."""
    xp = context.kernels.xp
    own = xp.concatenate([row_hashes(chunk.x, xp) for chunk in context.rows.chunks()])
    hashes = context.comm.all_gather(own)
    return hashes, first_with_hash(hashes, xp)


def compared(x: Array, y: Array, own: Array, first: Array, xp: Any) -> Array:
    """Return the number of the first row if it is equal to the row, else the row's own number."""
    return xp.where((x == y).view("uint8").min(axis=1) > 0, first, own)  # see `mgclust.kernels.masks`


def first_with_hash(hashes: Array, xp: Any) -> Array:
    """Return the first position with the same hash, for each position."""
    n = len(hashes)
    ordered = xp.sort(hashes)
    if not any_true(ordered[1:] == ordered[:-1]):
        return xp.arange(n)
    begins = xp.ones(n, bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    del ordered
    order = xp.argsort(hashes, kind="stable")
    firsts, group = order[begins], xp.cumsum(begins)
    group -= 1
    first = xp.empty(n, "int64")
    first[order] = firsts[group]
    return first
