"""Weights of rows, in the methods that take them."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np

from mgclust.algorithms.base import Clusterer, Inputs, Progress
from mgclust.array_files import computed, is_dask, read_npy_parameter
from mgclust.data import Dataset
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.errors import InputError
from mgclust.result import Result

__all__ = ["WeightedClusterer", "checked_weights", "on_host"]


class WeightedClusterer(Clusterer):
    """Base of the estimators whose rows may have weights."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            Whatever `open_dataset` understands: NumPy, CuPy or Dask arrays, data frames, files. Of a Dask array or
            data frame on a cluster whose client is the caller's own, attributes with a row for each of its rows are
            Dask arrays: see the page on clusters.
        y : ignored
        sample_weight : array of shape (n_samples,) or path of a .npy, optional
            How much each row counts: not negative, not all 0.

        Returns
        -------
        self
        """
        return self._fit(X, sample_weight=sample_weight)

    def fit_dataset(
        self,
        dataset: Dataset,
        on_progress: Progress | None = None,
        *,
        provenance: bool = True,
        checkpoint: CheckpointConfig | None = None,
        sample_weight: Any = None,
    ) -> Result:
        """See `mgclust.algorithms.Method.fit_dataset` and `fit`."""
        weights = checked_weights(sample_weight, dataset.shape[0])
        return self._run(Inputs(dataset, provenance, weights), on_progress, checkpoint)


def checked_weights(weights: Any, n: int) -> np.ndarray | None:
    """Weights of n rows as float64; refuses those that are none."""
    if weights is None:
        return None
    if isinstance(weights, (str, os.PathLike)):
        weights = read_npy_parameter(os.fspath(weights), "the path of a .npy, or an array")
    array = on_host(weights)
    if array.ndim == 0 and array.dtype.kind in "iuf":
        array = np.full(n, float(array))
    if array.dtype.kind not in "iufb" or array.shape != (n,):
        raise InputError(
            f"sample_weight has shape {array.shape} and dtype {array.dtype}, it should be numbers of shape ({n},), "
            "one per row."
        )
    array = array.astype(np.float64)
    bad = ~np.isfinite(array) | (array < 0)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"sample_weight holds {bad.sum()} values that are negative, NaN or infinite, the first is "
            f"{array[row]:g} at row {row}; give weights >= 0."
        )
    if not (array > 0).any():
        raise InputError("sample_weight is zero for all rows; give at least one row a positive weight.")
    return array


def on_host(values: Any) -> np.ndarray:
    """Whatever NumPy makes of an array, perhaps from a device or from Dask's workers."""
    values = computed(values) if is_dask(values) else values
    return np.asarray(values.get() if hasattr(values, "__cuda_array_interface__") else values)
