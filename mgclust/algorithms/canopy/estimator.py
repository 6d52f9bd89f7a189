r"""Canopy clustering (McCallum, Nigam, Ungar, KDD 2000), exact, on any number of ranks.

Two distances, t1 > t2. The first candidate becomes a centre; its canopy is every row within t1, so that a row may be
in several canopies; the rows within t2 are candidates no longer. Repeat until there are none. "Within" means
``distance <= t``, decided everywhere by one comparison (`threshold_of`).

What runs where. Every rank owns consecutive row blocks; rows never move but for those that may become centres::

    prepare      float32: rows are moved near the origin; float64: they stay as they are
    thresholds   if not given: quantiles of the distances among at most 2048 rows
    centers      4096 candidates at a time, `mgclust.algorithms.canopy.centers`
    memberships  all rows with all centres, `mgclust.algorithms.canopy.members`
    trees        of `Canopy.agglomerate` alone: pairs within canopies, `mgclust.algorithms.canopy.agglomeration`
    iterations   of `Canopy.k_means` alone: rows and prototypes in one, `mgclust.algorithms.canopy.means`

Cost, for K centres. Time: 3 to 3.5 n K reduced distances (d multiply-adds each) over all ranks; few features and many
centres take far fewer (`mgclust.kernels.pairs.column_boxes`). Memory per rank: its rows up to three times,
the centres, 60 bytes a row; on its host 5 to 9 bytes a membership besides. Communication: 4096 rows a step, at most
n / 4096 steps and usually a handful.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.base import Clusterer, Inputs, WarmUp
from mgclust.algorithms.canopy.agglomeration import Agglomeration, Tree, tree_of_canopies
from mgclust.algorithms.canopy.centers import STEP, Candidates, Picked, pick_centers, threshold_of
from mgclust.algorithms.canopy.means import CanopyMeans, Means, means_in_canopies
from mgclust.algorithms.canopy.members import (
    Members,
    candidate_bytes,
    candidate_pieces,
    find_members,
    piece_bytes,
    room_for_boxes,
)
from mgclust.algorithms.canopy.options import CanopyOptions
from mgclust.algorithms.canopy.presentation import CanopyPresentation
from mgclust.algorithms.common.nearest_centers import labels_by_centers
from mgclust.algorithms.common.preparation import prepare_rows, refuse_out_of_range
from mgclust.algorithms.scikit_learn import check_is_fitted
from mgclust.data import open_dataset
from mgclust.engine.dask.cluster import connect
from mgclust.engine.memory import Estimate
from mgclust.engine.rows import few_digits
from mgclust.engine.spmd import Context, Outcome, RunSpec, Work, run
from mgclust.errors import InputError
from mgclust.kernels.pairs.metrics import METRICS, Metric
from mgclust.params import Integer, check_parameters
from mgclust.result import Result

__all__ = ["Canopy", "Thresholds"]

SAMPLE_ROWS = 2048
LOOSE_SHARE, TIGHT_SHARE = 0.30, 0.15
# Of the rows: where fewer lie in one canopy alone, canopies are no clusters. Of uniform and normal rows it was at most
# 0.01, of sets whose clusters lie apart 0.19 to 0.32, as measured by hand on 32 sets.
LEAST_ALONE = 0.05
# On CPUs two ranks are faster than one from some 100,000 rows of 2 features on. On two GPUs centres and memberships of
# 10^6 rows of 2 features take 16 ms, on one 8; 300,000 rows of 128 features 0.95 s, on one 1.42.
NUMBERS_OF_A_RANK = {"cpu": 1e5, "cuda": 2e6}
RATIO = 0.7  # of t2 to t1, where the distances do not tell


class Thresholds(NamedTuple):
    """The two distances of a canopy."""

    t1: float
    t2: float


@dataclass(frozen=True)
class CanopyOutput:
    """Rank 0's findings."""

    centers: np.ndarray  # rows, in the order of picking
    n_steps: int
    t1: float
    t2: float
    total: int  # memberships of all rows
    alone: int  # rows that are in one canopy


@dataclass(frozen=True)
class LinkageOutput:
    """Rank 0's findings of `linkage`."""

    tree: Tree
    n_canopies: int
    n_pairs: int
    thresholds: Thresholds


