"""Comparison of the clusters of a result with the atlas of its data set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mgclust.data import Dataset
from mgclust.results.label_agreement import compare_with_atlas
from mgclust.results.result import Result

__all__ = ["atlas_arrays", "with_atlas"]


def atlas_arrays(dataset: Dataset, labels: Any) -> dict[str, np.ndarray]:
    """Return the label of the atlas that overlaps most with each cluster; empty if the data set has no atlas.

    Parameters
    ----------
    dataset : Dataset
        The clustered data.
    labels : array of shape (n_samples,), int
        Cluster of each row; negative for no cluster.

    Returns
    -------
    dict of str to ndarray of shape (n_clusters,)
        ``atlas_index``: the value in the atlas, or 0 for no label; ``atlas_name``; and ``atlas_dice``. See
        `mgclust.results.label_agreement.compare_with_atlas`.
    """
    return _compared(dataset, labels)[1]


def with_atlas(result: Result, dataset: Dataset) -> Result:
    """Return the result with its agreement with the atlas, if the data set has an atlas and the result has labels.

    Parameters
    ----------
    result : Result
        Result of a method.
    dataset : Dataset
        The data.
    """
    if dataset.atlas is None or result.labels is None:
        return result
    scores, arrays = _compared(dataset, result.labels)
    return replace(result, scores={**result.scores, **scores}, arrays={**result.arrays, **arrays})


def _compared(dataset: Dataset, labels: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    atlas = dataset.atlas
    if atlas is None:
        return {}, {}
    found = compare_with_atlas(np.asarray(labels), atlas.codes, len(atlas.keys))
    scores = {"atlas_rows": found.rows} if found.ari is None else {"atlas_ari": found.ari, "atlas_rows": found.rows}
    arrays = {
        "atlas_index": np.append(atlas.keys, 0)[found.label],  # the position -1 is the last
        "atlas_name": np.array([*atlas.names, ""])[found.label],
        "atlas_dice": found.dice,
    }
    return scores, arrays
