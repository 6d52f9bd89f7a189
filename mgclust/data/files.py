"""Base classes of rows in files, which must not change while they are open."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.data.base import CheckedDataset, Dataset
from mgclust.data.location import Location

__all__ = ["FileDataset", "InFile", "LoadedDataset"]


class InFile(Dataset):
    """Rows or edges at a `Location`. The content must not change after it was opened."""

    location: Location
    _stamp: Any
    _held: Any = None

    def hold(self) -> None:
        """Read all rows into memory, because the file is going to be deleted."""
        self._held = self.read(0, self.shape[0])

    def read(self, start: int, stop: int) -> Any:
        """Read the rows ``start`` to ``stop - 1``; see `mgclust.data.Dataset.read`."""
        if self._held is not None and 0 <= start <= stop <= len(self._held):
            return self._held[start:stop]
        self._check()
        with self.location.reading():
            return super().read(start, stop)

    def _check(self) -> None:
        self.location.check(self._stamp)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the file's bytes, or of the rows if the file was a pipe."""
        if self._held is not None:
            return super().fingerprint()
        self.location.check(self._stamp)
        return self.location.sha256()


class FileDataset(InFile, CheckedDataset):
    """Rows at a `mgclust.data.location.Location`. A pickle holds only the path and the options.

    To add a format, implement ``_read(start, stop)``. It is called with valid bounds, and returns the rows ``start`` to
    ``stop - 1``.

    Parameters
    ----------
    location : Location
        Location of the file, which must not change.
    shape : tuple of int
        Numbers of rows and columns in the file: (n_samples, n_features).
    dtype : numpy.dtype
        Type of the numbers in the file. Rows are read as float32 or float64.
    """

    def __init__(self, location: Location, shape: Any, dtype: Any) -> None:
        super().__init__(shape, dtype, location.name)
        self.location = location
        self._stamp = location.stamp()
        self._opened: Any = None  # anything that is kept between reads; pickles leave it out

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


class LoadedDataset(FileDataset):
    """Rows in a format that can only be read as a whole; the file is read when the first row is needed.

    To add a format, implement ``_load()``, which returns all rows.

    Parameters are those of `mgclust.data.files.FileDataset`.
    """

    def _load(self) -> np.ndarray:
        raise NotImplementedError

    def reading_bytes(self, rows: int) -> int:
        """Return twice the bytes of all rows, because loading converts them; 0 once the rows are in memory.

        Parameters
        ----------
        rows : int
            Number of rows that this process is going to read. It has no effect, because the file is read as a whole.

        Returns
        -------
        int
        """
        return 2 * self.shape[0] * self.shape[1] * self.dtype.itemsize if self._opened is None else 0

    def _check(self) -> None:
        if self._opened is None:  # rows in memory cannot change, and each check of a URL is a request
            super()._check()

    def _read(self, start: int, stop: int) -> np.ndarray:
        if self._opened is None:
            self._opened = self._load()
        return np.ascontiguousarray(self._opened[start:stop], dtype=self.dtype)
