"""Assignment of rows to the ranks that own them.

Rows are divided into blocks. Their size depends only on the data, not on the number of ranks. So a sum that is added
block by block in global order is the same, bit for bit, on any number of ranks. A rank owns consecutive blocks.

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
    """Neighbouring rows of one owner that are sent together."""

    start: int
    stop: int
    owner: int


@dataclass(frozen=True)
class Partition:
    """Fixed-size row blocks and the ranks that own them.

    Parameters
    ----------
    n_rows : int
        Number of rows of the data.
    block_rows : int
        Number of rows of a block; the last block may have fewer.
    size : int
        Number of ranks. If there are fewer blocks than ranks, some ranks own no rows.

    Examples
    --------
    >>> from mgclust.engine.partition import Partition
    >>> partition = Partition.plan(10_000, 3)
    >>> [partition.rows_of(rank) for rank in range(3)]
    [(0, 3072), (3072, 6144), (6144, 10000)]
    """

    n_rows: int
    block_rows: int
    size: int

    @classmethod
    def plan(cls, n_rows: int, size: int) -> Partition:
        """Make the partition of a data set: about 256 blocks of 1024 to 65536 rows, in multiples of 1024.

        Parameters
        ----------
        n_rows : int
            Number of rows of the data.
        size : int
            Number of ranks.

        Returns
        -------
        Partition
        """
        wanted = -(-n_rows // BLOCKS)
        rounded = -(-wanted // SMALLEST_BLOCK) * SMALLEST_BLOCK
        return cls(n_rows, max(SMALLEST_BLOCK, min(LARGEST_BLOCK, rounded)), size)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.n_rows // self.block_rows)

    def bounds(self, block: int) -> tuple[int, int]:
        """First row of a block, and one more than its last row.

        Parameters
        ----------
        block : int
            Number of the block.
        """
        return block * self.block_rows, min((block + 1) * self.block_rows, self.n_rows)

    def blocks_of(self, rank: int) -> range:
        """Blocks that a rank owns. The number of blocks differs by at most one between ranks.

        Parameters
        ----------
        rank : int
            Number of the rank.
        """
        return range(rank * self.blocks // self.size, (rank + 1) * self.blocks // self.size)

    def rows_of(self, rank: int) -> tuple[int, int]:
        """First row of a rank, and one more than its last row.

        Parameters
        ----------
        rank : int
            Number of the rank.
        """
        own = self.blocks_of(rank)
        return min(own.start * self.block_rows, self.n_rows), min(own.stop * self.block_rows, self.n_rows)

    def owner(self, block: int) -> int:
        """Rank that owns a block.

        Parameters
        ----------
        block : int
            Number of the block.
        """
        return ((block + 1) * self.size - 1) // self.blocks

    def ranges(self, max_rows: int) -> Iterator[RowRange]:
        """Yield ranges of all rows in global order; neighbouring blocks of one owner are merged.

        Parameters
        ----------
        max_rows : int
            Largest number of rows of a range. A range has at least one block, even if the block has more rows.
        """
        blocks_at_once = max(1, max_rows // self.block_rows)
        for rank in range(self.size):
            own = self.blocks_of(rank)
            edges = [*range(own.start, own.stop, blocks_at_once), own.stop]
            for first, last in pairwise(edges):
                yield RowRange(self.bounds(first)[0], self.bounds(last - 1)[1], rank)
