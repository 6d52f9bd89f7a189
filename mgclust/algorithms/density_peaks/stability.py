"""Stability of clusters: agreement between the labels of a fit and the labels of fits to random halves of the rows.

Each draw is one half of the rows, without replacement. The half is clustered with the same parameters; dc and the
number of clusters are found again unless they are given. The adjusted Rand index compares the labels of the half with
the labels of the same rows in the whole fit. It is 1 if they agree, and near 0 for unrelated labels. Ben-Hur, Elisseeff
and Guyon (A stability based method for discovering structure in clustered data, Pacific Symposium on Biocomputing
7:6-17, 2002) compare halves with each other instead.

Cost. Half of the rows form a quarter of the pairs, so 20 draws take about five times as long as the fit.
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

# A fit warns if the mean adjusted Rand index is lower. Uniform and normal noise of two or more features has at most
# 0.53 (benchmarks/results/density_peaks/significance.json).
UNSTABLE = 0.6


def half_of_rows(n: int, seed: int, draw: int) -> np.ndarray:
    """Draw half of n rows; return their row numbers, ascending. They do not depend on other draws.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int
    draw : int
        Number of the draw.

    Returns
    -------
    int64 ndarray of shape (n // 2,)
    """
    return np.sort(np.random.default_rng((seed, draw)).choice(n, n // 2, replace=False))


def stability_of(
    labels: np.ndarray, fit_some: Callable[[np.ndarray, int], np.ndarray], draws: int, seed: int
) -> dict[str, Any]:
    """Compare the labels of a fit with the labels of random halves.

    Parameters
    ----------
    labels : ndarray of shape (n,), int
        Labels of the whole fit.
    fit_some : callable
        ``fit_some(rows, draw)`` returns the labels of these rows in the fit of this draw.
    draws : int
        Number of halves.
    seed : int
        Seed of the draws.

    Returns
    -------
    dict
        "ari": list of the adjusted Rand indices; "mean" and "std": their mean and standard deviation (divisor
        `draws`); "n_clusters": list of the numbers of clusters.
    """
    indices, numbers = [], []
    for draw in range(draws):
        rows = half_of_rows(len(labels), seed, draw)
        found = fit_some(rows, draw)
        indices.append(adjusted_rand(labels[rows], found))
        numbers.append(int(found.max()) + 1)
    return {"mean": float(np.mean(indices)), "std": float(np.std(indices)), "ari": indices, "n_clusters": numbers}


def with_stability(model: DensityPeaks, inputs: Inputs, result: Result, on_progress: Progress | None) -> Result:
    """Add the stability to the result of a fit, and set `stability_` of the estimator.

    Parameters
    ----------
    model : DensityPeaks
        The fitted estimator.
    inputs : Inputs
        Inputs of the fit.
    result : Result
        Result of the fit.
    on_progress : callable or None
        Callback of the fit.

    Returns
    -------
    Result
    """
    began, draws, seed = time.perf_counter(), model.stability, result.parameters["random_state"]
    pairwise, merged = model.metric == "precomputed", 0
    spent = sum(result.timings.values())  # computed here, so that `report` does not keep the result in memory

    def fit_some(rows: np.ndarray, draw: int) -> np.ndarray:
        nonlocal merged
        half = type(model)(**{**model.get_params(), "stability": 0, "verbose": False, "random_state": seed})
        weights = None if inputs.weights is None else inputs.weights.take(rows)
        some = Inputs(SelectedRows(inputs.dataset, rows, pairwise=pairwise), False, weights)

        def report(event: dict[str, Any]) -> None:
            if on_progress is not None:
                elapsed = spent + time.perf_counter() - began
                on_progress({"stage": "stability", "fraction": draw / draws, "elapsed": elapsed})

        try:
            half._run(some, report, None)
        except InputError as error:
            raise InputError(f"stability={draws}: half of the rows cannot be clustered: {error}") from error
        merged += bool(half.result_.diagnostics.get("peaks", {}).get("joined"))
        return half.labels_

    model.stability_ = found = stability_of(on_host(model.labels_), fit_some, draws, seed)
    model.timings_ = {**result.timings, "stability": time.perf_counter() - began}
    mean, doubts = found["mean"], []
    if mean < UNSTABLE:
        advice = "check stability_, and try other parameters or another method."
        if merged:
            advice = f"the test merged clusters in {merged} halves; compare with a fit without significance."
        text = f"the clusters are unstable: {draws} halves of the rows give other clusters (mean ARI {mean:.2g}); "
        text += advice
        doubts.append(Doubt(text, WeakStructureWarning))
    model.result_ = replace(
        model.result_,
        scores={**result.scores, "stability": mean},
        diagnostics={**result.diagnostics, "stability": found},
        warnings=[*result.warnings, *doubts],
        timings=model.timings_,
    )
    return model.result_
