"""View of a run for its algorithm: the rows of a rank, the other ranks, the kernels, and a clock.

An algorithm is a function ``f(context, **parameters)`` that runs on every rank. All ranks call the same collectives in
the same order; the return value of rank 0 is the result. The usual form::

    with context.stage("density"):
        for chunk, block in context.all_pairs():
            kernels.pairs.gaussian_sum(chunk.x, block.x, ..., out=rho[chunk.start - first : chunk.stop - first])
    rho = context.comm.all_gather(rho)
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from mgclust.engine.abort import Abort
from mgclust.engine.checkpoint import CheckpointConfig, Checkpointer
from mgclust.engine.checkpoint_memory import MemoryCheckpoint, MemoryCheckpointer
from mgclust.engine.partition import Partition
from mgclust.engine.rows import Beside, Block, Rows
from mgclust.engine.transport.comm import Comm
from mgclust.kernels import Kernels

__all__ = ["Context", "Emit"]

Array = Any
Emit = Callable[[dict[str, Any]], None]
EMIT_EVERY = 0.1  # seconds between two progress events
LARGEST_CHUNK = 8 << 30  # bytes of a chunk, because kernels index its data with 32 bits


class Context:
    """One rank's view of a run.

    Parameters
    ----------
    comm : Comm
        Communication with the other ranks. Also an attribute, like all parameters up to `spare`.
    partition : Partition
        Which rank owns which rows.
    rows : Rows
        The rows of this rank.
    kernels : mgclust.kernels.Kernels
        Kernels for the device of this rank.
    free : int
        Bytes that the method may use in addition to the rows: the amount that its memory estimate was given, or more.
    spare : int
        Bytes of `free` that the estimate does not list, which may be used for larger steps.
    limited : bool
        Whether memory is returned to the device after each stage, because other ranks share the device, or because
        `memory_limit` is set.
    abort : Abort
        Ends every wait of a cancelled run.
    emit : callable or None
        Receives the progress events on rank 0.
    checkpoint : CheckpointConfig or MemoryCheckpoint, optional
        Where to save checkpoints and resume from.
    room : callable
        Returns the bytes of host memory that checkpoints may now use for copies.
    host_free : callable
        Returns the bytes of host memory that this rank may still take.
    client_free : int, optional
        Bytes of host memory that the client may take for the result; None if the client receives no arrays, or is this
        process. Also an attribute.
    beside : Beside, optional
        Second set of rows, which is combined with the rows of the data. Also an attribute.

    Attributes
    ----------
    dtype : dtype
        Type of the rows on the device: float32 or float64, or int32 for the edges of a graph.
    dataset_shape : (int, int)
        Shape of the whole data.
    chunk_count : int
        Number of chunks that `chunks` yields, the same on every rank.
    timings : dict
        Seconds by stage.
    checkpoint : Checkpointer
        Loads and saves checkpoints.
    delivered : dict of str to ndarray
        The arrays that were passed to `deliver`.
    """

    def __init__(
        self,
        *,
        comm: Comm,
        partition: Partition,
        rows: Rows,
        kernels: Kernels,
        free: int,
        spare: int,
        limited: bool = False,
        abort: Abort,
        emit: Emit | None,
        checkpoint: CheckpointConfig | MemoryCheckpoint | None = None,
        room: Callable[[], int] = lambda: 0,
        host_free: Callable[[], int],
        client_free: int | None = None,
        beside: Beside | None = None,
    ) -> None:
        self.comm = comm
        self.partition = partition
        self.rows = rows
        self.kernels = kernels
        self.dtype = rows.dtype
        self.dataset_shape = (partition.n_rows, rows.n_features)
        self.free, self.spare, self._limited = free, spare, limited
        self._host_free, self.client_free = host_free, client_free
        self.beside = beside
        self.timings: dict[str, float] = {}
        self.delivered: dict[str, np.ndarray] = {}
        self._abort = abort
        self._emit = emit if comm.rank == 0 else None
        self._stage, self._fraction = "", 0.0
        self._began = time.perf_counter()
        self._emitted = 0.0
        self._compiled = 0
        # Streams are collective: all ranks go through as many chunks as the rank with the most chunks.
        self.chunk_count = int(comm.all_reduce(np.array([rows.chunk_count], np.int64), "max")[0])
        kind = MemoryCheckpointer if isinstance(checkpoint, MemoryCheckpoint) else Checkpointer
        self.checkpoint = kind(
            checkpoint, comm=comm, partition=partition, kernels=kernels, stage=self.stage, say=self.say, room=room
        )

    @property
    def rank(self) -> int:
        """Number of this rank, from 0."""
        return self.comm.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.comm.size

    def host_room(self, used: int) -> int:
        """Return how many more bytes of host memory the method may take; negative if it has taken too many.

        Parameters
        ----------
        used : int
            Bytes of `free` that the method uses already. On a GPU they are not in host memory.
        """
        room = self._host_free()
        return min(room, self.free - used) if self.kernels.device == "cpu" else room

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the time of the block, and show its name in the progress.

        Parameters
        ----------
        name : str
            Name of the stage, which is the key in `timings`. Times of stages with the same name are added.
        """
        outer, self._stage = self._stage, name
        self.kernels.memory.synchronize()
        began = time.perf_counter()
        self._report(0.0)
        try:
            yield
            self.kernels.memory.synchronize()
            if self._limited:
                self.kernels.memory.give_back()
            self._report(1.0)
        finally:
            self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - began
            self._stage = outer

    def progress(self, fraction: float, **details: float) -> None:
        """Report the progress of the stage. Call this once per tile, because a cancelled run ends in this call.

        Parameters
        ----------
        fraction : float
            Completed fraction of the stage, from 0 to 1. It is reported at most ten times per second.
        **details : float
            Current values of the method to show, e.g. ``n_clusters=34``.

        Raises
        ------
        RunCancelled
            The run was stopped.
        """
        self._abort.check()
        if time.perf_counter() - self._emitted >= EMIT_EVERY:
            self._report(fraction, **details)

    def say(self, **details: float | str) -> None:
        """Pass on an event at once, even if the last progress event was sent just before.

        Parameters
        ----------
        **details : float or str
            As in `progress`. ``warning="..."`` is shown on its own line.
        """
        self._report(self._fraction, **details)

    @contextlib.contextmanager
    def telling_of_compiling(self) -> Iterator[None]:
        """Report how many kernels are compiled in the block, so that the first run does not seem to hang."""
        thread = threading.get_ident()

        def tell() -> None:
            self._compiled += 1
            if threading.get_ident() == thread:  # the receiver may be called only in this thread
                self.say(compiling=self._compiled)

        with contextlib.nullcontext() if self._emit is None else self.kernels.on_compiling(tell):
            yield

    def deliver(self, **arrays: Array) -> None:
        """Deliver this rank's part of arrays of the result that have one row for each row of the data.

        For a graph, the arrays have one row for each node; with `beside`, one row for each row of `beside`. The parts
        of all ranks, joined in rank order, become ``arrays`` of the outcome of the run. The parts do not pass through
        other ranks: they are sent to the caller, or stay on the workers and become a Dask array.

        Parameters
        ----------
        **arrays : array or csr_array
            Arrays by name. Names, types and numbers of columns must be the same on all ranks.
        """
        for name, array in arrays.items():
            if hasattr(array, "indptr"):
                self.delivered[name] = array
                continue
            host = self.kernels.memory.to_host(array)
            whole = getattr(host.base, "nbytes", host.nbytes)
            self.delivered[name] = host.copy() if whole > host.nbytes else host

    def chunks(self) -> Iterator[Block]:
        """Yield the rows of this rank in blocks; their number is the same on all ranks, one if all are resident.

        Yields
        ------
        Block
            Some rows of this rank. If another rank has more chunks, the last blocks have no rows.
        """
        own = self.rows.chunks()
        for _ in range(self.chunk_count):
            block = next(own, None)
            if block is None:
                stop = self.rows.stop
                block = Block(stop, stop, self.rows.read(stop, stop))
            yield block

    def cut_rows(self, row_bytes: int, others: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """Split the rows of this rank into chunks that fit into memory; all ranks get the same number of chunks.

        No chunk is larger than a chunk of `chunks`. Use this method for rows that are combined with all columns: more
        chunks then cost communication, but no arithmetic.

        Parameters
        ----------
        row_bytes : int
            Bytes that a row of the current chunk needs in addition to the row itself.
        others : (start, stop), optional
            Range to split instead of the rows of this rank: the rank's part of other rows that are in memory.

        Returns
        -------
        list of (start, stop)
            Chunks by global row number; some are empty if this rank has fewer rows than another rank.
        """
        budget = min(self.spare // 2, self.kernels.memory.free_memory() // 2, LARGEST_CHUNK)
        start, stop = others or (self.rows.start, self.rows.stop)
        count = max(1 if others else self.rows.chunk_count, -(-(stop - start) // max(1, budget // row_bytes)))
        count = int(self.comm.all_reduce(np.array([count], np.int64), "max")[0])
        step = -(-(stop - start) // count)
        edges = [min(start + i * step, stop) for i in range(count + 1)]
        return list(pairwise(edges))

    def gather_rows(self, indices: np.ndarray) -> Array:
        """Collect some rows on the device of every rank.

        Parameters
        ----------
        indices : ndarray of int
            Global numbers of the rows, ascending.

        Returns
        -------
        array of shape (len(indices), n_features)
            The rows in the order of `indices`.
        """
        own = indices[slice(*np.searchsorted(indices, (self.rows.start, self.rows.stop)))]
        x = self.kernels.xp.empty((len(own), self.rows.n_features), self.dtype)
        for chunk in self.rows.chunks():
            low, high = np.searchsorted(own, (chunk.start, chunk.stop))
            x[low:high] = chunk.x[self.kernels.xp.asarray(own[low:high] - chunk.start)]
        return self.comm.all_gather(x)

    def all_pairs(self) -> Iterator[tuple[Block, Block]]:
        """Yield every chunk of this rank's rows with every block of all rows, the blocks in global order.

        The loop reports its progress, and ends if the run is cancelled. Do not call collectives inside the loop.

        Yields
        ------
        chunk, block : Block
            The chunk may have no rows; the block has at least one row.
        """
        done, total = 0, max(1, self.chunk_count * self.comm.stream_length())
        for chunk in self.chunks():
            for block in self.comm.stream(self.rows):
                yield chunk, block
                done += 1
                self.progress(done / total)

    def sum_over_blocks(self, function: Callable[..., Array], *beside: Array) -> np.ndarray:
        """Sum a function over all rows; the bits of the result do not depend on the number of ranks.

        Parameters
        ----------
        function : callable
            Maps the rows of some blocks, of shape (blocks, m, n_features) with m >= 0, to a float64 array of shape
            (blocks, ...). The values of a block must not depend on other blocks.
        *beside : arrays of shape (local rows, ...)
            Further arrays. Their rows of the same blocks are also passed to the function, in shape (blocks, m, ...).

        Returns
        -------
        ndarray, float64
            The values of all blocks, added in global order; on the host of every rank.
        """

        def values(start: int, stop: int, blocks: int) -> Array:
            own = slice(start - self.rows.start, stop - self.rows.start)
            shape = (blocks, (stop - start) // blocks)
            return function(*(_split(rows, shape) for rows in (self.rows.read(start, stop), *(y[own] for y in beside))))

        own, size = self.partition.blocks_of(self.rank), self.partition.block_rows
        at_once = max(1, self.rows.piece // (size * self.rows.n_features))
        whole = min(own.stop, self.partition.n_rows // size)
        starts = range(own.start, whole, at_once)
        parts = [values(a * size, min(a + at_once, whole) * size, min(at_once, whole - a)) for a in starts]
        if max(whole, own.start) < own.stop:
            parts.append(values(*self.partition.bounds(own.stop - 1), 1))
        parts = parts or [values(self.rows.stop, self.rows.stop, 1)[:0]]
        every = self.comm.all_gather(
            np.concatenate([np.asarray(self.kernels.memory.to_host(part), np.float64) for part in parts])
        )
        total = np.zeros(every.shape[1:], np.float64)
        for part in every:
            total += part
        return total

    def sum_parts(self, parts: Array) -> Array:
        """Sum float64 parts, one per block of rows, over all ranks; the bits do not depend on the number of ranks.

        Each element is scaled by a power of two, which is chosen from the largest part on any rank so that the sum of
        all blocks fits into an integer. Integers give the same sum in any order. The rounding error is below 2^-53 of
        the largest part. The ranks exchange two arrays of the shape of one part, however many blocks there are, so this
        method can be called in every iteration.

        Parameters
        ----------
        parts : float64 array of shape (local blocks, ...)
            Finite numbers, on the device.

        Returns
        -------
        float64 array
            The sum, of the shape of one part, on the device of every rank; see `fetch`.
        """
        exponents = self.kernels.exact_sums.largest_exponents(parts)
        self.comm.queue_reduce(exponents, "max")
        bits = 62 - self.partition.blocks.bit_length()
        integers = self.kernels.exact_sums.integer_sums(parts, exponents, bits=bits)
        self.comm.queue_reduce(integers, "sum")
        return self.kernels.exact_sums.from_integers(integers, exponents, bits=bits)

    def fetch(self, array: Array) -> Callable[[], np.ndarray]:
        """Start to copy an array to the host. Work that is queued after this call does not delay the copy.

        Parameters
        ----------
        array : array
            An array on the device.

        Returns
        -------
        callable
            Waits for the copy, and returns the array on the host.
        """
        host = self.kernels.memory.start_to_host(array)
        mark = self.comm.mark()

        def arrived() -> np.ndarray:
            self.comm.synchronize(mark)
            return np.asarray(host)

        return arrived

    def _report(self, fraction: float, **details: float | str) -> None:
        if self._emit is None:
            return
        self._fraction = fraction
        self._emitted = time.perf_counter()
        elapsed = self._emitted - self._began
        self._emit({"stage": self._stage, "fraction": float(fraction), "elapsed": elapsed, **details})


def _split(rows: Array, shape: tuple[int, int]) -> Array:
    """Split rows into blocks."""
    return rows.reshape(*shape, *rows.shape[1:])
