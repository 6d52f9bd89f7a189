"""The estimator `DensityPeaks`: parameters, fitted attributes, `select_centers` and `predict`.

The equations and the computation on the ranks are described in `mgclust.algorithms.density_peaks.ranks`, and the choice
of centres in `mgclust.algorithms.density_peaks.decision_graph`. Other modules of this folder: `run_spec` describes a
run to the ranks, `findings` makes the content of a result, and `result_warnings` its warnings.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from mgclust.algorithms.base import Inputs, Progress, WarmUp
from mgclust.algorithms.common.pair_matrix import check_square
from mgclust.algorithms.common.weights import WeightedClusterer
from mgclust.algorithms.density_peaks.clusters import choose_again, other_clusters
from mgclust.algorithms.density_peaks.cutoff_distance.separation import FullPeaks
from mgclust.algorithms.density_peaks.decision_graph import gamma_drop
from mgclust.algorithms.density_peaks.findings import attributes_of, findings
from mgclust.algorithms.density_peaks.memory import estimate_choice
from mgclust.algorithms.density_peaks.options import DensityPeaksOptions
from mgclust.algorithms.density_peaks.prediction import estimate_prediction, predict_labels
from mgclust.algorithms.density_peaks.presentation import DensityPeaksPresentation
from mgclust.algorithms.density_peaks.ranks import DensityPeaksOutput
from mgclust.algorithms.density_peaks.result_warnings import RowCounts
from mgclust.algorithms.density_peaks.run_spec import arguments_by_row, list_length, run_spec, unequal
from mgclust.algorithms.density_peaks.stability import with_stability
from mgclust.base.dask_arrays import is_dask, reject_lost, unannotated
from mgclust.base.errors import InputError
from mgclust.data import Dataset, open_dataset
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.dask.cluster import connect
from mgclust.engine.spmd import Outcome, RunSpec, run
from mgclust.params import check_parameters
from mgclust.results.result import Result

__all__ = ["DensityPeaks"]


def _has_rows(model: DensityPeaks) -> bool:
    """Reject precomputed distances, which do not include distances to new rows."""
    if model.metric == "precomputed":
        raise AttributeError("metric='precomputed': predict needs rows, not distances; fit the rows themselves.")
    return True


class DensityPeaks(DensityPeaksOptions, WeightedClusterer):
    """Density peaks clustering of Rodriguez and Laio (2014), exact, on one or many CPUs or GPUs.

    Each row has a density rho, and a distance delta to the nearest denser row. Centres are rows for which both are
    large. Every other row joins the cluster of its nearest denser row.

    Parameters
    ----------
    n_clusters : int, optional
        Number of clusters: the rows with the largest ``rho * delta`` become centres. If `n_clusters`, `rho_min` and
        `delta_min` are all left out, the fit finds the number by the largest drop of ``log(rho * delta)``, or in the
        ways that `dc_fraction` and `assignment` describe.
    dc : float, optional
        Cut-off distance, in the units of the metric. By default it is found from `dc_fraction`.
    dc_fraction : float or "auto", default="auto"
        Fraction of the pairs i < j of rows that lie within dc, at most 1; 0.01 to 0.02 is customary. dc is the
        ``round(dc_fraction * n (n - 1) / 2)``-th smallest distance. If this distance is 0 because many rows are equal,
        dc is the smallest positive distance or, with "auto", the same quantile of only the pairs whose rows differ.

        "auto" chooses 0.02, 0.01, 0.005, 0.002 or 0.001. It computes the decision graph of a sample at each of these
        fractions. The sample is a third of the distinct rows, at least 3072 and at most 16384 (8192 with precomputed
        distances). Each number k of clusters is rated by the drop of ``rho * delta`` after k centres: the rating is the
        geometric mean of the drops at two neighbouring fractions, whichever two give the largest mean. The number with
        the best rating decides the fraction. 0.02 is kept unless this rating is at least 2, and a third larger than
        the rating of the number found at 0.02.

        "auto" means 0.02 if `n_clusters`, `rho_min` or `delta_min` is given, and for any other `density` than
        "gaussian".
    assignment : {"auto", "denser", "separated"}, default="auto"
        Rule by which rows join clusters.

        "denser": each row joins the cluster of its nearest denser row (Rodriguez and Laio).

        "separated": clusters are the peaks of the density that exceed their saddles most. A minor peak joins the peak
        on the other side of its saddle (ToMATo, Chazal et al. 2013). Peaks and saddles are found in a graph that joins
        the rows of a sample to their nearest rows. "separated" needs ``density="gaussian"``. It can be combined with
        `n_clusters`, weights and precomputed distances.

        "auto": "separated" if low density separates clusters, and either no number of clusters stands out by
        ``rho * delta``, or the number of separated clusters is different and at least twice as clear as all others.
        Otherwise "denser". It is always "denser" if other parameters choose the number of clusters.
    dc_method : {"exact", "sample"}, default="exact"
        "exact": find dc from all pairs of rows. "sample": find dc from the distances among at most 32768 rows (fewer if
        they have many features), or from `sample_size` random pairs; `dc_error_` is the error of dc.
    sample_size : int, optional
        With ``dc_method="sample"``: the number of random pairs from which dc is found, at least 100. The time does not
        grow with the number of rows. The error falls with the square root of the number of pairs.
    density : {"gaussian", "cutoff", "knn"}, default="gaussian"
        Definition of rho, the density of a row.

        "gaussian": the sum of ``exp(-(d / dc)^2)`` over all other rows, where d is their distance.

        "cutoff": the number of other rows with ``d < dc``.

        "knn": the reciprocal of the distance to the `k`-th nearest row, which needs no dc. Rows that are equal to `k`
        other rows get twice the largest rho of the rest.

        With ``fit(X, sample_weight=w)``, "gaussian" and "cutoff" multiply the term of each row j by ``w[j]``. All rows
        at distance 0, including the row itself, together contribute the sum of their weights minus 1, but at least 0.
        For dc, a pair of rows counts as the product of its two weights, and a row of weight w also counts as
        ``w (w - 1) / 2`` pairs with itself. So integer weights give the same result as repeated rows. Rows of weight 0
        also get a rho, and the label that `predict` would give them. "knn" takes no weights.
    k : int or "adaptive", default=16
        Number of nearest rows that define the density, only for ``density="knn"``; less than n_samples.

        "adaptive" chooses a number from 3 to 100 for each row: the nearest rows that have the same density according to
        a likelihood ratio test (k* of Rodriguez et al. 2018). The density is then a maximum likelihood estimate from
        the distances to these rows. The estimate allows the density to grow or fall by a constant factor from one
        neighbour to the next (PAk). Results: `k_`, `log_density_`, `log_density_error_`, `intrinsic_dim_`. It needs at
        least 5 rows.
    significance : float, optional
        For ``density="knn"``: find the number of clusters by a test instead of the largest drop. Two clusters merge if
        the peak of one exceeds the saddle between them by less than this number, in units of the sum of the standard
        errors of peak and saddle (d'Errico et al. 2021, who recommend 1.65 with ``k="adaptive"``). A larger value
        leaves fewer clusters, possibly one. It cannot be combined with `n_clusters`, `rho_min` or `delta_min`.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "correlation", "precomputed"}, default="euclidean"
        Distance between rows. "precomputed": X is the matrix of distances, of shape (n_samples, n_samples),
        non-negative, symmetric, and 0 on the diagonal. Each rank reads its own rows of a file. dc is always exact with
        "precomputed" and with weights.
    rho_min, delta_min : float, optional
        Centres are the rows whose rho and delta exceed these limits (a rectangle of the decision graph). With
        `n_clusters`, at most `n_clusters` of these rows become centres.
    halo : bool, default=False
        Also find the halo of each cluster, the rows that may be noise. This takes one more pass over the pairs. With
        `significance`, the halo consists of the rows that are less dense than the densest saddle of their cluster, and
        needs no additional pass.
    stability : int, default=0
        Number of random halves of the rows that are clustered with the same parameters, and whose labels are compared
        with `labels_`; see `stability_`. 20 halves take about five times as long as the fit.
    algorithm : {"auto", "brute", "grid"}, default="auto"
        "brute": pass over all pairs. "grid": trees and grids, in near-linear time, in one to three dimensions. With
        "grid", dc and the densities of "cutoff" are bitwise identical to "brute", and so is delta for the same
        densities. The Gaussian rho has the relative error in ``exactness_``, which can change the order of rows of
        nearly equal density. "auto": "grid" from 10,000 rows on, if there are at most three features and the metric is
        not "manhattan" or "precomputed"; else "brute".
    device : {"auto", "cpu", "cuda"}, default="auto"
        "auto": GPUs if there are any, else CPUs.
    client : {"auto", "local"}, None, address, distributed.Client or cluster object, default="auto"
        Where to run. "auto": the active Dask client if there is one, else this process. "local": a new cluster on all
        GPUs of this machine (or its cores, with ``device="cpu"``). None: this process. An address, a client or a
        cluster object: that cluster. ``sklearn.base.clone`` keeps a client; ``pickle`` keeps the address of its
        scheduler.
    n_workers : int, optional
        Number of a cluster's workers to use; the others stay free for other runs. With ``client="local"``: number of
        workers to start. By default, a run uses the connected workers that are free. The results do not depend on the
        number of workers.
    workers : str, int or sequence of these, optional
        Addresses, names or hosts of the workers of a running cluster that a run may use, as in ``Client.submit``. By
        default, a run may use all workers that have this version of mgclust and, for runs on GPUs, a GPU.
    resources : dict of str to float, optional
        Dask resources that each rank reserves while it runs, such as ``{"GPU": 1}``. A run uses only workers that
        offer them (``dask worker --resources``).
    retries : int, default=1
        How often a run that lost a worker is tried again, on the remaining or replaced workers, with the same result
        and a warning. The run resumes from its last checkpoint if the checkpoint is on disk or takes at most 64 MiB;
        otherwise, it starts again. The default is 1 for density peaks, fuzzy c-means and canopies, and 0 for other
        methods.
    dtype : {"float32", "float64"}, default="float32"
        Number type of the distances.
    memory_limit : int or str, optional
        Memory by which one rank may grow, in bytes or as text such as "4 GiB". Rows that do not fit are streamed.
    random_state : int, Generator or RandomState, optional
        Seed of the halves of `stability`, and of the samples that choose `dc_fraction` and bracket dc. The samples that
        bracket dc change its value only with ``dc_method="sample"``. None means 0, so a repeated fit gives the same
        result.
    verbose : bool, default=False
        Print the progress.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row. Clusters are numbered by decreasing ``rho * delta`` of their centre.
    cluster_centers_indices_ : ndarray of shape (n_clusters,), int64
        Row of each centre, in label order.
    n_clusters_ : int
        Number of clusters.
    dc_ : float or None
        Cut-off distance. With ``density="knn"`` it is None unless it was given, or the halo needed it.
    dc_error_ : float
        Distance from a sampled `dc_` to the farther end of its 95% confidence interval; 0 if dc was not sampled.
    dc_fraction_ : float or None
        Fraction of the pairs that was used to find dc; None if dc was not found from a fraction.
    dc_choice_ : dict or None
        How ``dc_fraction="auto"`` chose the fraction. Keys:

        - "dc_fraction": the chosen fraction;
        - "rows": number of rows in the sample;
        - "different": whether the fractions count only pairs whose rows differ, because too many pairs are equal;
        - "tried": a dict for each fraction, with "dc_fraction", its "dc", the "n_clusters" that stands out, and the
          "drop" of ``rho * delta`` after this number of centres;
        - "numbers": a dict for each of the best numbers of clusters, with "n_clusters", the geometric mean of its
          "drop" at two neighbouring fractions, and the "dc_fraction" with the largest drop;
        - "separated": None if low density did not separate the clusters. Otherwise a dict: "n_clusters" is the number
          of clusters in the sample, "dc_fraction" is the fraction, and "ratio" is the prominence of the last cluster
          divided by the prominence of the next peak.

        "tried" and "numbers" are empty if few rows, or many equal rows, leave only 0.02 as a possible fraction.
    assignment_ : {"denser", "separated"}
        How rows joined clusters. A fit with this `assignment`, ``n_clusters=n_clusters_`` and ``dc=dc_`` gives the
        same labels again.
    rho_ : ndarray of shape (n_samples,), float64
        Density of each row; the row itself does not count.
    delta_ : ndarray of shape (n_samples,), float64
        Distance of each row to its nearest denser row; for the densest row, the distance to the farthest row.
    nearest_higher_ : ndarray of shape (n_samples,), int64
        Nearest denser row of each row; -1 for the densest row.
    k_ : ndarray of shape (n_samples,), int32, or None
        Number of rows in each neighbourhood. None unless ``k="adaptive"`` or `significance` is given.
    log_density_, log_density_error_ : ndarray of shape (n_samples,), float64, or None
        Logarithm of the density, and the standard error of this logarithm. The density is the number of rows per unit
        of volume, divided by n_samples. None unless ``k="adaptive"`` or `significance` is given. With a metric other
        than "euclidean", the volume of a Euclidean ball of the same radius is used. Up to a constant factor, `rho_` is
        the `intrinsic_dim_`-th root of ``exp(log_density_ - log_density_error_)``. For an integer `k`, the error is the
        same for all rows, and `rho_` does not include it.
    intrinsic_dim_ : float or None
        Intrinsic dimension of the rows, from the distances to their two nearest rows (TwoNN), at most n_features; None
        if the densities do not need it.
    significance_ : ndarray of shape (n_clusters,), float64, or None
        For each cluster, the smallest height of its peak over one of its saddles: the difference between the
        `log_density_` of peak and saddle, divided by the sum of their standard errors. Infinite if the cluster has no
        saddle.
    saddles_ : ndarray of shape (n_saddles, 3), int64, or None
        Saddles between clusters: the labels of two clusters that touch, and the row at the densest place between them.
    stability_ : dict or None
        Results of the random halves: "ari", the adjusted Rand indices between the labels of each half and the same
        rows of `labels_`; their "mean" and "std"; and "n_clusters", the number of clusters in each half.
    halo_ : ndarray of shape (n_samples,), bool
        Whether the row is in the halo of its cluster; all False without ``halo=True``.
    exactness_ : dict
        How the values were computed: the algorithm, the passes for dc, and the number of rows whose rho was recomputed
        by the direct sum. With weights, rho is summed over all pairs whatever `algorithm` is, and the key "rho" states
        this.
    timings_ : dict of str to float
        Seconds per stage.
    result_ : Result
        All findings, to save or plot.
    n_features_in_ : int
        Number of features of the fitted rows.

    See Also
    --------
    mgclust.load_result : Load a saved result, for `from_result`.
    mgclust.plots.decision_graph : Draw the decision graph of a result.
    mgclust.FuzzyCMeans : Memberships of rows in round or elliptical clusters.

    References
    ----------
    A. Rodriguez, A. Laio, Clustering by fast search and find of density peaks, Science 344:1492-1496, 2014.
    K. Ge, H. Su, D. Li, X. Lu, Efficient parallel implementation of a density peaks clustering algorithm on graphics
    processing unit, Frontiers of Information Technology & Electronic Engineering 18:915-927, 2017.
    M. d'Errico, E. Facco, A. Laio, A. Rodriguez, Automatic topography of high-dimensional data sets by non-parametric
    density peak clustering, Information Sciences 560:476-492, 2021.
    F. Chazal, L. J. Guibas, S. Y. Oudot, P. Skraba, Persistence-based clustering in Riemannian manifolds, Journal of
    the ACM 60:41, 2013.
    A. Rodriguez, M. d'Errico, E. Facco, A. Laio, Computing the free energy without collective variables, Journal of
    Chemical Theory and Computation 14:1206-1215, 2018.
    E. Facco, M. d'Errico, A. Rodriguez, A. Laio, Estimating the intrinsic dimension of datasets by a minimal
    neighborhood information, Scientific Reports 7:12140, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import DensityPeaks
    >>> X = np.array([[0.0, 0], [0, 1], [1, 0], [9, 9], [9, 8], [8, 9]])
    >>> DensityPeaks(n_clusters=2, dc=1.5).fit(X).labels_.tolist()
    [0, 0, 0, 1, 1, 1]
    """

    presentation = DensityPeaksPresentation()
    stability_: dict[str, Any] | None
    dc_choice_: dict[str, Any] | None
    significance_: np.ndarray | None
    saddles_: np.ndarray | None
    _counts: RowCounts
    _separation: FullPeaks | None

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return tuple(WarmUp(shape, {"halo": True}, seconds=3) for shape in ((12_000, 2), (8000, 20)))

    @classmethod
    def from_result(cls, result: Result) -> DensityPeaks:
        """Make a fitted estimator from a result, for example to choose other centres of a saved result.

        The estimator has the parameters and fitted attributes of the run. It has no rows, so `predict` raises
        InputError.

        Parameters
        ----------
        result : Result
            Result of `DensityPeaks`, for example from `mgclust.load_result`.

        Returns
        -------
        DensityPeaks
            The fitted estimator.

        Raises
        ------
        InputError
            If another method made the result.

        See Also
        --------
        mgclust.load_result : Load a saved result.

        Examples
        --------
        >>> from mgclust import DensityPeaks
        >>> fitted = DensityPeaks(2, client=None).fit([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
        >>> DensityPeaks.from_result(fitted.result_).select_centers(1).n_clusters_
        1
        """
        if result.method != cls.method or result.labels is None:
            raise InputError(
                f"method={result.method!r}: only a result of {cls.method} has a decision graph; give such a result."
            )
        names = cls().get_params()
        model = cls(**{name: value for name, value in result.parameters.items() if name in names})
        for name, value in attributes_of(result).items():
            setattr(model, name, value)
        model._counts = RowCounts.of(model.rho_, model.delta_)
        return model

    @unannotated
    def select_centers(
        self,
        n_clusters: int | None = None,
        *,
        rho_min: float | None = None,
        delta_min: float | None = None,
        rho_max: float | None = None,
        delta_max: float | None = None,
        indices: Any = None,
    ) -> DensityPeaks:
        """Choose other centres and relabel the rows, without another pass over the data.

        Rows join clusters in the way that `assignment_` names. If `assignment_` is "separated", `n_clusters` selects
        this number of peaks, the most prominent first. Limits and `indices` select rows, and each of these rows selects
        the peak to which its chain of denser rows leads.

        Parameters
        ----------
        n_clusters, rho_min, delta_min
            See the parameters of the class.
        rho_max, delta_max : float, optional
            Upper limits: centres have at most this rho and this delta. The densest row must be within both.
        indices : sequence of int, optional
            Row numbers of the centres, instead of all other parameters. They must include the densest row.

        Returns
        -------
        self
            With new `labels_`, `cluster_centers_indices_`, `n_clusters_` and `result_`. `halo_` becomes all False,
            because a new halo would need another pass. `significance_`, `saddles_` and `stability_` become None.

        Raises
        ------
        InputError
            If no row exceeds the limits, the densest row is not among the centres, or `indices` is combined with other
            parameters.

        Examples
        --------
        >>> from mgclust import DensityPeaks
        >>> model = DensityPeaks(2, client=None).fit([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
        >>> model.select_centers(delta_min=1.0).n_clusters_
        2
        """
        check_is_fitted(self, "rho_")
        wanted: dict[str, Any] = {"n_clusters": n_clusters, "rho_min": rho_min, "delta_min": delta_min}
        upper: dict[str, Any] = {"rho_max": rho_max, "delta_max": delta_max}
        checked = check_parameters(self.center_parameters, wanted | upper | {"indices": indices})
        if indices is not None and any(value is not None for value in (wanted | upper).values()):
            raise InputError("indices cannot be combined with n_clusters or limits; leave out indices, or all others.")
        if is_dask(self.rho_):
            centers, drop, labels = self._choose_on_workers(checked)
        else:
            centers, labels = other_clusters(self.rho_, self.delta_, self.nearest_higher_, self._separation, checked)
            drop = gamma_drop(np, self.rho_, self.delta_, centers)
        self._relabel(centers, labels, None)
        self._counts = self._counts._replace(mixed=0, lost=(0, 0))
        chosen_by: dict[str, Any] = {name: limit for name, limit in upper.items() if limit is not None}
        if indices is not None:
            chosen_by["indices"] = centers.tolist()
        parameters = {
            **self.result_.parameters,
            **wanted,
            **chosen_by,
            "halo": False,
            "significance": None,
            "stability": 0,
        }
        self.stability_ = None
        self.result_ = replace(
            self.result_,
            parameters=parameters,
            **findings(self, drop, {**wanted, **chosen_by}, counts=self._counts, peaks=None, halo=False),
        )
        return self

    def _choose_on_workers(self, wanted: dict[str, Any]) -> tuple[np.ndarray, float, Any]:
        """Choose centres; return them, their gamma drop, and labels, which stay on the workers as after the fit."""
        found = {"rho": self.rho_, "delta": self.delta_, "nearest_higher": self.nearest_higher_}
        spec = RunSpec(
            choose_again,
            {**found, "separation": self._separation, "wanted": wanted},
            estimate_choice,
            "float64",
            resident=False,
        )
        densities = open_dataset(self.rho_[:, None])
        with connect(**self._place(), optional=True) as cluster:
            outcome = run(spec, densities, cluster)
        return *outcome.value, outcome.arrays["labels"]

    @available_if(_has_rows)
    def predict(self, X: Any) -> np.ndarray:
        """Label new rows: each takes the label of its nearest denser fitted row, or of a centre if that is nearer.

        The density of a new row is computed as if this row had been added to the fitted rows, whose densities stay
        unchanged. A row that is equal to a fitted row takes that row's label. If `assignment_` is "separated", each
        row takes the label of its nearest fitted row.

        `predict` reads the fitted rows again, and the estimator keeps no copy of an array: do not change the array
        between `fit` and `predict`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            The new rows. Each rank labels a part of them. Rows of a Dask array are sent to the ranks by the workers
            that hold them.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            Cluster of each row; a Dask array if X is one and the run is on a Dask cluster.

        Raises
        ------
        InputError
            If X has another number of features, the fitted array was changed, or the estimator was made from a result.
        AttributeError
            If ``metric="precomputed"``, because the fitted matrix does not contain the rows.

        Examples
        --------
        >>> from mgclust import DensityPeaks
        >>> model = DensityPeaks(2, client=None).fit([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
        >>> model.predict([[0.3], [5.3]]).tolist()
        [0, 1]
        """
        check_is_fitted(self, "rho_")
        if "_dataset" not in vars(self):
            raise InputError("predict needs the fitted rows, which a saved result does not hold; fit them again.")
        dataset, parameters = self._open_more(X), self._checked()
        reject_lost(self.rho_)
        density, rows = parameters["density"], dataset.shape[0]
        adaptive = parameters["k"] == "adaptive"
        k = list_length(parameters["k"], len(self.rho_)) * (density == "knn")
        arguments = {"metric": parameters["metric"], "density": density, "k": k, "dc": self.dc_ or 1.0}
        arguments |= {
            "dim": self.intrinsic_dim_ if adaptive else None,
            "fitted_k": self.k_ if adaptive else None,
            "rho": self.rho_,
            "labels": self.labels_,
            "centers": self.cluster_centers_indices_,
            "separated": self.assignment_ == "separated",
        }
        need = partial(estimate_prediction, rows=rows, k=k, weighted=self._weights is not None, adaptive=adaptive)
        spec = RunSpec(
            predict_labels,
            arguments,
            need,
            parameters["dtype"],
            memory_limit=parameters["memory_limit"],
            metric=parameters["metric"],
            row_arguments=arguments_by_row(self._weights),
        )
        kept = self._kept_data()
        with connect(**self._place(), optional=True) as cluster:
            return run(spec, kept, cluster, beside=dataset).arrays["labels"]

    @unannotated
    def _run(self, inputs: Inputs, on_progress: Progress | None, checkpoint: CheckpointConfig | None) -> Result:
        self.stability_ = None
        result = super()._run(inputs, on_progress, checkpoint)
        return with_stability(self, inputs, result, on_progress) if self.stability else result

    def _relabel(self, centers: np.ndarray, labels: Any, halo: Any) -> None:
        self.cluster_centers_indices_ = centers
        self.n_clusters_ = len(centers)
        self.labels_ = labels
        self.halo_ = labels < 0 if halo is None else halo  # all False, in an array of the same kind as labels
        self.significance_ = self.saddles_ = None

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        return run_spec(parameters, inputs, seed=self._seed(parameters["random_state"]))

    def _check_shape(self, dataset: Dataset) -> None:
        if self.metric == "precomputed":
            check_square(dataset, "metric", "distances")
        super()._check_shape(dataset)

    def __sklearn_tags__(self) -> Any:
        """Declare that X may be a matrix of distances."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = tags.input_tags.positive_only = self.metric == "precomputed"
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        value: DensityPeaksOutput = outcome.value
        found = outcome.arrays
        self.rho_, self.delta_, self.nearest_higher_ = found["rho"], found["delta"], found["nearest_higher"]
        self.dc_, self.dc_error_ = value.dc, value.dc_error
        self.dc_fraction_, self.dc_choice_ = value.dc_fraction, value.choice
        self.assignment_, self._separation = "denser" if value.separation is None else "separated", value.separation
        self.exactness_ = value.exactness
        self._keep_data(inputs.dataset)
        self._weights = unequal(inputs.weights)
        self._relabel(value.centers, found["labels"], found.get("halo"))
        self.intrinsic_dim_ = None
        if value.intrinsic_dim is not None:
            self.intrinsic_dim_, self.exactness_["intrinsic_dim_rows"] = value.intrinsic_dim
        self.k_, self.log_density_ = found.get("k"), found.get("log_density")
        self.log_density_error_ = found.get("log_density_error")
        peaks = value.peaks
        if peaks is not None:
            self.significance_, self.saddles_ = peaks.heights, peaks.saddles
        self._counts = RowCounts(
            value.different_rows,
            value.lone_rows,
            weighted=self._weights is not None,
            mixed=value.mixed,
            lost=value.lost,
        )
        of_fit = findings(self, value.gamma_drop, frame["parameters"], counts=self._counts, peaks=peaks, halo=self.halo)
        return Result(**of_fit, **frame)
