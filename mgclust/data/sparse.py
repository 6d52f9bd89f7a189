"""Sparse matrices in memory: as rows, whose zeros are not stored, or of some pairs of rows."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import CheckedDataset, Dataset, InputTypeError, check_shape, float_dtype

__all__ = ["SparseDataset", "SparseRows", "is_sparse", "open_sparse", "open_sparse_rows"]


def is_sparse(source: Any) -> bool:
    """Return whether something is a sparse matrix of SciPy or CuPy."""
    return type(source).__module__.partition(".")[0] in ("scipy", "cupyx") and hasattr(source, "tocsr")


class SparseRows(CheckedDataset):
    """Rows of a sparse matrix, which become dense some at a time, as they are read.

    Parameters
    ----------
    matrix : csr_matrix or csr_array
        Without an element twice; also an attribute.
    name : str
    """

    kind = "sparse rows"

    def __init__(self, matrix: Any, name: str) -> None:
        super().__init__(matrix.shape, matrix.dtype, name)
        self.matrix = matrix

    def take(self, indices: Any) -> np.ndarray:
        """A few rows; see `Dataset.take`."""
        return np.asarray(self.matrix[np.asarray(indices, np.int64)].toarray(), self.dtype)

    def _read(self, start: int, stop: int) -> np.ndarray:
        return np.ascontiguousarray(self.matrix[start:stop].toarray(), dtype=self.dtype)


def open_sparse_rows(source: Any) -> SparseRows:
    """Open a sparse matrix as rows: what is not stored is 0, and what is stored twice adds up.

    Parameters
    ----------
    source : sparse matrix or array of SciPy or CuPy, shape (n_samples, n_features)

    Raises
    ------
    InputError
        It is damaged, or no table of real numbers.
    """
    source, name = _on_host(source)
    check_shape(source.shape, name)
    dtype = float_dtype(source.dtype, name)
    _reject_damaged(source, name)
    # In uint8, 257 ones would add up to 1. What is True twice is True.
    wide = source if source.dtype.kind == "b" else source.astype(np.float64)
    matrix = wide.tocsr(copy=True)
    matrix.sum_duplicates()
    return SparseRows(matrix.astype(dtype, copy=False), name)


def _on_host(source: Any) -> tuple[Any, str]:
    if type(source).__module__.startswith("cupyx"):
        source = source.get()
    return source, f"sparse matrix ({type(source).__name__})"


def _reject_damaged(source: Any, name: str) -> None:
    if hasattr(source, "check_format"):
        try:
            source.check_format(full_check=True)  # SciPy's loops follow indices wherever they lead
        except ValueError as error:
            raise InputError(f"{name} is damaged: {error}; build it again.") from error


class SparseDataset(Dataset):
    """Numbers of some pairs of rows; those of all others, and the diagonal, are -inf.

    Parameters
    ----------
    values, columns : ndarray of shape (n_pairs,), float and int
        One row behind the other, no pair twice, none of a row with itself; also attributes, as `bounds` is.
    bounds : ndarray of shape (n_samples + 1,), int64
        Where each row begins and ends.
    dtype : dtype
    name : str
    """

    kind = "sparse matrix"

    def __init__(self, values: np.ndarray, columns: np.ndarray, bounds: np.ndarray, dtype: Any, name: str) -> None:
        n = len(bounds) - 1
        super().__init__(check_shape((n, n), name), dtype, name)
        self.values, self.columns, self.bounds = values, columns, bounds

    def _read(self, start: int, stop: int) -> np.ndarray:
        rows = np.full((stop - start, self.shape[1]), -np.inf, self.dtype)
        part = slice(self.bounds[start], self.bounds[stop])
        number = np.repeat(np.arange(stop - start), np.diff(self.bounds[start : stop + 1]))
        rows[number, self.columns[part]] = self.values[part]
        return rows

    def fingerprint(self) -> str:
        """SHA-256 of the shape and the pairs, as they are stored."""
        total = hashlib.sha256(f"sparse {self.shape[0]} {self.dtype.name}".encode())
        for array, kind in ((self.bounds, "<i8"), (self.columns, "<i8"), (self.values, "<f8")):
            total.update(np.ascontiguousarray(array, kind).data)
        return total.hexdigest()


def open_sparse(source: Any, *, distances: bool) -> SparseDataset:
    """Open a sparse matrix as similarities of pairs.

    Parameters
    ----------
    source : sparse matrix or array of SciPy or CuPy, shape (n_samples, n_samples)
        What is stored counts, zeros too, but for the diagonal; -inf is no pair.
    distances : bool
        The numbers are distances: the similarity is minus the square. Else they are similarities.

    Raises
    ------
    InputError
        It is not square, holds a pair twice, no pair, or numbers that are not what they should be.
    """
    source, name = _on_host(source)
    if source.ndim != 2 or source.shape[0] != source.shape[1]:
        raise InputError(f"{name} has shape {tuple(source.shape)}; of pairs of rows it should be square.")
    if source.dtype.kind == "b":
        raise InputTypeError(
            f"{name} holds True and False, which say what is linked and not how near; give distances or similarities."
        )
    dtype = float_dtype(source.dtype, name)
    _reject_damaged(source, name)
    matrix = source.tocsr(copy=True)
    # Of the formats, a list of coordinates adds up what it holds twice when it becomes rows.
    stored = source.nnz if source.format == "coo" else matrix.nnz
    matrix.sum_duplicates()
    if matrix.nnz != stored:
        raise InputError(
            f"{name} holds {stored - matrix.nnz} pairs more than once, and it is not said which number counts; "
            "make them one, as X.sum_duplicates() does by adding."
        )
    n, values = matrix.shape[0], matrix.data.astype(np.float64)
    rows = np.repeat(np.arange(n), np.diff(matrix.indptr))
    kept = rows != matrix.indices
    if not distances:
        kept &= values != -np.inf
    rows, columns, values = rows[kept], matrix.indices[kept], values[kept]
    _refuse(rows, values, distances, name)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    return SparseDataset(-(values**2) if distances else values, columns, bounds, dtype, name)


def _refuse(rows: np.ndarray, values: np.ndarray, distances: bool, name: str) -> None:
    if not len(values):
        raise InputError(f"{name} holds no pair of different rows; give some.")
    bad = ~np.isfinite(values) | (distances & (values < 0))
    if bad.any():
        what = "NaN, infinite or negative, which no distance is" if distances else "NaN or infinite"
        raise InputError(
            f"{name}: {bad.sum()} values are {what}, the first in row {rows[bad.argmax()]}; leave them out."
        )
    if not distances and values.min() >= 0 < values.max():
        raise InputError(
            f"{name}: no value is negative, so they may be distances or similarities. For distances, as of "
            "kneighbors_graph(mode='distance'), give affinity='precomputed_nearest_neighbors'; from similarities "
            "subtract the largest (X.data -= X.data.max()), which changes no cluster if preference goes with it."
        )
