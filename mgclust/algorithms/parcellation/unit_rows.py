"""Rows of length 1, whose products are correlations if the mean of each row is 0."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["means_and_lengths", "unit_rows"]

PIECE = 1 << 22  # number of values that are converted to float64 at a time
# A row is constant if its length is at most this fraction of the length of equal values of its size: half a unit in the
# last place of float32, so that only rounding could make it vary.
CONSTANT = 2.0**-25


def means_and_lengths(rows: np.ndarray, centered: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each row, and the length of the row after the mean is subtracted.

    Parameters
    ----------
    rows : float32 or float64 array of shape (n, n_features)
    centered : bool
        False: no mean is subtracted, and the means are 0.

    Returns
    -------
    means, lengths : float64 arrays of shape (n,)
        The length of a constant row is exactly 0, although rounding errors remain if its mean is subtracted.
    """
    means, lengths = np.zeros(len(rows)), np.empty(len(rows))
    step = max(1, PIECE // max(rows.shape[1], 1))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        some = rows[part].astype(np.float64)
        size = np.abs(some).max(axis=1, initial=0)
        if centered:
            means[part] = some.mean(axis=1)
            some -= means[part, None]
        length = np.sqrt((some * some).sum(axis=1))
        lengths[part] = np.where(length <= CONSTANT * size * rows.shape[1] ** 0.5, 0.0, length)
    return means, lengths


def unit_rows(rows: np.ndarray, centered: bool = True, dtype: Any = np.float32, length: float = 1.0) -> np.ndarray:
    """Scale rows to length 1, or to another length.

    Parameters
    ----------
    rows : float32 or float64 array of shape (n, n_features)
    centered : bool
        Whether the mean of each row is subtracted first.
    dtype : dtype
        Type of the result.
    length : float
        Length of each row of the result.

    Returns
    -------
    array of shape (n, n_features)
        Constant rows are 0; if `centered` is False, only rows of length 0 are 0.
    """
    means, lengths = means_and_lengths(rows, centered)
    out = np.empty(rows.shape, dtype)
    step = max(1, PIECE // max(rows.shape[1], 1))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        found = lengths[part, None]
        centred = rows[part] - means[part, None] if centered else rows[part].astype(np.float64)
        out[part] = np.divide(centred, found / length, out=np.zeros(centred.shape), where=found > 0)
    return out
