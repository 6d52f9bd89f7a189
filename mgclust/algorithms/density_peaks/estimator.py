"""Density peaks as an estimator: its parameters and attributes, other centres for a fit, and clusters of new rows.

The equations and what the ranks compute are in `mgclust.algorithms.density_peaks.ranks`, how centres are chosen in
`mgclust.algorithms.density_peaks.decision_graph`. `run_spec` of this folder describes a run to the ranks, `findings`
lists what a result holds of a fit, `result_warnings` its warnings.
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
    """Given distances say nothing of other rows."""
    if model.metric == "precomputed":
        raise AttributeError("predict needs rows, which metric='precomputed' has not seen; fit the rows themselves.")
    return True


class DensityPeaks(DensityPeaksOptions, WeightedClusterer):
    """Density peaks clustering of Rodriguez and Laio (2014), exact, on one or many CPUs or GPUs.

    Parameters
    ----------
    n_clusters : int, optional
        Number of clusters: the rows with the largest ``rho * delta`` become centres. Without it, and without
        `rho_min` and `delta_min`, the number is found by `automatic_count`: the largest drop of
        ``log(rho * delta)``, or by `dc_fraction`.
    dc : float, optional
        Cut-off distance, in the units of the metric. Found from `dc_fraction` if left out.
    dc_fraction : float or "auto", default="auto"
        Share of the pairs i < j that lie within dc; 0.01 to 0.02 is customary. dc is the
        ``round(dc_fraction * n (n - 1) / 2)``-th smallest distance; where that is 0, since so many rows are equal,
        the smallest positive one, or with "auto" the one below which the share lies of the pairs that differ.

        "auto" chooses 0.02, 0.01, 0.005, 0.002 or 0.001: the one at which, and beside which, a number of clusters
        stands out best in the decision graph of a third of the rows (3072 to 16384), and 0.02 unless its drop is at
        least 2 and a third more than that of the number that 0.02 finds. It is 0.02 with `n_clusters`, `rho_min` or
        `delta_min` given, and with another `density` than "gaussian".
    assignment : {"auto", "denser", "separated"}, default="auto"
        Which cluster a row joins. "denser": the cluster of its nearest denser row (Rodriguez and Laio). "separated":
        clusters are the peaks of the density that exceed their saddles most, and a minor peak joins the peak on the
        other side of its saddle (ToMATo, Chazal et al. 2013), in the graph of the nearest rows of a sample. "auto"
        takes "separated" if no number of clusters stands out by ``rho * delta`` and low density separates some, or if
        it separates more and twice as clearly. It takes "denser" if other parameters choose the number of clusters.
        "separated" goes with `n_clusters`, weights and precomputed distances, and needs ``density="gaussian"``.
    dc_method : {"exact", "sample"}, default="exact"
        "sample" takes dc from the distances among at most 32768 rows (fewer of many features), or from those of
        `sample_size` random pairs, and reports its error as `dc_error_`.
    sample_size : int, optional
        With ``dc_method="sample"``: take dc from so many random pairs, at least 100. Its time does not grow with the
        number of rows, and its error falls with the root of the number of pairs.
    density : {"gaussian", "cutoff", "knn"}, default="gaussian"
        What rho is: the sum of ``exp(-(d / dc)^2)`` over all other rows, the number of those with ``d < dc``, or one
        over the distance to the `k`-th nearest row, which needs no dc. Rows with `k` rows equal to them get twice the
        largest rho of the others.

        With ``fit(X, sample_weight=w)`` these are sums over all rows j of ``w[j]`` times that, less a unit of weight
        for the row itself: the weights of the rows at distance 0, its own among them, count as their sum less 1, and
        not below 0. dc counts a pair of rows as often as the product of their weights, and a row of weight w makes
        ``w (w - 1) / 2`` pairs with itself. So whole weights give the same result as repeated rows. Rows of weight 0
        also have a rho, and the label that `predict` would give them. Not with "knn".
    k : int or "adaptive", default=16
        For ``density="knn"``; less than n_samples. With "adaptive" each row has as many nearest rows as share its
        density, by a likelihood ratio test, 3 to 100 (k* of Rodriguez et al.), and its density is that which the
        distances to all of them make likely where it may grow or fall from one to the next (PAk): `k_`,
        `log_density_`, `log_density_error_`, `intrinsic_dim_`.
    significance : float, optional
        For ``density="knn"``: find the number of clusters by a test, in place of the largest drop. Clusters whose peak
        exceeds the saddle to a neighbour by less than so many of their errors merge, as in d'Errico et al., who
        recommend 1.65 with ``k="adaptive"``. A larger number leaves fewer clusters; one is possible. Goes with none of
        `n_clusters`, `rho_min`, `delta_min`.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "correlation", "precomputed"}, default="euclidean"
        With "precomputed" the rows are the distances, shape (n_samples, n_samples): not negative, 0 on the diagonal,
        symmetric. From a file each rank reads its own rows. dc is then always exact, as it is with weights.
    rho_min, delta_min : float, optional
        Centres are the rows above both (the rectangle of the decision graph); at most `n_clusters` if that is given.
    halo : bool, default=False
        Also find each cluster's halo, the rows that may be noise, with one more pass; with `significance` the rows that
        are less dense than the densest saddle of their cluster, without another pass.
    stability : int, default=0
        Draws of half the rows, each clustered with the same parameters, whose labels are compared with those of all
        rows: `stability_`. 20 draws take about five times as long as the fit.
    algorithm : {"auto", "brute", "grid"}, default="auto"
        "brute" passes over all pairs. "grid" takes near-linear time in one to three dimensions: dc, cutoff densities,
        and delta for the densities found are the same bit for bit; the Gaussian rho has the relative error in
        ``exactness_``, which may order rows of nearly equal density differently. "auto" takes it for
        Euclidean data that it pays for.
    device : {"auto", "cpu", "cuda"}, default="auto"
    client : {"auto", "local"}, None, address, distributed.Client or cluster object, default="auto"
        Where to run: the active Dask client or else this process; this process; all GPUs of this machine; the given
        cluster. ``sklearn.base.clone`` keeps a client, ``pickle`` the address of its scheduler.
    n_workers : int, optional
        Take so many of a cluster's workers, and leave the others to other runs; of ``client="local"``, start so many.
        By default a run takes those that are there, as far as they are free. Results do not depend on it.
    workers : str, int or sequence of these, optional
        Addresses, names or hosts of the workers of a running cluster that a run may have, as ``Client.submit`` takes
        them. By default all workers that have this version of mgclust, and a GPU if the run is on GPUs.
    resources : dict of str to float, optional
        Resources of Dask that each rank takes for as long as it runs, such as ``{"GPU": 1}``. A run may have only
        workers that offer them (``dask worker --resources``).
    retries : int, default=1
        So often a run that has lost a worker is tried again on those that are left or replace it, with the same result
        and a warning. It resumes from its last checkpoint if that is on disk or takes up to 64 MiB, else from its
        beginning. The default is 1 for density peaks, fuzzy c-means and canopies, else 0.
    dtype : {"float32", "float64"}, default="float32"
    memory_limit : int or str, optional
        Memory by which one rank may grow; rows that do not fit are streamed.
    random_state : int, Generator or RandomState, optional
        Seed of the draws of `stability`, and of the samples of rows or pairs that choose `dc_fraction` and bracket dc;
        the last decide dc only with ``dc_method="sample"``. None means 0, so that a repeated fit is the same.
    verbose : bool, default=False

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row; clusters are numbered by decreasing ``rho * delta`` of their centre.
    cluster_centers_indices_ : ndarray of shape (n_clusters,), int64
    n_clusters_ : int
    dc_, dc_error_ : float
        The cut-off distance and, if it was sampled, how far the farther end of its 95% confidence interval is (else 0).
        With ``density="knn"``, `dc_` is None unless it was given or the halo needed it.
    dc_fraction_ : float or None
        The share of the pairs that dc was found from; None where it was not.
    dc_choice_ : dict or None
        How "auto" has chosen it: the "rows" that were looked at, the fractions that were "tried" with dc, number of
        clusters and drop of ``rho * delta`` behind it, and the "numbers" of clusters that stood out best, with the
        geometric mean of their drops at two neighbouring fractions, and the fraction to ask for. Both are empty where
        few rows, or many equal ones, leave 0.02 alone. "separated" is None, or the clusters are those that sparser rows
        separate: "n_clusters" of these rows, "dc_fraction", and the "ratio" by which the last one exceeds the next.
    assignment_ : {"denser", "separated"}
        How rows joined clusters. With ``n_clusters=n_clusters_`` and ``dc=dc_`` it gives the same labels again.
    rho_, delta_ : ndarray of shape (n_samples,), float64
        Density without the row itself; distance to the nearest denser row.
    nearest_higher_ : ndarray of shape (n_samples,), int64
        That row; -1 for the densest one.
    k_, log_density_, log_density_error_ : ndarray of shape (n_samples,), or None
        Rows of each neighbourhood (int32); logarithm of the number of rows per unit of volume, over n_samples, and its
        standard error (float64). With another metric than "euclidean", volume is that of a ball with the same radius.
        Where ``k="adaptive"`` or `significance` is given. `rho_` is then the `intrinsic_dim_`-th root of the density
        less one error, up to a constant; with an integer `k` without the error, which is the same for all rows.
    intrinsic_dim_ : float or None
        Dimension of what the rows lie on, by their two nearest rows (TwoNN), at most n_features; where the densities
        need it.
    significance_ : ndarray of shape (n_clusters,), float64, or None
        Height of each peak over the highest saddle of its cluster, in errors of both; infinite where it has none.
    saddles_ : ndarray of shape (n_saddles, 3), int64, or None
        Two clusters that meet, and the row at the densest place between them.
    stability_ : dict or None
        Of the draws of half the rows, "ari", the adjusted Rand index between their labels and those that the same rows
        have in `labels_`, its "mean" and "std", and the "n_clusters" of each draw.
    halo_ : ndarray of shape (n_samples,), bool
        Whether the row is in its cluster's halo; all False without ``halo=True``.
    exactness_ : dict
        How the figures were found: algorithm, passes for dc, rows whose rho was recomputed by the direct sum; with
        weights also "rho", which is then summed over all pairs whatever the algorithm.
    timings_ : dict of str to float
        Seconds per stage.
    result_ : Result
        All of it, to save or plot.
    n_features_in_ : int

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
        """The estimator as it was when it had found a result, to choose other centres of a saved one.

        Parameters
        ----------
        result : Result
            Of this method, from `mgclust.load_result` perhaps.

        Returns
        -------
        DensityPeaks
            Fitted.

        Raises
        ------
        InputError
            It is another method's result.
        """
        if result.method != cls.method or result.labels is None:
            raise InputError(f"method={result.method!r}: only a result of {cls.method} has a decision graph.")
        names = cls().get_params()
        model = cls(**{name: value for name, value in result.parameters.items() if name in names})
        for name, value in attributes_of(result).items():
            setattr(model, name, value)
        model._counts = RowCounts.of(model.rho_, model.delta_)
        return model

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
        """Choose other centres and relabel, without another pass over the data.

        Rows join clusters as `assignment_` says. If that is "separated", a number takes as many of the most prominent
        peaks, and each row that thresholds or `indices` name stands for the peak that it leads to.

        Parameters
        ----------
        n_clusters, rho_min, delta_min
            As for the class.
        rho_max, delta_max : float, optional
            Centres lie above neither; the densest row must be one of them.
        indices : sequence of int, optional
            The centres themselves; the densest row must be one of them.

        Returns
        -------
        self
            With new `labels_`, `cluster_centers_indices_`, `n_clusters_` and `result_`. `halo_`, which would take a
            pass, becomes all False; `significance_`, `saddles_` and `stability_` become None.
        """
        check_is_fitted(self, "rho_")
        wanted: dict[str, Any] = {"n_clusters": n_clusters, "rho_min": rho_min, "delta_min": delta_min}
        upper: dict[str, Any] = {"rho_max": rho_max, "delta_max": delta_max}
        checked = check_parameters(self.center_parameters, wanted | upper | {"indices": indices})
        if indices is not None and any(value is not None for value in (wanted | upper).values()):
            raise InputError("indices go with nothing else; leave out n_clusters and the limits.")
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
        """Centres, their gamma drop, and labels that stay where those of the fit are."""
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
        """Find the clusters of new rows: each takes the label of the nearest fitted row that is denser, or a centre.

        The density of a new row is what it would be if it was added to the fitted rows, which keep theirs. A row that
        is equal to a fitted one takes its label. If `assignment_` is "separated", each row takes the label of its
        nearest fitted row.

        The fitted rows are read again, and no copy of an array is kept: do not change it before.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            Each rank has a share of them; those of a Dask array go there from the workers that have them.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            Of a Dask array a Dask array.
        """
        check_is_fitted(self, "rho_")
        if "_dataset" not in vars(self):
            raise InputError(
                "predict needs the rows that were fitted, which a saved result does not hold; fit them again."
            )
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
        self.halo_ = labels < 0 if halo is None else halo  # none is: an array of the same kind
        self.significance_ = self.saddles_ = None

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        return run_spec(parameters, inputs, seed=self._seed(parameters["random_state"]))

    def _check_shape(self, dataset: Dataset) -> None:
        if self.metric == "precomputed":
            check_square(dataset, "metric", "distances")
        super()._check_shape(dataset)

    def __sklearn_tags__(self) -> Any:
        """Say that rows may be distances."""
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
