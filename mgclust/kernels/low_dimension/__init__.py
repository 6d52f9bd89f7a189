"""One to three features without all pairs: rows in boxes (`pairs.column_boxes`), sums on a grid (`gaussian_grid`).

On the CPU `cpu` calls the inner loops of both, `pairs.cpu_column_boxes` and `cpu_grid`; on a GPU `gpu` starts
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
        Covers the rows; see ``mgclust.kernels.low_dimension.gaussian_grid``.
    rows, boxes : array of shape (n, d) and Boxes
        All rows, from `boxes_along_curve`.
    threshold : float
        Rounded to the rows' type before it is compared: s < threshold.

    The searches in boxes give the very bits of their all-pairs namesakes in `mgclust.kernels.pairs.PairKernels`. Each
    call does a share of the work, so that ranks which all hold the boxes split it evenly.
    """

    def border_in_boxes(
        self, x: Array, boxes: Boxes, x_labels: Array, labels: Array, *, threshold: float, out: Array
    ) -> None:
        """Mark rows that have a row of another label nearer than a threshold.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows of which neighbours are near each other.
        x_labels, labels : integer arrays of shape (m,) and (n,)
            Of x, and of all rows in their own order; within int32.
        out : uint8 array of shape (m,)
            Set to 1 in place.
        """

    def boxes_along_curve(self, x: Array) -> tuple[Array, Boxes]:
        """Sort rows along a Morton curve, and put them into boxes.

        Parameters
        ----------
        x : array of shape (n, d), n >= 1

        Returns
        -------
        rows : array of shape (n, d)
            By their positions along the curve.
        boxes : Boxes
            Over them; ``boxes.index`` has the number of the row at each position.
        """

    def count_in_boxes(self, x: Array, boxes: Boxes, *, threshold: float, out: Array) -> None:
        """Add the number of rows with s < threshold.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows of which neighbours are near each other.
        out : int64 array of shape (m,)
            Added to in place.
        """

    def interpolate(self, x: Array, grid: Array, plan: GaussianGrid, out: Array) -> None:
        """Read the convolved grid at rows.

        Parameters
        ----------
        grid : float64 array of shape plan.shape
            From `grid_convolve`.
        out : float64 array of shape (m,)
            The Gaussian sums, each row's own 1 included; overwritten.
        """

    def nearest_higher_in_boxes(
        self, rows: Array, boxes: Boxes, order: Array, *, start: int, stop: int, best: Array, best_index: Array
    ) -> None:
        """Find the nearest row of higher density for the rows at some positions: `nearest_higher`'s answer.

        Parameters
        ----------
        order : int32 array of shape (n,)
            Each row's unique position by decreasing density, by row number.
        start, stop : int
            Positions: row ``boxes.index[start]`` and so on.
        best : array of shape (stop - start,), the rows' type
            Smallest s; infinity for the densest row; overwritten.
        best_index : int64 array of shape (stop - start,)
            Its row number; -1 for the densest row; overwritten.
        """

    def pair_histogram_in_boxes(
        self, rows: Array, boxes: Boxes, *, part: int, parts: int, low: int, shift: int, out: Array
    ) -> None:
        """Count a share of the pairs i < j by the IEEE bits of their reduced distance; see `pair_histogram`.

        Parameters
        ----------
        part, parts : int
            This call does the panels part, part + parts, ... with all that comes after each of them.
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
            Added to in place; exact in any order.
        """


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: LowDimensionKernels = cpu
    _gpu: LowDimensionKernels = gpu
