"""Initial centres or memberships that a user gives."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mgclust.algorithms.fuzzy_c_means.initialization import INITS
from mgclust.base.errors import InputError
from mgclust.outside.rooted_files import RootedFile
from mgclust.params import Constraint
from mgclust.params.arrays import finite_array
from mgclust.results.array_files import read_npy_parameter

__all__ = ["Start", "kind_of_start"]


class Start(Constraint):
    """A way to start, centres, or memberships."""

    type = "|".join((*INITS, "FILE"))

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        ways = ", ".join(map(repr, INITS))
        return f"one of {ways}, or an array of centres or of memberships, or the path of a .npy with one"

    def _check(self, name: str, value: Any) -> Any:
        if isinstance(value, (str, os.PathLike)):
            if os.fspath(value) in INITS:
                return value
            value = self._convert(os.fspath(value))
            if isinstance(value, str):
                raise self.refuse(name, value)
        from mgclust.algorithms.common.weights import on_host  # with scikit-learn, which a declaration does without

        try:
            array = on_host(value)
        except ValueError:
            raise self.refuse(name, value) from None
        return finite_array(name, array, 2, self.expected)

    def _convert(self, text: str) -> Any:
        if not text.endswith(".npy"):
            return text
        return read_npy_parameter(text, "a .npy of numbers")

    def _read(self, file: RootedFile) -> Any:
        return read_npy_parameter(file, "a .npy of numbers")


def kind_of_start(given: np.ndarray, n: int, d: int, c: int) -> str:
    """Find whether an array holds centres or memberships."""
    if given.shape == (c, d):
        return "centers"
    if given.shape != (n, c):
        raise InputError(
            f"init has shape {given.shape}, it should be (n_clusters, n_features)=({c}, {d}), centres, or "
            f"(n_samples, n_clusters)=({n}, {c}), memberships; transpose it or set n_clusters."
        )
    off = (given < 0).any(axis=1) | (abs(given.sum(axis=1) - 1.0) > 1e-3)
    if off.any():
        row = int(off.argmax())
        raise InputError(
            f"init holds {off.sum()} rows that are no memberships (not negative, summing to 1), the first is row {row} "
            f"and sums to {given[row].sum():.6g}; divide each row by its sum."
        )
    empty = ~(given > 0).any(axis=0)
    if empty.any():
        raise InputError(f"init gives cluster {int(empty.argmax())} no row; every column needs a positive membership.")
    return "memberships"
