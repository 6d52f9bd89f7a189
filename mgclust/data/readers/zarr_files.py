"""Rows in zarr arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import Dataset
from mgclust.data.files import FileDataset
from mgclust.data.location import Location
from mgclust.data.readers.tables import read_groups
from mgclust.outside.inflation import check_memory
from mgclust.outside.quoting import shortened
from mgclust.results.array_files import open_zarr

__all__ = ["ZarrDataset"]

_MAX_ACROSS = 2**14  # files that may be opened to read one row


class ZarrDataset(FileDataset):
    """A two-dimensional zarr array, which is read by rows."""

    kind = "zarr"

    def __init__(self, location: Location) -> None:
        array = _zarr_rows(location)
        super().__init__(location, array.shape, array.dtype)
        self._band = int((array.shards or array.chunks)[0])

    def fingerprint(self) -> str:
        """Return the SHA-256 of the files of the directory, or of the rows if the array is at a URL."""
        return Dataset.fingerprint(self) if self.location.remote else super().fingerprint()

    def reading_bytes(self, rows: int) -> int:
        """Return the bytes of a band of chunks, once as decoded and once as rows."""
        return 2 * min(self._band, self.shape[0]) * self.shape[1] * self.dtype.itemsize

    def _read(self, start: int, stop: int) -> np.ndarray:
        edges = np.append(np.arange(0, self.shape[0], self._band), self.shape[0])
        return read_groups(self, edges, self._band_rows, start, stop)

    def _band_rows(self, band: int) -> np.ndarray:
        """Return the rows of a band of chunks. They are kept, because the next read often continues there."""
        if self._opened is None:
            self._opened = _zarr_rows(self.location), -1, None
        array, last, rows = self._opened
        if last != band:
            del rows
            self._opened = array, -1, None  # free one band before the next is read
            part = array[band * self._band : (band + 1) * self._band]
            self._opened = array, band, np.ascontiguousarray(part, dtype=self.dtype)
        found: np.ndarray = self._opened[2]
        return found


def _zarr_rows(location: Location) -> Any:
    with location.reading():
        if not location.remote and not location.exists():
            raise FileNotFoundError(location.path)
        try:
            arrays = open_zarr(location.beneath or location.path)
        except FileNotFoundError as error:
            raise InputError(f"{location.name} holds no zarr array, or does not exist; check the path.") from error
        if (len(arrays) > 1 and "X" not in arrays) or not arrays:
            raise InputError(
                f"{location.name} is a zarr group of {len(arrays)} arrays "
                f"({shortened(', '.join(sorted(arrays))) or 'none'}); give the path of one of them."
            )
        array = arrays["X"] if "X" in arrays else next(iter(arrays.values()))
        across = -(-array.shape[1] // array.chunks[1]) if array.ndim == 2 else 0
        if across > _MAX_ACROSS:
            raise InputError(
                f"{location.name} has {across:,} chunks across its {array.shape[1]:,} columns; at most "
                f"{_MAX_ACROSS:,} may be opened for a row; write it with wider chunks."
            )
        # A chunk is always decoded as a whole.
        check_memory(f"a chunk of {location.name}", 2 * math.prod(array.shards or array.chunks) * array.dtype.itemsize)
        return array
