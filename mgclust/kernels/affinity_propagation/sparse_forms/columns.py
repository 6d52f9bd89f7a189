r"""The state of affinity propagation on one rank with a few kept columns instead of lists, and why this is exact.

`messages` has the equations. `listed` explains why A(i,k) is a(k) if R(i,k) was never positive, and at most a(k)
otherwise. If the number K of exemplars is small, lists would have 1 / (2 K) of all pairs, but only few columns are near
the two largest A + S of any row. So in this form, a rank stores S and A of some columns for all of its rows, and no
other A. These columns are *kept*:

*The two largest of A + S* are found among the kept columns, the recent columns and the diagonal, if A + S is less than
m2 in all other columns. This is certain if a(k) + S < m2 for the largest a(k) of the other columns and the largest S of
the row. Otherwise the row is *undecided*; then more columns are kept, beginning with the largest a(k).

*The sums of max(0, R(i,k))* depend only on S, sigma and u, except in the recent columns. All similarities are computed
again in each iteration, and are not stored. R of a recent column differs by E, so its term is corrected separately. The
sums are integers, so they are bitwise independent of the order of addition.

*A of a column that is kept later* is computed from the lists that the rank had before it changed to this form, and
(sigma, damping, c, u) of each iteration since then. The same operations in the same order give the same bits. A kept
column is never dropped. A pair that was recent when the rank changed to this form also stays recent, with E = 0,
because its E is not stored. A column becomes recent in a row when it has the largest A + S of the row, so it was kept
or recent before.

Cost for n rows, d features, k kept columns and t iterations. Time: n^2 d operations and 16 n k bytes per iteration, and
n t operations for each further column. Memory: 8 bytes for each own element of the former lists, 8 bytes per row and
iteration, and 8 n k bytes for the columns.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mgclust.kernels.affinity_propagation.messages import Iteration, Vectors

if TYPE_CHECKING:
    from mgclust.kernels.affinity_propagation.sparse_forms import cpu_columns, gpu_columns

__all__ = ["ColumnMessages", "ColumnPassing", "load_columns"]

Array = Any


@dataclass
class ColumnMessages(Vectors):
    """State of the message passing with k kept columns on a rank with m of n rows; `real` is float32 or float64."""

    a_column: Array  # shape (n,), real: a(k)
    # recent_place, recent_s: shape (m, places), int32 and real: positions of recent columns among the kept columns (-1
    # if they are not there), and their S
    recent_place: Array
    recent_s: Array
    columns: Array  # shape (k,), int32: the kept columns, in the order in which they were chosen
    # s, a: shape (m, k), real: S, with -inf on the diagonal; A, with -inf in recent columns
    s: Array
    a: Array
    # nearest, slack: shape (m,), real. nearest: the largest S of a row. slack: m2 - nearest; a(k) of all columns that
    # are not kept has to be less
    nearest: Array
    slack: Array
    undecided: Array  # shape (m,), uint8: 1 if the row is undecided, else 0


class ColumnPassing(Protocol):
    """Functions on kept columns that the CPU and GPU modules provide.

    Parameters of several functions:

    messages : ColumnMessages
        The state, changed in place.
    sigma, scale : float
        sigma of R = sigma S - u, and the scale of the fixed-point sums.
    """

    def add_positive(self, s: Array, u: Array, *, n: int, sigma: float, scale: float, out: Array) -> None:
        """Add up max(0, R(i,k)) without E over some rows i, for each column k.

        Parameters
        ----------
        s : array of shape (rows, padded(n))
            Similarities of the rows.
        u : array of shape (rows,), the similarities' type
            u of the rows.
        out : int64 array of shape (at least n,)
            Changed in place by addition.
        """

    def add_positive_products(
        self, x: Array, y: Array, u: Array, most: Array | None, *, norm: str, factor: float, first_row: int, seed: int,
        sigma: float, scale: float, out: Array,
    ) -> Array | None:  # fmt: skip
        """Do the work of `add_positive` for rows x and all rows y, without stored similarities; float32 on a GPU only.

        Parameters
        ----------
        x, y : arrays of shape (m, d) and (n, d)
            The rows.
        most : array or None
            Return value of the last call for these rows; it is used to skip tiles of pairs without a positive R.
        norm, factor, first_row, seed
            See ``similarities``.

        Returns
        -------
        array or None
            The largest similarity of each tile, for the next call; None if nothing was done.
        """

    def finish_columns(self, messages: ColumnMessages, *, damping: float) -> None:
        """Update a(k) from the current c."""

    def pass_column_rows(
        self, messages: ColumnMessages, rows: Array, numbers: Iteration, *, again: bool, outside: float
    ) -> None:
        """Do the work of ``pass_rows`` for some rows, except for the sums without E; in undecided rows, update only A.

        Parameters
        ----------
        messages : ColumnMessages
            Changed in place: the arrays that ``pass_rows`` changes, slack, undecided and the last element of `sums`.
        rows : int64 array of shape (rows,)
            Positions among the rows of this rank.
        numbers : Iteration
            Numbers of both iterations.
        again : bool
            Whether these rows were undecided in the last pass; then their A is up to date.
        outside : float
            The largest a(k) of columns that are not kept.
        """

    def place_listed(self, begin: Array, own: Array, column: Array, values: Array, where: Array, out: Array) -> None:
        """Copy the values that lists have for some columns to `out`, which has shape (rows, columns).

        Parameters
        ----------
        begin, own : int64 arrays of shape (rows,)
            Start of each row's list, and number of its elements to copy from.
        column, values : flat arrays
            Columns and values of all lists.
        where : int32 array of shape (n,)
            Position of each column in `out`; -1 if it has none.
        """

    def replay(
        self, s: Array, a: Array, c: Array, u: Array, first: int, sigmas: list[float], dampings: list[float]
    ) -> None:
        """Update A of some columns through several iterations; elements with -inf do not change.

        Parameters
        ----------
        s, a : arrays of shape (rows, columns)
            S and A of these columns; A is changed in place.
        c : array of shape (iterations, columns)
            c of each iteration.
        u : array of shape (iterations, rows of this rank)
            u of each iteration.
        first : int
            Position of the first row of `s` among the rows of this rank.
        sigmas, dampings : list of float
            sigma and damping of each iteration.
        """


if TYPE_CHECKING:
    _cpu: ColumnPassing = cpu_columns
    _gpu: ColumnPassing = gpu_columns


def load_columns(device: str) -> ColumnPassing:
    """Return the functions of a device, "cpu" or "cuda"."""
    name = {"cpu": "cpu_columns", "cuda": "gpu_columns"}[device]
    found: ColumnPassing = importlib.import_module(f"mgclust.kernels.affinity_propagation.sparse_forms.{name}")
    return found
