"""The values of density peaks in near-linear time, for one, two or three features.

Passes over all pairs cost n^2. With few features, every rank can hold all rows (12 bytes each in 3-D), sorted into a
tree of bounding boxes (`mgclust.kernels.pairs.boxes.column_boxes`). Each rank computes a part of the results, and skips
distant boxes::

    dc       counts a pair of boxes at once if it is wholly inside or outside the bracket   bitwise identical
    delta    nearest denser row, best box first                                             bitwise identical
    cutoff   counts a box at once if it lies wholly within dc                               bitwise identical
    halo     searches only boxes of other labels                                            bitwise identical
    rho      Gaussian: convolution by non-uniform FFT (`low_dimension.gaussian_grid`)       stated absolute error

"Bitwise identical" compares with the passes over all pairs. One error bound of the FFT holds for the sums of all rows.
If rho is so small that this bound exceeds a relative error of `RHO_TOLERANCE`, the row is summed directly; `exactness_`
has the number of these rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mgclust.algorithms.density_peaks.cutoff_distance.pair_quantile import MIN_TREE_SAMPLE, Count
from mgclust.algorithms.density_peaks.passes.all_pairs import AllPairs, Neighbors
from mgclust.algorithms.density_peaks.passes.duplicate_rows import first_of_duplicates
from mgclust.base.errors import InputError
from mgclust.engine.spmd import Context
from mgclust.kernels.low_dimension.gaussian_grid import grid_convolve, plan_gaussian_grid
from mgclust.kernels.pairs.boxes.column_boxes import CURVE_FEATURES, Boxes
from mgclust.kernels.pairs.metrics import Metric

__all__ = ["NearLinear", "is_taken", "most_cells", "tree_bytes"]

Array = Any

WORTH_IT = 10_000  # least number of rows for which "auto" takes this path
RHO_TOLERANCE = 1e-6
BYTES_PER_CELL = 40
CELLS_PER_ROW = 32
MIN_CELLS, MAX_CELLS = 1 << 21, 1 << 24
COLUMNS = 1 << 22  # columns per call that sums few rows directly; with fewer columns, a GPU would be mostly idle


def is_taken(shape: tuple[int, int], metric: Metric, algorithm: str) -> bool:
    """Return whether a run takes this path.

    Parameters
    ----------
    shape : (int, int)
        Shape of the data.
    metric : Metric
    algorithm : {"auto", "brute", "grid"}

    Returns
    -------
    bool

    Raises
    ------
    InputError
        If `algorithm` is "grid" and there are too many features, or the metric does not allow this path.
    """
    n, d = shape
    possible = d <= CURVE_FEATURES and metric.norm == "l2"
    if algorithm == "grid" and not possible:
        raise InputError(
            f"algorithm='grid' needs at most {CURVE_FEATURES} features and metric='euclidean', 'sqeuclidean', 'cosine' "
            f"or 'correlation', not n_features={d} and metric='{metric.name}'; use algorithm='brute' or 'auto'."
        )
    return possible and (algorithm == "grid" or (algorithm == "auto" and n >= WORTH_IT))


def tree_bytes(n: int, sample: int, d: int, itemsize: int, *, vectors: int) -> int:
    """Return the largest number of bytes in use at once for boxes and searches, in addition to a rank's rows.

    Making boxes needs four copies of their rows, and the sorted positions. Finished boxes keep two copies, and the row
    numbers. The boxes of all rows are made first, then the boxes of a sample. The searches come last and need `vectors`
    bytes.
    """
    made, kept = 64 + 4 * d * itemsize, 9 + 17 * d * itemsize // 8
    return max(made * n, kept * n + made * sample, kept * n + vectors)


def most_cells(n: int) -> int:
    """Return the largest number of grid cells that `gaussian_rho` uses; beyond it, the pass is over all pairs."""
    return min(max(MIN_CELLS, CELLS_PER_ROW * n), MAX_CELLS)


class NearLinear(AllPairs):
    """The values of `AllPairs`, from bounding boxes of all rows, which every rank holds."""

    algorithm = "grid"

    def __init__(
        self,
        context: Context,
        measure: Metric,
        exactness: dict[str, Any],
        *,
        gaussian: bool = True,
        weights: Array | None = None,
    ) -> None:
        super().__init__(context, measure, exactness, gaussian=gaussian, weights=weights)
        own = [chunk.x for chunk in context.rows.chunks()]
        every = context.comm.all_gather(own[0] if len(own) == 1 else self._xp.concatenate(own))
        self._sorted, self._boxes = context.kernels.low_dimension.boxes_along_curve(every)
        n = len(every)
        # The positions along the curve whose rows this rank computes.
        self._start, self._stop = n * context.rank // context.size, n * (context.rank + 1) // context.size
        self._mine = self._sorted[self._start : self._stop]

    def pair_histogram(self, norm: str, first: int, shift: int, bins: int) -> Array:  # noqa: D102
        return self._count(self._sorted, self._boxes, first, shift, bins)

    def sample_histogram(self, norm: str, x: Array) -> Count:  # noqa: D102
        if len(x) < MIN_TREE_SAMPLE:
            return super().sample_histogram(norm, x)
        return partial(self._count, *self._kernels.low_dimension.boxes_along_curve(x))

    def _count(self, rows: Array, boxes: Boxes, first: int, shift: int, bins: int) -> Array:
        out = self._xp.zeros(1 + bins, dtype="int64")
        share = {"part": self._context.rank, "parts": self._context.size}
        self._kernels.low_dimension.pair_histogram_in_boxes(rows, boxes, **share, low=first, shift=shift, out=out)
        return self._context.comm.all_reduce(out, "sum")

    def gaussian_rho(self, norm: str, dc: float) -> tuple[Array, Neighbors | None]:
        """Sum by the FFT, or over all pairs if the exponent is s squared or the grid would be too large."""
        kernels, xp, rows, n = self._kernels, self._xp, self._sorted, len(self._sorted)
        scale = self._measure.scale(dc)
        low, high = (kernels.memory.to_host(end).tolist() for end in (rows.min(axis=0), rows.max(axis=0)))
        plan = plan_gaussian_grid(low, high, scale, n) if self._measure.power == 1 else None
        if plan is None or plan.cells > most_cells(n):
            return super().gaussian_rho(norm, dc)
        x = self._mine
        grid = xp.zeros(plan.shape, dtype="int64")
        kernels.low_dimension.spread(x, plan, grid)
        grid = grid_convolve(self._context.comm.all_reduce(grid, "sum"), plan, xp)
        rho = xp.empty(len(x), dtype="float64")
        kernels.low_dimension.interpolate(x, grid, plan, rho)
        rho -= 1.0
        smallest = plan.error_bound / RHO_TOLERANCE
        few = xp.flatnonzero(rho < smallest)
        if few.size:
            direct = xp.zeros(few.size, dtype="float64")
            alike = first_of_duplicates(rows, few + self._start, xp)
            for first in range(0, n, COLUMNS):
                columns = rows[first : first + COLUMNS]
                self._context.progress(first / n)
                kernels.pairs.gaussian_sum(
                    x[few], columns, norm="l2", scale=scale, power=1, rows=alike, y_start=first, out=direct
                )
            rho[few] = direct
        recomputed = self._context.comm.all_reduce(xp.asarray([few.size]), "sum")
        self._exactness["rho_recomputed_rows"] = int(recomputed[0])
        return self._by_row(rho), None

    def _sum_error(self) -> float:
        return RHO_TOLERANCE

    def count_within(self, norm: str, threshold: float) -> Array:  # noqa: D102
        counts = self._zeros("int64")
        self._kernels.low_dimension.count_in_boxes(self._mine, self._boxes, threshold=threshold, out=counts)
        return self._by_row(counts)

    def nearest_higher(self, norm: str, order: Array, neighbors: Neighbors | None) -> tuple[Array, Array]:  # noqa: D102
        best, index = self._zeros(self._context.dtype), self._zeros("int64")
        share = {"start": self._start, "stop": self._stop, "best": best, "best_index": index}
        self._kernels.low_dimension.nearest_higher_in_boxes(self._sorted, self._boxes, order, **share)
        return self._by_row(best), self._by_row(index)

    def border(self, norm: str, threshold: float, labels: Array) -> Array:  # noqa: D102
        marks = self._zeros("uint8")
        own = labels[self._boxes.index[self._start : self._stop]]
        search = self._kernels.low_dimension.border_in_boxes
        search(self._mine, self._boxes, own, labels, threshold=threshold, out=marks)
        return self._by_row(marks)

    def _zeros(self, dtype: Any) -> Array:
        return self._xp.zeros(self._stop - self._start, dtype=dtype)

    def _by_row(self, mine: Array) -> Array:
        """Gather the results of all ranks, and reorder them from the order along the curve to row order."""
        every = self._context.comm.all_gather(mine)
        out = self._xp.empty_like(every)
        out[self._boxes.index[: len(every)]] = every
        return out
