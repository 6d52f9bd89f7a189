"""The approximate quantile of all pairwise distances from random pairs, and how far off it may be.

Pairs of two different rows are drawn independently of each other, with replacement. Of m of them, the number whose
distance is at most the exact quantile is binomial, with m draws and the share of the quantile. So the order statistics
whose places are the 2.5% and 97.5% points of that binomial enclose the exact distance in 95 of 100 samples at least,
whatever the distances are (Hahn and Meeker, Statistical Intervals, 1991, chapter 5). Pairs among sampled rows, and x
entries of each row of the matrix as CUDA-DP draws them (Ge et al. 2017), are not independent, and have no such
interval.

Every rank draws the same pairs and gets their rows, some at a time: 2 m d numbers over the network, and m distances on
each rank. Cost is that of the sample whatever n is.
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
PAIRS_AT_ONCE, NUMBERS_AT_ONCE = 1 << 18, 1 << 22  # pairs, and numbers of theirs, that are drawn together


def places(pairs: int, share: float) -> tuple[int, int, int]:
    """Places of the quantile and of the ends of its confidence interval among so many sorted distances.

    Parameters
    ----------
    pairs : int
        Number of distances.
    share : float
        Of all pairs that lie within the quantile, above 0.

    Returns
    -------
    tuple of int
        From 1: of the lower end (0: below all of them), the quantile and the upper end (pairs + 1: above all).
    """
    from scipy.stats import binom  # takes half a second to import, and few runs need it

    tail = (1 - CONFIDENCE) / 2
    low, high = int(binom.ppf(tail, pairs, share)), int(binom.ppf(1 - tail, pairs, share)) + 1
    return low, min(max(round(share * pairs), 1), pairs), high


def random_pair_quantile(
    context: Context, measure: Metric, fraction: float, pairs: int, seed: int
) -> tuple[float, float]:
    """Reduced distance that a fraction of the pairs lie within, and the error of the distance; from random pairs.

    Parameters
    ----------
    context : Context
        Its rows are prepared for `measure`.
    measure : Metric
    fraction : float
    pairs : int
        How many to draw.
    seed : int

    Returns
    -------
    s : float
        The sampled reduced distance.
    error : float
        Its distance is this far from the farther end of its 95% confidence interval.
    """
    n = context.dataset_shape[0]
    low, at, high = places(pairs, pair_rank(n, fraction) / (n * (n - 1) // 2))
    if high > pairs:
        raise InputError(
            f"sample_size={pairs} random pairs do not bound from above the distance that a share dc_fraction="
            f"{fraction:g} of all pairs lie within; give more, or dc_method='exact'."
        )
    s = _drawn(context, measure, pairs, seed)
    s.partition(sorted({max(low, 1) - 1, at - 1, high - 1}))
    value, top = float(s[at - 1]), float(s[high - 1])
    bottom = float(s[low - 1]) if low else 0.0
    middle = measure.distance(value)
    return value, max(measure.distance(top) - middle, middle - measure.distance(bottom))


def random_pairs_bytes(pairs: int, d: int, itemsize: int) -> int:
    """Memory of a rank for the pairs: their distances, and the rows and differences of some."""
    return 2 * itemsize * pairs + 7 * 8 * d * min(pairs, _at_once(d))


def _at_once(d: int) -> int:
    return max(1, min(PAIRS_AT_ONCE, NUMBERS_AT_ONCE // d))


def _drawn(context: Context, measure: Metric, pairs: int, seed: int) -> np.ndarray:
    """Reduced distances of random pairs, in the rows' type, on the host of every rank."""
    (n, d), xp = context.dataset_shape, context.kernels.xp
    rng, found = np.random.default_rng(seed), np.empty(pairs, context.dtype)
    everything = context.gather_rows(np.arange(n)) if n <= 2 * min(pairs, _at_once(d)) else None
    for start in range(0, pairs, _at_once(d)):
        count = min(_at_once(d), pairs - start)
        first, second = rng.integers(0, n, count), rng.integers(0, n - 1, count)
        second += second >= first  # any row but the first
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
