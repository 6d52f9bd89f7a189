r"""Convergence test of fuzzy c-means: the iterations end when one quantity changes by no more than `tol`.

centers
    The largest move of a centre, relative to the root mean square distance of the rows from their mean.
objective
    ``|J_t - J_(t-1)| / J_(t-1)``. J_t belongs to the centres with which the iteration began, because the pass computes
    J there. The run ends at these centres, as in the equations, and not at the next centres.
memberships
    ``max |u_t - u_(t-1)|`` over rows and clusters. Both memberships are computed from their centres, so no n x c array
    is stored. Until convergence, one block of rows usually shows a change above `tol`, so only the last iterations read
    all rows. The maximum, and the comparison with `tol`, are the same on any number of ranks.
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
    """Test whether iterations end: one of three quantities changes by no more than `tol`.

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
        """Return the relative change of J in the last iteration; infinite with one value, or with another `stop`."""
        if self.stop != "objective" or len(history) < 2:
            return math.inf
        before, now = history[-2:]
        return abs(now - before) / before if before > 0 else abs(now)

    def of_centers(self, shift: float) -> float:
        """Return the largest move of a centre relative to the data's scale; infinite with another `stop`."""
        if self.stop != "centers":
            return math.inf
        return shift / self.scale if self.scale else shift

    def of_memberships(
        self, context: Context, sums: WeightedSums, before: Array, after: Array, *, last: bool
    ) -> list[float]:
        """Return each model's largest change of a membership between two prototypes; infinite with another `stop`.

        Parameters
        ----------
        context : Context
        sums : WeightedSums
        before, after : array
            Prototypes of all models, in the form of `WeightedSums.placed`.
        last : bool
            Whether to read all rows. Otherwise a rank stops at the first change above `tol`, which may not be the
            largest.
        """
        if self.stop != "memberships":
            return [math.inf] * len(before)
        bound = math.inf if last else self.tol
        pairs = zip(sums.readied(before), sums.readied(after), strict=True)
        own = np.array([_largest_change(context, sums, before.shape[1], *pair, bound) for pair in pairs])
        changes: list[float] = context.comm.all_reduce(own, "max").tolist()
        return changes


def _largest_change(context: Context, sums: WeightedSums, c: int, before: Any, after: Any, bound: float) -> float:
    """Return the largest change of a local row's membership, or the first change above `bound`."""
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
    """Yield bounds of pieces of the local rows: first one block, which usually decides, then as many rows as fit."""
    rows, block = context.rows, context.partition.block_rows
    start, step = rows.start, block
    while start < rows.stop:
        yield start, min(start + step, rows.stop)
        start, step = start + step, rows_of_piece(context, 3 * c * context.dtype.itemsize)
