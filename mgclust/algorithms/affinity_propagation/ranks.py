r"""Affinity propagation (Frey and Dueck, Science 315:972, 2007), exact, on any number of ranks.

Rows exchange messages until some of them, the exemplars, have emerged as the best representatives of the others. S(i,k)
is the similarity of row i to row k, S(k,k) the preference of row k, and lam the damping. Each iteration updates two
messages::

    responsibility   R(i,k) <- S(i,k) - max over k' != k of (A(i,k') + S(i,k'))
    availability     A(i,k) <- min(0, R(k,k) + sum over i' not in {i, k} of max(0, R(i',k)))        i != k
                     A(k,k) <- sum over i' != k of max(0, R(i',k))
    each damped      new = (1 - lam) * update + lam * old

Row k is an exemplar while A(k,k) + R(k,k) > 0. These plain lines on n x n arrays give the same result::

    A = R = zeros((n, n));  S[diagonal] = preference
    repeat:
        best[i, k] = max of (A + S)[i] without column k
        R = lam * R + (1 - lam) * (S - best)
        P = maximum(R, 0);  P[diagonal] = R[diagonal]
        update = P.sum(axis=0) - P;  update = minimum(update, 0) except on the diagonal
        A = lam * A + (1 - lam) * update
        exemplars = where(A[diagonal] + R[diagonal] > 0)
    until exemplars have not changed for convergence_iter iterations, or max_iter iterations have passed
    labels = most similar exemplar of each row; each exemplar has itself
    exemplars = the member of each cluster with the largest sum of S from its members;  labels again

Parallel execution. Each rank holds its own rows of S and A, or neighbour lists of the elements that matter
(`row_choice`). R is never stored; `mgclust.kernels.affinity_propagation.messages` shows why. Maxima over a row are
local. One sum of 2 n integers per iteration gives every rank the column sums, from which all ranks draw the same
conclusions.

Cost with all pairs (with lists: `mgclust.kernels.affinity_propagation.sparse_forms.listed`). Memory: 2 n^2 numbers over
all ranks. Time: n^2 reduced distances once, then 3 n^2 numbers read or written per iteration. Communication: the data
once, then 16 n bytes per iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.affinity_propagation.better_exemplars import better_exemplars
from mgclust.algorithms.affinity_propagation.message_passing import SLOTS, ExemplarAssignment, MessagePassing
from mgclust.algorithms.affinity_propagation.preference_search import PreferenceSearch, Tried
from mgclust.algorithms.affinity_propagation.rows.computed_similarities import similarities_of
from mgclust.algorithms.affinity_propagation.rows.message_rows import DENSE, SPARSE, MessageRows
from mgclust.algorithms.affinity_propagation.rows.row_choice import is_listed, rows_of
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import Similarities
from mgclust.algorithms.affinity_propagation.rows.similarity_quantiles import median, quantile
from mgclust.algorithms.affinity_propagation.rows.sparse_pairs import SparsePairRows, SparseSimilarities
from mgclust.engine.checkpoint import Saved
from mgclust.engine.spmd import Context

__all__ = ["FIRST_CALLS", "AffinityPropagationOutput", "affinity_propagation"]

FIRST_CALLS: dict[str, dict[str, Any]] = {
    "pairs.reduced_distances": {}, "affinity_propagation.similarities": {}, "affinity_propagation.pass_rows": {},
}  # fmt: skip


@dataclass(frozen=True)
class AffinityPropagationOutput:
    """Results of rank 0, in addition to "labels"."""

    exemplars: np.ndarray  # row numbers, ascending
    missing: int  # number of rows without an exemplar
    net_similarity: float
    n_iter: int
    converged: bool
    preference: float | np.ndarray
    dtype: str  # type of the computation
    alike: bool  # whether all rows are equally similar
    exactness: dict[str, Any]
    search: PreferenceSearch | None  # with `n_clusters`
    better: ExemplarAssignment | None  # exemplars with a clearly higher net similarity, if found


def affinity_propagation(
    context: Context,
    *,
    affinity: str,
    damping: float,
    max_iter: int,
    convergence_iter: int,
    preference: float | np.ndarray | None,
    preference_quantile: float | None,
    n_clusters: int | None,
    algorithm: str,
    seed: int,
    pairs: Mapping[str, np.ndarray] | None,
) -> AffinityPropagationOutput | None:
    """Run the method on every rank; rank 0 returns the results that `AffinityPropagation.fit` reports."""
    n = context.dataset_shape[0]
    saved = context.checkpoint.load()
    listed = pairs is not None or is_listed(context, algorithm, affinity, saved)
    with context.stage("similarities"):
        similarities: Similarities
        rows: MessageRows
        if pairs is not None:
            similarities = SparseSimilarities(context, seed, **pairs)
            rows = SparsePairRows(context, similarities, keep_lists=True)
        else:
            similarities = similarities_of(context, affinity, seed, stored=not listed)
            rows = rows_of(context, similarities, algorithm, listed)
    with context.stage("preference"):
        if preference_quantile is not None:
            preference = quantile(context, similarities, preference_quantile)
        elif preference is None:
            with_diagonal = pairs is None and n_clusters is None  # as in scikit-learn
            preference = median(context, similarities, with_diagonal=with_diagonal)
        similarities.synchronize()
    each = np.broadcast_to(np.asarray(preference, np.float64), n)
    search = better = None
    if n_clusters is not None:
        search = PreferenceSearch(n_clusters, n, similarities.lowest, similarities.highest, float(each[0]))
    alike = similarities.all_alike and bool((each == each[0]).all())
    if alike:
        if search is not None:
            preference = similarities.highest + (1.0 if n_clusters == n else -1.0)
            each = np.full(n, preference)
        assignment, n_iter, converged = without_structure(n, float(each[0]), similarities.highest), 0, True
        if search is not None:
            search.tried.append(Tried(float(each[0]), len(assignment.exemplars), n_iter, converged))
        exactness: dict[str, Any] = {"algorithm": SPARSE if listed else DENSE}
    else:
        limits = Limits(damping, max_iter, convergence_iter)
        with context.stage("messages"):
            if search is None:
                messages = MessagePassing(context, rows, each)
                n_iter, converged = iterate(context, messages, saved, limits)
                exemplars = exemplars_of(context, messages, converged)
            else:
                messages, exemplars = try_preferences(context, rows, saved, limits, search)
                preference, _, n_iter, converged = search.tried[search.nearest]
                each = np.full(n, preference)
        with context.stage("labels"):
            assignment = ExemplarAssignment(exemplars, np.full(n, -1, np.int32), np.nan)
            if len(exemplars):
                (assignment,) = messages.refine([messages.assign(exemplars, each)], [each])
            if converged and n_clusters != 1:
                better = better_exemplars(messages, assignment, each)
            exactness = {"algorithm": SPARSE if listed else DENSE, **messages.rows.exactness()}
    context.deliver(labels=assignment.labels[context.rows.start : context.rows.stop])
    if context.rank != 0:
        return None
    output = n_iter, converged, preference, context.dtype.name, alike, exactness, search, better
    return AffinityPropagationOutput(assignment.exemplars, assignment.missing, assignment.net_similarity, *output)


class Limits(NamedTuple):
    """Parameters of the iterations."""

    damping: float
    max_iter: int
    convergence_iter: int


def iterate(
    context: Context,
    messages: MessagePassing,
    saved: Saved | None,
    limits: Limits,
    search: PreferenceSearch | None = None,
    nearest: np.ndarray | None = None,
) -> tuple[int, bool]:
    """Pass messages until the exemplars stay the same.

    Parameters
    ----------
    context : Context
    messages : MessagePassing
    saved : Saved or None
        Checkpoint to resume from.
    limits : Limits
    search : PreferenceSearch, optional
        Search to which this run belongs; checkpoints include it.
    nearest : ndarray, optional
        Best exemplars of the search so far; checkpoints include them.

    Returns
    -------
    n_iter : int
        Number of iterations.
    converged : bool
        Whether the exemplars stayed the same for `convergence_iter` iterations.
    """
    damping, max_iter, convergence_iter = limits
    tried = search.tried if search is not None else []
    done, last_change, last_poor = 0, 0, 0
    if saved is not None:
        messages.restore(saved)
        done, last_change, last_poor = (saved.control[name] for name in ("done", "last_change", "last_poor"))
    while True:
        # The exemplars cannot have stayed for long enough before this iteration, so no check is needed before it.
        earliest = max(max(last_change, last_poor) + convergence_iter - 1, convergence_iter + 1, done + 1)
        count = min(SLOTS, max_iter - done, earliest - done)
        for n_exemplars, unchanged in messages.iterate([damping] * count):
            done += 1
            if not unchanged:
                last_change = done
            stayed = done > convergence_iter and done - last_change + 1 >= convergence_iter and n_exemplars > 0
            if stayed and not messages.reach_all():
                last_change, stayed = done, False
            if done == max_iter:
                return done, stayed
            if stayed and done - last_poor + 1 >= convergence_iter:
                # With near ties, messages move so little at first that they seem to have converged.
                if not messages.tied or not is_poor(messages):
                    return done, True
                last_poor = done
        share = (len(tried) + done / max_iter) / (len(tried) + 1)  # as if the search ended with this preference
        context.progress(share, n_clusters=n_exemplars, damping=damping, iteration=done, max_iter=max_iter)
        if context.checkpoint.due():
            arrays = {} if nearest is None else {"nearest": nearest}
            messages.save({"done": done, "last_change": last_change, "last_poor": last_poor, "tried": tried}, arrays)


def is_poor(messages: MessagePassing) -> bool:
    """Return whether a search finds exemplars that are clearly better than the present exemplars."""
    found = messages.assign(messages.states()[0])
    return better_exemplars(messages, found, messages.preference) is not None


def exemplars_of(context: Context, messages: MessagePassing, converged: bool) -> np.ndarray:
    """Return the last exemplars of a run if it converged, else the exemplars with the highest net similarity.

    Ties go to the newest state. The array is empty if no exemplar has ever emerged.
    """
    states = messages.states()
    if converged or len(states) < 2:
        return states[0] if states else np.zeros(0, np.int64)
    best = messages.assign(states[0])
    for state in states[1:]:
        context.progress(1.0)
        best = max(best, messages.assign(state), key=lambda found: (-found.missing, found.net_similarity))
    return best.exemplars


def try_preferences(
    context: Context, rows: MessageRows, saved: Saved | None, limits: Limits, search: PreferenceSearch
) -> tuple[MessagePassing, np.ndarray]:
    """Pass messages with one preference after the other, each time from the start.

    Returns the messages of the last preference, and the exemplars whose number is nearest to the requested number.
    """
    # Each preference starts with new messages, so the result equals a fit with the preference that was found. If
    # messages of another preference were continued, the result would depend on the search.
    nearest = np.zeros(0, np.int64)
    if saved is not None:
        search.tried = [Tried(*each) for each in saved.control["tried"]]
        nearest = saved.arrays["nearest"]
    while (preference := search.following()) is not None:
        if search.tried:
            rows.reset()
        messages = MessagePassing(context, rows, np.full(context.dataset_shape[0], preference))
        n_iter, converged = iterate(context, messages, saved, limits, search, nearest)
        saved, rows = None, messages.rows
        exemplars = exemplars_of(context, messages, converged)
        search.tried.append(Tried(preference, len(exemplars), n_iter, converged))
        if search.nearest == len(search.tried) - 1:
            nearest = exemplars
    return messages, nearest


def without_structure(n: int, preference: float, similarity: float) -> ExemplarAssignment:
    """Return the best exemplars if all rows are equally similar: either each row, or the first row for all rows."""
    alone = preference > similarity
    exemplars = np.arange(n if alone else 1, dtype=np.int64)
    labels = np.arange(n, dtype=np.int32) if alone else np.zeros(n, np.int32)
    net = n * preference if alone else preference + (n - 1) * similarity
    return ExemplarAssignment(exemplars, labels, net)
