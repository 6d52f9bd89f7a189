"""The exact quantile of all pairwise distances, without storing or sorting them.

Wanted is the k-th smallest reduced distance s of the pairs i < j. IEEE numbers that are not negative sort like the
integers that their bits are, so this is integer work:

1. A sample of rows brackets the value: with p_i the share of the sample within s of row i, the standard error of
   the sampled share is about ``2 sd(p_i) / sqrt(m)`` (a U-statistic); the bracket spans a few of these.
2. One pass over all pairs counts those below the bracket and those in each of its 2^20 bins.
3. The bin that holds rank k becomes the next bracket until bins are one representable value wide. In float32
   the first bins often are. A bracket that missed (it never decides the answer) is replaced by the side where
   the rank lies.

The pairs are shared out evenly: of B blocks of rows, block I meets the blocks I + 1 .. I + B/2 (cyclically), so that
every rank has the same work and every pair comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.algorithms import near_linear
from mgclust.engine.spmd import Context
from mgclust.kernels.metrics import Metric

__all__ = ["BINS", "Sample", "pair_quantile", "sample_rows", "sample_size"]

Array = Any

SAMPLE_ROWS = 8192
SAMPLE_WORK = 1 << 32  # multiply-adds that one look at all pairs of the sample may cost
BINS = 1 << 20
STANDARD_ERRORS = 5.0

Count = Callable[[int, int], np.ndarray]  # (low, shift) -> pairs below, pairs in each bin


@dataclass(frozen=True)
class Sample:
    """What a sample of the rows says of the wanted quantile.

    Attributes
    ----------
    value : float
        The sampled reduced distance.
    low, high : float
        Reduced distances that bracket the exact one, very probably.
    error : float
        Half the width of the 95% confidence interval of the sampled value, as a *distance*.
    rank : int
        The exact value is the `rank`-th smallest, from 1, of all pairs i < j.
    complete : bool
        Every row is in the sample, so that `value` is the exact one.
    """

    value: float
    low: float
    high: float
    error: float
    rank: int
    complete: bool


def sample_size(n: int, d: int) -> int:
    """Rows of the sample: 8192, fewer of many features."""
    return min(n, SAMPLE_ROWS, max(1024, int((SAMPLE_WORK / d) ** 0.5)))


def sample_rows(context: Context, measure: Metric, fraction: float, seed: int) -> Sample:
    """Bracket the quantile from the distances within a sample of rows, the same sample on every rank."""
    kernels, xp = context.kernels, context.kernels.xp
    dtype = np.dtype(context.dtype)
    n, d = context.dataset_shape
    pairs = n * (n - 1) // 2
    rank = min(max(round(fraction * pairs), 1), pairs)

    m = sample_size(n, d)
    chosen = np.sort(np.random.default_rng(seed).choice(n, m, replace=False)) if m < n else np.arange(n)
    own = chosen[(chosen >= context.rows.start) & (chosen < context.rows.stop)]
    x = context.comm.all_gather(_take(context, own))
    sample_pairs = m * (m - 1) // 2

    def count(low: int, shift: int) -> np.ndarray:
        out = xp.zeros(1 + BINS, dtype="int64")
        kernels.pair_histogram(x, x, norm=measure.norm, diagonal=True, low=low, shift=shift, out=out)
        return kernels.to_host(out)

    infinity = _bits(np.inf, dtype)
    coarse = _shift(0, infinity)
    cumulative = np.cumsum(count(0, coarse)[1:])

    def place(share: float) -> int:
        """Lowest bits of the coarse bin where the sample's quantile lies."""
        wanted = min(max(round(share * sample_pairs), 1), sample_pairs)
        return int(np.searchsorted(cumulative, wanted)) << coarse

    share = rank / pairs
    first = place(share)
    value, _ = _refine(count, min(max(round(share * sample_pairs), 1), sample_pairs), first, first + (1 << coarse), dtype)
    if m == n:
        return Sample(value, value, value, 0.0, rank, True)
    within = xp.zeros(m, dtype="int64")
    kernels.count_within(x, x, norm=measure.norm, threshold=value, out=within)
    error = 2 * float(kernels.to_host(within).std()) / m**1.5 + 2 / m**2
    low, high = place(share - STANDARD_ERRORS * error), place(share + STANDARD_ERRORS * error) + (1 << coarse)
    ends = [measure.distance(_value(place(share + sign * 1.96 * error), dtype)) for sign in (-1, 1)]
    half = max((ends[1] - ends[0]) / 2, abs(measure.distance(value)) * 2.0**-9)  # no finer than a coarse bin
    return Sample(value, _value(low, dtype), _value(min(high, infinity), dtype), half, rank, False)


