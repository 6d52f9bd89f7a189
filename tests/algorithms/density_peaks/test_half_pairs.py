"""Tiles of the passes that take each pair of rows once."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from mgclust.algorithms.density_peaks.passes.half_pairs import half_pairs
from mgclust.engine.partition import Partition
from mgclust.engine.rows import Block


def tiles(partition: Partition, rank: int, range_rows: int, chunk_rows: int) -> Iterator[tuple[Block, Block, bool]]:
    """Those of one rank, whose rows are their numbers."""
    numbers = np.arange(partition.n_rows)
    first, stop = partition.rows_of(rank)

    def all_pairs() -> Iterator[tuple[Block, Block]]:
        for start in range(first, max(stop, first + 1), chunk_rows):
            end = min(start + chunk_rows, stop)
            for each in partition.ranges(range_rows):
                yield (
                    Block(start, end, numbers[start:end]),
                    Block(each.start, each.stop, numbers[each.start : each.stop]),
                )

    context = SimpleNamespace(partition=partition, comm=SimpleNamespace(rank=rank), all_pairs=all_pairs)
    return half_pairs(context)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [5, 64, 97, 131])
@pytest.mark.parametrize("span_blocks, chunk_blocks", [(1, 100), (3, 100), (100, 100), (5, 3), (2, 7)])
def test_each_pair_comes_once(size: int, n: int, span_blocks: int, chunk_blocks: int) -> None:
    partition = Partition(n, 4, size)
    seen = np.zeros((n, n), int)
    for rank in range(size):
        for rows, columns, diagonal in tiles(partition, rank, 4 * span_blocks, 4 * chunk_blocks):
            np.testing.assert_array_equal(rows.x, np.arange(rows.start, rows.stop))
            np.testing.assert_array_equal(columns.x, np.arange(columns.start, columns.stop))
            pairs = np.ones((len(rows.x), len(columns.x)), int)
            seen[rows.start : rows.stop, columns.start : columns.stop] += np.triu(pairs, 1) if diagonal else pairs
    np.testing.assert_array_equal(seen + seen.T, 1 - np.eye(n, dtype=int))


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_have_as_much_to_do_in_few_tiles(size: int) -> None:
    partition = Partition.plan(300_000, size)
    found = [list(tiles(partition, rank, 1 << 17, 1 << 30)) for rank in range(size)]
    pairs = [
        sum(len(rows.x) * len(columns.x) // (2 if diagonal else 1) for rows, columns, diagonal in each)
        for each in found
    ]
    assert max(pairs) < 1.02 * 300_000**2 / 2 / size
    assert max(map(len, found)) <= 3 * 8 + 2 * size + 8
