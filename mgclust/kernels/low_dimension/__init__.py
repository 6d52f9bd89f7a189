"""Results for one to three features without all pairs: bounding boxes (`pairs.boxes`), a grid (`gaussian_grid`).

On the CPU, `cpu` calls the inner loops of both, `pairs.boxes.cpu_column_boxes` and `cpu_grid`; on a GPU, `gpu` starts
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
    """Functions that the CPU and GPU modules provide.

    Parameters of several functions:

    x : array of shape (m, d), d <= 3
        Rows, float32 or float64.
    plan : GaussianGrid
        Plan of a grid that covers the rows; see ``mgclust.kernels.low_dimension.gaussian_grid``.
    rows, boxes : array of shape (n, d) and Boxes
        Return values of `boxes_along_curve` for all rows.
    threshold : float
        Bound of s for near pairs (s < threshold). It is rounded to the rows' type before the comparison.

    The results of the searches in boxes are bitwise identical to the results of the functions for all pairs in
    `mgclust.kernels.pairs.PairKernels`. Each call does a part of the work. So ranks can split the work evenly, if each
    of them has the boxes of all rows.
    """

    def border_in_boxes(
        self, x: Array, boxes: Boxes, x_labels: Array, labels: Array, *, threshold: float, out: Array
    ) -> None:
        """Mark rows that are nearer than a threshold to a row with another label.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows in an order in which successive rows are near each other.
        x_labels, labels : integer arrays of shape (m,) and (n,)
            Labels of x, and of all rows in their original order; the values must fit int32.
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
        """Add, for each row of `x`, the number of all rows with s < threshold.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows in an order in which successive rows are near each other.
        out : int64 array of shape (m,)
            The numbers are added to this array in place.
        """

    def interpolate(self, x: Array, grid: Array, plan: GaussianGrid, out: Array) -> None:
        """Interpolate the convolved grid at rows.

        Parameters
        ----------
        grid : float64 array of shape plan.shape
            Return value of `grid_convolve`.
        out : float64 array of shape (m,)
            Overwritten with the Gaussian sums. Each sum includes 1 for the row itself.
        """

    def nearest_higher_in_boxes(
        self, rows: Array, boxes: Boxes, order: Array, *, start: int, stop: int, best: Array, best_index: Array
    ) -> None:
        """Find the nearest row of higher density, like `nearest_higher`, for the rows at a range of positions.

        Parameters
        ----------
        order : int32 array of shape (n,)
            Unique position of each row in the order of decreasing density; element i belongs to row number i.
        start, stop : int
            Range of positions in `rows`; the first row has the number ``boxes.index[start]``.
        best : array of shape (stop - start,), the rows' type
            Overwritten with the smallest s to a row of higher density; infinity for the densest row.
        best_index : int64 array of shape (stop - start,)
            Overwritten with the number of the nearest row of higher density; -1 for the densest row.
        """

    def pair_histogram_in_boxes(
        self, rows: Array, boxes: Boxes, *, part: int, parts: int, low: int, shift: int, out: Array
    ) -> None:
        """Count a part of the pairs i < j by the IEEE bits of their reduced distance; see `pair_histogram`.

        Parameters
        ----------
        part, parts : int
            This call counts pairs for the panels part, part + parts, ...: of each panel with itself and all later ones.
        low, shift : int
            The bracket and the bins, as for `pair_histogram`.
        out : int64 array of shape (bins + 1,)
            The counts are added to this array in place.
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
