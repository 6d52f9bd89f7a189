"""The exact quantile of all pairwise distances, without storing or sorting them.

Wanted is the k-th smallest reduced distance s of the pairs i < j. IEEE numbers that are not negative sort like the
integers that their bits are, so this is integer work: histograms of at most 2^20 bins within a bracket, a bin being
some power of two of neighbouring representable values.

1. A sample of 2048 rows brackets the value; of 256 and then 1024 (or half of the rows) where the next steps are short:
   a pair of the first sample costs two to four times as much as one that lies outside a bracket. With p_i the share of
   the sample within s of row i, the standard error of the sampled share is about ``2 sd(p_i) / sqrt(m)`` (a
   U-statistic); the bracket spans four of these to each side.
2. Within that bracket a sample of 32768 rows is quickly counted, and brackets it more narrowly. (An eighth of the
   rows, if that is less, where the next step takes near-linear time.)
   Before a pass over all pairs, an eighth of the rows narrows it once more: 1.6% of the pass's work, and of the pairs
   that lie within the bracket each costs several times as much as of the others. Of a million rows and more in few
   dimensions, too, by a tree: the pairs within a bracket that did not narrow with n would grow with its square.
3. One pass over all pairs counts those below the bracket and those in each of its bins. The bin that holds rank k
   becomes the next bracket until bins are one value wide; in float32 the first ones nearly always are. Where they
   cannot be, each pass takes as many bits of the value as the others: as few passes, on few bins. A bracket that
   missed never decides: the side where the rank lies replaces it.

How the last step counts is its caller's to say: all pairs, or a tree.
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
MAX_BRACKETED = 1 << 14  # rows whose pairs are all counted: of more, the narrower bracket of a larger sample pays
MIN_TREE_SAMPLE = 1 << 17  # rows; building a smaller tree saves less than it costs
SECOND_WORK = 1 << 32  # multiply-adds that one look at all pairs of the second sample may cost
DIGITS = 20  # binary, of a value, that a pass finds at most
BINS = 1 << DIGITS
SAMPLE_BINS = 1 << 16  # of a sample's bracket: 0.8% of a value in the first, far less than what its rows leave open
BLOCK = 1 << 10  # bins whose sum is formed first, at most
FEWEST_BLOCKS = 1 << 5  # bins come in whole blocks, and what they reach beyond the bracket has to be little of it
COARSE_DIGITS = 8  # binary
STANDARD_ERRORS = 4.0
LOW_SHARE, HIGH_SHARE = 0.6, 1.6  # of the wanted one, which bracket it by a sample of weighted rows


@dataclass(frozen=True)
class PairSample:
    """Evidence of a sample of the rows on the wanted quantile.

    Attributes
    ----------
    value : float
        The sampled reduced distance.
    low, high : float
        Reduced distances that bracket the exact one, very probably.
    error : float
        The sampled value, as a *distance*, is this far from the farther end of its 95% confidence interval.
    rank : int
        The exact value is the `rank`-th smallest, from 1, of all pairs i < j.
    deviation : float
        Standard deviation of the rows' shares p_i, as the first sample has it.
    complete : bool
        Every row is in the sample, so that `value` is the exact one.
    """

    value: float
    low: float
    high: float
    error: float
    rank: int
    deviation: float
    complete: bool


class Histogram:
    """Pairs below a bracket and in its bins, which begin at `first` and are ``2**shift`` values wide.

    The counts stay on the device: a million of them would take longer to fetch than many a pass takes. The host gets
    the sums of blocks of bins.
    """

    def __init__(self, kernels: Any, counts: Array, first: int, shift: int) -> None:
        self._to_host = kernels.memory.to_host
        bins = counts[1:]
        self._blocks = bins.reshape(-1, _block_of(len(bins)))
        below = self._to_host(kernels.xp.concatenate([counts[:1], self._blocks.sum(axis=1)]))
        self._below_end = np.cumsum(below)  # pairs below the end of the bracket's outside, of block 0, of block 1, ...
        self.first = first
        self.shift = shift
        self.below, self.total = (int(count) for count in self._below_end[[0, -1]])

    def bins_of(self, ranks: list[int]) -> list[int | None]:
        """First value of the bin that holds each rank (from 1), or None if the bracket missed it."""
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
    """Rows of the samples, ascending."""
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
    """Rank, from 1, of the wanted distance among those of all pairs of n rows."""
    return pair_rank_of(n * (n - 1) // 2, fraction)


def pair_rank_of(pairs: int, fraction: float) -> int:
    """Rank, from 1, of the wanted distance among those of so many pairs."""
    return min(max(round(fraction * pairs), 1), pairs)


def different_rank(pairs: int, fraction: float, equal: int) -> int:
    """Rank, from 1, among the distances of all pairs, of that wanted among those of pairs that differ.

    Parameters
    ----------
    pairs : int
    fraction : float
        Share of the pairs that differ.
    equal : int
        Pairs that do not; their distances of 0 come first.
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
    """Bracket the quantile from the distances within samples of the rows, the same on every rank.

    Parameters
    ----------
    context : Context
    measure : Metric
    fraction : float
        Share of the pairs.
    seed : int
    sizes : list of int
        As `sample_sizes` gives them.
    count_rows : callable
        Says how the pairs of some rows, which every rank has, are counted.
    """
    dtype = np.dtype(context.dtype)
    n = context.dataset_shape[0]
    pairs, rank = n * (n - 1) // 2, pair_rank(n, fraction)
    rng = np.random.default_rng(seed)
    sample = PairSample(0.0, 0.0, np.inf, np.inf, rank, np.nan, False)
    for m in sizes:
        if m <= SECOND_ROWS and m < n:
            chosen = np.sort(rng.choice(n, m, replace=False))
        else:  # evenly spread: to draw millions would take longer than to count them
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
    """The bracket that a (larger) sample gives, from a histogram within the bracket of the one before."""
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
    """Reduced distances below which shares of the pairs of a few rows lie, and whether these are pairs that differ.

    They are where the first share of all pairs are equal. Of all pairs, a distance is 0 where that share is. Every rank
    has the rows, or their distances where `norm` is "given". Within a bin of the histogram, 0.4%.
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
    """Bracket a place among weighted pairs from a few rows; arguments as for `sample_quantiles`."""
    (low, high), _ = sample_quantiles(context, norm, x, (fraction * LOW_SHARE, min(fraction * HIGH_SHARE, 1)), weights)
    wide = 2.0 ** (1 - COARSE_DIGITS)  # of a bin
    return PairSample(low, low, high * (1 + wide) if high > 0 else float("inf"), np.inf, place, np.nan, False)


def smallest_positive(context: Context, measure: Metric, count: Count, seed: int) -> tuple[float, int]:
    """The smallest reduced distance of pairs that differ, 0 if there is none, and how many pairs do not."""
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
    """The exact reduced distance of the sample's rank, and the passes over all pairs that it took."""
    if sample.complete:
        return sample.value, 0
    return _refine(context, count, sample.rank, sample, np.dtype(context.dtype))


