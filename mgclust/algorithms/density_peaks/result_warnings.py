"""Warnings of a result of density peaks: where its densities, its dc or its centres should not be taken unseen."""

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
from mgclust.kernels.pairs.metrics import METRICS

if TYPE_CHECKING:
    from mgclust.algorithms.density_peaks.estimator import DensityPeaks

__all__ = ["CHOSEN_BY", "RowCounts", "warnings_of"]

SECOND_OPINION = "density='knn', k='adaptive', significance=1.65"
# A bound, which densities of many rows stay some 30 times below: beyond it they may be off by 1e-4 and lose the three
# digits that pictures and tables show.
DOUBTFUL_DENSITIES = 1e-3
CHOSEN_BY = ("n_clusters", "rho_min", "delta_min", "rho_max", "delta_max", "indices")


class RowCounts(NamedTuple):
    """Facts on the fitted rows that warnings depend on."""

    different: int  # rows that differ from all before them
    lone: int  # whose rho is 0
    weighted: bool = False
    mixed: int = 0  # see `mgclust.algorithms.density_peaks.ranks.DensityPeaksOutput`
    lost: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, rho: np.ndarray, delta: np.ndarray) -> RowCounts:
        """Count the rows of a saved result, which does not hold weights."""
        return cls(number_of_different(delta), int((rho == 0).sum()))


def warnings_of(
    model: DensityPeaks, drop: float, chosen_by: dict[str, Any], counts: RowCounts, peaks: Peaks | None
) -> list[str]:
    """Sentences that a result warns by.

    Parameters
    ----------
    model : DensityPeaks
        With the attributes of its centres.
    drop : float
        See `mgclust.algorithms.density_peaks.decision_graph.gamma_drop`.
    chosen_by : dict of str to object
        Those of `CHOSEN_BY` that the centres were chosen by; of others, and of what is None, nothing is said.
    counts : RowCounts
    peaks : Peaks or None
        Of a test by `significance`.

    Returns
    -------
    list of str
    """
    given = {name: value for name in CHOSEN_BY if (value := chosen_by.get(name)) is not None}
    sentences = [*_of_dc(model, counts), *_of_densities(model), *_of_peaks(model.n_clusters_, peaks)]
    sentences += _of_separation(model, counts)
    if given:
        return sentences + _of_thresholds(model, drop, given, counts)
    return sentences + (_of_count(model, drop, counts) if peaks is None else [])


def _of_dc(model: DensityPeaks, counts: RowCounts) -> list[str]:
    sentences = []
    if "equal_pairs" in model.exactness_:
        which = "the smallest positive distance"
        if "different_pairs" in model.exactness_:
            pairs = model.exactness_["different_pairs"]
            which = f"the distance of dc_fraction={model.dc_fraction_:g} of the {pairs:,} pairs of different rows"
        sentences.append(
            f"dc={model.dc_:g} is {which}: {model.exactness_['equal_pairs']:,} pairs of rows "
            f"are equal, more than that fraction of all; {counts.different:,} of "
            f"{len(model.rho_):,} rows are different. Drop equal rows and give their number as sample_weight, or "
            "give dc."
        )
    if counts.different < model.n_clusters_:
        sentences.append(
            f"n_clusters={model.n_clusters_} is more than the number of different rows, {counts.different}: "
            "equal rows have different labels; ask for fewer clusters."
        )
    if model.dc_ is not None and 2 * counts.lone > len(model.rho_):
        sentences.append(
            f"rho is 0 for {counts.lone:,} of {len(model.rho_):,} rows: no other row is near enough at "
            f"dc={model.dc_:g}, and their clusters mean little. Give a larger dc or dc_fraction."
        )
    error = model.exactness_.get("rho_relative_error", 0.0)
    if error > DOUBTFUL_DENSITIES:
        sentences.append(
            f"rho may be off by a relative {error:.2g}: dc={model.dc_:.3g} is so small beside the rows' coordinates "
            "that rounding these shows. Use dtype='float64' where the order of nearly equal densities counts."
        )
    sentences += warnings_of_distances(model.exactness_.get("distance_relative_error", 0.0), model.metric, model.dtype)
    if model.dc_error_:
        sentences.append(
            f"dc={model.dc_:g} was sampled: the exact value lies within {model.dc_error_:.2g} of it (95%); "
            f"dc_method='exact' finds it{', a larger sample_size comes nearer' if model.sample_size else ''}."
        )
    return sentences


def _of_separation(model: DensityPeaks, counts: RowCounts) -> list[str]:
    """A given number whose clusters cut across separated ones, and groups that lie apart within a cluster."""
    sentences, (groups, rows) = [], counts.lost
    if counts.mixed:
        sentences.append(
            f"n_clusters={model.n_clusters_} by denser rows cuts across {counts.mixed} clusters that sparser rows "
            "separate; compare with assignment='separated'."
        )
    if groups:
        sentences.append(
            f"{rows:,} rows in {groups} {'group' if groups == 1 else 'groups'} lie far from the rest of their clusters "
            "and may be small clusters: look at the decision graph, or give n_clusters."
        )
    return sentences


