"""The exact quantile of the distances of weighted pairs: two rows count as often as the product of their weights.

Weights become integers W of one unit, 1 if all are whole, else a power of two so small that they sum up to nearly
2^31. A row of weight w makes ``w (w - 1) / 2`` pairs with itself, at distance 0, and none if w is less than 1: so whole
weights count pairs as rows do that are repeated as often. All n x n ordered pairs are counted, tile by tile; those of a
row and itself once are left out by the rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.weighted_histogram import MOST_WEIGHT, add_pair_weights

__all__ = ["PairWeights", "weighted_count"]

Array = Any
Count = Callable[[int, int, int], Array]
Tiles = Callable[[], Iterator[tuple[slice, slice, Array]]]


@dataclass(frozen=True)
class PairWeights:
    """Weights of rows as integers.

    Attributes
    ----------
    units : int64 array of shape (n,)
        On the host.
    unit : float
        Weight of one.
    """

    units: np.ndarray
    unit: float

    @classmethod
    def of(cls, weights: np.ndarray) -> PairWeights:
        """Find the unit: 1 where the weights are whole and not too many."""
        total = float(weights.sum())
        if total <= MOST_WEIGHT and (weights == np.rint(weights)).all():
            return cls(weights.astype(np.int64), 1.0)
        unit = 2.0 ** np.ceil(np.log2(total / (MOST_WEIGHT - len(weights))))
        return cls(np.rint(weights / unit).astype(np.int64), float(unit))

    @property
    def diagonal(self) -> int:
        """Ordered pairs of rows and themselves that do not count, in squared units."""
        one = 1.0 / self.unit
        alone = np.minimum(self.units * one, np.square(self.units.astype(np.float64)))
        return int(self.units.sum()) if self.unit == 1.0 else int(np.rint(alone).astype(np.int64).sum())

    @property
    def pairs(self) -> int:
        """All pairs, in squared units."""
        return (int(self.units.sum()) ** 2 - self.diagonal) // 2

    def place(self, rank: int) -> int:
        """Place of a pair, from 1, among all ordered pairs, those of rows and themselves among them."""
        return self.diagonal + 2 * rank

    def in_rows(self, pairs: int) -> int:
        """Pairs in units of weight, rounded."""
        return round(pairs * self.unit**2)


def weighted_count(context: Context, weights: PairWeights, tiles: Tiles) -> Count:
    """Counts of ordered pairs by the tiles of own rows, `Pairs.pair_histogram` for weighted ones."""
    xp, rows = context.kernels.xp, context.rows
    units = xp.asarray(weights.units)
    own_units = units[rows.start : rows.stop]

    def count(first: int, shift: int, bins: int) -> Array:
        out = xp.zeros(1 + bins, dtype="int64")
        for own, columns, s in tiles():
            add_pair_weights(s, own_units[own], units[columns], low=first, shift=shift, out=out, xp=xp)
        return context.comm.all_reduce(out, "sum")

    return count
