"""Stability of clusters: agreement of the labels with those of fits of half the rows.

Each draw is half of the rows, without replacement. They are clustered with the same parameters, dc and the number of
clusters found again unless they are given, and the adjusted Rand index compares their labels with those that the same
rows have by the whole fit: 1 where the halves are clustered alike, near 0 where chance decides. (Ben-Hur, Elisseeff
and Guyon, A stability based method for discovering structure in clustered data, Pacific Symposium on Biocomputing
7:6-17, 2002, compare such draws with each other.)

Cost. Half the rows are a quarter of the pairs: 20 draws take about five times as long as the fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mgclust.algorithms.base import Inputs, Progress
from mgclust.algorithms.common.weights import on_host
from mgclust.base.errors import Doubt, InputError, WeakStructureWarning
from mgclust.data.selected_rows import SelectedRows
from mgclust.results.label_agreement import adjusted_rand
from mgclust.results.result import Result

if TYPE_CHECKING:
    from mgclust.algorithms.density_peaks.estimator import DensityPeaks

__all__ = ["UNSTABLE", "half_of_rows", "stability_of", "with_stability"]

# Mean of the adjusted Rand index below which a fit is warned of: uniform and normal noise of two features and more has
# at most 0.53 (benchmarks/results/density_peaks/significance.json).
UNSTABLE = 0.6


def half_of_rows(n: int, seed: int, draw: int) -> np.ndarray:
    """Row numbers of a draw, ascending; the same whatever else is drawn."""
    return np.sort(np.random.default_rng((seed, draw)).choice(n, n // 2, replace=False))


def stability_of(
    labels: np.ndarray, fit_some: Callable[[np.ndarray, int], np.ndarray], draws: int, seed: int
) -> dict[str, Any]:
    """Compare labels with those of halves.

    Parameters
    ----------
    labels : ndarray of shape (n,), int
        Of the whole fit.
    fit_some : callable
        Labels of these rows, given their numbers and that of the draw.
    draws, seed : int

    Returns
    -------
    dict
        "ari" and "n_clusters" of each draw; "mean" and "std" of the former, the latter with the divisor draws.
    """
    indices, numbers = [], []
    for draw in range(draws):
        rows = half_of_rows(len(labels), seed, draw)
        found = fit_some(rows, draw)
        indices.append(adjusted_rand(labels[rows], found))
        numbers.append(int(found.max()) + 1)
    return {"mean": float(np.mean(indices)), "std": float(np.std(indices)), "ari": indices, "n_clusters": numbers}


def with_stability(model: DensityPeaks, inputs: Inputs, result: Result, on_progress: Progress | None) -> Result:
    """The result of a fit with the agreement of halves, which is kept as `stability_`, too.

    Parameters
    ----------
    model : DensityPeaks
        Fitted.
    inputs : Inputs
        Those of the fit.
    result : Result
        That of the fit.
    on_progress : callable or None
        As of the fit.
    """
    began, draws, seed = time.perf_counter(), model.stability, result.parameters["random_state"]
    pairwise, merged = model.metric == "precomputed", 0

    def fit_some(rows: np.ndarray, draw: int) -> np.ndarray:
        nonlocal merged
        half = type(model)(**{**model.get_params(), "stability": 0, "verbose": False, "random_state": seed})
        weights = None if inputs.weights is None else inputs.weights.take(rows)
        some = Inputs(SelectedRows(inputs.dataset, rows, pairwise=pairwise), False, weights)

        def report(event: dict[str, Any]) -> None:
            if on_progress is not None:
                elapsed = sum(result.timings.values()) + time.perf_counter() - began
                on_progress({"stage": "stability", "fraction": draw / draws, "elapsed": elapsed})

        try:
            half._run(some, report, None)
        except InputError as error:
            raise InputError(f"stability={draws}: half of the rows cannot be clustered. {error}") from error
        merged += bool(half.result_.diagnostics.get("peaks", {}).get("joined"))
        return half.labels_

    model.stability_ = found = stability_of(on_host(model.labels_), fit_some, draws, seed)
    model.timings_ = {**result.timings, "stability": time.perf_counter() - began}
    mean, doubts = found["mean"], []
    if mean < UNSTABLE:
        advice = "look at stability_, and try other parameters or another method."
        if merged:
            advice = f"the test merged clusters in {merged}; compare without significance."
        text = f"the clusters are unstable: half the rows give other clusters (ARI {mean:.2g}, {draws} draws): {advice}"
        doubts.append(Doubt(text, WeakStructureWarning))
    model.result_ = replace(
        model.result_,
        scores={**result.scores, "stability": mean},
        diagnostics={**result.diagnostics, "stability": found},
        warnings=[*result.warnings, *doubts],
        timings=model.timings_,
    )
    return model.result_
