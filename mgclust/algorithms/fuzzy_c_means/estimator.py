"""Fuzzy c-means as an estimator: its parameters, its attributes, and memberships of other rows.

The equations and what the ranks compute are in `mgclust.algorithms.fuzzy_c_means.ranks`, memberships of rows in given
centres in `mgclust.algorithms.fuzzy_c_means.memberships`. `run_spec` of this folder describes a run to the ranks and
refuses parameters that do not fit the data; `result_warnings` has the warnings.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mgclust.algorithms.base import Inputs, WarmUp
from mgclust.algorithms.common.scikit_learn import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from mgclust.algorithms.common.weights import WeightedClusterer, checked_weights
from mgclust.algorithms.fuzzy_c_means.memberships import Clusters, Memberships
from mgclust.algorithms.fuzzy_c_means.options import FuzzyCMeansOptions
from mgclust.algorithms.fuzzy_c_means.presentation import FuzzyCMeansPresentation
from mgclust.algorithms.fuzzy_c_means.ranks import FuzzyCMeansOutput, estimate
from mgclust.algorithms.fuzzy_c_means.result_warnings import problems_of
from mgclust.algorithms.fuzzy_c_means.run_spec import run_spec
from mgclust.algorithms.fuzzy_c_means.validity import RangeCandidate
from mgclust.data import Dataset
from mgclust.engine.spmd import Outcome, RunSpec
from mgclust.results.result import Result

__all__ = ["FuzzyCMeans"]


class FuzzyCMeans(FuzzyCMeansOptions, ClassNamePrefixFeaturesOutMixin, TransformerMixin, WeightedClusterer):
    """Fuzzy c-means of Bezdek (1981): rows belong to every cluster to some degree, on one or many CPUs or GPUs.

    Parameters
    ----------
    n_clusters : int, default=8
    n_clusters_range : tuple of (int, int), optional
        From the first number to the second, in place of `n_clusters`: a partition of each, of which `criterion` chooses
        one; see `scan_`.
    criterion : {"auto", "xie_beni", "modified_partition_coefficient", "fuzzy_silhouette", "fuzzy_hypervolume"}, \
