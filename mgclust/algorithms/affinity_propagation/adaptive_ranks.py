r"""Adaptive affinity propagation (Wang et al., Acta Automatica Sinica 33:1242, 2007; arXiv 0805.1096), on any ranks.

Affinity propagation needs a preference, which decides the number of clusters K, and a damping, which decides whether
the messages converge. The adaptive method finds both. In outline (`adaptive_scan` has the exact rules)::

    preference = median similarity / 2;  damping = 0.5
    repeat:
        pass messages for one iteration
        if the exemplars have converged:      record them as the candidate with K clusters; lower the preference,
                                              by larger steps the longer K stays the same
        elif the messages oscillate:          raise the damping; if that does not help, also lower the preference
    until K is 2 or 1
    score all candidates by their silhouettes, and choose one

The chosen candidate has the largest mean silhouette. If that silhouette is below 0.3, `solution_findK.m` of the
authors' package shows a second answer: the candidate with the largest minimum cluster silhouette, among the candidates
that have at least the lower median number of clusters. `choose` implements both rules.

    adaptive_scan.step      decisions, from the number of exemplars of each iteration
    message_passing         iterations
    score                   silhouettes of all candidates together

Chen and Zeng computed the similarities and the silhouettes of this method on a GPU, and the messages on the CPU. Here
all three are computed on the devices. Their silhouette uses the dissimilarities -S, which are squared Euclidean
distances. The package, and the default here, use Euclidean distances. The two distances can lead to different K.

Cost: thousands of iterations of `AffinityPropagation`, plus the silhouettes. The silhouettes take O(n K d) per
candidate, or one pass over all pairs for all candidates with the plain Euclidean distance.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.algorithms.affinity_propagation.adaptive_scan import PROFILES, ScanState, Stats, start, step, upcoming
from mgclust.algorithms.affinity_propagation.message_passing import SLOTS, ExemplarAssignment, MessagePassing
from mgclust.algorithms.affinity_propagation.rows.computed_similarities import similarities_of
from mgclust.algorithms.affinity_propagation.rows.message_rows import DENSE, SPARSE
from mgclust.algorithms.affinity_propagation.rows.row_choice import is_listed, rows_of
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import AFFINITIES, Similarities
from mgclust.algorithms.affinity_propagation.rows.similarity_quantiles import median
from mgclust.algorithms.silhouette.ranks import SilhouetteScores, score_labelings, score_with_matrix
from mgclust.base.errors import InputError
from mgclust.engine.checkpoint import Saved
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.metrics import METRICS

__all__ = ["WEAK_SILHOUETTE", "AdaptiveOutput", "adaptive_affinity_propagation"]

LOWEST = "can fall no further (the sums of messages cannot hold a lower value)"
WEAK_SILHOUETTE = 0.3  # below this mean silhouette, the authors' package shows the answer of its second rule

TABLE = (
    "n_clusters",
    "preference",
    "damping",
    "n_iter",
    "silhouette",
    "min_cluster_silhouette",
    "net_similarity",
    "min_cluster_size",
)


@dataclass(frozen=True)
class AdaptiveOutput:
    """Results of rank 0, in addition to the arrays that the ranks deliver.

    The delivered arrays are "candidates" (labels of all candidates, in the order of the table), "labels" (of the chosen
    candidate), and "samples" (silhouettes of the rows for the chosen candidate, if they are defined).
    """

    table: dict[str, np.ndarray]  # `AdaptiveAffinityPropagation.scan_`
    exemplars: dict[int, np.ndarray]  # row numbers, ascending, for each candidate by its number of clusters
    best: int  # the chosen number of clusters; 0 if there is no candidate
    choices: dict[str, int]  # the number of clusters that each rule chooses
    cluster_silhouettes: np.ndarray | None  # mean silhouettes of clusters for the chosen candidate, if defined
    log: list[str]
    n_iter: int
    stopped: str  # why the scan ended
    nearest: tuple[int, int]  # see `ScanState`
    preference: float | np.ndarray | None  # the parameter
    exactness: dict[str, Any]
    different: int | None  # number of distinct rows; None with precomputed similarities
    distance_error: float  # see `SilhouetteScores`; the largest error of all candidates, because they are compared


def adaptive_affinity_propagation(
    context: Context,
    *,
    affinity: str,
    profile: str,
    max_iter: int,
    preference: float | np.ndarray | None,
    silhouette_metric: str,
    min_cluster_size: int,
    n_clusters_range: tuple[int, int] | None,
    selection: str,
    algorithm: str,
    seed: int,
) -> AdaptiveOutput | None:
    """Run the method on every rank; rank 0 returns the results that `AdaptiveAffinityPropagation.fit` reports."""
    n = context.dataset_shape[0]
    if selection == "auto":
        selection = "package" if profile == "code" else "silhouette"
    saved = context.checkpoint.load()
    listed = is_listed(context, algorithm, affinity, saved)
    with context.stage("similarities"):
        similarities = similarities_of(context, affinity, seed, stored=not listed)
        rows = rows_of(context, similarities, algorithm, listed, can_end=preference is None)
        different = len(np.unique(similarities.first_equal)) if affinity in AFFINITIES else None
    with context.stage("preference"):
        middle = median(context, similarities, with_diagonal=False)
        similarities.synchronize()
    if preference is None:
        reject_scan(similarities, middle, affinity)
    # The scan changes one number. With one preference per row, this number begins at the median of the preferences, and
    # each row adds the difference of its preference from the median.
    first = None if preference is None else float(np.median(preference))
    offsets = np.zeros(n) if preference is None else np.zeros(n) + np.asarray(preference) - np.median(preference)
    if first is not None and PROFILES[profile].stride:
        profile = "code"  # a fixed preference does not fall
    state = start(
        profile, n, middle, first, max_iter=max_iter, fixed=first is not None, n_clusters_range=n_clusters_range
    )
    if saved is not None:
        state.resume(saved.control["state"])
    if state.profile.stride:
        similarities.ties = "float32"  # the preference falls before messages have magnified smaller differences
    with context.stage("scan"):
        messages = MessagePassing(context, rows, offsets + state.preference)
        exemplars, last, log = scan(context, messages, saved, state, offsets)
    with context.stage("labels"):
        preferences = {k: offsets + state.candidates[k].preference for k in exemplars}
        assignments = {k: messages.assign(found, preferences[k]) for k, found in exemplars.items()}
        if state.profile.stride and assignments:
            refined = messages.refine(list(assignments.values()), list(preferences.values()))
            assignments = dict(zip(assignments, refined, strict=True))
        elif len(last) and state.latest is not None and state.wanted(len(last)):
            (assignments[len(last)],) = messages.refine([messages.assign(last)])
            state.candidates[len(last)] = state.latest
        exactness = {"algorithm": SPARSE if listed else DENSE, **messages.rows.exactness()}
        del rows, messages
    assignments = dict(sorted(assignments.items()))
    with context.stage("silhouette"):
        scores = score(context, similarities, affinity, silhouette_metric, assignments)
    choices = choose(assignments, scores, min_cluster_size)
    best = choices[selection]
    judged, chosen = scores.get(best), assignments.get(best, unassigned(n))
    own = slice(context.rows.start, context.rows.stop)
    none = np.zeros((len(context.rows), 0), np.int32)
    candidates = np.column_stack([none, *(each.labels[own] for each in assignments.values())])
    context.deliver(labels=chosen.labels[own], candidates=candidates)
    if judged is not None and judged.samples is not None:
        context.deliver(samples=judged.samples[own])
    if context.rank:
        return None
    return AdaptiveOutput(
        table=tabulate(state, assignments, scores),
        exemplars={k: each.exemplars for k, each in assignments.items()},
        best=best,
        choices=choices,
        cluster_silhouettes=None if judged is None else judged.cluster_means,
        log=log,
        n_iter=state.iteration,
        stopped=state.stopped,
        nearest=state.nearest,
        preference=preference,
        exactness=exactness,
        different=different,
        distance_error=max((each.distance_error for each in scores.values()), default=0.0),
    )


def unassigned(n: int) -> ExemplarAssignment:
    """Return an assignment without exemplars, in which all n rows have the label -1."""
    return ExemplarAssignment(np.zeros(0, np.int64), np.full(n, -1, np.int32), np.nan)


def reject_scan(similarities: Similarities, median: float, affinity: str) -> None:
    """Reject similarities with which the preference cannot fall; it starts at half their median."""
    noise = 1e3 * np.finfo(similarities.context.dtype).tiny
    if similarities.all_alike:
        every = similarities.highest if abs(similarities.highest) > noise else 0
        raise InputError(
            f"all similarities are equal ({every:.3g}), so there are no clusters; drop duplicate rows or give "
            "preference."
        )
    if median >= -noise:
        remedy = "subtract the largest similarity from all of them"
        if affinity in AFFINITIES:
            remedy = "at least half of the pairs coincide, so drop duplicate rows"
        raise InputError(
            f"the median similarity is {median if median > noise else 0:g}, but should be < 0, because the preference "
            f"starts at half of it and must fall; {remedy}, or give preference."
        )


def scan(
    context: Context, messages: MessagePassing, saved: Saved | None, state: ScanState, given: np.ndarray
) -> tuple[dict[int, np.ndarray], np.ndarray, list[str]]:
    """Pass messages until the scan ends; return the exemplars of each candidate, the last exemplars, and the log."""
    exemplars: dict[int, np.ndarray] = {}
    log: list[str] = []
    if saved is not None:
        messages.restore(saved)
        exemplars, log = saved_candidates(saved), list(saved.control["log"])
    began, before = time.perf_counter(), state.iteration
    while True:
        preference = state.preference
        for slot, (n_exemplars, unchanged) in enumerate(messages.iterate(upcoming(state, SLOTS))):
            decision = step(state, Stats(n_exemplars, unchanged))
            if decision.record:
                exemplars[n_exemplars] = messages.exemplars(slot)
            if decision.event:
                log.append(decision.event)
            if decision.stop:
                return exemplars, messages.exemplars(slot), log
        if decision.renoise:
            messages.add_noise()
        if state.preference != preference:
            if not messages.holds(given + state.preference):
                state.preference, state.stopped = (
                    preference,
                    f"preference={preference:.6g} {LOWEST}",
                )
                return exemplars, messages.exemplars(slot), [*log, f"the end: {state.stopped}"]
            messages.set_preference(given + state.preference)
        context.progress(
            state.iteration / state.max_iter,
            iteration=state.iteration,
            max_iter=state.max_iter,
            n_clusters=n_exemplars,
            preference=state.preference,
            damping=state.damping,
            rate=(state.iteration - before) / (time.perf_counter() - began),
        )
        if context.checkpoint.due():
            rows = np.concatenate([np.zeros(0, np.int64), *exemplars.values()])
            messages.save({"state": state.to_plain(), "candidates": list(exemplars), "log": log}, {"candidates": rows})


def saved_candidates(saved: Saved) -> dict[int, np.ndarray]:
    """Return the exemplars of each candidate as `scan` saved them: the candidate with k clusters has k rows."""
    numbers = saved.control["candidates"]
    parts = np.split(saved.arrays["candidates"], np.cumsum(numbers, dtype=np.int64))  # the last part is empty
    return dict(zip(numbers, parts[:-1], strict=True))


def score(
    context: Context, similarities: Similarities, affinity: str, metric: str, found: dict[int, ExemplarAssignment]
) -> dict[int, SilhouetteScores]:
    """Compute the silhouettes of all candidates for which they are defined; the keys are numbers of clusters."""
    n = context.dataset_shape[0]
    defined = [k for k in found if 1 < k < n]
    labelings = [found[k].labels for k in defined]
    if affinity == "precomputed":
        scores = score_with_matrix(context, similarities.matrix(), similarities.highest, labelings, keep_samples=True)
    else:
        measure = METRICS[metric if affinity == "euclidean" else affinity]
        scores = score_labelings(context, measure, labelings, keep_samples=True, prepared=similarities.prepared)
    return dict(zip(defined, scores, strict=True))


def tabulate(
    state: ScanState, found: dict[int, ExemplarAssignment], scores: dict[int, SilhouetteScores]
) -> dict[str, np.ndarray]:
    """Return the scan as a table: one row per candidate, by ascending number of clusters."""
    rows = []
    for k, assignment in found.items():
        candidate, judged = state.candidates[k], scores.get(k)
        silhouettes = (np.nan, np.nan) if judged is None else (judged.score, float(judged.cluster_means.min()))
        smallest = int(np.bincount(assignment.labels).min())
        figures = (candidate.preference, candidate.damping, candidate.iteration, *silhouettes)
        rows.append((k, *figures, assignment.net_similarity, smallest))
    columns = zip(*rows, strict=True) if rows else [[]] * len(TABLE)
    return {name: np.array(column) for name, column in zip(TABLE, columns, strict=True)}


def choose(
    found: dict[int, ExemplarAssignment], scores: dict[int, SilhouetteScores], min_cluster_size: int
) -> dict[str, int]:
    """Return the number of clusters that each rule chooses.

    Both rules skip candidates with a cluster smaller than `min_cluster_size`, unless all candidates have such a
    cluster. Ties go to the smallest number. "silhouette" chooses the largest mean silhouette. "package" differs only if
    this silhouette is weak.
    """
    large = [k for k in scores if scores[k].sizes.min() >= min_cluster_size]
    eligible = sorted(large or scores)
    if not eligible:
        only = min(found, default=0)
        return {"silhouette": only, "package": only}
    best = max(eligible, key=lambda k: (scores[k].score, -k))
    package = best
    if scores[best].score < WEAK_SILHOUETTE:
        from_median = eligible[(len(eligible) - 1) // 2 :]  # the lower one of two medians, as in the package
        package = max(from_median, key=lambda k: (scores[k].cluster_means.min(), -k))
    return {"silhouette": best, "package": package}
