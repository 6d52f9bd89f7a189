"""Memory that a run will need, compared with what there is before it starts.

A rank's memory, or the part of it that `memory_limit` grants, is shared out like this::

    half       rows: all of the rank's if they fit (resident), else one chunk of them at a time (streamed)
    the rest   blocks of other ranks on their way, and what the algorithm keeps
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mgclust.base.errors import InsufficientMemoryError
from mgclust.engine.partition import SMALLEST_BLOCK

__all__ = ["Estimate", "EstimateFunction", "Residency", "human"]

TRAVELLING_BLOCKS = 3
LARGEST_RANGE_BYTES = 64 << 20


def human(count: float) -> str:
    """Bytes as text: ``human(3 << 30) == '3.0 GiB'``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


@dataclass(frozen=True)
class Estimate:
    """Bytes that one rank will need.

    Parameters
    ----------
    resident : int
        What shrinks as ranks are added: rows and per-row vectors.
    working : int
        What every rank needs whatever their number: tiles, columns, grids.
    what : mapping
        The parts by name, for the refusal.
    fixed : int
        The part of `working` that fewer rows would need as well.
    squared : int
        The part of `resident` that grows with the square of the number of rows.
    """

    resident: int
    working: int
    what: Mapping[str, int] = field(default_factory=dict)
    fixed: int = 0
    squared: int = 0

    @property
    def needed(self) -> int:
        """All bytes of a rank."""
        return self.resident + self.working

    def check(self, free: int, size: int) -> None:
        """Refuse a run that cannot fit.

        Parameters
        ----------
        free : int
            Bytes that this rank may use.
        size : int
            Number of ranks.

        Raises
        ------
        InsufficientMemoryError
            With what is needed, what is there, and what would fit.
        """
        if self.needed <= free:
            return
        parts = ", ".join(f"{name} {human(count)}" for name, count in self.what.items())
        remedies = []
        if self.working < free:
            ranks = -(-self.resident * size // (free - self.working))
            remedies.append(f"{ranks} workers like this one instead of {size}")
        remedies.append(f"a worker with {human(self.needed)}")
        if free > self.fixed:
            remedies.append(f"about {math.floor(100 * self._share(free))}% of the rows")
        needed = f"{human(self.needed)} on each of {size} rank(s)" + (f" ({parts})" if parts else "")
        raise InsufficientMemoryError(
            f"not enough memory: needed {needed}, there {human(free)}. What would fit: {', or '.join(remedies)}."
        )

    def _share(self, free: int) -> float:
        """The share f of the rows with ``squared f^2 + linear f + fixed = free``."""
        linear, left = self.needed - self.fixed - self.squared, free - self.fixed
        if not self.squared:
            return left / linear
        return (math.sqrt(linear**2 + 4.0 * self.squared * left) - linear) / (2.0 * self.squared)


EstimateFunction = Callable[[tuple[int, int], int, int, int], Estimate]
"""``(shape, itemsize, size, resident_limit) -> Estimate``; `resident_limit` bytes may be taken by rows."""


@dataclass(frozen=True)
class Residency:
    """Placement of a rank's rows in its memory."""

    free: int  # bytes that the rank may use
    row_bytes: int  # bytes of one row in the type that kernels see
    block_rows: int  # rows of the longest block: fewer than `Partition.block_rows` where there are no more
    keep: bool = True  # whether rows may stay in memory; False: each is read when it is asked for, a block at a time

    @property
    def resident_limit(self) -> int:
        """Bytes that rows may take."""
        return self.free // 2

    def resident(self, rows: int) -> bool:
        """Return whether so many rows stay in memory for the whole run."""
        return self.keep and rows * self.row_bytes <= self.resident_limit

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk where they do not."""
        if not self.keep:
            return self.block_rows
        blocks = self.resident_limit // 2 // (self.row_bytes * self.block_rows)
        return max(1, blocks) * self.block_rows

    @property
    def range_rows(self) -> int:
        """Most rows of a range (see `Partition.ranges`) in `stream`; a range has at least one block."""
        return max(1, min(LARGEST_RANGE_BYTES, self.free // 16) // self.row_bytes)

    def rows_estimate(self, rows: int) -> Estimate:
        """Memory that rows and travelling blocks need by themselves."""
        own = rows * self.row_bytes if self.resident(rows) else self.chunk_rows * self.row_bytes
        travelling = TRAVELLING_BLOCKS * self.block_rows * self.row_bytes
        parts = {"rows": own, "blocks on their way": travelling}
        return Estimate(own, travelling, parts, travelling if self.block_rows == SMALLEST_BLOCK else 0)
