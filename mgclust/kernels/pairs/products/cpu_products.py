"""All pairs of rows with many features by products, at half the work of direct differences.

A squared difference takes a subtraction and a multiply-add per feature, a product takes one multiply-add::

    |x - y|^2 = |x|^2 + |y|^2 - 2 x.y      8 rows x 32 columns of x.y stay in registers; lengths come from float64

A product is the sum of chains of 32 features, in order, whatever rows and columns a call has. Gaussian sums use
products directly, so their bits do not depend on how rows and columns are split. Decisions are the same as with direct
differences, which decide the pairs that products leave open. Let u be the unit of rounding, c = 2 (d + 8) u, and t the
direct difference::

    | |x|^2 + |y|^2 - 2 x.y  -  t |  <=  c (|x|^2 + |y|^2)  +  c t
                                         d u for products      (d + 3) u for differences; the rest: lengths, slack

This bound turns a threshold into two limits, one on either side (`Lengths.limits`). If a row has a pair between the
limits, the row is compared with the pair's panel again by differences, four rows at a time.

Nearest columns are kept by their lower bounds, a few more than requested, and their differences are computed at the
end. If all other columns are surely farther, the list is complete. If not, the row is compared with all columns
(`Lists.complete`).

If numbers are not finite, or squares overflow, only differences are used. The loops are in `cpu_product_loops`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.pairs import cpu_loops as differences
from mgclust.kernels.pairs.cpu_loops import room_for_sums
from mgclust.kernels.pairs.cpu_tasks import by_rows
from mgclust.kernels.pairs.products.cpu_product_loops import (
    count,
    gaussian,
    histogram,
    neighbors,
    room_for_lists,
    room_for_open,
    squared_lengths,
)
from mgclust.kernels.toolkit.simd import WIDTH

__all__ = [
    "Lengths",
    "Lists",
    "count",
    "filtering",
    "from_column",
    "gaussian",
    "histogram",
    "neighbors",
    "room_for_lists",
    "room_for_open",
    "room_for_sums",
    "supports",
]

Array = Any
FEWEST_FEATURES = 17
MAX_FEATURES = 1 << 15  # c stays far below 1
MIN_WORK = 1 << 30  # multiply-adds of a call: for fewer, another kernel does not pay
COLUMNS_A_NEIGHBOR = 512
MAX_AGAIN = 4  # if more than one in MAX_AGAIN rows had to be compared with all columns, only differences are used then
Sides = tuple[Array, Array]  # numbers that are added to products: one per row, and one per column (padded)


def supports(x: Array, norm: str) -> bool:
    """Return whether products may be used for these rows."""
    return norm != "l1" and FEWEST_FEATURES <= x.shape[1] <= MAX_FEATURES


def filtering(x: Array, y: Array, norm: str, neighbors: int = 0) -> Lengths | None:
    """Prepare lengths for decisions by products; return None if direct differences are faster.

    Products insert each of the `neighbors` nearest columns into lists twice, so they need many columns per neighbour.
    """
    if not supports(x, norm) or x.size * len(y) < MIN_WORK or len(y) < COLUMNS_A_NEIGHBOR * neighbors:
        return None
    lengths = Lengths(x, y)
    return lengths if lengths.fit else None


def from_column(first: int, *sides: Sides) -> tuple[Sides, ...]:
    """Return the sides without the columns before `first`."""
    return tuple((rows, columns[first:]) for rows, columns in sides)


class Lengths:
    """Squared lengths of rows and columns, and the bounds for products of pairs that follow from the lengths.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)
        Rows and columns.

    Attributes
    ----------
    fit : bool
        Whether all numbers are finite, and no sum of two lengths overflows.
    """

    def __init__(self, x: Array, y: Array) -> None:
        self._x, self._y = _lengths(x), _lengths(y)
        self._dtype = x.dtype
        self.fit = bool(self._x.max(initial=0) + self._y.max(initial=0) < np.finfo(x.dtype).max / 4)
        self._error = (x.shape[1] + 8) * float(np.finfo(x.dtype).eps)  # an eps is two units of rounding
        self._least = float(np.finfo(x.dtype).tiny)  # larger than the total loss by underflow

    def scaled(self, factor: float) -> Sides:
        """Return the lengths times a negative factor; columns that pad a panel have infinite lengths."""
        return self._sides(factor * self._x, factor * self._y, -np.inf)

    def lower(self) -> tuple[Sides, float]:
        """Return lengths and a factor, so that ``(|x|^2 + |y|^2 - 2 x.y) factor`` is at most the direct difference."""
        less = 1 - self._error
        return self._sides(less * self._x - self._least, less * self._y), less

    def limits(self, low: float, high: float) -> tuple[Sides, Sides]:
        """Return two limits: products above the first have s < low, and products below the second have s >= high."""
        less, more = (1 - self._error) / 2, (1 + self._error) / 2
        with np.errstate(invalid="ignore"):  # infinite limits
            return (
                self._sides(more * self._x - less * low + self._least, more * self._y),
                self._sides(less * self._x - more * high - self._least, less * self._y),
            )

    def _sides(self, rows: Array, columns: Array, fill: float = 0.0) -> Sides:
        padded = np.full(-(-len(columns) // WIDTH) * WIDTH, fill, self._dtype)
        with np.errstate(over="ignore"):
            padded[: len(columns)] = columns
            return rows.astype(self._dtype), padded


class Lists:
    """The nearest columns of each row, kept by products; lists that products cannot decide are computed by differences.

    Parameters
    ----------
    x, y, y_start, near, near_index
        See `PairKernels.nearest_rows`.
    numbers : int64 array of shape (m,), optional
        Number of the column that each row skips.
    """

    def __init__(
        self, x: Array, y: Array, y_start: int, near: Array, near_index: Array, numbers: Array | None = None
    ) -> None:
        self._x, self._y, self._y_start, self._near, self._index = x, y.reshape(-1), y_start, near, near_index
        self._numbers = np.full(len(x), -1, np.int64) if numbers is None else numbers
        self._doubtful = np.zeros(len(x), np.uint8)
        self._met = self._again = 0

    @property
    def pay(self) -> bool:
        """Return whether products pay, because few enough rows had to be compared again so far."""
        return self._again * MAX_AGAIN <= self._met

    def of(self, first: int) -> tuple[Array, ...]:
        """Return the arguments of a kernel for the columns from `first` on."""
        return self._y[first * self._x.shape[1] :], self._near, self._index, self._doubtful

    def complete(self, start: int, stop: int, panels: Array, first: int, columns: int) -> None:
        """Compare the doubtful rows with all columns of these panels by differences."""
        rows = start + np.flatnonzero(self._doubtful[start:stop])
        self._met, self._again = self._met + stop - start, self._again + len(rows)
        if len(rows):
            near, index, number = self._near[rows], self._index[rows], self._y_start + first
            own, d = self._x[rows].reshape(-1), self._x.shape[1]
            differences.neighbors(
                own, d, 0, len(rows), panels, columns, False, self._numbers[rows], number, near, index
            )
            self._near[rows], self._index[rows], self._doubtful[rows] = near, index, 0


def _lengths(x: Array) -> Array:
    out = np.empty(len(x))
    flat, d = x.reshape(-1), x.shape[1]
    by_rows(len(x), d, 1, lambda start, stop, _: squared_lengths(flat, d, start, stop, out))
    return out
