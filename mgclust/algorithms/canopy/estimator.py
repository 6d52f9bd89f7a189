"""The estimator `Canopy`. The computation on the ranks is described in `mgclust.algorithms.canopy.ranks`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mgclust.algorithms.base import Clusterer, Inputs, WarmUp
from mgclust.algorithms.canopy.agglomeration import Agglomeration
from mgclust.algorithms.canopy.centers import threshold_of
from mgclust.algorithms.canopy.options import CanopyOptions
from mgclust.algorithms.canopy.presentation import CanopyPresentation
from mgclust.algorithms.canopy.ranks import CanopyOutput, LinkageOutput, Thresholds, canopy, estimate, linkage, suggest
from mgclust.algorithms.common.nearest_centers import labels_by_centers
from mgclust.algorithms.common.preparation import warnings_of_distances
from mgclust.base.errors import (
    AmbiguousCountWarning,
    DegenerateClustersWarning,
    Doubt,
    InputError,
    WeakStructureWarning,
)
from mgclust.data import open_dataset
from mgclust.engine.dask.cluster import connect
from mgclust.engine.spmd import Outcome, RunSpec, Work, run
from mgclust.kernels.pairs.metrics import METRICS
from mgclust.params import Constraint, Integer, Real, check_parameters
from mgclust.results.result import Result

__all__ = ["Canopy", "Thresholds"]

# If less than this fraction of the rows lies in exactly one canopy, the canopies are not clusters. An informal
# measurement on 32 sets gave at most 0.01 for uniform and normal rows, and 0.19 to 0.32 for well-separated clusters.
MIN_ALONE = 0.05
FEW, MANY = 10, 200  # for most data, the suggested thresholds give a number of canopies in this range
# On CPUs, two ranks are faster than one rank if there are at least about 100,000 rows of 2 features. Two GPUs take as
# long as one GPU for 3,000,000 rows of 2 features. Two GPUs were 1.6 times as fast as one GPU for 300,000 rows of 128
# features, and also for 10,000,000 rows of 6 features.
NUMBERS_OF_A_RANK = {"cpu": 1e5, "cuda": 1.5e7}
NUMBERS_A_SECOND = {"cpu": 4e6, "cuda": 3e7}  # per rank, in these measurements
LINKAGE: dict[str, Constraint] = {
    "n_clusters": Integer(at_least=1, optional=True),
    "distance_threshold": Real(at_least=0, optional=True),
}


class Canopy(CanopyOptions, Clusterer):
    """Canopy clustering of McCallum, Nigam and Ungar (2000), exact, on one or many CPUs or GPUs.

    A canopy is a centre with all rows within `t1` of it; a row can be in several canopies. Centres are chosen one after
    the other, from the rows that are not within `t2` of an earlier centre.

    Parameters
    ----------
    t1, t2 : float, optional
        The loose and the tight distance, t1 > t2 > 0, in the units of the metric. A canopy consists of all rows within
        t1 of its centre. Rows within t2 of a centre cannot become centres themselves. Give both or neither. By
        default, `fit` uses the thresholds of `suggest_thresholds`. With these, the canopies cover the rows, but the
        number of canopies is not the number of clusters. A warning reports this if the canopies overlap almost
        everywhere.
    order : {"index", "random"}, default="index"
        Order in which rows become centres. "index": the candidate with the lowest row number comes first. "random": a
        random order, drawn by `random_state`. The centres depend on the order. Sorted rows take more steps than rows
        in random order.
    metric : {"euclidean", "manhattan", "cosine", "correlation"}, default="euclidean"
        Distance between rows. "cosine" and "correlation" distances (1 - similarity) do not obey the triangle
        inequality: two rows within t1 of a centre may be up to 4 t1 apart, instead of 2 t1.
    device, client, n_workers, workers, resources, retries, memory_limit, verbose
        As for `DensityPeaks`.
    dtype : {"float32", "float64"}, default="float64"
        Number type of the distances. float32 is at most twice as fast. In float32, a row whose distance is within one
        part in a million of a threshold may fall on the other side of it.
    random_state : int, Generator or RandomState, optional
        Seed of the random order, and of the sample from which thresholds are suggested. None means 0, so a repeated fit
        gives the same result.

    Attributes
    ----------
    cluster_centers_indices_ : ndarray of shape (n_canopies,), int64
        Row of each centre, in the order in which the centres were chosen.
    cluster_centers_ : ndarray of shape (n_canopies, n_features)
        The centres, in the same order.
    n_canopies_, n_clusters_ : int
        Number of canopies.
    memberships_ : scipy.sparse.csr_array of shape (n_samples, n_canopies), bool
        True if the row is within t1 of the centre of the canopy. Column indices ascend.
    labels_ : ndarray of shape (n_samples,), int32
        Position of each row's nearest centre in `cluster_centers_`; ties go to the centre that was chosen first.
    t1_, t2_ : float
        The thresholds of the fit, given or suggested.
    n_steps_ : int
        Number of exchanges between the ranks until all centres were chosen.
    timings_, result_, n_features_in_
        As for `DensityPeaks`.

    See Also
    --------
    DensityPeaks : Clusters of any shape, whose number is found from the data.

    References
    ----------
    A. McCallum, K. Nigam, L. H. Ungar, Efficient clustering of high-dimensional data sets with application to
    reference matching, KDD 2000:169-178.
    Y. Hayashi, Y. Kozawa, T. Amagasa, H. Kitagawa, Canopy clustering on a GPU.

    Examples
    --------
    >>> from mgclust import Canopy
    >>> model = Canopy(3.0, 1.5, client=None).fit([[0.0], [1.0], [2.0], [9.0]])
    >>> model.cluster_centers_indices_.tolist()
    [0, 2, 3]
    >>> model.memberships_.toarray().astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """

    presentation = CanopyPresentation()

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return (WarmUp((3000, 4), seconds=2),)

    def suggest_thresholds(self, X: Any) -> Thresholds:
        """Suggest t1 and t2 from the distances in a sample of the rows, as `fit` does if they are not given.

        t2 is the 15% quantile and t1 the 30% quantile of the positive distances among at most 2048 rows. So twice as
        many pairs are within t1 as within t2; in two dimensions this makes t2 = 0.7 t1, as is customary. If both
        quantiles are equal, t1 is the next larger distance, or t2 / 0.7 if there is none.

        For most data these thresholds give 10 to 200 canopies. Their number follows from the fraction of pairs within
        t2 and from the number of features, so it is not an estimate of the number of clusters. With many features, with
        features that are counts, or with few rows, the number can be outside this range; a fit then warns. Scale both
        thresholds to get fewer or more canopies.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            The rows.

        Returns
        -------
        Thresholds
            A named tuple with the fields `t1` and `t2`, of type float.

        Raises
        ------
        InputError
            If all rows are equal, or there is only one row.

        Examples
        --------
        >>> from mgclust import Canopy
        >>> thresholds = Canopy(client=None).suggest_thresholds([[0.0], [1.0], [2.0], [9.0]])
        >>> thresholds.t1, thresholds.t2
        (2.0, 1.0)
        """
        parameters = self._checked()
        dataset = open_dataset(X)
        if dataset.shape[0] < 2:
            raise InputError(f"n_samples={dataset.shape[0]} should be >= 2: one row has no distances; give more rows.")
        arguments = {"metric": parameters["metric"], "seed": self._seed(parameters["random_state"])}
        spec = RunSpec(
            suggest,
            arguments,
            dtype=self.dtype,
            memory_limit=parameters["memory_limit"],
            metric=parameters["metric"],
        )
        with connect(**self._place()) as cluster:
            thresholds: Thresholds = run(spec, dataset, cluster).value
        return thresholds

    def predict(self, X: Any) -> np.ndarray:
        """Label new rows by their nearest centre, at any distance.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            The new rows. Each rank reads its own rows. Rows of a Dask array stay on the workers that hold them.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            Label of each row, as in `labels_`; ties go to the centre that was chosen first. Distances are computed in
            float64. On a cluster, the labels are a Dask array if X is a Dask array.

        Raises
        ------
        InputError
            If X and the fitted rows have different numbers of features.

        Examples
        --------
        >>> from mgclust import Canopy
        >>> Canopy(3.0, 1.5, client=None).fit([[0.0], [1.0], [2.0], [9.0]]).predict([[0.4], [7.0]]).tolist()
        [0, 2]
        """
        check_is_fitted(self, "cluster_centers_")
        limit = self._checked()["memory_limit"]
        return labels_by_centers(self._open_more(X), self.cluster_centers_, self.metric, self._place(), limit)

    def agglomerate(
        self, X: Any, *, n_clusters: int | None = None, distance_threshold: float | None = None
    ) -> Agglomeration:
        """Find canopies, and cluster the rows by single linkage that compares only pairs within a canopy.

        With Euclidean and Manhattan distances, all merges up to t1 - t2 are the merges of single linkage on all pairs.
        A merge at a larger distance may come later than in single linkage on all pairs, or not at all.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            The rows.
        n_clusters : int, optional
            Number of clusters at which merging stops. Give either this or `distance_threshold`.
        distance_threshold : float, optional
            Largest distance between two rows at which their clusters merge, in the units of the metric.

        Returns
        -------
        Agglomeration
            A named tuple with the fields:

            - `labels`: int32 array of shape (n_samples,), the cluster of each row. Clusters are numbered in the order
              of their first rows;
            - `n_clusters`: number of clusters;
            - `merges`: int64 array of shape (n_merges, 2), pairs of rows whose clusters merge, nearest first. The array
              also contains the merges beyond the requested number of clusters or distance;
            - `distances`: array of shape (n_merges,), the distance of each of these pairs;
            - `n_canopies`: number of canopies;
            - `n_pairs`: number of comparisons. A pair of rows counts once per canopy that holds both rows, so `n_pairs`
              can exceed the number of distinct pairs;
            - `t1` and `t2`: the thresholds.

            All arrays are NumPy arrays, even if X is a Dask array.

        Raises
        ------
        InputError
            If both or neither of `n_clusters` and `distance_threshold` are given, or if `n_clusters` exceeds the
            number of rows.

        See Also
        --------
        sklearn.cluster.AgglomerativeClustering : Single linkage on all pairs.

        Examples
        --------
        >>> from mgclust import Canopy
        >>> found = Canopy(3.0, 1.5, client=None).agglomerate([[0.0], [1.0], [2.0], [9.0]], distance_threshold=1.0)
        >>> found.labels.tolist(), found.n_clusters
        ([0, 0, 0, 1], 2)
        """
        if (n_clusters is None) == (distance_threshold is None):
            raise InputError(
                f"n_clusters={n_clusters} and distance_threshold={distance_threshold}: exactly one of them must define "
                "where merging ends; give one."
            )
        asked = check_parameters(LINKAGE, {"n_clusters": n_clusters, "distance_threshold": distance_threshold})
        n_clusters, distance_threshold = asked["n_clusters"], asked["distance_threshold"]
        parameters, dataset = self._checked(), open_dataset(X)
        self._check_shape(dataset)
        n = dataset.shape[0]
        if n_clusters is not None and n_clusters > n:
            raise InputError(f"n_clusters={n_clusters} should be <= n_samples={n}; request fewer clusters.")
        spec = self._run_spec(parameters, Inputs(dataset, False))
        with connect(**self._place()) as cluster:
            spec = replace(spec, function=linkage, memory_limit=parameters["memory_limit"])
            found: LinkageOutput = run(spec, dataset, cluster).value
        tree = found.tree
        distances = METRICS[self.metric].distances(tree.s, np)
        kept = 0
        if distance_threshold is not None:
            kept = int(np.searchsorted(tree.s, threshold_of(METRICS[self.metric], distance_threshold, tree.s.dtype)))
        labels, count = tree.clusters(n, n_clusters, kept)
        merges = np.stack([tree.low, tree.high], axis=1)
        return Agglomeration(labels, count, merges, distances, found.n_canopies, found.n_pairs, *found.thresholds)

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        t1, t2 = parameters["t1"], parameters["t2"]
        if (t1 is None) != (t2 is None):
            given, missing = ("t1", "t2") if t2 is None else ("t2", "t1")
            raise InputError(f"{given}={parameters[given]:g} was given without {missing}; give both or neither.")
        if t1 is not None:
            if t1 <= t2:
                raise InputError(
                    f"t1={t1:g} should be > t2={t2:g}: a canopy must reach farther than the distance at which its "
                    "centre excludes other centres; give a larger t1 or a smaller t2."
                )
            low = float(np.finfo(parameters["dtype"]).tiny) ** 0.45
            if t2 < low:
                raise InputError(
                    f"t2={t2:g} should be >= {low:.1g} with dtype='{parameters['dtype']}', because squares of smaller "
                    "distances underflow; rescale the data."
                )
        arguments = {name: parameters[name] for name in ("t1", "t2", "order", "metric")}
        arguments["seed"] = self._seed(parameters["random_state"])
        work = Work(math.prod(inputs.dataset.shape), "numbers in all rows", NUMBERS_OF_A_RANK, NUMBERS_A_SECOND)
        return RunSpec(canopy, arguments, estimate, parameters["dtype"], metric=parameters["metric"], work=work)

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        value: CanopyOutput = outcome.value
        n, k = inputs.dataset.shape[0], len(value.centers)
        self.cluster_centers_indices_, self.n_steps_ = value.centers, value.n_steps
        self.n_canopies_ = self.n_clusters_ = k
        self.t1_, self.t2_ = value.t1, value.t2
        self.labels_, self.memberships_ = outcome.arrays["labels"], outcome.arrays["memberships"]
        self.cluster_centers_ = inputs.dataset.take(self.cluster_centers_indices_)
        alone, suggested = value.alone / n, self.t1 is None
        return Result(
            labels=self.labels_,
            arrays={
                "centers": self.cluster_centers_indices_,
                "cluster_centers": self.cluster_centers_,
                "memberships": self.memberships_,
            },
            scores={
                "n_clusters": k,
                "memberships_per_row": value.total / n,
                "rows_in_one": alone,
                "t1": self.t1_,
                "t2": self.t2_,
                "n_steps": self.n_steps_,
            },
            warnings=[
                *_warnings(n, k, self.t1_, self.t2_, alone if suggested else None, value.total),
                *warnings_of_distances(value.distance_error, self.metric, self.dtype),
            ],
            diagnostics={"computed_in": self.dtype, "thresholds": "suggested" if suggested else "given"},
            **frame,
        )


def _warnings(n: int, k: int, t1: float, t2: float, alone: float | None, total: int) -> list[Doubt]:
    """Return warnings about thresholds if the canopies do not show any structure of the rows.

    `alone` is the fraction of the rows that are in exactly one canopy, or None if thresholds were given. `total` is the
    number of memberships of all rows.
    """
    if k == 1:
        text = f"a single canopy holds all rows, because t2={t2:g} is too large; lower both t1={t1:g} and t2."
        return [Doubt(text, WeakStructureWarning)]
    if k > n / 2:
        text = f"{k} of {n} rows are centres: hardly any rows lie within t2={t2:g} of each other; raise t1 and t2."
        return [Doubt(text, DegenerateClustersWarning)]
    if total == n * k:
        text = f"each of the {k} canopies holds all {n} rows: no row is farther than t1={t1:g} from any centre, so the "
        return [Doubt(f"{text}canopies do not separate rows; lower t1.", WeakStructureWarning)]
    if alone is None:
        return []
    said = []
    if not FEW <= k <= MANY:
        which, way = ("few", "smaller") if k < FEW else ("many", "larger")
        text = (
            f"{k} canopies of the suggested t1={t1:g} and t2={t2:g} are {which}, because most data have {FEW} to {MANY}"
        )
        said.append(Doubt(f"{text}: give {way} t1 and t2.", AmbiguousCountWarning))
    if alone < MIN_ALONE:
        text = (
            f"the number of canopies, {k}, follows from the suggested t1={t1:g} and t2={t2:g}, not from clusters: "
            f"only {alone:.1%} of the rows lie in exactly one canopy; give t1 and t2 that suit X."
        )
        said.append(Doubt(text, AmbiguousCountWarning))
    return said
