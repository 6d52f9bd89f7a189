"""Density peaks by passes over all pairs of rows, tile by tile, for any metric and any number of features."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.common.nearest_rows import search_all_rows
from mgclust.algorithms.common.preparation import choose_norm, doubtful, prepare_rows
from mgclust.algorithms.density_peaks.cutoff_distance.pair_quantile import (
    BRACKETING_ROWS,
    Count,
    PairSample,
    pair_quantile,
    pair_rank_of,
    sample_rows,
    sample_sizes,
    smallest_positive,
    weighted_bracket,
)
from mgclust.algorithms.density_peaks.cutoff_distance.pair_weights import PairWeights, weighted_count
from mgclust.algorithms.density_peaks.passes.duplicate_rows import DuplicateRows
from mgclust.algorithms.density_peaks.passes.half_pairs import half_pairs
from mgclust.base.errors import InputError
from mgclust.engine.rows import Block
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import any_true, count_true
from mgclust.kernels.pairs.density import add_density, computed_tiles, density_of
from mgclust.kernels.pairs.metrics import Metric
from mgclust.kernels.pairs.neighbors import nearest_known

__all__ = ["AllPairs", "Neighbors", "positive_radii"]

Array = Any

MIN_FEATURES_FOR_NEIGHBORS = 4
SUM_ERROR = {4: 1e-6, 8: 1e-12}  # relative error of Gaussian sums, by the item size of the rows; tests check it
UNIT_TOLERANCE = 2.0**-23  # relative change of a density that is accepted when its terms are rounded to units


class Neighbors(NamedTuple):
    """The nearest rows of each row of this rank, which the density pass keeps."""

    s: Array  # (local rows, count): reduced distances, ascending
    index: Array  # (local rows, count), int64: row numbers

    @classmethod
    def none_yet(cls, context: Context, count: int) -> Neighbors:
        """Make empty lists of `count` rows per row: infinite distances, index -1."""
        xp, shape = context.kernels.xp, (len(context.rows), count)
        return cls(xp.full(shape, xp.inf, dtype=context.dtype), xp.full(shape, -1, dtype="int64"))


class AllPairs:
    """Values of density peaks for all rows, each from one pass over all pairs.

    Results are arrays of shape (n,) in row order, on the device of every rank.

    Parameters
    ----------
    context : Context
    measure : Metric
        The metric; the constructor prepares the rows for it.
    exactness : dict
        Receives facts about the computation, for `DensityPeaks.exactness_`.
    gaussian : bool
        See `prepare_rows`.
    weights : float64 array of shape (n,), optional
        The weights of all rows, on the device.
    """

    algorithm = "brute"

    def __init__(
        self,
        context: Context,
        measure: Metric,
        exactness: dict[str, Any],
        *,
        gaussian: bool = True,
        weights: Array | None = None,
    ) -> None:
        self._context, self._gaussian = context, gaussian
        self._row_weights = weights
        self._weights = None if weights is None else PairWeights.of(context.kernels.memory.to_host(weights))
        self._kernels, self._xp = context.kernels, context.kernels.xp
        self._measure = measure
        self._exactness = exactness
        exactness["algorithm"] = self.algorithm
        self._prepare()

    def _prepare(self) -> None:
        rows, own = self._context.rows, self._row_weights
        own = None if own is None else own[rows.start : rows.stop]
        self._prepared = prepare_rows(self._context, self._measure, own, gaussian=self._gaussian)
        self.watch_distances(np.zeros(0))

    def watch_distances(self, distances: np.ndarray) -> None:
        """Record the rounding error of the distances on which densities depend, if it is too large."""
        error = self._prepared.error_of(self._measure, distances)
        if doubtful(error, self._measure):
            self._exactness["distance_relative_error"] = float(f"{error:.2g}")

    def rho_error(self, dc: float, total: float) -> float:
        """Return a bound on the relative error of Gaussian densities of at least 1, if all weights sum to `total`.

        The bound adds the error of the sum and the error of the rows. Rounding has moved the rows of a pair by
        e = 2 `moved`. With r = d / dc, the logarithm of a term t = exp(-r^2) changes by 2 r e / dc to first order. If d
        is factor times a square, it changes by 4 r^1.5 e sqrt(factor / dc). Because t log(1/t)^a is concave for these
        a, the mean of r^(2 a) with weights t is at most log(total / rho)^a.
        """
        measure, e, most = self._measure, 2.0 * self._prepared.moved, math.log(max(total, math.e))
        moved = 2.0 * most**0.5 * e / dc
        if measure.is_square:
            moved = 4.0 * most**0.75 * e * (measure.factor / dc) ** 0.5
        return float(f"{self._sum_error() + moved:.2g}")

    def _sum_error(self) -> float:
        return SUM_ERROR[self._context.dtype.itemsize]

    def norm(self, s: float) -> str:
        """Choose how distances are computed: by products, if products are exact enough for distances of this scale."""
        reach = self._kernels.pairs.PRODUCT_REACH
        return choose_norm(self._measure, self._context.dataset_shape[1], self._prepared.radius, s, reach)

    @property
    def pairs(self) -> int:
        """Number of pairs i < j; for weighted rows, in squares of the unit of weights."""
        n = self._context.dataset_shape[0]
        return n * (n - 1) // 2 if self._weights is None else self._weights.pairs

    def in_rows(self, pairs: int) -> int:
        """Convert a number of pairs from squares of the unit to squares of the weight of one row."""
        return pairs if self._weights is None else self._weights.in_rows(pairs)

    def cutoff(self, fraction: float, *, exact: bool, seed: int) -> tuple[float, float]:
        """Return the reduced distance below which this fraction of the pairs lies, and the error of the distance."""
        if self._weights is not None:
            return self._weighted_cutoff(self._weights, fraction, seed), 0.0
        sample = sample_rows(
            self._context,
            self._measure,
            fraction,
            seed,
            sizes=sample_sizes(*self._context.dataset_shape, exact=exact, near_linear=self.algorithm == "grid"),
            count_rows=partial(self.sample_histogram, self._measure.norm),
        )
        if not exact:
            return sample.value, sample.error
        count = partial(self.pair_histogram, self.norm(sample.low))
        s, self._exactness["dc_passes"] = pair_quantile(self._context, sample, count)
        return s, 0.0

    def smallest_positive(self, seed: int) -> tuple[float, int]:
        """Return the smallest positive reduced distance and the number of pairs of equal rows.

        The distance is 0 if all rows are equal.
        """
        if self._weights is not None:
            return self._smallest_weighted(self._weights)
        return smallest_positive(self._context, self._measure, partial(self.pair_histogram, self._measure.norm), seed)

    def _smallest_weighted(self, weights: PairWeights) -> tuple[float, int]:
        zeros = int(weighted_count(self._context, weights, self._tiles)(1, 0, 1)[0])
        equal = (zeros - weights.diagonal) // 2
        if zeros == int(weights.units.sum()) ** 2:
            return 0.0, equal
        return self._at_place(weights, zeros + 1), equal

    def _at_place(self, weights: PairWeights, place: int, bracket: PairSample | None = None) -> float:
        """Return the reduced distance at a place in the sorted distances of all ordered pairs."""
        bracket = bracket or PairSample(0.0, 0.0, float("inf"), np.inf, place, np.nan, False)
        count = weighted_count(self._context, weights, self._tiles)
        s, self._exactness["dc_passes"] = pair_quantile(self._context, bracket, count)
        return s

    def _weighted_cutoff(self, weights: PairWeights, fraction: float, seed: int) -> float:
        some = np.flatnonzero(weights.units > 0)
        few = np.sort(np.random.default_rng(seed).choice(some, min(len(some), BRACKETING_ROWS), replace=False))
        x, own = self._context.gather_rows(few), weights.units[few] * weights.unit
        place = weights.place(pair_rank_of(weights.pairs, fraction))
        return self._at_place(
            weights, place, weighted_bracket(self._context, self._measure.norm, x, own, fraction, place)
        )

    def pair_histogram(self, norm: str, first: int, shift: int, bins: int) -> Array:
        """Count the pairs i < j of all ranks in `bins` bins: `PairKernels.pair_histogram` with ``low=first``; int64."""
        out = self._xp.zeros(1 + bins, dtype="int64")
        for rows, columns, diagonal in half_pairs(self._context):
            self._kernels.pairs.pair_histogram(
                rows.x, columns.x, norm=norm, diagonal=diagonal, low=first, shift=shift, out=out
            )
        return self._context.comm.all_reduce(out, "sum")

    def sample_histogram(self, norm: str, x: Array) -> Count:
        """Return a function that counts the pairs i < j of a sample in bins; every rank has the whole sample."""

        def count(first: int, shift: int, bins: int) -> Array:
            out = self._xp.zeros(1 + bins, dtype="int64")
            self._kernels.pairs.pair_histogram(x, x, norm=norm, diagonal=True, low=first, shift=shift, out=out)
            return out

        return count

    def gaussian_rho(self, norm: str, dc: float) -> tuple[Array, Neighbors | None]:
        """Compute the Gaussian density, float64, and the nearest rows of local rows if the pass can keep them."""
        context, rows = self._context, self._context.rows
        scale = self._measure.scale(dc)
        exponents = norm == "l2-dot" and self._measure.power == 1
        if exponents and self._kernels.pairs.symmetric_sum_is_faster(context.dtype, rows.n_features):
            return self._rho_both_ways(norm, scale), None
        duplicate_rows = DuplicateRows(context)
        mine = self._xp.zeros(len(rows), dtype="float64")
        keep = self._kernels.pairs.NEIGHBORS if rows.n_features >= MIN_FEATURES_FOR_NEIGHBORS else 0
        near = Neighbors.none_yet(context, keep)
        for chunk, block in context.all_pairs():
            own = self._own(chunk)
            self._kernels.pairs.gaussian_sum(
                chunk.x,
                block.x,
                norm=norm,
                scale=scale,
                power=self._measure.power,
                out=mine[own],
                rows=duplicate_rows.columns(chunk, block),
                y_start=block.start,
                near=near.s[own] if keep else None,
                near_index=near.index[own] if keep else None,
            )
        return context.comm.all_gather(mine), near if keep else None

    def _rho_both_ways(self, norm: str, scale: float) -> Array:
        """Compute the Gaussian density, float64, with each pair computed once.

        Terms are rounded to multiples of the smallest unit with which the sum of n terms fits into 63 bits. If the
        density of a row is so low that this rounding could matter, `gaussian_sum` sums the row again.
        """
        context, xp, n = self._context, self._xp, self._context.partition.n_rows
        unit = 2.0 ** (62 - n.bit_length())
        sums = xp.zeros(n, dtype="int64")
        for rows, columns, diagonal in half_pairs(context):
            self._kernels.pairs.gaussian_both_ways(
                rows.x,
                columns.x,
                scale=scale,
                diagonal=diagonal,
                unit=unit,
                x_out=sums[rows.start : rows.stop],
                y_out=sums[columns.start : columns.stop],
            )
        rho = context.comm.all_reduce(sums, "sum").astype("float64") / unit
        low = rho < n / (2 * unit) / UNIT_TOLERANCE
        self._exactness["rho_recomputed_rows"] = count_true(low)
        return self._recomputed(rho, low, norm, scale) if self._exactness["rho_recomputed_rows"] else rho

    def _recomputed(self, rho: Array, low: Array, norm: str, scale: float) -> Array:
        """Sum again, with `gaussian_sum`, the rows that the mask `low` selects; return the densities of all rows."""
        context, xp = self._context, self._xp
        duplicate_rows = DuplicateRows(context)
        mine = rho[context.rows.start : context.rows.stop].copy()
        mine[low[context.rows.start : context.rows.stop]] = 0.0
        for chunk, block in context.all_pairs():
            own = self._own(chunk)
            few = xp.flatnonzero(low[chunk.start : chunk.stop])
            left_out = duplicate_rows.columns(chunk, block)  # must be called for each block, in order
            sums = mine[own.start + few]
            self._kernels.pairs.gaussian_sum(
                chunk.x[few],
                block.x,
                norm=norm,
                scale=scale,
                power=1,
                out=sums,
                rows=left_out[few],
                y_start=block.start,
            )
            mine[own.start + few] = sums
        return context.comm.all_gather(mine)

    def knn_rho(self, k: int) -> tuple[Array, Neighbors | None]:
        """Return the reciprocal distance to the k-th nearest other row, float64, and the k nearest rows of local rows.

        A row that is equal to k other rows gets twice the largest density of the remaining rows.
        """
        near = self.nearest_rows(k)
        return self.rho_of(near, k), near

    def rho_of(self, near: Neighbors, k: int) -> Array:
        """Compute the density of `knn_rho` from lists of at least k nearest rows."""
        return self._inverse(near.s[:, k - 1], k)

    def nearest_rows(self, k: int) -> Neighbors:
        """Find the k nearest other rows of each local row; among equal distances, the lower row number comes first."""
        context, xp = self._context, self._xp
        near = Neighbors.none_yet(context, k)
        for done, chunk in enumerate(context.chunks()):
            own = self._own(chunk)
            numbers = xp.arange(chunk.start, chunk.stop)
            for part in search_all_rows(context, chunk.x, self._measure.norm, near.s[own], near.index[own], numbers):
                context.progress((done + part) / context.chunk_count)
        return near

    def _inverse(self, s: Array, k: int) -> Array:
        """Return each row's reciprocal distance to its k-th nearest row, from reduced distances of local rows."""
        last = self._measure.distances(self._context.comm.all_gather(s.astype("float64")), self._xp)
        return 1.0 / positive_radii(last, k, self._xp)

    def weighted_rho(self, density: str, s_dc: float, weights: Array | None) -> Array:
        """Compute the Gaussian or cutoff density of weighted rows, float64; weights of None count as 1.

        Rows at distance 0, including the row itself, count as one row. Its weight is the sum of their weights minus 1,
        but at least 0. So the densities of equal rows are bitwise identical, and a weight of 2 has the same effect as
        a repeated row.
        """
        xp = self._xp
        self._exactness["rho"] = "all pairs"  # even if trees and grids compute all other values
        equal, others = (xp.zeros(len(self._context.rows), dtype="float64") for _ in range(2))
        for own, columns, s in self._tiles():
            add_density(
                s,
                None if weights is None else weights[columns],
                density=density,
                cut=s_dc,
                power=self._measure.power,
                equal=equal[own],
                others=others[own],
                xp=xp,
            )
        return self._context.comm.all_gather(density_of(equal, others, xp))

    def _tiles(self) -> Iterator[tuple[slice, slice, Array]]:
        """Yield slices of local rows and of columns, with their reduced distances; columns ascend."""
        for chunk, block in self._context.all_pairs():
            own = self._own(chunk)
            for rows, columns, s in computed_tiles(
                self._kernels, chunk.x, block.x, self._measure.norm, self._context.spare
            ):
                yield _shifted(rows, own.start), _shifted(columns, block.start), s

    def count_within(self, norm: str, threshold: float) -> Array:
        """Return the number of rows within a reduced distance of each row, including the row itself; int64."""
        mine = self._xp.zeros(len(self._context.rows), dtype="int64")
        for chunk, block in self._context.all_pairs():
            self._kernels.pairs.count_within(
                chunk.x, block.x, norm=norm, threshold=threshold, out=mine[self._own(chunk)]
            )
        return self._context.comm.all_gather(mine)

    def nearest_higher(self, norm: str, order: Array, neighbors: Neighbors | None) -> tuple[Array, Array]:
        """Find the reduced distance and index of each row's nearest denser row; inf and -1 for the densest row."""
        context, xp, rows = self._context, self._xp, self._context.rows
        own_order = order[rows.start : rows.stop]
        best = xp.full(len(rows), xp.inf, dtype=context.dtype)
        index = xp.full(len(rows), -1, dtype="int64")
        missing = None  # mask of the rows without a denser row among their kept neighbours
        if neighbors is not None:
            known, where, certain = nearest_known(order, own_order, *neighbors, xp)
            best[certain], index[certain] = known[certain], where[certain]
            missing = ~certain
            searched = context.comm.all_reduce(xp.asarray([count_true(missing)]), "sum")
            self._exactness.setdefault("delta_searched_rows", int(searched[0]))  # only from the first call
        for chunk, block in context.all_pairs():
            mine = self._own(chunk)
            x, which = chunk.x, mine
            if missing is not None:
                few = xp.flatnonzero(missing[mine])
                x, which = chunk.x[few], few + mine.start
            s, at = best[which], index[which]
            self._kernels.pairs.nearest_higher(
                x,
                block.x,
                own_order[which],
                order[block.start : block.stop],
                norm=norm,
                y_start=block.start,
                best=s,
                best_index=at,
            )
            best[which], index[which] = s, at
        return context.comm.all_gather(best), context.comm.all_gather(index)

    def nearest_below(self, order: Array, few: Array, limit: Array) -> tuple[Array, Array]:
        """Return reduced distance and index of the nearest row with an order below `limit`, for each of a few rows."""
        context, xp, rows = self._context, self._xp, self._context.rows
        mine = xp.flatnonzero((few >= rows.start) & (few < rows.stop))
        best = xp.full(len(mine), xp.inf, dtype=context.dtype)
        index = xp.full(len(mine), -1, dtype="int64")
        own = few[mine] - rows.start
        for tile, columns, s in self._tiles():
            here = xp.flatnonzero((own >= tile.start) & (own < tile.stop))
            if not len(here):
                continue
            s = xp.where(order[columns] < limit[mine[here], None], s[own[here] - tile.start], xp.inf)
            at = s.argmin(axis=1)
            least = s[xp.arange(len(here)), at]
            nearer = least < best[here]
            best[here] = xp.where(nearer, least, best[here])
            index[here] = xp.where(nearer, at + columns.start, index[here])
        return context.comm.all_gather(best), context.comm.all_gather(index)

    def gap(self, group: np.ndarray) -> float:
        """Return the least reduced distance between a group of rows and all other rows."""
        context, xp = self._context, self._xp
        x, inside = context.gather_rows(group), xp.zeros(context.dataset_shape[0], dtype="int32")
        inside[xp.asarray(group)] = 2
        best, index = xp.full(len(x), xp.inf, dtype=context.dtype), xp.full(len(x), -1, dtype="int64")
        own_order = xp.ones(len(x), dtype="int32")
        for chunk in context.rows.chunks():
            order = inside[chunk.start : chunk.start + len(chunk.x)]
            self._kernels.pairs.nearest_higher(
                x, chunk.x, own_order, order, norm=self._measure.norm, y_start=chunk.start, best=best, best_index=index
            )
        return float(context.comm.all_reduce(best, "min").min())

    def border(self, norm: str, threshold: float, labels: Array) -> Array:
        """Return a mask of the rows that have a row with another label within a reduced distance, uint8."""
        mine = self._xp.zeros(len(self._context.rows), dtype="uint8")
        for chunk, block in self._context.all_pairs():
            self._kernels.pairs.border(
                chunk.x,
                block.x,
                labels[chunk.start : chunk.stop],
                labels[block.start : block.stop],
                norm=norm,
                threshold=threshold,
                out=mine[self._own(chunk)],
            )
        return self._context.comm.all_gather(mine)

    def farthest(self, row: int) -> float:
        """Return the largest reduced distance from one row to any other row."""
        context, xp = self._context, self._xp
        owner = context.partition.owner(row // context.partition.block_rows)
        x = context.rows.read(row, row + 1) if owner == context.rank else None
        x = context.comm.broadcast(x, owner)
        largest = xp.zeros(1)
        for chunk in context.rows.chunks():
            if chunk.x.shape[0]:
                s = self._kernels.pairs.reduced_distances(x, chunk.x, norm=self._measure.norm)
                largest = xp.maximum(largest, s.max())
        return float(context.comm.all_reduce(largest, "max")[0])

    def _own(self, chunk: Block) -> slice:
        """Return the position of a chunk in this rank's rows."""
        return slice(chunk.start - self._context.rows.start, chunk.stop - self._context.rows.start)


def positive_radii(radius: Array, k: int, xp: Any, *, adaptive: bool = False) -> Array:
    """Replace distances of 0 to the k-th nearest row by half the smallest positive distance.

    If all distances are 0, raise InputError.
    """
    apart = radius > 0
    if not any_true(apart):
        which, larger = ("'adaptive'", f"give a k above {k}") if adaptive else (str(k), "raise k")
        raise InputError(
            f"k={which}: each row is equal to {k} other rows, so all densities are the same; drop duplicate rows, or "
            f"{larger} if some rows differ."
        )
    return xp.where(apart, radius, xp.where(apart, radius, xp.inf).min() / 2)


def _shifted(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)
