"""Description of a run of density peaks, from checked parameters: arguments, memory, work, and the rule for dc."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mgclust.algorithms.base import Inputs
from mgclust.algorithms.common.weights import RowWeights, on_host
from mgclust.algorithms.density_peaks.cutoff_distance.cutoff import CHOOSE, FIRST
from mgclust.algorithms.density_peaks.memory import estimate
from mgclust.algorithms.density_peaks.passes import near_linear
from mgclust.algorithms.density_peaks.ranks import FIRST_CALLS, density_peaks
from mgclust.algorithms.density_peaks.refusals import is_automatic, refuse
from mgclust.algorithms.density_peaks.topography.adaptive_density import most_neighbors
from mgclust.engine.spmd import RunSpec, Work
from mgclust.kernels.pairs.metrics import METRICS

__all__ = ["arguments_by_row", "list_length", "run_spec", "unequal", "work_of"]

# On CPUs two ranks are faster than one from about 10,000 rows of 8 features on. Two GPUs were 1.4 and 1.5 times as fast
# as one with 300,000 rows of 8 and of 128 features, and not faster with 100,000 rows: tensor cores take little more
# time for more features. With trees and grids, two GPUs took as long as one for 10,000,000 rows.
PRODUCTS_OF_A_RANK, TENSOR_PRODUCTS_OF_A_RANK, SAME_TIME = 4e8, 5e12, 256
TYPICAL_NUMBERS = 1 << 20  # up to this number of values, rows are shifted by the mean of all rows, whatever their order
ROWS_OF_A_RANK = {"cpu": 1024, "cuda": 1e7}  # on CPUs, this uses all ranks that have a block of rows
# Speed of one rank, measured with 30,000 rows of 8 features on four cores, and a million rows of 128 on a GPU.
PRODUCTS_A_SECOND = {"cpu": 2e10, "cuda": 1e13}
# Speed of one rank with trees and grids, measured with 100,000 rows on two cores, and 50 million rows on a GPU.
ROWS_A_SECOND = {"cpu": 6e5, "cuda": 2e7}


def run_spec(parameters: dict[str, Any], inputs: Inputs, *, seed: int) -> RunSpec:
    """Describe the run to the ranks; reject parameters that do not fit the data or each other.

    Parameters
    ----------
    parameters : dict of str to object
        All parameters; each one is valid by itself.
    inputs : Inputs
        The data, and weights if there are any.
    seed : int
        Seed of all samples and draws.

    Returns
    -------
    RunSpec

    Raises
    ------
    InputError
        If parameters contradict each other or the data.
    """
    (n, d), metric, weights = inputs.dataset.shape, parameters["metric"], unequal(inputs.weights)
    refuse(parameters, n, weights)
    own = ("metric", "dc", "assignment", "dc_method", "sample_size", "density", "significance", "halo", "algorithm")
    arguments = {name: parameters[name] for name in own}
    arguments["adaptive"] = parameters["k"] == "adaptive"
    k = arguments["k"] = list_length(parameters["k"], n)
    arguments["centers"] = {name: parameters[name] for name in ("n_clusters", "rho_min", "delta_min")}
    arguments["seed"] = seed
    fraction = arguments["dc_fraction"] = _fraction(parameters)
    need = partial(
        estimate,
        metric=metric,
        algorithm=parameters["algorithm"],
        k=k * (parameters["density"] == "knn"),
        with_errors=arguments["adaptive"] or parameters["significance"] is not None,
        weighted=weights is not None,
        choice=fraction == CHOOSE or parameters["assignment"] == "separated",
        compared=parameters["n_clusters"] is not None and parameters["density"] == "gaussian",
        pairs=parameters["sample_size"] or 0,
    )
    work = None
    if metric != "precomputed":
        work = work_of((n, d), metric, "brute" if weights is not None else parameters["algorithm"])
    return RunSpec(
        density_peaks,
        arguments,
        need,
        parameters["dtype"],
        metric=metric,
        work=work,
        row_arguments=arguments_by_row(weights),
        typical=_all_rows(n, d, weights) if n * d <= TYPICAL_NUMBERS else None,
        first_calls={} if metric == "precomputed" else FIRST_CALLS,
    )


def _all_rows(n: int, d: int, weights: RowWeights | None) -> np.ndarray:
    """Return the indices of all rows; if all weights are integers, repeat each index by the weight of its row.

    So weighted rows and repeated rows are shifted by the same mean before they are rounded, and have the same dc.
    """
    if weights is None or weights.rows * d > TYPICAL_NUMBERS:
        return np.arange(n)
    counts = on_host(weights.array)
    return np.repeat(np.arange(n), counts.astype(np.int64)) if (counts == np.rint(counts)).all() else np.arange(n)


def _fraction(parameters: dict[str, Any]) -> float | str:
    """Resolve `dc_fraction` to a number, `FIRST` or `CHOOSE`; see `cutoff.find_cutoff`."""
    given: float | str = parameters["dc_fraction"]
    if given != "auto":
        return given
    chosen = parameters["dc"] is None and parameters["density"] == "gaussian" and is_automatic(parameters)
    return CHOOSE if chosen else FIRST


def work_of(shape: tuple[int, int], metric: str, algorithm: str) -> Work:
    """Return the work of a run on rows, not on precomputed distances.

    Parameters
    ----------
    shape : (int, int)
        Shape of the data.
    metric : str
        Name of the metric.
    algorithm : {"auto", "brute", "grid"}

    Returns
    -------
    Work
    """
    n, d = shape
    if near_linear.is_taken(shape, METRICS[metric], algorithm):
        return Work(n, "rows", ROWS_OF_A_RANK, ROWS_A_SECOND)
    least = {"cpu": PRODUCTS_OF_A_RANK, "cuda": TENSOR_PRODUCTS_OF_A_RANK * d / (d + SAME_TIME)}
    return Work(n * n * d, "features of pairs of rows", least, PRODUCTS_A_SECOND)


def list_length(k: int | str, n: int) -> int:
    """Return the length that the lists of nearest rows need, for densities from the `k` nearest of n rows.

    Parameters
    ----------
    k : int or "adaptive"
    n : int
        Number of rows.

    Returns
    -------
    int
    """
    return most_neighbors(n) if k == "adaptive" else int(k)


def unequal(weights: RowWeights | None) -> RowWeights | None:
    """Return the weights, or None if all are 1, which is the same as no weights.

    Parameters
    ----------
    weights : RowWeights or None

    Returns
    -------
    RowWeights or None
    """
    return None if weights is None or weights.all_one else weights


def arguments_by_row(weights: RowWeights | None) -> dict[str, Any]:
    """Return the arguments of a run that have one value per row.

    Parameters
    ----------
    weights : RowWeights or None

    Returns
    -------
    dict of str to array
    """
    return {} if weights is None else {"weights": weights.array}
