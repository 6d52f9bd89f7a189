"""One to three features without all pairs: bounding boxes (`pairs.column_boxes`) and a grid (`gaussian_grid`).

On the CPU, `cpu` calls the inner loops of both, `pairs.cpu_column_boxes` and `cpu_grid`; on a GPU, `gpu` starts
``pairs/boxes/column_boxes.cu`` and ``grid.cu``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mgclust.kernels.low_dimension.gaussian_grid import GaussianGrid
from mgclust.kernels.pairs.boxes.column_boxes import Boxes

if TYPE_CHECKING:
    from mgclust.kernels.low_dimension import cpu, gpu

__all__ = ["LowDimensionKernels"]

Array = Any


class LowDimensionKernels(Protocol):
    """Functions that both devices have, with these meanings.

    Parameters of several functions:

    x : array of shape (m, d), d <= 3
        Rows, float32 or float64.
    plan : GaussianGrid
        Plan of a grid that covers the rows; see ``mgclust.kernels.low_dimension.gaussian_grid``.
    rows, boxes : array of shape (n, d) and Boxes
        All rows, from `boxes_along_curve`.
    threshold : float
        Threshold of s < threshold; it is rounded to the rows' type before it is compared.

    The results of the searches in boxes are bitwise identical to those of the functions for all pairs in
    `mgclust.kernels.pairs.PairKernels`. Each call does a part of the work, so that ranks that all have the boxes can
    split it evenly.
    """

    def border_in_boxes(
        self, x: Array, boxes: Boxes, x_labels: Array, labels: Array, *, threshold: float, out: Array
    ) -> None:
        """Mark rows that have a row of another label nearer than a threshold.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows in an order in which successive rows are near each other.
        x_labels, labels : integer arrays of shape (m,) and (n,)
            Labels of x, and of all rows in their original order; within int32.
        out : uint8 array of shape (m,)
            Set to 1 in place.
        """

    def boxes_along_curve(self, x: Array) -> tuple[Array, Boxes]:
        """Sort rows along a Morton curve, and put them into bounding boxes.

        Parameters
        ----------
        x : array of shape (n, d), n >= 1
            The rows.

        Returns
        -------
        rows : array of shape (n, d)
            The rows in the order of their positions along the curve.
        boxes : Boxes
            Bounding boxes of these rows; ``boxes.index`` has the number of the row at each position.
        """

    def count_in_boxes(self, x: Array, boxes: Boxes, *, threshold: float, out: Array) -> None:
        """Add the number of rows with s < threshold.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows in an order in which successive rows are near each other.
        out : int64 array of shape (m,)
            Added to in place.
        """

    def interpolate(self, x: Array, grid: Array, plan: GaussianGrid, out: Array) -> None:
        """Read the convolved grid at rows.

        Parameters
        ----------
        grid : float64 array of shape plan.shape
            Return value of `grid_convolve`.
        out : float64 array of shape (m,)
            The Gaussian sums, including 1 for the row itself; overwritten.
        """

    def nearest_higher_in_boxes(
        self, rows: Array, boxes: Boxes, order: Array, *, start: int, stop: int, best: Array, best_index: Array
    ) -> None:
        """Find the nearest row of higher density for the rows at some positions, like `nearest_higher`.

        Parameters
        ----------
        order : int32 array of shape (n,)
            Unique position of each row by decreasing density; the array is in the order of row numbers.
        start, stop : int
            Range of positions, beginning with row ``boxes.index[start]``.
        best : array of shape (stop - start,), the rows' type
            Smallest s; infinity for the densest row; overwritten.
        best_index : int64 array of shape (stop - start,)
            Its row number; -1 for the densest row; overwritten.
        """

    def pair_histogram_in_boxes(
        self, rows: Array, boxes: Boxes, *, part: int, parts: int, low: int, shift: int, out: Array
    ) -> None:
        """Count a part of the pairs i < j by the IEEE bits of their reduced distance; see `pair_histogram`.

        Parameters
        ----------
        part, parts : int
            This call counts the pairs of the panels part, part + parts, ... with themselves and all later panels.
        low, shift : int
            The bracket and the bins, as for `pair_histogram`.
        out : int64 array of shape (bins + 1,)
            Added to in place.
        """

    def spread(self, x: Array, plan: GaussianGrid, out: Array) -> None:
        """Add rows to the grid of a Gaussian sum.

        Parameters
        ----------
        out : int64 array of shape plan.shape
            Changed in place by addition, which is exact in any order.
        """


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: LowDimensionKernels = cpu
    _gpu: LowDimensionKernels = gpu
