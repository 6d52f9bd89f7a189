"""All pairs of rows, by tiles: sums, counts, histograms, nearest rows, and the metrics they know.

::

    cpu          hands tasks (cpu_tasks) to the inner loops (cpu_loops); cpu_values counts stored distances
    gpu          starts kernels (gpu_launch): few_features.cu (at most 16 features), many_features.cu, any_features.cu;
                 gpu_nearest_rows selects nearest rows from lists; stored_values.cu counts stored distances
    products/    more than 16 features: matrix products filter pairs, and direct differences decide the rest
    boxes/       few features: bounding boxes of columns, the same on both devices, skip columns that are far away
    pairs.cuh    tiles and norms of all CUDA files; products/halves.cuh and split_products.cuh have tensor cores

Only `PairKernels.reduced_distances` stores distances.

Array expressions that both devices share, outside the contract: `density` sums the densities of weighted rows and of
given distances from stored tiles, `neighbors` looks for nearest denser rows among those that a density pass kept,
`metrics` says what the kernels need to know of a metric, `nearest_of_many` makes lists of nearest columns.
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
    """Functions that both devices have, with these meanings.

    Parameters of several functions:

    x, y : arrays of shape (m, d) and (k, d)
        Rows and columns, both float32 or both float64.
    norm : {"l2", "l2-dot", "l1"}
        Which reduced distance s.
    threshold : float
        Rounded to the rows' type before it is compared: s < threshold.
    """

    @property
    def PRODUCT_REACH(self) -> float:
        """Share of ``DOT_CONDITION`` (of preparation) up to which "l2-dot" sums Gaussians accurately enough."""

    @property
    def NEIGHBORS(self) -> int:
        """Rows that `gaussian_sum` remembers for each row; 0 where it remembers none."""

    def border(
        self, x: Array, y: Array, x_labels: Array, y_labels: Array, *, norm: str, threshold: float, out: Array
    ) -> None:
        """Mark rows that have a column of another label nearer than a threshold.

        Parameters
        ----------
        x_labels, y_labels : integer arrays of shape (m,) and (k,)
            Labels from 0 on, within int32.
        out : uint8 array of shape (m,)
            Set to 1 in place.
        """

    def count_within(self, x: Array, y: Array, *, norm: str, threshold: float, out: Array) -> None:
        """Add to each row the number of columns with s < threshold, itself included.

        Parameters
        ----------
        out : int64 array of shape (m,)
            Added to in place.
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
            Positive.
        power : {1, 2}
            2 where the distance is proportional to s.
        out : float64 array of shape (m,)
            Added to in place, columns in ascending order.
        rows : int64 array of shape (m,), optional
            Global number of the column that each row leaves out: its own, or one that is equal to the row. (Subtracting
            its 1 afterwards would lose the digits of a small sum.)
        y_start : int
            Global number of the first column, a multiple of 1024.
        near : array of shape (m, NEIGHBORS), the rows' type, optional
            The smallest s so far, the row's own among them, ascending (infinity at first), in place: what
            ``mgclust.kernels.pairs.neighbors`` needs. Only where NEIGHBORS is not 0.
        near_index : int64 array of shape (m, NEIGHBORS), optional
            Their global numbers (-1 at first), in place.
        """

    def symmetric_sum_is_faster(self, dtype: Any, d: int) -> bool:
        """Say whether `gaussian_both_ways` is faster than `gaussian_sum` of all rows.

        Parameters
        ----------
        dtype : numpy.dtype
            Of the rows.
        d : int
            Features.
        """

    def gaussian_both_ways(
        self, x: Array, y: Array, *, scale: float, diagonal: bool, unit: float, x_out: Array, y_out: Array
    ) -> None:
        """Add ``exp(-scale * s)`` of each pair to its row and to its column, s by the norm "l2-dot".

        Every term is rounded to a whole number of units, and is the same whichever of the two is the row. So sums have
        the same bits however pairs are split into calls.

        Parameters
        ----------
        scale : float
            Positive.
        diagonal : bool
            The columns are the rows: only pairs i < j count.
        unit : float
            Units in 1, a power of two.
        x_out, y_out : int64 arrays of shape (m,) and (k,)
            Added to in place.
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
        """Do what `gaussian_sum` does for several scales, with the same bits as its direct norms for each.

        The CPU computes each distance once; a GPU passes once over the pairs for each scale.

        Parameters
        ----------
        norm : {"l2", "l1"}
            Which reduced distance.
        scales : sequence of float
            At least one.
        out : float64 array of shape (len(scales), m)
            Added to in place.
        """

    def nearest_column(self, x: Array, y: Array, *, norm: str, y_start: int, best: Array, best_index: Array) -> None:
        """Lower each row's best to its nearest column, as `nearest_higher` does to one of higher density."""

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
        """Lower each row's best to its nearest column of higher density; equal distances: the lower index.

        Parameters
        ----------
        x_order, y_order : int32 arrays of shape (m,) and (k,)
            Each row's unique position by decreasing density; a column is higher when its order is smaller.
        y_start : int
            Global number of y's first row; calls come with ascending columns.
        best : array of shape (m,), the rows' type
            Smallest s so far (infinity at first), in place.
        best_index : int64 array of shape (m,)
            Its global row (-1 at first), in place.
        """

    def nearest_rows(
        self, x: Array, y: Array, *, norm: str, y_start: int, near: Array, near_index: Array, rows: Array | None = None
    ) -> None:
        """Keep each row's nearest columns so far; equal distances: the lower index.

        Parameters
        ----------
        x, y : arrays of shape (m, d) and (k, d)
            Rows, both float32 or both float64.
        norm : {"l2", "l1"}
            Which reduced distance, with the bits of `reduced_distances`.
        y_start : int
            Global number of y's first row; calls come with ascending columns.
        near : array of shape (m, neighbors), the rows' type
            The smallest s so far, ascending (infinity at first), in place.
        near_index : int64 array of shape (m, neighbors)
            Their global numbers (-1 at first), in place.
        rows : int64 array of shape (m,), optional
            Global number of the column that each row leaves out, its own perhaps; -1: none.
        """

    def boxes_of_columns(self, x: Array, y: Array, *, norm: str, neighbors: int) -> Boxes | None:
        """Put columns into boxes, if `nearest_in_boxes` will be faster for these rows than `nearest_rows`.

        Parameters
        ----------
        norm : {"l2", "l1"}
        neighbors : int
            Columns that a row keeps.
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
        """Do what `nearest_rows` does, for the columns in boxes, with the same bits."""

    def pair_histogram(
        self, x: Array, y: Array, *, norm: str, diagonal: bool, low: int, shift: int, out: Array
    ) -> None:
        """Count pairs by the IEEE bits of their reduced distance, an order that is exact.

        Parameters
        ----------
        diagonal : bool
            x is y, and only pairs i < j count.
        low, shift : int
            With b = (bits - low) >> shift: pairs with bits < low are added to out[0], pairs with
            0 <= b < bins to out[1 + b], the others to none.
        out : int64 array of shape (bins + 1,)
            Added to in place.
        """

    def reduced_distances(self, x: Array, y: Array, *, norm: str) -> Array:
        """Return the reduced distances of a few rows, the same bits as every other kernel sees.

        Returns
        -------
        array of shape (m, k)
            In the rows' type.
        """

    def value_histogram(self, values: Array, *, n: int, low: int, shift: int, out: Array) -> None:
        """Count values by their bits, as integers in the values' order (-0.0 as 0.0); -inf is left out.

        Parameters
        ----------
        values : array of shape (m, at least n)
            float32 or float64, C-contiguous; the first n columns count.
        n : int
            Columns.
        low, shift : int
            With b = (key - low) >> shift: values with key < low are added to out[0], values with
            0 <= b < bins to out[1 + b], the others to none; -inf is no value. bins <= 2048.
        out : int64 array of shape (bins + 1,)
            Added to in place.
        """


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: PairKernels = cpu
    _gpu: PairKernels = gpu
