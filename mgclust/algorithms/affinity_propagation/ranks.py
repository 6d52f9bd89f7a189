r"""Affinity propagation (Frey and Dueck, Science 315:972, 2007), exact, on any number of ranks.

Rows exchange messages until some of them, the exemplars, have emerged as the best representatives of the others. With
S(i,k) the similarity of rows i and k, S(k,k) the preference of row k to be an exemplar, and damping lam::

    responsibility   R(i,k) <- S(i,k) - max over k' != k of (A(i,k') + S(i,k'))
    availability     A(i,k) <- min(0, R(k,k) + sum over i' not in {i, k} of max(0, R(i',k)))        i != k
                     A(k,k) <- sum over i' != k of max(0, R(i',k))
    each damped      new = (1 - lam) * update + lam * old

Row k is an exemplar while A(k,k) + R(k,k) > 0. The run ends when the exemplars have been the same for
`convergence_iter` iterations. Then every row goes to the exemplar it is most similar to; in each cluster the member
that the others are most similar to becomes the exemplar, and rows are assigned once more.

What runs where. Each rank holds the rows of S and A that are its own, or lists of what matters of them
(`row_choice`); R is never stored (`mgclust.kernels.affinity_propagation.messages` shows why it need not be). Maxima
over a row are local. One sum of 2 n integers an iteration tells every rank the column sums, from which all draw the
same conclusions.

Cost of all pairs (of lists: `mgclust.kernels.affinity_propagation.sparse_forms.listed`). Memory: 2 n^2 numbers over
all ranks. Time: n^2 reduced distances once, then per iteration 3 n^2 numbers read or written. Communication: the data
once, 16 n bytes an iteration.
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
    """Rank 0's findings, beside "labels"."""

    exemplars: np.ndarray  # rows, ascending
    missing: int  # rows without an exemplar
    net_similarity: float
    n_iter: int
    converged: bool
    preference: float | np.ndarray
    dtype: str  # computed in
    alike: bool  # all rows are equally similar
    exactness: dict[str, Any]
    search: PreferenceSearch | None  # of `n_clusters`
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
    """Run the method on every rank; rank 0 returns what `AffinityPropagation.fit` reports."""
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
    """Pass messages until the exemplars stay: the number of iterations, and whether they stayed.

    Parameters
    ----------
    context : Context
    messages : MessagePassing
    saved : Saved or None
        What to resume from.
    limits : Limits
    search : PreferenceSearch, optional
        That this is a part of, and for checkpoints its best exemplars so far, `nearest`.
    """
    damping, max_iter, convergence_iter = limits
    tried = search.tried if search is not None else []
    done, last_change, last_poor = 0, 0, 0
    if saved is not None:
        messages.restore(saved)
        done, last_change, last_poor = (saved.control[name] for name in ("done", "last_change", "last_poor"))
    while True:
        # Before this iteration the exemplars cannot have stayed for long enough.
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
                # Ties move messages so little at first that these seem to be at rest.
                if not messages.tied or not is_poor(messages):
                    return done, True
                last_poor = done
        share = (len(tried) + done / max_iter) / (len(tried) + 1)  # of a search that would end with this preference
        context.progress(share, n_clusters=n_exemplars, damping=damping, iteration=done, max_iter=max_iter)
        if context.checkpoint.due():
            arrays = {} if nearest is None else {"nearest": nearest}
            messages.save({"done": done, "last_change": last_change, "last_poor": last_poor, "tried": tried}, arrays)


def is_poor(messages: MessagePassing) -> bool:
    """Tell whether clearly better exemplars than the present ones are at hand."""
    found = messages.assign(messages.states()[0])
    return better_exemplars(messages, found, messages.preference) is not None


def exemplars_of(context: Context, messages: MessagePassing, converged: bool) -> np.ndarray:
    """The exemplars that messages have come to: the last, or those of the highest net similarity, the newest of equals.

    None where none has ever emerged.
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
    """Pass messages with one preference after the other, each from the beginning, and find the nearest exemplars."""
    # Messages that went on from those of another preference would make the result depend on the way; so it is that of
    # a fit with the preference found.
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
    """Find the best where all rows are equally similar: each its own exemplar, or the first row that of all."""
    alone = preference > similarity
    exemplars = np.arange(n if alone else 1, dtype=np.int64)
    labels = np.arange(n, dtype=np.int32) if alone else np.zeros(n, np.int32)
    net = n * preference if alone else preference + (n - 1) * similarity
    return ExemplarAssignment(exemplars, labels, net)
