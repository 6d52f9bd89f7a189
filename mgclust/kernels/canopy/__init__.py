"""Canopies: greedy choice of an independent set, rows near the chosen rows, lists of near columns, spanning trees.

`cpu` and `gpu` use the bounding boxes and loops of `mgclust.kernels.pairs`; the GPU kernels are in ``canopy.cu`` and
``spanning_trees.cu``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from mgclust.kernels.canopy import cpu, gpu

__all__ = ["CanopyKernels"]

Array = Any


class CanopyKernels(Protocol):
    """Functions that the CPU and GPU modules provide.

    For `norm`, `threshold` and the reduced distance s, see `mgclust.kernels.pairs.PairKernels`.
    """

    @property
    def MIN_BOXED(self) -> int:
        """Minimum number of rows for which `row_boxes` and many calls of `mark_near` are faster than `border`."""

    @property
    def MAX_OFFERED(self) -> int:
        """Maximum number of candidates per step if nearly all are picked; `first_independent` gets them in parts."""

    def first_independent(self, x: Array, *, norm: str, threshold: float, out: Array) -> None:
        """Pick rows in order: a row is picked unless an already picked row is near it (s < threshold).

        The CPU uses one thread, because a picked row rules out many later rows. 4096 rows take well under a millisecond
        per feature.

        Parameters
        ----------
        x : array of shape (k, d)
            Rows in order of priority, float32 or float64; k <= 4096.
        out : uint8 array of shape (k,)
            1 if the row is picked, else 0; overwritten.
        """

    def mark_near(self, boxes: Any, y: Array, *, norm: str, threshold: float, out: Array) -> None:
        """Mark the rows in bounding boxes that are near a column (s < threshold).

        The time grows with the number of columns and the number of rows near them, but not with the number of all rows.

        Parameters
        ----------
        boxes : object
            Return value of `row_boxes`.
        y : array of shape (k, d)
            Columns, of the rows' type.
        out : uint8 array of shape (m,)
            Set to 1 in place.
        """

    def row_boxes(self, x: Array) -> Any:
        """Put rows into bounding boxes for many calls of `mark_near`.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows, m >= 1, float32 or float64. The boxes take as many bytes as the rows, plus 16 per row, and twice as
            many bytes while they are built.

        Returns
        -------
        object or None
            The boxes, for `mark_near`; None if there are so many features that boxes would exclude no rows.
        """

    def spanning_trees(
        self, x: Array, numbers: Array, starts: np.ndarray, *, norm: str, s: Array, other: Array
    ) -> None:
        """Find the minimum spanning tree of all pairs of rows in each of several groups (Prim).

        Pairs at equal distances are ordered by the smaller of their two row numbers, then by the larger. So each tree
        is unique, and overlapping groups break ties in the same way.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows, group by group, float32 or float64.
        numbers : int64 array of shape (m,)
            Numbers of the rows, which break ties.
        starts : int64 array of shape (groups + 1,)
            On the host: the start of each group, and then m. No group is empty.
        s : array of shape (m,), the rows' type
            Reduced distance of the edge by which a row joined its tree; infinity for a group's first row. Overwritten.
        other : int64 array of shape (m,)
            Number of the row at the other end of this edge; a group's first row has its own number. Overwritten.
        """

    def write_within(self, x: Array, y: Array, *, norm: str, threshold: float, starts: Array, out: Array) -> None:
        """List each row's columns with s < threshold, in ascending order.

        Parameters
        ----------
        x, y : arrays of shape (m, d) and (k, d)
            Rows, both float32 or both float64.
        starts : int64 array of shape (m,)
            Start of each row's list. The length of the list is the result of `count_within` for the same threshold.
        out : int32 array
            The list of row i is written from ``out[starts[i]]`` on.
        """


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: CanopyKernels = cpu
    _gpu: CanopyKernels = gpu