def _refine(context: Context, count: Count, rank: int, bracket: PairSample, dtype: np.dtype) -> tuple[float, int]:
    """The value whose rank is given, from histograms within ever narrower brackets; and their number."""
    first, stop = _bits(bracket.low, dtype), _bits(bracket.high, dtype)
    passes = 0
    while True:
        left = -(-_digits(first, stop) // DIGITS)  # passes, this one included
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
    """Binary digits that tell the values of a bracket apart."""
    return (stop - first - 1).bit_length()


def _shift(first: int, stop: int, most: int) -> int:
    """The narrowest bins, as a power of two of representable values, of which at most so many cover the bracket."""
    return max(0, (-(-(stop - first) // most) - 1).bit_length())


def _bins(first: int, stop: int, shift: int) -> int:
    """Bins that cover the bracket, in whole blocks."""
    bins = max(1, -(-(stop - first) >> shift))
    return -(-bins // (block := _block_of(bins))) * block


def _block_of(bins: int) -> int:
    """Bins of a block: a power of two, or all of a few. Of whole blocks it is a divisor."""
    return bins if bins <= BLOCK else min(BLOCK, 1 << ((bins // FEWEST_BLOCKS).bit_length() - 1))


def _bits(value: float, dtype: np.dtype) -> int:
    return int(np.array(value, dtype).view(f"int{8 * dtype.itemsize}"))


def _value(bits: int, dtype: np.dtype) -> float:
    return float(np.array(bits, f"int{8 * dtype.itemsize}").view(dtype))
