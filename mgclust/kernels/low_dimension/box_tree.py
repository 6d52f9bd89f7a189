"""A tree of boxes over rows in one to three dimensions, for searches that skip what is far away.

Rows are sorted along a Morton curve (the bits of their coordinates, interleaved) and cut into leaves of 32;
32 consecutive leaves make a node, 32 of these a node of the next level, up to a level of at most 32 nodes::

    level 2   |                 0                 |                 1          ...   <= 32 nodes
    level 1   |   0   |   1   | ... |   31   |  32   |  33 ...
    level 0   |0|1|...|31|32 ...                                                     n / 32 leaves
    position   0 ... 31, 32 ...                                                      n rows, in curve order

Each node knows its tight box. Where rows are dense, leaves are small: there is no cell size to choose, and
no empty cells. Nothing points anywhere: the children of node i are the nodes 32 i .. 32 i + 31 of the level
below. They form one *panel* [coordinate][child], so that a kernel tests a row against 32 boxes, or 32 rows,
at once.

The bounds are exact in the arithmetic of the pair kernels: a reduced distance is a chain of roundings, each
monotone in |x_k - y_k|, so the same chain over the gaps between two boxes is a lower bound for *computed*
distances, without slack. Hence what the tree finds has the bits that comparing all pairs gives; which
permutation sorts the rows is of no consequence.

Build. One argsort and a few passes; the same code for NumPy and CuPy. Memory: 2 d + 3 reals or integers a
row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["LEAF", "MAX_FEATURES", "BoxTree", "curve_bits"]

Array = Any
LEAF = 32
MAX_FEATURES = 3
NOTHING = 2**31 - 1  # order and index of padding


def curve_bits(d: int) -> int:
    """Bits of each of d coordinates in a place along the curve."""
    return min(31, 62 // d)


@dataclass(frozen=True)
class BoxTree:
    """Rows in curve order and the boxes above them; made by `build`."""

    xp: Any  # numpy or cupy, of all arrays
    index: Array  # int64 array of shape (n,): row number at each position
    rows: Array  # shape (n, d): rows by position
    panels: Array  # shape (leaves, d, 32): the same by leaf and coordinate; infinity after the last
    # low, high: of shape (panels of nodes, d, 32): boxes, level after level, leaves first; empty (infinity,
    # -infinity) where there is no node
    low: Array
    high: Array
    first_index: Array  # int32 array of shape (panels of nodes, 32): least row number in each node
    level_starts: tuple[int, ...]  # first panel of each level; the last number is how many there are

    @classmethod
    def build(cls, x: Array, places: Array, xp: Any) -> BoxTree:
        """Sort rows and put boxes around them.

        Parameters
        ----------
        x : array of shape (n, d), 1 <= d <= 3, n >= 1
            Finite rows.
        places : int64 array of shape (n,)
            Along a curve: `LowDimension.curve`.
        xp : module
            numpy or cupy.
        """
        n = len(x)
        index = xp.argsort(places)
        rows = xp.ascontiguousarray(x[index])
        leaves = -(-n // LEAF)
        # Repeating the last row keeps the last box tight; the padding proper comes after.
        filled = xp.concatenate([rows, xp.repeat(rows[-1:], leaves * LEAF - n, axis=0)])
        low, high = _panels(filled, LEAF), None
        low, high = low.min(axis=2), low.max(axis=2)
        lows, highs, starts = [], [], [0]
        while True:
            lows.append(_panels(_padded(low, xp.inf, xp), LEAF))
            highs.append(_panels(_padded(high, -xp.inf, xp), LEAF))
            starts.append(starts[-1] + len(lows[-1]))
            if len(low) <= LEAF:
                break
            low, high = lows[-1].min(axis=2), highs[-1].max(axis=2)
        filled[n:] = xp.inf
        tree = cls(
            xp,
            index,
            rows,
            xp.ascontiguousarray(_panels(filled, LEAF)),
            xp.ascontiguousarray(xp.concatenate(lows)),
            xp.ascontiguousarray(xp.concatenate(highs)),
            xp.empty((0, LEAF), dtype="int32"),
            tuple(starts),
        )
        first = tree.minima(xp.arange(n, dtype="int32"))[1]
        return cls(**{**tree.__dict__, "first_index": first})

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.panels)

    def minima(self, values: Array) -> tuple[Array, Array]:
        """Arrange an integer per row for the kernels.

        Parameters
        ----------
        values : int32 array of shape (n,)
            By row number, below 2**31 - 1.

        Returns
        -------
        by_position : int32 array of shape (leaves * 32,)
            By position; 2**31 - 1 after the last.
        by_node : int32 array of shape (panels of nodes, 32)
            Least value in each node, as `low` is arranged.
        """
        xp = self.xp
        by_position = xp.full(self.n_leaves * LEAF, NOTHING, dtype="int32")
        by_position[: len(self.index)] = values[self.index]
        least, levels = by_position.reshape(-1, LEAF).min(axis=1), []
        for _ in self.level_starts[1:]:
            levels.append(_padded(least, NOTHING, xp).reshape(-1, LEAF))
            least = levels[-1].min(axis=1)
        return by_position, xp.concatenate(levels)


def _panels(values: Array, width: int) -> Array:
    return values.reshape(-1, width, values.shape[1]).transpose(0, 2, 1)


def _padded(values: Array, fill: float, xp: Any) -> Array:
    missing = -len(values) % LEAF
    return xp.concatenate([values, xp.full((missing, *values.shape[1:]), fill, dtype=values.dtype)])
