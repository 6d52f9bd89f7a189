r"""The state of affinity propagation on one rank where few columns decide all rows: no lists, and why this is exact.

`messages` has the equations, `listed` two facts: A(i,k) is a(k) wherever R(i,k) was never positive, and at most a(k)
elsewhere. With few exemplars K the lists hold 1 / (2 K) of all pairs, yet few columns are near the two largest A + S of
any row. So here a rank keeps S and A of some columns in all of its rows, and no other A:

*The two largest of A + S* are those of the kept columns, of the recent columns and of the diagonal, where any other
column is below: where a(k) + S < m2 for the largest a(k) of the others, and the largest S of the row. A row where it
is not is *undecided*; then more columns are taken, those with the largest a(k).

*The sums of max(0, R(i,k))* need S, sigma and u alone, but in the recent columns: all similarities are computed again,
in each iteration, and nothing of them is kept. R of a recent column differs by E, so what it adds is corrected by
itself. Sums are of integers: any order gives the same bits.

*A of a column that is taken later* follows from its beginning: the lists as they were when this form began, and
(sigma, damping, c, u) of each iteration since then. The same operations in the same order give the same bits. Columns
that were taken stay, and a pair that was recent when this form began stays so, with E = 0: its E is not remembered. A
column becomes recent in a row as its largest, so it was among the kept ones, or recent before.

Cost, n rows, d features, k columns kept, t iterations: n^2 d operations and 16 n k bytes an iteration, n t operations
for a column that is taken, 8 bytes for each element with an A of its own in the beginning and for each row and
iteration, 8 n k for the columns.
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
    """State of the message passing on one rank, on k columns; m own rows of n; `real` is float32 or float64."""

    a_column: Array  # shape (n,), real: a(k)
    # recent_place, recent_s: of shape (m, places), int32 and real: where recent columns are among those kept (-1: they
    # are not), and S there
    recent_place: Array
    recent_s: Array
    columns: Array  # shape (k,), int32: those kept, in the order in which they were taken
    # s, a: of shape (m, k), real: S, -inf on the diagonal; A, -inf in recent columns
    s: Array
    a: Array
    # nearest, slack: of shape (m,), real: no S of a row is larger; how far a(k) of any other column has to be below
    nearest: Array
    slack: Array
    undecided: Array  # shape (m,), uint8


class ColumnPassing(Protocol):
    """Functions on kept columns that both devices have, with these meanings.

    Parameters of several functions:

    messages : ColumnMessages
        The state, in place.
    sigma, scale : float
        As of ``pass_rows``: R = sigma S - u; of the fixed-point sums.
    """

    def add_positive(self, s: Array, u: Array, *, n: int, sigma: float, scale: float, out: Array) -> None:
        """Add the sums over some rows of max(0, R(i,k)) without E.

        Parameters
        ----------
        s : array of shape (rows, padded(n))
        u : array of shape (rows,), the similarities' type
        out : int64 array of shape (at least n,)
        """

    def add_positive_products(
        self, x: Array, y: Array, u: Array, most: Array | None, *, norm: str, factor: float, first_row: int, seed: int,
        sigma: float, scale: float, out: Array,
    ) -> Array | None:  # fmt: skip
        """Do `add_positive` for rows x of all rows y without writing their similarities: float32 products of a GPU.

        Parameters
        ----------
        x, y : arrays of shape (m, d) and (n, d)
        most : array or None
            What was returned last for these rows: with it, parts without a positive R are left out.
        norm, factor, first_row, seed
            As of ``similarities``.

        Returns
        -------
        array or None
            The largest similarities of parts, for the next call; None where nothing was done.
        """

    def finish_columns(self, messages: ColumnMessages, *, damping: float) -> None:
        """Bring a(k) up to date."""

    def pass_column_rows(
        self, messages: ColumnMessages, rows: Array, numbers: Iteration, *, again: bool, outside: float
    ) -> None:
        """Do for rows what ``pass_rows`` does for all, but the sums without E; for undecided ones, only A.

        Parameters
        ----------
        messages : ColumnMessages
            In place: besides what ``pass_rows`` changes, slack, undecided and the last of `sums`.
        rows : int64 array of shape (rows,)
            By their positions among own ones.
        numbers : Iteration
        again : bool
            These rows were undecided: their A is up to date.
        outside : float
            The largest a(k) of columns that are not kept.
        """

    def place_listed(self, begin: Array, own: Array, column: Array, values: Array, where: Array, out: Array) -> None:
        """Write what lists have of some columns to out of shape (rows, columns).

        Parameters
        ----------
        begin, own : int64 arrays of shape (rows,)
            Where each row's list is, and how many elements of it there are.
        column, values : flat arrays
            Of all lists.
        where : int32 array of shape (n,)
            The place of each column in `out`; -1 where it has none.
        """

    def replay(
        self, s: Array, a: Array, c: Array, u: Array, first: int, sigmas: list[float], dampings: list[float]
    ) -> None:
        """Bring A of some columns up to date through several iterations; -inf stays.

        Parameters
        ----------
        s, a : arrays of shape (rows, columns)
        c : array of shape (iterations, columns)
        u : array of shape (iterations, own rows)
        first : int
            The first of these rows among own ones.
        sigmas, dampings : list of float
            Of each iteration.
        """


if TYPE_CHECKING:
    _cpu: ColumnPassing = cpu_columns
    _gpu: ColumnPassing = gpu_columns


def load_columns(device: str) -> ColumnPassing:
    """The functions of a device, "cpu" or "cuda"."""
    name = {"cpu": "cpu_columns", "cuda": "gpu_columns"}[device]
    found: ColumnPassing = importlib.import_module(f"mgclust.kernels.affinity_propagation.sparse_forms.{name}")
    return found
