"""Canopies: a greedily chosen independent set of a few rows, the rows near it, lists of near columns, spanning trees.

`cpu` and `gpu`, with the boxes and loops of `mgclust.kernels.pairs`; on a GPU ``canopy.cu`` and ``spanning_trees.cu``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from mgclust.kernels.canopy import cpu, gpu

__all__ = ["CanopyKernels"]

Array = Any


class CanopyKernels(Protocol):
    """Functions that both devices have, with these meanings.

    Norm and threshold are those of `mgclust.kernels.pairs.PairKernels`.
    """

    @property
    def MIN_BOXED(self) -> int:
        """Rows from which on `row_boxes` and `mark_near` are faster than `border`, where many calls follow."""

    @property
    def MAX_OFFERED(self) -> int:
        """Candidates of a step where nearly all are picked: more than `first_independent` takes, in parts."""

    def first_independent(self, x: Array, *, norm: str, threshold: float, out: Array) -> None:
        """Pick rows in their order, each that no picked row before it is near (s < threshold).

        One thread on the CPU: a picked row rules out many that come after it, and 4096 rows take well under a
        millisecond a feature.

        Parameters
        ----------
        x : array of shape (k, d)
            Rows in order of priority, float32 or float64; k <= 4096.
        out : uint8 array of shape (k,)
            1 where the row is picked, else 0; overwritten.
        """

    def mark_near(self, boxes: Any, y: Array, *, norm: str, threshold: float, out: Array) -> None:
        """Mark rows in boxes that are near (s < threshold) a column.

        What it takes grows with the columns and with the rows near them, not with all rows.

        Parameters
        ----------
        boxes : object
            From `row_boxes`.
        y : array of shape (k, d)
            Columns, of the rows' type.
        out : uint8 array of shape (m,)
            Set to 1 in place.
        """

    def row_boxes(self, x: Array) -> Any:
        """Put rows into boxes for many calls of `mark_near`.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows, m >= 1, float32 or float64. Boxes have their bytes again, and 16 a row; while they are made, twice
            that.

        Returns
        -------
        object or None
            None where features are too many for boxes to leave anything out.
        """

    def spanning_trees(
        self, x: Array, numbers: Array, starts: np.ndarray, *, norm: str, s: Array, other: Array
    ) -> None:
        """Find the minimum spanning tree of all pairs of rows in each of several groups (Prim).

        Of equal distances, the pair of the lower of both rows comes first, then that of the lower other row. So each
        tree is the only one, and what trees of overlapping groups have in common is decided alike.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows, a group behind the other, float32 or float64.
        numbers : int64 array of shape (m,)
            Of the rows; they decide ties.
        starts : int64 array of shape (groups + 1,)
            On the host: where each group begins, the last one m. No group is empty.
        s : array of shape (m,), the rows' type
            Reduced distance of the edge by which a row joined its tree; infinity for a group's first row. Overwritten.
        other : int64 array of shape (m,)
            Number of the row at the other end; a group's first row has its own. Overwritten.
        """

    def write_within(self, x: Array, y: Array, *, norm: str, threshold: float, starts: Array, out: Array) -> None:
        """List each row's columns with s < threshold, in ascending order.

        Parameters
        ----------
        x, y : arrays of shape (m, d) and (k, d)
            Rows, both float32 or both float64.
        starts : int64 array of shape (m,)
            Where each row's list begins; `count_within` with the same threshold says how long it is.
        out : int32 array
            Written from ``out[starts[i]]`` on.
        """


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: CanopyKernels = cpu
    _gpu: CanopyKernels = gpu
