"""Histogram of weighted pairs from reduced distances that are stored, a tile at a time: the same on both devices.

Weights are integers, and so are all sums: none depends on how tiles are cut, or in which order they come. Floats hold
them exactly: sums of a row's columns stay below 2^53, and products of two weights are added up in two parts.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MOST_WEIGHT", "add_pair_weights"]

Array = Any
MOST_WEIGHT = 1 << 31  # of all rows: the product of two sums fits into 63 bits
LOW_BITS = 26


def add_pair_weights(s: Array, rows: Array, columns: Array, *, low: int, shift: int, out: Array, xp: Any) -> None:
    """Add the products of the weights of all pairs of a tile that lie below a bracket, and in each of its bins.

    Parameters
    ----------
    s : array of shape (m, k)
        Reduced distances.
    rows, columns : int64 arrays of shape (m,) and (k,)
        Weights, of all rows together at most `MOST_WEIGHT`.
    low, shift : int
        The first bin begins with the value whose bits are `low`; a bin is ``2**shift`` values wide.
    out : int64 array of shape (1 + bins,)
        Pairs below the bracket, and in each bin; added to in place.
    xp : module
        numpy or cupy.
    """
    bits = xp.ascontiguousarray(s).view(f"int{8 * s.itemsize}")
    below = (bits < low).astype("float64") @ columns.astype("float64")
    out[0] += (below.astype("int64") * rows).sum()
    bins = len(out) - 1
    row, column = xp.nonzero((bits >= low) & (bits < low + (bins << shift)))
    if not len(row):
        return
    which = (bits[row, column].astype("int64") - low) >> shift
    product = rows[row] * columns[column]
    fraction = product & ((1 << LOW_BITS) - 1)
    first, last = int(which.min()), int(which.max())
    which -= first
    found = xp.bincount(which, fraction.astype("float64"), last - first + 1).astype("int64")
    found += xp.bincount(which, (product >> LOW_BITS).astype("float64"), last - first + 1).astype("int64") << LOW_BITS
    out[1 + first : 2 + last] += found
