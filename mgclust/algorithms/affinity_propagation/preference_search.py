"""Search for the preference that gives a number of clusters, by bisection.

The nearer the preference is to the largest similarity, the more clusters: with a larger one every row is its own
exemplar; where it lies n times the reach of the similarities below, one cluster has a higher net similarity than any
two. Between these lie orders of magnitude, so what is bisected is the logarithm of the distance below the largest
similarity. The search begins at some preference, multiplies or divides the distance until it has gone past the
number that is wanted, and halves from there.

The number of clusters need not fall with the preference at every step, and it can jump: then the search ends at the
jump, and the nearest number that it has seen is taken. With very low preferences messages can seem to settle, every row
its own exemplar, before they have begun to move; what has many more clusters than a larger preference is therefore
taken for too low a preference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["PreferenceSearch", "Tried"]

STEP = 4.0  # by which the distance changes until there are too few and too many clusters
UNCONVERGED = 2.0  # times as many clusters as with a larger preference: the messages have not come to an end
NEAREST = 2.0**-20  # the least distance, as a share of the reach; nearer ones are not told apart in float32
CLOSE = 1e-5  # relative difference of distances that ends the search
ABOVE = 0.01  # how far above the largest similarity, as a share of the reach, every row is its own exemplar


class Tried(NamedTuple):
    """A preference, and what messages have come to with it."""

    preference: float
    n_clusters: int
    n_iter: int
    converged: bool


@dataclass
class PreferenceSearch:
    """State of a search; what comes next follows from what has been tried alone, so that all ranks agree.

    Parameters
    ----------
    wanted : int
        Number of clusters, from 1 to n.
    n : int
        Number of rows.
    lowest, highest : float
        Of the similarities.
    first : float
        Where the search begins.
    tried : list of Tried
        So far.
    """

    wanted: int
    n: int
    lowest: float
    highest: float
    first: float
    tried: list[Tried] = field(default_factory=list)

    @property
    def reach(self) -> float:
        """The scale of distances below the largest similarity; never 0."""
        return max(self.highest - self.lowest, abs(self.highest) / 1000) or 1.0

    @property
    def above(self) -> float:
        """A preference with which every row is its own exemplar."""
        return self.highest + ABOVE * self.reach

    def following(self) -> float | None:
        """Return the preference to try next, or None where the search has ended."""
        if self.met or (self.tried and self.wanted == self.n):
            return None
        if self.wanted == self.n:
            return self.above
        least, most = NEAREST * self.reach, self.n * self.reach
        near = far = 0.0  # distances with too many, with too few clusters
        for each in self.tried:
            distance = self.highest - each.preference
            if distance < 0:
                return None  # nothing lies between the least distance and this
            fewest = min(
                (other.n_clusters for other in self.tried if other.preference > each.preference), default=self.n
            )
            if self.wanted < each.n_clusters <= UNCONVERGED * fewest:
                near = distance
            else:
                far = distance
        if near and far:
            return self.highest - math.sqrt(near * far) if far > near * (1 + CLOSE) else None
        if far:
            return self.highest - max(far / STEP, least) if far > least * (1 + CLOSE) else self.above
        if near:
            return self.highest - min(near * STEP, most) if near < most * (1 - CLOSE) else None
        return self.highest - min(max(self.highest - self.first, least), most)

    @property
    def met(self) -> bool:
        """Tell whether the last preference has given the number of clusters."""
        return bool(self.tried) and self.tried[-1].n_clusters == self.wanted

    @property
    def nearest(self) -> int:
        """Position of the nearest number of clusters; of equally near ones, the converged before the others."""
        return min(
            range(len(self.tried)),
            key=lambda at: (
                not self.tried[at].n_clusters,
                abs(self.tried[at].n_clusters - self.wanted),
                not self.tried[at].converged,
            ),
        )

    def problem(self, least: int = 1, reason: str = "") -> str | None:
        """Say what is next to a number of clusters that has not been met.

        Parameters
        ----------
        least : int
            No solution has fewer clusters.
        reason : str
            Why these are more than are wanted; empty where they are not.
        """
        if self.met:
            return None
        fewer = [each for each in self.tried if each.n_clusters < self.wanted]
        more = [each for each in self.tried if each.n_clusters > self.wanted]
        beside = [max(fewer, key=lambda each: each.n_clusters)] if fewer else []
        beside += [min(more, key=lambda each: each.n_clusters)] if more else []
        if reason:
            return (
                f"n_clusters={self.wanted} cannot be met, since {reason}: give more pairs, or ask for {least} or more."
            )
        found = " or ".join(str(each.n_clusters) for each in beside)
        unconverged = sum(not each.converged for each in self.tried)
        remedy = "a larger damping (0.9, say), convergence_iter or max_iter may find others"
        if 2 * unconverged > len(self.tried):
            remedy = f"{unconverged} runs had not converged; raise max_iter first, or damping (0.9, say)"
        return (
            f"n_clusters={self.wanted} was not met, preferences give {found}, and the labels are those of "
            f"{self.tried[self.nearest].n_clusters} clusters: {remedy}."
        )
