"""Check of labels that a user gives, and their conversion to cluster numbers 0, 1, ..."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.by_value import by_value
from mgclust.base.dask_arrays import computed, is_dask, unannotated
from mgclust.base.errors import InputError
from mgclust.data import chunks
from mgclust.outside.quoting import shortened

__all__ = ["Labeling", "encode_labels"]

SMALL_TABLE = 65_536  # number of entries that a table of labels may have, however few rows there are
PIECE = 65_536  # number of rows that are looked up at once


class Labeling(NamedTuple):
    """A cluster for every row.

    Attributes
    ----------
    codes : array of shape (n_samples,), int32
        Cluster of each row, from 0 to K - 1; a Dask array if the labels are one.
    classes : ndarray of shape (K,)
        The user's labels of the clusters, ascending.
    """

    codes: Any
    classes: np.ndarray


@unannotated
def encode_labels(labels: Any, n_samples: int) -> Labeling:
    """Number clusters in the order of their labels.

    Parameters
    ----------
    labels : sequence of int or str
        One label per row.
    n_samples : int
        Number of rows of the data.

    Returns
    -------
    Labeling

    Raises
    ------
    InputError
        If the labels do not fit the rows, if some are negative, or if they form fewer than 2 or more than
        ``n_samples - 1`` clusters.
    """
    if is_dask(labels):
        if hasattr(labels, "to_dask_array"):  # a series or a frame
            labels = labels.to_dask_array(lengths=True)
        return _encode_on_workers(labels, n_samples)
    array = _one_dimensional(labels)
    if len(array) != n_samples:
        raise InputError(f"labels has {len(array)} entries for n_samples={n_samples} rows; give one label per row.")
    array = array if array.dtype.kind in "biu" else _discrete(array)
    if array.dtype.kind in "biu" and len(array):
        lowest, highest = int(array.min()), int(array.max())
        if lowest < 0:
            first = int(np.argmax(array < 0))
            raise _negative(array[first], first, int((array < 0).sum()))
        if highest - lowest < max(n_samples, SMALL_TABLE):
            return _encode_by_table(array, lowest, highest)
    classes, codes = np.unique(_discrete(array), return_inverse=True)
    _reject_too_few_or_many(classes, n_samples)
    return Labeling(codes.reshape(-1).astype(np.int32), classes)


def _encode_by_table(labels: np.ndarray, lowest: int, highest: int) -> Labeling:
    """Number labels >= 0 by a table with an entry for each integer from the lowest to the highest label.

    Sorting all labels would take twelve times the memory of the codes, before the memory of the run is checked.
    """

    def entries(rows: slice) -> np.ndarray:
        # In uint64, differences hold for labels of all integer types, and for bools.
        return (labels[rows].astype(np.uint64) - np.uint64(lowest)).astype(np.intp)

    pieces = [slice(begin, begin + PIECE) for begin in range(0, len(labels), PIECE)]
    occurs = np.zeros(highest - lowest + 1, bool)
    for rows in pieces:
        occurs[entries(rows)] = True
    dtype = labels.dtype if labels.dtype.kind == "u" else np.dtype(np.int64)
    classes = np.flatnonzero(occurs).astype(dtype, copy=False)
    classes += dtype.type(lowest)
    _reject_too_few_or_many(classes, len(labels))
    table = np.cumsum(occurs, dtype=np.int32)
    table -= 1
    codes = np.empty(len(labels), np.int32)
    for rows in pieces:
        codes[rows] = table[entries(rows)]
    return Labeling(codes, classes)


def _encode_on_workers(labels: Any, n_samples: int) -> Labeling:
    """Number clusters on the workers that hold the chunks of a Dask array; only the classes are fetched."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (n_samples,):
        raise InputError(
            f"labels of shape {labels.shape} should be of shape ({n_samples},); give one label per row, in chunks "
            "of known sizes."
        )
    found = computed(np.unique(labels))
    classes = np.unique(_discrete(found))
    if classes.dtype.kind == "i" and (classes < 0).any():
        below = labels.astype(np.float64) < 0
        first = int(computed(below.argmax()))
        raise _negative(computed(labels[first]), first, int(computed(below.sum())))
    _reject_too_few_or_many(classes, n_samples)
    number = by_value(partial(chunks.positions_in, classes=classes), chunks)
    return Labeling(labels.map_blocks(number, dtype=np.int32), classes)


def _negative(label: Any, row: int, count: int) -> InputError:
    return InputError(
        f"labels={shortened(label)} in row {row} (one of {count} negative labels) should be >= 0: rows with negative "
        "labels belong to no cluster and have no silhouette; drop these rows from the data and the labels (from a "
        "BOLD series by a mask), or give them a label >= 0."
    )


def _reject_too_few_or_many(classes: np.ndarray, n_samples: int) -> None:
    if not 2 <= len(classes) <= n_samples - 1:
        what = "all rows have the same label" if len(classes) == 1 else "each row has its own label"
        raise InputError(
            f"n_clusters={len(classes)} should be >= 2 and <= n_samples - 1 = {n_samples - 1}, or silhouettes are not "
            f"defined: {what}; give other labels."
        )


def _one_dimensional(labels: Any) -> np.ndarray:
    host = labels.get() if hasattr(labels, "__cuda_array_interface__") else labels
    try:
        array = np.asarray(host)
    except ValueError as error:
        raise InputError(f"labels should be a sequence with one label per row ({error}).") from None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"labels of shape {array.shape} should be one-dimensional; give one label per row.")
    return array


def _discrete(array: np.ndarray) -> np.ndarray:
    """Convert labels to integers or to strings; reject numbers that are not integers."""
    if array.dtype.kind in "biu":
        return array if array.dtype.kind == "u" else array.astype(np.int64)
    if array.dtype.kind == "O" and all(isinstance(label, (int, np.integer)) for label in array):
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        whole = np.isfinite(array) & (array == np.round(array))
        if whole.all():
            return array.astype(np.int64)
        row = int(np.argmin(whole))
        raise InputError(
            f"labels={shortened(array[row])} in row {row} should be an integer or a string; fix or drop the row."
        )
    if array.dtype.kind in "US" or all(isinstance(label, str) for label in array):
        return array.astype(str)
    raise InputError(f"labels of type {array.dtype} should be integers or strings; convert them.")
