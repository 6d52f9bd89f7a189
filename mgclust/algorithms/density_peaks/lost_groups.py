"""Groups of rows that lie far from all other rows but have no centre, so that they are part of another cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.algorithms.density_peaks.decision_graph import assign_labels, largest_gamma
from mgclust.algorithms.density_peaks.passes.all_pairs import AllPairs
from mgclust.kernels.pairs.metrics import Metric

__all__ = ["lost_groups"]

Array = Any
LOST_ROWS, MAX_LOST_ROWS = 10, 4096  # a counted group has at least this many distinct rows, and at most this many rows
LOST_CANDIDATES = 64  # number of rows with the largest rho * delta, except centres, whose groups are checked
LOST_GAP = 3.0  # least distance of a counted group from all other rows, relative to the longest link in the group


def lost_groups(
    xp: Any, passes: AllPairs, measure: Metric, rho: Array, delta: Array, nearest: Array, centers: np.ndarray
) -> tuple[int, int]:
    """Count the groups that lie apart from all other rows and have no centre, and count their rows.

    A group consists of all rows whose links lead to a row that is not a centre. It lies apart if the nearest row
    outside is more than `LOST_GAP` times as far as the longest link of the group is long, and the group has at least
    `LOST_ROWS` distinct rows, more than a few outliers.
    """
    gamma = rho * delta
    gamma[xp.asarray(centers)] = 0
    some = np.setdiff1d(largest_gamma(xp, gamma, min(len(gamma), LOST_CANDIDATES))[:LOST_CANDIDATES], centers)
    ends = np.union1d(np.union1d(centers, some), [int(rho.argmax())])
    where = xp.asarray(ends)
    part = assign_labels(xp, nearest, ends)  # for each row, the end that it leads to
    above = part[nearest[where]].tolist()
    dense, inside = rho[where].tolist(), xp.ones(len(rho), dtype=bool)
    inside[where] = False
    length, part, inside = (each.get() if hasattr(each, "get") else each for each in (delta, part, inside))
    size, longest = np.bincount(part), np.zeros(len(ends))
    distinct = np.bincount(part, (length > 0) | ~inside)  # a duplicate has a denser row at distance 0
    np.maximum.at(longest, part[inside], length[inside])
    parts = [[at] for at in range(len(ends))]
    fixed, found = set(centers.tolist()), (0, 0)
    for at in sorted(
        range(len(ends)), key=lambda at: (dense[at], -ends[at])
    ):  # an end comes after the groups that lead to it
        link = length[ends[at]]
        if ends[at] in fixed or nearest[int(ends[at])] < 0:
            continue
        if link > LOST_GAP * longest[at] > 0 and distinct[at] >= LOST_ROWS and size[at] <= MAX_LOST_ROWS:
            group = np.flatnonzero(np.isin(part, parts[at]))
            if measure.distance(passes.gap(group)) > LOST_GAP * longest[at]:
                found = found[0] + 1, found[1] + len(group)
                continue
        parts[above[at]] += parts[at]
        size[above[at]] += size[at]
        distinct[above[at]] += distinct[at]
        longest[above[at]] = max(longest[above[at]], longest[at], link)
    return found
