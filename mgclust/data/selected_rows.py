"""Some rows of a source, as if they were all."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.data.base import TAKE_NUMBERS, Dataset

__all__ = ["SelectedRows"]


class SelectedRows(Dataset):
    """Some rows of another dataset, read when they are asked for.

    Parameters
    ----------
    source : Dataset
    indices : ndarray of shape (m,), int
        Row numbers, ascending.
    pairwise : bool
        Rows hold distances to all rows: of their columns the same are left.
    """

    kind = "array"  # read here, and sent to ranks elsewhere

    def __init__(self, source: Dataset, indices: np.ndarray, *, pairwise: bool = False) -> None:
        super().__init__((len(indices), len(indices) if pairwise else source.shape[1]), source.dtype, source.name)
        self._source, self._indices, self._pairwise = source, indices, pairwise

    def reading_bytes(self, rows: int) -> int:
        """Bytes of the source, and of the rows among which some are chosen."""
        n, d = self._source.shape
        return self._source.reading_bytes(n) + min(TAKE_NUMBERS, n * d) * self.dtype.itemsize

    def _read(self, start: int, stop: int) -> Any:
        rows = self._source.take(self._indices[start:stop])
        return np.ascontiguousarray(rows[:, self._indices]) if self._pairwise else rows
