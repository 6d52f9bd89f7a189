"""Collectives between GPUs, and pacing of kernels on one GPU.

On a GPU, three things can wait: this rank's own kernels, a collective, and the host. Host code never blocks in a CUDA
call that another rank could delay. Instead, it records an event and polls the event; between polls it checks the abort
flag, NCCL's own errors, the sockets of the other ranks, and the clock.

``stream`` broadcasts each range of rows on a second CUDA stream into one of three buffers::

    broadcasts   | range 0 | range 1 | range 2 |   ...          waits for the kernels that still read its buffer
    kernels              | range 0 | range 1 | range 2 |        the caller's, on the current stream

The caller gets range i when it has arrived, while range i + 1 is already being sent. Kernels are queued at most three
ranges ahead, so that a cancelled run stops within a few tiles.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import cupy
import numpy as np
from cupy.cuda import nccl

from mgclust.base.errors import CollectiveTimeout, DeviceUnavailableError, RunFailed
from mgclust.engine.abort import Abort
from mgclust.engine.partition import Partition, RowRange
from mgclust.engine.rows import Block, Rows
from mgclust.engine.transport.comm import SoloComm, check_reducible
from mgclust.engine.transport.host_comm import HostComm
from mgclust.engine.transport.nccl_network import choose_interface

__all__ = ["Communicator", "DeviceSoloComm", "NcclComm"]

Array = Any
BUFFERS = 3
BUSY_POLLS = 200  # polls without sleep, about 0.2 ms: an all-reduce takes 15 us
SLEEP_SECONDS = 50e-6
POLL_SECONDS = 0.05  # seconds between two checks of flags and sockets
ALIGNMENT = 16  # bytes; if the address of an array is not a multiple, NCCL copies the array byte by byte
CONNECT_SECONDS = 60.0  # seconds that NCCL may take to connect: it needs about 1 s on one host, for any data


_NCCL_OPERATIONS = {"sum": nccl.NCCL_SUM, "max": nccl.NCCL_MAX, "min": nccl.NCCL_MIN}


def _poll(event: Any, look: Callable[[], None]) -> None:
    """Wait for a CUDA event; ``look`` is called at intervals and may raise an error."""
    for _ in range(BUSY_POLLS):
        if event.done:
            return
    next_look = 0.0
    while not event.done:
        if time.monotonic() >= next_look:
            look()
            next_look = time.monotonic() + POLL_SECONDS
        time.sleep(SLEEP_SECONDS)


def _mark(stream: Any) -> Any:
    """Return an event that follows everything queued on a stream so far."""
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    return event


class DeviceSoloComm(SoloComm):
    """Communication of a single rank on a GPU: it keeps the queue of kernels short, so that `abort` can stop a run."""

    def __init__(self, partition: Partition, range_rows: int, abort: Abort) -> None:
        super().__init__(partition, range_rows)
        self._abort = abort

    def mark(self) -> Any:
        return _mark(cupy.cuda.get_current_stream())

    def synchronize(self, mark: Any = None) -> None:
        _poll(mark or self.mark(), self._abort.check)

    def stream(self, rows: Rows) -> Iterator[Block]:
        marks: list[Any] = []
        for block in super().stream(rows):
            yield block
            marks.append(_mark(cupy.cuda.get_current_stream()))
            if len(marks) == BUFFERS:
                _poll(marks.pop(0), self._abort.check)


class Communicator:
    """NCCL's communicator of one rank, and the stream of its broadcasts; it serves one run after the other.

    It is made in a thread, because NCCL waits for all ranks without a limit. The ranks are connected already. So NCCL
    waits for long only if a rank dies at this moment, or if another program connects to NCCL's port. The thread is then
    left behind, and the run ends with CollectiveTimeout after CONNECT_SECONDS. NCCL accepts no message from connections
    that do not begin with its random number, which ranks get over the host links.

    Parameters
    ----------
    host : HostComm
        Connection to the same ranks.
    addresses : sequence of str
        Addresses of this rank; see `mgclust.engine.transport.nccl_network.choose_interface`.
    """

    def __init__(self, host: HostComm, addresses: Sequence[str]) -> None:
        if not nccl.available:
            raise DeviceUnavailableError(
                "several GPUs need NCCL, which CuPy cannot load here; install mgclust[gpu-cu13] (or "
                "gpu-cu12), which includes NCCL, or use one GPU with client=None."
            )
        choose_interface(addresses)
        # NCCL's newer way to share memory takes 1.3 s to set up between 4 GPUs of one host, the older way 0.1 s; both
        # are equally fast afterwards. NCCL reads the variable once in a process, before it first connects.
        os.environ.setdefault("NCCL_CUMEM_ENABLE", "0")
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._device = cupy.cuda.Device().id
        unique = host.agree(nccl.get_unique_id() if host.rank == 0 else None)
        made: list[Any] = []

        def make() -> None:
            try:
                with cupy.cuda.Device(self._device):
                    made.append(nccl.NcclCommunicator(host.size, unique, host.rank))
            except Exception as error:
                made.append(error)

        thread = threading.Thread(target=make, daemon=True)
        thread.start()
        limit = min(host.wire.timeout, CONNECT_SECONDS)
        end = time.monotonic() + limit
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            host.wire.abort.check()
            host.check_peers()
            if time.monotonic() > end:
                raise CollectiveTimeout(
                    f"NCCL did not connect {host.size} GPUs within {limit:g} s: a rank hangs, there is a firewall, "
                    "or another program connects to NCCL's ports. Run again; NCCL_DEBUG=INFO shows more."
                )
        if isinstance(made[0], Exception):
            raise RunFailed(f"NCCL could not connect {host.size} GPUs: {made[0]}.") from made[0]
        self._nccl: Any = made[0]

    def call(self, name: str, *arguments: Any) -> None:
        """Call one of NCCL's functions.

        Parameters
        ----------
        name : str
            Name of the function in CuPy.
        *arguments : object
            Arguments of the function.
        """
        if self._nccl is None:
            raise RunFailed("the NCCL communicator was aborted.")
        getattr(self._nccl, name)(*arguments)

    def abort(self) -> None:
        """End the communicator and all its waits, without the help of other ranks."""
        communicator, self._nccl = self._nccl, None
        if communicator is not None:
            with cupy.cuda.Device(self._device):
                communicator.abort()


class NcclComm:
    """Communication with one GPU per rank: NCCL for device arrays, host links for NumPy arrays and small values.

    Parameters
    ----------
    host : HostComm
        Host links of the same run; they are closed together with the communicator.
    communicator : Communicator
        Communicator of the same ranks.
    """

    def __init__(self, host: HostComm, communicator: Communicator) -> None:
        self.rank = host.rank
        self.size = host.size
        self._host = host
        self._abort = host.wire.abort
        self._timeout = host.wire.timeout
        self._ranges = host.ranges
        self._nccl = communicator
        self._stream = communicator.stream
        self._streaming = False

    def all_reduce(self, array: Array, op: str = "sum") -> Array:
        check_reducible(array.dtype, op)
        if isinstance(array, np.ndarray):
            return self._host.all_reduce(array, op)
        self._enter("all_reduce")
        source = cupy.ascontiguousarray(array)
        result = cupy.empty_like(source)
        if source.size:
            operation = _NCCL_OPERATIONS[op]
            here = cupy.cuda.get_current_stream()
            kind = _nccl_type(source.dtype)
            self._call("allReduce", source.data.ptr, result.data.ptr, source.size, kind, operation, here.ptr)
            self._wait(_mark(here), "all_reduce")
        return result

    def queue_reduce(self, array: Array, op: str = "sum", *, out: Array | None = None) -> None:
        check_reducible(array.dtype, op)
        self._enter("queue_reduce")
        to, kind, here = array if out is None else out, _nccl_type(array.dtype), cupy.cuda.get_current_stream()
        self._call("allReduce", array.data.ptr, to.data.ptr, array.size, kind, _NCCL_OPERATIONS[op], here.ptr)

    def mark(self) -> Any:
        return _mark(cupy.cuda.get_current_stream())

    def synchronize(self, mark: Any = None) -> None:
        self._wait(mark or self.mark(), "queue_reduce")

    def all_gather(self, array: Array) -> Array:
        if isinstance(array, np.ndarray):
            return self._host.all_gather(array)
        self._enter("all_gather")
        lengths = self._host.all_gather(np.array([array.shape[0]], np.int64)).tolist()
        # NCCL gathers only equal lengths: shorter arrays are padded, and the padding is cut out again.
        longest = -(-max(lengths) // ALIGNMENT) * ALIGNMENT
        padded = cupy.zeros((longest, *array.shape[1:]), array.dtype)
        padded[: array.shape[0]] = array
        gathered = cupy.empty((self.size, *padded.shape), array.dtype)
        if padded.size:
            here = cupy.cuda.get_current_stream()
            data = (padded.data.ptr, gathered.data.ptr, padded.nbytes, nccl.NCCL_UINT8)
            self._call("allGather", *data, here.ptr)
            self._wait(_mark(here), "all_gather")
        return cupy.concatenate([gathered[rank, :length] for rank, length in enumerate(lengths)], axis=0)

    def queue_gather(self, array: Array, bounds: Sequence[int]) -> None:
        """See `Comm`. Elements before a rank's first aligned address have their own broadcast; all start together."""
        self._enter("queue_gather")
        here = cupy.cuda.get_current_stream()
        step = ALIGNMENT // array.itemsize
        with self._together():
            for root, (start, stop) in enumerate(pairwise(bounds)):
                aligned = min(stop, -(-start // step) * step)
                for part in (array[start:aligned], array[aligned:stop]):
                    if part.nbytes:
                        self._call("bcast", part.data.ptr, part.nbytes, nccl.NCCL_UINT8, root, here.ptr)

    def exchange(self, parts: list[Array]) -> Array:
        if isinstance(parts[0], np.ndarray):
            return self._host.exchange(parts)
        self._enter("exchange")
        lengths = self._host.all_gather(np.array([[len(part) for part in parts]], np.int64))[:, self.rank]
        stops = np.cumsum(lengths).tolist()
        got = cupy.empty((stops[-1], *parts[0].shape[1:]), parts[0].dtype)
        places = [got[start:stop] for start, stop in pairwise([0, *stops])]
        sent = [part if peer == self.rank else _aligned(part) for peer, part in enumerate(parts)]
        received = [
            cupy.empty_like(place) if peer != self.rank and place.data.ptr % ALIGNMENT else place
            for peer, place in enumerate(places)
        ]
        received[self.rank] = parts[self.rank]
        here = cupy.cuda.get_current_stream()
        with self._together():
            for peer in range(self.size):
                for name, array in (("send", sent[peer]), ("recv", received[peer])):
                    if peer != self.rank and array.nbytes:
                        self._call(name, array.data.ptr, array.nbytes, nccl.NCCL_UINT8, peer, here.ptr)
        for place, array in zip(places, received, strict=True):
            if array is not place:
                place[...] = array
        self._wait(_mark(here), "exchange")
        return got

    def broadcast(self, array: Array | None, root: int = 0) -> Array:
        self._enter("broadcast")
        shape, dtype, on_host = self._host.agree(
            None if array is None else (array.shape, array.dtype.str, isinstance(array, np.ndarray)), root
        )
        if on_host:
            return self._host.broadcast(array, root)
        buffer = cupy.array(array, order="C") if self.rank == root else cupy.empty(shape, np.dtype(dtype))
        if buffer.size:
            here = cupy.cuda.get_current_stream()
            self._call("bcast", buffer.data.ptr, buffer.nbytes, nccl.NCCL_UINT8, root, here.ptr)
            self._wait(_mark(here), "broadcast")
        return buffer

    def agree(self, value: Any, root: int = 0) -> Any:
        self._enter("agree")
        return self._host.agree(value, root)

    def barrier(self, *, limited: bool = True) -> None:
        """See `Comm`; waits only for the host side of all ranks."""
        self._enter("barrier")
        self._host.barrier(limited=limited)

    def stream(self, rows: Rows) -> Iterator[Block]:
        self._enter("stream")
        self._streaming = True
        compute = cupy.cuda.get_current_stream()
        # The kernels that prepared the rows were queued on the current stream.
        self._stream.wait_event(_mark(compute))
        largest = max((each.stop - each.start for each in self._ranges), default=0)
        buffers = [cupy.empty((largest, rows.n_features), rows.dtype) for _ in range(min(BUFFERS, len(self._ranges)))]
        keep: list[Any] = [None] * BUFFERS  # rows that this rank sends, until their readers are done
        free: list[Any] = [None] * BUFFERS  # events after which kernels no longer read the buffer
        try:
            flight = [self._launch(rows, 0, buffers, keep, free)] if self._ranges else []
            for index, each in enumerate(self._ranges):
                if index + 1 < len(self._ranges):
                    flight.append(self._launch(rows, index + 1, buffers, keep, free))
                x, arrived = flight.pop(0)
                self._wait(arrived, "stream")
                yield Block(each.start, each.stop, x)
                free[index % BUFFERS] = _mark(compute)
            # The buffers return to CuPy's pool when this function returns.
            for event in free:
                if event is not None:
                    self._wait(event, "stream")
            self._streaming = False
        finally:
            if self._streaming:
                self.abort()

    def stream_length(self) -> int:
        return len(self._ranges)

    def leave(self) -> None:
        for stream in (cupy.cuda.get_current_stream(), self._stream):
            self._wait(_mark(stream), "leave")
        self._host.leave()

    def abort(self) -> None:
        # Sockets are closed first: ranks that still poll notice this before NCCL has ended this rank's communicator.
        self._host.abort()
        self._nccl.abort()

    def _launch(
        self, rows: Rows, index: int, buffers: list[Any], keep: list[Any], free: list[Any]
    ) -> tuple[Array, Any]:
        """Queue the broadcast of one range of rows; return its array, and the event of its arrival."""
        each: RowRange = self._ranges[index]
        slot = index % BUFFERS
        if free[slot] is not None:
            self._stream.wait_event(free[slot])
        if each.owner == self.rank:
            # This runs on the stream of the broadcasts, so that rows are copied from the host and transformed before
            # they are broadcast.
            with self._stream:
                x = cupy.ascontiguousarray(rows.read(each.start, each.stop))
        else:
            x = buffers[slot][: each.stop - each.start]
        # This frees the previous array of the slot: after the wait above, and on the stream that allocated the array.
        keep[slot] = x
        self._call("bcast", x.data.ptr, x.nbytes, nccl.NCCL_UINT8, each.owner, self._stream.ptr)
        return x, _mark(self._stream)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            self._nccl.call(name, *arguments)
        except nccl.NcclError as error:
            raise RunFailed(f"NCCL failed in {name} on rank {self.rank}: {error}.") from error

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """Group calls to NCCL, which starts them together at the end of the block."""
        nccl.groupStart()
        try:
            yield
        finally:
            nccl.groupEnd()

    def _enter(self, name: str) -> None:
        self._abort.check()
        if self._streaming:
            raise RuntimeError(f"{name} was called before stream() had yielded its last block.")

    def _wait(self, event: Any, what: str) -> None:
        end = time.monotonic() + self._timeout
        try:
            _poll(event, lambda: self._look(what, end))
        except BaseException:
            # Kernels of NCCL that wait for a dead rank would block this device for ever.
            with contextlib.suppress(Exception):
                self.abort()
            raise

    def _look(self, what: str, end: float) -> None:
        self._abort.check()
        try:
            self._nccl.call("check_async_error")
        except nccl.NcclError as error:
            raise RunFailed(f"NCCL failed in {what} on rank {self.rank}: {error}.") from error
        self._host.check_peers()
        if time.monotonic() > end:
            raise CollectiveTimeout(
                f"rank {self.rank} waited longer than timeout={self._timeout:g} s in {what}; another rank "
                "hangs or is much slower."
            )


def _aligned(array: Array) -> Array:
    """Return the array if it is contiguous and its address is a multiple of `ALIGNMENT`, else a copy that is so."""
    array = cupy.ascontiguousarray(array)
    return array.copy() if array.data.ptr % ALIGNMENT else array


def _nccl_type(dtype: np.dtype) -> int:
    """Return NCCL's constant for an element type."""
    names = {
        "i1": "INT8", "u1": "UINT8", "i4": "INT32", "u4": "UINT32", "i8": "INT64", "u8": "UINT64",
        "f4": "FLOAT32", "f8": "FLOAT64",
    }  # fmt: skip
    name = names.get(dtype.str[1:])
    if name is None:
        raise TypeError(f"all_reduce of {dtype} is not supported; use int32, int64, float32 or float64.")
    return getattr(nccl, f"NCCL_{name}")
