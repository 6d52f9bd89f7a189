"""Estimator of fuzzy c-means: its parameters and attributes, and the memberships of new rows.

The equations and the computation on the ranks are in `mgclust.algorithms.fuzzy_c_means.ranks`. `memberships` of this
folder computes the memberships of rows in given centres. `run_spec` describes a run to the ranks and rejects parameters
that do not fit the data. `result_warnings` has the warnings.
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

    The fit minimises the objective J, the sum of ``w u^m d^2`` over all rows and clusters. Here u is the membership of
    a row in a cluster, d the distance of the row from the centre, and w the weight of the row. The memberships of a row
    sum to 1.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_clusters_range : tuple of (int, int), optional
        Smallest and largest number of clusters, such as (2, 10). The fit computes a partition for each number, and
        `criterion` chooses one of them; see `scan_`. Replaces `n_clusters`.
    criterion : {"auto", "xie_beni", "modified_partition_coefficient", "fuzzy_silhouette", "fuzzy_hypervolume"}, \
default="auto"
        Validity index that chooses the number of clusters.

        - "xie_beni": lower is better. A range of numbers cannot use it with `noise_distance` or
          ``covariance_type="full"``.
        - "modified_partition_coefficient": higher is better.
        - "fuzzy_silhouette": higher is better. It needs the distances of all pairs of rows once. It is also computed
          for a single number of clusters. It is not available with ``covariance_type="full"``.
        - "fuzzy_hypervolume": lower is better. It needs ``covariance_type="full"``. A range of numbers cannot use it
          with `noise_distance`.
        - "auto": "modified_partition_coefficient" with ``covariance_type="full"`` or `noise_distance`, else "xie_beni".

        With `noise_distance`, "xie_beni" and "fuzzy_hypervolume" would choose too few clusters and treat the rows of
        the other clusters as noise.
    m : float or "auto", default="auto"
        Fuzzifier, above 1. Near 1, nearly every row belongs to one cluster, as in k-means. With a large m, all
        memberships are alike; in data with many features, 2 is already large. "auto" uses the rule of Schwämmle and
        Jensen (2010), but at most 2; see `m_`. The rule decreases with the number of features and rows, and exceeds 2
        only up to four or five features. With ``covariance_type="full"``, each entry of a centre and a covariance
        counts as a feature.
    covariance_type : {"spherical", "full"}, default="spherical"
        Shape of the clusters.

        - "spherical": all clusters use the same distance.
        - "full": each cluster has its own covariance and the distance that follows from it (Gustafson and Kessel 1979).
          Clusters may be long, flat and rotated, and all have the same volume. The fit is in float64, needs
          ``metric="euclidean"``, and an iteration takes about n_features times as long. Each cluster needs more rows
          than there are features, unless `shrinkage` is above 0.
    shrinkage : float, default=0.0
        Fraction of the covariance of all rows in the covariance of each cluster, from 0 to 1, with
        ``covariance_type="full"``. Use it for clusters of few rows. With 1, all clusters have the shape of the whole
        data set.
    init : {"k-means++", "random", "canopy", "random-memberships"}, array or path of a .npy, default="k-means++"
        Start of the iterations.

        - "k-means++": rows that are drawn far from each other (k-means|| above 65,536 rows).
        - "random": rows drawn at random.
        - "canopy": the centres of the n_clusters largest canopies.
        - "random-memberships": weighted means with random memberships, as in Bezdek (1981).
        - An array of shape (n_clusters, n_features): centres, in the units of `cluster_centers_`.
        - An array of shape (n_samples, n_clusters): memberships; each row must sum to 1.

        The first three start at rows. If m is above 2, one step with m = 2 follows, because a centre would otherwise
        hardly leave the row on which it lies.
    n_init : int, default=1
        Number of runs from different starts. They share each pass over the data, and the run with the lowest J is kept.
        More than one run needs a start that is drawn ("k-means++", "random" or "random-memberships").
    max_iter : int, default=300
        Largest number of iterations.
    tol : float, default=1e-4
        The run ends when the quantity that `stop` names changes by no more than this.
    stop : {"centers", "objective", "memberships"}, default="centers"
        Quantity that `tol` bounds.

        - "centers": the largest move of a centre, relative to the root mean square distance of the rows from their
          mean. With ``covariance_type="full"``, the root of the covariance counts together with the centre.
        - "objective": the change of J, relative to J.
        - "memberships": the largest change of a membership. An iteration then reads some of the rows twice more, and
          the last iterations read all rows twice more.
    noise_distance : float, optional
        Distance of a noise cluster from every row (Davé 1991), in the units of the data; with "cosine" and
        "correlation", relative to rows of unit length. The noise cluster takes most of the rows that are farther than
        this from all centres, so these rows hardly move the centres. Rows in the noise cluster get the label -1, and
        their memberships sum to less than 1. An iteration takes several times as long. Also use
        ``init="random", n_init=10``, because "k-means++" starts from distant rows.
    metric : {"euclidean", "cosine", "correlation"}, default="euclidean"
        Distance between rows and centres. "cosine" scales each row to unit length first. "correlation" subtracts each
        row's mean and then scales the row to unit length. Centres are means of the scaled rows.
    device, client, n_workers, workers, resources, retries, verbose
        See `DensityPeaks`.
    dtype : {"float32", "float64"}, default="float32"
        Type of rows, distances and memberships; sums over rows are float64. The computation is always in float64 for
        small data (up to 2^20 numbers), for m below 1.25 and for ``m log2(n_clusters)`` above 100; see `computed_in_`.
    memory_limit : int or str, optional
        Memory by which one rank may grow, in bytes or as text such as "4 GiB". Rows that do not fit are read again in
        every iteration.
    random_state : int, Generator or RandomState, optional
        Seed of the starts. None means 0, so a repeated fit gives the same result.

    Attributes
    ----------
    n_clusters_ : int
        Number of clusters.
    m_ : float
        Fuzzifier that was used.
    scan_ : dict of str to ndarray of shape (n_candidates,)
        With `n_clusters_range`, one entry per number of clusters: ``n_clusters``, ``objective``,
        ``partition_coefficient``, ``modified_partition_coefficient``, ``partition_entropy``, ``xie_beni``,
        ``fuzzy_silhouette`` (NaN unless it is the criterion), ``fuzzy_hypervolume`` (NaN unless clusters have
        covariances) and ``n_iter``.
    cluster_centers_ : ndarray of shape (n_clusters, n_features), float64
        Centres in the units of the data. With "cosine" and "correlation", means of rows of unit length.
    covariances_ : ndarray of shape (n_clusters, n_features, n_features), float64
        With ``covariance_type="full"``: covariance of each cluster; the weights are the memberships to the power of m.
    labels_ : ndarray of shape (n_samples,), int32
        Cluster with the row's largest membership; ties go to the first cluster. -1 if the row's membership in the noise
        cluster is larger.
    memberships_ : ndarray of shape (n_samples, n_clusters) or zarr array
        Membership of each row in each cluster, float32 or float64. Above 64 MiB, memberships are computed at the first
        access, in one pass over the data; the model keeps a reference to the data. If they exceed half of the free
        memory, they are in a temporary zarr store.
    objective_ : float
        J at the final centres.
    objective_history_ : ndarray of shape (n_iter + 1,), float64
        J at the initial centres and after each iteration.
    n_iter_ : int
        Number of iterations.
    stop_reason_ : {"tol", "max_iter"}
        Reason why the iterations ended. With "max_iter", the fit gave a `sklearn.exceptions.ConvergenceWarning`.
    partition_coefficient_, partition_entropy_, xie_beni_, fuzzy_silhouette_ : float
        Validity indices at the final centres; see ``mgclust.algorithms.fuzzy_c_means.validity``. Xie-Beni is infinite
        if centres coincide, and NaN for one cluster. `fuzzy_silhouette_` exists only if it is the criterion.
    fuzzy_hypervolume_ : float
        With ``covariance_type="full"``: the sum over the clusters of sqrt(det F_j / det F_0). F_j is the covariance of
        a cluster, and F_0 the covariance of all rows.
    computed_in_ : {"float32", "float64"}
        Type of rows, distances and memberships; see `dtype`.
    timings_, result_, n_features_in_
        See `DensityPeaks`.

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
    >>> model.predict_memberships([[0.5]]).round(2).tolist()
    [[0.5, 0.5]]
    """

    _memberships: Any  # memberships of the fitted rows; None until they are computed

    presentation = FuzzyCMeansPresentation()

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return (WarmUp((3000, 8), {"n_clusters": 8}, seconds=4),)

    def predict(self, X: Any) -> np.ndarray:
        """Label new rows by their largest membership, which is the membership in the cluster of the nearest centre.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            New rows.

        Returns
        -------
        ndarray or Dask array of shape (n_samples,), int32
            Labels as in `labels_`; ties go to the first cluster. -1 if the membership in the noise cluster is larger. A
            Dask array if X is one and the run uses the caller's client.

        Raises
        ------
        InputError
            X has another number of features than the fitted rows, or contains NaN.

        See Also
        --------
        predict_memberships : Returns all memberships of new rows.

        Examples
        --------
        >>> from mgclust import FuzzyCMeans
        >>> model = FuzzyCMeans(2, client=None).fit([[0.0], [0.2], [0.8], [1.0]])
        >>> bool(model.predict([[0.1]])[0] == model.labels_[0])
        True
        """
        return self._memberships_of(self._open_rows(X)).labels()

    def transform(self, X: Any) -> np.ndarray:
        """Return the memberships of new rows as features for a pipeline.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            New rows.

        Returns
        -------
        ndarray or data frame of shape (n_samples, n_clusters)
            Memberships, float32 or float64 (see `computed_in_`), in the container that `set_output` has set.

        Raises
        ------
        InputError
            X has another number of features than the fitted rows, or contains NaN.

        See Also
        --------
        predict_memberships : Returns the same memberships, or writes them to a zarr store.

        Examples
        --------
        >>> from mgclust import FuzzyCMeans
        >>> model = FuzzyCMeans(2, client=None).fit([[0.0], [0.2], [0.8], [1.0]])
        >>> model.transform([[0.5]]).round(2).tolist()
        [[0.5, 0.5]]
        """
        return self._memberships_of(self._open_rows(X)).array()

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the negative objective, -J, of rows at the fitted centres; higher values mean a better fit.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            Rows to score.
        y : ignored
            Exists for the interface of scikit-learn.
        sample_weight : array of shape (n_samples,), optional
            Weight of each row.

        Returns
        -------
        float
            The value of -J. It grows with `n_clusters`, just as the inertia of k-means falls, so compare only models
            with the same number of clusters.

        Raises
        ------
        InputError
            X has another number of features than the fitted rows, or contains NaN, or `sample_weight` does not fit X.

        Examples
        --------
        >>> from mgclust import FuzzyCMeans
        >>> model = FuzzyCMeans(2, client=None).fit([[0.0], [0.2], [0.8], [1.0]])
        >>> model.score([[0.1], [0.9]]) > model.score([[0.5], [2.0]])
        True
        """
        dataset = self._open_rows(X)
        weights = checked_weights(sample_weight, dataset)
        full = self._clusters.prototypes.factors is not None
        need = partial(estimate, models=1, c=self.n_clusters_, weighted=weights is not None, full=full)
        return -self._memberships_of(dataset).objective(weights, need)

    @property
    def _n_features_out(self) -> int:
        """Number of output features of `transform`, for `get_feature_names_out`."""
        return self.n_clusters_

    def predict_memberships(self, X: Any, out: Any = None) -> Any:
        """Return the memberships of new rows in the clusters, computed block by block.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            New rows.
        out : path, optional
            Path of a new zarr store for memberships that do not fit into memory. All workers of a cluster write into
            it, so they must all reach this path.

        Returns
        -------
        ndarray, Dask array or zarr array of shape (n_samples, n_clusters)
            Memberships, float32 or float64 (see `computed_in_`). Rows sum to 1; with `noise_distance`, to less than 1.
            A zarr array if `out` is given; else a Dask array if X is one and the run uses the caller's client.

        Raises
        ------
        InputError
            X does not fit the fitted rows, or `out` exists or cannot be created.
        InsufficientMemoryError
            The memberships exceed half of the free memory, and `out` is not given.

        Examples
        --------
        >>> from mgclust import FuzzyCMeans
        >>> model = FuzzyCMeans(2, client=None).fit([[0.0], [0.2], [0.8], [1.0]])
        >>> model.predict_memberships([[0.5]]).round(2).tolist()
        [[0.5, 0.5]]
        """
        memberships = self._memberships_of(self._open_rows(X))
        return memberships.array() if out is None else memberships.store(out)

    @property
    def memberships_(self) -> Any:
        """Memberships of the fitted rows, shape (n_samples, n_clusters); above 64 MiB, computed at the first access."""
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
        self._memberships = outcome.arrays.get("memberships")  # None unless they are small; see `Memberships.are_small`
        self.objective_history_ = np.array(value.history)
        self.objective_, self.n_iter_, self.stop_reason_ = value.history[-1], fit.n_iter, fit.stop_reason
        found = value.candidates[value.chosen]
        self.partition_coefficient_, self.partition_entropy_ = found.partition_coefficient, found.partition_entropy
        self.xie_beni_ = found.xie_beni
        silhouette = {}
        if self.criterion == "fuzzy_silhouette":
            self.fuzzy_silhouette_ = found.fuzzy_silhouette
            silhouette = {"fuzzy_silhouette": found.fuzzy_silhouette}
        for name in ("covariances_", "fuzzy_hypervolume_"):  # an earlier fit may have set them
            self.__dict__.pop(name, None)
        covariances, hypervolume = {}, {}
        if fit.prototypes.factors is not None:
            self.covariances_, self.fuzzy_hypervolume_ = fit.prototypes.covariances, found.fuzzy_hypervolume
            covariances = {"covariances": self.covariances_}
            hypervolume = {"fuzzy_hypervolume": self.fuzzy_hypervolume_}
        noise = {} if value.noise is None else {"noise_share": float(value.sizes[0] / value.sizes.sum())}
        self.__dict__.pop("scan_", None)  # an earlier fit may have set it
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
