"""Conversion between the fitted attributes of `DensityPeaks` and the content of its result.

`result_warnings` makes the warnings of a result, and `stability` the comparison with random halves of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mgclust.algorithms.density_peaks.cutoff_distance.separation import FullPeaks
from mgclust.algorithms.density_peaks.result_warnings import RowCounts, noise_drop, warnings_of
from mgclust.algorithms.density_peaks.topography.significance import Peaks
from mgclust.results.result import Result

if TYPE_CHECKING:
    from mgclust.algorithms.density_peaks.estimator import DensityPeaks

__all__ = ["attributes_of", "findings"]

PEAK_NUMBERS = ("found", "merged", "standing", "joined", "tiny")  # fields of `Peaks` for the diagnostics


def findings(
    model: DensityPeaks,
    drop: float,
    chosen_by: dict[str, Any],
    *,
    counts: RowCounts,
    peaks: Peaks | None,
    halo: bool,
) -> dict[str, Any]:
    """Make the part of a result that depends on the centres, with the warnings.

    Parameters
    ----------
    model : DensityPeaks
        The estimator; the attributes that describe its centres are already set.
    drop : float
        Drop of ``rho * delta`` after the centres; see `mgclust.algorithms.density_peaks.decision_graph.gamma_drop`.
    chosen_by : dict of str to object
        Parameters that chose the centres; see `mgclust.algorithms.density_peaks.result_warnings.warnings_of`.
    counts : RowCounts
        Facts about the rows.
    peaks : Peaks or None
        Result of the test of significance; None if there was no test.
    halo : bool
        Whether the halo was requested.

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
    if model._separation is not None:
        arrays |= {f"separated_{name}": array for name, array in model._separation._asdict().items()}
    cut = {} if model.dc_ is None else {"dc": model.dc_, "dc_error": model.dc_error_}
    if model.dc_fraction_ is not None:
        cut["dc_fraction"] = model.dc_fraction_
    if model.intrinsic_dim_ is not None:
        cut["intrinsic_dim"] = model.intrinsic_dim_
    diagnostics: dict[str, Any] = {"exactness": model.exactness_, "assignment": model.assignment_}
    diagnostics["noise_drop"] = noise_drop(model, counts)
    if model.dc_choice_ is not None:
        diagnostics["dc_choice"] = model.dc_choice_
    if peaks is not None:
        diagnostics["peaks"] = {name: getattr(peaks, name) for name in PEAK_NUMBERS}
    return {
        "labels": model.labels_,
        "arrays": arrays,
        "scores": {"n_clusters": model.n_clusters_, **cut, "gamma_drop": drop},
        "diagnostics": diagnostics,
        "warnings": warnings_of(model, drop, chosen_by, counts, peaks),
    }


def attributes_of(result: Result) -> dict[str, Any]:
    """Return the fitted attributes of an estimator from its result, the inverse of `findings`.

    Parameters
    ----------
    result : Result
        Result of this method, with labels.

    Returns
    -------
    dict
        Values by the names of attributes: `rho_`, `labels_` and so on.
    """
    arrays = {name: np.asarray(array) for name, array in result.arrays.items()}
    labels, scores, diagnostics = np.asarray(result.labels), result.scores, result.diagnostics
    return {
        "labels_": labels,
        "cluster_centers_indices_": arrays["centers"],
        "n_clusters_": len(arrays["centers"]),
        "rho_": arrays["rho"],
        "delta_": arrays["delta"],
        "nearest_higher_": arrays["nearest_higher"],
        "halo_": arrays.get("halo", labels < 0),
        "k_": arrays.get("k"),
        "log_density_": arrays.get("log_density"),
        "log_density_error_": arrays.get("log_density_error"),
        "intrinsic_dim_": scores.get("intrinsic_dim"),
        "significance_": arrays.get("significance"),
        "saddles_": arrays.get("saddles"),
        "dc_": scores.get("dc"),
        "dc_error_": scores.get("dc_error", 0.0),
        "dc_fraction_": scores.get("dc_fraction"),
        "dc_choice_": diagnostics.get("dc_choice"),
        "assignment_": "denser" if "separated_rows" not in arrays else "separated",
        "_separation": FullPeaks(*(arrays[f"separated_{name}"] for name in FullPeaks._fields))
        if "separated_rows" in arrays
        else None,
        "exactness_": diagnostics.get("exactness", {}),
        "stability_": diagnostics.get("stability"),
        "timings_": result.timings,
        "n_features_in_": result.source["shape"][1],
        "result_": result,
    }
