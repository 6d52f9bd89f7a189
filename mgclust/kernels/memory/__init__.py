"""Transfer of arrays between host memory and the memory from which kernels read.

`cpu` has the functions for CPUs, and `gpu` the functions for GPUs.
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
    """Functions that the CPU and GPU modules provide."""

    def prefetch(self, pieces: Iterable[np.ndarray]) -> Iterator[Array]:
        """Yield the given arrays, one after another, in the memory from which kernels read.

        Parameters
        ----------
        pieces : iterable of ndarray
            Arrays of the same dtype and number of columns; the first is at least as long as the others.

        Yields
        ------
        array
            The array. Its contents are valid until the next array is requested.
        """

    def bounded(self, limit: int | None) -> AbstractContextManager[Any]:
        """Return a context that bounds the bytes this thread allocates or keeps for later arrays; None: no bound.

        Arrays are still allocated if together they exceed the bound; then, no memory is kept for later arrays.
        """

    def free_memory(self) -> int:
        """Return how many bytes are free."""

    def host_empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Allocate an array for rows in host memory."""

    def give_back(self) -> None:
        """Free the memory that is kept for later arrays; this takes some milliseconds.

        Other processes can use the freed memory.
        """

    def start_to_host(self, array: Array) -> np.ndarray:
        """Start to copy an array to the host; later changes of the array do not affect the copy."""

    def synchronize(self) -> None:
        """Wait until all running kernels have finished."""

    def to_device(self, array: Array) -> Array:
        """Return the array in the memory from which kernels read, C-contiguous."""

    def to_host(self, array: Array) -> np.ndarray:
        """Return a NumPy array with the same values."""


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: MemoryKernels = cpu
    _gpu: MemoryKernels = gpu
