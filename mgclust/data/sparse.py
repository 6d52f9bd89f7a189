"""Sparse matrices in memory, read as rows in which missing elements are 0, or as similarities of some pairs of rows."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import CheckedDataset, Dataset, InputTypeError, check_shape, float_dtype

__all__ = ["SparseDataset", "SparseRows", "is_sparse", "open_sparse", "open_sparse_rows"]


def is_sparse(source: Any) -> bool:
    """Return whether `source` is a sparse matrix of SciPy or CuPy."""
    return type(source).__module__.partition(".")[0] in ("scipy", "cupyx") and hasattr(source, "tocsr")


class SparseRows(CheckedDataset):
    """Rows of a sparse matrix. Only the rows that are being read become dense.

    Parameters
    ----------
    matrix : csr_matrix or csr_array
        The matrix, without duplicate elements; also an attribute.
    name : str
        Name of the source in messages.
    """

    kind = "sparse rows"

    def __init__(self, matrix: Any, name: str) -> None:
        super().__init__(matrix.shape, matrix.dtype, name)
        self.matrix = matrix

    def take(self, indices: Any) -> np.ndarray:
        """Read a few rows; see `Dataset.take`."""
        return np.asarray(self.matrix[np.asarray(indices, np.int64)].toarray(), self.dtype)

    def _read(self, start: int, stop: int) -> np.ndarray:
        return np.ascontiguousarray(self.matrix[start:stop].toarray(), dtype=self.dtype)


def open_sparse_rows(source: Any) -> SparseRows:
    """Open a sparse matrix as rows. Elements that are not stored are 0, and duplicate elements are added up.

    Parameters
    ----------
    source : sparse matrix or array of SciPy or CuPy, shape (n_samples, n_features)
        The rows.

    Raises
    ------
    InputError
        The matrix is damaged, or is not a table of real numbers.
    """
    source, name = _on_host(source)
    check_shape(source.shape, name)
    dtype = float_dtype(source.dtype, name)
    _reject_damaged(source, name)
    # In uint8, 257 duplicates of 1 would add up to 1. An element that is True twice is True.
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
            source.check_format(full_check=True)  # SciPy's loops do not check that indices are in range
        except ValueError as error:
            raise InputError(f"{name} is damaged: {error}; build it again.") from error


class SparseDataset(Dataset):
    """Similarities of some pairs of rows; all other pairs and the diagonal are -inf.

    Parameters
    ----------
    values, columns : ndarray of shape (n_pairs,), float and int
        Similarity and second row of each pair, sorted by the first row. No pair occurs twice, and no pair joins a row
        to itself. `values`, `columns` and `bounds` are also attributes.
    bounds : ndarray of shape (n_samples + 1,), int64
        The pairs of row i are ``bounds[i]`` to ``bounds[i + 1] - 1``.
    dtype : dtype
        Type in which rows are read.
    name : str
        Name of the source in messages.
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
        """Return the SHA-256 of the shape and the stored pairs."""
        total = hashlib.sha256(f"sparse {self.shape[0]} {self.dtype.name}".encode())
        for array, kind in ((self.bounds, "<i8"), (self.columns, "<i8"), (self.values, "<f8")):
            total.update(np.ascontiguousarray(array, kind).data)
        return total.hexdigest()


def open_sparse(source: Any, *, distances: bool) -> SparseDataset:
    """Open a sparse matrix as similarities of pairs of rows.

    Parameters
    ----------
    source : sparse matrix or array of SciPy or CuPy, shape (n_samples, n_samples)
        Every stored element is a pair, including stored zeros, except elements on the diagonal and -inf.
    distances : bool
        True: the numbers are distances, and a similarity is minus the squared distance. False: the numbers are
        similarities.

    Raises
    ------
    InputError
        The matrix is not square, holds no pair or a pair twice, or holds invalid numbers.
    """
    source, name = _on_host(source)
    if source.ndim != 2 or source.shape[0] != source.shape[1]:
        raise InputError(f"{name} has shape {tuple(source.shape)}; a matrix of pairs of rows should be square.")
    if source.dtype.kind == "b":
        raise InputTypeError(
            f"{name} holds True and False, which do not state how near rows are; give distances or similarities."
        )
    dtype = float_dtype(source.dtype, name)
    _reject_damaged(source, name)
    matrix = source.tocsr(copy=True)
    # Only a COO matrix adds up duplicates when it is converted to CSR.
    stored = source.nnz if source.format == "coo" else matrix.nnz
    matrix.sum_duplicates()
    if matrix.nnz != stored:
        raise InputError(
            f"{name} holds {stored - matrix.nnz} pairs more than once; remove the duplicates, or add them up with "
            "X.sum_duplicates()."
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
        raise InputError(f"{name} holds no pair of two different rows; give at least one such pair.")
    bad = ~np.isfinite(values) | (distances & (values < 0))
    if bad.any():
        what = "not distances, but NaN, infinite or negative" if distances else "NaN or infinite"
        raise InputError(
            f"{name}: {bad.sum()} values are {what}, the first in row {rows[bad.argmax()]}; leave them out."
        )
    if not distances and values.min() >= 0 < values.max():
        raise InputError(
            f"{name}: no value is negative, so the values may be distances or similarities. For distances, e.g. from "
            "kneighbors_graph(mode='distance'), give affinity='precomputed_nearest_neighbors'. For similarities, "
            "subtract their maximum (X.data -= X.data.max()); to keep the clusters, also subtract it from preference."
        )
