"""Histogram of weighted pairs from reduced distances that are stored one tile at a time: the same on both devices.

Weights and sums are integers, so no sum depends on the size or the order of tiles. Floats represent them exactly: sums
over a row's columns stay below 2^53, and products of two weights are added in two parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.toolkit.threads import run_tasks

__all__ = ["MOST_WEIGHT", "add_pair_weights"]

Array = Any
MOST_WEIGHT = 1 << 31  # largest sum of all weights: the product of two sums fits into 63 bits
LOW_BITS = 26
TASK_ROWS = 32  # rows of a task: the temporary arrays for 2,048 columns of these rows fit into a core's cache


def add_pair_weights(s: Array, rows: Array, columns: Array, *, low: int, shift: int, out: Array, xp: Any) -> None:
    """Add the weight products of a tile's pairs, separately for pairs below a bracket and for each bin of the bracket.

    Parameters
    ----------
    s : array of shape (m, k)
        Reduced distances.
    rows, columns : int64 arrays of shape (m,) and (k,)
        Weights; their sum over all rows is at most `MOST_WEIGHT`.
    low, shift : int
        The first bin begins with the value whose bits are `low`; a bin is ``2**shift`` values wide.
    out : int64 array of shape (1 + bins,)
        Weighted number of pairs below the bracket, and in each bin; the products are added in place.
    xp : module
        numpy or cupy.
    """
    bits, span = xp.ascontiguousarray(s).view(f"int{8 * s.itemsize}"), (len(out) - 1) << shift
    # Sums below 2^24 are exact in float32.
    wide = columns.astype("float32" if int(columns.sum()) < 1 << 24 else "float64")
    parts: dict[int, tuple[Array, Array, Array]] = {}

    def task(index: int, _: int = 0) -> None:
        own = slice(index * TASK_ROWS, (index + 1) * TASK_ROWS) if xp is np else slice(None)
        beyond = bits[own] - bits.dtype.type(low)  # cannot overflow: neither is negative
        below = (beyond < 0).astype(wide.dtype) @ wide
        inside = xp.flatnonzero(beyond.view(f"uint{8 * s.itemsize}") < span)
        row, column = xp.divmod(inside, s.shape[1])
        which = beyond.reshape(-1)[inside].astype("int64") >> shift
        parts[index] = (below.astype("int64") @ rows[own], which, rows[own][row] * columns[column])

    if xp is np:
        run_tasks(-(-len(s) // TASK_ROWS), task)
    elif len(s):
        task(0)
    for below, which, product in parts.values():
        out[0] += below
        if not len(which):
            continue
        first, last = int(which.min()), int(which.max())
        low_bits, high_bits = product & ((1 << LOW_BITS) - 1), product >> LOW_BITS
        found = xp.bincount(which - first, low_bits.astype("float64"), last - first + 1).astype("int64")
        if int(high_bits.max()):
            found += (
                xp.bincount(which - first, high_bits.astype("float64"), last - first + 1).astype("int64") << LOW_BITS
            )
        out[1 + first : 2 + last] += found
