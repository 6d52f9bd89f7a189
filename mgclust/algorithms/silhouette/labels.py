"""Labels that a user brings: read from a file, checked, and numbered 0, 1, ... as the methods number theirs."""

from __future__ import annotations

import csv
import io
import os
import zipfile
from typing import IO, Any, NamedTuple

import numpy as np

from mgclust.beneath import Beneath
from mgclust.data.graphs.stored_array import StoredArray
from mgclust.data.location import Location
from mgclust.errors import InputError
from mgclust.quoting import shortened
from mgclust.result import load_result

__all__ = ["Labeling", "encode_labels", "read_labels"]

_FORMATS = ".npy, .npz, .csv, .tsv or a result directory"
_LABEL_COLUMNS = ("label", "labels", "cluster", "cluster_id", "class", "y")
_DELIMITERS = (",", ";", "\t", "|")


class Labeling(NamedTuple):
    """A cluster for every row.

    Attributes
    ----------
    codes : ndarray of shape (n_samples,), int32
        Clusters 0 to K - 1.
    classes : ndarray of shape (K,)
        What the user calls them, ascending.
    """

    codes: np.ndarray
    classes: np.ndarray


def encode_labels(labels: Any, n_samples: int) -> Labeling:
    """Number clusters in the order of their labels.

    Parameters
    ----------
    labels : sequence of int or str
        One a row.
    n_samples : int
        Rows of the data.

    Returns
    -------
    Labeling

    Raises
    ------
    InputError
        They do not fit the rows, mark rows that belong to no cluster, or make fewer than 2 or more than
        ``n_samples - 1`` clusters.
    """
    array = _one_dimensional(labels)
    if len(array) != n_samples:
        raise InputError(f"labels: {len(array)} of them for n_samples={n_samples} rows; give one label for each row.")
    array = _discrete(array)
    if array.dtype.kind == "i" and (array < 0).any():
        first = int(np.argmax(array < 0))
        raise InputError(
            f"labels={shortened(array[first])} in row {first} (of {int((array < 0).sum())} negative ones) should be "
            ">= 0: "
            "such rows belong to no cluster and have no silhouette; drop them from the data and the labels, or give "
            "them a cluster of their own."
        )
    classes, codes = np.unique(array, return_inverse=True)
    if not 2 <= len(classes) <= n_samples - 1:
        what = "all rows have one label" if len(classes) == 1 else "each row has a label of its own"
        raise InputError(
            f"n_clusters={len(classes)} should be >= 2 and <= n_samples - 1 = {n_samples - 1}, or no silhouette is "
            f"defined: {what}; give other labels."
        )
    return Labeling(codes.reshape(-1).astype(np.int32), classes)


def labels_location(source: str | os.PathLike[str] | Beneath) -> Location:
    """Where labels are: a file, or that of a result directory."""
    location = Location.of(source)
    if location.remote or not location.is_directory():
        return location
    inside = os.path.join(location.path, "labels.npy")
    return Location.of(inside if location.beneath is None else location.beneath.inside("labels.npy"))


def read_labels(source: str | os.PathLike[str] | Beneath) -> np.ndarray:
    """Read labels as results hold them.

    Parameters
    ----------
    source : path or URL
        A .npy; a .npz with ``labels``, ``y`` or one array; a .csv or .tsv with a column ``label`` (and perhaps one
        ``row``, from 0) or with one column; a result directory.

    Returns
    -------
    ndarray of shape (n,)
        Integers or strings.

    Raises
    ------
    InputError
        If it holds no labels, or cannot be read.
    """
    location = Location.of(source)
    if location.beneath is not None:
        location = labels_location(location.beneath)
    elif not location.remote and location.is_directory():
        labels = load_result(location.path).labels
        if labels is None:
            raise InputError(f"labels={location.name!r} is a result without labels; give another.")
        return np.array(labels)
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_text, ".tsv": _read_text}
    if location.suffix not in readers:
        raise InputError(f"labels={location.name!r} should be {_FORMATS}; convert it to one of them.")
    with location.open() as file:
        return readers[location.suffix](file, location)


