"""Parameters that may be arrays: a number for each row, or row numbers."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.outside.quoting import shortened
from mgclust.outside.rooted_files import RootedFile
from mgclust.params.constraint import Constraint
from mgclust.params.numbers import Real
from mgclust.results.array_files import read_npy_parameter

__all__ = ["RealOrPerRow", "RowNumbers", "finite_array"]


def finite_array(name: str, array: np.ndarray, ndim: int, expected: str) -> np.ndarray:
    """Convert an array of finite numbers to float64; reject any other array."""
    if array.ndim != ndim or array.dtype.kind not in "iuf":
        raise InputError(
            f"{name} is an array of shape {array.shape} and dtype {shortened(array.dtype)}; give {expected}."
        )
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise InputError(
            f"{name} holds {len(bad)} values that are NaN or infinite, the first in row {bad[0, 0]}; "
            "give finite numbers."
        )
    return array.astype(np.float64)


class RealOrPerRow(Real):
    """A finite number for all rows, or an array with a number for each row (on the command line, a .npy file).

    Parameters
    ----------
    above, at_least, below, at_most : float, optional
        Bounds of a number that applies to all rows; see `Real`.
    optional, help, remedy
        See `Constraint`.
    """

    type = "number|FILE"

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        return "a finite number, or a one-dimensional array (.npy on the command line) of finite numbers, one per row"

    def _check(self, name: str, value: Any) -> Any:
        if isinstance(value, (numbers.Real, str)):
            return super()._check(name, value)
        return finite_array(name, np.asarray(value.get() if hasattr(value, "get") else value), 1, self.expected)

    def _convert(self, name: str, text: str) -> Any:
        if text.endswith(".npy"):
            return read_npy_parameter(name, text, "a number or a .npy")
        return super()._convert(name, text)

    def _read(self, name: str, file: RootedFile) -> Any:
        return read_npy_parameter(name, file, "a number or a .npy")


class RowNumbers(Constraint):
    """A list of distinct row numbers, with at least one entry.

    Parameters
    ----------
    optional, help, remedy
        See `Constraint`.
    """

    type = "integers"

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        return "a non-empty list of distinct row numbers >= 0"

    def _check(self, name: str, value: Any) -> np.ndarray:
        try:
            rows = np.asarray(value)
        except ValueError:  # nested lists of unequal lengths
            raise self.refuse(name, value) from None
        numbers = rows.ndim == 1 and rows.size > 0 and rows.dtype.kind in "iu"
        if not numbers or rows.min() < 0 or np.unique(rows).size != rows.size:
            raise self.refuse(name, value)
        return rows.astype(np.int64)
