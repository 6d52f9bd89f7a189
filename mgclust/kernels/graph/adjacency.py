"""Rows of a graph's adjacency matrix, in the form that the kernels of both devices use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Adjacency", "Gain"]

Array = Any


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
    """Formula ``two_m w - resolution d D`` of the gain of a merge or a move, for weight w and strengths d and D."""

    two_m: int  # sum of all strengths
    resolution: float
    # True: computed in int64, which requires ``two_m < 2**31`` and a resolution of 1; False: in float64, rounded after
    # each operation
    exact: bool
