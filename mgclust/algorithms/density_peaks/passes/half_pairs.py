"""Tiles that take each pair of rows once, as much work for each rank as for any other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from mgclust.engine.rows import Block
from mgclust.engine.spmd import Context

__all__ = ["half_pairs"]

GROUPS = 8  # of a rank's blocks, in which these meet each other


def half_pairs(context: Context) -> Iterator[tuple[Block, Block, bool]]:
    """Tiles that hold every pair i < j once: (rows, columns, columns are the rows).

    A pair of row blocks could be counted by either's owner. Ranks wait for each other as columns stream by, so that
    each should have as much to do as any other for *every* column block. Between two ranks p < q, halves meet: p
    counts its lower half against q's lower half and its upper against q's upper; q counts the rest. Within a rank,
    which cuts its blocks into a few groups, group I meets the half of the groups behind it, cyclically, and itself in
    a triangle.
    """
    partition, me = context.partition, context.comm.rank
    own, size = partition.blocks_of(me), partition.block_rows
    for chunk, block in context.all_pairs():
        if len(chunk.x) == partition.n_rows:  # no rank waits for another: a triangle
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
    """Runs of a block's columns that have the same partners, and lie in the chunk or outside."""
    middle = theirs.start + len(theirs) // 2
    cuts = [*_group_edges(own), of_chunk.start, of_chunk.stop] if own == theirs else [middle]
    inside = {cut for cut in cuts if of_block.start < cut < of_block.stop}
    return list(pairwise([of_block.start, *sorted(inside), of_block.stop]))


def _partners(own: range, theirs: range, j: int) -> list[tuple[int, int]]:
    """Runs of own blocks that count their pairs with a run of columns, of which the first block is j, beside itself."""
    if own == theirs:
        edges = _group_edges(own)
        count, at = len(edges) - 1, bisect_right(edges, j) - 1
        # Partners lie 1 .. half before the group; at a distance of count / 2 each pair would come twice.
        half = count // 2 if count % 2 or at >= count // 2 else count // 2 - 1
        runs = [(edges[max(at - half, 0)], j), (edges[count + min(at - half, 0)], edges[count])]
        return [run for run in runs if run[0] < run[1]]
    middle, lower = own.start + len(own) // 2, j < theirs.start + len(theirs) // 2
    same_half = own.start < theirs.start
    return [(own.start, middle) if lower == same_half else (middle, own.stop)]


def _group_edges(own: range) -> list[int]:
    """The first blocks of a rank's groups, and the end of the last: each tile costs a launch."""
    count = min(len(own), GROUPS)
    return [own.start + len(own) * group // count for group in range(count + 1)] if count else [own.start]
