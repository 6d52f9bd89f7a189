"""Parameter `init` of fuzzy c-means: the name of a start, or an array of centres or memberships."""

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
    """Constraint of `init`: the name of a start, an array of centres, or an array of memberships."""

    type = "|".join((*INITS, "FILE"))

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        ways = ", ".join(map(repr, INITS))
        return f"one of {ways}, an array of centres or memberships, or the path of a .npy file with such an array"

    def _check(self, name: str, value: Any) -> Any:
        if isinstance(value, (str, os.PathLike)):
            if os.fspath(value) in INITS:
                return value
            value = self._convert(name, os.fspath(value))
            if isinstance(value, str):
                raise self.refuse(name, value)
        from mgclust.algorithms.common.weights import (
            on_host,
        )  # here, because it imports scikit-learn, which declarations do not need

        try:
            array = on_host(value)
        except ValueError:
            raise self.refuse(name, value) from None
        return finite_array(name, array, 2, self.expected)

    def _convert(self, name: str, text: str) -> Any:
        if not text.endswith(".npy"):
            return text
        return read_npy_parameter(name, text, "a .npy of numbers")

    def _read(self, name: str, file: RootedFile) -> Any:
        return read_npy_parameter(name, file, "a .npy of numbers")


def kind_of_start(given: np.ndarray, n: int, d: int, c: int) -> str:
    """Return "centers" or "memberships", depending on the shape of an array; reject any other array."""
    if given.shape == (c, d):
        return "centers"
    if given.shape != (n, c):
        raise InputError(
            f"init has shape {given.shape} and should have (n_clusters, n_features)=({c}, {d}) for centres, or "
            f"(n_samples, n_clusters)=({n}, {c}) for memberships; transpose it or set n_clusters."
        )
    off = (given < 0).any(axis=1) | (abs(given.sum(axis=1) - 1.0) > 1e-3)
    if off.any():
        row = int(off.argmax())
        raise InputError(
            f"init has {off.sum()} rows that are not memberships (non-negative, with sum 1), and the first is row "
            f"{row}, which sums to {given[row].sum():.6g}; divide each row by its sum."
        )
    empty = ~(given > 0).any(axis=0)
    if empty.any():
        raise InputError(
            f"init has no positive membership for cluster {int(empty.argmax())}; give each cluster at least one row "
            "with a positive membership."
        )
    return "memberships"
