"""Canopy clustering: the estimator. What its ranks do: `mgclust.algorithms.canopy.ranks`."""

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

# Of the rows: where fewer lie in one canopy alone, canopies are no clusters. Of uniform and normal rows it was at most
# 0.01, of sets whose clusters lie apart 0.19 to 0.32, as measured by hand on 32 sets.
MIN_ALONE = 0.05
FEW, MANY = 10, 200  # canopies that suggested thresholds give of most rows lie between
# On CPUs two ranks are faster than one from some 100,000 rows of 2 features on. On two GPUs fits of 3,000,000 rows of 2
# features take as long as on one; of 300,000 of 128, and of 10,000,000 of 6, they were 1.6 times as fast.
NUMBERS_OF_A_RANK = {"cpu": 1e5, "cuda": 1.5e7}
NUMBERS_A_SECOND = {"cpu": 4e6, "cuda": 3e7}  # of a rank, in these measurements
LINKAGE: dict[str, Constraint] = {
    "n_clusters": Integer(at_least=1, optional=True),
    "distance_threshold": Real(at_least=0, optional=True),
}


class Canopy(CanopyOptions, Clusterer):
    """Canopy clustering of McCallum, Nigam and Ungar (2000), exact, on one or many CPUs or GPUs.

    Parameters
    ----------
    t1, t2 : float, optional
        The loose and the tight distance, t1 > t2 > 0, in the units of the metric. A canopy is every row within t1 of
        its centre; rows within t2 become no centres themselves. Both or neither: then they are those of
        `suggest_thresholds`, which make the canopies a cover of the rows; their number is no number of clusters, and
        a warning says so where they overlap everywhere.
    order : {"index", "random"}, default="index"
        Which candidate is the first: the one with the lowest row number, or in a random order that `random_state`
        decides. Centres depend on the order. Sorted rows take more steps than rows in random order.
    metric : {"euclidean", "manhattan", "cosine", "correlation"}, default="euclidean"
        "cosine" and "correlation" distances (1 - similarity) do not obey the triangle inequality: two rows within t1
        of a centre may be up to 4 t1 from each other, not 2 t1.
    device, client, n_workers, workers, resources, retries, memory_limit, verbose
        As for `DensityPeaks`.
    dtype : {"float32", "float64"}, default="float64"
        Type of the distances. In float32, at most twice as fast, a row may fall on the other side of a threshold that
        it lies within one part in a million of.
    random_state : int, Generator or RandomState, optional
        Seed of the random order and of the sample that thresholds are taken from. None is 0: a fit again is the same.

    Attributes
    ----------
    cluster_centers_indices_ : ndarray of shape (n_canopies,), int64
        Row of each centre, in the order of picking.
    cluster_centers_ : ndarray of shape (n_canopies, n_features)
        These rows.
    n_canopies_, n_clusters_ : int
        How many there are.
    memberships_ : scipy.sparse.csr_array of shape (n_samples, n_canopies), bool
        Which rows are within t1 of which centres; column indices ascend.
    labels_ : ndarray of shape (n_samples,), int32
        The nearest centre; the first of equally near ones.
    t1_, t2_ : float
        The distances used.
    n_steps_ : int
        Exchanges between the ranks that the centres took.
    timings_, result_, n_features_in_
        As for `DensityPeaks`.

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
        """Look at the distances in a sample of the rows and suggest t1 and t2; what `fit` does without them.

        Of the distances between rows that differ, among at most 2048 of them, t2 is the 15% quantile and t1 the 30%
        quantile: twice as many pairs are within t1 as within t2, which in two dimensions makes t2 = 0.7 t1, as is
        customary. This gives some ten to two hundred canopies of most rows, since the number of balls that cover them
        follows from the share of pairs within t2, and from the number of features: it does not tell how many clusters
        there are. Of many features, counts and few rows it may be another number, and a fit warns of it. Scale both to
        get fewer or more. Where both quantiles
        are equal, t1 is the next larger distance, or t2 / 0.7 if there is none.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset

        Returns
        -------
        Thresholds
            A named tuple (t1, t2).

        Raises
        ------
        InputError
            If all rows are equal.
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
        """Find the nearest centre of each row, of equally near ones the first, however far it is.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            Ranks read their own rows; those of a Dask array stay with the workers that have them.

        Returns
        -------
        ndarray of shape (n_samples,), int32
            Labels as in `labels_`. Computed in float64.
        """
        check_is_fitted(self, "cluster_centers_")
        limit = self._checked()["memory_limit"]
        return labels_by_centers(self._open_more(X), self.cluster_centers_, self.metric, self._place(), limit)

    def agglomerate(
        self, X: Any, *, n_clusters: int | None = None, distance_threshold: float | None = None
    ) -> Agglomeration:
        """Find canopies and cluster within them by single linkage: only pairs that share a canopy are compared.

        With Euclidean and Manhattan distances, all merges up to t1 - t2 are those of single linkage among all pairs; a
        merge at a larger distance may come late, or not at all.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
        n_clusters : int, optional
            How many clusters to stop at. Either this or `distance_threshold`.
        distance_threshold : float, optional
            Clusters merge while two of their rows are at most so far from each other.

        Returns
        -------
        Agglomeration
            A named tuple: `labels` (clusters in the order of their first rows), `n_clusters`, `merges` (pairs of rows
            whose clusters merge, nearest ones first, also those that were not asked for) and their `distances`,
            `n_canopies`, `n_pairs` (compared, once for each canopy that they share, so perhaps more than there are),
            `t1` and `t2`. NumPy arrays, of rows in a Dask array, too.
        """
        if (n_clusters is None) == (distance_threshold is None):
            raise InputError(
                f"n_clusters={n_clusters} and distance_threshold={distance_threshold}: give one of both, which says "
                "where merging ends."
            )
        asked = check_parameters(LINKAGE, {"n_clusters": n_clusters, "distance_threshold": distance_threshold})
        n_clusters, distance_threshold = asked["n_clusters"], asked["distance_threshold"]
        parameters, dataset = self._checked(), open_dataset(X)
        self._check_shape(dataset)
        n = dataset.shape[0]
        if n_clusters is not None and n_clusters > n:
            raise InputError(f"n_clusters={n_clusters} should be <= n_samples={n}; ask for fewer clusters.")
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
                    f"t1={t1:g} should be > t2={t2:g}: a canopy reaches farther than the rows that its centre rules "
                    "out; give a larger t1 or a smaller t2."
                )
            low = float(np.finfo(parameters["dtype"]).tiny) ** 0.45
            if t2 < low:
                raise InputError(
                    f"t2={t2:g} should be >= {low:.1g} with dtype='{parameters['dtype']}', in which squares of less "
                    "vanish; rescale the data."
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
    """Thresholds that tell nothing about the rows.

    `alone` is the share of rows in one canopy, None where thresholds were given; `total` are all memberships.
    """
    if k == 1:
        text = f"a single canopy holds all rows within t1={t1:g} of its centre: t2={t2:g} is too large; lower both."
        return [Doubt(text, WeakStructureWarning)]
    if k > n / 2:
        text = f"{k} of {n} rows are centres: hardly any rows lie within t2={t2:g} of each other; raise t1 and t2."
        return [Doubt(text, DegenerateClustersWarning)]
    if total == n * k:
        text = (
            f"each of the {k} canopies holds all {n} rows: none is farther than t1={t1:g} from a centre, so they tell "
        )
        return [Doubt(f"{text}nothing apart; lower t1.", WeakStructureWarning)]
    if alone is None:
        return []
    said = []
    if not FEW <= k <= MANY:
        which, way = ("few", "smaller") if k < FEW else ("many", "larger")
        text = f"{k} canopies of the suggested t1={t1:g} and t2={t2:g} are {which}, of most data there are {FEW} to "
        said.append(Doubt(f"{text}{MANY}: give {way} t1 and t2, by what is near in these data.", AmbiguousCountWarning))
    if alone < MIN_ALONE:
        text = (
            f"the number of canopies, {k}, follows from the suggested t1={t1:g} and t2={t2:g}, not from clusters: "
            f"only {alone:.1%} of the rows lie in a single one; give t1 and t2 by what is near."
        )
        said.append(Doubt(text, AmbiguousCountWarning))
    return said
