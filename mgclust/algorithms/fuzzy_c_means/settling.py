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

from mgclust.algorithms.fuzzy_c_means.noise import share_of_clusters
from mgclust.algorithms.fuzzy_c_means.weighted_sums import PIECE, WeightedSums
from mgclust.engine.spmd import Context

__all__ = ["Settling"]

Array = Any


@dataclass(frozen=True)
class Settling:
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
        """Largest change of a membership from some centres to others, of each model; infinite where it decides nothing.

        Parameters
        ----------
        context : Context
        sums : WeightedSums
        before, after : float64 array of shape (models, c, d)
            On the device.
        last : bool
            Look at all rows. Else a rank is done when one of its changes is above `tol`, perhaps not the largest.
        """
        if self.stop != "memberships":
            return [math.inf] * len(before)
        bound = math.inf if last else self.tol
        v, to = before.astype(context.dtype), after.astype(context.dtype)
        own = np.array([_largest_change(context, sums, v[i], to[i], bound) for i in range(len(v))])
        changes: list[float] = context.comm.all_reduce(own, "max").tolist()
        return changes


def _largest_change(context: Context, sums: WeightedSums, before: Array, after: Array, bound: float) -> float:
    """Largest change of an own row's membership, or the first found that is above a bound."""
    largest = 0.0
    for start, stop in _own_pieces(context, len(before)):
        x = context.rows.read(start, stop)
        change = _memberships(context, sums, x, before)
        change -= _memberships(context, sums, x, after)
        largest = max(largest, float(change.max()), -float(change.min()))
        if largest > bound:
            break
    return largest


def _memberships(context: Context, sums: WeightedSums, x: Array, v: Array) -> Array:
    kernels = context.kernels
    u = kernels.xp.empty((len(x), len(v)), dtype=context.dtype)
    kernels.fuzzy_c_means.memberships(x, v, m=sums.m, out=u)
    if sums.noise is not None:
        u *= share_of_clusters(kernels, x, v, u, sums.m, sums.noise).astype(u.dtype)[:, None]
    return u


def _own_pieces(context: Context, c: int) -> Iterator[tuple[int, int]]:
    """Bounds of pieces of the own rows: a block, which mostly decides, then as many as their memberships allow."""
    rows, block = context.rows, context.partition.block_rows
    blocks = max(1, PIECE // (block * c * context.dtype.itemsize)) if rows.resident else 1
    start, step = rows.start, block
    while start < rows.stop:
        yield start, min(start + step, rows.stop)
        start, step = start + step, blocks * block
