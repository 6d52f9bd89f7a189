"""A cheap search for better exemplars than those that messages have come to: a few are added, and a few dropped.

A row more as an exemplar changes the net similarity by its preference, less the similarity that it had, and by
``sum over i of max(0, S(i,k) - s(i))`` for the rows that come to it. If several more exemplars are an improvement, so
is one of them alone, since each gains the less the more there are. So one pass over pairs that are more similar than
rows are to their exemplars shows whether one is missing: in a list, the elements before the exemplar.

An exemplar that is not needed has another one that is more similar to it than its own preference. Such exemplars are
dropped together, unless each is the other's; those without which the net similarity would be lower come back.
"""

from __future__ import annotations

import numpy as np

from mgclust.algorithms.affinity_propagation.message_passing import ExemplarAssignment, MessagePassing

__all__ = ["better_exemplars"]

NONE = np.zeros(0, np.int64)
ROUNDS = 3
FEW_ROWS = 1024  # among which exemplars may come to others, too
POOR_SHARE = 0.01  # of the sum of all similarities to exemplars: what better ones gain at least
POOR_GAIN = 0.5  # in preferences: or what one of them gains


def better_exemplars(
    messages: MessagePassing, found: ExemplarAssignment, preference: np.ndarray
) -> ExemplarAssignment | None:
    """Find exemplars with a clearly higher net similarity at the same preference; None if there seem to be none.

    The same on any number of ranks, which meet.
    """
    best, largest, total = found, 0.0, 0.0
    for round_ in range(ROUNDS):
        nearest, similarity = messages.similar(best.exemplars)
        chosen = np.where(best.labels < 0, np.inf, similarity)
        chosen[best.exemplars] = preference[best.exemplars]
        stays = chosen.copy()
        stays[best.exemplars] = np.inf
        gains = messages.gains(stays) + preference - chosen
        gains[best.exemplars] = -np.inf
        adding = [gains.argmax()[None], _most_of_each_cluster(best, gains)] if gains.max() > 0 else []
        if len(gains) <= FEW_ROWS:
            adding.append((messages.gains(chosen) + preference - chosen).argmax()[None])
        trials = [_fewer(messages, best, preference, nearest, similarity)]
        for more in adding:
            trial = messages.assign(np.union1d(best.exemplars, more), preference)
            trials.append(_fewer(messages, trial, preference, *messages.similar(trial.exemplars), more))
        if round_ == 0:
            total = float(abs(chosen[best.labels >= 0]).sum())
            largest = max(trials[0][1], float(gains.max()))
        better = max((trial for trial, _ in trials), key=lambda trial: (-trial.missing, trial.net_similarity))
        if better.missing > best.missing or better.net_similarity <= best.net_similarity:
            break
        best = better
    gain = best.net_similarity - found.net_similarity
    poor = gain > POOR_SHARE * total or (gain > 0 and largest > POOR_GAIN * abs(np.median(preference)))
    return best if poor else None


def _most_of_each_cluster(found: ExemplarAssignment, gains: np.ndarray) -> np.ndarray:
    """The row of each cluster that gains most, if any gains."""
    order = np.lexsort((-gains, found.labels))
    label, first = np.unique(found.labels[order], return_index=True)
    most = order[first[label >= 0]]
    return most[gains[most] > 0]


def _fewer(
    messages: MessagePassing,
    found: ExemplarAssignment,
    preference: np.ndarray,
    nearest: np.ndarray,
    similarity: np.ndarray,
    added: np.ndarray = NONE,
) -> tuple[ExemplarAssignment, float]:
    """Without the exemplars that are not needed, but for added ones; the most that dropping one of them gains."""
    exemplars, chosen = found.exemplars, similarity.copy()
    dropped = np.zeros(len(exemplars), bool)
    needless = (similarity[exemplars] > preference[exemplars]) & ~np.isin(exemplars, added)
    for place in np.flatnonzero(needless)[::-1]:
        dropped[place] = not dropped[nearest[exemplars[place]]]
    if not dropped.any():
        return found, 0.0
    _, others = messages.similar(exemplars[~dropped])
    chosen[exemplars] = preference[exemplars]
    theirs = found.labels >= 0
    theirs[theirs] = dropped[found.labels[theirs]]
    change = np.bincount(found.labels[theirs], (others - chosen)[theirs], minlength=len(exemplars))
    kept = exemplars[~(dropped & (change > 0))]
    return (messages.assign(kept, preference) if len(kept) < len(exemplars) else found), float(change.max())
