"""Some rows of a dataset, as a separate dataset."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.data.base import TAKE_NUMBERS, Dataset

__all__ = ["SelectedRows"]


class SelectedRows(Dataset):
    """Some rows of another dataset, read on demand.

    Parameters
    ----------
    source : Dataset
        The other dataset.
    indices : ndarray of shape (m,), int
        Row numbers, ascending.
    pairwise : bool
        Whether rows hold distances to all rows. If so, the columns with these numbers are also selected.
    """

    kind = "array"  # rows are read in this process and sent to other processes

    def __init__(self, source: Dataset, indices: np.ndarray, *, pairwise: bool = False) -> None:
        super().__init__((len(indices), len(indices) if pairwise else source.shape[1]), source.dtype, source.name)
        self._source, self._indices, self._pairwise = source, indices, pairwise

    def reading_bytes(self, rows: int) -> int:
        """Return the bytes that the source needs, and the bytes of the block of rows from which rows are selected."""
        n, d = self._source.shape
        return self._source.reading_bytes(n) + min(TAKE_NUMBERS, n * d) * self.dtype.itemsize

    def _read(self, start: int, stop: int) -> Any:
        rows = self._source.take(self._indices[start:stop])
        return np.ascontiguousarray(rows[:, self._indices]) if self._pairwise else rows
