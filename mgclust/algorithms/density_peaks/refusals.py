"""Checks before a run of density peaks: parameters that contradict each other or the data raise InputError."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.common.weights import RowWeights
from mgclust.algorithms.density_peaks.topography.adaptive_density import FEWEST_ROWS, MIN_K
from mgclust.base.errors import InputError

__all__ = ["is_automatic", "refuse"]

LIGHTEST, HEAVIEST = 1e-20, 1e20  # limits of the largest weight; between them, float32 holds sums of weights


def refuse(parameters: dict[str, Any], n: int, weights: RowWeights | None) -> None:
    """Raise InputError if a run with these parameters is impossible.

    Parameters
    ----------
    parameters : dict of str to object
        All parameters; each one is valid by itself.
    n : int
        Number of rows.
    weights : RowWeights or None
        Weights of the rows; None if all are 1.

    Raises
    ------
    InputError
        If the run is impossible. The message names the wrong parameter and the remedy.
    """
    n_clusters, dc = parameters["n_clusters"], parameters["dc"]
    density, k = parameters["density"], parameters["k"]
    limits = np.finfo(parameters["dtype"])
    low, high = float(limits.tiny) ** 0.45, float(limits.max) ** 0.45
    if dc is not None and not low < dc < high:
        raise InputError(
            f"dc={dc:g} should be between {low:.1g} and {high:.1g}, because dtype='{parameters['dtype']}' must hold "
            "its square; rescale the data or leave dc out."
        )
    if n_clusters is not None and n_clusters > n:
        raise InputError(f"n_samples={n} should be >= n_clusters={n_clusters}; request fewer clusters.")
    if n_clusters is not None and weights is not None and n_clusters > weights.positive:
        raise InputError(
            f"n_clusters={n_clusters} should be at most {weights.positive}, the number of rows with a positive weight; "
            "request fewer clusters."
        )
    if parameters["assignment"] == "separated" and density != "gaussian":
        raise InputError(
            f"assignment='separated' needs density='gaussian', and density={density!r} is given; leave one of them out."
        )
    _reject_densities(parameters, n)
    _reject_pairs(parameters, n)
    if density == "knn" and k != "adaptive" and k >= n:
        raise InputError(f"k={k} should be < n_samples={n}, because a row is not its own neighbour; give a smaller k.")
    if density == "knn" and weights is not None:
        raise InputError(
            "density='knn' takes no sample_weight: it depends only on the distance to the k-th nearest row; use "
            "'gaussian' or 'cutoff'."
        )
    if weights is not None and not LIGHTEST < (most := weights.largest) < HEAVIEST:
        raise InputError(
            f"the largest sample_weight={most:.3g} should be from {LIGHTEST:g} to {HEAVIEST:g}; scale the weights so "
            "that 1 stands for one row."
        )


def _reject_densities(parameters: dict[str, Any], n: int) -> None:
    """Reject k="adaptive" and `significance` if the density has no error or the number of clusters is given."""
    density, k, significance = parameters["density"], parameters["k"], parameters["significance"]
    if density != "knn" and (k == "adaptive" or significance is not None):
        which = "k='adaptive'" if k == "adaptive" else f"significance={significance:g}"
        raise InputError(
            f"{which} needs density='knn', because only its densities have standard errors, and density={density!r} "
            "is given; give density='knn'."
        )
    if significance is not None and not is_automatic(parameters):
        raise InputError(
            f"significance={significance:g} finds the number of clusters: leave out n_clusters, rho_min and "
            "delta_min, or significance."
        )
    if k == "adaptive" and n < FEWEST_ROWS:
        raise InputError(f"k='adaptive' needs n_samples >= {FEWEST_ROWS}, not {n}; give more rows, or an integer k.")
    if k != "adaptive" and significance is not None and k < MIN_K:
        raise InputError(
            f"k={k} should be >= {MIN_K} with significance, because densities from fewer rows are chance; give a "
            "larger k, or k='adaptive'."
        )


def _reject_pairs(parameters: dict[str, Any], n: int) -> None:
    """Reject `sample_size` if no random pairs are drawn, or if it exceeds the number of pairs."""
    pairs = parameters["sample_size"]
    if pairs is None:
        return
    if parameters["dc_method"] != "sample" or parameters["metric"] == "precomputed":
        which = "metric='precomputed'" if parameters["metric"] == "precomputed" else "dc_method='exact'"
        raise InputError(
            f"sample_size={pairs} needs dc_method='sample' and rows, not distances, and {which} is given; leave "
            "sample_size out."
        )
    if pairs > n * (n - 1) // 2:
        raise InputError(
            f"sample_size={pairs} should be at most {n * (n - 1) // 2}, the number of pairs of {n} rows; use "
            "dc_method='exact', which uses all pairs."
        )


def is_automatic(parameters: dict[str, Any]) -> bool:
    """Return whether the fit finds the number of clusters.

    Parameters
    ----------
    parameters : dict of str to object
        All parameters.

    Returns
    -------
    bool
        True if none of `n_clusters`, `rho_min` and `delta_min` is given.
    """
    return all(parameters[name] is None for name in ("n_clusters", "rho_min", "delta_min"))