@dataclass(frozen=True)
class MeansOutput:
    """Rank 0's findings of `k_means`."""

    means: Means
    n_canopies: int
    thresholds: Thresholds


class Cover(NamedTuple):
    """Canopies as every rank knows them."""

    picked: Picked
    members: Members  # of its rows
    thresholds: Thresholds


def canopy(
    context: Context, *, metric: str, t1: float | None, t2: float | None, order: str, seed: int
) -> CanopyOutput | None:
    """Run the method on every rank; rank 0 returns what `Canopy.fit` reports, beside "labels" and "memberships"."""
    picked, members, thresholds = cover(context, metric=metric, t1=t1, t2=t2, order=order, seed=seed)
    context.deliver(labels=members.labels, memberships=members.memberships)
    if context.rank != 0:
        return None
    return CanopyOutput(picked.rows, picked.steps, *thresholds, members.total, members.alone)


def linkage(
    context: Context, *, metric: str, t1: float | None, t2: float | None, order: str, seed: int
) -> LinkageOutput | None:
    """Find canopies and the spanning forest of pairs that share one; on every rank."""
    picked, members, thresholds = cover(context, metric=metric, t1=t1, t2=t2, order=order, seed=seed)
    with context.stage("trees"):
        tree, n_pairs = tree_of_canopies(context, members.memberships, METRICS[metric].norm)
    return LinkageOutput(tree, len(picked.rows), n_pairs, thresholds) if context.rank == 0 else None


def k_means(
    context: Context, *, t1: float | None, t2: float | None, order: str, seed: int, n_clusters: int, max_iter: int
) -> MeansOutput | None:
    """Find canopies and means confined to them; rank 0 returns what `Canopy.k_means` reports, beside "labels"."""
    picked, members, thresholds = cover(context, metric="euclidean", t1=t1, t2=t2, order=order, seed=seed)
    if n_clusters > len(picked.rows):
        raise InputError(
            f"n_clusters={n_clusters} should be <= {len(picked.rows)}, the number of canopies, whose centres are the "
            "first prototypes; lower t2."
        )
    with context.stage("iterations"):
        loose = threshold_of(METRICS["euclidean"], thresholds.t1, context.dtype)
        means = means_in_canopies(
            context, picked.x, members, loose, n_clusters=n_clusters, max_iter=max_iter, seed=seed
        )
    context.deliver(labels=means.labels)
    told = means._replace(labels=means.labels[:0])
    return MeansOutput(told, len(picked.rows), thresholds) if context.rank == 0 else None


def cover(context: Context, *, metric: str, t1: float | None, t2: float | None, order: str, seed: int) -> Cover:
    """Find the canopies, on every rank."""
    measure, saved = METRICS[metric], context.checkpoint.load()
    with context.stage("prepare"):
        _prepare(context, measure)
    if t1 is None or t2 is None:
        with context.stage("thresholds"):
            t1, t2 = _thresholds(context, measure, seed)
    with context.stage("centers"):
        pieces = candidate_pieces(context)
        drawn = seed if order == "random" else None
        candidates = Candidates(context.kernels, context.rows.read, pieces, drawn, room_for_boxes(context))
        picked = pick_centers(context, candidates, measure, t2, saved)
        del candidates
    with context.stage("memberships"):
        loose, tight = (threshold_of(measure, t, context.dtype) for t in (t1, t2))
        members = find_members(context, picked.x, measure.norm, loose, tight)
    return Cover(picked, members, Thresholds(t1, t2))


def suggest(context: Context, *, metric: str, seed: int) -> Thresholds:
    """Find thresholds, the same on every rank."""
    measure = METRICS[metric]
    with context.stage("prepare"):
        _prepare(context, measure)
    with context.stage("thresholds"):
        return _thresholds(context, measure, seed)


def _prepare(context: Context, measure: Metric) -> None:
    """Make the rows ready. float64 rows stay where they are, so that ties of given distances stay ties."""
    if measure.unit_rows:
        prepare_rows(context, measure)
        return
    xp, comm = context.kernels.xp, context.comm
    low = xp.full(context.dataset_shape[1], xp.inf, dtype=context.dtype)
    high = -low
    for chunk in context.rows.chunks():
        if chunk.x.shape[0]:
            low, high = xp.minimum(low, chunk.x.min(axis=0)), xp.maximum(high, chunk.x.max(axis=0))
    low, high = (
        context.kernels.memory.to_host(comm.all_reduce(end, op)).astype(np.float64)
        for end, op in ((low, "min"), (high, "max"))
    )
    with np.errstate(over="ignore"):
        reach = float((high / 2 - low / 2).max())
    refuse_out_of_range(context, measure, reach)
    if context.dtype == np.float32:
        middle = few_digits(low / 2 + high / 2, (high - low) / 4)
        context.rows.apply(measure.prepare(xp.asarray(middle)))