def _of_densities(model: DensityPeaks) -> list[str]:
    n = len(model.rho_)
    known = model.exactness_.get("intrinsic_dim_rows", n)
    if known >= n / 2:
        return []
    found = f"intrinsic_dim={model.intrinsic_dim_:.3g} was found from {known:,} of {n:,} rows: the others have"
    if not known:
        found = f"intrinsic_dim={model.intrinsic_dim_:.3g} is the number of features: none of the {n:,} rows tells"
        found += " another, since all have"
    return [
        f"{found} an equal row, so errors of densities mean little. Drop equal rows, or leave significance out and "
        "give an integer k."
    ]


def _of_peaks(n_clusters: int, peaks: Peaks | None) -> list[str]:
    """Significant ones that noise has as well, and clusters that are merged though they stand apart."""
    if peaks is None:
        return []
    sentences, weak = [], int((peaks.heights < CLEAR_HEIGHT).sum())
    if weak:
        sentences.append(
            f"{weak} of {n_clusters} peaks exceed their highest saddle by less than {CLEAR_HEIGHT:g} errors, "
            f"as peaks of noise do: look at significance_; significance={CLEAR_HEIGHT:g} merges such clusters."
        )
    if peaks.tiny:
        sentences.append(
            f"{peaks.tiny} of {n_clusters} clusters have fewer than {FEW_IN_CLUSTER} rows: the neighbourhoods of "
            "their peaks are rows of other clusters, so their significance means little. Take them for outliers."
        )
    if peaks.joined:
        sentences.append(
            f"{peaks.joined} of {n_clusters} clusters hold several of the {peaks.standing} centres that "
            f"stand out by the {CLEAR_NEIGHBORS} nearest rows alone: the test merges small clusters, since "
            "neighbourhoods of up to 100 rows reach beyond them. Compare the clusters without significance, by "
            f"k={CLEAR_NEIGHBORS} or at the defaults."
        )
    return sentences


def _of_thresholds(model: DensityPeaks, drop: float, given: dict[str, Any], counts: RowCounts) -> list[str]:
    """Limits that make centres of rows within clusters."""
    if "n_clusters" in given or "indices" in given:
        return []
    n, k, most = len(model.rho_), model.n_clusters_, most_centers(counts.different)
    by = ", ".join(f"{name}={value:g}" for name, value in given.items())
    if "delta_min" not in given and (drop < 1 or k > most):
        return [
            f"{k:,} of {n:,} rows are centres by {by} alone: rows next to a centre are as dense. Give delta_min, too, "
            "which centres have to exceed, or n_clusters."
        ]
    if k > most:
        return [
            f"{k:,} of {n:,} rows are centres by {by}: behind the first {most} come rows within clusters. Raise "
            "delta_min, or give n_clusters."
        ]
    return []


def _of_count(model: DensityPeaks, drop: float, counts: RowCounts) -> list[str]:
    """A number of clusters that the decision graph does not show clearly."""
    n = counts.different
    stable, others = _other_numbers(model)
    squares = model.metric in METRICS and METRICS[model.metric].is_square
    features = 1 if model.exactness_.get("on_a_line") else model.n_features_in_
    least = clear_drop(model.n_clusters_, n, n_features=features, squares=squares)
    if drop < least:
        why = f"the last one's rho * delta is only {drop:.3g} times the next row's, and noise has up to {least:.3g}"
    elif stable < (MIN_DROP**2 if squares else MIN_DROP):
        why = "it is at this dc_fraction alone that their number stands out"
    elif n < FEW_ROWS and model.n_clusters_ > 1:
        rows = f"n_samples={n} is" if n == len(model.rho_) else f"{n} different rows of {len(model.rho_):,} are"
        return [
            f"{rows} too few to tell clusters from chance: below {FEW_ROWS} rows, centres of noise stand out "
            "as well. Look at the decision graph; give n_clusters, or more rows."
        ]
    else:
        return []
    # The test takes no weights, and errors of densities mean little where most rows have an equal one.
    testable = not counts.weighted and n >= max(FEWEST_ROWS, len(model.rho_) / 2)
    test = f", or {SECOND_OPINION}" if testable else ""
    found = (model.dc_choice_ or {}).get("separated")
    if found:
        return [
            f"These {model.n_clusters_} clusters are those that sparser rows separate, {found['ratio']:.3g} times as "
            f"clearly as another number; by rho * delta the centres do not stand out: {why}. Look at the clusters and "
            "the decision graph; where they do not fit, give n_clusters, or thresholds (for clusters by denser rows, "
            f"others of that number, too), or try {others}{test}."
        ]
    return [
        f"the centres do not stand out: {why}. Look at the decision graph; give n_clusters, or thresholds, or try "
        f"{others}{test}."
    ]


def _other_numbers(model: DensityPeaks) -> tuple[float, str]:
    """Drop behind the clusters at neighbouring fractions, if the fraction was chosen, and which others to try."""
    numbers = [] if model.dc_choice_ is None else model.dc_choice_["numbers"]
    drops = {each["n_clusters"]: each["drop"] for each in numbers}
    others = [each for each in numbers if each["n_clusters"] != model.n_clusters_][:2]
    named = [f"{each['n_clusters']} clusters with dc_fraction={each['dc_fraction']:g}" for each in others]
    stable = drops.get(model.n_clusters_, 1.0) if drops else float("inf")
    if model.dc_fraction_ is None:  # of no effect on dc, or on densities that need none
        return stable, "another k" if model.dc_ is None or model.density == "knn" else "another dc"
    return stable, " or ".join(named) if named else "another dc_fraction"
