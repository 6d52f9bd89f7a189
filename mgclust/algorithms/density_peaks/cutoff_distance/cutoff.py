"""The cut-off distance dc that a fraction of the pairs lie within: by which pass, and where many rows are equal."""

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

# Of a run with dc_fraction="auto": the first of `FRACTIONS`, where a choice has no say or no meaning; one of them.
FIRST, CHOOSE = "first", "choose"


class CutoffDistance(NamedTuple):
    """The cut-off distance: reduced, as it is (None where there is none), its error, and the fraction it is of."""

    s: float
    distance: Any
    error: float
    fraction: float | None  # None where dc was given


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
    """Find dc, and keep in `exactness` how.

    Parameters
    ----------
    context : Context
    measure : Metric
    passes : AllPairs
    dc_fraction : float, `FIRST` or `CHOOSE`
        Fraction of the pairs within dc. If so many pairs are equal that dc would be 0, dc is the smallest positive
        distance for a given fraction, and the quantile of the pairs that differ for another one.
    choice : dict or None
        As of `choose_fraction`, for `CHOOSE`.
    exactness : dict
        For `DensityPeaks.exactness_`.
    exact : bool
        Pass over all pairs.
    pairs : int or None
        Draw so many random pairs.
    seed : int

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
        if s <= 0 and not exact:  # so many of the sampled pairs are equal; perhaps not of all
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
        _refuse_too_small(context, measure, s)
    return CutoffDistance(s, measure.distance(s), error, fraction)


def _refuse_too_small(context: Context, measure: Metric, s: float) -> None:
    """Refuse rows that are all equal, and a smallest distance whose square the type does not hold."""
    least = float(np.finfo(context.dtype).tiny) ** 0.45
    if s == 0:
        raise InputError(
            "dc=0: all rows are equal, so no density can be told apart; give rows that are not duplicates of one."
        )
    if measure.distance(s) <= least:
        raise InputError(
            f"dc={measure.distance(s):g}: so many pairs coincide that dc is a small positive distance; it should be "
            f"> {least:.1g}, whose square dtype='{context.dtype}' holds. Drop duplicate rows or give dc."
        )
