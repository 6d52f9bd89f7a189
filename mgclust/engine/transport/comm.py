"""Communication between ranks: a handful of collectives, and a stream in which every block visits every rank.

::

    SoloComm   one rank: nothing to send
    HostComm   CPU ranks (in `mgclust.engine.transport.host_comm`): raw bytes over sockets, small arrays through a tree
               of ranks, large ones from rank to rank
    NcclComm   GPUs (in `mgclust.engine.transport.cuda`): NCCL for device arrays, a HostComm for small host values

All ranks call the same collectives in the same order. Whatever they return is the same, bit for bit, for any
number of ranks: integers may be summed, floats only compared (`Context.sum_over_blocks` adds floats in an
order that does not depend on the ranks). Every wait has a deadline and looks at the abort flag at least five
times a second.
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
    """Operations that an algorithm may ask of the other ranks.

    The most rows of a block in `stream`, `range_rows`, are equal on all ranks.
    """

    rank: int
    size: int

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        """Sum (integers only), maximum or minimum over all ranks, element by element; a new array.

        Parameters
        ----------
        array : array
            Of the same shape and type on all ranks.
        op : str
            "sum", "max" or "min".
        """

    def queue_reduce(self, array: Array, op: str = "sum", *, out: Array | None = None) -> None:
        """Write an array's `all_reduce`; later kernels see the new values, the host after `synchronize`.

        Parameters
        ----------
        array : array
            Of the same shape and type on all ranks.
        op : str
            As of `all_reduce`.
        out : array, optional
            Where to; of the same shape and type. By default the array itself.
        """

    def mark(self) -> Any:
        """The end of what is queued by now, for `synchronize`."""

    def synchronize(self, mark: Any = None) -> None:
        """Wait for everything that was queued, or for what was before a mark; the run can be stopped meanwhile.

        Parameters
        ----------
        mark : object, optional
            What `mark` returned.
        """

    def all_gather(self, array: Array) -> Array:
        """Arrays of all ranks one behind the other along axis 0, in rank order; lengths may differ.

        Parameters
        ----------
        array : array
            Of the same type, and shape but for its first axis, on all ranks.
        """

    def queue_gather(self, array: Array, bounds: Sequence[int]) -> None:
        """Fill in what other ranks have: rank r knows ``array[bounds[r]:bounds[r + 1]]``; queued as `queue_reduce`.

        Parameters
        ----------
        array : array
            Of the same shape and type on all ranks.
        bounds : sequence of int
            Ascending; one more than there are ranks.
        """

    def exchange(self, parts: list[Array]) -> Array:
        """Give each rank one array, its length at choice; those from all ranks, one behind the other in rank order.

        Parameters
        ----------
        parts : list of array
            One for each rank, in rank order; of one type and number of columns.
        """

    def broadcast(self, array: Array | None, root: int = 0) -> Array:
        """The root's array on all ranks; the others pass None.

        Parameters
        ----------
        array : array or None
            Of the root.
        root : int
            The rank that has it.
        """

    def agree(self, value: Any, root: int = 0) -> Any:
        """The root's small picklable value on all ranks.

        Parameters
        ----------
        value : object
            Of the root; that of other ranks is ignored.
        root : int
            The rank that has it.
        """

    def barrier(self) -> None:
        """Wait for all ranks."""

    def stream(self, rows: Rows) -> Iterator[Block]:
        """All rows of the data in global order, range by range, on every rank; no other collective in between.

        Parameters
        ----------
        rows : Rows
            Those of this rank.
        """

    def stream_length(self) -> int:
        """Number of blocks that `stream` yields; equal on all ranks."""

    def leave(self) -> None:
        """Wait until all ranks are done; what connects them stays open."""

    def abort(self) -> None:
        """Close what connects the ranks; the others notice."""


def check_reducible(dtype: np.dtype, op: str) -> None:
    """Refuse what would depend on the number of ranks."""
    if op not in REDUCE:
        raise ValueError(f"op={op!r} should be one of {', '.join(REDUCE)}.")
    if op == "sum" and dtype.kind not in "iu":
        raise TypeError(
            f"all_reduce(op='sum') of {dtype} would depend on the number of ranks; sum integers, or use "
            "Context.sum_over_blocks."
        )


class SoloComm:
    """The only rank.

    Parameters
    ----------
    partition : Partition
        All rows.
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

    def barrier(self) -> None:
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
