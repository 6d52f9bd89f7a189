"""The exact quantile of all pairwise distances, without storing or sorting them.

The goal is the k-th smallest reduced distance s of the pairs i < j: ``sort(all s)[k - 1]``. Non-negative IEEE numbers
sort like the integers with the same bits. So the search uses integers: histograms of at most 2^20 bins within a
bracket. Each bin holds neighbouring representable values; their number is a power of two.

1. A sample of 2048 rows brackets the value. If the next steps are short, samples of 256 and then 1024 rows (or half of
   the rows) suffice, because a pair of the first sample costs two to four times as much as a pair outside a bracket.
   p_i is the fraction of the sample within s of row i. The standard error of the sampled fraction is about
   ``2 sd(p_i) / sqrt(m)`` (a U-statistic). The bracket spans four standard errors to each side.
2. A sample of 32768 rows narrows the bracket, which is quick within the first bracket. The sample is an eighth of the
   rows if that is smaller and the next step takes near-linear time. Before a pass over all pairs, an eighth of the rows
   narrows the bracket once more. This takes 1.6% of the work of the pass, and pays off because each pair within the
   bracket costs several times as much as a pair outside. With a million or more rows in few dimensions, a tree counts
   the pairs of such a sample, because the number of pairs within a bracket of fixed width grows with the square of n.
3. One pass over all pairs counts the pairs below the bracket, and the pairs in each of its bins. The bin that holds
   rank k becomes the next bracket, until bins are one value wide. In float32, the first bins nearly always are one
   value wide. Otherwise, each pass finds the same number of bits of the value, so that there are few passes, on few
   bins. If the bracket missed the value, the side that holds the rank becomes the next bracket, so the result is exact
   in any case.

The caller provides the function that counts in the last step: over all pairs, or by a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.algorithms.density_peaks.cutoff_distance.pair_weights import PairWeights
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.metrics import Metric
from mgclust.kernels.pairs.weighted_histogram import add_pair_weights

__all__ = [
    "BINS",
    "MIN_TREE_SAMPLE",
    "Count",
    "PairSample",
    "different_rank",
    "pair_quantile",
    "pair_rank",
    "pair_rank_of",
    "sample_quantiles",
    "sample_rows",
    "sample_sizes",
    "smallest_positive",
    "weighted_bracket",
]

Array = Any

FEW_ROWS, BRACKETING_ROWS, FIRST_ROWS, SECOND_ROWS, THIRD_ROWS = 256, 1024, 2048, 32768, 131072
MAX_BRACKETED = 1 << 14  # up to this number of rows, small samples bracket the value; beyond it, a larger one does
MIN_TREE_SAMPLE = 1 << 17  # least number of rows for a tree; building a smaller tree costs more than it saves
SECOND_WORK = 1 << 32  # most multiply-adds for all pairs of the second sample
DIGITS = 20  # most binary digits of a value that one pass finds
BINS = 1 << DIGITS
# Bins of a sample's bracket. In the first bracket, a bin spans 0.8% of a value, far less than the sampling error.
SAMPLE_BINS = 1 << 16
BLOCK = 1 << 10  # largest number of bins per block; the host gets only the sums of blocks
FEWEST_BLOCKS = 1 << 5  # bins fill whole blocks; with this many blocks, the excess beyond the bracket is small
COARSE_DIGITS = 8  # binary digits of a value in the histogram of `sample_quantiles`
STANDARD_ERRORS = 4.0
LOW_SHARE, HIGH_SHARE = 0.6, 1.6  # factors of the fraction that bracket it in a sample of weighted rows


@dataclass(frozen=True)
class PairSample:
    """Estimate of the quantile from a sample of the rows.

    Attributes
    ----------
    value : float
        The sampled reduced distance.
    low, high : float
        Reduced distances that very probably bracket the exact reduced distance.
    error : float
        Distance from the sampled value to the farther end of its 95% confidence interval, in units of the metric.
    rank : int
        The exact value is the `rank`-th smallest of all pairs i < j, counted from 1.
    deviation : float
        Standard deviation of the fractions p_i of the rows, in the first sample.
    complete : bool
        Whether every row is in the sample, so that `value` is exact.
    """

    value: float
    low: float
    high: float
    error: float
    rank: int
    deviation: float
    complete: bool


class Histogram:
    """Numbers of pairs below a bracket and in its bins, which begin at `first` and are ``2**shift`` values wide.

    The counts stay on the device, because fetching a million counts takes longer than many passes. The host gets the
    sums of blocks of bins.
    """

    def __init__(self, kernels: Any, counts: Array, first: int, shift: int) -> None:
        self._to_host = kernels.memory.to_host
        bins = counts[1:]
        self._blocks = bins.reshape(-1, _block_of(len(bins)))
        below = self._to_host(kernels.xp.concatenate([counts[:1], self._blocks.sum(axis=1)]))
        self._below_end = np.cumsum(below)  # pairs below the start of the bracket, below the end of block 0, of 1, ...
        self.first = first
        self.shift = shift
        self.below, self.total = (int(count) for count in self._below_end[[0, -1]])

    def bins_of(self, ranks: list[int]) -> list[int | None]:
        """Return the first value of the bin that holds each rank (from 1); None for a rank outside the bracket."""
        blocks = np.searchsorted(self._below_end, ranks) - 1
        return [
            self._bin_of(rank, block) if self.below < rank <= self.total else None
            for rank, block in zip(ranks, blocks.tolist(), strict=True)
        ]

    def _bin_of(self, rank: int, block: int) -> int:
        below_end = np.cumsum(self._to_host(self._blocks[block]))
        index = int(np.searchsorted(below_end, rank - self._below_end[block]))
        return self.first + ((block * self._blocks.shape[1] + index) << self.shift)


Count = Callable[[int, int, int], Array]  # (first, shift, bins) -> pairs below, pairs in each bin; on the device


def sample_sizes(n: int, d: int, *, exact: bool = True, near_linear: bool = False) -> list[int]:
    """Return the numbers of rows of the samples, ascending.

    Parameters
    ----------
    n, d : int
        Shape of the data.
    exact : bool
        Whether a pass over all pairs follows.
    near_linear : bool
        Whether this pass takes near-linear time, by a tree.

    Returns
    -------
    list of int
    """
    eighth, firsts = n // 8, {min(n, FIRST_ROWS)}
    if exact and n >= 2 * FEW_ROWS and (near_linear or n <= MAX_BRACKETED):
        firsts = {FEW_ROWS, min(n if n <= BRACKETING_ROWS else n // 2, BRACKETING_ROWS)}
    second = min(n, max(FIRST_ROWS, min(SECOND_ROWS, int((SECOND_WORK / d) ** 0.5))))
    if not exact:
        return sorted({*firsts, second})
    if near_linear:
        second = min(n, max(FIRST_ROWS, min(second, eighth)))
        return sorted({*firsts, second, *([eighth] if eighth >= MIN_TREE_SAMPLE else [])})
    return sorted({*firsts, second, max(second, min(eighth, THIRD_ROWS))})


def pair_rank(n: int, fraction: float) -> int:
    """Return the rank, from 1, of the quantile among the distances of all pairs of n rows.

    Parameters
    ----------
    n : int
    fraction : float

    Returns
    -------
    int
    """
    return pair_rank_of(n * (n - 1) // 2, fraction)


def pair_rank_of(pairs: int, fraction: float) -> int:
    """Return the rank, from 1, of the quantile among the distances of `pairs` pairs.

    Parameters
    ----------
    pairs : int
    fraction : float

    Returns
    -------
    int
    """
    return min(max(round(fraction * pairs), 1), pairs)


def different_rank(pairs: int, fraction: float, equal: int) -> int:
    """Return the rank, from 1, that the quantile of the pairs whose rows differ has among the distances of all pairs.

    Parameters
    ----------
    pairs : int
        Number of all pairs.
    fraction : float
        Fraction of the pairs whose rows differ.
    equal : int
        Number of pairs of equal rows; their distances of 0 come first.

    Returns
    -------
    int
    """
    return min(equal + max(round(fraction * (pairs - equal)), 1), pairs)


def sample_rows(
    context: Context,
    measure: Metric,
    fraction: float,
    seed: int,
    *,
    sizes: list[int],
    count_rows: Callable[[Array], Count],
) -> PairSample:
    """Bracket the quantile by the distances within samples of the rows; every rank gets the same result.

    Parameters
    ----------
    context : Context
    measure : Metric
    fraction : float
        Fraction of the pairs.
    seed : int
        Seed of the samples.
    sizes : list of int
        Return value of `sample_sizes`.
    count_rows : callable
        ``count_rows(x)`` returns a function that counts the pairs of the sample x; every rank has this sample.

    Returns
    -------
    PairSample
    """
    dtype = np.dtype(context.dtype)
    n = context.dataset_shape[0]
    pairs, rank = n * (n - 1) // 2, pair_rank(n, fraction)
    rng = np.random.default_rng(seed)
    sample = PairSample(0.0, 0.0, np.inf, np.inf, rank, np.nan, False)
    for m in sizes:
        if m <= SECOND_ROWS and m < n:
            chosen = np.sort(rng.choice(n, m, replace=False))
        else:  # evenly spread rows, because drawing millions takes longer than counting them
            chosen = np.arange(rng.integers(n // m), n, n // m)[:m]
        x = context.gather_rows(chosen)
        if m == n:
            value, _ = _refine(context, count_rows(x), rank, sample, dtype)
            return PairSample(value, value, value, 0.0, rank, 0.0, True)
        sample = _narrow(context, measure, x, count_rows(x), sample, rank / pairs, dtype)
    return sample


def _narrow(
    context: Context, measure: Metric, x: Array, count: Count, before: PairSample, share: float, dtype: np.dtype
) -> PairSample:
    """Narrow the bracket by a larger sample, from a histogram within the bracket of the previous sample."""
    kernels, m = context.kernels, x.shape[0]
    first, stop = _bits(before.low, dtype), _bits(before.high, dtype)
    shift = _shift(first, stop, SAMPLE_BINS)
    histogram = Histogram(kernels, count(first, shift, _bins(first, stop, shift)), first, shift)

    def quantiles(*shares: float) -> list[int]:
        sample_pairs = m * (m - 1) // 2
        bins = histogram.bins_of([min(max(round(wanted * sample_pairs), 1), sample_pairs) for wanted in shares])
        missed = [first if wanted < share else stop for wanted in shares]
        return [end if at is None else at for at, end in zip(bins, missed, strict=True)]

    value = _value(quantiles(share)[0], dtype)
    deviation = before.deviation
    if np.isnan(deviation):
        within = kernels.xp.zeros(m, dtype="int64")
        kernels.pairs.count_within(x, x, norm=measure.norm, threshold=value, out=within)
        deviation = float(kernels.memory.to_host(within).std()) / m
    error = 2 * deviation / m**0.5 + 2 / m**2
    steps = (-STANDARD_ERRORS, -1.96, 1.96, STANDARD_ERRORS)
    low, *confidence, high = quantiles(*(share + step * error for step in steps))
    middle, *ends = (measure.distance(at) for at in (value, *(_value(end, dtype) for end in confidence)))
    far = max(abs(end - middle) for end in ends)
    high = min(high + (1 << shift), _bits(np.inf, dtype))
    return PairSample(value, _value(low, dtype), _value(high, dtype), far, before.rank, deviation, False)


def sample_quantiles(
    context: Context, norm: str, x: Array, fractions: Sequence[float], weights: np.ndarray | None = None
) -> tuple[list[float], bool]:
    """Find reduced distances below which fractions of the pairs of a few rows lie, within one histogram bin (0.4%).

    If at least the first fraction of all pairs have equal rows, the fractions refer to the pairs whose rows differ.
    Otherwise, the distance of a fraction is 0 if at least this fraction of all pairs have equal rows.

    Parameters
    ----------
    context : Context
    norm : {"l2", "l1", "given"}
        Kind of reduced distance.
    x : array of shape (m, n_features)
        The rows, on every rank; with "given", their distances, of shape (m, m).
    fractions : sequence of float
        Fractions of the pairs.
    weights : ndarray of shape (m,), optional
        Weights of the rows.

    Returns
    -------
    s : list of float
        Reduced distance for each fraction.
    different : bool
        Whether the fractions refer to the pairs whose rows differ.
    """
    kernels, dtype = context.kernels, np.dtype(context.dtype)
    shift = np.finfo(dtype).nmant - COARSE_DIGITS
    counts = kernels.xp.zeros(1 + (1 << (8 * dtype.itemsize - 1 - shift)), dtype="int64")
    if weights is None and norm != "given":
        kernels.pairs.pair_histogram(x, x, norm=norm, diagonal=True, low=1, shift=shift, out=counts)
        pairs = len(x) * (len(x) - 1) // 2
    else:
        counted = PairWeights.of(np.ones(len(x)) if weights is None else weights)
        s = x if norm == "given" else kernels.pairs.reduced_distances(x, x, norm=norm)
        units = kernels.xp.asarray(counted.units)
        add_pair_weights(s, units, units, low=1, shift=shift, out=counts, xp=kernels.xp)
        counts[0] -= counted.diagonal
        counts //= 2
        pairs = counted.pairs
    histogram = Histogram(kernels, counts, 1, shift)
    ranks = [pair_rank_of(pairs, fraction) for fraction in fractions]
    different = ranks[0] <= histogram.below
    if different:
        ranks = [different_rank(pairs, fraction, histogram.below) for fraction in fractions]
    return [0.0 if at is None else _value(at, dtype) for at in histogram.bins_of(ranks)], different


def weighted_bracket(
    context: Context, norm: str, x: Array, weights: np.ndarray, fraction: float, place: int
) -> PairSample:
    """Bracket the distance at a place among weighted pairs, by a few rows; see `sample_quantiles` for the arguments."""
    (low, high), _ = sample_quantiles(context, norm, x, (fraction * LOW_SHARE, min(fraction * HIGH_SHARE, 1)), weights)
    wide = 2.0 ** (1 - COARSE_DIGITS)  # relative width of a bin
    return PairSample(low, low, high * (1 + wide) if high > 0 else float("inf"), np.inf, place, np.nan, False)


def smallest_positive(context: Context, measure: Metric, count: Count, seed: int) -> tuple[float, int]:
    """Return the smallest positive reduced distance, 0 if there is none, and the number of pairs of equal rows."""
    dtype, n = np.dtype(context.dtype), context.dataset_shape[0]
    chosen = np.random.default_rng(seed).choice(n, min(n, FIRST_ROWS), replace=False)
    x = context.gather_rows(np.sort(chosen))
    s = context.kernels.pairs.reduced_distances(x, x, norm=measure.norm)
    high = float(context.kernels.xp.where(s > 0, s, np.inf).min())
    first, stop = 1, max(_bits(high, dtype), 2)
    shift = _shift(first, stop, BINS)
    histogram = Histogram(context.kernels, count(first, shift, _bins(first, stop, shift)), first, shift)
    equal = histogram.below
    if histogram.total == equal:
        return (high if np.isfinite(high) else 0.0), equal
    bracket = PairSample(0.0, _value(first, dtype), high, 0.0, equal + 1, np.nan, False)
    return pair_quantile(context, bracket, count)[0], equal


def pair_quantile(context: Context, sample: PairSample, count: Count) -> tuple[float, int]:
    """Return the exact reduced distance of the sample's rank, and the number of passes over all pairs."""
    if sample.complete:
        return sample.value, 0
    return _refine(context, count, sample.rank, sample, np.dtype(context.dtype))


