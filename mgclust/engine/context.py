"""View of a run that an algorithm gets: its rows, the other ranks, the kernels, and a clock.

An algorithm is a function ``f(context, **parameters)`` that runs on every rank. All ranks call the same
collectives in the same order; rank 0's return value is the result. The usual shape::

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
EMIT_EVERY = 0.1  # seconds
LARGEST_CHUNK = 8 << 30  # bytes: kernels count what belongs to a chunk with 32 bits


class Context:
    """One rank's view of a run.

    Parameters
    ----------
    comm : Comm
        The other ranks; an attribute, as are the following up to `spare`.
    partition : Partition
        Which rank owns which rows.
    rows : Rows
        This rank's.
    kernels : mgclust.kernels.Kernels
        Of this rank's device.
    free : int
        Bytes that the method may use beside the rows: as much as its estimate was told, or more.
    spare : int
        Bytes of these that its estimate does not list, for larger steps.
    limited : bool
        Whether what a stage leaves behind goes back to the device: others share its memory, or `memory_limit` does.
    abort : Abort
        Ends every wait of a cancelled run.
    emit : callable or None
        Called with the events of the progress, on rank 0.
    checkpoint : CheckpointConfig or MemoryCheckpoint, optional
        Where to save and to resume from.
    room : callable
        Says how many bytes of host memory copies for checkpoints may take now.
    keep_on_workers : bool
        Whether what is delivered stays with this rank; also an attribute, as is the following.
    beside : Beside, optional
        Rows to meet with those of the data.

    Attributes
    ----------
    dtype : dtype
        float32 or float64: the rows' type on the device.
    dataset_shape : (int, int)
        Of the whole data.
    chunk_count : int
        How often `chunks` yields, on every rank.
    timings : dict
        Seconds by stage.
    checkpoint : Checkpointer
        Where to resume from, and whether to save.
    delivered : dict of str to ndarray
        What `deliver` was given.
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
        keep_on_workers: bool = False,
        beside: Beside | None = None,
    ) -> None:
        self.comm = comm
        self.partition = partition
        self.rows = rows
        self.kernels = kernels
        self.dtype = rows.dtype
        self.dataset_shape = (partition.n_rows, rows.n_features)
        self.free, self.spare, self._limited = free, spare, limited
        self.keep_on_workers = keep_on_workers
        self.beside = beside
        self.timings: dict[str, float] = {}
        self.delivered: dict[str, np.ndarray] = {}
        self._abort = abort
        self._emit = emit if comm.rank == 0 else None
        self._stage, self._fraction = "", 0.0
        self._began = time.perf_counter()
        self._emitted = 0.0
        self._compiled = 0
        # Streams are collective: all ranks go through as many chunks as the one that has most.
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

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what happens inside, and name it in the progress.

        Parameters
        ----------
        name : str
            Used as the key of `timings`; equal names add up.
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
        """Report how far the stage is; call it once a tile.

        Parameters
        ----------
        fraction : float
            From 0 to 1. Passed on at most ten times a second.
        **details : float
            Figures of the method at this moment, to be shown: ``n_clusters=34``.

        Raises
        ------
        RunCancelled
            The run was told to stop: this is the cancellation point.
        """
        self._abort.check()
        if time.perf_counter() - self._emitted >= EMIT_EVERY:
            self._report(fraction, **details)

    def say(self, **details: float | str) -> None:
        """Pass something on at once, however short ago the last progress was.

        Parameters
        ----------
        **details : float or str
            As for `progress`; ``warning="..."`` is shown on a line of its own.
        """
        self._report(self._fraction, **details)

    @contextlib.contextmanager
    def telling_of_compiling(self) -> Iterator[None]:
        """Count kernels that are compiled in the block in the progress: what seems to hang does so once."""
        thread = threading.get_ident()

        def tell() -> None:
            self._compiled += 1
            if threading.get_ident() == thread:  # the receiver is called in no other
                self.say(compiling=self._compiled)

        with contextlib.nullcontext() if self._emit is None else self.kernels.on_compiling(tell):
            yield

    def deliver(self, **arrays: Array) -> None:
        """Hand over this rank's part of arrays of the result that have a row for each row of the data, or beside them.

        Of a graph they have one for each node. The parts of all ranks, one behind the other, become ``arrays`` of the
        run's outcome. They pass no other rank: they go to the caller, or stay where they are and become a Dask array.

        Parameters
        ----------
        **arrays : array or csr_array
            By the names that all ranks give, of one type and number of columns.
        """
        for name, array in arrays.items():
            if hasattr(array, "indptr"):
                self.delivered[name] = array
                continue
            host = self.kernels.memory.to_host(array)
            whole = getattr(host.base, "nbytes", host.nbytes)
            self.delivered[name] = host.copy() if whole > host.nbytes else host

    def chunks(self) -> Iterator[Block]:
        """Rows of this rank, in equally many blocks on every rank: one where all ranks' rows are resident.

        Yields
        ------
        Block
            Of shape (0, n_features) where this rank has fewer chunks than another.
        """
        own = self.rows.chunks()
        for _ in range(self.chunk_count):
            block = next(own, None)
            if block is None:
                stop = self.rows.stop
                block = Block(stop, stop, self.rows.read(stop, stop))
            yield block

    def cut_rows(self, row_bytes: int, others: tuple[int, int] | None = None) -> list[tuple[int, int]]:
        """Cut the own rows into chunks that fit into memory: equally many on every rank, none larger than by `chunks`.

        For rows that all meet all columns: cutting costs communication and no arithmetic.

        Parameters
        ----------
        row_bytes : int
            What a row of the chunk at hand needs beside itself.
        others : (start, stop), optional
            In place of the own rows, this rank's share of some that are in memory.

        Returns
        -------
        list of (start, stop)
            By global number; empty chunks where this rank has fewer rows than another.
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
        """
        own = indices[slice(*np.searchsorted(indices, (self.rows.start, self.rows.stop)))]
        x = self.kernels.xp.empty((len(own), self.rows.n_features), self.dtype)
        for chunk in self.rows.chunks():
            low, high = np.searchsorted(own, (chunk.start, chunk.stop))
            x[low:high] = chunk.x[self.kernels.xp.asarray(own[low:high] - chunk.start)]
        return self.comm.all_gather(x)

    def all_pairs(self) -> Iterator[tuple[Block, Block]]:
        """Every chunk of this rank's rows with every block of all rows, blocks in global order.

        Reports the progress and stops a cancelled run. No collective may be called inside.

        Yields
        ------
        chunk, block : Block
            The chunk's rows may be none; the block's are at least one.
        """
        done, total = 0, max(1, self.chunk_count * self.comm.stream_length())
        for chunk in self.chunks():
            for block in self.comm.stream(self.rows):
                yield chunk, block
                done += 1
                self.progress(done / total)

    def sum_over_blocks(self, function: Callable[..., Array], *beside: Array) -> np.ndarray:
        """A float sum over all rows whose bits do not depend on the number of ranks.

        Parameters
        ----------
        function : callable
            Maps the rows of some blocks (blocks, m, n_features), m >= 0, to a float64 array (blocks, ...), each block
            by itself.
        *beside : arrays of shape (own rows, ...)
            Their rows of the blocks, (blocks, m, ...), are handed to the function as well.

        Returns
        -------
        ndarray, float64
            The blocks' values added in global order; on the host of every rank.
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
        """The sum of float64 parts, one a block of rows, over all ranks; its bits do not depend on their number.

        Every element gets the power of two by which the sum of all blocks cannot overflow an integer, known from its
        largest part on any rank; integers add up the same in any order. Rounding is below 2^-53 of the largest part.
        Two exchanges of one part, however many blocks there are: what an iteration can afford.

        Parameters
        ----------
        parts : float64 array of shape (own blocks, ...)
            On the device; finite.

        Returns
        -------
        float64 array
            Of the shape of one part, on the device of every rank; see `fetch`.
        """
        exponents = self.kernels.exact_sums.largest_exponents(parts)
        self.comm.queue_reduce(exponents, "max")
        bits = 62 - self.partition.blocks.bit_length()
        integers = self.kernels.exact_sums.integer_sums(parts, exponents, bits=bits)
        self.comm.queue_reduce(integers, "sum")
        return self.kernels.exact_sums.from_integers(integers, exponents, bits=bits)

    def fetch(self, array: Array) -> Callable[[], np.ndarray]:
        """Start to copy an array to the host; what is queued afterwards does not delay it.

        Parameters
        ----------
        array : array
            On the device.

        Returns
        -------
        callable
            Waits, and returns the host's array.
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
    """Rows by blocks."""
    return rows.reshape(*shape, *rows.shape[1:])
