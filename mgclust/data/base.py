"""Bases of all sources of rows, and the shapes and types of number that they may have."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from mgclust.base.by_value import by_value
from mgclust.base.dask_arrays import computed
from mgclust.base.errors import InputError
from mgclust.outside.quoting import shortened

__all__ = ["TAKE_NUMBERS", "CheckedDataset", "Dataset", "InputTypeError", "check_shape", "dask_digests", "float_dtype"]

# Rows are hashed in blocks of this many bytes, so that a Dask array can be hashed where its chunks are.
_DIGEST_BYTES = 2**24
_MAX_NUMBERS = 2**56
TAKE_NUMBERS = 2**22  # read at a time by `Dataset.take`


class InputTypeError(InputError, TypeError):
    """Data whose elements are not numbers at all (scikit-learn expects a TypeError there)."""


class Dataset:
    """Rows that are read when they are asked for.

    Parameters
    ----------
    shape : tuple of int
        (n_samples, n_features); also an attribute, as the following are.
    dtype : numpy.dtype
        Float32 or float64: what `read` returns.
    name : str
        For messages and for the provenance of a result.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,) or None
        The known truth, where the source holds one.
    dask_array : dask.array.Array or None
        The rows as a Dask array with one chunk across the columns, where the source is one.
    feature_names : list of str or None
        Names of the columns, where the source has them.
    """

    kind = "dataset"
    feature_names: list[str] | None = None

    def __init__(self, shape: tuple[int, int], dtype: Any, name: str) -> None:
        self.shape = (int(shape[0]), int(shape[1]))
        self.dtype = np.dtype(dtype)
        self.name = name

    @property
    def labels(self) -> np.ndarray | None:
        """The known truth, where the source holds one."""
        return None

    @property
    def dask_array(self) -> Any:
        """The rows as a Dask array, where the source is one."""
        return None

    @property
    def warnings(self) -> list[str]:
        """Sentences that the user of a result should know of these rows."""
        return []

    def label_volume(self, labels: Any) -> dict[str, Any] | None:
        """The clusters in their place, as `mgclust.plots.label_slices` draws them; None where rows have no place.

        Parameters
        ----------
        labels : array of shape (n_samples,), int
            Clusters 0, 1, ...; -1 for none.
        """
        return None

    def reading_bytes(self, rows: int) -> int:
        """Bytes of memory that `read` takes beside the rows that it returns, such as what is decoded together.

        Parameters
        ----------
        rows : int
            How many neighbouring rows this process is going to read, a few at a time.
        """
        return 0

    def expect(self, start: int, stop: int) -> None:
        """Say that this process is going to read rows ``start`` to ``stop - 1`` only.

        A source that can only be read as a whole then keeps no more than those. Reading others stays possible.

        Parameters
        ----------
        start, stop : int
            ``0 <= start <= stop <= n_samples``.
        """

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start`` to ``stop - 1``.

        Parameters
        ----------
        start, stop : int
            ``0 <= start <= stop <= n_samples``.

        Returns
        -------
        array of shape (stop - start, n_features)
            C-contiguous, of `dtype`; a CuPy array where the source is one. It may be a view of the source:
            do not write into it.

        Raises
        ------
        InputError
            The source vanished, changed, or cannot be read.
        """
        if not 0 <= start <= stop <= self.shape[0]:
            raise InputError(f"rows {start}:{stop} should lie within 0:{self.shape[0]} of {self.name}.")
        return self._read(int(start), int(stop))

    def take(self, indices: Any) -> np.ndarray:
        """A few rows, in host memory.

        Parameters
        ----------
        indices : sequence of int
            Row numbers; the rows come in this order.

        Returns
        -------
        ndarray of shape (len(indices), n_features)
        """
        n, d = self.shape
        chosen = np.asarray(indices, np.int64)
        ascending = np.sort(chosen)
        rows = np.empty((len(chosen), d), self.dtype)
        # In blocks, since a file that is no array has to be read from its beginning for every read.
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
        """SHA-256 that tells whether two runs saw the same data, in hexadecimal.

        Of a file: its bytes. Of an array: its shape, dtype and rows; equal for NumPy, CuPy and Dask arrays
        of equal content, whatever their chunks.
        """
        block = _digest_rows(self.shape[1], self.dtype)
        n = self.shape[0]
        return self._combine(row_digests(self.read(i, min(i + block, n))) for i in range(0, n, block))

    def checksum(self) -> int | None:
        """Checksum of rows that others may write into; None if the source itself notices changes."""
        return None

    def _combine(self, digests: Any) -> str:
        total = hashlib.sha256(f"{self.shape[0]} {self.shape[1]} {self.dtype.name}".encode())
        for digest in digests:
            total.update(digest.tobytes())
        return total.hexdigest()

    def describe(self) -> dict[str, Any]:
        """Say what was read, in plain values that fit into JSON."""
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
    """Rows whose source says its shape and its type of number: both are checked here.

    Parameters
    ----------
    shape : tuple of int
        Of the source.
    dtype : numpy.dtype
        Of the source's numbers, which are read as float32 or float64.
    name : str
        For messages and for the provenance of a result.

    Raises
    ------
    InputError
        It is no table of real numbers.
    """

    def __init__(self, shape: Any, dtype: Any, name: str) -> None:
        super().__init__(check_shape(shape, name), float_dtype(dtype, name), name)


def _digest_rows(n_features: int, dtype: np.dtype) -> int:
    """Return how many rows are hashed at once; depends on the shape of the data alone."""
    return max(1, _DIGEST_BYTES // (n_features * dtype.itemsize))


def row_digests(rows: Any) -> np.ndarray:
    """SHA-256 of one block of rows as an array (1, 32) of bytes; also runs on Dask's workers."""
    host = rows.get() if hasattr(rows, "get") else np.asarray(rows)
    host = np.ascontiguousarray(host, dtype=host.dtype.newbyteorder("<"))
    return np.frombuffer(hashlib.sha256(host.reshape(-1).view(np.uint8).data).digest(), np.uint8)[None, :]


def dask_digests(array: Any) -> np.ndarray:
    """`row_digests` of a Dask array's blocks, by the workers that hold them."""
    rows = array.rechunk((_digest_rows(array.shape[1], array.dtype), array.shape[1]))
    chunks = ((1,) * rows.numblocks[0], (32,))
    meta = np.empty((0, 0), dtype=np.uint8)
    digests: np.ndarray = computed(rows.map_blocks(by_value(row_digests), dtype=np.uint8, chunks=chunks, meta=meta))
    return digests


def float_dtype(dtype: Any, name: str) -> np.dtype:
    """Return the floating type that numbers of ``dtype`` are read as.

    float32 and float64 stay; small integers, bool and float16 fit into float32 without loss; all else
    becomes float64.

    Raises
    ------
    InputError
        For what is no real number.
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
    """Refuse what is not a table of at least one row and one column."""
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
        raise InputError(f"{name} has shape=({n}, {d}), more numbers than any machine holds; is it whole?")
    return n, d
