"""Shapes of links: which ranks exchange messages, as functions of the rank and the number of ranks.

::

    tree      a rank and its parent, at most four children each; the ranks below a rank are consecutive
    ring      a rank and the next one, the last and the first
    halves    partners of `Halves`, log2 N of them
    all       every two ranks
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

__all__ = ["Halves", "Shape", "Tree", "neighbors"]

FAN = 4  # children of a rank in the tree: with two, messages take twice as many steps; with eight, ranks wait in line
Shape = str


class Subtree(NamedTuple):
    """Consecutive ranks below one that is their first."""

    root: int
    stop: int


class Tree:
    """Place of a rank in the tree, whose root is rank 0.

    Ranks below a child come before those below the next child, so that arrays in rank order are arrays in order of the
    children.

    Parameters
    ----------
    rank, size : int
        This rank and how many there are.

    Attributes
    ----------
    parent : int or None
        None for rank 0.
    children : list of Subtree
        In rank order.
    depth : int
        Steps from rank 0.
    height : int
        Most steps from rank 0 to any rank.
    """

    def __init__(self, rank: int, size: int) -> None:
        own = Subtree(0, size)
        self.parent: int | None = None
        self.depth = 0
        while own.root != rank:
            self.parent = own.root
            self.depth += 1
            own = next(child for child in _children(own) if child.root <= rank < child.stop)
        self.children = _children(own)
        self.height = _height(Subtree(0, size))

    @property
    def neighbors(self) -> list[int]:
        """Parent and children."""
        above = [] if self.parent is None else [self.parent]
        return [*above, *(child.root for child in self.children)]

    def toward(self, rank: int) -> int | None:
        """The neighbour through which another rank's messages come.

        Parameters
        ----------
        rank : int
            The other one.
        """
        return next((child.root for child in self.children if child.root <= rank < child.stop), self.parent)

    def margin(self, peer: int) -> float:
        """Share of the timeout by which waits for a neighbour last longer than the timeout.

        The rank next to the one that is late must be the first to give up, because it knows which one is late. Parents
        of leaves wait for no other rank before their children, and leaves wait last for their parents.

        Parameters
        ----------
        peer : int
            The neighbour.
        """
        step = 0.25 / max(1, 2 * self.height - 1)
        return step * (self.height - 1 + (self.depth if peer == self.parent else -self.depth))


def _children(of: Subtree) -> list[Subtree]:
    rest = of.stop - of.root - 1
    count = min(FAN, rest)
    edges = [of.root + 1 + number * rest // count for number in range(count + 1)] if count else []
    return [Subtree(*pair) for pair in pairwise(edges)]


def _height(of: Subtree) -> int:
    children = _children(of)
    return 1 + _height(children[-1]) if children else 0  # no child has more ranks than the last


class Halves:
    """Partners of a rank that reduces arrays by halves.

    Ranks form groups, as many as the largest power of two that is not above the number of ranks. The first groups have
    two ranks, where the number of ranks is no power of two. Then an array has two lanes: of a group of two, the first
    rank works on the first lane and the second on the second; a rank of its own works on both.

    Parameters
    ----------
    rank, size : int
        This rank and how many there are.

    Attributes
    ----------
    lanes : int
        One or two.
    mate : int or None
        The other rank of the group.
    own : list of int
        Lanes that this rank works on.
    group : int
        Its group: lower ones have lower ranks.
    steps : int
        The binary logarithm of the number of groups.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.steps = size.bit_length() - 1
        self._pairs = size - (1 << self.steps)
        paired = rank < 2 * self._pairs
        self.lanes = 2 if self._pairs else 1
        self.mate = rank ^ 1 if paired else None
        self.group = rank // 2 if paired else rank - self._pairs
        self.own = [rank % 2] if paired else list(range(self.lanes))

    def partner(self, step: int, lane: int) -> int:
        """The rank with which a lane is exchanged.

        Parameters
        ----------
        step : int
            From 0 to `steps`, exclusive.
        lane : int
            One of `own`.
        """
        group = self.group ^ (1 << step)
        return 2 * group + lane if group < self._pairs else group + self._pairs


def neighbors(shape: Shape, rank: int, size: int) -> set[int]:
    """Ranks that a shape links with a rank.

    Parameters
    ----------
    shape : str
        "tree", "ring", "halves" or "all".
    rank, size : int
        This rank and how many there are.
    """
    if shape == "tree":
        return set(Tree(rank, size).neighbors)
    if shape == "ring":
        return {(rank + 1) % size, (rank - 1) % size} - {rank}
    if shape == "halves":
        halves = Halves(rank, size)
        partners = {halves.partner(step, lane) for step in range(halves.steps) for lane in halves.own}
        return partners | ({halves.mate} if halves.mate is not None else set())
    return set(range(size)) - {rank}
