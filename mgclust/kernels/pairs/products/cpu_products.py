"""All pairs of many features by products in registers: half the work of direct differences, which decide what is open.

A squared difference takes a subtraction and a multiply-add a feature, a product one multiply-add::

    |x - y|^2 = |x|^2 + |y|^2 - 2 x.y      8 rows x 32 columns of x.y stay in registers; lengths come from float64

Chains of 32 features, added in order, make a product, whatever rows and columns a call has. So a Gaussian sum, which
takes them as they are, has the same bits however rows and columns are cut. What is decided, direct differences decide.
With u the unit of rounding, c = 2 (d + 8) u, and t the direct difference::

    | |x|^2 + |y|^2 - 2 x.y  -  t |  <=  c (|x|^2 + |y|^2)  +  c t
                                         d u for products      (d + 3) u for differences; the rest: lengths, slack

Thresholds are moved by so much to either side (`Lengths.limits`); rows with a pair in between meet its panel again,
four at a time, by differences. Nearest columns are kept by their lower bound, a few more than wanted, and take
differences at the end: where all that were left out are surely farther, the list is complete. Other rows are compared
with all columns (`Lists.complete`).

Rows with numbers that are not finite, or whose squares overflow, take differences alone. The loops are in
`cpu_product_loops`.
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
MIN_WORK = 1 << 30  # multiply-adds of a call whose decisions are worth another kernel
COLUMNS_A_NEIGHBOR = 512
MAX_AGAIN = 4  # where one row of so many had to be compared with all columns, direct differences do the rest
Sides = tuple[Array, Array]  # what is added to products: a number of each row, and of each column, these padded


def supports(x: Array, norm: str) -> bool:
    """Tell whether there may be products of these rows."""
    return norm != "l1" and FEWEST_FEATURES <= x.shape[1] <= MAX_FEATURES


def filtering(x: Array, y: Array, norm: str, neighbors: int = 0) -> Lengths | None:
    """Prepare what products need to decide what they can, if that pays: so many nearest columns are inserted twice."""
    if not supports(x, norm) or x.size * len(y) < MIN_WORK or len(y) < COLUMNS_A_NEIGHBOR * neighbors:
        return None
    lengths = Lengths(x, y)
    return lengths if lengths.fit else None


def from_column(first: int, *sides: Sides) -> tuple[Sides, ...]:
    """The same for the columns from `first` on."""
    return tuple((rows, columns[first:]) for rows, columns in sides)


class Lengths:
    """Squared lengths of rows and columns, and what follows from them for the pairs' products.

    Parameters
    ----------
    x, y : arrays of shape (m, d) and (k, d)

    Attributes
    ----------
    fit : bool
        Numbers are finite, and no sum of two lengths overflows.
    """

    def __init__(self, x: Array, y: Array) -> None:
        self._x, self._y = _lengths(x), _lengths(y)
        self._dtype = x.dtype
        self.fit = bool(self._x.max(initial=0) + self._y.max(initial=0) < np.finfo(x.dtype).max / 4)
        self._error = (x.shape[1] + 8) * float(np.finfo(x.dtype).eps)  # an eps is two units of rounding
        self._least = float(np.finfo(x.dtype).tiny)  # more than all that underflow can take away

    def scaled(self, factor: float) -> Sides:
        """Lengths times a factor below 0; columns that pad a panel are infinitely long."""
        return self._sides(factor * self._x, factor * self._y, -np.inf)

    def lower(self) -> tuple[Sides, float]:
        """Lengths and a factor with which ``(|x|^2 + |y|^2 - 2 x.y) factor`` is no more than the direct difference."""
        less = 1 - self._error
        return self._sides(less * self._x - self._least, less * self._y), less

    def limits(self, low: float, high: float) -> tuple[Sides, Sides]:
        """Products above the first belong to pairs with s < low, below the second to pairs with s >= high."""
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
    """The nearest columns of each row, kept by products; those that products cannot tell are found again.

    Parameters
    ----------
    x, y, y_start, near, near_index
        As of `nearest_rows`.
    numbers : int64 array of shape (m,), optional
        The column that each row leaves out.
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
        """Few enough rows were found again so far."""
        return self._again * MAX_AGAIN <= self._met

    def of(self, first: int) -> tuple[Array, ...]:
        """Arguments of a kernel, for the columns from `first` on."""
        return self._y[first * self._x.shape[1] :], self._near, self._index, self._doubtful

    def complete(self, start: int, stop: int, panels: Array, first: int, columns: int) -> None:
        """Compare the doubtful rows with all columns that these panels have."""
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
