"""Run of fuzzy c-means on the ranks: checks of parameters against the data, the dtype, m, the starts and the work."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from mgclust.algorithms.base import Inputs
from mgclust.algorithms.fuzzy_c_means.initialization import DRAWN
from mgclust.algorithms.fuzzy_c_means.input import kind_of_start
from mgclust.algorithms.fuzzy_c_means.memberships import Memberships
from mgclust.algorithms.fuzzy_c_means.options import criterion_of
from mgclust.algorithms.fuzzy_c_means.ranks import estimate, first_calls, fuzzy_c_means
from mgclust.algorithms.fuzzy_c_means.validity import silhouettes_in_float64
from mgclust.algorithms.fuzzy_c_means.weighted_sums import MAX_BITS
from mgclust.base.errors import InputError
from mgclust.engine.spmd import RunSpec, Work

__all__ = ["automatic_m", "run_spec", "work_of"]

# If m is nearer to 1, memberships in float32 underflow to 0 before the distances of the rows differ.
MIN_M_IN_FLOAT32 = 1.25
# Data with up to this many numbers are computed in float64. Random memberships start all centres near the mean, and the
# separation of the centres magnifies rounding errors a thousand times. float32 saves time and memory only for large
# data.
FEW_NUMBERS = 1 << 20
TYPICAL_ROWS = 1024  # number of the heaviest rows; the origin should be near them
# Least work for which another rank saves time. Two CPU ranks are faster than one from about 100,000 rows of 8 features
# on, with 8 clusters. With two GPUs, 3,000,000 rows of 8 features and 8 clusters were 1.3 times as fast. 300,000 rows
# of 128 features and 256 clusters were not faster, because the ranks communicate once per cluster before the first
# iteration.
PRODUCTS_OF_A_RANK = 3e6
# Least size of the data (rows times columns) for which another GPU saves time, if clusters are few; with
# `AS_MUCH_AGAIN` clusters, twice this size is needed.
FEATURES_OF_A_GPU, AS_MUCH_AGAIN = 1e7, 200
PRODUCTS_A_SECOND = {"cpu": 1e8, "cuda": 5e10}  # speed of one rank over all iterations of such fits (100 on GPUs)
MAX_AUTOMATIC_M = 2.0


def run_spec(parameters: dict[str, Any], inputs: Inputs, *, seed: int) -> RunSpec:
    """Describe the run to the ranks; reject parameters that contradict the data or each other.

    Parameters
    ----------
    parameters : dict of str to object
        Parameters of the estimator; each one is valid by itself.
    inputs : Inputs
    seed : int
        Seed of the starts.

    Returns
    -------
    RunSpec

    Raises
    ------
    InputError
        The parameters contradict the data or each other.
    """
    n, d = inputs.dataset.shape
    low, high = parameters["n_clusters_range"] or 2 * (parameters["n_clusters"],)
    numbers, c, init = list(range(low, high + 1)), high, parameters["init"]
    given, weights = None if isinstance(init, str) else init, inputs.weights
    rows = n if weights is None else weights.rows
    m = automatic_m(rows, d, parameters["covariance_type"]) if parameters["m"] == "auto" else parameters["m"]
    available = n if weights is None else weights.positive
    which = "n_samples" if weights is None else "rows with a positive sample_weight"
    if c > available:
        raise InputError(f"{which}={available} should be >= n_clusters={c}; request fewer clusters.")
    if parameters["n_clusters_range"] and low < 2:
        raise InputError(
            f"n_clusters_range={(low, high)} should begin at 2 or more: one cluster has no validity index."
        )
    if parameters["n_clusters_range"] and high == available:
        raise InputError(
            f"n_clusters_range={(low, high)} should end below {which}={available}: if each row has its own cluster, "
            "every index is perfect and means nothing."
        )
    delta = parameters["noise_distance"]
    full = parameters["covariance_type"] == "full"
    criterion = criterion_of(parameters["criterion"], delta, parameters["covariance_type"])
    if full:
        reject_covariances(parameters, criterion, c, d, f"{which}={available}", available)
    elif parameters["shrinkage"]:
        raise InputError(
            f"shrinkage={parameters['shrinkage']:g} applies to covariances, but covariance_type='spherical' has no "
            "covariances; give covariance_type='full' or leave shrinkage out."
        )
    elif criterion == "fuzzy_hypervolume":
        raise InputError(
            "criterion='fuzzy_hypervolume' needs covariances, but covariance_type='spherical' has no covariances; give "
            "covariance_type='full' or another criterion."
        )
    if len(numbers) > 1 and delta is not None and criterion in ("xie_beni", "fuzzy_hypervolume"):
        others = "'modified_partition_coefficient'" + ("" if full else " or 'fuzzy_silhouette'")
        raise InputError(
            f"criterion={criterion!r} chooses too few clusters with noise_distance={delta:g}, because the rows of the "
            f"other clusters become noise; give criterion={others}."
        )
    if given is not None and len(numbers) > 1:
        raise InputError(
            f"init is an array for one number of clusters, but n_clusters_range={(low, high)} has several; give init "
            "as a name, such as 'k-means++'."
        )
    how = init if given is None else kind_of_start(given, n, d, c)
    dtype = "float64" if full else computed_in(n * d, m, c, parameters["dtype"])
    silhouettes = len(numbers) if criterion == "fuzzy_silhouette" else 0
    if silhouettes and silhouettes_in_float64(parameters["metric"]):
        dtype = "float64"
    names = ("metric", "max_iter", "tol", "stop", "covariance_type", "shrinkage")
    arguments = {name: parameters[name] for name in names}
    arguments |= {"numbers": numbers, "criterion": criterion, "m": m}
    arguments["noise"] = None if delta is None else delta**2
    arguments["n_init"] = parameters["n_init"] if how in DRAWN else 1
    keep = Memberships.are_small(n, c, dtype)
    arguments |= {"init": how, "given": given, "keep_memberships": keep}
    arguments["seed"] = seed
    need = partial(
        estimate,
        models=arguments["n_init"],
        c=c,
        weighted=weights is not None,
        from_memberships=how in ("memberships", "random-memberships"),
        silhouettes=silhouettes,
        metric=parameters["metric"],
        compared=parameters["stop"] == "memberships",
        full=full,
        noise=delta is not None,
        kept=keep,
        all_weights=how in ("random", "canopy"),
    )
    moved = parameters["metric"] == "euclidean" and inputs.dataset.dtype.itemsize > np.dtype(dtype).itemsize
    typical = None if weights is None or not moved else weights.heaviest(TYPICAL_ROWS)
    work = work_of(n, d, c)
    by_row = {} if weights is None else {"weights": weights.array}
    return RunSpec(
        fuzzy_c_means,
        arguments,
        need,
        dtype,
        metric=parameters["metric"],
        typical=typical,
        work=work,
        row_arguments=by_row,
        first_calls=first_calls(numbers[0], m),
    )


def work_of(n: int, d: int, c: int) -> Work:
    """Return the work of a run, from which the number of ranks is chosen."""
    least = {"cpu": PRODUCTS_OF_A_RANK, "cuda": FEATURES_OF_A_GPU * c * (1 + c / AS_MUCH_AGAIN)}
    return Work(n * d * c, "features of rows times clusters", least, PRODUCTS_A_SECOND)


def reject_covariances(parameters: dict[str, Any], criterion: str, c: int, d: int, rows: str, available: int) -> None:
    """Reject parameters that ``covariance_type="full"`` excludes."""
    if parameters["metric"] != "euclidean":
        raise InputError(
            f"covariance_type='full' computes its own distances from the features, so metric="
            f"{parameters['metric']!r} cannot apply; give metric='euclidean' or covariance_type='spherical'."
        )
    if criterion == "fuzzy_silhouette" or (criterion == "xie_beni" and parameters["n_clusters_range"]):
        what = "distances of rows" if criterion == "fuzzy_silhouette" else "distances of centres"
        raise InputError(
            f"criterion={criterion!r} compares Euclidean {what}, but clusters with covariance_type='full' have other "
            "shapes; give criterion='modified_partition_coefficient' or 'fuzzy_hypervolume'."
        )
    if not parameters["shrinkage"] and available < c * (d + 1):
        raise InputError(
            f"{rows} should be >= n_clusters * (n_features + 1) = {c * (d + 1)} with covariance_type='full', so that "
            "each cluster has a covariance; request fewer clusters, use fewer features, such as principal components, "
            "or give shrinkage=0.1."
        )


def automatic_m(n: int, d: int, covariance_type: str = "spherical") -> float:
    """Return the fuzzifier of Schwämmle and Jensen (2010), their equation 5, but at most 2.

    At this fuzzifier, random rows show no clusters. The rule exceeds 2 for up to four or five features, but clusters
    are not better at such an m. If clusters have covariances, each entry of a centre and of a covariance counts as a
    feature.
    """
    if covariance_type == "full":
        d = d * (d + 3) // 2
    theirs = 1 + (1418 / n + 22.05) / d**2 + (12.33 / n + 0.243) * d ** (-0.0406 * math.log(n) - 0.1134)
    return min(theirs, MAX_AUTOMATIC_M)


def computed_in(numbers: int, m: float, c: int, dtype: str) -> str:
    """Return the dtype of the computation."""
    enough = numbers > FEW_NUMBERS and m >= MIN_M_IN_FLOAT32 and m * math.log2(c) <= MAX_BITS
    return dtype if enough else "float64"
