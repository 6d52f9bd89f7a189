"""One to three features without all pairs: a tree of boxes (`box_tree`), Gaussian sums on a grid (`gaussian_grid`).

On the CPU `cpu` calls the inner loops of both, `cpu_tree` and `cpu_grid`; on a GPU `gpu` starts ``tree.cu`` and
``grid.cu``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mgclust.kernels.low_dimension.box_tree import BoxTree
from mgclust.kernels.low_dimension.gaussian_grid import GaussianGrid

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
    tree : BoxTree
        Over all rows.
    start, stop : int
        Positions in the tree: row ``tree.index[start]`` and so on.
    threshold : float
        Rounded to the rows' type before it is compared: s < threshold.
    """

    def curve(self, x: Array) -> Array:
        """Find the places of rows along a Morton curve: coordinates as whole numbers, their bits interleaved.

        Parameters
        ----------
        x : array of shape (n, d), n >= 1

        Returns
        -------
        int64 array of shape (n,)
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

    def spread(self, x: Array, plan: GaussianGrid, out: Array) -> None:
        """Add rows to the grid of a Gaussian sum.

        Parameters
        ----------
        out : int64 array of shape plan.shape
            Added to in place; exact in any order.
        """

    def tree_border(self, tree: BoxTree, labels: Array, *, start: int, stop: int, threshold: float, out: Array) -> None:
        """Mark rows that have a row of another label nearer than a threshold, at some positions of a tree.

        Parameters
        ----------
        labels : integer array of shape (n,)
            By row number, within int32.
        out : uint8 array of shape (stop - start,)
            Set to 1 in place.
        """

    def tree_count_within(self, tree: BoxTree, *, start: int, stop: int, threshold: float, out: Array) -> None:
        """Add the number of rows with s < threshold, itself included, for the rows at some positions of a tree.

        Parameters
        ----------
        out : int64 array of shape (stop - start,)
            Added to in place.
        """

    def tree_nearest_higher(
        self, tree: BoxTree, order: Array, *, start: int, stop: int, best: Array, best_index: Array
    ) -> None:
        """Find the nearest row of higher density for the rows at some positions of a tree: `nearest_higher`'s answer.

        Parameters
        ----------
        order : int32 array of shape (n,)
            Each row's unique position by decreasing density, by row number.
        best : array of shape (stop - start,), the rows' type
            Smallest s; infinity for the densest row; overwritten.
        best_index : int64 array of shape (stop - start,)
            Its row number; -1 for the densest row; overwritten.
        """

    def tree_pair_histogram(self, tree: BoxTree, *, part: int, parts: int, low: int, shift: int, out: Array) -> None:
        """Count a share of the pairs i < j by the IEEE bits of their reduced distance; see `pair_histogram`.

        Parameters
        ----------
        part, parts : int
            This call does the leaves part, part + parts, ... with all that comes after each of them.
        low, shift : int
            The bracket and the bins, as for `pair_histogram`.
        out : int64 array of shape (bins + 1,)
            Added to in place.
        """


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: LowDimensionKernels = cpu
    _gpu: LowDimensionKernels = gpu
