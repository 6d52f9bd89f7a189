"""Checks of the series and labels to evaluate, and the completed fraction of an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.base.errors import InputError

__all__ = ["OnProgress", "checked_labels", "checked_series", "ignore", "part_of"]

MAX_LABELS = 1 << 20  # bounds labels with gaps, because sums are kept for each number up to the largest label

OnProgress = Callable[[float], None]


def ignore(fraction: float) -> None:
    """Receive the completed fraction, and do nothing."""


def part_of(on_progress: OnProgress, begin: float, end: float) -> OnProgress:
    """Return a function that receives the completed fraction of a part; the part is `begin` to `end` of the whole."""
    return lambda fraction: on_progress(begin + (end - begin) * fraction)


def checked_series(series: Any, name: str) -> np.ndarray:
    """Return series as a float32 or float64 array of shape (n, n_timepoints)."""
    rows = np.asarray(series)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    if rows.ndim != 2 or not rows.size:
        raise InputError(f"{name}: shape {rows.shape} should be (n, n_timepoints); give one series per row.")
    if not np.isfinite([rows.min(), rows.max()]).all():
        raise InputError(f"{name}: some values are not finite; leave out these rows or points in time.")
    return rows


def checked_labels(labels: Any, n: int, name: str) -> np.ndarray:
    """Return label vectors as an int32 array of shape (n_candidates, n)."""
    given = np.asarray(labels)
    if given.ndim not in (1, 2) or len(given) != n:
        raise InputError(
            f"{name}: shape {given.shape} should be ({n},) or ({n}, n_candidates); give one label per row."
        )
    if given.dtype.kind not in "iu":
        raise InputError(f"{name}: type {given.dtype} should be an integer type; give whole numbers.")
    if given.size and int(given.max()) >= max(n, MAX_LABELS):
        raise InputError(
            f"{name}: the label {int(given.max())} should be below {max(n, MAX_LABELS)}; number the parcels from 0 on."
        )
    return np.ascontiguousarray(np.maximum(given.reshape(n, -1), -1).T, np.int32)
