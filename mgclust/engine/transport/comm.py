"""Communication between ranks: a few collectives, and a stream that brings every block of rows to every rank.

::

    SoloComm   one rank: nothing to send
    HostComm   CPU ranks (in `mgclust.engine.transport.host_comm`): raw bytes over sockets, small arrays through a tree
               of ranks, large arrays from rank to rank
    NcclComm   GPUs (in `mgclust.engine.transport.cuda`): NCCL for device arrays, a HostComm for small host values

All ranks call the same collectives in the same order. The results are the same, bit for bit, for any number of ranks.
Therefore, collectives compute sums only of integers, but maxima and minima also of floats; `Context.sum_over_blocks`
adds floats in an order that does not depend on the ranks. Every wait has a deadline, except a wait while only one
rank works (`Comm.barrier`). Every wait checks the abort flag at least five times per second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from mgclust.engine.partition import Partition
from mgclust.engine.rows import Block, Rows

__all__ = ["REDUCE", "Comm", "SoloComm", "check_reducible"]

Array = Any
REDUCE: dict[str, Callable[..., np.ndarray]] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Comm(Protocol):
    """Operations by which an algorithm exchanges arrays with other ranks.

    `range_rows`, the largest number of rows of a block in `stream`, is the same on all ranks.
    """

    rank: int
    size: int

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        """Return the sum (only of integers), maximum or minimum over all ranks, by element, as a new array.

        Parameters
        ----------
        array : array
            Array of the same shape and type on all ranks.
        op : {"sum", "max", "min"}
            The operation.
        """

    def queue_reduce(self, array: Array, op: str = "sum", *, out: Array | None = None) -> None:
        """Queue an `all_reduce` in place. Kernels queued later see the result; the host must first call `synchronize`.

        Parameters
        ----------
        array : array
            Array of the same shape and type on all ranks.
        op : {"sum", "max", "min"}
            The operation.
        out : array, optional
            Array for the result, of the same shape and type; by default `array`.
        """

    def mark(self) -> Any:
        """Return a mark after everything that is queued now, for `synchronize`."""

    def synchronize(self, mark: Any = None) -> None:
        """Wait for everything that was queued, or that was queued before a mark; the wait can be cancelled.

        Parameters
        ----------
        mark : object, optional
            A return value of `mark`.
        """

    def all_gather(self, array: Array) -> Array:
        """Concatenate the arrays of all ranks along axis 0, in rank order.

        Parameters
        ----------
        array : array
            Array of the same type on all ranks, and of the same shape except for the first axis.
        """

    def queue_gather(self, array: Array, bounds: Sequence[int]) -> None:
        """Fill in the parts of an array that other ranks have. The call is queued like `queue_reduce`.

        Parameters
        ----------
        array : array
            Array of the same shape and type on all ranks; rank r has ``array[bounds[r]:bounds[r + 1]]``.
        bounds : sequence of int
            Ascending positions, one more than there are ranks.
        """

    def exchange(self, parts: list[Array]) -> Array:
        """Send one array to each rank; return the arrays that all ranks sent to this rank, joined in rank order.

        Parameters
        ----------
        parts : list of array
            One array for each rank, in rank order, of the same type and number of columns, and of any length.
        """

    def broadcast(self, array: Array | None, root: int = 0) -> Array:
        """Send the array of one rank to all ranks; return it.

        Parameters
        ----------
        array : array or None
            The array on rank `root`; None on other ranks.
        root : int
            The rank that has the array.
        """

    def agree(self, value: Any, root: int = 0) -> Any:
        """Send a small picklable value of one rank to all ranks; return it.

        Parameters
        ----------
        value : object
            The value on rank `root`; ignored on other ranks.
        root : int
            The rank that has the value.
        """

    def barrier(self, *, limited: bool = True) -> None:
        """Wait for all ranks.

        Parameters
        ----------
        limited : bool, default=True
            False: wait for the other ranks without a deadline. The wait ends if a rank dies, but not if it hangs.
        """

    def stream(self, rows: Rows) -> Iterator[Block]:
        """Yield all rows of the data in global order, range by range, on every rank. Call no collective in between.

        Parameters
        ----------
        rows : Rows
            The rows of this rank.
        """

    def stream_length(self) -> int:
        """Number of blocks that `stream` yields, the same on all ranks."""

    def leave(self) -> None:
        """Wait until all ranks are done; the connections stay open."""

    def abort(self) -> None:
        """Close the connections; the other ranks notice that."""


def check_reducible(dtype: np.dtype, op: str) -> None:
    """Reject reductions whose result would depend on the number of ranks."""
    if op not in REDUCE:
        raise ValueError(f"op={op!r} should be one of {', '.join(REDUCE)}.")
    if op == "sum" and dtype.kind not in "iu":
        raise TypeError(
            f"all_reduce(op='sum') of {dtype} would depend on the number of ranks; sum integers, or use "
            "Context.sum_over_blocks."
        )


class SoloComm:
    """Communication of a single rank.

    Parameters
    ----------
    partition : Partition
        Partition with all rows on this rank.
    range_rows : int
        See `Comm`.
    """

    rank = 0
    size = 1

    def __init__(self, partition: Partition, range_rows: int) -> None:
        self._ranges = list(partition.ranges(range_rows))

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        check_reducible(array.dtype, op)
        return array.copy()

    def queue_reduce(self, array: Array, op: str = "sum", *, out: Array | None = None) -> None:
        check_reducible(array.dtype, op)
        if out is not None and out is not array:
            out[...] = array

    def mark(self) -> Any:
        """See `Comm`."""

    def synchronize(self, mark: Any = None) -> None:
        """See `Comm`."""

    def all_gather(self, array: Array) -> Array:
        return array

    def queue_gather(self, array: Array, bounds: Sequence[int]) -> None:
        """See `Comm`."""

    def exchange(self, parts: list[Array]) -> Array:
        return parts[0]

    def broadcast(self, array: Array | None, root: int = 0) -> Array:
        return array

    def agree(self, value: Any, root: int = 0) -> Any:
        return value

    def barrier(self, *, limited: bool = True) -> None:
        """See `Comm`."""

    def stream(self, rows: Rows) -> Iterator[Block]:
        for each in self._ranges:
            yield Block(each.start, each.stop, rows.read(each.start, each.stop))

    def stream_length(self) -> int:
        return len(self._ranges)

    def leave(self) -> None:
        """See `Comm`."""

    def abort(self) -> None:
        """See `Comm`."""
