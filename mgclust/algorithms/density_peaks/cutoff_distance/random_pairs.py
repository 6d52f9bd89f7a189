"""The approximate quantile of all pairwise distances from random pairs, with its confidence interval.

Pairs of two different rows are drawn independently of each other, with replacement. The number of the m pairs whose
distance is at most the exact quantile has a binomial distribution: m draws, each with the fraction of the quantile as
its probability. So the order statistics at the 2.5% and 97.5% points of this distribution enclose the exact distance in
at least 95 of 100 samples, whatever the distances are (Hahn and Meeker, Statistical Intervals, 1991, chapter 5).

Pairs among sampled rows are not independent. Neither are x entries of each row of the distance matrix, which CUDA-DP
draws (Ge et al. 2017). No such interval exists for these two kinds of samples.

Every rank draws the same pairs and gets their rows in batches. This sends 2 m d numbers over the network, and each rank
holds m distances. The cost does not depend on n.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.density_peaks.cutoff_distance.pair_quantile import pair_rank
from mgclust.base.errors import InputError
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.metrics import Metric

__all__ = ["places", "random_pair_quantile", "random_pairs_bytes"]

Array = Any
CONFIDENCE = 0.95
PAIRS_AT_ONCE, NUMBERS_AT_ONCE = 1 << 18, 1 << 22  # largest number of pairs in a batch, and of numbers in their rows


def places(pairs: int, share: float) -> tuple[int, int, int]:
    """Return the places of the quantile and its confidence limits among sorted distances, counted from 1.

    Parameters
    ----------
    pairs : int
        Number of distances.
    share : float
        Fraction of all pairs that lies within the quantile, above 0.

    Returns
    -------
    low : int
        Place of the lower end; 0 if it is below all distances.
    at : int
        Place of the quantile.
    high : int
        Place of the upper end; pairs + 1 if it is above all distances.
    """
    from scipy.stats import binom  # takes half a second to import, and few runs need it

    tail = (1 - CONFIDENCE) / 2
    low, high = int(binom.ppf(tail, pairs, share)), int(binom.ppf(1 - tail, pairs, share)) + 1
    return low, min(max(round(share * pairs), 1), pairs), high


def random_pair_quantile(
    context: Context, measure: Metric, fraction: float, pairs: int, seed: int
) -> tuple[float, float]:
    """Find the reduced distance within which a fraction of the pairs lies, and its error, from random pairs.

    Parameters
    ----------
    context : Context
        Its rows are prepared for `measure`.
    measure : Metric
    fraction : float
        Fraction of all pairs.
    pairs : int
        Number of pairs to draw.
    seed : int
        Seed of the draw.

    Returns
    -------
    s : float
        The sampled reduced distance.
    error : float
        Distance from the sampled value to the farther end of its 95% confidence interval, in units of the metric.

    Raises
    ------
    InputError
        If there are so few pairs that the confidence interval has no upper end.
    """
    n = context.dataset_shape[0]
    low, at, high = places(pairs, pair_rank(n, fraction) / (n * (n - 1) // 2))
    if high > pairs:
        raise InputError(
            f"sample_size={pairs} is too small for dc_fraction={fraction:g}: the 95% confidence interval of dc has no "
            "upper end; give more pairs, or dc_method='exact'."
        )
    s = _drawn(context, measure, pairs, seed)
    s.partition(sorted({max(low, 1) - 1, at - 1, high - 1}))
    value, top = float(s[at - 1]), float(s[high - 1])
    bottom = float(s[low - 1]) if low else 0.0
    middle = measure.distance(value)
    return value, max(measure.distance(top) - middle, middle - measure.distance(bottom))


def random_pairs_bytes(pairs: int, d: int, itemsize: int) -> int:
    """Return the bytes of a rank for random pairs: distances, and rows and differences of the pairs read at once."""
    return 2 * itemsize * pairs + 7 * 8 * d * min(pairs, _at_once(d))


def _at_once(d: int) -> int:
    return max(1, min(PAIRS_AT_ONCE, NUMBERS_AT_ONCE // d))


def _drawn(context: Context, measure: Metric, pairs: int, seed: int) -> np.ndarray:
    """Return the reduced distances of random pairs, in the rows' type, on the host of every rank."""
    (n, d), xp = context.dataset_shape, context.kernels.xp
    rng, found = np.random.default_rng(seed), np.empty(pairs, context.dtype)
    everything = context.gather_rows(np.arange(n)) if n <= 2 * min(pairs, _at_once(d)) else None
    for start in range(0, pairs, _at_once(d)):
        count = min(_at_once(d), pairs - start)
        first, second = rng.integers(0, n, count), rng.integers(0, n - 1, count)
        second += second >= first  # any row other than the first
        where, x = np.concatenate([first, second]), everything
        if x is None:
            rows, where = np.unique(where, return_inverse=True)
            x = context.gather_rows(rows)
        where = xp.asarray(where)
        apart = x[where[:count]].astype("float64") - x[where[count:]]
        s = (apart**2 if measure.norm == "l2" else abs(apart)).sum(axis=1)
        found[start : start + count] = context.kernels.memory.to_host(s.astype(context.dtype))
        context.progress((start + count) / pairs)
    return found
