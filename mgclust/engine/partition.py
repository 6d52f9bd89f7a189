"""Assignment of rows to the ranks that own them.

Rows are cut into blocks whose size depends on the data alone, never on the number of ranks: sums that are
added block by block in global order are then the same, bit for bit, on any number of ranks. A rank owns a
number of consecutive blocks.

::

    rows    0 .......................................... n
    blocks  |  0  |  1  |  2  |  3  |  4  |  5  |  6  |7|
    ranks   |     0     |     1     |     2     |   3   |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Partition", "RowRange"]

SMALLEST_BLOCK = 1024
LARGEST_BLOCK = 65536
BLOCKS = 256


class RowRange(NamedTuple):
    """Neighbouring rows of one owner that travel together."""

    start: int
    stop: int
    owner: int


@dataclass(frozen=True)
class Partition:
    """Fixed-size row blocks and the ranks that own them.

    Parameters
    ----------
    n_rows : int
        All rows of the data.
    block_rows : int
        Rows of a block; the last block may have fewer.
    size : int
        Number of ranks. A rank owns no rows when there are fewer blocks than ranks.
    """

    n_rows: int
    block_rows: int
    size: int

    @classmethod
    def plan(cls, n_rows: int, size: int) -> Partition:
        """The partition of a data set: about 256 blocks of 1024 to 65536 rows, multiples of 1024.

        Parameters
        ----------
        n_rows : int
            All rows of the data.
        size : int
            Number of ranks.
        """
        wanted = -(-n_rows // BLOCKS)
        rounded = -(-wanted // SMALLEST_BLOCK) * SMALLEST_BLOCK
        return cls(n_rows, max(SMALLEST_BLOCK, min(LARGEST_BLOCK, rounded)), size)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.n_rows // self.block_rows)

    def bounds(self, block: int) -> tuple[int, int]:
        """First row of a block and the row behind its last one.

        Parameters
        ----------
        block : int
            Its number.
        """
        return block * self.block_rows, min((block + 1) * self.block_rows, self.n_rows)

    def blocks_of(self, rank: int) -> range:
        """Blocks that a rank owns; their numbers differ by at most one between ranks.

        Parameters
        ----------
        rank : int
            Its number.
        """
        return range(rank * self.blocks // self.size, (rank + 1) * self.blocks // self.size)

    def rows_of(self, rank: int) -> tuple[int, int]:
        """First row of a rank and the row behind its last one.

        Parameters
        ----------
        rank : int
            Its number.
        """
        own = self.blocks_of(rank)
        return min(own.start * self.block_rows, self.n_rows), min(own.stop * self.block_rows, self.n_rows)

    def owner(self, block: int) -> int:
        """The rank that owns a block.

        Parameters
        ----------
        block : int
            Its number.
        """
        return ((block + 1) * self.size - 1) // self.blocks

    def ranges(self, max_rows: int) -> Iterator[RowRange]:
        """The data in global order, neighbouring blocks of one owner merged.

        Parameters
        ----------
        max_rows : int
            A range has no more rows than this, but at least one block.
        """
        blocks_at_once = max(1, max_rows // self.block_rows)
        for rank in range(self.size):
            own = self.blocks_of(rank)
            edges = [*range(own.start, own.stop, blocks_at_once), own.stop]
            for first, last in pairwise(edges):
                yield RowRange(self.bounds(first)[0], self.bounds(last - 1)[1], rank)