def _take(context: Context, indices: np.ndarray) -> Array:
    """Some of this rank's rows, by global number."""
    xp = context.kernels.xp
    parts = []
    for chunk in context.rows.chunks():
        here = indices[(indices >= chunk.start) & (indices < chunk.stop)] - chunk.start
        parts.append(chunk.x[xp.asarray(here)])
    return xp.concatenate(parts)


def pair_quantile(context: Context, sample: Sample, norm: str, points: Any) -> tuple[float, int]:
    """The exact reduced distance of the sample's rank, and the passes over all pairs that it took."""
    if sample.complete:
        return sample.value, 0
    kernels = context.kernels
    dtype = np.dtype(context.dtype)

    def count(low: int, shift: int) -> np.ndarray:
        out = kernels.xp.zeros(1 + BINS, dtype="int64")
        if points is not None:
            near_linear.pair_histogram(context, points, low, shift, out)
        else:
            for x, y, diagonal in _half_pairs(context):
                kernels.pair_histogram(x, y, norm=norm, diagonal=diagonal, low=low, shift=shift, out=out)
        return kernels.to_host(context.comm.all_reduce(out, "sum"))

    return _refine(count, sample.rank, _bits(sample.low, dtype), _bits(sample.high, dtype), dtype)


def _refine(count: Count, rank: int, first: int, stop: int, dtype: np.dtype) -> tuple[float, int]:
    """The value whose rank is given, from histograms within ever narrower brackets; and their number."""
    passes = 0
    while True:
        shift = _shift(first, stop)
        counts = count(first, shift)
        passes += 1
        below, inside = int(counts[0]), np.cumsum(counts[1:])
        if rank <= below:
            first, stop = 0, first
        elif rank > below + int(inside[-1]):
            first, stop = first + (BINS << shift), _bits(np.inf, dtype)
        else:
            found = int(np.searchsorted(inside, rank - below))
            first, stop = first + (found << shift), first + ((found + 1) << shift)
            if shift == 0:
                return _value(first, dtype), passes


def _shift(first: int, stop: int) -> int:
    """The narrowest bins, as a power of two of representable values, that cover the bracket."""
    return max(0, (-(-(stop - first) // BINS) - 1).bit_length())


def _bits(value: float, dtype: np.dtype) -> int:
    return int(np.array(value, dtype).view(f"int{8 * dtype.itemsize}"))


def _value(bits: int, dtype: np.dtype) -> float:
    return float(np.array(bits, f"int{8 * dtype.itemsize}").view(dtype))


def _half_pairs(context: Context) -> Iterator[tuple[Array, Array, bool]]:
    """Tiles that hold every pair i < j of this rank's share once: (rows, columns, columns are the rows)."""
    partition = context.partition
    count = partition.blocks
    for chunk, block in context.all_pairs():
        for j in range(block.start // partition.block_rows, -(-block.stop // partition.block_rows)):
            start, stop = partition.bounds(j)
            y = block.x[start - block.start : stop - block.start]
            if chunk.start <= start and stop <= chunk.stop:
                yield y, y, True
            # I = j - t (mod count) for t = 1 .. half; at t = count / 2 each pair of blocks would come twice.
            half = count // 2 if count % 2 or j >= count // 2 else count // 2 - 1
            for first, last in ((j - half, j), (j - half + count, count)):
                a = max(partition.bounds(max(first, 0))[0], chunk.start) if first < count else chunk.stop
                b = min(partition.bounds(last - 1)[1] if last else 0, chunk.stop)
                if a < b:
                    yield chunk.x[a - chunk.start : b - chunk.start], y, False
