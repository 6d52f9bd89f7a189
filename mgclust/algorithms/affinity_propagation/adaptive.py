"""Estimator of adaptive affinity propagation: checks of its parameters, candidates of a scan, and warnings.

The method and the computation on the ranks are in `mgclust.algorithms.affinity_propagation.adaptive_ranks`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mgclust.algorithms.affinity_propagation.adaptive_ranks import (
    WEAK_SILHOUETTE,
    AdaptiveOutput,
    adaptive_affinity_propagation,
)
from mgclust.algorithms.affinity_propagation.exemplars import CONVERGENCE_REMEDY, ExemplarClusterer
from mgclust.algorithms.affinity_propagation.options import AdaptiveAffinityPropagationOptions
from mgclust.algorithms.affinity_propagation.presentation import AdaptiveAffinityPropagationPresentation
from mgclust.algorithms.base import Inputs, UnconvergedWarning, WarmUp
from mgclust.algorithms.common.preparation import warnings_of_distances
from mgclust.base.errors import (
    AmbiguousCountWarning,
    DataWarning,
    DegenerateClustersWarning,
    Doubt,
    InputError,
    ParameterWarning,
    WeakStructureWarning,
)
from mgclust.engine.spmd import Outcome, RunSpec
from mgclust.params import Integer
from mgclust.results.result import Result

__all__ = ["AdaptiveAffinityPropagation"]


class AdaptiveAffinityPropagation(AdaptiveAffinityPropagationOptions, ExemplarClusterer):
    """Adaptive affinity propagation of Wang et al. (2007): finds preference, damping and the number of clusters.

    One run of messages scans the preference from half the median similarity downwards. Each number of clusters that the
    scan finds is a candidate. Silhouettes choose one of the candidates.

    Parameters
    ----------
    profile : {"code", "paper", "fast"}, default="code"
        Rules of the scan.

        - "code": the rules of the authors' package.
        - "paper": the rules of the authors' paper, which differ from the package.
        - "fast": rules of mgclust, which lower the preference steadily and need about a tenth of the iterations. If
          `preference` is given, "fast" means "code".
    max_iter : int, default=50000
        Largest number of iterations of the whole scan.
    preference : float or array of shape (n_samples,), optional
        Fixed preference, in units of the similarity. With it, only the damping adapts, and there is one candidate.
    affinity : {"euclidean", "cosine", "correlation", "precomputed"}, default="euclidean"
        See `AffinityPropagation`. The median of the similarities must be below 0 unless `preference` is given.
    algorithm : {"auto", "dense", "sparse"}, default="auto"
        See `AffinityPropagation`.
    silhouette_metric : {"euclidean", "sqeuclidean"}, default="euclidean"
        Distance for the silhouettes of candidates, only with ``affinity="euclidean"``. "euclidean" is the distance of
        the authors' package. "sqeuclidean" is -S, where S is the similarity, as in Chen and Zeng. With
        ``affinity="cosine"``, the distance is 1 - cosine; with "correlation", 1 - correlation; with "precomputed", -S,
        shifted to be positive.
    min_cluster_size : int, default=3
        Minimum number of rows in each cluster of the chosen candidate. It has no effect if every candidate has a
        smaller cluster.
    n_clusters_range : tuple of (int, int), optional
        Smallest and largest number of clusters of a candidate, such as (5, 20); as text "5,20". Above the range, the
        preference falls faster. Below the range, the scan ends. The largest number must be at least 2. Excludes
        `preference`.
    selection : {"auto", "silhouette", "package"}, default="auto"
        Rule that chooses a candidate.

        - "silhouette": the largest mean silhouette.
        - "package": the same rule, unless the largest mean silhouette is below 0.3. In that case, as in the authors'
          package, the largest ``min_cluster_silhouette`` decides among the candidates that have at least the median
          number of clusters (the lower one of two medians).
        - "auto": "package" with ``profile="code"``, else "silhouette".
    save_candidates : bool, default=False
        Keep the labels and exemplars of all candidates in ``result_.arrays``, so that they are saved with the result.
        ``mgclust run`` and the service also write each candidate as a result directory, ``candidates/K``.
    device, client, n_workers, workers, resources, retries, verbose
        See `DensityPeaks`.
    dtype : {"float32", "float64"}, default="float32"
        Type of similarities and messages.
    memory_limit : int or str, optional
        See `AffinityPropagation`.
    random_state : int, Generator or RandomState, optional
        See `AffinityPropagation`.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Position of each row's exemplar in `cluster_centers_indices_`, for the chosen candidate. If there is no
        candidate, all labels are -1.
    cluster_centers_indices_, cluster_centers_, affinity_matrix_
        See `AffinityPropagation`; for the chosen candidate.
    n_clusters_ : int
        Number of clusters of the chosen candidate; 0 if there is no candidate.
    scan_ : dict of str to ndarray of shape (n_candidates,)
        The candidates by ascending ``n_clusters``: ``preference``, ``damping``, ``n_iter`` (the iteration at which the
        candidate was recorded), ``silhouette``, ``min_cluster_silhouette``, ``net_similarity``, ``min_cluster_size``.
        ``pandas.DataFrame(model.scan_)`` shows the table.
    log_ : list of str
        Decisions of the scan, with their iterations.
    silhouette_ : float
        Mean silhouette of the chosen candidate.
    selection_ : {"silhouette", "package"}
        Rule that chose the candidate. It is "package" only if the second rule of the authors' package chose another
        candidate than the candidate with the largest mean silhouette.
    n_iter_ : int
        Number of iterations of the whole scan.
    converged_ : bool
        Whether the scan ended within `max_iter` iterations and found a candidate.
    net_similarity_, preference_ : float
        Net similarity and preference of the chosen candidate. If `preference` is given, `preference_` equals it.
    exactness_ : dict
        See `AffinityPropagation`.
    timings_, result_, n_features_in_
        See `DensityPeaks`.

    See Also
    --------
    AffinityPropagation : Uses one preference, or searches for a given number of clusters.

    References
    ----------
    K. Wang, J. Zhang, D. Li, X. Zhang, T. Guo, Adaptive affinity propagation clustering, Acta Automatica Sinica
    33:1242-1246, 2007.
    K. Wang, Adaptive affinity propagation clustering, MATLAB package, version 3.0, File Exchange 18244, 2009.
    Y. Chen, W. Zeng: adaptive affinity propagation for fMRI on a GPU (see benchmarks).

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import AdaptiveAffinityPropagation
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat([[0.0, 0], [9, 0], [0, 9]], 20, axis=0) + rng.normal(size=(60, 2))
    >>> model = AdaptiveAffinityPropagation().fit(X)
    >>> model.n_clusters_
    3
    >>> np.unique(model.labels_for(2)).tolist()  # another candidate of the scan
    [0, 1]
    """

    presentation = AdaptiveAffinityPropagationPresentation()

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return (WarmUp((200, 8), seconds=3.5),)

    def labels_for(self, k: int) -> Any:
        """Return the labels of the candidate with k clusters.

        Parameters
        ----------
        k : int
            Number of clusters, one of ``scan_["n_clusters"]``.

        Returns
        -------
        ndarray or Dask array of shape (n_samples,), int32
            Position of each row's exemplar among the exemplars of this candidate. The result is a Dask array if
            `labels_` is a Dask array.

        Raises
        ------
        InputError
            The scan has no candidate with k clusters; the message lists the nearest numbers.

        Examples
        --------
        >>> import numpy as np
        >>> from mgclust import AdaptiveAffinityPropagation
        >>> X = np.repeat([[0.0, 0], [9, 0], [0, 9]], 20, axis=0) + np.random.default_rng(0).normal(size=(60, 2))
        >>> model = AdaptiveAffinityPropagation(client=None).fit(X)
        >>> np.unique(model.labels_for(2)).tolist()
        [0, 1]
        """
        check_is_fitted(self, "scan_")
        k = Integer(at_least=1).check("k", k)
        numbers = self.scan_["n_clusters"].tolist()
        if k not in numbers:
            near = sorted(numbers, key=lambda other: abs(other - k))[:4]
            raise InputError(
                f"k={k} is not a candidate of the scan; choose one of scan_['n_clusters'], of which the nearest are "
                f"{sorted(near)}."
            )
        return self._candidates[:, numbers.index(k)].copy()

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        wanted, n = parameters["n_clusters_range"], inputs.dataset.shape[0]
        if wanted is not None and parameters["preference"] is not None:
            raise InputError(
                f"n_clusters_range={wanted} and preference exclude each other, because the scan changes the "
                "preference; leave one of them out."
            )
        if wanted is not None and wanted[1] < 2:
            raise InputError(
                f"n_clusters_range={wanted} ends below 2, but a scan ends at 2 clusters; give a range up to 2 or more."
            )
        if wanted is not None and wanted[0] > n:
            raise InputError(f"n_clusters_range={wanted} begins above the number of rows, {n}; give fewer clusters.")
        spec = self._spec_of(adaptive_affinity_propagation, parameters, inputs, parameters["dtype"])
        # The ranks do not need `save_candidates`: it changes only the result.
        return replace(spec, arguments={k: v for k, v in spec.arguments.items() if k != "save_candidates"})

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        value: AdaptiveOutput = outcome.value
        self.scan_, self.log_, self._candidates = value.table, value.log, outcome.arrays["candidates"]
        best, by_silhouette = value.best, value.choices["silhouette"]
        self.n_iter_ = value.n_iter
        self.converged_ = best > 0 and not value.stopped.startswith(("max_iter", "preference"))
        self.exactness_ = value.exactness
        self.selection_ = "silhouette" if best == by_silhouette else "package"
        self._keep_exemplars(inputs.dataset, value.exemplars.get(best, np.zeros(0, np.int64)))
        self.labels_ = outcome.arrays["labels"]
        row = {name: column[self.scan_["n_clusters"] == best] for name, column in self.scan_.items()}
        self.net_similarity_ = float(row["net_similarity"][0]) if best else np.nan
        self.silhouette_ = float(row["silhouette"][0]) if best else np.nan
        last = float(row["preference"][0]) if best else np.nan
        self.preference_ = last if value.preference is None else value.preference
        problems = self._problems(row, value)
        n = inputs.dataset.shape[0]
        if value.different is not None and best != value.different <= n / 2:
            text = (
                f"only {value.different} of {n} rows are distinct: the scan may miss the numbers of clusters that keep "
                "duplicate rows together; drop duplicates (numpy.unique(X, axis=0))."
            )
            problems.append(Doubt(text, DataWarning))
        option = "silhouette_metric" if self.affinity == "euclidean" else "affinity"
        problems += warnings_of_distances(value.distance_error, getattr(self, option), self.dtype, option)
        silhouettes = {}
        if value.cluster_silhouettes is not None:
            samples = outcome.arrays["samples"]
            silhouettes = {"samples": samples, "cluster_silhouettes": value.cluster_silhouettes}
        candidates = {}
        if self.save_candidates:
            rows = np.concatenate([np.zeros(0, np.int64), *value.exemplars.values()])
            candidates = {"candidates": self._candidates, "candidate_centers": rows}
        return Result(
            labels=self.labels_,
            arrays={
                "centers": self.cluster_centers_indices_,
                **silhouettes,
                **candidates,
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
                "selection": self.selection_,
                "exactness": {"algorithm": self.exactness_["algorithm"]},
            },
            warnings=problems,
            **frame,
        )

    def _problems(self, row: dict[str, np.ndarray], value: AdaptiveOutput) -> list[Doubt]:
        problems, nearest = [], value.nearest
        if not self.n_clusters_ and any(nearest):
            passed = " and ".join(str(k) for k in nearest if k)
            remedy = "raise max_iter" if self.n_iter_ == self.max_iter else "choose another profile"
            text = (
                f"n_clusters_range={self.n_clusters_range} has no candidate, so all labels are -1: the nearest numbers "
                f"of clusters outside it are {passed}; widen the range, or {remedy}."
            )
            problems.append(Doubt(text, ParameterWarning if self.converged_ else UnconvergedWarning))
        elif not self.n_clusters_:
            text = f"no exemplar emerged in {self.n_iter_} iterations, so all labels are -1: {CONVERGENCE_REMEDY}."
            problems.append(Doubt(text, UnconvergedWarning))
        elif not self.converged_:
            early = value.stopped.startswith("preference")
            end = f"ended early, because {value.stopped}" if early else "had not ended after "
            end += "" if early else f"max_iter={self.max_iter} iterations"
            remedy = "try another profile" if early else "raise max_iter"
            text = f"the scan {end}: smaller numbers of clusters were not reached; {remedy}."
            problems.append(Doubt(text, UnconvergedWarning))
        if self.n_clusters_ and row["min_cluster_size"][0] < self.min_cluster_size:
            text = (
                f"every candidate has a cluster smaller than min_cluster_size={self.min_cluster_size}: lower "
                "min_cluster_size."
            )
            problems.append(Doubt(text, DegenerateClustersWarning))
        if self.n_clusters_ == 1:
            text = "the scan ended with one cluster, and no other candidate has a silhouette: give a preference above "
            problems.append(Doubt(f"{text}the last value of scan_['preference'].", AmbiguousCountWarning))
        else:
            problems += [Doubt(text, WeakStructureWarning) for text in self._weak(value.choices)]
        return problems

    def _weak(self, choices: dict[str, int]) -> list[str]:
        """Return a warning if the best silhouette is weak; it names the choice of each rule, if the choices differ."""
        best, package = choices["silhouette"], choices["package"]
        silhouettes = self.scan_["silhouette"][self.scan_["n_clusters"] == best]
        if not (silhouettes < WEAK_SILHOUETTE).any():
            return []
        found = f"{silhouettes[0]:.2f} at K={best}"
        if self.selection_ == "package":
            return [
                f"the best mean silhouette, {found}, is below {WEAK_SILHOUETTE}, so K={package} was chosen by the "
                f"second rule of the authors' package; selection='silhouette' chooses K={best}."
            ]
        other = f" selection='package' chooses K={package}, and" if package != best else ""
        return [
            f"the best mean silhouette is only {found}: the clusters overlap;{other} save_candidates=True keeps the "
            "labels of all candidates for comparison."
        ]
