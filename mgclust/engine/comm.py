"""Communication between ranks: a handful of collectives, and a stream in which every block visits every rank.

::

    SoloComm   one rank: nothing to send
    HostComm   CPU ranks: a star around rank 0, raw bytes over sockets
    NcclComm   GPUs (in `mgclust.engine.cuda`): NCCL for device arrays, a HostComm for small host values

All ranks call the same collectives in the same order. Whatever they return is the same, bit for bit, for any
number of ranks: integers may be summed, floats only compared (`Context.sum_over_blocks` adds floats in an
order that does not depend on the ranks). Every wait has a deadline and looks at the abort flag at least five
times a second.
"""

from __future__ import annotations

import contextvars
import math
import pickle
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from mgclust.engine.partition import Partition, Span
from mgclust.engine.rows import Block, Rows
from mgclust.engine.wire import Link, PeerLost, SessionLost, Wire

__all__ = ["Comm", "HostComm", "SoloComm", "check_reducible"]

Array = Any
REDUCE: dict[str, Callable[..., np.ndarray]] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Comm(Protocol):
    """Operations that an algorithm may ask of the other ranks.

    The most rows of a block in `stream`, `span_rows`, are equal on all ranks.
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
        """Write an array's `all_reduce`; later kernels see the new values, the host after `settle`.

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
        """The end of what is queued by now, for `settle`."""

    def settle(self, mark: Any = None) -> None:
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
        """All rows of the data in global order, span by span, on every rank; no other collective in between.

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
    span_rows : int
        See `Comm`.
    """

    rank = 0
    size = 1

    def __init__(self, partition: Partition, span_rows: int) -> None:
        self._spans = list(partition.spans(span_rows))

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        check_reducible(array.dtype, op)
        return array.copy()

    def queue_reduce(self, array: Array, op: str = "sum", *, out: Array | None = None) -> None:
        check_reducible(array.dtype, op)
        if out is not None and out is not array:
            out[...] = array

    def mark(self) -> Any:
        """See `Comm`."""

    def settle(self, mark: Any = None) -> None:
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
        for span in self._spans:
            yield Block(span.start, span.stop, rows.read(span.start, span.stop))

    def stream_length(self) -> int:
        return len(self._spans)

    def leave(self) -> None:
        """See `Comm`."""

    def abort(self) -> None:
        """See `Comm`."""


