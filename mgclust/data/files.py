"""Base classes of rows in files: what stays as it was, and what is read by rows or as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.data.base import CheckedDataset, Dataset
from mgclust.data.location import Location

__all__ = ["FileDataset", "InFile", "LoadedDataset"]


class InFile(Dataset):
    """Rows or edges at a `Location`, which must stay as it was when it was opened."""

    location: Location
    _stamp: Any
    _held: Any = None

    def hold(self) -> None:
        """Keep all rows in memory, since the file is about to vanish."""
        self._held = self.read(0, self.shape[0])

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start`` to ``stop - 1``; see `mgclust.data.Dataset.read`."""
        if self._held is not None and 0 <= start <= stop <= len(self._held):
            return self._held[start:stop]
        self._check()
        with self.location.reading():
            return super().read(start, stop)

    def _check(self) -> None:
        self.location.check(self._stamp)

    def fingerprint(self) -> str:
        """SHA-256 of the file's bytes, or of the rows where the file was a pipe."""
        if self._held is not None:
            return super().fingerprint()
        self.location.check(self._stamp)
        return self.location.sha256()


class FileDataset(InFile, CheckedDataset):
    """Rows at a `mgclust.data.location.Location`; pickles as the path and what was asked of it.

    A format implements ``_read(start, stop)``, which gets valid bounds and returns these rows.

    Parameters
    ----------
    location : Location
        Of the file, which must stay as it is.
    shape : tuple of int
        (n_samples, n_features), as the file says.
    dtype : numpy.dtype
        Of the numbers in the file; rows are read as float32 or float64.
    """

    def __init__(self, location: Location, shape: Any, dtype: Any) -> None:
        super().__init__(shape, dtype, location.name)
        self.location = location
        self._stamp = location.stamp()
        self._opened: Any = None  # whatever is kept between reads; dropped by pickling

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


class LoadedDataset(FileDataset):
    """Rows of a format that can only be read as a whole: once, when the first of them is needed.

    A format implements ``_load()``, which returns all rows. Parameters are those of `mgclust.data.files.FileDataset`.
    """

    def _load(self) -> np.ndarray:
        raise NotImplementedError

    def reading_bytes(self, rows: int) -> int:
        """Bytes of all rows, twice because they are converted while they are loaded; 0 once they are in memory.

        Parameters
        ----------
        rows : int
            How many rows this process is going to read, which changes nothing: the file is read as a whole.
        """
        return 2 * self.shape[0] * self.shape[1] * self.dtype.itemsize if self._opened is None else 0

    def _check(self) -> None:
        if self._opened is None:  # what is in memory stays as it was; behind a URL, each check is a request
            super()._check()

    def _read(self, start: int, stop: int) -> np.ndarray:
        if self._opened is None:
            self._opened = self._load()
        return np.ascontiguousarray(self._opened[start:stop], dtype=self.dtype)
