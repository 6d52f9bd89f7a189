"""Density peaks from a precomputed matrix of distances.

Each rank reads its own rows of the matrix. Nothing is computed twice, and no distances are sent, except for one check:
to find whether the matrix is symmetric, all rows stream past each rank. If rounding has made the two distances of a
pair different, each of its rows uses its own entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mgclust.algorithms.common.pair_matrix import order_statistic
from mgclust.algorithms.common.preparation import largest_value
from mgclust.algorithms.density_peaks.cutoff_distance.pair_quantile import pair_rank, pair_rank_of
from mgclust.algorithms.density_peaks.passes.all_pairs import AllPairs, Neighbors
from mgclust.base.errors import InputError
from mgclust.kernels.masks import any_true, count_true
from mgclust.kernels.pairs.density import tile_numbers
from mgclust.kernels.pairs.metrics import METRICS, Metric

__all__ = ["PrecomputedPairs", "measure_of"]

Array = Any
CHECKED_ROWS = 512  # number of rows that are compared with columns at once
SMALLEST_SHARE = 2.0**20  # the largest distance must exceed the smallest normal number by this factor
GIVEN = Metric("precomputed", norm="l1")  # the reduced distance s is the distance itself, as for "manhattan"


def measure_of(metric: str) -> Metric:
    """Return the metric of this name, or `GIVEN` for precomputed distances.

    Parameters
    ----------
    metric : str

    Returns
    -------
    Metric
    """
    return GIVEN if metric == "precomputed" else METRICS[metric]


class PrecomputedPairs(AllPairs):
    """The values of `AllPairs`, from rows that are precomputed distances."""

    algorithm = "given"

    def _prepare(self) -> None:
        self._reject_no_distances()

    def norm(self, s: float) -> str:  # noqa: D102
        return "given"

    def cutoff(self, fraction: float, *, exact: bool, seed: int) -> tuple[float, float]:  # noqa: D102
        if self._weights is not None:
            return self._at_place(self._weights, self._weights.place(pair_rank_of(self.pairs, fraction))), 0.0
        # The rank among all n x n numbers: the n zeros of the diagonal come first, and each pair occurs twice.
        n = self._context.dataset_shape[0]
        rank = n + 2 * pair_rank(n, fraction)
        return order_statistic(self._context, lambda: (s for _, _, s in self._tiles()), rank), 0.0

    def smallest_positive(self, seed: int) -> tuple[float, int]:  # noqa: D102
        if self._weights is not None:
            return self._smallest_weighted(self._weights)
        n = self._context.dataset_shape[0]
        zeros = np.array([sum(count_true(s == 0) for _, _, s in self._tiles())])
        equal = int(self._context.comm.all_reduce(zeros, "sum")[0])
        if equal == n * n:
            return 0.0, n * (n - 1) // 2
        return order_statistic(self._context, lambda: (s for _, _, s in self._tiles()), equal + 1), (equal - n) // 2

    def knn_rho(self, k: int) -> tuple[Array, Neighbors | None]:  # noqa: D102
        mine = self._own_zeros(self._context.dtype)
        for own, _, s in self._tiles():
            mine[own] = self._xp.partition(s, k, axis=1)[:, k]  # position 0 holds the row's own 0, or another 0
        return self._inverse(mine, k), None

    def nearest_rows(self, k: int) -> Neighbors:  # noqa: D102
        xp, first = self._xp, self._context.rows.start
        near = Neighbors.none_yet(self._context, k)
        for own, _, s in self._tiles():
            others = s.copy()
            others[xp.arange(len(s)), xp.arange(first + own.start, first + own.stop)] = xp.inf
            near.index[own] = xp.argsort(others, axis=1, kind="stable")[:, :k]
            near.s[own] = xp.take_along_axis(others, near.index[own], axis=1)
        return near

    def nearest_higher(self, norm: str, order: Array, neighbors: Neighbors | None) -> tuple[Array, Array]:  # noqa: D102
        xp, first = self._xp, self._context.rows.start
        best, index = self._own_zeros(self._context.dtype), self._own_zeros("int64")
        for own, _, s in self._tiles():
            higher = order < order[first + own.start : first + own.stop, None]
            s = xp.where(higher, s, xp.inf)
            at = s.argmin(axis=1)  # the first row among equal distances
            best[own] = s[xp.arange(len(s)), at]
            index[own] = xp.where(xp.isfinite(best[own]), at, -1)
        return self._context.comm.all_gather(best), self._context.comm.all_gather(index)

    def gap(self, group: np.ndarray) -> float:  # noqa: D102
        xp, least = self._xp, self._xp.full(1, self._xp.inf)
        columns, rows = xp.asarray(group), self._context.rows
        for own, _, s in self._tiles():
            outside = np.setdiff1d(np.arange(len(s)), group - rows.start - own.start)
            if len(outside):
                least = xp.minimum(least, s[xp.asarray(outside)][:, columns].min())
        return float(self._context.comm.all_reduce(least, "min")[0])

    def border(self, norm: str, threshold: float, labels: Array) -> Array:  # noqa: D102
        first, mine = self._context.rows.start, self._own_zeros("uint8")
        for own, _, s in self._tiles():
            other = labels != labels[first + own.start : first + own.stop, None]
            mine[own] = ((s < s.dtype.type(threshold)) & other).view("uint8").max(axis=1)
        return self._context.comm.all_gather(mine)

    def farthest(self, row: int) -> float:  # noqa: D102
        rows, largest = self._context.rows, self._xp.zeros(1)
        if rows.start <= row < rows.stop:
            largest[:] = rows.read(row, row + 1).max()
        return float(self._context.comm.all_reduce(largest, "max")[0])

    def _tiles(self) -> Iterator[tuple[slice, slice, Array]]:
        """Yield slices of local rows and of all columns, with the distances."""
        rows, n = self._context.rows, self._context.dataset_shape[0]
        step = max(1, tile_numbers(self._xp, self._context.spare) // n)
        for chunk in rows.chunks():
            start = chunk.start - rows.start
            for first in range(0, len(chunk.x), step):
                s = chunk.x[first : first + step]
                yield slice(start + first, start + first + len(s)), slice(0, n), s
                self._context.progress((start + first) / len(rows))

    def _own_zeros(self, dtype: Any) -> Array:
        return self._xp.zeros(len(self._context.rows), dtype=dtype)

    def _reject_tiny(self, largest: float) -> None:
        """Reject distances that are so small that they lose digits in their type."""
        context, least = self._context, SMALLEST_SHARE * float(np.finfo(self._context.dtype).tiny)
        # Distances that became 0 in a narrower type must not count as equal rows.
        largest = largest or float(context.comm.all_reduce(np.array([context.rows.vanished]), "max")[0])
        if not 0 < largest <= least:
            return
        helps = context.dtype != np.float64 and largest > SMALLEST_SHARE * float(np.finfo(np.float64).tiny)
        raise InputError(
            f"metric='precomputed': the largest distance is {largest:.3g} and should be above {least:.1g} with "
            f"dtype='{context.dtype}'; rescale the data{' or use dtype=' + repr('float64') if helps else ''}."
        )

    def _reject_no_distances(self) -> None:
        """Reject a matrix with negative numbers, with a diagonal other than 0, or with more asymmetry than rounding."""
        context, xp = self._context, self._xp
        n = context.dataset_shape[0]
        largest = largest_value(context)
        self._reject_tiny(largest)
        tolerance = float(np.finfo(context.dtype).eps) ** 0.5 * largest
        found = np.full(3, n * n, np.int64)  # the first position of each fault
        for chunk, block in context.all_pairs():
            for start in range(chunk.start, chunk.stop, CHECKED_ROWS):
                own = slice(start - chunk.start, start - chunk.start + CHECKED_ROWS)
                s = chunk.x[own, block.start : block.stop]
                number = xp.arange(start, start + len(s))[:, None]
                bad = [s < 0, (s != 0) & (number == xp.arange(block.start, block.stop))]
                if start < block.stop:  # each pair once
                    bad.append(abs(s - block.x[:, start : start + len(s)].T) > tolerance)
                for kind, mask in enumerate(bad):
                    if any_true(mask):
                        i, j = (int(at[0]) for at in xp.nonzero(mask))
                        found[kind] = min(found[kind], (start + i) * n + block.start + j)
        found = context.comm.all_reduce(found, "min")
        if found.min() == n * n:
            return
        kind = int((found < n * n).argmax())
        i, j = divmod(int(found[kind]), n)
        both = np.unique([i, j])
        d = context.kernels.memory.to_host(context.gather_rows(both))
        here, there = (d[np.searchsorted(both, a), b] for a, b in ((i, j), (j, i)))
        raise InputError(
            (
                f"Negative values in data: with metric='precomputed' the distance in row {i}, column {j} is {here:g} "
                "and should be >= 0; give distances, or use affinity propagation for similarities.",
                f"metric='precomputed': the distance of row {i} to itself is {here:g} and should be 0; give distances, "
                "not similarities, and use np.fill_diagonal(D, 0) if it differs from 0 only by rounding.",
                f"metric='precomputed': row {i}, column {j} is {here:g}, but row {j}, column {i} is {there:g}; "
                f"distances should be symmetric (to {tolerance:.1g}): give (D + D.T) / 2 if their mean is correct.",
            )[kind]
        )
