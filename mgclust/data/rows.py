"""Rows that are detrended or standardised when they are read.

Each row is transformed by itself (in fMRI, a row is a voxel and its features are points in time). So the result does
not depend on which rank reads a row, or on how many rows are read at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mgclust.base.by_value import by_value
from mgclust.base.errors import InputError
from mgclust.data import chunks
from mgclust.data.base import Dataset

__all__ = ["RowTransform", "TransformedDataset"]


@dataclass(frozen=True)
class RowTransform:
    """Transformations of each row: first `detrend`, then `zscore`."""

    detrend: bool  # subtract the row's least-squares line
    zscore: bool  # subtract the row's mean and divide by its standard deviation
    sample: bool = False  # the divisor of the variance is n_features - 1 instead of n_features

    @property
    def standardize(self) -> str | None:
        """Value of the option `standardize`."""
        return None if not self.zscore else "zscore_sample" if self.sample else "zscore"

    def __bool__(self) -> bool:
        """True if any transformation changes rows."""
        return self.detrend or self.zscore

    def __call__(self, x: Any) -> tuple[Any, Any]:
        """Transform rows.

        Parameters
        ----------
        x : array of shape (m, n_features)
            Rows, as a NumPy or CuPy array.

        Returns
        -------
        rows : array of shape (m, n_features)
            The transformed rows, in float64. A row with NaN or infinity stays unchanged, so that a later count finds as
            many of these values as the source has.
        constant : array of shape (m,), bool
            True for rows that cannot be scaled, because all their values are equal.
        """
        return chunks.transformed(x, self.detrend, self.zscore, self.sample)


class TransformedDataset(Dataset):
    """Rows of another dataset, each transformed by a `RowTransform`."""

    def __init__(self, source: Dataset, transform: RowTransform) -> None:
        super().__init__(source.shape, np.dtype(np.float64), source.name)
        if transform.detrend and self.shape[1] < 3:
            raise InputError(
                f"detrend=True needs n_features={self.shape[1]} to be >= 3: a line fits two values exactly; "
                "leave detrend out."
            )
        self.kind = source.kind
        self.source = source
        self.feature_names = source.feature_names
        self.transform = transform

    @property
    def labels(self) -> np.ndarray | None:
        """Labels of the source."""
        return self.source.labels

    @property
    def warnings(self) -> list[str]:
        """Warnings of the source."""
        return self.source.warnings

    @property
    def dask_array(self) -> Any:
        """Dask array of the source, with the transformation appended to its graph."""
        array = self.source.dask_array
        if array is None:
            return None
        what = {"detrend": self.transform.detrend, "zscore": self.transform.zscore, "sample": self.transform.sample}
        return array.map_blocks(by_value(partial(chunks.transform_chunk, **what), chunks), dtype=self.dtype)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the source; `describe` lists the transformations."""
        return self.source.fingerprint()

    def checksum(self) -> int | None:
        """See `Dataset.checksum`."""
        return self.source.checksum()

    def describe(self) -> dict[str, Any]:
        """Describe the source and the transformations of its rows."""
        done = {"standardize": self.transform.standardize, "detrend": self.transform.detrend}
        return {**self.source.describe(), **done}

    def reading_bytes(self, rows: int) -> int:
        """Return the bytes that the source needs, and the bytes of some rows in float64."""
        return self.source.reading_bytes(rows) + 5 * 8 * max(chunks.NUMBERS_AT_ONCE, self.shape[1])

    def _read(self, start: int, stop: int) -> Any:
        rows, constant = self.transform(self.source.read(start, stop))
        if bool(constant.any()):
            raise self._reject_constant_rows()
        return rows

    def _reject_constant_rows(self) -> InputError:
        # Pass over all rows once more, so that every rank reports the count of the whole source.
        n, d = self.shape
        step = max(1, chunks.NUMBERS_AT_ONCE // d)
        count, first = 0, -1
        for start in range(0, n, step):
            _, constant = self.transform(self.source.read(start, min(start + step, n)))
            here = int(constant.sum())
            if here and not count:
                first = start + int(constant.argmax())
            count += here
        return InputError(chunks.constant_rows(count, n, first))
