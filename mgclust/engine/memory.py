"""Memory that a run will need: a sum that is compared with the free memory before any row is read.

The memory of a rank is the number of bytes by which its process, or the pool of its GPU, may grow after the code of its
kernels has been loaded::

    rows         all rows of the rank if they fit (resident), else one chunk of them at a time (streamed)
    temporaries  temporary arrays for the rows that are read, converted and transformed together (a piece)
    reading      data that a reader decodes together, such as a row group
    blocks       blocks of rows that are sent or received
    the method   the parts that its estimate lists

If less memory is free, all parts except the first become smaller, as far as possible. Memory beyond the sum is used for
larger chunks, and for larger steps of the method (`Residency.spare`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from mgclust.base.errors import InsufficientMemoryError
from mgclust.engine.partition import Partition

__all__ = ["Estimate", "EstimateFunction", "Residency", "check", "human", "unspilled"]

TRAVELLING_RANGES = 3  # ranges of rows in memory: one in use, one that arrives, one that is sent
LARGEST_RANGE_BYTES = 64 << 20
# Bytes per number while numbers are read and converted: each number comes from a float64 source, is centred in float64,
# compared with the converted number, and written to its place.
TEMPORARY_BYTES = 48
BLOCK_TEMPORARY_BYTES = 20  # bytes per number while a block is summed: two copies of its float64 square, and the number
MAX_PIECE = 1 << 24  # numbers of a piece: larger pieces are not faster
MAX_WORKERS = 1 << 16  # largest number of workers that a proposal considers
MAX_MEBIBYTES = 1 << 40  # largest amount of additional memory that a proposal considers
MARGIN = 20  # a proposal leaves 1 / MARGIN of the free memory unused


def human(count: float) -> str:
    """Format a number of bytes: ``human(3 << 30) == '3.0 GiB'``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def unspilled(limit: int, used: int) -> int:
    """Return how many more bytes a Dask worker may take if `used` bytes of its memory limit are in use.

    From 70% of the limit on, Dask writes data to disk that no task uses. Above 80%, the worker starts no more tasks. At
    95%, its nanny ends it.
    """
    return max(0, limit * 7 // 10 - max(0, used))


@dataclass(frozen=True)
class Estimate:
    """Bytes that one rank will need.

    Parameters
    ----------
    what : mapping of str to int
        Bytes of each part, by name.
    """

    what: Mapping[str, int] = field(default_factory=dict)

    @property
    def needed(self) -> int:
        """Sum of all parts."""
        return sum(self.what.values())

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate({**self.what, **other.what})


EstimateFunction = Callable[[tuple[int, int], int, int, int], Estimate]
"""Memory estimate of a method: ``(shape, itemsize, size, room) -> Estimate``.

The method may take `room` bytes in addition to its rows.
"""


def check(need: Callable[[tuple[int, int], int, int], Estimate], shape: tuple[int, int], size: int, free: int) -> None:
    """Reject a run that does not fit into memory.

    Parameters
    ----------
    need : callable
        Function ``(shape, size, free) -> Estimate`` that estimates the memory of a rank. It is also called with other
        shapes, numbers of ranks and amounts of free memory, to find a run that fits.
    shape : tuple of int
        Shape of the data.
    size : int
        Number of ranks.
    free : int
        Bytes that a rank may use.

    Raises
    ------
    InsufficientMemoryError
        The run does not fit. The message lists the bytes needed, the bytes free, and changes that would make it fit.
    """
    estimate = need(shape, size, free)
    if estimate.needed <= free:
        return
    (n, d), square = shape, shape[0] == shape[1]

    def fits(rows: int = n, ranks: int = size, more: int = 0) -> bool:
        # Another worker may have a little less free memory, and so may this worker later.
        there = (free + more) * (MARGIN - 1) // MARGIN
        return need((rows, rows if square else d), ranks, there).needed <= there

    def part(percent: int) -> int:
        return max(1, n * percent // 100)

    remedies = []
    if ranks := _least(lambda ranks: fits(ranks=ranks), size, MAX_WORKERS):
        remedies.append(f"{ranks} workers like this one instead of {size}")
    if more := _least(lambda mebibytes: fits(more=mebibytes << 20), 0, MAX_MEBIBYTES):
        remedies.append(f"{human(more << 20)} more free memory on each worker")
    if left_out := _least(lambda percent: fits(rows=part(100 - percent)), 0, 99):
        remedies.append(f"about {100 - left_out}% of the rows")
    parts = ", ".join(f"{name} {human(count)}" for name, count in estimate.what.items() if count)
    raise InsufficientMemoryError(
        f"not enough memory: each of {size} rank(s) needs {human(estimate.needed)} ({parts}), {human(free)} is free. "
        f"What would fit: {', or '.join(remedies)}."
    )


def _least(fits: Callable[[int], bool], low: int, most: int) -> int:
    """Return the smallest number above `low` that fits, by bisection up to `most`; 0 if none fits.

    `low` does not fit. If a number fits, larger numbers must also fit.
    """
    high = low + 1
    while not fits(high):
        if high >= most:
            return 0
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class Residency:
    """Division of a rank's memory, the same on all ranks: it is computed for the rank with the most rows.

    Parameters
    ----------
    free : int
        Bytes that the rank may use.
    shape : tuple of int
        Shape of the whole data.
    itemsize : int
        Bytes of a number in the type that kernels get.
    size : int
        Number of ranks.
    method : EstimateFunction, optional
        Estimate of the memory that the method needs.
    reading : callable
        Function ``(rows) -> bytes``: the memory that the source needs to read this number of rows, in addition to the
        rows that it returns.
    keep : bool
        Whether rows may stay in memory. False: rows are read on demand, one block at a time.
    """

    free: int
    shape: tuple[int, int]
    itemsize: int
    size: int = 1
    method: EstimateFunction | None = None
    reading: Callable[[int], int] = lambda rows: 0
    keep: bool = True

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row in the type that kernels get."""
        return self.shape[1] * self.itemsize

    @cached_property
    def block_rows(self) -> int:
        """Rows of the longest block: fewer than `Partition.block_rows` if the data have fewer rows."""
        return min(Partition.plan(self.shape[0], self.size).block_rows, self.shape[0])

    @cached_property
    def rows(self) -> int:
        """Largest number of rows of any rank."""
        return min(-(-Partition.plan(self.shape[0], self.size).blocks // self.size) * self.block_rows, self.shape[0])

    @property
    def piece(self) -> int:
        """Largest count of numbers that are read, converted and transformed together; at least all numbers of a row."""
        return max(self.shape[1], min(MAX_PIECE, self.free // (8 * TEMPORARY_BYTES)))

    @property
    def range_rows(self) -> int:
        """Largest number of rows of a range (see `Partition.ranges`) in `stream`; a range has at least one block."""
        return max(1, min(LARGEST_RANGE_BYTES, self.free // 32) // self.row_bytes)

    @cached_property
    def engine(self) -> Estimate:
        """Estimate of the parts that depend neither on the method nor on the number of rows in memory."""
        numbers = min(self.piece, self.rows * self.shape[1])
        block = self.block_rows * self.shape[1]
        what = {"temporaries": max(TEMPORARY_BYTES * numbers, BLOCK_TEMPORARY_BYTES * block)}
        what["reading"] = self.reading(self.rows)
        if self.size > 1:
            longest = max(min(self.range_rows, self.rows), self.block_rows)
            what["blocks in transit"] = TRAVELLING_RANGES * longest * self.row_bytes
        return Estimate(what)

    def estimate(self, rows: int) -> Estimate:
        """Estimate all parts if this number of rows is in memory at a time."""
        return self.engine + Estimate({"rows": rows * self.row_bytes}) + self._method(self.room(rows))

    def room(self, rows: int) -> int:
        """Return the bytes that are left for the method if this number of rows is in memory."""
        return max(0, self.free - self.engine.needed - rows * self.row_bytes)

    def _method(self, room: int) -> Estimate:
        return Estimate() if self.method is None else self.method(self.shape, self.itemsize, self.size, room)

    def resident(self, rows: int) -> bool:
        """Return whether this number of rows may stay in memory for the whole run."""
        fits = self.keep and rows * self.row_bytes <= self.free // 2
        return fits and self.estimate(rows).needed <= self.free

    @property
    def chunk_rows(self) -> int:
        """Number of rows of a streamed chunk.

        The chunk takes a quarter of the free memory, or half of the memory left by the other parts if this is less.
        """
        left = (self.free - self.estimate(self.block_rows).needed) // 2 + self.block_rows * self.row_bytes
        blocks = min(left, self.free // 4) // (self.row_bytes * self.block_rows)
        return max(1, blocks if self.keep else 1) * self.block_rows

    @property
    def held(self) -> int:
        """Number of rows that are in memory at a time."""
        return self.rows if self.resident(self.rows) else min(self.rows, self.chunk_rows)

    def check(self) -> None:
        """Reject a run that does not fit even if rows are streamed one block at a time; see the function `check`."""

        def need(shape: tuple[int, int], size: int, free: int) -> Estimate:
            each = Residency(free, shape, self.itemsize, size, self.method, self.reading, self.keep)
            return each.estimate(each.block_rows)

        check(need, self.shape, self.size, self.free)
