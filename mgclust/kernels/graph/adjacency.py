"""Rows of a graph's adjacency matrix, in the form that the kernels of both devices use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Adjacency", "Gain"]

Array = Any
IN = 0xFFFFFFFF  # mask of the lower half of a strength with directions


@dataclass
class Adjacency:
    """The neighbours of consecutive nodes ``first``, ``first + 1``, ... of a graph without self-loops."""

    first: int  # number of the first node
    starts: Array  # int64 array of shape (rows + 1,): start of each node's neighbours
    columns: Array  # int32 array of shape (entries,): neighbours, each once within a row, in any order
    weights: Array | None  # int32 or int64 array of shape (entries,), all positive; None: all are 1
    # results about the lengths of the rows, and work arrays, which kernels keep for their next calls
    plan: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of nodes."""
        return len(self.starts) - 1

    @property
    def entries(self) -> int:
        """Number of neighbours of all nodes together."""
        return len(self.columns)


@dataclass(frozen=True)
class Gain:
    """Formula ``two_m w - resolution d D`` of the gain of a merge or a move, for weight w and strengths d and D.

    With directions (Leicht and Newman 2008), a strength is ``out * 2**32 + in``, for the weights of the arcs that leave
    and enter. Both are below 2^31, so strengths can be added as usual. ``2 (out_d in_D + in_d out_D)`` takes the place
    of ``d D``.
    """

    two_m: int  # sum of all strengths; with directions, twice the weight of all arcs
    resolution: float
    # True: computed in int64, which requires ``two_m < 2**31`` and a resolution of 1; False: in float64, rounded after
    # each operation
    exact: bool
    directed: bool = False

    def halves(self, strength: Array) -> tuple[Array, Array]:
        """Return twice the arcs that leave and that enter; without directions, the strengths themselves, twice.

        Their products are the terms that modularity subtracts, in units of ``two_m**2``, and their mean is the degree.
        """
        return (strength >> 32 << 1, (strength & IN) << 1) if self.directed else (strength, strength)

    def degree(self, strength: Array) -> Array:
        """Return strengths without directions."""
        return (strength >> 32) + (strength & IN) if self.directed else strength
