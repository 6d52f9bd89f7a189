"""A spatial index: columns sorted so that near columns share a panel, with a tree of bounding boxes above the panels.

The index is for few features and many columns, and has the same arrays on both devices. 32 columns form a panel, 32
consecutive panels form a node, and 32 nodes form a node of the next level, up to one panel of nodes. There are no
pointers: the children of node i are the nodes 32 i .. 32 i + 31 of the level below::

    level 1   |        0        |        1        ...    <= 32 nodes
    level 0   |0|1|2| ... |31|32| ...                    one node per panel of columns
    position   0 ... 31, 32 ...                          columns; nothing after the last column

Columns are sorted in one of two ways. `build_boxes` of each device halves them along the widest feature, which takes
longer and gives smaller boxes. `build_along_curve` sorts them along a Morton curve (the interleaved bits of their
coordinates), for one to three features.

A search goes down from the top, 32 boxes at a time, for a row or for the box of a panel::

    near = the chain of s over the gaps between both boxes, 0 inside        a lower bound for *computed* s, because
    far  = the same chain over the largest differences; an upper bound      every rounding in the chain is monotone
    near >= threshold: nothing in the box counts; far < threshold: all of it counts; otherwise the box is opened

So results are bitwise identical to comparing all pairs, whichever columns share a panel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "CURVE_FEATURES",
    "MAX_FEATURES",
    "NO_COLUMN",
    "WIDTH",
    "Boxes",
    "build",
    "column_bytes",
    "curve_bits",
    "halved_by_sorting",
    "labels_below",
    "ranks_below",
]

Array = Any
WIDTH = 32  # number of columns in a panel
MAX_FEATURES = 8
CURVE_FEATURES = 3  # largest number of features of columns that are sorted along a curve
NO_COLUMN = 2**62  # larger than every column's number
NOTHING = 2**31 - 1  # larger than every rank and label
STEPS = 2.0**30  # steps into which a segment's widest feature is divided; columns are sorted by step


class Boxes(NamedTuple):
    """Columns by panel, and the bounding boxes above them."""

    index: Array  # (panels * 32,) int64: number of the column at each position; NO_COLUMN after the last column
    panels: Array  # flat [panel][feature][32]; infinity after the last column
    low: Array  # flat [panel of nodes][feature][32], level after level, beginning with the panels of columns
    high: Array
    starts: np.ndarray  # first panel of nodes of each level, and the number of all panels of nodes; on the host
    least: Array  # flat [panel of nodes][32] int64: the lowest column number in each box; NO_COLUMN if it is empty
    columns: int


def column_bytes(d: int, itemsize: int) -> int:
    """Return the number of bytes per column that are needed to put columns into boxes."""
    return 4 * d * itemsize + 96


def curve_bits(d: int) -> int:
    """Return the number of bits per feature in a position along the curve, so that all positions fit into int64."""
    return min(31, 62 // d)


def build(y: Array, numbers: Array, xp: Any) -> Boxes:
    """Put columns into boxes.

    Parameters
    ----------
    y : array of shape (k, d)
        Columns, k >= 1, in an order in which the columns of each group of 32, 1024, ... are near each other.
    numbers : int64 array of shape (k,)
        Number of each column.
    xp : module
        numpy or cupy.
    """
    k, d = y.shape
    count = -(-k // WIDTH)
    index = xp.full(count * WIDTH, NO_COLUMN, dtype="int64")
    index[:k] = numbers
    filled = xp.full((count * WIDTH, d), xp.inf, dtype=y.dtype)
    filled[:k] = y
    low, high = _panel_boxes(filled, k, xp)
    panels = xp.ascontiguousarray(filled.reshape(count, WIDTH, d).transpose(0, 2, 1)).reshape(-1)
    del filled
    lows, highs, starts = [], [], [0]
    while True:
        lows.append(_in_panels(low, xp.inf, xp))
        highs.append(_in_panels(high, -xp.inf, xp))
        starts.append(starts[-1] + len(lows[-1]))
        if len(low) <= WIDTH:
            break
        low, high = lows[-1].min(axis=2), highs[-1].max(axis=2)
    low, high = (xp.ascontiguousarray(xp.concatenate(levels)).reshape(-1) for levels in (lows, highs))
    return Boxes(index, panels, low, high, np.array(starts), least_below(index, len(starts) - 1, xp), k)


def _panel_boxes(filled: Array, k: int, xp: Any) -> tuple[Array, Array]:
    """Return the bounding boxes of groups of 32 of the k columns; the padding after the columns is infinite."""
    d = filled.shape[1]
    low = filled.reshape(-1, WIDTH, d).min(axis=1)
    full = k // WIDTH
    high = filled[: full * WIDTH].reshape(full, WIDTH, d).max(axis=1)
    rest = [filled[full * WIDTH : k].max(axis=0)[None]] if k % WIDTH else []
    return low, xp.concatenate([high, *rest])


def _in_panels(values: Array, fill: float, xp: Any) -> Array:
    """Rearrange (nodes, d) to (panels of 32 nodes, d, 32)."""
    missing = -len(values) % WIDTH
    filled = xp.concatenate([values, xp.full((missing, values.shape[1]), fill, dtype=values.dtype)])
    return filled.reshape(-1, WIDTH, values.shape[1]).transpose(0, 2, 1)


def least_below(arranged: Array, levels: int, xp: Any) -> Array:
    """Return the smallest integer below each box, in the order of `Boxes.low`: flat [panel of nodes][32]."""
    nothing = NOTHING if arranged.dtype == np.int32 else NO_COLUMN
    least, found = arranged, []
    for _ in range(levels):
        least = least.reshape(-1, WIDTH).min(axis=1)
        filled = xp.full(-(-len(least) // WIDTH) * WIDTH, nothing, dtype=least.dtype)
        filled[: len(least)] = least
        least = filled
        found.append(least)
    return xp.concatenate(found)


def ranks_below(boxes: Boxes, ranks: Array, xp: Any) -> tuple[Array, Array]:
    """Return int32 ranks (or labels) by position, and the smallest rank below each box."""
    arranged = xp.full(len(boxes.index), NOTHING, dtype="int32")
    arranged[: boxes.columns] = ranks[boxes.index[: boxes.columns]]
    return arranged, least_below(arranged, len(boxes.starts) - 1, xp)


def labels_below(boxes: Boxes, labels: Array, xp: Any) -> tuple[Array, Array, Array]:
    """Return int32 labels by position, and the smallest label and the smallest negated label below each box."""
    narrow = labels.astype("int32", copy=False)
    return *ranks_below(boxes, narrow, xp), ranks_below(boxes, -narrow, xp)[1]


def halved_by_sorting(y: Array, xp: Any) -> Array:
    """Find an order of columns for `build` by sorts of all columns, which are fast on a GPU.

    All segments of one size are halved by one sort of all columns: by segment, and within each segment by the steps of
    its widest feature.

    Parameters
    ----------
    y : array of shape (k, d)
        The columns.
    xp : module
        numpy or cupy.
    """
    k, d = y.shape
    order = xp.arange(k)
    size = WIDTH
    while size < k:
        size *= 2
    sorted_y = y
    while size > WIDTH:
        segments = -(-k // size)
        filled = xp.full((-(-k // WIDTH) * WIDTH, d), xp.inf, dtype=y.dtype)
        filled[:k] = sorted_y
        low, high = _panel_boxes(filled, k, xp)
        del filled
        missing = segments * (size // WIDTH) - len(low)
        edges = [xp.full((missing, d), end, dtype=y.dtype) for end in (xp.inf, -xp.inf)]
        low = xp.concatenate([low, edges[0]]).reshape(segments, -1, d).min(axis=1)
        high = xp.concatenate([high, edges[1]]).reshape(segments, -1, d).max(axis=1)
        width = high / 2 - low / 2  # no overflow
        widest = width.argmax(axis=1)
        of_segment = xp.arange(segments)
        low, width = low[of_segment, widest], width[of_segment, widest]
        width = xp.where(width > 0, width, 1)
        segment = xp.arange(k) // size
        value = xp.take_along_axis(sorted_y, widest[segment][:, None], axis=1)[:, 0]
        steps = (value / 2 - low[segment] / 2) / width[segment] * STEPS
        place = xp.argsort((segment << 32) + steps.astype("int64"))
        order, sorted_y = order[place], sorted_y[place]
        size //= 2
    return order
