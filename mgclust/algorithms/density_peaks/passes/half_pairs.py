"""Tiles that contain each pair of rows once, with the same amount of work for every rank."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from mgclust.engine.rows import Block
from mgclust.engine.spmd import Context

__all__ = ["half_pairs"]

GROUPS = 8  # number of groups of a rank's blocks; see `half_pairs`


def half_pairs(context: Context) -> Iterator[tuple[Block, Block, bool]]:
    """Yield tiles (rows, columns, diagonal) that contain every pair i < j once; on the diagonal, columns are the rows.

    Either owner of a pair of row blocks could count it. Ranks wait for each other while columns stream past, so each
    rank should have the same work for *every* column block. Between two ranks p < q: p counts its lower half against
    the lower half of q, and its upper half against the upper half of q; q counts the rest. Within a rank, the blocks
    are cut into a few groups. Each group is counted against one half of the other groups, in cyclic order, and against
    itself in a triangle.
    """
    partition, me = context.partition, context.comm.rank
    own, size = partition.blocks_of(me), partition.block_rows
    for chunk, block in context.all_pairs():
        if len(chunk.x) == partition.n_rows:  # one rank has all rows, so no rank waits: count a triangle
            yield Block(0, block.start, chunk.x[: block.start]), block, False
            yield block, block, True
            continue
        theirs = partition.blocks_of(partition.owner(block.start // size))
        of_block, of_chunk = (range(each.start // size, -(-each.stop // size)) for each in (block, chunk))
        for j, last in _column_runs(own, theirs, of_block, of_chunk):
            start, stop = partition.bounds(j)[0], partition.bounds(last - 1)[1]
            y = Block(start, stop, block.x[start - block.start : stop - block.start])
            if chunk.start <= start and stop <= chunk.stop:
                yield y, y, True
            for first, end in _partners(own, theirs, j):
                a, b = max(first * size, chunk.start), min(end * size, chunk.stop)
                if a < b:
                    yield Block(a, b, chunk.x[a - chunk.start : b - chunk.start]), y, False


def _column_runs(own: range, theirs: range, of_block: range, of_chunk: range) -> list[tuple[int, int]]:
    """Return runs of a block's columns that have the same partners, and lie entirely inside or outside the chunk."""
    middle = theirs.start + len(theirs) // 2
    cuts = [*_group_edges(own), of_chunk.start, of_chunk.stop] if own == theirs else [middle]
    inside = {cut for cut in cuts if of_block.start < cut < of_block.stop}
    return list(pairwise([of_block.start, *sorted(inside), of_block.stop]))


def _partners(own: range, theirs: range, j: int) -> list[tuple[int, int]]:
    """Return the runs of own blocks that count their pairs with the run of columns that begins at block j.

    If j is one of the own blocks, its group is left out.
    """
    if own == theirs:
        edges = _group_edges(own)
        count, at = len(edges) - 1, bisect_right(edges, j) - 1
        # The partners are the 1st to the half-th group before this one. At distance count / 2, only one of the two
        # groups may count the pair.
        half = count // 2 if count % 2 or at >= count // 2 else count // 2 - 1
        runs = [(edges[max(at - half, 0)], j), (edges[count + min(at - half, 0)], edges[count])]
        return [run for run in runs if run[0] < run[1]]
    middle, lower = own.start + len(own) // 2, j < theirs.start + len(theirs) // 2
    same_half = own.start < theirs.start
    return [(own.start, middle) if lower == same_half else (middle, own.stop)]


def _group_edges(own: range) -> list[int]:
    """Return the first block of each group of a rank, and the end of the last group; few groups need few launches."""
    count = min(len(own), GROUPS)
    return [own.start + len(own) * group // count for group in range(count + 1)] if count else [own.start]
