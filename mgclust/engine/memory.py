"""Memory that a run will need, as one sum that is compared with what there is before a row is read.

A rank's memory is what its process, or the pool of its GPU, may grow by, once the code of its kernels is loaded::

    rows         all of the rank's if they fit (resident), else one chunk of them at a time (streamed)
    temporaries  of the rows that are read, converted and transformed together: a piece
    reading      what a reader decodes together, such as a row group
    blocks       of other ranks on their way
    the method   what its estimate lists

All but the first shrink with the memory, as far as they can. What the sum leaves is for larger chunks and for what a
method can do in larger steps (`Residency.spare`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from mgclust.base.errors import InsufficientMemoryError
from mgclust.engine.partition import Partition

__all__ = ["Estimate", "EstimateFunction", "Residency", "check", "human", "unspilled"]

TRAVELLING_RANGES = 3  # of rows of other ranks: one that is used, one that arrives, one that is sent
LARGEST_RANGE_BYTES = 64 << 20
# Bytes that a number takes while it is read and converted: from a float64 source, centred in float64, compared with
# the number that is left of it, and written to its place.
TEMPORARY_BYTES = 48
BLOCK_TEMPORARY_BYTES = 20  # of a number of a block that is summed at once: its square in float64, twice, and itself
MAX_PIECE = 1 << 24  # numbers: more are not faster
MAX_WORKERS = 1 << 16  # that are considered for a proposal
MAX_MEBIBYTES = 1 << 24  # of more memory
MARGIN = 20  # a proposal leaves 1 / MARGIN of the free memory


def human(count: float) -> str:
    """Bytes as text: ``human(3 << 30) == '3.0 GiB'``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def unspilled(limit: int, used: int) -> int:
    """Bytes that a Dask worker may take in addition, with so much of its memory limit in use.

    From 70% of the limit on, Dask writes to disk what no task is using; above 80% the worker starts no task any more,
    and at 95% its nanny ends it.
    """
    return max(0, limit * 7 // 10 - max(0, used))


@dataclass(frozen=True)
class Estimate:
    """Bytes that one rank will need.

    Parameters
    ----------
    what : mapping of str to int
        The parts by name.
    """

    what: Mapping[str, int] = field(default_factory=dict)

    @property
    def needed(self) -> int:
        """All bytes of a rank."""
        return sum(self.what.values())

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate({**self.what, **other.what})


EstimateFunction = Callable[[tuple[int, int], int, int, int], Estimate]
"""``(shape, itemsize, size, room) -> Estimate`` of a method beside its rows, which may take `room` bytes."""


def check(need: Callable[[tuple[int, int], int, int], Estimate], shape: tuple[int, int], size: int, free: int) -> None:
    """Refuse a run that cannot fit.

    Parameters
    ----------
    need : callable
        ``(shape, size, free) -> Estimate`` of a rank, for other data, another number of ranks and other free memory.
    shape : tuple of int
        Shape of the data.
    size : int
        Number of ranks.
    free : int
        Bytes that a rank may use.

    Raises
    ------
    InsufficientMemoryError
        With what is needed, what is there, and what would fit.
    """
    estimate = need(shape, size, free)
    if estimate.needed <= free:
        return
    (n, d), square = shape, shape[0] == shape[1]

    def fits(rows: int = n, ranks: int = size, more: int = 0) -> bool:
        # Another worker, or this one in a minute, has a little less memory free.
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
        f"not enough memory: needed {human(estimate.needed)} on each of {size} rank(s) ({parts}), there {human(free)}. "
        f"What would fit: {', or '.join(remedies)}."
    )


def _least(fits: Callable[[int], bool], low: int, most: int) -> int:
    """The least number above one that does not fit with which it does, if it does with more as well; 0 without one."""
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
    """Division of a rank's memory: of each of so many, as if it had the most rows.

    Parameters
    ----------
    free : int
        Bytes that the rank may use.
    shape : tuple of int
        Shape of the whole data.
    itemsize : int
        Bytes of a number, in the type that kernels see.
    size : int
        Number of ranks.
    method : EstimateFunction, optional
        What the method takes.
    reading : callable
        ``(rows) -> bytes`` that the source takes beside the rows that it returns, of so many that it reads.
    keep : bool
        Whether rows may stay in memory; False: each is read when it is asked for, a block at a time.
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
        """Bytes of one row in the type that kernels see."""
        return self.shape[1] * self.itemsize

    @cached_property
    def block_rows(self) -> int:
        """Rows of the longest block: fewer than `Partition.block_rows` where there are no more."""
        return min(Partition.plan(self.shape[0], self.size).block_rows, self.shape[0])

    @cached_property
    def rows(self) -> int:
        """Most rows of a rank."""
        return min(-(-Partition.plan(self.shape[0], self.size).blocks // self.size) * self.block_rows, self.shape[0])

    @property
    def piece(self) -> int:
        """Numbers that are read, converted and transformed together, at most; at least a row is."""
        return max(self.shape[1], min(MAX_PIECE, self.free // (8 * TEMPORARY_BYTES)))

    @property
    def range_rows(self) -> int:
        """Largest number of rows of a range (see `Partition.ranges`) in `stream`; a range has at least one block."""
        return max(1, min(LARGEST_RANGE_BYTES, self.free // 32) // self.row_bytes)

    @cached_property
    def engine(self) -> Estimate:
        """Bytes that it takes whatever the method is and however many rows stay."""
        numbers = min(self.piece, self.rows * self.shape[1])
        block = self.block_rows * self.shape[1]
        what = {"temporaries": max(TEMPORARY_BYTES * numbers, BLOCK_TEMPORARY_BYTES * block)}
        what["reading"] = self.reading(self.rows)
        if self.size > 1:
            longest = max(min(self.range_rows, self.rows), self.block_rows)
            what["blocks on their way"] = TRAVELLING_RANGES * longest * self.row_bytes
        return Estimate(what)

    def estimate(self, rows: int) -> Estimate:
        """The sum, with so many rows in memory at a time."""
        return self.engine + Estimate({"rows": rows * self.row_bytes}) + self._method(self.room(rows))

    def room(self, rows: int) -> int:
        """Bytes that the method may take beside so many rows."""
        return max(0, self.free - self.engine.needed - rows * self.row_bytes)

    def _method(self, room: int) -> Estimate:
        return Estimate() if self.method is None else self.method(self.shape, self.itemsize, self.size, room)

    def resident(self, rows: int) -> bool:
        """Return whether so many rows stay in memory for the whole run."""
        fits = self.keep and rows * self.row_bytes <= self.free // 2
        return fits and self.estimate(rows).needed <= self.free

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk where they do not: of a quarter of the memory, or half of what is left."""
        left = (self.free - self.estimate(self.block_rows).needed) // 2 + self.block_rows * self.row_bytes
        blocks = min(left, self.free // 4) // (self.row_bytes * self.block_rows)
        return max(1, blocks if self.keep else 1) * self.block_rows

    @property
    def held(self) -> int:
        """Rows that are in memory at a time."""
        return self.rows if self.resident(self.rows) else min(self.rows, self.chunk_rows)

    def check(self) -> None:
        """Refuse a run that does not fit, even if rows are streamed a block at a time; see `check`."""

        def need(shape: tuple[int, int], size: int, free: int) -> Estimate:
            each = Residency(free, shape, self.itemsize, size, self.method, self.reading, self.keep)
            return each.estimate(each.block_rows)

        check(need, self.shape, self.size, self.free)
