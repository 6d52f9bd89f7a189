"""Cheap search for better exemplars than the messages have found: it adds and drops a few exemplars.

A new exemplar k changes the net similarity by its preference minus its old similarity s(k), plus
``sum over i of max(0, S(i,k) - s(i))`` for the rows that join it. The gain of each exemplar falls with the number of
exemplars. So if several new exemplars improve the result together, one of them also improves it by itself. One pass
over the pairs with S(i,k) > s(i) shows whether an exemplar is missing. In a neighbour list, these pairs are the
elements before the exemplar.

An exemplar is not needed if its similarity to another exemplar exceeds its own preference. Unneeded exemplars are
dropped together, but one stays if its nearest exemplar is dropped. A dropped exemplar comes back if the net similarity
would be lower without it.

An exchange of one exemplar for another may improve the result even if no addition or drop does. So with few rows, the
search also adds exemplars that present exemplars may join, and then drops the exemplars that the additions replace.
"""

from __future__ import annotations

import numpy as np

from mgclust.algorithms.affinity_propagation.message_passing import ExemplarAssignment, MessagePassing

__all__ = ["better_exemplars"]

NONE = np.zeros(0, np.int64)
ROUNDS = 3
FEW_ROWS = 1024  # up to this many rows, present exemplars may also join a new exemplar
SWAPS = 8  # number of these new exemplars that are tried with up to 128 rows; fewer with more rows
POOR_SHARE = 0.01  # smallest gain of better exemplars, as a fraction of the sum of all similarities to exemplars
POOR_GAIN = 0.5  # or the smallest gain by one change, as a fraction of the preference


def better_exemplars(
    messages: MessagePassing, found: ExemplarAssignment, preference: np.ndarray
) -> ExemplarAssignment | None:
    """Return exemplars with a clearly higher net similarity at the same preference; None if the search finds none.

    Collective; the result is the same on any number of ranks.
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
        swaps = min(SWAPS, FEW_ROWS // len(gains))
        if swaps:
            joined = messages.gains(chosen) + preference - chosen
            joined[best.exemplars] = -np.inf
            adding += [row[None] for row in np.argsort(-joined, kind="stable")[:swaps]]
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
    poor = gain > POOR_SHARE * total or largest > POOR_GAIN * abs(np.median(preference))
    return best if poor and gain > len(preference) * messages.noise_of_zero else None


def _most_of_each_cluster(found: ExemplarAssignment, gains: np.ndarray) -> np.ndarray:
    """Return the row with the largest gain in each cluster, if that gain is positive."""
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
    """Drop unneeded exemplars, except the exemplars in `added`; also return the largest gain from one drop."""
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