def _refine(context: Context, count: Count, rank: int, bracket: PairSample, dtype: np.dtype) -> tuple[float, int]:
    """Find the value of a rank by histograms in narrower and narrower brackets; return it and the number of passes."""
    first, stop = _bits(bracket.low, dtype), _bits(bracket.high, dtype)
    passes = 0
    while True:
        left = -(-_digits(first, stop) // DIGITS)  # passes that are left, including this one
        shift = _shift(first, stop, 1 << -(-_digits(first, stop) // max(left, 1)))
        bins = _bins(first, stop, shift)
        histogram = Histogram(context.kernels, count(first, shift, bins), first, shift)
        passes += 1
        (bin_found,) = histogram.bins_of([rank])
        if bin_found is not None:
            first, stop = bin_found, bin_found + (1 << shift)
            if shift == 0:
                return _value(bin_found, dtype), passes
        elif rank <= histogram.below:
            first, stop = 0, first
        else:
            first, stop = first + (bins << shift), _bits(np.inf, dtype)


def _digits(first: int, stop: int) -> int:
    """Return the number of binary digits that distinguish the values of a bracket."""
    return (stop - first - 1).bit_length()


def _shift(first: int, stop: int, most: int) -> int:
    """Return the binary logarithm of the width of the narrowest bins of which at most `most` cover the bracket."""
    return max(0, (-(-(stop - first) // most) - 1).bit_length())


def _bins(first: int, stop: int, shift: int) -> int:
    """Return the number of bins that cover the bracket, in whole blocks."""
    bins = max(1, -(-(stop - first) >> shift))
    return -(-bins // (block := _block_of(bins))) * block


def _block_of(bins: int) -> int:
    """Return the number of bins per block: a power of two, or all bins if there are few."""
    return bins if bins <= BLOCK else min(BLOCK, 1 << ((bins // FEWEST_BLOCKS).bit_length() - 1))


def _bits(value: float, dtype: np.dtype) -> int:
    return int(np.array(value, dtype).view(f"int{8 * dtype.itemsize}"))


def _value(bits: int, dtype: np.dtype) -> float:
    return float(np.array(bits, f"int{8 * dtype.itemsize}").view(dtype))
