"""A cheap search for better exemplars than those that messages have come to: a few are added, and a few dropped.

A row more as an exemplar changes the net similarity by its preference, less the similarity that it had, and by
``sum over i of max(0, S(i,k) - s(i))`` for the rows that come to it. Where some further exemplars together are an
improvement, one of them alone is, too, since each gains the less the more exemplars there are. So one pass over what
is more similar to a row than its exemplar finds whether any are missing: in a list, the elements before the exemplar.

An exemplar that is not needed has another one that is more similar to it than its own preference. Those are dropped
together, unless each was the other's; and those come back without which the net similarity would be lower.
"""

from __future__ import annotations

import numpy as np

from mgclust.algorithms.affinity_propagation.message_passing import ExemplarAssignment, MessagePassing

__all__ = ["better_exemplars"]

ROUNDS = 3
POOR_SHARE = 0.01  # of the sum of all similarities to exemplars: what better ones must gain to be worth a word
POOR_GAIN = 1.0  # or one of them alone, in its preference


def better_exemplars(
    messages: MessagePassing, found: ExemplarAssignment, preference: np.ndarray
) -> ExemplarAssignment | None:
    """Find exemplars with a clearly higher net similarity at the same preference; None if there seem to be none.

    The same on any number of ranks, which meet.
    """
    best, largest, total = found, 0.0, 0.0
    for round_ in range(ROUNDS):
        nearest, similarity = messages.similar(best.exemplars)
        chosen = np.where(best.labels < 0, np.nan, similarity)
        chosen[best.exemplars] = preference[best.exemplars]
        gains = messages.gains(best.exemplars, chosen) + preference - np.nan_to_num(chosen, nan=np.inf)
        gains[best.exemplars] = -np.inf
        if round_ == 0:
            largest, total = float(gains.max() / max(abs(np.median(preference)), 1e-290)), float(np.nansum(abs(chosen)))
        better = best
        for exemplars in (_with_more(best, gains), _with_fewer(messages, best, preference, nearest, similarity)):
            if len(exemplars) != len(best.exemplars):
                better = max(better, messages.assign(exemplars, preference), key=_worth)
        if better is best:
            break
        best = better
    gain = best.net_similarity - found.net_similarity
    poor = best.missing <= found.missing and gain > 0 and (gain > POOR_SHARE * total or largest > POOR_GAIN)
    return best if poor else None


def _worth(found: ExemplarAssignment) -> tuple[int, float]:
    return -found.missing, found.net_similarity


def _with_more(found: ExemplarAssignment, gains: np.ndarray) -> np.ndarray:
    """The exemplars, and in each cluster the row that gains most, if any does."""
    order = np.lexsort((-gains, found.labels))
    label, first = np.unique(found.labels[order], return_index=True)
    most = order[first[label >= 0]]
    return np.union1d(found.exemplars, most[gains[most] > 0])


def _with_fewer(
    messages: MessagePassing, found: ExemplarAssignment, preference: np.ndarray, nearest: np.ndarray, similarity: np.ndarray
) -> np.ndarray:
    """The exemplars without those that are not needed."""
    exemplars = found.exemplars
    dropped = np.zeros(len(exemplars), bool)
    for place in np.flatnonzero(similarity[exemplars] > preference[exemplars])[::-1]:
        dropped[place] = not dropped[nearest[exemplars[place]]]
    if not dropped.any():
        return exemplars
    _, others = messages.similar(exemplars[~dropped])
    chosen = similarity.copy()
    chosen[exemplars] = preference[exemplars]
    theirs = found.labels >= 0
    theirs[theirs] = dropped[found.labels[theirs]]
    change = np.bincount(found.labels[theirs], (others - chosen)[theirs], minlength=len(exemplars))
    return exemplars[~(dropped & (change > 0))]
