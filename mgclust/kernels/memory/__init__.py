"""Transfer of arrays between the host's memory and the memory from which kernels read them.

`cpu` has the functions for CPUs, and `gpu` those for GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from mgclust.kernels.memory import cpu, gpu

__all__ = ["MemoryKernels"]

Array = Any


class MemoryKernels(Protocol):
    """Functions that both devices have, with these meanings."""

    def prefetch(self, pieces: Iterable[np.ndarray]) -> Iterator[Array]:
        """Yield arrays in the memory from which kernels read, one after the other.

        Parameters
        ----------
        pieces : iterable of ndarray
            Arrays of the same dtype and number of columns; the first is at least as long as the others.

        Yields
        ------
        array
            Valid until the array after the next one is requested.
        """

    def bounded(self, limit: int | None) -> AbstractContextManager[Any]:
        """Bound the bytes of this thread's allocations, including memory kept for later arrays; None: no bound.

        Arrays that exceed the bound together are allocated nevertheless.
        """

    def free_memory(self) -> int:
        """Return how many bytes are free."""

    def host_empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Allocate host memory to keep rows in."""

    def give_back(self) -> None:
        """Free memory that is kept for later arrays, so that others can use it; takes some milliseconds."""

    def start_to_host(self, array: Array) -> np.ndarray:
        """Start to copy an array to the host; the copy does not change if the array does."""

    def synchronize(self) -> None:
        """Wait for kernels that still run."""

    def to_device(self, array: Array) -> Array:
        """Return the rows in the memory from which kernels read, C-contiguous."""

    def to_host(self, array: Array) -> np.ndarray:
        """Return a NumPy array of the same values."""


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: MemoryKernels = cpu
    _gpu: MemoryKernels = gpu
