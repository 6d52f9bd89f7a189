"""Search for the preference that gives a number of clusters, by bisection.

The nearer the preference is to the largest similarity, the more clusters there are. If the preference exceeds the
largest similarity, every row is its own exemplar. If the preference is below the largest similarity by n times the
range of the similarities, one cluster has a higher net similarity than any two clusters. Orders of magnitude lie
between these limits, so the search bisects the logarithm of the distance below the largest similarity. It starts at a
given preference, multiplies or divides the distance until it has passed the requested number, and bisects from there.

The number of clusters need not fall with the preference at every step, and it can jump. Then the search ends at the
jump and takes the nearest number that it has found. With very low preferences, messages can seem to converge before
they have begun to move, with every row as its own exemplar. So a preference that gives many more clusters than a larger
preference counts as too low.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["PreferenceSearch", "Tried"]

STEP = 4.0  # factor of the distance until both too few and too many clusters have been found
UNCONVERGED = 2.0  # more than this many times the clusters of a larger preference: messages have not converged
NEAREST = 2.0**-20  # smallest distance, as a fraction of the range; float32 cannot tell smaller distances apart
CLOSE = 1e-5  # relative difference of distances that ends the search
ABOVE = 0.01  # at this fraction of the range above the largest similarity, every row is its own exemplar


class Tried(NamedTuple):
    """A preference that was tried, and the outcome."""

    preference: float
    n_clusters: int
    n_iter: int
    converged: bool


@dataclass
class PreferenceSearch:
    """State of a search. The next preference depends only on the preferences tried so far, so all ranks agree.

    Parameters
    ----------
    wanted : int
        Requested number of clusters, from 1 to n.
    n : int
        Number of rows.
    lowest, highest : float
        Range of the similarities.
    first : float
        Preference at which the search begins.
    tried : list of Tried
        Preferences tried so far.
    """

    wanted: int
    n: int
    lowest: float
    highest: float
    first: float
    tried: list[Tried] = field(default_factory=list)

    @property
    def reach(self) -> float:
        """Scale of distances below the largest similarity; never 0."""
        return max(self.highest - self.lowest, abs(self.highest) / 1000) or 1.0

    @property
    def above(self) -> float:
        """A preference with which every row is its own exemplar."""
        return self.highest + ABOVE * self.reach

    def following(self) -> float | None:
        """Return the preference to try next, or None if the search has ended."""
        if self.met or (self.tried and self.wanted == self.n):
            return None
        if self.wanted == self.n:
            return self.above
        least, most = NEAREST * self.reach, self.n * self.reach
        near = far = 0.0  # distances with too many clusters, and with too few
        for each in self.tried:
            distance = self.highest - each.preference
            if distance < 0:
                return None  # no preference is left between the smallest distance and this distance
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
        """True if the last preference gave the requested number of clusters."""
        return bool(self.tried) and self.tried[-1].n_clusters == self.wanted

    @property
    def nearest(self) -> int:
        """Position of the trial with the nearest number of clusters; converged trials win ties."""
        return min(
            range(len(self.tried)),
            key=lambda at: (
                not self.tried[at].n_clusters,
                abs(self.tried[at].n_clusters - self.wanted),
                not self.tried[at].converged,
            ),
        )

    def problem(self, least: int = 1, reason: str = "") -> str | None:
        """Return a warning if the requested number was not found, else None.

        Parameters
        ----------
        least : int
            Lower bound of the number of clusters of any solution.
        reason : str
            Why `least` exceeds the requested number; empty if it does not.
        """
        if self.met:
            return None
        fewer = [each for each in self.tried if each.n_clusters < self.wanted]
        more = [each for each in self.tried if each.n_clusters > self.wanted]
        beside = [max(fewer, key=lambda each: each.n_clusters)] if fewer else []
        beside += [min(more, key=lambda each: each.n_clusters)] if more else []
        if reason:
            return (
                f"n_clusters={self.wanted} is not possible, because {reason}: give more pairs, or request at least "
                f"{least} clusters."
            )
        found = " or ".join(str(each.n_clusters) for each in beside)
        unconverged = sum(not each.converged for each in self.tried)
        remedy = "raise damping (for example to 0.9), convergence_iter or max_iter to find other numbers"
        if 2 * unconverged > len(self.tried):
            remedy = f"{unconverged} runs had not converged; raise max_iter first, or damping (for example to 0.9)"
        return (
            f"n_clusters={self.wanted} was not met: preferences give {found} clusters, and this result has "
            f"{self.tried[self.nearest].n_clusters}; {remedy}."
        )
