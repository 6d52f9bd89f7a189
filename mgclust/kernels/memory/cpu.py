"""Memory functions of the CPU: kernels read from host memory, so no transfers are needed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import psutil

__all__ = [
    "bounded",
    "free_memory",
    "give_back",
    "host_empty",
    "prefetch",
    "start_to_host",
    "synchronize",
    "to_device",
    "to_host",
]

Array = Any


def to_device(array: Array) -> Array:
    return np.ascontiguousarray(array)


def to_host(array: Array) -> np.ndarray:
    return np.asarray(array)


def start_to_host(array: Array) -> np.ndarray:
    return np.array(array)


def give_back() -> None:
    # The C library keeps tens of MiB of freed arrays. Only the GNU C library has `malloc_trim`.
    if trim := getattr(_c_library(), "malloc_trim", None):
        trim(0)


@functools.cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def bounded(limit: int | None) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext()


def host_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.empty(shape, dtype)


def prefetch(pieces: Iterable[np.ndarray]) -> Iterator[Array]:
    return (to_device(piece) for piece in pieces)


def synchronize() -> None:
    pass


def free_memory() -> int:
    return int(psutil.virtual_memory().available)
