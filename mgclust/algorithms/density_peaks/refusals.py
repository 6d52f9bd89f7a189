"""Parameters of density peaks that contradict each other, or the data: refused before a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.common.weights import RowWeights
from mgclust.algorithms.density_peaks.topography.adaptive_density import FEWEST_ROWS, MIN_K
from mgclust.base.errors import InputError

__all__ = ["is_automatic", "refuse"]

LIGHTEST, HEAVIEST = 1e-20, 1e20  # weights: float32 holds sums of them


def refuse(parameters: dict[str, Any], n: int, weights: RowWeights | None) -> None:
    """Raise InputError where there can be no run.

    Parameters
    ----------
    parameters : dict of str to object
        Each checked by itself.
    n : int
        Rows.
    weights : RowWeights or None
        Those that are not all 1.
    """
    n_clusters, dc = parameters["n_clusters"], parameters["dc"]
    density, k = parameters["density"], parameters["k"]
    limits = np.finfo(parameters["dtype"])
    low, high = float(limits.tiny) ** 0.45, float(limits.max) ** 0.45
    if dc is not None and not low < dc < high:
        raise InputError(
            f"dc={dc:g} should be between {low:.1g} and {high:.1g}, whose squares "
            f"dtype='{parameters['dtype']}' holds; rescale the data or leave dc out."
        )
    if n_clusters is not None and n_clusters > n:
        raise InputError(f"n_samples={n} should be >= n_clusters={n_clusters}; ask for fewer clusters.")
    if n_clusters is not None and weights is not None and n_clusters > weights.positive:
        raise InputError(
            f"n_clusters={n_clusters} should be at most {weights.positive}, the number of rows with a weight; ask for "
            "fewer clusters."
        )
    if parameters["assignment"] == "separated" and density != "gaussian":
        raise InputError(
            f"assignment='separated' needs density='gaussian'; there is density={density!r}. Leave one of them out."
        )
    _refuse_densities(parameters, n)
    _refuse_pairs(parameters, n)
    if density == "knn" and k != "adaptive" and k >= n:
        raise InputError(f"k={k} should be < n_samples={n}: a row is not its own neighbour; ask for fewer.")
    if density == "knn" and weights is not None:
        raise InputError(
            "density='knn' takes no sample_weight: the k-th nearest row has none; use 'gaussian' or 'cutoff'."
        )
    if weights is not None and not LIGHTEST < (most := weights.largest) < HEAVIEST:
        raise InputError(
            f"the largest sample_weight={most:.3g} should be from {LIGHTEST:g} to {HEAVIEST:g}; 1 is one row."
        )


def _refuse_densities(parameters: dict[str, Any], n: int) -> None:
    """Refuse errors of densities that have none, and tests of what was given."""
    density, k, significance = parameters["density"], parameters["k"], parameters["significance"]
    if density != "knn" and (k == "adaptive" or significance is not None):
        which = "k='adaptive'" if k == "adaptive" else f"significance={significance:g}"
        raise InputError(
            f"{which} needs density='knn', whose errors are known; there is density={density!r}. Add density='knn'."
        )
    if significance is not None and not is_automatic(parameters):
        raise InputError(
            f"significance={significance:g} finds the number of clusters: leave out n_clusters, rho_min and "
            "delta_min, or significance."
        )
    if k == "adaptive" and n < FEWEST_ROWS:
        raise InputError(f"k='adaptive' needs n_samples={n} to be >= {FEWEST_ROWS}; give more rows, or an integer k.")
    if k != "adaptive" and significance is not None and k < MIN_K:
        raise InputError(
            f"k={k} should be >= {MIN_K} with significance: densities of fewer rows are chance; use 'adaptive'."
        )


def _refuse_pairs(parameters: dict[str, Any], n: int) -> None:
    """Refuse a number of random pairs where none are drawn, or more than there are."""
    pairs = parameters["sample_size"]
    if pairs is None:
        return
    if parameters["dc_method"] != "sample" or parameters["metric"] == "precomputed":
        which = "metric='precomputed'" if parameters["metric"] == "precomputed" else "dc_method='exact'"
        raise InputError(f"sample_size={pairs} goes with dc_method='sample' of rows, not with {which}; leave it out.")
    if pairs > n * (n - 1) // 2:
        raise InputError(
            f"sample_size={pairs} should be at most {n * (n - 1) // 2}, the pairs of {n} rows; dc_method='exact' takes "
            "all of them."
        )


def is_automatic(parameters: dict[str, Any]) -> bool:
    """Return whether the fit finds the number of clusters."""
    return all(parameters[name] is None for name in ("n_clusters", "rho_min", "delta_min"))