def _thresholds(context: Context, measure: Metric, seed: int) -> Thresholds:
    """The rule of `Canopy.suggest_thresholds`."""
    n, kernels = context.dataset_shape[0], context.kernels
    m = min(n, SAMPLE_ROWS)
    chosen = np.arange(n) if m == n else np.sort(np.random.default_rng(seed).choice(n, m, replace=False))
    x = context.gather_rows(chosen)
    s = kernels.pairs.reduced_distances(x, x, norm=measure.norm)
    s = kernels.memory.to_host(kernels.xp.sort(s[s > 0]))
    distances = s * s.dtype.type(measure.factor) if measure.squared else np.sqrt(s)
    if not len(s) or distances[-1] <= 0:
        what = "all rows are" if m == n else f"all {m} rows of a sample are"
        raise InputError(f"{what} equal: there are no distances to take t1 and t2 from; give t1 and t2.")
    t1, t2 = (float(distances[int(np.ceil(share * len(s))) - 1]) for share in (LOOSE_SHARE, TIGHT_SHARE))
    if t1 <= t2:  # many equal distances
        larger = distances[np.searchsorted(distances, t2, side="right") :]
        t1 = float(larger[0]) if len(larger) else t2 / RATIO
    return Thresholds(t1, t2)


def estimate(shape: tuple[int, int], itemsize: int, size: int, resident_limit: int) -> Estimate:
    """Memory of a rank beside its rows, but for the centres and memberships, whose number the data decide."""
    n, d = shape
    own = -(-n // size)
    rows = own * d * itemsize
    kept = candidate_bytes(rows, resident_limit, rows <= resident_limit)
    vectors = own * (48 + itemsize)
    what = {
        "rows of candidates": kept,
        "vectors of own rows": vectors + 16 * own,
        "candidates of a step": (1 + size) * min(n, STEP) * (d * itemsize + 16),
        "memberships on their way": min(piece_bytes(2 * resident_limit, size), 8 * n * n),
    }
    return Estimate(kept + vectors, sum(what.values()) - kept - vectors, what)


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
    device, client, n_workers, memory_limit, verbose
        As for `DensityPeaks`.
    dtype : {"float32", "float64"}, default="float64"
        Type of the distances. In float32, about twice as fast, a row may fall on the other side of a threshold that
        it lies within one part in a million of.
    random_state : int, Generator or RandomState, optional
        Seed of the random order and of the sample that thresholds are taken from.

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

    @property
    def center_indices_(self) -> np.ndarray:
        """Deprecated name of `cluster_centers_indices_`."""
        indices = self.cluster_centers_indices_
        warnings.warn("center_indices_ is deprecated: use cluster_centers_indices_.", DeprecationWarning, stacklevel=2)
        return indices

    def suggest_thresholds(self, X: Any) -> Thresholds:
        """Look at the distances in a sample of the rows and suggest t1 and t2; what `fit` does without them.

        Of the distances between rows that differ, among at most 2048 of them, t2 is the 15% quantile and t1 the 30%
        quantile: twice as many pairs are within t1 as within t2, which in two dimensions makes t2 = 0.7 t1, as is
        customary. This gives some ten to two hundred canopies whatever the rows are, since the number of balls that
        cover them follows from the share of pairs within t2, and from the number of features: it does not tell how
        many clusters there are. Scale both to get fewer or more. Where both quantiles
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
            shift=not METRICS[self.metric].unit_rows,
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
        place = {**self._place(), "memory_limit": self._checked()["memory_limit"]}
        return labels_by_centers(self._open_more(X), self.cluster_centers_, self.metric, **place)

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
            `n_canopies`, `n_pairs` (compared, once for each canopy that they share), `t1` and `t2`.
        """
        if (n_clusters is None) == (distance_threshold is None):
            raise InputError(
                f"n_clusters={n_clusters} and distance_threshold={distance_threshold}: give one of both, which says "
                "where merging ends."
            )
        parameters, dataset = self._checked(), open_dataset(X)
        self._check_shape(dataset)
        n = dataset.shape[0]
        if n_clusters is not None and not 1 <= n_clusters <= n:
            raise InputError(f"n_clusters={n_clusters} should be >= 1 and <= n_samples={n}.")
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

    def k_means(self, X: Any, n_clusters: int, *, max_iter: int = 100) -> CanopyMeans:
        """Find canopies and cluster by k-means, a row being compared only with prototypes that share a canopy with it.

        A prototype is in the canopies whose centres are within t1 of it. A row that shares none with any is compared
        with all. No prototype within t1 - t2 of a row is missed.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
        n_clusters : int
            At most the number of canopies, whose centres the first prototypes are drawn from.
        max_iter : int, default=100
            Iterations at most; they end when no row changes its cluster.

        Returns
        -------
        CanopyMeans
            A named tuple: `labels`, `cluster_centers`, `inertia`, `n_iter`, `n_compared` (rows with prototypes, in all
            iterations), `n_canopies`, `t1` and `t2`. Computed in float64.
        """
        parameters, dataset = self._checked(), open_dataset(X)
        self._check_shape(dataset)
        if parameters["metric"] != "euclidean":
            raise InputError(f"metric={self.metric!r} should be 'euclidean': k-means knows no other distances.")
        bounds = {"n_clusters": Integer(at_least=1), "max_iter": Integer(at_least=1)}
        asked = check_parameters(bounds, {"n_clusters": n_clusters, "max_iter": max_iter})
        spec = self._run_spec(parameters, Inputs(dataset, False))
        arguments = {name: value for name, value in spec.arguments.items() if name != "metric"} | asked
        spec = replace(spec, function=k_means, arguments=arguments, dtype="float64")
        with connect(**self._place()) as cluster:
            outcome = run(replace(spec, memory_limit=parameters["memory_limit"]), dataset, cluster)
        found: MeansOutput = outcome.value
        means = found.means._replace(labels=outcome.arrays["labels"])
        return CanopyMeans(*means, found.n_canopies, *found.thresholds)

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
        shift = not METRICS[parameters["metric"]].unit_rows
        work = Work(math.prod(inputs.dataset.shape), "numbers in all rows", NUMBERS_OF_A_RANK)
        return RunSpec(canopy, arguments, estimate, parameters["dtype"], shift=shift, work=work)

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
                "center_indices": self.cluster_centers_indices_,  # deprecated, as n_canopies
                "cluster_centers": self.cluster_centers_,
                "memberships": self.memberships_,
            },
            scores={
                "n_clusters": k,
                "n_canopies": k,  # deprecated
                "memberships_per_row": value.total / n,
                "rows_in_one": alone,
                "t1": self.t1_,
                "t2": self.t2_,
                "n_steps": self.n_steps_,
            },
            warnings=_warnings(n, k, self.t1_, self.t2_, alone if suggested else 1.0, value.total),
            diagnostics={"computed_in": self.dtype, "thresholds": "suggested" if suggested else "given"},
            **frame,
        )


def _warnings(n: int, k: int, t1: float, t2: float, alone: float, total: int) -> list[str]:
    """Thresholds that say nothing of the rows; `alone` is the share of rows in one canopy, `total` all memberships."""
    if k == 1:
        return [f"a single canopy holds all rows within t1={t1:g} of its centre: t2={t2:g} is too large; lower both."]
    if k > n / 2:
        return [f"{k} of {n} rows are centres: hardly any rows lie within t2={t2:g} of each other; raise t1 and t2."]
    if total == n * k:
        return [
            f"each of the {k} canopies holds all {n} rows: none is farther than t1={t1:g} from a centre, so they tell "
            "nothing apart; lower t1."
        ]
    if alone < LEAST_ALONE:
        return [
            f"the number of canopies, {k}, follows from the suggested t1={t1:g} and t2={t2:g}, not from clusters: the "
            f"canopies overlap, and {alone:.1%} of the rows lie in one alone. Give t1 and t2 by what is near in these "
            "data, or take the canopies as blocks or as centres to start from."
        ]
    return []
