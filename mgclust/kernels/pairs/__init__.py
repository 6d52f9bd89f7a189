"""Computations over all pairs of rows, tile by tile: sums, counts, histograms and nearest rows; and the metrics.

::

    cpu          passes tasks (cpu_tasks) to the inner loops (cpu_loops); cpu_values counts stored distances
    gpu          starts kernels (gpu_launch): few_features.cu (at most 16 features), many_features.cu, any_features.cu;
                 gpu_nearest_rows selects nearest rows from lists; stored_values.cu counts stored distances
    products/    more than 16 features: matrix products filter pairs, and direct differences decide the rest
    boxes/       few features: bounding boxes of columns, the same on both devices, skip columns that are far away
    pairs.cuh    tiles and norms for all CUDA files; products/halves.cuh and split_products.cuh use tensor cores

Only `PairKernels.reduced_distances` stores distances.

Other modules have array expressions that both devices share: `density` sums densities from stored tiles, for weighted
rows and precomputed distances. `neighbors` searches for nearest denser rows among the rows that a density pass kept.
`metrics` describes metrics for the kernels. `nearest_of_many` makes lists of nearest columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mgclust.kernels.pairs import cpu, gpu
    from mgclust.kernels.pairs.boxes.column_boxes import Boxes

__all__ = ["PairKernels"]

Array = Any
LOG2_E = 1.4426950408889634


class PairKernels(Protocol):
    """Functions that the kernels of each device implement.

    Several functions have these parameters:

    x, y : arrays of shape (m, d) and (k, d)
        Rows and columns, both float32 or both float64.
    norm : {"l2", "l2-dot", "l1"}
        Reduced distance s to compute.
    threshold : float
        Bound in the condition s < threshold; it is rounded to the rows' type before s is compared with it.
    """

    @property
    def PRODUCT_REACH(self) -> float:
        """Fraction of ``preparation.DOT_CONDITION`` up to which "l2-dot" sums Gaussians accurately enough."""

    @property
    def NEIGHBORS(self) -> int:
        """Number of nearest rows that `gaussian_sum` keeps for each row; 0 if it keeps none."""

    def border(
        self, x: Array, y: Array, x_labels: Array, y_labels: Array, *, norm: str, threshold: float, out: Array
    ) -> None:
        """Mark rows that have a column with a different label and s < threshold.

        Parameters
        ----------
        x_labels, y_labels : integer arrays of shape (m,) and (k,)
            Labels from 0 on, within int32.
        out : uint8 array of shape (m,)
            Set to 1 in place.
        """

    def count_within(self, x: Array, y: Array, *, norm: str, threshold: float, out: Array) -> None:
        """Add to each row the number of columns with s < threshold, including the row itself.

        Parameters
        ----------
        out : int64 array of shape (m,)
            The counts are added in place.
        """

    def gaussian_sum(
        self,
        x: Array,
        y: Array,
        *,
        norm: str,
        scale: float,
        power: int,
        out: Array,
        rows: Array | None = None,
        y_start: int = 0,
        near: Array | None = None,
        near_index: Array | None = None,
    ) -> None:
        """Add to each row the sum over all columns of ``exp(-scale * s**power)``.

        Parameters
        ----------
        scale : float
            Factor in the exponent; positive.
        power : {1, 2}
            2 if the distance is proportional to s, 1 if it is proportional to the square root of s.
        out : float64 array of shape (m,)
            The sums are added in place, columns in ascending order.
        rows : int64 array of shape (m,), optional
            Global number of the column that each row skips: the row's own number, or the number of an equal row. (If
            the term 1 of this column were subtracted afterwards, a small sum would lose its digits.)
        y_start : int
            Global number of the first column, a multiple of 1024.
        near : array of shape (m, NEIGHBORS), the rows' type, optional
            The smallest s so far in ascending order, including the row's s to itself; infinity at first. Changed in
            place, for ``mgclust.kernels.pairs.neighbors``. Only if NEIGHBORS is not 0.
        near_index : int64 array of shape (m, NEIGHBORS), optional
            Global numbers of these columns (-1 at first), changed in place.
        """

    def symmetric_sum_is_faster(self, dtype: Any, d: int) -> bool:
        """Return whether `gaussian_both_ways` is faster than `gaussian_sum` of all rows.

        Parameters
        ----------
        dtype : numpy.dtype
            Type of the rows.
        d : int
            Number of features.
        """

    def gaussian_both_ways(
        self, x: Array, y: Array, *, scale: float, diagonal: bool, unit: float, x_out: Array, y_out: Array
    ) -> None:
        """Add ``exp(-scale * s)`` of each pair to its row and to its column, with the norm "l2-dot".

        Each term is rounded to a whole number of units, and does not change if row and column are swapped. So the bits
        of the sums do not depend on how pairs are split into calls.

        Parameters
        ----------
        scale : float
            Factor in the exponent; positive.
        diagonal : bool
            Whether the columns are the rows. In this case, only pairs i < j count.
        unit : float
            Number of units that make 1; a power of two.
        x_out, y_out : int64 arrays of shape (m,) and (k,)
            The terms are added in place.
        """

    def gaussian_sums(
        self,
        x: Array,
        y: Array,
        *,
        norm: str,
        scales: Sequence[float],
        power: int,
        out: Array,
        rows: Array | None = None,
        y_start: int = 0,
        near: Array | None = None,
        near_index: Array | None = None,
    ) -> None:
        """Compute `gaussian_sum` for several scales, with the same bits as separate calls with the same norm.

        The CPU computes each distance once. A GPU passes over the pairs once per scale.

        Parameters
        ----------
        norm : {"l2", "l1"}
            Reduced distance to compute.
        scales : sequence of float
            The scales; at least one.
        out : float64 array of shape (len(scales), m)
            The sums are added in place.
        """

    def nearest_column(self, x: Array, y: Array, *, norm: str, y_start: int, best: Array, best_index: Array) -> None:
        """Update each row's nearest column so far, like `nearest_higher` without densities."""

    def nearest_higher(
        self,
        x: Array,
        y: Array,
        x_order: Array,
        y_order: Array,
        *,
        norm: str,
        y_start: int,
        best: Array,
        best_index: Array,
    ) -> None:
        """Update each row's nearest column of higher density so far; ties go to the lower index.

        Parameters
        ----------
        x_order, y_order : int32 arrays of shape (m,) and (k,)
            Unique positions by decreasing density; a column has a higher density than a row if its position is smaller.
        y_start : int
            Global number of y's first row. Successive calls must have ascending columns.
        best : array of shape (m,), the rows' type
            Smallest s so far (infinity at first), changed in place.
        best_index : int64 array of shape (m,)
            Global number of this column (-1 at first), changed in place.
        """

    def nearest_rows(
        self, x: Array, y: Array, *, norm: str, y_start: int, near: Array, near_index: Array, rows: Array | None = None
    ) -> None:
        """Keep each row's nearest columns so far; ties go to the lower index.

        Parameters
        ----------
        x, y : arrays of shape (m, d) and (k, d)
            Rows, both float32 or both float64.
        norm : {"l2", "l1"}
            Reduced distance to compute, with the bits of `reduced_distances`.
        y_start : int
            Global number of y's first row. Successive calls must have ascending columns.
        near : array of shape (m, neighbors), the rows' type
            The smallest s so far, ascending (infinity at first), changed in place.
        near_index : int64 array of shape (m, neighbors)
            Global numbers of these columns (-1 at first), changed in place.
        rows : int64 array of shape (m,), optional
            Global number of the column that each row skips, for example the row's own number; -1 for none.
        """

    def boxes_of_columns(self, x: Array, y: Array, *, norm: str, neighbors: int) -> Boxes | None:
        """Put columns into bounding boxes; return None if `nearest_in_boxes` would not be faster than `nearest_rows`.

        Parameters
        ----------
        norm : {"l2", "l1"}
            Reduced distance to compute.
        neighbors : int
            Number of columns that a row keeps.
        """

    def nearest_in_boxes(
        self,
        x: Array,
        boxes: Boxes,
        *,
        norm: str,
        y_start: int,
        near: Array,
        near_index: Array,
        rows: Array | None = None,
    ) -> None:
        """Do the work of `nearest_rows` for columns in bounding boxes, with the same bits."""

    def pair_histogram(
        self, x: Array, y: Array, *, norm: str, diagonal: bool, low: int, shift: int, out: Array
    ) -> None:
        """Count pairs by the IEEE bits of their reduced distance, which have the same order as the distances.

        Parameters
        ----------
        diagonal : bool
            Whether x is y. In this case, only pairs i < j count.
        low, shift : int
            Let b = (bits - low) >> shift. Pairs with bits < low are added to out[0], and pairs with 0 <= b < bins to
            out[1 + b]. Other pairs are not counted.
        out : int64 array of shape (bins + 1,)
            The counts are added in place.
        """

    def reduced_distances(self, x: Array, y: Array, *, norm: str) -> Array:
        """Return the reduced distances of a few rows, with the same bits as in all other kernels.

        Returns
        -------
        array of shape (m, k)
            Reduced distances in the rows' type.
        """

    def value_histogram(self, values: Array, *, n: int, low: int, shift: int, out: Array) -> None:
        """Count values by their keys, which are integers in the order of the values, made from the values' bits.

        0.0 and -0.0 have the same key. Values -inf are not counted.

        Parameters
        ----------
        values : array of shape (m, at least n)
            The values, float32 or float64, C-contiguous; only the first n columns count.
        n : int
            Number of columns.
        low, shift : int
            Let b = (key - low) >> shift. Values with key < low are added to out[0], and values with 0 <= b < bins to
            out[1 + b]. Other values and -inf are not counted. bins <= 2048.
        out : int64 array of shape (bins + 1,)
            The counts are added in place.
        """


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: PairKernels = cpu
    _gpu: PairKernels = gpu
