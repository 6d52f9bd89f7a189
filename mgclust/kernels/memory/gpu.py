"""Memory functions of one CUDA device; `prefetch` copies from pinned host memory while kernels run."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import cupy as cp
import cupyx
import numpy as np

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
    return cp.ascontiguousarray(cp.asarray(array))


def to_host(array: Array) -> np.ndarray:
    return cp.asnumpy(array)


def start_to_host(array: Array) -> np.ndarray:
    return cp.asnumpy(array, out=cupyx.empty_pinned(array.shape, array.dtype), blocking=False)


def give_back() -> None:
    cp.get_default_memory_pool().free_all_blocks()


def bounded(limit: int | None) -> contextlib.AbstractContextManager[Any]:
    if limit is None:
        return contextlib.nullcontext()
    pool = cp.get_default_memory_pool()
    most = pool.used_bytes() + limit

    class PoolBound(cp.cuda.MemoryHook):  # type: ignore[misc]
        """Hook that frees cached blocks before the pool exceeds a bound; without it, the pool keeps all its memory."""

        name = "bound of a run"

        def alloc_preprocess(self, **_: Any) -> None:
            if pool.total_bytes() > most:  # includes the array that is being allocated
                pool.free_all_blocks()

    bound: contextlib.AbstractContextManager[Any] = PoolBound()
    return bound


def host_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return cupyx.empty_pinned(shape, dtype)


def prefetch(pieces: Iterable[np.ndarray]) -> Iterator[Array]:
    link = cp.cuda.Stream(non_blocking=True)
    link.wait_event(_event())
    buffers: list[Array] = [None, None]
    free: list[Any] = [None, None]  # events after which kernels no longer read the buffer
    flight: tuple[int, Array, Any] | None = None
    for turn, piece in enumerate(itertools.chain(pieces, [None])):
        before, flight, slot = flight, None, turn % 2
        if piece is not None:
            if buffers[slot] is None:
                buffers[slot] = cp.empty(piece.shape, piece.dtype)
            if free[slot] is not None:
                link.wait_event(free[slot])
            x = buffers[slot][: len(piece)]
            x.set(piece, stream=link)
            flight = slot, x, _event(link)
        if before is not None:
            last, x, arrived = before
            cp.cuda.get_current_stream().wait_event(arrived)
            yield x
            free[last] = _event()


def _event(stream: Any = None) -> Any:
    event = cp.cuda.Event(disable_timing=True)
    event.record(stream or cp.cuda.get_current_stream())
    return event


def synchronize() -> None:
    cp.cuda.get_current_stream().synchronize()


def free_memory() -> int:
    free, _ = cp.cuda.Device().mem_info
    return int(free + cp.get_default_memory_pool().free_bytes())