def _one_dimensional(labels: Any) -> np.ndarray:
    host = labels.get() if hasattr(labels, "__cuda_array_interface__") else labels
    try:
        array = np.asarray(host)
    except ValueError as error:
        raise InputError(f"labels should be a sequence of one label for each row ({error}).") from None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"labels of shape {array.shape} should be one-dimensional; give one label for each row.")
    return array


def _discrete(array: np.ndarray) -> np.ndarray:
    """Integers as int64, everything else as strings."""
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
            f"labels={shortened(array[row])} in row {row} should be an integer or a string; mend or drop the row."
        )
    if array.dtype.kind in "US" or all(isinstance(label, str) for label in array):
        return array.astype(str)
    raise InputError(f"labels of type {array.dtype} should be integers, or strings; convert them.")


def _read_npy(file: IO[bytes], location: Location, member: str | None = None) -> np.ndarray:
    try:
        return StoredArray(location, member).whole()
    except InputError as error:
        raise InputError(
            f"labels={location.name!r} is not a whole .npy array of numbers or strings ({shortened(error, 1000)}); "
            "write it with "
            "numpy.save."
        ) from error


def _read_npz(file: IO[bytes], location: Location) -> np.ndarray:
    with zipfile.ZipFile(file) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        known = [name for name in ("labels", "y") if name in names] or (names if len(names) == 1 else [])
        if not known:
            raise InputError(
                f"labels={location.name!r} holds {shortened(', '.join(names)) or 'nothing'}; name the array 'labels'."
            )
    return _read_npy(file, location, f"{known[0]}.npy")


def _read_text(file: IO[bytes], location: Location) -> np.ndarray:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    lines = text.read().splitlines()
    first = next((line for line in lines if line.strip()), "")
    delimiter = max(_DELIMITERS, key=first.count)
    table = [(number + 1, fields) for number, fields in enumerate(csv.reader(lines, delimiter=delimiter)) if fields]
    if not table:
        raise InputError(f"labels={location.name!r} is empty; it should hold one label a line.")
    column, row_column = _columns([field.strip().lower() for field in table[0][1]], location)
    width = len(table[0][1])
    if _is_header(table, column):
        table = table[1:]
    for line, fields in table:
        if len(fields) != width or not fields[column].strip():
            raise InputError(
                f"labels={location.name!r}, line {line} has no label or another number of fields; mend it."
            )
    labels = _numbers([fields[column].strip() for _, fields in table])
    if row_column is None:
        return labels
    rows = _numbers([fields[row_column].strip() for _, fields in table])
    if rows.dtype.kind != "i" or not np.array_equal(np.sort(rows), np.arange(len(rows))):
        raise InputError(
            f"labels={location.name!r}: column 'row' should hold 0 to {len(rows) - 1}, each once; mend it or leave the "
            "column out."
        )
    return labels[np.argsort(rows)]


def _columns(names: list[str], location: Location) -> tuple[int, int | None]:
    """Where the labels are, and the row numbers if there are any."""
    known = [name for name in _LABEL_COLUMNS if name in names]
    if known:
        return names.index(known[0]), names.index("row") if "row" in names else None
    if len(names) > 1:
        raise InputError(
            f"labels={location.name!r} has {len(names)} columns, none of them called 'label'; name the one with the "
            "labels in the first line, or keep only that one."
        )
    return 0, None


def _is_header(table: list[tuple[int, list[str]]], column: int) -> bool:
    """Whether the first line names columns: a known name, or no number above numbers."""
    name = table[0][1][column].strip()
    if name.lower() in _LABEL_COLUMNS:
        return True
    rest = _numbers([fields[column].strip() for _, fields in table[1:] if len(fields) > column])
    return bool(len(rest)) and rest.dtype.kind != "U" and _numbers([name]).dtype.kind == "U"


def _numbers(texts: list[str]) -> np.ndarray:
    """Numbers if all are, else strings."""
    for kind in (np.int64, np.float64):
        try:
            return np.array(texts).astype(kind)
        except (ValueError, OverflowError):
            continue
    return np.array(texts)
