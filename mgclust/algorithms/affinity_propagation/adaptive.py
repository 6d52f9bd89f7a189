r"""Adaptive affinity propagation (Wang et al., Acta Automatica Sinica 33:1242, 2007; arXiv 0805.1096), on any ranks.

Affinity propagation wants a preference, which decides the number of clusters K, and a damping, which decides whether
the messages settle. This method needs neither. One run of messages continues while the preference falls step by step
from half the median similarity: whenever the exemplars have settled they are recorded as the candidate with K
clusters, and the preference is lowered, faster the longer K stays. Where the messages oscillate, the damping is
raised, and if that does not help the preference escapes downwards. The run ends at K = 2 or 1. Of the candidates, the
one with the largest mean silhouette is the answer.

    adaptive_scan.step      the decisions, from the number of exemplars of each iteration
    message_passing         the iterations
    silhouette_scores       the scores of all candidates, together

Chen and Zeng computed the similarities and the silhouettes of this method on a GPU and left the messages on the CPU;
here all three stay on the devices. Cost: as `AffinityPropagation`, for thousands of iterations; then the silhouettes,
in O(n K d) for each candidate, or one pass over all pairs for all candidates with the plain Euclidean distance.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from mgclust.algorithms.affinity_propagation.adaptive_scan import PROFILES, ScanState, Stats, start, step, upcoming
from mgclust.algorithms.affinity_propagation.exemplars import CONVERGENCE_REMEDY, ExemplarClusterer
from mgclust.algorithms.affinity_propagation.message_passing import SLOTS, Assignment, MessagePassing
from mgclust.algorithms.affinity_propagation.message_rows import DENSE, SPARSE
from mgclust.algorithms.affinity_propagation.presentation import AdaptiveAffinityPropagationPresentation
from mgclust.algorithms.affinity_propagation.row_choice import is_listed, rows_of
from mgclust.algorithms.affinity_propagation.similarity_matrix import (
    AFFINITIES,
    Similarities,
    median,
    similarities_of,
)
from mgclust.algorithms.base import Inputs, WarmUp
from mgclust.algorithms.silhouette.ranks import SilhouetteScores, score_labelings, score_with_matrix
from mgclust.engine.checkpoint import Saved
from mgclust.engine.spmd import Context, Outcome, RunSpec
from mgclust.errors import InputError
from mgclust.kernels.pairs.metrics import METRICS
from mgclust.params import Choice, Constraint, Integer, Range, RealOrPerRow
from mgclust.result import Result

__all__ = ["AdaptiveAffinityPropagation"]

WEAK_SILHOUETTE = 0.3  # below it the authors' package looks at the smallest cluster silhouette instead
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
    """Rank 0's findings."""

    table: dict[str, np.ndarray]  # `AdaptiveAffinityPropagation.scan_`
    assignments: dict[int, Assignment]  # by number of clusters
    best: int  # the chosen number of clusters; 0 where there is no candidate
    silhouettes: SilhouetteScores | None  # of the best one, where they are defined
    log: list[str]
    n_iter: int
    stopped: str  # why the scan ended
    nearest: tuple[int, int]  # see `ScanState`
    preference: float | np.ndarray | None  # as it was given
    exactness: dict[str, Any]


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
    algorithm: str,
    seed: int,
) -> AdaptiveOutput | None:
    """Run the method on every rank; rank 0 returns what `AdaptiveAffinityPropagation.fit` reports."""
    n = context.dataset_shape[0]
    saved = context.checkpoint.load()
    listed = is_listed(context, algorithm, affinity, saved)
    with context.stage("similarities"):
        similarities = similarities_of(context, affinity, seed, stored=not listed)
        rows = rows_of(context, similarities, algorithm, listed)
    with context.stage("preference"):
        middle = median(context, similarities, with_diagonal=False)
        similarities.settle()
    if preference is None:
        refuse_scan(similarities, middle, affinity)
    # A scan moves one number; what a vector of preferences has beside it is added to it.
    first = None if preference is None else float(np.median(preference))
    offsets = np.zeros(n) if preference is None else np.zeros(n) + np.asarray(preference) - np.median(preference)
    if first is not None and PROFILES[profile].stride:
        profile = "code"  # nothing falls
    state = start(
        profile, n, middle, first, max_iter=max_iter, fixed=first is not None, n_clusters_range=n_clusters_range
    )
    if saved is not None:
        state.resume(saved.control["state"])
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
    if context.rank:
        return None
    best = choose(assignments, scores, min_cluster_size)
    return AdaptiveOutput(
        table=tabulate(state, assignments, scores),
        assignments=assignments,
        best=best,
        silhouettes=scores.get(best),
        log=log,
        n_iter=state.iteration,
        stopped=state.stopped,
        nearest=state.nearest,
        preference=preference,
        exactness=exactness,
    )


