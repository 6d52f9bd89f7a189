"""Counts of weighted pairs for the exact quantile of distances: a pair counts as the product of its rows' weights.

Weights become integer multiples of a unit. The unit is 1 if all weights are integers, else a power of two that is so
small that the multiples sum to nearly 2^31. A row of weight w forms ``w (w - 1) / 2`` pairs with itself, at distance 0,
and none if w is less than 1. So integer weights count the same pairs as repeated rows. All n x n ordered pairs are
counted, tile by tile. Some ordered pairs of a row with itself do not count; the rank of the quantile allows for them.
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
        Weights in units, on the host.
    unit : float
        Weight of one unit.
    """

    units: np.ndarray
    unit: float

    @classmethod
    def of(cls, weights: np.ndarray) -> PairWeights:
        """Convert weights to units. The unit is 1 if the weights are integers and their sum is not too large."""
        total = float(weights.sum())
        if total <= MOST_WEIGHT and (weights == np.rint(weights)).all():
            return cls(weights.astype(np.int64), 1.0)
        unit = 2.0 ** np.ceil(np.log2(total / (MOST_WEIGHT - len(weights))))
        return cls(np.rint(weights / unit).astype(np.int64), float(unit))

    @property
    def diagonal(self) -> int:
        """Number of ordered pairs of rows with themselves that do not count, in squared units."""
        one = 1.0 / self.unit
        alone = np.minimum(self.units * one, np.square(self.units.astype(np.float64)))
        return int(self.units.sum()) if self.unit == 1.0 else int(np.rint(alone).astype(np.int64).sum())

    @property
    def pairs(self) -> int:
        """Weight of all unordered pairs that count, in squared units."""
        return (int(self.units.sum()) ** 2 - self.diagonal) // 2

    def place(self, rank: int) -> int:
        """Convert the rank of an unordered pair to its place, from 1, among all ordered pairs.

        Ordered pairs include pairs of rows with themselves.
        """
        return self.diagonal + 2 * rank

    def in_rows(self, pairs: int) -> int:
        """Convert a number of pairs from squared units to squares of the weight 1, rounded."""
        return round(pairs * self.unit**2)


def weighted_count(context: Context, weights: PairWeights, tiles: Tiles) -> Count:
    """Return a function like `PairKernels.pair_histogram` that counts weighted ordered pairs over local tiles."""
    xp, rows = context.kernels.xp, context.rows
    units = xp.asarray(weights.units)
    own_units = units[rows.start : rows.stop]

    def count(first: int, shift: int, bins: int) -> Array:
        out = xp.zeros(1 + bins, dtype="int64")
        for own, columns, s in tiles():
            add_pair_weights(s, own_units[own], units[columns], low=first, shift=shift, out=out, xp=xp)
        return context.comm.all_reduce(out, "sum")

    return count
