"""Weights of rows, for the methods that take them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mgclust.algorithms.base import Clusterer, Inputs, Progress
from mgclust.base.dask_arrays import computed, empty_chunk, is_dask, unannotated
from mgclust.base.errors import InputError
from mgclust.data import Dataset, open_dataset
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.results.array_files import read_npy_parameter
from mgclust.results.result import Result

__all__ = ["RowWeights", "WeightedClusterer", "checked_weights", "on_host"]


class WeightedClusterer(Clusterer):
    """Base class of the estimators whose rows may have weights."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            The rows: anything that `open_dataset` accepts, such as NumPy, CuPy or Dask arrays, data frames, and files.
            If `X` is a Dask array or data frame, and the run uses the caller's own Dask client, fitted attributes with
            one entry per row are Dask arrays: see the page on clusters.
        y : ignored
        sample_weight : array of shape (n_samples,) or path of a .npy, optional
            Weight of each row. Weights must not be negative, and at least one must be positive. If the rows are a Dask
            array, weights in a Dask array stay on the workers.

        Returns
        -------
        self
            The fitted estimator.
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
        weights = checked_weights(sample_weight, dataset)
        return self._run(Inputs(dataset, provenance, weights), on_progress, checkpoint)


@dataclass(frozen=True)
class RowWeights:
    """Weights of rows, and facts about them that are needed before a run.

    Attributes
    ----------
    array : array of shape (n_samples,), float64
        A NumPy array, or a Dask array in the chunks of the rows.
    positive : int
        Number of weights above 0.
    largest : float
        Largest weight.
    all_one : bool
        Whether each weight is 1, which is the same as no weights.
    all_equal : bool
        Whether all weights are equal.
    rows : int
        The sum of the weights if they are whole numbers, because such weights have the same meaning as this number of
        repeated rows; else `positive`.
    """

    array: Any
    positive: int
    largest: float
    all_one: bool
    all_equal: bool
    rows: int

    @classmethod
    def of(cls, array: Any) -> RowWeights:
        """Check float64 weights, and collect facts about them; for a Dask array, on the workers that hold its chunks.

        Raises
        ------
        InputError
            Some weights are negative or not finite.
        """
        bad = ~np.isfinite(array) | (array < 0)
        found = [bad.sum(), (array > 0).sum(), array.max(), array.min(), array.sum(), (array == np.rint(array)).min()]
        count, positive, largest, least, total, whole = on_host(
            np.stack([each.astype(np.float64) for each in found])
        ).tolist()
        if count:
            row = int(on_host(_without_empty_chunks(bad).argmax()))
            raise InputError(
                f"sample_weight holds {count:.0f} values that are negative, NaN or infinite, the first is "
                f"{float(on_host(array[row])):g} at row {row}; give weights >= 0."
            )
        rows = int(total) if whole else int(positive)
        return cls(array, int(positive), largest, least == largest == 1, least == largest, rows)

    def heaviest(self, count: int) -> np.ndarray:
        """Return the numbers of the rows with the largest weights, ascending; ties go to the first rows.

        Parameters
        ----------
        count : int
            Number of rows to return, unless there are fewer.
        """
        n = len(self.array)
        count = min(count, n)
        if not is_dask(self.array):
            return np.sort(np.argsort(-self.array, kind="stable")[:count])
        # Each row gets a distinct key that holds its number. Rows with a weight above `least` have the largest keys.
        array = _without_empty_chunks(self.array)
        least = on_host(array.topk(count))[-1]
        behind = n - np.ones_like(array).cumsum(axis=0)
        keys: Any = np.where(array > least, n + behind, np.where(array == least, behind, -1.0))
        return np.sort(n - 1 - on_host(keys.topk(count)).astype(np.int64) % n)

    def take(self, rows: np.ndarray) -> RowWeights:
        """Return the weights of some rows, in the memory of this process."""
        return RowWeights.of(open_dataset(self.array[:, None]).take(rows)[:, 0])


def _without_empty_chunks(array: Any) -> Any:
    """Return the array; if it is a Dask array, without empty chunks, which some functions of Dask do not accept."""
    return array.rechunk((tuple(filter(None, array.chunks[0])),)) if is_dask(array) else array


@unannotated
def checked_weights(weights: Any, dataset: Dataset) -> RowWeights | None:
    """Check the weights of the rows of a data set.

    If the rows are a Dask array, weights in a Dask array stay on the workers.
    """
    if weights is None:
        return None
    if isinstance(weights, (str, os.PathLike)):
        weights = read_npy_parameter("sample_weight", os.fspath(weights), "the path of a .npy, or an array")
    if type(weights).__module__ == "dask.delayed":  # a delayed object seems to have every attribute
        raise InputError(
            f"sample_weight is a {type(weights).__name__} of Dask, which is not an array; give "
            "dask.array.from_delayed(sample_weight, (n_samples,), float), or sample_weight.compute()."
        )
    n = dataset.shape[0]
    array: Any = _collection(weights) if is_dask(weights) and dataset.dask_array is not None else on_host(weights)
    if array.ndim == 0 and array.dtype.kind in "iuf":
        array = np.full(n, float(on_host(array)))
    if array.dtype.kind not in "iufb" or array.shape != (n,):
        raise InputError(
            f"sample_weight has shape {array.shape} and dtype {array.dtype}; give numbers of shape ({n},), one per row."
        )
    array = array.astype(np.float64)
    if is_dask(array):
        array = array.rechunk({0: dataset.dask_array.chunks[0]})
    found = RowWeights.of(array)
    if not found.positive:
        raise InputError("sample_weight is zero for all rows; give at least one row a positive weight.")
    return found


def _collection(weights: Any) -> Any:
    """Convert a collection of Dask to a Dask array with chunks of known sizes; masked values become NaN."""
    if hasattr(weights, "to_dask_array"):
        weights = weights.to_dask_array(lengths=True)
    if any(size != size for size in weights.shape):
        weights = weights.copy().compute_chunk_sizes()
    if isinstance(empty_chunk(weights), np.ma.MaskedArray):
        weights = weights.astype(np.float64).map_blocks(np.ma.filled, np.nan, meta=np.empty(0))
    return weights


def on_host(values: Any) -> np.ndarray:
    """Convert an array, which may be on a device or on workers of Dask, to a NumPy array."""
    values = computed(values) if is_dask(values) else values
    return np.asarray(values.get() if hasattr(values, "__cuda_array_interface__") else values)