default="auto"
        Validity index that chooses the number of clusters: the least "xie_beni" or "fuzzy_hypervolume", the largest of
        the others. "auto" is "xie_beni"; with ``covariance_type="full"`` or `noise_distance` it is
        "modified_partition_coefficient". With noise the former two would make noise of whole clusters, and are refused
        for a range. "fuzzy_silhouette" takes the distances of all pairs of rows once, and is computed with one number
        of clusters, too.
    m : float or "auto", default="auto"
        Fuzzifier, above 1: near 1 nearly every row belongs to one cluster (k-means), large m makes all memberships
        alike, and in many features already 2 does. "auto" takes that of Schwämmle and Jensen (2010), which falls with
        the number of features and rows, and 2 where theirs is larger (up to four or five features); see `m_`. With
        ``covariance_type="full"`` the numbers of a centre and a covariance count as features.
    covariance_type : {"spherical", "full"}, default="spherical"
        With "full" each cluster has a covariance of its own, and the distance that follows from it, as Gustafson and
        Kessel (1979) have it: clusters may be long, flat and turned, all of the same volume. In float64, with
        ``metric="euclidean"``; an iteration takes about n_features times as long. Each cluster needs more rows than
        there are features, unless there is `shrinkage`.
    shrinkage : float, default=0.0
        With "full", the share, from 0 to 1, that the covariance of all rows has in that of each cluster: for clusters
        of few rows. At 1 all have the shape of the whole.
    init : {"k-means++", "random", "canopy", "random-memberships"}, array or path of a .npy, default="k-means++"
        Where centres start: drawn far from each other (k-means|| above 65,536 rows); random rows; the largest of as
        many canopies (if m is above 2, followed by one step with m = 2, since a centre would hardly leave the row that
        it lies on); the weighted means of random memberships, as in Bezdek (1981); or an array of shape (n_clusters,
        n_features), centres as `cluster_centers_` has them, or of shape (n_samples, n_clusters), memberships whose rows
        sum to 1.
    n_init : int, default=1
        So many runs from different starts, in one and the same passes over the data; the lowest J is kept. Only where
        starts are drawn ("k-means++", "random", "random-memberships").
    max_iter : int, default=300
    tol : float, default=1e-4
        The run ends when what `stop` names changes by no more than this.
    stop : {"centers", "objective", "memberships"}, default="centers"
        "centers": no centre moves farther than `tol` times the root mean square distance of the rows from their mean;
        with ``covariance_type="full"`` no centre together with the root of its covariance. "objective": J differs by at
        most `tol` times J from that of the iteration before. "memberships": no membership differs by more than `tol`;
        such an iteration looks at some rows twice more, the last ones at all of them.
    noise_distance : float, optional
        Distance of a noise cluster from every row (Davé 1991), in units of the data, or for cosine and correlation of
        rows of unit length. It takes most of the rows that are farther than this from all centres, so that they hardly
        move them: such rows have the label -1, and memberships whose sum is below 1. An iteration takes some times as
        long. Give ``init="random", n_init=10``, too: "k-means++" starts from rows far away.
    metric : {"euclidean", "cosine", "correlation"}, default="euclidean"
        The last two scale each row to unit length first (correlation: centred by its own mean before); centres are
        means of such rows.
    device, client, n_workers, workers, resources, retries, verbose
        As in `DensityPeaks`.
    dtype : {"float32", "float64"}, default="float32"
        Of rows, distances and memberships; sums over rows are float64. Small data (up to 2^20 numbers), m below 1.25
        and ``m log2(n_clusters)`` above 100 take float64 whatever is asked for; see `computed_in_`.
    memory_limit : int or str, optional
        Memory by which one rank may grow, for example "4 GiB"; rows that do not fit are streamed once an iteration.
    random_state : int, Generator or RandomState, optional
        Seed of the starts. None is 0: a fit again is the same.

    Attributes
    ----------
    n_clusters_ : int
    m_ : float
        The fuzzifier used.
    scan_ : dict of str to ndarray of shape (n_candidates,)
        With `n_clusters_range`, of each number of clusters: ``n_clusters``, ``objective``, ``partition_coefficient``,
        ``modified_partition_coefficient``, ``partition_entropy``, ``xie_beni``, ``fuzzy_silhouette`` (NaN unless it is
        the criterion), ``fuzzy_hypervolume`` (NaN unless there are covariances) and ``n_iter``.
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        In the units of the data; for cosine and correlation, means of rows of unit length.
    covariances_ : ndarray of shape (n_clusters, n_features, n_features), float64
        With ``covariance_type="full"``: of each cluster, weighted by the memberships to the power of m.
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row's largest membership; of equal ones the first. -1 where that of noise is larger.
    memberships_ : ndarray of shape (n_samples, n_clusters) or zarr array
        Above 64 MiB they are computed when first asked for, in one pass over the data, to which the model keeps a
        reference; in a temporary zarr store where half of the free memory does not hold them.
    objective_ : float
        J at the final centres.
    objective_history_ : ndarray of shape (n_iter + 1,), float64
        J at the initial centres and after each iteration.
    n_iter_ : int
    stop_reason_ : {"tol", "max_iter"}
        If "max_iter", there was a `sklearn.exceptions.ConvergenceWarning`.
    partition_coefficient_, partition_entropy_, xie_beni_, fuzzy_silhouette_ : float
        Validity indices at the final centres, see ``mgclust.algorithms.fuzzy_c_means.validity``. Xie-Beni is infinite
        where centres coincide, and NaN for one cluster; the last is there where it is the criterion.
    fuzzy_hypervolume_ : float
        With ``covariance_type="full"``: sum over the clusters of sqrt(det F_j / det F_0), with the covariances F_j of
        the clusters and F_0 of all rows.
    computed_in_ : {"float32", "float64"}
        The type of rows, distances and memberships; see `dtype`.
    timings_, result_, n_features_in_
        As in `DensityPeaks`.

    References
    ----------
    J. C. Bezdek, Pattern Recognition with Fuzzy Objective Function Algorithms, Plenum, 1981.
    X. L. Xie, G. Beni, A validity measure for fuzzy clustering, IEEE Trans. Pattern Analysis and Machine Intelligence
    13:841-847, 1991.
    V. Schwämmle, O. N. Jensen, A simple and fast method to determine the parameters for fuzzy c-means cluster analysis,
    Bioinformatics 26:2841-2848, 2010.
    R. N. Davé, Characterization and detection of noise in clustering, Pattern Recognition Letters 12:657-664, 1991.
    D. E. Gustafson, W. C. Kessel, Fuzzy clustering with a fuzzy covariance matrix, IEEE Conf. Decision and Control,
    761-766, 1979.
    R. Babuška, P. J. van der Veen, U. Kaymak, Improved covariance estimation for Gustafson-Kessel clustering, IEEE
    Int. Conf. Fuzzy Systems, 1081-1085, 2002.
    I. Gath, A. B. Geva, Unsupervised optimal fuzzy clustering, IEEE Trans. Pattern Analysis and Machine Intelligence
    11:773-780, 1989.
    R. J. G. B. Campello, E. R. Hruschka, A fuzzy extension of the silhouette width criterion for cluster analysis,
    Fuzzy Sets and Systems 157:2858-2875, 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import FuzzyCMeans
    >>> X = np.array([[0.0], [0.2], [0.5], [0.8], [1.0]])
    >>> model = FuzzyCMeans(2, random_state=0).fit(X)
    >>> model.memberships_.max(axis=1).round(2).tolist()
    [0.97, 0.99, 0.5, 0.99, 0.97]
    """

    _memberships: Any  # of the rows that were fitted, once they are known

    presentation = FuzzyCMeansPresentation()

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return (WarmUp((3000, 8), {"n_clusters": 8}, seconds=4),)

    def predict(self, X: Any) -> np.ndarray:
        """Find each row's cluster: its nearest centre, of equally near ones the first.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset

        Returns
        -------
        ndarray of shape (n_samples,), int32
        """
        return self._memberships_of(self._open_rows(X)).labels()

    def transform(self, X: Any) -> np.ndarray:
        """Memberships of rows in the clusters found, as features of a pipeline; see `predict_memberships`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset

        Returns
        -------
        ndarray or data frame of shape (n_samples, n_clusters)
            What `set_output` asked for.
        """
        return self._memberships_of(self._open_rows(X)).array()

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus J of other rows at the centres found: the larger, the better the centres fit them.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            How much each row counts.

        Returns
        -------
        float
            It grows with `n_clusters`, as the inertia of k-means falls: for comparisons at the same number.
        """
        dataset = self._open_rows(X)
        weights = checked_weights(sample_weight, dataset)
        full = self._clusters.prototypes.factors is not None
        need = partial(estimate, models=1, c=self.n_clusters_, weighted=weights is not None, full=full)
        return -self._memberships_of(dataset).objective(weights, need)

    @property
    def _n_features_out(self) -> int:
        """Number of features of `transform`, for `get_feature_names_out`."""
        return self.n_clusters_

    def predict_memberships(self, X: Any, out: Any = None) -> Any:
        """Memberships (1) of rows in the clusters found, a block of rows at a time.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
        out : path, optional
            Of a zarr store to make and write into (by all workers of a cluster, which must see the path): for
            memberships that memory does not hold.

        Returns
        -------
        ndarray or zarr array of shape (n_samples, n_clusters)
            float32 or float64, as the distances; rows sum to 1.
        """
        memberships = self._memberships_of(self._open_rows(X))
        return memberships.array() if out is None else memberships.store(out)

    @property
    def memberships_(self) -> Any:
        """Memberships of the rows that were fitted."""
        check_is_fitted(self, "cluster_centers_")
        if self._memberships is None:
            self._memberships = self._memberships_of(self._dataset).somewhere()
        return self._memberships

    def _open_rows(self, X: Any) -> Dataset:
        check_is_fitted(self, "cluster_centers_")
        return self._open_more(X)

    def _memberships_of(self, dataset: Dataset) -> Memberships:
        return Memberships(self._clusters, dataset, self._place(), self._checked()["memory_limit"])

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        return run_spec(parameters, inputs, seed=self._seed(parameters["random_state"]))

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        value: FuzzyCMeansOutput = outcome.value
        fit = value.fit
        self._dataset, self.computed_in_, self.m_ = inputs.dataset, value.dtype, value.m
        self._clusters = Clusters(fit.prototypes, value.prepared, self.metric, self.m_, self.computed_in_, value.noise)
        self.cluster_centers_ = fit.centers + value.prepared.origin
        self.labels_, self.n_clusters_ = outcome.arrays["labels"], len(fit.centers)
        self._memberships = outcome.arrays.get("memberships")  # of small data
        self.objective_history_ = np.array(value.history)
        self.objective_, self.n_iter_, self.stop_reason_ = value.history[-1], fit.n_iter, fit.stop_reason
        found = value.candidates[value.chosen]
        self.partition_coefficient_, self.partition_entropy_ = found.partition_coefficient, found.partition_entropy
        self.xie_beni_ = found.xie_beni
        silhouette = {}
        if self.criterion == "fuzzy_silhouette":
            self.fuzzy_silhouette_ = found.fuzzy_silhouette
            silhouette = {"fuzzy_silhouette": found.fuzzy_silhouette}
        for name in ("covariances_", "fuzzy_hypervolume_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        covariances, hypervolume = {}, {}
        if fit.prototypes.factors is not None:
            self.covariances_, self.fuzzy_hypervolume_ = fit.prototypes.covariances, found.fuzzy_hypervolume
            covariances = {"covariances": self.covariances_}
            hypervolume = {"fuzzy_hypervolume": self.fuzzy_hypervolume_}
        noise = {} if value.noise is None else {"noise_share": float(value.sizes[0] / value.sizes.sum())}
        self.__dict__.pop("scan_", None)  # of an earlier fit
        scan: dict[str, np.ndarray] = {}
        if self.n_clusters_range is not None:
            self.scan_ = RangeCandidate.columns(value.candidates)
            scan = {f"scan_{name}": column for name, column in self.scan_.items()}
        return Result(
            labels=self.labels_,
            arrays={
                **scan,
                "cluster_centers": self.cluster_centers_,
                **covariances,
                "objective_history": self.objective_history_,
                "memberships": self._memberships_of(self._dataset).deferred()
                if self._memberships is None
                else self._memberships,
            },
            scores={
                "n_clusters": self.n_clusters_,
                "m": self.m_,
                "objective": self.objective_,
                "partition_coefficient": self.partition_coefficient_,
                "partition_entropy": self.partition_entropy_,
                "xie_beni": self.xie_beni_,
                **silhouette,
                **hypervolume,
                **noise,
                "n_iter": self.n_iter_,
            },
            diagnostics={
                "stop_reason": fit.stop_reason,
                "last_shift": fit.shift / value.scale if value.scale else 0.0,
                "last_change": fit.change,
                "objectives": value.objectives,
                "best_init": value.best,
                "computed_in": self.computed_in_,
            },
            warnings=[*problems_of(self, value, inputs)],
            **frame,
        )