def refuse_scan(similarities: Similarities, median: float, affinity: str) -> None:
    """The preference starts at half the median and has to fall."""
    if similarities.all_alike:
        raise InputError(
            f"all similarities are equal ({similarities.highest:.3g}): there are no clusters to be found; drop "
            "duplicate rows, or give preference."
        )
    noise = 1e3 * np.finfo(similarities.context.dtype).tiny
    if median >= -noise:
        remedy = "subtract the largest similarity from all of them"
        if affinity in AFFINITIES:
            remedy = "at least half of the pairs coincide, so drop duplicate rows"
        raise InputError(
            f"the median similarity is {median if median > noise else 0:g}, should be < 0: the preference starts at "
            f"half of it and has to fall; {remedy}, or give preference."
        )


def scan(
    context: Context, messages: MessagePassing, saved: Saved | None, state: ScanState, given: np.ndarray
) -> tuple[dict[int, np.ndarray], np.ndarray, list[str]]:
    """Pass messages until the scan ends: the exemplars of each candidate, those of the last iteration, the log."""
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
            messages.set_preference(given + state.preference)
        context.progress(
            state.iteration / state.max_iter,
            n_clusters=n_exemplars,
            preference=state.preference,
            damping=state.damping,
            rate=(state.iteration - before) / (time.perf_counter() - began),
        )
        if context.checkpoint.due():
            rows = np.concatenate([np.zeros(0, np.int64), *exemplars.values()])
            messages.save({"state": state.to_plain(), "candidates": list(exemplars), "log": log}, {"candidates": rows})


def saved_candidates(saved: Saved) -> dict[int, np.ndarray]:
    """The exemplars of each candidate as `scan` saved them: k rows where there are k clusters."""
    numbers = saved.control["candidates"]
    parts = np.split(saved.arrays["candidates"], np.cumsum(numbers, dtype=np.int64))  # and an empty one behind them
    return dict(zip(numbers, parts[:-1], strict=True))


def score(
    context: Context, similarities: Similarities, affinity: str, metric: str, found: dict[int, Assignment]
) -> dict[int, SilhouetteScores]:
    """Silhouettes of all candidates for which they are defined, by number of clusters."""
    n = context.dataset_shape[0]
    defined = [k for k in found if 1 < k < n]
    labelings = [found[k].labels for k in defined]
    if affinity == "precomputed":
        scores = score_with_matrix(context, similarities.matrix(), similarities.highest, labelings, keep_samples=True)
    else:
        measure = METRICS[metric if affinity == "euclidean" else affinity]
        scores = score_labelings(context, measure, labelings, keep_samples=True)
    return dict(zip(defined, scores, strict=True))


def tabulate(
    state: ScanState, found: dict[int, Assignment], scores: dict[int, SilhouetteScores]
) -> dict[str, np.ndarray]:
    """The scan as a table: one row a candidate, by ascending number of clusters."""
    rows = []
    for k, assignment in found.items():
        candidate, judged = state.candidates[k], scores.get(k)
        silhouettes = (np.nan, np.nan) if judged is None else (judged.score, float(judged.cluster_means.min()))
        smallest = int(np.bincount(assignment.labels).min())
        figures = (candidate.preference, candidate.damping, candidate.iteration, *silhouettes)
        rows.append((k, *figures, assignment.net_similarity, smallest))
    columns = zip(*rows, strict=True) if rows else [[]] * len(TABLE)
    return {name: np.array(column) for name, column in zip(TABLE, columns, strict=True)}


def choose(found: dict[int, Assignment], scores: dict[int, SilhouetteScores], min_cluster_size: int) -> int:
    """The candidate with the largest silhouette, of equals that with fewest clusters; none with too small a cluster."""
    large = [k for k in scores if scores[k].sizes.min() >= min_cluster_size]
    eligible = large or list(scores)
    if not eligible:
        return min(found, default=0)
    return max(eligible, key=lambda k: (scores[k].score, -k))


