"""Candidates of a scan as separate results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mgclust.results.result import Result

__all__ = ["candidate_results"]


def candidate_results(result: Result) -> dict[int, Result] | dict[float, Result]:
    """Make a result from each candidate that a scan has saved.

    Parameters
    ----------
    result : Result
        A result of `AdaptiveAffinityPropagation` with ``save_candidates=True``, of `Parcellation` with several numbers
        of parcels, or of `Communities` with several resolutions.

    Returns
    -------
    dict
        Results by number of clusters; by resolution if the result is of communities. Their scores are the values from
        the scan. Empty if no candidates were saved.
    """
    if "candidates" not in result.arrays:
        return {}
    table = {name[5:]: np.asarray(values) for name, values in result.arrays.items() if name.startswith("scan_")}
    numbers, labels = table["n_clusters"].tolist(), result.arrays["candidates"]
    if "resolution" in table:
        names = {name: result.arrays[name] for name in ("names",) if name in result.arrays}  # of the nodes
        return {
            resolution: replace(
                _candidate(result, labels, names, table, at),
                parameters={**result.parameters, "resolution": resolution, "resolutions": None},
            )
            for at, resolution in enumerate(table["resolution"].tolist())
        }
    exemplars = np.split(np.asarray(result.arrays["candidate_centers"]), np.cumsum(numbers, dtype=np.int64))
    # A parcellation is fitted with all numbers of parcels. Each candidate gets its own number, so that it can be
    # repeated.
    given = result.parameters
    return {
        k: replace(
            _candidate(result, labels, {"centers": exemplars[at]}, table, at),
            parameters={**given, "n_parcels": k} if "n_parcels" in given else given,
        )
        for at, k in enumerate(numbers)
    }


def _candidate(result: Result, labels: Any, arrays: dict[str, Any], table: dict[str, np.ndarray], at: int) -> Result:
    """Make the result of one candidate, whose scores are its values in the table of the scan."""
    return replace(
        result,
        labels=labels[:, at],
        arrays=arrays,
        scores={name: values[at].item() for name, values in table.items()},
        warnings=[],
        timings={},
        diagnostics={},
    )
