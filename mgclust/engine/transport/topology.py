"""Shapes of links: which ranks exchange messages, as functions of the rank and the number of ranks.

::

    tree      a rank, its parent, and at most four children; the ranks below a rank are consecutive
    ring      a rank and the next one; the last rank and the first
    halves    the log2 N partners of `Halves`
    all       all pairs of ranks
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

__all__ = ["Halves", "Shape", "Tree", "neighbors"]

FAN = 4  # children of a rank: with 2 children, messages take twice as many steps; with 8, ranks wait for each other
Shape = str


class Subtree(NamedTuple):
    """A rank and the ranks below it, which are consecutive."""

    root: int
    stop: int


class Tree:
    """Position of a rank in the tree, whose root is rank 0.

    The ranks below a child come before the ranks below the next child. So arrays in the order of the children are in
    rank order.

    Parameters
    ----------
    rank, size : int
        Number of this rank, and number of ranks.

    Attributes
    ----------
    parent : int or None
        Parent of the rank; None for rank 0.
    children : list of Subtree
        Subtrees of the children, in rank order.
    depth : int
        Number of steps from rank 0.
    height : int
        Largest number of steps from rank 0 to any rank.
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
        """Return the neighbour from which messages of another rank come.

        Parameters
        ----------
        rank : int
            The other rank.
        """
        return next((child.root for child in self.children if child.root <= rank < child.stop), self.parent)

    def margin(self, peer: int) -> float:
        """Return the fraction of the timeout by which waits for a neighbour are longer than the timeout.

        The rank next to the late rank must give up first, because it knows which rank is late. Parents of leaves wait
        for no other rank before their children, and leaves wait last for their parents.

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
    return 1 + _height(children[-1]) if children else 0  # the last child has at least as many ranks as any other


class Halves:
    """Partners of a rank that reduces arrays by halves.

    The ranks form as many groups as the largest power of two that is at most the number of ranks. If the number of
    ranks is not a power of two, the first groups have two ranks, and an array has two lanes. In a group of two, the
    first rank works on the first lane and the second rank on the second lane. The only rank of a group works on both
    lanes.

    Parameters
    ----------
    rank, size : int
        Number of this rank, and number of ranks.

    Attributes
    ----------
    lanes : int
        Number of lanes, one or two.
    mate : int or None
        The other rank of the group.
    own : list of int
        Lanes that this rank works on.
    group : int
        Number of the group; groups are in rank order.
    steps : int
        Binary logarithm of the number of groups.
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
        """Return the rank with which a lane is exchanged.

        Parameters
        ----------
        step : int
            Number of the step, from 0 to `steps`, exclusive.
        lane : int
            One of the lanes `own`.
        """
        group = self.group ^ (1 << step)
        return 2 * group + lane if group < self._pairs else group + self._pairs


def neighbors(shape: Shape, rank: int, size: int) -> set[int]:
    """Return the ranks that a shape links with a rank.

    Parameters
    ----------
    shape : {"tree", "ring", "halves", "all"}
        The shape.
    rank, size : int
        Number of the rank, and number of ranks.
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
