"""Base classes of all sources of rows, with checks of shapes and number types."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from mgclust.base.by_value import by_value
from mgclust.base.dask_arrays import computed, unannotated
from mgclust.base.errors import InputError
from mgclust.data import chunks
from mgclust.data.chunks import row_digests
from mgclust.outside.quoting import shortened

__all__ = ["TAKE_NUMBERS", "CheckedDataset", "Dataset", "InputTypeError", "check_shape", "dask_digests", "float_dtype"]

# Rows are hashed in blocks of this many bytes, so that workers can hash the chunks of a Dask array that they hold.
_DIGEST_BYTES = 2**24
_MAX_NUMBERS = 2**56
TAKE_NUMBERS = 2**22  # numbers that `Dataset.take` reads at a time


class InputTypeError(InputError, TypeError):
    """Error for input whose elements are not numbers. It is also a TypeError, because scikit-learn expects one."""


class Dataset:
    """Rows that are read on demand.

    `mgclust.open_dataset` makes datasets. To add a source, derive a class and implement ``_read(start, stop)``.

    Parameters
    ----------
    shape : tuple of int
        Numbers of rows and columns: (n_samples, n_features). `shape`, `dtype` and `name` are also attributes.
    dtype : numpy.dtype
        Type of the numbers that `read` returns: float32 or float64.
    name : str
        Name of the source in messages and in the provenance of a result.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,) or None
        True labels of the rows, if the source holds them.
    dask_array : dask.array.Array or None
        The rows as a Dask array with one chunk across the columns, if the source is a Dask array.
    feature_names : list of str or None
        Names of the columns, if the source has them.

    Examples
    --------
    >>> from mgclust import open_dataset
    >>> dataset = open_dataset([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> dataset.shape, dataset.dtype.name
    ((3, 2), 'float64')
    >>> dataset.read(1, 3)
    array([[3., 4.],
           [5., 6.]])
    """

    kind = "dataset"
    feature_names: list[str] | None = None
    atlas: Any = None  # labels of the rows in an atlas: a `mgclust.data.readers.atlas.Atlas`

    def __init__(self, shape: tuple[int, int], dtype: Any, name: str) -> None:
        self.shape = (int(shape[0]), int(shape[1]))
        self.dtype = np.dtype(dtype)
        self.name = name

    @property
    def labels(self) -> np.ndarray | None:
        """True labels of the rows, if the source holds them."""
        return None

    @property
    def dask_array(self) -> Any:
        """The rows as a Dask array, if the source is a Dask array."""
        return None

    @property
    def warnings(self) -> list[str]:
        """Warnings about these rows for the user of a result, one sentence each."""
        return []

    def label_volume(self, labels: Any) -> dict[str, Any] | None:
        """Return the clusters as a volume: the arguments of `mgclust.plots.label_slices`.

        Parameters
        ----------
        labels : array of shape (n_samples,), int
            Clusters 0, 1, ...; -1 for rows in no cluster.

        Returns
        -------
        dict or None
            Arguments by name; None if the rows are not voxels.
        """
        return None

    def reading_bytes(self, rows: int) -> int:
        """Return the bytes of memory that `read` needs in addition to the returned rows, e.g. to decode chunks.

        Parameters
        ----------
        rows : int
            Number of consecutive rows that this process is going to read, a few at a time.

        Returns
        -------
        int
        """
        return 0

    def expect(self, start: int, stop: int) -> None:
        """Announce that this process is going to read only the rows ``start`` to ``stop - 1``.

        A source that can only be read as a whole then keeps only these rows. Other rows can still be read.

        Parameters
        ----------
        start, stop : int
            Range of the rows, with ``0 <= start <= stop <= n_samples``.
        """

    def read(self, start: int, stop: int) -> Any:
        """Read the rows ``start`` to ``stop - 1``.

        Parameters
        ----------
        start, stop : int
            Range of the rows, with ``0 <= start <= stop <= n_samples``.

        Returns
        -------
        array of shape (stop - start, n_features)
            C-contiguous, of type `dtype`; a CuPy array if the source is one. It may be a view of the source: do not
            write into it.

        Raises
        ------
        InputError
            The source was deleted, has changed, or cannot be read.
        """
        if not 0 <= start <= stop <= self.shape[0]:
            raise InputError(f"rows {start}:{stop} should lie within 0:{self.shape[0]} of {self.name}.")
        return self._read(int(start), int(stop))

    def take(self, indices: Any) -> np.ndarray:
        """Read a few rows into host memory.

        Parameters
        ----------
        indices : sequence of int
            Row numbers, in any order.

        Returns
        -------
        ndarray of shape (len(indices), n_features)
            The rows in the order of `indices`, of type `dtype`.
        """
        n, d = self.shape
        chosen = np.asarray(indices, np.int64)
        ascending = np.sort(chosen)
        rows = np.empty((len(chosen), d), self.dtype)
        # Read in blocks, because each read of some file formats starts at the beginning of the file.
        block = max(1, TAKE_NUMBERS // d)
        for start in range(0, n, block):
            stop = min(start + block, n)
            low, high = np.searchsorted(ascending, (start, stop))
            if low < high:
                part = self.read(start, stop)[ascending[low:high] - start]
                rows[low:high] = part.get() if hasattr(part, "get") else part
        return rows[np.searchsorted(ascending, chosen)]

    def _read(self, start: int, stop: int) -> Any:
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return the SHA-256 of the data in hexadecimal, which identifies the data in other runs.

        It covers the bytes of a file, or the shape, dtype and rows of an array. NumPy, CuPy and Dask arrays of equal
        content have the same fingerprint, whatever their chunks.

        Returns
        -------
        str
        """
        block = _digest_rows(self.shape[1], self.dtype)
        n = self.shape[0]
        return self._combine(row_digests(self.read(i, min(i + block, n))) for i in range(0, n, block))

    def checksum(self) -> int | None:
        """Return a checksum of rows that other code may change in memory; None if the source detects changes itself."""
        return None

    def _combine(self, digests: Any) -> str:
        total = hashlib.sha256(f"{self.shape[0]} {self.shape[1]} {self.dtype.name}".encode())
        for digest in digests:
            total.update(digest.tobytes())
        return total.hexdigest()

    def describe(self) -> dict[str, Any]:
        """Describe the source by values that JSON can hold."""
        return {
            "name": self.name,
            "kind": self.kind,
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "labels": self.labels is not None,
            **({} if self.feature_names is None else {"columns": list(self.feature_names)}),
        }

    def __repr__(self) -> str:
        n, d = self.shape
        return f"<{type(self).__name__} {self.name!r}: {n} x {d} {self.dtype.name}>"


class CheckedDataset(Dataset):
    """Base class of sources whose shape and number type are known when they are opened, and are checked here.

    Parameters
    ----------
    shape : tuple of int
        Shape of the source.
    dtype : numpy.dtype
        Type of the source's numbers, which are read as float32 or float64.
    name : str
        Name of the source in messages and in the provenance of a result.

    Raises
    ------
    InputError
        The source is not a table of real numbers.
    """

    def __init__(self, shape: Any, dtype: Any, name: str) -> None:
        super().__init__(check_shape(shape, name), float_dtype(dtype, name), name)


def _digest_rows(n_features: int, dtype: np.dtype) -> int:
    """Return how many rows are hashed at once; the number depends only on the shape and type of the data."""
    return max(1, _DIGEST_BYTES // (n_features * dtype.itemsize))


@unannotated
def dask_digests(array: Any) -> np.ndarray:
    """Return the `row_digests` of the blocks of a Dask array, which the workers compute from the blocks they hold."""
    rows = array.rechunk((_digest_rows(array.shape[1], array.dtype), array.shape[1]))
    sizes = ((1,) * rows.numblocks[0], (32,))
    meta = np.empty((0, 0), dtype=np.uint8)
    hashed = rows.map_blocks(by_value(row_digests, chunks), dtype=np.uint8, chunks=sizes, meta=meta)
    digests: np.ndarray = computed(hashed)
    return digests


def float_dtype(dtype: Any, name: str) -> np.dtype:
    """Return the floating type in which numbers of type `dtype` are read.

    float32 and float64 stay the same. Small integers, bool and float16 become float32, which holds them without loss.
    All other types become float64.

    Raises
    ------
    InputError
        `dtype` is not a type of real numbers.
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        raise InputError(
            f"Complex data not supported: {name} is {shortened(dtype)}; give real numbers, such as abs(X)."
        )
    if dtype.kind not in "fiub":
        what = {"S": "text", "U": "text", "T": "text", "M": "dates", "m": "durations", "O": "Python objects"}
        raise InputError(
            f"{name} holds {what.get(dtype.kind, 'records')} (dtype {shortened(dtype)}), not numbers; convert them "
            "to float first."
        )
    lossless = dtype.itemsize <= 2 or (dtype.kind == "f" and dtype.itemsize == 4)
    return np.dtype(np.float32 if lossless else np.float64)


def check_shape(shape: Any, name: str) -> tuple[int, int]:
    """Return the shape of a table; reject shapes that are not two-dimensional, or have no rows or columns."""
    shape = tuple(shape)
    if not shape:
        raise InputError(
            f"{name} is a single value (shape=()), it should be 2-dimensional: rows x features; give rows, such as "
            "[[1.0, 2.0], [3.0, 4.0]]."
        )
    if len(shape) == 1:
        raise InputError(
            f"{name} is 1-dimensional (shape={shape}), it should be 2-dimensional: rows x features. Reshape your "
            "data with X.reshape(-1, 1) if it has one feature, or X.reshape(1, -1) if it is one row."
        )
    if len(shape) > 2:
        raise InputError(
            f"{name} is {len(shape)}-dimensional (shape={shape}), it should be 2-dimensional: rows x "
            "features; flatten each sample with X.reshape(len(X), -1)."
        )
    n, d = int(shape[0]), int(shape[1])
    if d == 0:
        raise InputError(f"{name} has 0 feature(s) (shape=({n}, 0)) while a minimum of 1 is required.")
    if n == 0:
        raise InputError(f"{name} has 0 sample(s) (shape=(0, {d})) while a minimum of 1 is required.")
    if n * d > _MAX_NUMBERS:
        raise InputError(f"{name} has shape=({n}, {d}), more numbers than any machine holds; check the file.")
    return n, d
