"""Stability of clusters: agreement of the labels with those of fits of half the rows.

Each draw is half of the rows, without replacement. They are clustered with the same parameters, dc and the number of
clusters found again unless they are given, and the adjusted Rand index compares their labels with those that the same
rows have by the whole fit: 1 where the halves are clustered alike, near 0 where chance decides. (Ben-Hur, Elisseeff
and Guyon, A stability based method for discovering structure in clustered data, Pacific Symposium on Biocomputing
7:6-17, 2002, compare such draws with each other.)

Cost. Half the rows are a quarter of the pairs: 20 draws take about five times as long as the fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.label_agreement import adjusted_rand

__all__ = ["UNSTABLE", "half_of_rows", "stability_of"]

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