class AdaptiveAffinityPropagation(ExemplarClusterer):
    """Adaptive affinity propagation of Wang et al. (2007): finds preference, damping and the number of clusters.

    Parameters
    ----------
    profile : {"code", "paper", "fast"}, default="code"
        Rules of the scan: those of the authors' package, or those of the paper, which differ; or ours, which lower the
        preference all the time and need about an eighth of the iterations (see `adaptive_scan`). With `preference`,
        "fast" is "code".
    max_iter : int, default=50000
    preference : float or array of shape (n_samples,), optional
        Keeps the preference: then only the damping adapts, and there is one candidate.
    affinity : {"euclidean", "cosine", "correlation", "precomputed"}, default="euclidean"
        As in `AffinityPropagation`; the median of the similarities has to be below 0.
    algorithm : {"auto", "dense", "sparse"}, default="auto"
        As in `AffinityPropagation`.
    silhouette_metric : {"euclidean", "sqeuclidean"}, default="euclidean"
        Distance by which candidates are compared, for ``affinity="euclidean"``. For cosine and correlation it is one
        minus these, for precomputed similarities -S, shifted to be positive.
    min_cluster_size : int, default=3
        Candidates with a smaller cluster are not chosen, unless all have one.
    n_clusters_range : tuple of (int, int), optional
        The least and the largest number of clusters that are wanted, such as (5, 20); as text "5,20". The scan hurries
        above it, ends below it, and only what lies within it is a candidate. Not with `preference`.
    device, client, verbose
        As in `DensityPeaks`.
    dtype : {"float32", "float64"}, default="float32"
        Of similarities and messages.
    memory_limit : int or str, optional
        As in `AffinityPropagation`.
    random_state : int, Generator or RandomState, optional
        Seed of the noise, of relative size eps, that breaks ties.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Of the best candidate; position of each row's exemplar.
    cluster_centers_indices_, cluster_centers_, affinity_matrix_
        As in `AffinityPropagation`.
    n_clusters_ : int
    scan_ : dict of str to ndarray
        The candidates, by ascending ``n_clusters``: ``preference``, ``damping``, ``n_iter`` (the iteration that was
        recorded), ``silhouette``, ``min_cluster_silhouette``, ``net_similarity``, ``min_cluster_size``.
        ``pandas.DataFrame(model.scan_)`` shows it.
    log_ : list of str
        What the scan decided, and when.
    silhouette_ : float
        Of the best candidate.
    n_iter_ : int
        Iterations of the whole scan.
    converged_ : bool
        Whether the scan came to its end within `max_iter`.
    net_similarity_, preference_ : float
        Of the best candidate.
    exactness_ : dict
        As in `AffinityPropagation`.
    timings_, result_, n_features_in_
        As in `DensityPeaks`.

    References
    ----------
    K. Wang, J. Zhang, D. Li, X. Zhang, T. Guo, Adaptive affinity propagation clustering, Acta Automatica Sinica
    33:1242-1246, 2007.
    Y. Chen, T. Zeng: adaptive affinity propagation for fMRI on a GPU (see benchmarks).

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import AdaptiveAffinityPropagation
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat([[0.0, 0], [9, 0], [0, 9]], 20, axis=0) + rng.normal(size=(60, 2))
    >>> AdaptiveAffinityPropagation().fit(X).n_clusters_
    3
    """

    method = "adaptive-affinity-propagation"
    presentation = AdaptiveAffinityPropagationPresentation()
    constraints: ClassVar[dict[str, Constraint]] = {
        "profile": Choice(*PROFILES, help="Rules of the scan: the authors' package, their paper, or fast ones."),
        "max_iter": Integer(at_least=1, help="Most iterations of the whole scan."),
        "preference": RealOrPerRow(optional=True, help="Keep this preference instead of scanning."),
        "affinity": Choice(*AFFINITIES, "precomputed", help="Similarity between rows."),
        "algorithm": Choice("auto", "dense", "sparse", help="Keep all pairs, or lists of those that matter."),
        "silhouette_metric": Choice("euclidean", "sqeuclidean", help="Distance that compares the candidates."),
        "min_cluster_size": Integer(at_least=1, help="Candidates with a smaller cluster are not chosen."),
        "n_clusters_range": Range(optional=True, help="Numbers of clusters that are wanted, such as 5,20."),
    }

    def __init__(
        self,
        *,
        profile: str = "code",
        max_iter: int = 50_000,
        preference: Any = None,
        affinity: str = "euclidean",
        algorithm: str = "auto",
        silhouette_metric: str = "euclidean",
        min_cluster_size: int = 3,
        n_clusters_range: Any = None,
        device: str = "auto",
        client: Any = "auto",
        dtype: str = "float32",
        memory_limit: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.profile = profile
        self.max_iter = max_iter
        self.preference = preference
        self.affinity = affinity
        self.algorithm = algorithm
        self.silhouette_metric = silhouette_metric
        self.min_cluster_size = min_cluster_size
        self.n_clusters_range = n_clusters_range
        self.device = device
        self.client = client
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return (WarmUp((200, 8), seconds=3.5),)

    def labels_for(self, k: int) -> np.ndarray:
        """Labels of the candidate with k clusters.

        Parameters
        ----------
        k : int
            One of ``scan_["n_clusters"]``.

        Returns
        -------
        ndarray of shape (n_samples,), int32

        Raises
        ------
        InputError
            The scan has no such candidate; says which are near.
        """
        check_is_fitted(self, "scan_")
        k = Integer(at_least=1).check("k", k)
        if k not in self._assignments:
            near = sorted(self._assignments, key=lambda other: abs(other - k))[:4]
            raise InputError(f"k={k} should be one of the candidates, the nearest are {sorted(near)}; see scan_.")
        return self._assignments[k].labels

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        wanted, n = parameters["n_clusters_range"], inputs.dataset.shape[0]
        if wanted is not None and parameters["preference"] is not None:
            raise InputError(
                f"n_clusters_range={wanted} needs a preference that falls, and preference keeps it; leave one of them "
                "out."
            )
        if wanted is not None and wanted[0] > n:
            raise InputError(f"n_clusters_range={wanted} begins above the {n} rows; give fewer clusters.")
        return self._spec_of(adaptive_affinity_propagation, parameters, inputs, parameters["dtype"])

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        value: AdaptiveOutput = outcome.value
        self.scan_, self.log_, self._assignments = value.table, value.log, value.assignments
        self.n_iter_, self.converged_ = value.n_iter, "max_iter" not in value.stopped
        self.exactness_ = value.exactness
        best = value.best
        n = frame["source"]["shape"][0]
        chosen = self._assignments.get(best, Assignment(np.zeros(0, np.int64), np.full(n, -1, np.int32), np.nan))
        self._keep_exemplars(inputs.dataset, chosen.exemplars)
        self.labels_ = chosen.labels
        self.net_similarity_ = chosen.net_similarity
        row = {name: column[self.scan_["n_clusters"] == best] for name, column in self.scan_.items()}
        self.silhouette_ = float(row["silhouette"][0]) if best else np.nan
        last = float(row["preference"][0]) if best else np.nan
        self.preference_ = last if value.preference is None else value.preference
        problems = self._problems(row, value.nearest)
        judged = value.silhouettes
        silhouettes = {} if judged is None else {"samples": judged.samples, "cluster_silhouettes": judged.cluster_means}
        return Result(
            labels=self.labels_,
            arrays={
                "centers": self.cluster_centers_indices_,
                **silhouettes,
                **{f"scan_{name}": column for name, column in self.scan_.items()},
            },
            scores={
                "n_clusters": self.n_clusters_,
                "silhouette": self.silhouette_,
                "min_cluster_silhouette": float(row["min_cluster_silhouette"][0]) if best else np.nan,
                "net_similarity": self.net_similarity_,
                "n_iter": self.n_iter_,
                "converged": self.converged_,
                "preference": float(np.median(self.preference_)),
            },
            diagnostics={
                "log": self.log_,
                "stopped": value.stopped,
                "exactness": {"algorithm": self.exactness_["algorithm"]},
            },
            warnings=problems,
            **frame,
        )

    def _problems(self, row: dict[str, np.ndarray], nearest: tuple[int, int]) -> list[str]:
        problems = []
        if not self.n_clusters_ and any(nearest):
            passed = " and ".join(str(k) for k in nearest if k)
            remedy = "choose another profile" if self.converged_ else "raise max_iter"
            problems.append(
                f"the scan found no candidate within n_clusters_range={self.n_clusters_range}, all labels are -1; the "
                f"nearest numbers of clusters that it passed are {passed}: widen the range, or {remedy}."
            )
        elif not self.n_clusters_:
            problems.append(
                f"no exemplar emerged in {self.n_iter_} iterations, all labels are -1: {CONVERGENCE_REMEDY}."
            )
        elif not self.converged_:
            problems.append(
                f"the scan had not come to its end after max_iter={self.max_iter} iterations: smaller numbers of "
                "clusters were not reached; raise max_iter."
            )
        self._alerts = [(problem, ConvergenceWarning) for problem in problems]
        if self.n_clusters_ and row["min_cluster_size"][0] < self.min_cluster_size:
            problems.append(f"every candidate has a cluster smaller than min_cluster_size={self.min_cluster_size}.")
        if self.n_clusters_ == 1:
            problems.append("the scan ended with one cluster and found no other candidate that could be scored.")
        elif self.silhouette_ < WEAK_SILHOUETTE:
            problems.append(
                f"the best silhouette is only {self.silhouette_:.2f}: the clusters overlap. Compare other candidates, "
                "for example by min_cluster_silhouette in the scan."
            )
        return problems
