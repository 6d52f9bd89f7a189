r"""The end of the iterations of fuzzy c-means: what changes by no more than `tol` has settled.

centers
    The largest move of a centre, over the root mean square distance of the rows from their mean.
objective
    ``|J_t - J_(t-1)| / J_(t-1)``, J_t at the centres that the iteration began with: the pass adds it up anyway. The
    run ends at these centres, as the rule of the equations has it: the centres of J_t, and not those after them.
memberships
    ``max |u_t - u_(t-1)|`` over rows and clusters, both found from their centres: no n x c array is kept. As long as
    they change, a block of rows shows it, so only the last iterations look at all rows. A maximum is the same on any
    number of ranks, and so is which side of `tol` it lies on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.algorithms.fuzzy_c_means.weighted_sums import WeightedSums, rows_of_piece
from mgclust.engine.spmd import Context

__all__ = ["ConvergenceTest"]

Array = Any


@dataclass(frozen=True)
class ConvergenceTest:
    """The rule by which iterations end: one of three quantities changes by no more than `tol`.

    Parameters
    ----------
    stop : {"centers", "objective", "memberships"}
    tol : float
    scale : float
        Root mean square distance of the rows from their mean.
    """

    stop: str
    tol: float
    scale: float

    def of_objective(self, history: list[float]) -> float:
        """Relative change of J in the last iteration; infinite where J does not decide, or is known but once."""
        if self.stop != "objective" or len(history) < 2:
            return math.inf
        before, now = history[-2:]
        return abs(now - before) / before if before > 0 else abs(now)

    def of_centers(self, shift: float) -> float:
        """Largest move of a centre in the data's scale; infinite where it does not decide."""
        if self.stop != "centers":
            return math.inf
        return shift / self.scale if self.scale else shift

    def of_memberships(
        self, context: Context, sums: WeightedSums, before: Array, after: Array, *, last: bool
    ) -> list[float]:
        """Largest change of a membership from some prototypes to others, of each model; infinite where it is not asked.

        Parameters
        ----------
        context : Context
        sums : WeightedSums
        before, after : array
            Prototypes of all models, where `WeightedSums.placed` puts them.
        last : bool
            Look at all rows. Else a rank is done when one of its changes is above `tol`, perhaps not the largest.
        """
        if self.stop != "memberships":
            return [math.inf] * len(before)
        bound = math.inf if last else self.tol
        pairs = zip(sums.readied(before), sums.readied(after), strict=True)
        own = np.array([_largest_change(context, sums, before.shape[1], *pair, bound) for pair in pairs])
        changes: list[float] = context.comm.all_reduce(own, "max").tolist()
        return changes


def _largest_change(context: Context, sums: WeightedSums, c: int, before: Any, after: Any, bound: float) -> float:
    """Largest change of an own row's membership, or the first found that is above a bound."""
    largest = 0.0
    for start, stop in _own_pieces(context, c):
        x = context.rows.read(start, stop)
        change = sums.memberships(x, before)
        change -= sums.memberships(x, after)
        largest = max(largest, float(change.max()), -float(change.min()))
        if largest > bound:
            break
    return largest


def _own_pieces(context: Context, c: int) -> Iterator[tuple[int, int]]:
    """Bounds of pieces of the own rows: a block, which mostly decides, then as many as their memberships allow."""
    rows, block = context.rows, context.partition.block_rows
    start, step = rows.start, block
    while start < rows.stop:
        yield start, min(start + step, rows.stop)
        start, step = start + step, rows_of_piece(context, 3 * c * context.dtype.itemsize)
