"""Findings of density peaks, from an estimator to its result and back.

Warnings beside them are in `result_warnings`, the evidence of draws of half the rows in `stability`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mgclust.algorithms.density_peaks.decision_graph import number_of_different
from mgclust.algorithms.density_peaks.result_warnings import warnings_of
from mgclust.algorithms.density_peaks.significance import Peaks
from mgclust.results.result import Result

if TYPE_CHECKING:
    from mgclust.algorithms.density_peaks.estimator import DensityPeaks

__all__ = ["findings", "restore"]


def findings(model: DensityPeaks, drop: float, chosen_by: dict[str, Any], halo: bool) -> dict[str, Any]:
    """The part of a Result that depends on the centres, by which parameters these were chosen, and warnings.

    Parameters
    ----------
    model : DensityPeaks
        With its centres.
    drop : float
        See `mgclust.algorithms.density_peaks.decision_graph.gamma_drop`.
    chosen_by : dict of str to object
        As of `mgclust.algorithms.density_peaks.result_warnings.warnings_of`.
    halo : bool
        Whether the halo was asked for.

    Returns
    -------
    dict
        Arguments of `mgclust.results.result.Result`.
    """
    arrays = {
        "rho": model.rho_,
        "delta": model.delta_,
        "nearest_higher": model.nearest_higher_,
        "centers": model.cluster_centers_indices_,
    }
    if halo:
        arrays["halo"] = model.halo_
    densities = {"k": model.k_, "log_density": model.log_density_, "log_density_error": model.log_density_error_}
    densities |= {"significance": model.significance_, "saddles": model.saddles_}
    arrays |= {name: array for name, array in densities.items() if array is not None}
    cut = {} if model.dc_ is None else {"dc": model.dc_, "dc_error": model.dc_error_}
    if model.dc_fraction_ is not None:
        cut["dc_fraction"] = model.dc_fraction_
    if model.intrinsic_dim_ is not None:
        cut["intrinsic_dim"] = model.intrinsic_dim_
    choice: dict[str, Any] = {} if model.dc_choice_ is None else {"dc_choice": model.dc_choice_}
    if model.significance_ is not None:
        choice["peaks"] = model._peaks
    return {
        "labels": model.labels_,
        "arrays": arrays,
        "scores": {"n_clusters": model.n_clusters_, **cut, "gamma_drop": drop},
        "diagnostics": {"exactness": model.exactness_, **choice},
        "warnings": warnings_of(model, drop, chosen_by),
    }


def restore(model: DensityPeaks, result: Result) -> None:
    """Set what `findings` has put into a result, and the result, as attributes of an estimator.

    Parameters
    ----------
    model : DensityPeaks
        With the parameters of the result.
    result : Result
        Of this method, with labels.
    """
    arrays = {name: np.asarray(array) for name, array in result.arrays.items()}
    model.rho_, model.delta_, model.nearest_higher_ = arrays["rho"], arrays["delta"], arrays["nearest_higher"]
    model._different_rows = number_of_different(model.delta_)
    model._lone_rows = int((model.rho_ == 0).sum())
    model.dc_, model.dc_error_ = result.scores.get("dc"), result.scores.get("dc_error", 0.0)
    model.exactness_ = result.diagnostics.get("exactness", {})
    model.dc_fraction_ = result.scores.get("dc_fraction")
    model.dc_choice_ = result.diagnostics.get("dc_choice")
    model.k_, model.log_density_ = arrays.get("k"), arrays.get("log_density")
    model.log_density_error_ = arrays.get("log_density_error")
    model.intrinsic_dim_ = result.scores.get("intrinsic_dim")
    model.stability_ = result.diagnostics.get("stability")
    model.timings_ = result.timings
    model.n_features_in_ = result.source["shape"][1]
    model._relabel(arrays["centers"], np.asarray(result.labels), arrays.get("halo"))
    if "significance" in arrays:
        model._keep_peaks(Peaks(arrays["significance"], arrays["saddles"], **result.diagnostics["peaks"]))
    model.result_ = result
