"""Host memory as the kernels' memory: nothing travels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import psutil

__all__ = ["arriving", "free_memory", "host_empty", "start_to_host", "synchronize", "to_device", "to_host"]

Array = Any


def to_device(array: Array) -> Array:
    """Return the rows where the kernels read them: C-contiguous in memory."""
    return np.ascontiguousarray(array)


def to_host(array: Array) -> np.ndarray:
    """Return a NumPy array of the same values."""
    return np.asarray(array)


def start_to_host(array: Array) -> np.ndarray:
    """An array of the same values, which nobody changes."""
    return np.array(array)


def host_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Memory to keep rows in."""
    return np.empty(shape, dtype)


def arriving(pieces: Iterable[np.ndarray]) -> Iterator[Array]:
    """Arrays where the kernels read them, one after the other.

    Parameters
    ----------
    pieces : iterable of ndarray

    Yields
    ------
    array
        Valid until the next but one is asked for.
    """
    return (to_device(piece) for piece in pieces)


def synchronize() -> None:
    """Wait for kernels that still run: none do, here."""


def free_memory() -> int:
    """Bytes that the host can still give (all its processes together)."""
    return int(psutil.virtual_memory().available)
