"""The cut-off distance dc within which a given fraction of the pairs lies, with the rules for many equal rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.density_peaks.cutoff_distance.fraction_choice import FRACTIONS
from mgclust.algorithms.density_peaks.cutoff_distance.pair_quantile import different_rank
from mgclust.algorithms.density_peaks.cutoff_distance.random_pairs import random_pair_quantile
from mgclust.algorithms.density_peaks.passes.all_pairs import AllPairs
from mgclust.base.errors import InputError
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.metrics import Metric

__all__ = ["CHOOSE", "FIRST", "CutoffDistance", "find_cutoff"]

# dc_fraction="auto" becomes FIRST (the first of `FRACTIONS`) if other parameters exclude a choice, else CHOOSE.
FIRST, CHOOSE = "first", "choose"


class CutoffDistance(NamedTuple):
    """The cut-off distance dc."""

    s: float  # reduced distance
    distance: Any  # dc in the units of the metric; None if the density needs no dc
    error: float  # see `DensityPeaks.dc_error_`
    fraction: float | None  # fraction of the pairs within dc; None if dc was given


def find_cutoff(
    context: Context,
    measure: Metric,
    passes: AllPairs,
    dc_fraction: float | str,
    choice: dict[str, Any] | None,
    exactness: dict[str, Any],
    *,
    exact: bool,
    pairs: int | None,
    seed: int,
) -> CutoffDistance:
    """Find dc, and record in `exactness` how it was found.

    Parameters
    ----------
    context : Context
    measure : Metric
    passes : AllPairs
        Passes over the pairs of rows.
    dc_fraction : float, `FIRST` or `CHOOSE`
        Fraction of the pairs within dc. If so many pairs have equal rows that dc would be 0, a given fraction makes dc
        the smallest positive distance, and `FIRST` and `CHOOSE` make it the quantile of the pairs whose rows differ.
    choice : dict or None
        With `CHOOSE`: the dict that `choose_fraction` returned.
    exactness : dict
        Receives facts for `DensityPeaks.exactness_`.
    exact : bool
        Whether to pass over all pairs.
    pairs : int or None
        Number of random pairs to draw; None: draw none.
    seed : int
        Seed of the samples.

    Returns
    -------
    CutoffDistance
    """
    if isinstance(dc_fraction, str):
        fraction = FRACTIONS[0] if choice is None else float(choice["dc_fraction"])
    else:
        fraction = dc_fraction
    s, error = 0.0, 0.0
    if choice is None or not choice["different"]:
        if pairs is None:
            s, error = passes.cutoff(fraction, exact=exact, seed=seed)
        else:
            s, error = random_pair_quantile(context, measure, fraction, pairs, seed)
            exactness["dc_pairs"] = pairs
        if s <= 0 and not exact:  # too many sampled pairs have equal rows, but perhaps not too many of all pairs
            s, error = passes.cutoff(fraction, exact=True, seed=seed)
            exactness.pop("dc_pairs", None)
    if s <= 0:
        s, equal = passes.smallest_positive(seed)
        exactness["equal_pairs"], error = passes.in_rows(equal), 0.0
        if isinstance(dc_fraction, str) and s > 0:
            every = passes.pairs
            s, _ = passes.cutoff(different_rank(every, fraction, equal) / every, exact=True, seed=seed)
            exactness["equal_pairs"], exactness["different_pairs"] = (
                passes.in_rows(equal),
                passes.in_rows(every - equal),
            )
        _reject_too_small(context, measure, s)
    return CutoffDistance(s, measure.distance(s), error, fraction)


def _reject_too_small(context: Context, measure: Metric, s: float) -> None:
    """Reject rows that are all equal, and a dc whose square underflows."""
    least = float(np.finfo(context.dtype).tiny) ** 0.45
    if s == 0:
        raise InputError("dc=0: all rows are equal, so densities are the same; give rows that are not all duplicates.")
    if measure.distance(s) <= least:
        raise InputError(
            f"dc={measure.distance(s):g} is the smallest positive distance, because many rows are equal, but should "
            f"be > {least:.1g}, because dtype='{context.dtype}' must hold its square; drop duplicate rows, or give dc."
        )
