"""Arrays on their way between the host's memory and the one in which kernels read them.

On the CPU in `cpu`; on a GPU in `gpu`.
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
        """Arrays where the kernels read them, one after the other.

        Parameters
        ----------
        pieces : iterable of ndarray
            Of one dtype and as many columns, the first at least as long as the others.

        Yields
        ------
        array
            Valid until the next but one is asked for.
        """

    def bounded(self, limit: int | None) -> AbstractContextManager[Any]:
        """Keep what this thread allocates, with what is kept for arrays to come, within some bytes; None: no bound.

        Arrays that together exceed the bound are allocated all the same.
        """

    def free_memory(self) -> int:
        """Bytes that the host can still give (all its processes together)."""

    def host_empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Memory to keep rows in."""

    def give_back(self) -> None:
        """Let others have the memory that is kept for arrays to come; takes some milliseconds."""

    def start_to_host(self, array: Array) -> np.ndarray:
        """An array of the same values, which does not change."""

    def synchronize(self) -> None:
        """Wait for kernels that still run: none do, here."""

    def to_device(self, array: Array) -> Array:
        """Return the rows where the kernels read them: C-contiguous in memory."""

    def to_host(self, array: Array) -> np.ndarray:
        """Return a NumPy array of the same values."""


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: MemoryKernels = cpu
    _gpu: MemoryKernels = gpu
