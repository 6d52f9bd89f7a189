"""Rows of a graph's adjacency matrix, as both devices' kernels take them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Adjacency", "Gain"]

Array = Any


@dataclass
class Adjacency:
    """The neighbours of consecutive nodes ``first``, ``first + 1``, ... of a graph without self-loops.

    Attributes
    ----------
    first : int
        Number of the first node.
    starts : int64 array of shape (rows + 1,)
        Where each node's neighbours begin.
    columns : int32 array of shape (entries,)
        Neighbours, ascending within a row, each once.
    weights : int32 or int64 array of shape (entries,), or None
        Above 0; None: all are 1.
    plan : dict
        What kernels found out about the lengths of the rows, kept for the next call.
    """

    first: int
    starts: Array
    columns: Array
    weights: Array | None
    plan: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many nodes there are."""
        return len(self.starts) - 1

    @property
    def entries(self) -> int:
        """How many neighbours they have together."""
        return len(self.columns)


@dataclass(frozen=True)
class Gain:
    """How the gain of a merge or a move is computed: ``two_m w - resolution d D``, the larger the better.

    Attributes
    ----------
    two_m : int
        Sum of all strengths.
    resolution : float
    exact : bool
        In int64, which needs ``two_m < 2**31`` and a resolution of 1; else in float64, rounded after each operation.
    """

    two_m: int
    resolution: float
    exact: bool