class HostComm:
    """CPU ranks around rank 0, which adds what it receives in rank order and sends the answer back.

    Parameters
    ----------
    rank, size : int
        This rank and how many there are.
    links : mapping of int to Link
        Rank 0: to all others; others: to rank 0.
    wire : Wire
        What the links share.
    partition : Partition
        Which rank owns which rows.

    Attributes
    ----------
    wire : Wire
        As given.
    spans : list of Span
        What `stream` yields, once the ranks have met.
    """

    def __init__(self, rank: int, size: int, links: dict[int, Link], wire: Wire, partition: Partition) -> None:
        self.rank = rank
        self.size = size
        self.wire = wire
        self.spans: list[Span] = []
        self._links = links
        self._abort = wire.abort
        wire.watch = self.check_peers
        self._partition = partition
        self._calls = 0
        self._streaming = False

    def meet(self, run: str, span_rows: int) -> bool:
        """Wait until all ranks have loaded their rows, however long that takes; False if one refuses.

        Parameters
        ----------
        run : str
            Its name: ranks that are in different runs are told.
        span_rows : int
            Most rows of a block that fit here, of which the least counts; 0: this rank refuses.

        Raises
        ------
        SessionLost
            A connection was closed.
        """
        limit, self.wire.timeout = self.wire.timeout, math.inf
        try:
            least = self._least(f"the start of run {run}", np.array([span_rows], np.int64))
        except PeerLost as error:
            raise SessionLost(str(error)) from error
        finally:
            self.wire.timeout = limit
        self.spans = list(self._partition.spans(least)) if least else []
        return least > 0

    def _least(self, what: str, own: np.ndarray) -> int:
        if self.rank:
            self._links[0].send(what, own)
            return int(self._links[0].receive(what)[0])
        theirs = [self._links[peer].receive(what) for peer in range(1, self.size)]
        return int(self._to_all(what, np.min([own, *theirs], axis=0))[0])

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        check_reducible(array.dtype, op)
        what = self._enter(f"all_reduce({op})")
        if self.rank:
            self._links[0].send(what, array)
            return self._links[0].receive(what)
        total = array.copy()
        for peer in range(1, self.size):
            theirs = self._links[peer].receive(what)
            if theirs.shape != total.shape or theirs.dtype != total.dtype:
                raise ValueError(
                    f"{what}: rank {peer} has {theirs.dtype} {theirs.shape}, rank 0 {total.dtype} {total.shape}."
                )
            REDUCE[op](total, theirs, out=total)
        return self._to_all(what, total)

    def queue_reduce(self, array: Array, op: str = "sum", *, out: Array | None = None) -> None:
        (array if out is None else out)[...] = self.all_reduce(array, op)

    def mark(self) -> Any:
        """See `Comm`."""

    def settle(self, mark: Any = None) -> None:
        """See `Comm`."""

    def all_gather(self, array: Array) -> Array:
        what = self._enter("all_gather")
        if self.rank:
            self._links[0].send(what, array)
            return self._links[0].receive(what)
        parts = [array, *(self._links[peer].receive(what) for peer in range(1, self.size))]
        return self._to_all(what, np.concatenate(parts, axis=0))

    def queue_gather(self, array: Array, bounds: Sequence[int]) -> None:
        array[...] = self.all_gather(array[bounds[self.rank] : bounds[self.rank + 1]])

    def exchange(self, parts: list[Array]) -> Array:
        """See `Comm`; everything passes rank 0."""
        what = self._enter("exchange")
        lengths = np.array([len(part) for part in parts], np.int64)
        if self.rank:
            self._links[0].send(what, lengths)
            self._links[0].send(what, np.concatenate(parts))
            return self._links[0].receive(what)
        sent = [parts]
        for peer in range(1, self.size):
            theirs = self._links[peer].receive(what)
            sent.append(np.split(self._links[peer].receive(what), np.cumsum(theirs)[:-1]))
        for peer in range(1, self.size):
            self._links[peer].send(what, np.concatenate([each[peer] for each in sent]))
        return np.concatenate([each[0] for each in sent])

    def broadcast(self, array: Array | None, root: int = 0) -> Array:
        what = self._enter(f"broadcast({root})")
        if self.rank == root:
            assert array is not None
            value = array.copy()
            if self.rank:
                self._links[0].send(what, value)
        else:
            value = self._links[0 if self.rank else root].receive(what)
        return value if self.rank else self._to_all(what, value, but=root)

    def agree(self, value: Any, root: int = 0) -> Any:
        if self.rank != root:
            return pickle.loads(self.broadcast(None, root).tobytes())
        self.broadcast(np.frombuffer(pickle.dumps(value), np.uint8), root)
        return value

    def barrier(self) -> None:
        self.all_reduce(np.zeros(1, np.int64))

    def stream(self, rows: Rows) -> Iterator[Block]:
        """See `Comm`; a thread receives the next block while the caller works on this one."""
        what = self._enter("stream")
        self._streaming = True
        ready: queue.Queue[Block | BaseException] = queue.Queue(maxsize=1)
        gone = threading.Event()
        here = contextvars.copy_context()  # its share of the cores
        pump = threading.Thread(target=here.run, args=(self._pump, what, rows, ready, gone), daemon=True)
        pump.start()
        try:
            for _ in self.spans:
                item = self._next(ready)
                if isinstance(item, BaseException):
                    raise item
                yield item
            self._streaming = False  # left early, it stays true: the others' blocks would be in the way
        finally:
            gone.set()

    def stream_length(self) -> int:
        return len(self.spans)

    def check_peers(self, waiting_for: int = -1) -> None:
        """Raise PeerLost if a linked rank has gone while this one waits for something else.

        The link that is waited for tells by itself, and may hold a last message to read first.
        """
        for link in self._links.values():
            if link.peer != waiting_for and link.hung_up():
                raise PeerLost(f"rank {link.peer} closed its connection.")

    def leave(self) -> None:
        # Whatever was sent has been read then: the next run finds nothing of this one.
        self.barrier()

    def abort(self) -> None:
        for link in self._links.values():
            link.close()

    def _enter(self, name: str) -> str:
        self._abort.check()
        if self._streaming:
            raise RuntimeError(f"{name} was called before stream() had yielded its last block.")
        self._calls += 1
        return f"{name} #{self._calls}"

    def _to_all(self, what: str, array: np.ndarray, but: int = 0) -> np.ndarray:
        for peer, link in self._links.items():
            if peer != but:
                link.send(what, array)
        return array

    def _next(self, ready: queue.Queue[Block | BaseException]) -> Block | BaseException:
        while True:
            try:
                return ready.get(timeout=0.2)
            except queue.Empty:
                self._abort.check()

    def _pump(self, what: str, rows: Rows, ready: queue.Queue[Block | BaseException], gone: threading.Event) -> None:
        try:
            for span in self.spans:
                item = Block(span.start, span.stop, self._relay(what, rows, span))
                while not gone.is_set():
                    try:
                        ready.put(item, timeout=0.2)
                        break
                    except queue.Full:
                        continue
                if gone.is_set():
                    return
        except BaseException as error:
            while not gone.is_set():
                try:
                    ready.put(error, timeout=0.2)
                    return
                except queue.Full:
                    continue

    def _relay(self, what: str, rows: Rows, span: Span) -> Array:
        """One span on its way from its owner over rank 0 to all."""
        if self.rank == span.owner:
            x = rows.read(span.start, span.stop)
        else:
            x = self._links[span.owner if self.rank == 0 else 0].receive(what)
        if self.rank == 0:
            return self._to_all(what, x, but=span.owner)
        if self.rank == span.owner:
            self._links[0].send(what, x)
        return x
