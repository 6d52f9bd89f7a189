"""Search for the nearest rows of some rows among all rows of the data, which stream past every rank.

The rows of the data are called columns here, because they are the columns of the distance matrix. With few features,
columns are gathered, as many at a time as fit into memory, and put into bounding boxes. Each row is then compared only
with columns near it: some hundreds of the n columns. With more features, or if boxes would not save time, all pairs are
compared, block by block. Both ways give bitwise identical results.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from mgclust.engine.rows import Block
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.boxes.column_boxes import MAX_FEATURES, column_bytes

__all__ = ["search_all_rows"]

Array = Any
STEP_ROWS = 1 << 18  # rows per step of the search in boxes, after which the run can be cancelled: 10 ms on a GPU
CPU_STEP_ROWS = 1 << 14  # the same on CPUs: about 50 ms on two cores
SHARE_OF_FREE = 8  # columns in boxes take at most this fraction (1 / SHARE_OF_FREE) of the spare memory


def search_all_rows(
    context: Context, x: Array, norm: str, near: Array, near_index: Array, rows: Array | None
) -> Iterator[float]:
    """Enter the nearest rows of all data into the lists of some rows; yield the finished fraction after each step.

    All ranks must call this equally often, even without rows, and exhaust the iterator.

    Parameters
    ----------
    context : Context
    x : array of shape (m, n_features)
    norm, near, near_index, rows
        See `PairKernels.nearest_rows`.
    """
    pairs, comm, n = context.kernels.pairs, context.comm, context.dataset_shape[0]
    lists = {"norm": norm, "near": near, "near_index": near_index, "rows": rows}
    step, mark = STEP_ROWS if context.kernels.device == "cuda" else CPU_STEP_ROWS, None
    for columns, edges in _gathered(context):
        share, before = len(columns.x) / n, columns.start / n
        boxes = pairs.boxes_of_columns(x, columns.x, norm=norm, neighbors=near.shape[1]) if len(x) else None
        if boxes is None:
            for start, stop in pairwise(edges):
                these = columns.x[start - columns.start : stop - columns.start]
                pairs.nearest_rows(x, these, y_start=start, **lists)
                yield stop / n
            continue
        for start in range(0, len(x), step):
            part = slice(start, start + step)
            own = None if rows is None else rows[part]
            of_part = {"near": near[part], "near_index": near_index[part], "rows": own}
            pairs.nearest_in_boxes(x[part], boxes, norm=norm, y_start=columns.start, **of_part)
            if mark is not None:  # only a few steps are queued at a time, so that a run can be cancelled
                comm.synchronize(mark)
            mark = comm.mark()
            yield before + share * min(start + step, len(x)) / len(x)


def _gathered(context: Context) -> Iterator[tuple[Block, list[int]]]:
    """Yield all rows of the data in blocks (large blocks for few features), with the edges of the original blocks."""
    n, d = context.dataset_shape
    if d > MAX_FEATURES:
        for block in context.comm.stream(context.rows):
            yield block, [block.start, block.stop]
        return
    budget = min(context.spare // SHARE_OF_FREE, context.kernels.memory.free_memory() // (SHARE_OF_FREE // 2))
    most = max(1, budget // column_bytes(d, context.dtype.itemsize))
    room, edges = None, [0]
    for block in context.comm.stream(context.rows):
        if room is None or block.stop - edges[0] > len(room):
            if room is not None:
                yield Block(edges[0], edges[-1], room[: edges[-1] - edges[0]]), edges
            room, edges = context.kernels.xp.empty((max(len(block.x), min(most, n)), d), context.dtype), [block.start]
        room[block.start - edges[0] : block.stop - edges[0]] = block.x
        edges.append(block.stop)
    if room is not None:
        yield Block(edges[0], edges[-1], room[: edges[-1] - edges[0]]), edges
