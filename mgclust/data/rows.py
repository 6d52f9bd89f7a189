"""Rows that are detrended or standardised when they are read.

Each row is treated by itself (in fMRI a row is a voxel and its features are points in time), so the result
does not depend on which rank reads it or on how many rows are read at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mgclust.base.by_value import by_value
from mgclust.base.errors import InputError
from mgclust.data.base import Dataset

__all__ = ["RowTransform", "TransformedDataset"]

# float64 copies of this many numbers at once: large enough for speed, small beside the rows themselves.
_NUMBERS_AT_ONCE = 2**20


@dataclass(frozen=True)
class RowTransform:
    """Steps that change each row, in this order."""

    detrend: bool  # subtract the row's least-squares line
    zscore: bool  # subtract the row's mean and divide by its standard deviation (divisor: n_features)

    def __bool__(self) -> bool:
        """True if it changes rows."""
        return self.detrend or self.zscore

    def __call__(self, x: Any) -> tuple[Any, Any]:
        """Transform rows.

        Parameters
        ----------
        x : array of shape (m, n_features)
            NumPy or CuPy.

        Returns
        -------
        rows : array of shape (m, n_features)
            In float64. A row with NaN or infinity is left as it is: a later count of those values is that of the
            source.
        constant : array of shape (m,), bool
            Rows that cannot be scaled because nothing varies in them.
        """
        xp = x.__array_namespace__()
        out = xp.empty(x.shape, dtype="float64")
        constant = xp.zeros(x.shape[0], dtype=bool)
        step = max(1, _NUMBERS_AT_ONCE // max(1, x.shape[1]))
        for start in range(0, x.shape[0], step):
            part = slice(start, start + step)
            out[part], constant[part] = self._apply(x[part], xp)
        return out, constant

    def _apply(self, x: Any, xp: Any) -> tuple[Any, Any]:
        finite = xp.isfinite(x).all(axis=1, keepdims=True)
        wide = xp.where(finite, x, 0).astype("float64")
        scale = abs(wide).max(axis=1, keepdims=True)
        wide = wide - wide.mean(axis=1, keepdims=True)
        if self.detrend:
            time = xp.arange(x.shape[1], dtype="float64") - (x.shape[1] - 1) / 2
            wide = wide - (wide * time).sum(axis=1, keepdims=True) / (time * time).sum() * time
        constant = xp.zeros(x.shape[0], dtype=bool)
        if self.zscore:
            deviation = (wide * wide).mean(axis=1, keepdims=True) ** 0.5
            # What subtracting the mean leaves of a constant row is rounding, not signal.
            flat = deviation <= 1e-12 * scale
            constant = (flat & finite)[:, 0]
            wide = wide / xp.where(flat, 1.0, deviation)
        return xp.where(finite, wide, x), constant


class TransformedDataset(Dataset):
    """Another dataset's rows, each passed through a `RowTransform`."""

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
        """The source's labels."""
        return self.source.labels

    @property
    def warnings(self) -> list[str]:
        """The source's warnings."""
        return self.source.warnings

    @property
    def dask_array(self) -> Any:
        """The source's Dask array with the transform appended to its graph."""
        array = self.source.dask_array
        if array is None:
            return None
        return array.map_blocks(by_value(partial(_transform_chunk, transform=self.transform)), dtype=self.dtype)

    def fingerprint(self) -> str:
        """SHA-256 of the source; `describe` says what was done to it."""
        return self.source.fingerprint()

    def checksum(self) -> int | None:
        """See `Dataset.checksum`."""
        return self.source.checksum()

    def describe(self) -> dict[str, Any]:
        """Say what was read and what was done to each row."""
        done = {"standardize": "zscore" if self.transform.zscore else None, "detrend": self.transform.detrend}
        return {**self.source.describe(), **done}

    def reading_bytes(self, rows: int) -> int:
        """Bytes of the source, and of some rows in float64."""
        return self.source.reading_bytes(rows) + 5 * 8 * max(_NUMBERS_AT_ONCE, self.shape[1])

    def _read(self, start: int, stop: int) -> Any:
        rows, constant = self.transform(self.source.read(start, stop))
        if bool(constant.any()):
            raise self._reject_constant_rows()
        return rows

    def _reject_constant_rows(self) -> InputError:
        # One more pass, in this case only, so that every rank says the same of the whole source.
        n, d = self.shape
        step = max(1, _NUMBERS_AT_ONCE // d)
        count, first = 0, -1
        for start in range(0, n, step):
            _, constant = self.transform(self.source.read(start, min(start + step, n)))
            here = int(constant.sum())
            if here and not count:
                first = start + int(constant.argmax())
            count += here
        return _constant_rows(count, n, first)


def _constant_rows(count: int, of: int, first: int) -> InputError:
    return InputError(
        f"standardize='zscore' is undefined for constant rows: {count} of {of} rows, the first is row "
        f"{first}; drop them or leave standardize out."
    )


def _transform_chunk(chunk: Any, transform: RowTransform, block_info: Any = None) -> Any:
    """Transform one chunk of a Dask array on its worker."""
    if not chunk.size:  # Dask infers types by calling with an empty chunk
        return chunk
    rows, constant = transform(chunk)
    if bool(constant.any()):
        offset = block_info[0]["array-location"][0][0] if block_info else 0
        raise _constant_rows(int(constant.sum()), len(chunk), offset + int(constant.argmax()))
    return rows
