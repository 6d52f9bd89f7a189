"""Warnings of a density peaks result: reasons to doubt its dc, its densities, its centres or their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mgclust.algorithms.common.preparation import warnings_of_distances
from mgclust.algorithms.density_peaks.cutoff_distance.fraction_choice import MIN_DROP
from mgclust.algorithms.density_peaks.decision_graph import FEW_ROWS, clear_drop, most_centers, number_of_different
from mgclust.algorithms.density_peaks.topography.adaptive_density import FEWEST_ROWS
from mgclust.algorithms.density_peaks.topography.significance import (
    CLEAR_HEIGHT,
    CLEAR_NEIGHBORS,
    FEW_IN_CLUSTER,
    Peaks,
)
from mgclust.base.errors import (
    AmbiguousCountWarning,
    DataWarning,
    DegenerateClustersWarning,
    Doubt,
    MergedClustersWarning,
    ParameterWarning,
    PrecisionWarning,
)
from mgclust.kernels.pairs.metrics import METRICS

if TYPE_CHECKING:
    from mgclust.algorithms.density_peaks.estimator import DensityPeaks

__all__ = ["CHOSEN_BY", "RowCounts", "noise_drop", "warnings_of"]

SECOND_OPINION = "density='knn', k='adaptive', significance=1.65"
# A warning follows if the bound on the relative error of rho exceeds this limit. With large data, errors are about 30
# times smaller than the bound. Beyond the limit, densities may be off by 1e-4 and lose the three digits that pictures
# and tables show.
DOUBTFUL_DENSITIES = 1e-3
# Separated clusters are clear if low density shows them CLEAR_RATIO times as clearly as another number, and the least
# prominent cluster has CLEAR_PROMINENCE. A larger prominence than SURE_PROMINENCE does not make a number more certain,
# because gaps in noise can have any prominence.
CLEAR_RATIO, CLEAR_PROMINENCE, SURE_PROMINENCE = 2.3, 4.5, 6.0
# A given number of clusters is doubted if the last centre stands out by a smaller factor. In 12 sets of points with
# known clusters, the factor is at least 2.1 at the true number, and at most 1.46 with five more clusters.
FORCED_DROP = 1.5
CHOSEN_BY = ("n_clusters", "rho_min", "delta_min", "rho_max", "delta_max", "indices")


class RowCounts(NamedTuple):
    """Facts about the fitted rows on which warnings depend."""

    different: int  # number of distinct rows
    lone: int  # number of rows whose rho is 0
    weighted: bool = False
    mixed: int = 0  # see `mgclust.algorithms.density_peaks.ranks.DensityPeaksOutput`
    lost: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, rho: np.ndarray, delta: np.ndarray) -> RowCounts:
        """Count rows of a saved result, which does not contain weights."""
        return cls(number_of_different(delta), int((rho == 0).sum()))


def warnings_of(
    model: DensityPeaks, drop: float, chosen_by: dict[str, Any], counts: RowCounts, peaks: Peaks | None
) -> list[Doubt]:
    """Return the warnings of a result.

    Parameters
    ----------
    model : DensityPeaks
        The estimator; the attributes that describe its centres are already set.
    drop : float
        Drop of ``rho * delta`` after the centres; see `mgclust.algorithms.density_peaks.decision_graph.gamma_drop`.
    chosen_by : dict of str to object
        Parameters that chose the centres. Names that are not in `CHOSEN_BY`, and values of None, are ignored.
    counts : RowCounts
        Facts about the rows.
    peaks : Peaks or None
        Result of the test of significance; None if there was no test.

    Returns
    -------
    list of Doubt
    """
    given = {name: value for name in CHOSEN_BY if (value := chosen_by.get(name)) is not None}
    doubts = [*_of_dc(model, counts), *_of_densities(model), *_of_peaks(model.n_clusters_, peaks)]
    doubts += _of_separation(model, counts)
    if given:
        return doubts + _of_thresholds(model, drop, given, counts) + _of_given_count(model, drop, given)
    return doubts + (_of_count(model, drop, counts) if peaks is None else [])


def _of_dc(model: DensityPeaks, counts: RowCounts) -> list[Doubt]:
    doubts = []
    if "equal_pairs" in model.exactness_:
        which = "the smallest positive distance"
        if "different_pairs" in model.exactness_:
            which = f"the quantile dc_fraction={model.dc_fraction_:g} of pairs of distinct rows"
        text = (
            f"dc={model.dc_:g} is {which}, because only {counts.different:,} of {len(model.rho_):,} rows are distinct: "
            "drop duplicates and give their counts as sample_weight, or give dc."
        )
        doubts.append(Doubt(text, DataWarning))
    if counts.different < model.n_clusters_:
        text = f"n_clusters={model.n_clusters_} is more than the number of distinct rows, {counts.different}: equal "
        doubts.append(Doubt(f"{text}rows have different labels; request fewer clusters.", DegenerateClustersWarning))
    if model.dc_ is not None and 2 * counts.lone > len(model.rho_):
        text = f"rho is 0 for {counts.lone:,} of {len(model.rho_):,} rows: no other row is near enough at "
        doubts.append(Doubt(f"{text}dc={model.dc_:g}; give a larger dc or dc_fraction.", ParameterWarning))
    error = model.exactness_.get("rho_relative_error", 0.0)
    if error > DOUBTFUL_DENSITIES:
        text = f"rho may be off by a relative error of {error:.2g}, because dc={model.dc_:.3g} is small compared with "
        text += "the coordinates: use dtype='float64' if the order of nearly equal densities matters."
        doubts.append(Doubt(text, PrecisionWarning))
    doubts += warnings_of_distances(model.exactness_.get("distance_relative_error", 0.0), model.metric, model.dtype)
    if model.dc_error_:
        nearer = ", or a larger sample_size for a smaller error" if model.sample_size else ""
        text = f"dc={model.dc_:g} was sampled: the exact value lies within {model.dc_error_:.2g} of it, with 95% "
        text += f"confidence; use dc_method='exact' for the exact value{nearer}."
        doubts.append(Doubt(text, PrecisionWarning))
    return doubts


def _of_separation(model: DensityPeaks, counts: RowCounts) -> list[Doubt]:
    """Return doubts about clusters that cut across separated clusters, and groups that lie far from their cluster."""
    doubts, (groups, rows) = [], counts.lost
    if counts.mixed:
        text = f"the clusters for n_clusters={model.n_clusters_} cut across {counts.mixed} clusters that are separated "
        doubts.append(Doubt(f"{text}by low density; compare with assignment='separated'.", MergedClustersWarning))
    if groups:
        some = "group" if groups == 1 else "groups"
        text = f"{groups} {some} ({rows:,} rows in all) lie far from the rest of their clusters and may be small "
        doubts.append(Doubt(f"{text}clusters: check delta, or give n_clusters.", MergedClustersWarning))
    return doubts


def _of_densities(model: DensityPeaks) -> list[Doubt]:
    n = len(model.rho_)
    known = model.exactness_.get("intrinsic_dim_rows", n)
    if known >= n / 2:
        return []
    found = f"intrinsic_dim={model.intrinsic_dim_:.3g} comes from only {known:,} of {n:,} rows, because the others have"
    if not known:
        found = f"intrinsic_dim={model.intrinsic_dim_:.3g} is the number of features, because all {n:,} rows have"
    text = f"{found} an equal row: drop duplicates, or leave significance out and give an integer k."
    return [Doubt(text, DataWarning)]


def _of_peaks(n_clusters: int, peaks: Peaks | None) -> list[Doubt]:
    """Return doubts about low peaks, which noise also has, and about clusters that are too small for the test."""
    if peaks is None:
        return []
    doubts, weak = [], int((peaks.heights < CLEAR_HEIGHT).sum())
    if weak:
        text = f"{weak} of {n_clusters} peaks exceed a saddle by less than {CLEAR_HEIGHT:g} standard "
        text += f"errors, as peaks of noise do: check significance_, or merge them by significance={CLEAR_HEIGHT:g}."
        doubts.append(Doubt(text, AmbiguousCountWarning))
    if peaks.tiny:
        text = f"{peaks.tiny} of {n_clusters} clusters have fewer than {FEW_IN_CLUSTER} rows, too few for a test of "
        doubts.append(Doubt(f"{text}their significance: treat them as outliers.", DegenerateClustersWarning))
    if peaks.joined:
        text = (
            f"the test merged small clusters: {peaks.joined} of {n_clusters} clusters hold several of the "
            f"{peaks.standing} centres that stand out with k={CLEAR_NEIGHBORS}; compare with a fit without "
            "significance."
        )
        doubts.append(Doubt(text, MergedClustersWarning))
    return doubts


def _of_thresholds(model: DensityPeaks, drop: float, given: dict[str, Any], counts: RowCounts) -> list[Doubt]:
    """Return doubts about limits that turn rows within clusters into centres."""
    if "n_clusters" in given or "indices" in given:
        return []
    n, k, most = len(model.rho_), model.n_clusters_, most_centers(counts.different)
    by = ", ".join(f"{name}={value:g}" for name, value in given.items())
    if "delta_min" not in given and (drop < 1 or k > most):
        text = f"{k:,} of {n:,} rows are centres with only {by}, because rows next to a centre are as dense: also "
        return [Doubt(f"{text}give delta_min, or n_clusters.", ParameterWarning)]
    if k > most:
        text = f"{k:,} of {n:,} rows are centres by {by}, and all after the first {most} lie within clusters: raise "
        return [Doubt(f"{text}delta_min, or give n_clusters.", ParameterWarning)]
    return []


def _of_given_count(model: DensityPeaks, drop: float, given: dict[str, Any]) -> list[Doubt]:
    """Return a doubt about a given number of clusters if the next row would be nearly as good a centre."""
    if given.keys() != {"n_clusters"} or model.n_clusters_ < 2:
        return []
    what, factor, least = "rho * delta falls", drop, FORCED_DROP
    if model._separation is not None:
        prominence, following = least_and_next(model)
        what, factor = "the prominence falls", prominence / following
    elif _of_squares(model):
        least = FORCED_DROP**2
    if factor >= least:
        return []
    text = f"the centres of n_clusters={model.n_clusters_:,} do not stand out: {what} by a factor of only {factor:.3g} "
    return [Doubt(f"{text}after them; see the decision graph, or leave n_clusters out.", AmbiguousCountWarning)]


def least_and_next(model: DensityPeaks) -> tuple[float, float]:
    """Return the least prominence Z of a separated cluster, and Z of the next peak (at least 1, as in noise)."""
    apart, k = model._separation, model.n_clusters_
    largest = np.zeros(0) if apart is None else np.sort(apart.prominence)[::-1]
    return float(largest[:k].min(initial=np.inf)) if len(largest) else 0.0, float(largest[k : k + 1].max(initial=1.0))


def noise_drop(model: DensityPeaks, counts: RowCounts) -> float:
    """Return the largest factor by which ``rho * delta`` falls in noise after the same number of centres."""
    features = 1 if model.exactness_.get("on_a_line") else model.n_features_in_
    return clear_drop(model.n_clusters_, counts.different, n_features=features, squares=_of_squares(model))


def _of_squares(model: DensityPeaks) -> bool:
    return model.metric in METRICS and METRICS[model.metric].is_square


def _of_count(model: DensityPeaks, drop: float, counts: RowCounts) -> list[Doubt]:
    """Return doubts about a number of clusters that neither the decision graph nor low density shows clearly."""
    n, (stable, other) = counts.different, _other_number(model)
    found, least = (model.dc_choice_ or {}).get("separated"), noise_drop(model, counts)
    prominence, following = least_and_next(model)
    ratio = min(prominence, SURE_PROMINENCE) / following
    if found and ratio >= CLEAR_RATIO and prominence >= CLEAR_PROMINENCE:
        why = ""
    elif drop < least:
        why = f"rho * delta falls by {drop:.3g} after them (noise: up to {least:.3g})"
    elif stable < (MIN_DROP**2 if _of_squares(model) else MIN_DROP):
        why = "only this dc_fraction shows their number"
    else:
        why = ""
    if why:
        # The test takes no weights, and the errors of densities are unreliable if most rows have a duplicate.
        testable = not counts.weighted and n >= max(FEWEST_ROWS, len(model.rho_) / 2)
        test = f", or {SECOND_OPINION}" if testable else ""
        if (model.dc_choice_ or {"rows": n})["rows"] < n:
            other, test = f"another random_state (a sample decided) or {other}", ""
        if found:
            why = f"low density shows K={model.n_clusters_} only {ratio:.3g} times as clearly as others"
        text = f"the centres do not stand out: {why}; see the decision graph or try {other}{test}."
        return [Doubt(text, AmbiguousCountWarning)]
    if n < FEW_ROWS and model.n_clusters_ > 1:
        rows = f"n_samples={n} is" if n == len(model.rho_) else f"{n} distinct rows of {len(model.rho_):,} are"
        text = f"{rows} too few to tell clusters from chance: below {FEW_ROWS} rows, centres in noise also stand out; "
        return [Doubt(f"{text}check the decision graph, or give more rows.", AmbiguousCountWarning)]
    return []


def _other_number(model: DensityPeaks) -> tuple[float, str]:
    """Return the drop at neighbouring fractions (infinite if no fraction was chosen), and another choice to try."""
    numbers = [] if model.dc_choice_ is None else model.dc_choice_["numbers"]
    drops = {each["n_clusters"]: each["drop"] for each in numbers}
    others = [each for each in numbers if each["n_clusters"] != model.n_clusters_]
    stable = drops.get(model.n_clusters_, 1.0) if drops else float("inf")
    if model.dc_fraction_ is None:  # dc_fraction has no effect, because dc is given, or the density needs no dc
        return stable, "another k" if model.dc_ is None or model.density == "knn" else "another dc"
    if not others:
        return stable, "another dc_fraction"
    return stable, f"dc_fraction={others[0]['dc_fraction']:g} (K={others[0]['n_clusters']})"
