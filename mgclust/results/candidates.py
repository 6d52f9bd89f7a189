"""Candidates of a scan as separate results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mgclust.results.result import Result

__all__ = ["candidate_results"]


def candidate_results(result: Result) -> dict[int, Result]:
    """Make a result from each candidate that a scan has saved.

    Parameters
    ----------
    result : Result
        A result of `AdaptiveAffinityPropagation` with ``save_candidates=True``.

    Returns
    -------
    dict of int to Result
        Results by number of clusters. Their scores are the values from the scan. Empty if no candidates were saved.
    """
    if "candidates" not in result.arrays:
        return {}
    table = {name[5:]: np.asarray(values) for name, values in result.arrays.items() if name.startswith("scan_")}
    numbers, labels = table["n_clusters"].tolist(), result.arrays["candidates"]
    exemplars = np.split(np.asarray(result.arrays["candidate_centers"]), np.cumsum(numbers, dtype=np.int64))
    # A parcellation is fitted with all numbers of parcels, and each candidate can be repeated with its own.
    given = result.parameters
    return {
        k: replace(
            result,
            parameters={**given, "n_parcels": k} if "n_parcels" in given else given,
            labels=labels[:, at],
            arrays={"centers": exemplars[at]},
            scores={name: values[at].item() for name, values in table.items()},
            warnings=[],
            timings={},
            diagnostics={},
        )
        for at, k in enumerate(numbers)
    }
