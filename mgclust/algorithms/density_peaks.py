r"""Density peaks clustering (Rodriguez and Laio, Science 344:1492, 2014), on any number of ranks.

With d_ij the distance of rows i and j, and dc the distance below which `dc_fraction` of the pairs i < j lie::

    rho_i   = sum over j != i of exp(-(d_ij / dc)^2)        (gaussian)     or  #{j != i : d_ij < dc}  (cutoff)
    delta_i = min over j denser than i of d_ij               nearest_higher_i = that j
    delta   = max over j of d_ij                             for the densest row

"Denser" is a total order: larger rho, and of equal rho the lower index. Of equally near denser rows the
lowest index is the nearest. Centres have a large rho and a large delta; every other row takes the label of
its nearest higher row. Row i of a cluster is in its border if a row of another cluster lies within dc; the
halo are the rows no denser than the densest border row of their cluster.

What runs where. Every rank owns runs of row blocks; the blocks of all ranks stream past each rank in one global
order, and tiles are reduced as they are computed, so there is never an n x n array::

    dc      bracket from a sample, then one pass over the pairs i < j: a histogram of the representable
            values within the bracket. Its bin of the wanted rank is refined (float32: it seldom needs it)
            until it is one value wide: the same value that sorting all distances would give.
    rho     one pass over all pairs
    delta   one pass over all pairs, once every rank knows the rank order of all rho
    labels  pointer jumping along nearest_higher, log2(n) steps
    halo    one more pass, if asked for

In one, two or three dimensions the answers come in near-linear time (``algorithm="grid"``): a tree of boxes for dc,
and for delta given rho, bit for bit the same; a non-uniform FFT for the Gaussian rho, with a stated error.

Cost. Time: 2.5 n^2 reduced distances (d multiply-adds each) over all ranks. Memory per rank: its rows, two blocks in
flight, 40 n bytes of vectors. Communication per rank: three times the data, one histogram (8 MB), 20 n bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mgclust.algorithms import near_linear
from mgclust.algorithms.base import Clusterer, Job
from mgclust.algorithms.centers import CLEAR_DROP, assign_labels, choose_centers, gamma_drop
from mgclust.algorithms.pair_quantile import BINS, pair_quantile, sample_rows, sample_size
from mgclust.algorithms.preparation import choose_norm, prepare_rows
from mgclust.engine.memory import Estimate
from mgclust.engine.spmd import Context, Outcome
from mgclust.errors import InputError
from mgclust.kernels.metrics import METRICS, Metric
from mgclust.kernels.neighbors import nearest_known
from mgclust.params import Boolean, Choice, Constraint, Integer, Real, check_parameters
from mgclust.result import Result

__all__ = ["DensityPeaks"]

Array = Any

MIN_FEATURES_FOR_NEIGHBORS = 4


def density_peaks(
    context: Context,
    *,
    metric: str,
    dc: float | None,
    dc_fraction: float,
    dc_method: str,
    kernel: str,
    centers: dict[str, Any],
    halo: bool,
    algorithm: str,
    seed: int,
) -> dict[str, Any] | None:
    """Run the method on every rank; rank 0 returns what `DensityPeaks.fit` reports."""
    measure = METRICS[metric]
    comm, xp, host = context.comm, context.kernels.xp, context.kernels.to_host
    d = context.dataset_shape[1]
    passes = Passes.finished(context)
    exactness = passes.exactness

    with context.stage("prepare"):
        radius = prepare_rows(context, measure).radius
        near = near_linear.applies(context.dataset_shape, measure, algorithm)
        tree = near_linear.plant(context) if near else None
        exactness["algorithm"] = "grid" if near else "brute"

    with context.stage("dc"):
        if dc is not None:
            passes.cut = Cut(measure.reduced(dc), dc, 0.0)
        elif passes.cut is None:
            exact = dc_method == "exact"
            sample = sample_rows(context, measure, dc_fraction, seed, rough=exact and near)
            if exact:
                norm = choose_norm(measure, d, radius, sample.low)
                s_dc, exactness["dc_passes"] = pair_quantile(context, sample, norm, tree)
                passes.cut = Cut(s_dc, measure.distance(s_dc), 0.0)
            else:
                passes.cut = Cut(sample.value, measure.distance(sample.value), sample.error)
            passes.keep(context)
        s_dc, dc, dc_error = passes.cut
        if dc <= 0:
            raise InputError(
                f"dc=0: at least dc_fraction={dc_fraction:g} of the pairs coincide; raise dc_fraction, give dc, "
                "or drop duplicate rows."
            )
    norm = exactness["norm"] = choose_norm(measure, d, radius, s_dc)

    with context.stage("rho"):
        if passes.rho is None:
            if kernel == "cutoff":
                passes.rho = cutoff_rho(context, tree, norm, s_dc)
            else:
                passes.rho, passes.neighbors = gaussian_rho(context, tree, measure, norm, dc, exactness)
            passes.keep(context)

    with context.stage("delta"):
        if passes.nearest is None:
            order = density_order(xp, passes.rho)
            passes.best, passes.nearest = nearest_higher(context, tree, passes.neighbors, norm, order, exactness)
            densest = int(xp.argmin(order))
            passes.best[densest] = farthest(context, measure, densest)
            passes.neighbors = None
            passes.keep(context)
        delta = distances(xp, measure, passes.best)

    with context.stage("labels"):
        rho, delta, nearest = host(passes.rho), host(delta), passes.nearest
        chosen = choose_centers(rho, delta, **centers)
        labels = assign_labels(xp, nearest, chosen)

    flags = None
    if halo:
        with context.stage("halo"):
            flags = halo_rows(context, tree, norm, s_dc, labels, rho)

    if comm.rank != 0:
        return None
    return {
        "rho": rho,
        "delta": delta,
        "nearest_higher": host(nearest),
        "centers": chosen,
        "labels": host(labels),
        "halo": flags,
        "dc": dc,
        "dc_error": dc_error,
        "exactness": exactness,
    }


class Cut(NamedTuple):
    """The cut-off distance: reduced, as it is, and its error."""

    s: float
    distance: float
    error: float


class Neighbors(NamedTuple):
    """The nearest rows of each of this rank's rows, kept on the way by the density pass."""

    s: Array
    index: Array

    @classmethod
    def none_yet(cls, context: Context, count: int) -> Neighbors:
        """Room for so many a row."""
        xp, shape = context.kernels.xp, (len(context.rows), count)
        return cls(xp.full(shape, xp.inf, dtype=context.dtype), xp.full(shape, -1, dtype="int64"))


@dataclass
class Passes:
    """What the passes have found: all there is to save, since a pass that was interrupted is begun anew.

    Attributes
    ----------
    exactness : dict
        How it was found, for `DensityPeaks.exactness_`.
    cut : Cut or None
    rho, best, nearest : arrays of shape (n,) or None
        Density; reduced distance and index of the nearest denser row. On the device of every rank.
    neighbors : Neighbors or None
        Until `nearest` is known.
    """

    exactness: dict[str, Any] = field(default_factory=dict)
    cut: Cut | None = None
    rho: Array = None
    neighbors: Neighbors | None = None
    best: Array = None
    nearest: Array = None

    @classmethod
    def finished(cls, context: Context) -> Passes:
        """Those that an interrupted run has saved, or none."""
        saved = context.checkpoint.load()
        if saved is None:
            return cls()
        to_device = context.kernels.to_device
        passes = cls(saved.control["exactness"], Cut(*saved.control["cut"]))
        for name, array in saved.arrays.items():
            setattr(passes, name, to_device(array))
        if saved.control["neighbors"]:
            passes.neighbors = Neighbors.none_yet(context, saved.control["neighbors"])
            for name, array in passes.neighbors._asdict().items():
                for place, rows in saved.rows(f"neighbors_{name}"):
                    array[place] = to_device(rows)
        return passes

    def keep(self, context: Context) -> None:
        """Save them if it is time to."""
        if not context.checkpoint.due(seldom=True):
            return
        known = {name: getattr(self, name) for name in ("rho", "best", "nearest")}
        arrays = {name: context.kernels.to_host(array) for name, array in known.items() if array is not None}
        near = {} if self.neighbors is None else self.neighbors._asdict()
        context.checkpoint.save(
            {"exactness": self.exactness, "cut": self.cut, "neighbors": near["s"].shape[1] if near else 0},
            arrays,
            {f"neighbors_{name}": array for name, array in near.items()},
        )


def gaussian_rho(
    context: Context, tree: Any, measure: Metric, norm: str, dc: float, exactness: dict[str, Any]
) -> tuple[Array, Neighbors | None]:
    """Gaussian density of all rows, float64: by the FFT where there is a tree, else by a pass over all pairs."""
    kernels, xp, rows = context.kernels, context.kernels.xp, context.rows
    scale = measure.scale(dc)
    if tree is not None and measure.power == 1:
        found = near_linear.gaussian_rho(context, tree, scale)
        if found is not None:
            exactness["rho_relative_error"] = found.relative_error
            exactness["rho_recomputed_rows"] = found.recomputed
            return found.values, None
    mine = xp.zeros(len(rows), dtype="float64")
    keep = kernels.NEIGHBORS if tree is None and rows.n_features >= MIN_FEATURES_FOR_NEIGHBORS else 0
    near = Neighbors.none_yet(context, keep)
    for chunk, block in context.all_pairs():
        own = slice(chunk.start - rows.start, chunk.stop - rows.start)
        kernels.gaussian_sum(
            chunk.x,
            block.x,
            norm=norm,
            scale=scale,
            power=measure.power,
            out=mine[own],
            rows=xp.arange(chunk.start, chunk.stop),
            y_start=block.start,
            near=near.s[own] if keep else None,
            near_index=near.index[own] if keep else None,
        )
    return context.comm.all_gather(mine), near if keep else None


def cutoff_rho(context: Context, tree: Any, norm: str, s_dc: float) -> Array:
    """How many other rows lie within dc of each row, float64."""
    if tree is not None:
        return near_linear.count_within(context, tree, s_dc).astype("float64") - 1.0
    mine = context.kernels.xp.zeros(len(context.rows), dtype="int64")
    for chunk, block in context.all_pairs():
        out = mine[chunk.start - context.rows.start : chunk.stop - context.rows.start]
        context.kernels.count_within(chunk.x, block.x, norm=norm, threshold=s_dc, out=out)
    return context.comm.all_gather(mine).astype("float64") - 1.0


def density_order(xp: Any, rho: Array) -> Array:
    """Each row's position by decreasing rho, equal rho by index; int32."""
    order = xp.empty(rho.shape[0], dtype="int32")
    order[xp.argsort(-rho, kind="stable")] = xp.arange(rho.shape[0], dtype="int32")
    return order


def nearest_higher(
    context: Context, tree: Any, neighbors: Neighbors | None, norm: str, order: Array, exactness: dict[str, Any]
) -> tuple[Array, Array]:
    """Reduced distance and index of each row's nearest denser row; inf and -1 for the densest."""
    if tree is not None:
        return near_linear.nearest_higher(context, tree, order)
    xp, rows = context.kernels.xp, context.rows
    own_order = order[rows.start : rows.stop]
    best = xp.full(len(rows), xp.inf, dtype=context.dtype)
    index = xp.full(len(rows), -1, dtype="int64")
    missing = None  # rows whose kept neighbours do not decide
    if neighbors is not None:
        known, where, certain = nearest_known(order, own_order, *neighbors, xp)
        best[certain], index[certain] = known[certain], where[certain]
        missing = ~certain
        searched = context.comm.all_reduce(xp.asarray([int(missing.sum())]), "sum")
        exactness["delta_searched_rows"] = int(searched[0])
    for chunk, block in context.all_pairs():
        mine = slice(chunk.start - rows.start, chunk.stop - rows.start)
        x, which = chunk.x, mine
        if missing is not None:
            few = xp.flatnonzero(missing[mine])
            x, which = chunk.x[few], few + mine.start
        s, at = best[which], index[which]
        context.kernels.nearest_higher(
            x,
            block.x,
            own_order[which],
            order[block.start : block.stop],
            norm=norm,
            y_start=block.start,
            best=s,
            best_index=at,
        )
        best[which], index[which] = s, at
    return context.comm.all_gather(best), context.comm.all_gather(index)


def farthest(context: Context, measure: Metric, row: int) -> float:
    """The largest reduced distance from one row of the data set to any other."""
    kernels, xp = context.kernels, context.kernels.xp
    owner = context.partition.owner(row // context.partition.block_rows)
    x = context.rows.read(row, row + 1) if owner == context.comm.rank else None
    x = context.comm.broadcast(x, owner)
    largest = xp.zeros(1)
    for chunk in context.rows.chunks():
        if chunk.x.shape[0]:
            largest = xp.maximum(largest, kernels.reduced_distances(x, chunk.x, norm=measure.norm).max())
    return float(context.comm.all_reduce(largest, "max")[0])


def distances(xp: Any, measure: Metric, s: Array) -> Array:
    """Reduced distances as distances, float64."""
    wide = s.astype("float64")
    return wide * measure.factor if measure.squared else xp.sqrt(wide)


def halo_rows(context: Context, tree: Any, norm: str, s_dc: float, labels: Array, rho: np.ndarray) -> np.ndarray:
    """Whether each row is in its cluster's halo."""
    if tree is not None:
        border = near_linear.halo_border(context, tree, labels, s_dc)
    else:
        mine = context.kernels.xp.zeros(len(context.rows), dtype="uint8")
        for chunk, block in context.all_pairs():
            context.kernels.border(
                chunk.x,
                block.x,
                labels[chunk.start : chunk.stop],
                labels[block.start : block.stop],
                norm=norm,
                threshold=s_dc,
                out=mine[chunk.start - context.rows.start : chunk.stop - context.rows.start],
            )
        border = context.comm.all_gather(mine)
    on_border = context.kernels.to_host(border).astype(bool)
    label = context.kernels.to_host(labels)
    densest_border = np.full(int(label.max()) + 1, -np.inf)
    np.maximum.at(densest_border, label[on_border], rho[on_border])
    return rho <= densest_border[label]


def estimate(
    shape: tuple[int, int], itemsize: int, size: int, resident_limit: int, *, metric: str, algorithm: str
) -> Estimate:
    """What a rank needs beside its rows."""
    n, d = shape
    vectors = 48 * n  # rho, delta, nearest_higher, order, labels, and one copy while they are gathered
    histogram = 2 * 8 * BINS
    sample = sample_size(n, d) * d * itemsize
    what = {"vectors of n": vectors, "histogram": histogram, "sample": sample}
    near = near_linear.applies(shape, METRICS[metric], algorithm)
    if near:
        what["tree"] = near_linear.BYTES_PER_ROW * n * itemsize // 4
        what["grid"] = near_linear.BYTES_PER_CELL * near_linear.most_cells(n)
    return Estimate(
        0, sum(what.values()), what, histogram + near_linear.BYTES_PER_CELL * near_linear.LEAST_CELLS * near
    )


class DensityPeaks(Clusterer):
    """Density peaks clustering of Rodriguez and Laio (2014), exact, on one or many CPUs or GPUs.

    Parameters
    ----------
    n_clusters : int, optional
        Number of clusters: the rows with the largest ``rho * delta`` become centres. Without it, and without
        `rho_min` and `delta_min`, the number is found by `automatic_count`: the largest drop of
        ``log(rho * delta)``.
    dc : float, optional
        Cut-off distance, in the units of the metric. Found from `dc_fraction` if left out.
    dc_fraction : float, default=0.02
        Share of the pairs i < j that lie within dc; 0.01 to 0.02 is customary. dc is the
        ``round(dc_fraction * n (n - 1) / 2)``-th smallest distance.
    dc_method : {"exact", "sample"}, default="exact"
        "sample" takes dc from the distances among at most 32768 rows (fewer of many features) and reports its error
        as `dc_error_`.
    kernel : {"gaussian", "cutoff"}, default="gaussian"
        How a neighbour counts for rho: ``exp(-(d / dc)^2)``, or 1 if ``d < dc``.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "correlation"}, default="euclidean"
    rho_min, delta_min : float, optional
        Centres are the rows above both (the rectangle of the decision graph); at most `n_clusters` if that is given.
    halo : bool, default=False
        Also find each cluster's halo, the rows that may be noise, with one more pass.
    algorithm : {"auto", "brute", "grid"}, default="auto"
        "brute" passes over all pairs. "grid" takes near-linear time in one to three dimensions: dc, cutoff densities,
        and delta for the densities found are the same bit for bit; the Gaussian rho has the relative error in
        ``exactness_``, which may order rows of nearly equal density differently. "auto" takes it for
        Euclidean data that it pays for.
    device : {"auto", "cpu", "cuda"}, default="auto"
    client : {"auto", "local"}, None, address or distributed.Client, default="auto"
        Where to run: the active Dask client or else this process; this process; all GPUs of this machine; the given
        cluster.
    dtype : {"float32", "float64"}, default="float32"
    memory_limit : int or str, optional
        Device memory that one rank may use; data beyond it stay on the host and are streamed.
    random_state : int, Generator or RandomState, optional
        Seed of the sample of rows that brackets dc; it decides dc only with ``dc_method="sample"``.
    verbose : bool, default=False

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Cluster of each row; clusters are numbered by decreasing ``rho * delta`` of their centre.
    cluster_centers_indices_ : ndarray of shape (n_clusters_,), int64
    n_clusters_ : int
    dc_, dc_error_ : float
        The cut-off distance and, if it was sampled, half the width of its 95% confidence interval (else 0).
    rho_, delta_ : ndarray of shape (n_samples,), float64
        Density without the row itself; distance to the nearest denser row.
    nearest_higher_ : ndarray of shape (n_samples,), int64
        That row; -1 for the densest one.
    halo_ : ndarray of shape (n_samples,), bool
        Whether the row is in its cluster's halo; all False without ``halo=True``.
    exactness_ : dict
        How the figures were found: algorithm, passes for dc, rows whose rho was recomputed by the direct sum.
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

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import DensityPeaks
    >>> X = np.array([[0.0, 0], [0, 1], [1, 0], [9, 9], [9, 8], [8, 9]])
    >>> DensityPeaks(n_clusters=2, dc=1.5).fit(X).labels_.tolist()
    [0, 0, 0, 1, 1, 1]
    """

    method = "density-peaks"
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": Integer(
            at_least=1, optional=True, help="Number of clusters; automatic if left out.",
            remedy="give the number of clusters or leave it out",
        ),
        "dc": Real(above=0, optional=True, help="Cut-off distance; from dc_fraction if left out."),
        "dc_fraction": Real(above=0, at_most=1, help="Share of the pairs within dc."),
        "dc_method": Choice("exact", "sample", help="How dc is found."),
        "kernel": Choice("gaussian", "cutoff", help="How a neighbour counts for rho."),
        "metric": Choice(*METRICS, help="Distance between rows."),
        "rho_min": Real(optional=True, help="Centres have a larger rho."),
        "delta_min": Real(optional=True, help="Centres have a larger delta."),
        "halo": Boolean(help="Find the halo of each cluster as well."),
        "algorithm": Choice("auto", "brute", "grid", help="All pairs, or near-linear in 1 to 3 dimensions."),
    }  # fmt: skip

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        dc: float | None = None,
        dc_fraction: float = 0.02,
        dc_method: str = "exact",
        kernel: str = "gaussian",
        metric: str = "euclidean",
        rho_min: float | None = None,
        delta_min: float | None = None,
        halo: bool = False,
        algorithm: str = "auto",
        device: str = "auto",
        client: Any = "auto",
        dtype: str = "float32",
        memory_limit: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.dc = dc
        self.dc_fraction = dc_fraction
        self.dc_method = dc_method
        self.kernel = kernel
        self.metric = metric
        self.rho_min = rho_min
        self.delta_min = delta_min
        self.halo = halo
        self.algorithm = algorithm
        self.device = device
        self.client = client
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose

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
        arrays = {name: np.asarray(array) for name, array in result.arrays.items()}
        model.rho_, model.delta_, model.nearest_higher_ = arrays["rho"], arrays["delta"], arrays["nearest_higher"]
        model.dc_, model.dc_error_ = result.scores["dc"], result.scores["dc_error"]
        model.exactness_ = result.diagnostics.get("exactness", {})
        model.timings_ = result.timings
        model.n_features_in_ = result.source["shape"][1]
        model._relabel(arrays["centers"], np.asarray(result.labels), arrays.get("halo"))
        model.result_ = result
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
            pass, becomes all False.
        """
        check_is_fitted(self, "rho_")
        wanted: dict[str, Any] = {"n_clusters": n_clusters, "rho_min": rho_min, "delta_min": delta_min}
        check_parameters({name: self.constraints[name] for name in wanted}, wanted)
        upper: dict[str, Any] = {"rho_max": rho_max, "delta_max": delta_max}
        check_parameters({name: Real(optional=True) for name in upper}, upper)
        centers = choose_centers(self.rho_, self.delta_, indices=indices, **wanted, **upper)
        self._relabel(centers, assign_labels(np, self.nearest_higher_, centers), None)
        given: dict[str, Any] = {name: limit for name, limit in upper.items() if limit is not None}
        if indices is not None:
            given["indices"] = centers.tolist()
        parameters = {**self.result_.parameters, **wanted, **given, "halo": False}
        automatic = not given and _is_automatic(wanted)
        self.result_ = replace(self.result_, parameters=parameters, **self._findings(automatic, False))
        return self

    def _relabel(self, centers: np.ndarray, labels: np.ndarray, halo: np.ndarray | None) -> None:
        self.cluster_centers_indices_ = centers
        self.n_clusters_ = len(centers)
        self.labels_ = labels
        self.halo_ = np.zeros(len(labels), dtype=bool) if halo is None else halo

    def _job(self, parameters: dict[str, Any], shape: tuple[int, int]) -> Job:
        n_clusters, dc = parameters["n_clusters"], parameters["dc"]
        limits = np.finfo(parameters["dtype"])
        low, high = float(limits.tiny) ** 0.45, float(limits.max) ** 0.45
        if dc is not None and not low < dc < high:
            raise InputError(
                f"dc={dc:g} should be between {low:.1g} and {high:.1g}, whose squares "
                f"dtype='{parameters['dtype']}' holds; rescale the data or leave dc out."
            )
        if n_clusters is not None and n_clusters > shape[0]:
            raise InputError(f"n_samples={shape[0]} should be >= n_clusters={n_clusters}; ask for fewer clusters.")
        own = ("metric", "dc", "dc_fraction", "dc_method", "kernel", "halo", "algorithm")
        arguments = {name: parameters[name] for name in own}
        arguments["centers"] = {name: parameters[name] for name in ("n_clusters", "rho_min", "delta_min")}
        arguments["seed"] = self._seed(parameters["random_state"])
        need = partial(estimate, metric=parameters["metric"], algorithm=parameters["algorithm"])
        return Job(density_peaks, arguments, need, shift=not METRICS[parameters["metric"]].unit_rows)

    def _publish(self, outcome: Outcome, frame: dict[str, Any]) -> Result:
        value = outcome.value
        self.rho_, self.delta_, self.nearest_higher_ = value["rho"], value["delta"], value["nearest_higher"]
        self.dc_, self.dc_error_ = value["dc"], value["dc_error"]
        self.exactness_ = value["exactness"]
        self._relabel(value["centers"], value["labels"], value["halo"])
        return Result(**self._findings(_is_automatic(frame["parameters"]), self.halo), **frame)

    def _findings(self, automatic: bool, halo: bool) -> dict[str, Any]:
        """The part of a Result that depends on the centres, and what to warn of."""
        arrays = {
            "rho": self.rho_,
            "delta": self.delta_,
            "nearest_higher": self.nearest_higher_,
            "centers": self.cluster_centers_indices_,
        }
        if halo:
            arrays["halo"] = self.halo_
        drop = gamma_drop(self.rho_, self.delta_, self.cluster_centers_indices_)
        warnings = []
        if self.dc_error_:
            warnings.append(
                f"dc={self.dc_:g} was sampled: the exact value lies within {self.dc_error_:.2g} of it (95%)."
            )
        if automatic and drop < CLEAR_DROP:
            warnings.append(
                f"the centres do not stand out: the last one's rho * delta is only {drop:.2g} times the next row's. "
                "Look at the decision graph; give n_clusters, or thresholds, or try another dc_fraction."
            )
        return {
            "labels": self.labels_,
            "arrays": arrays,
            "scores": {"n_clusters": self.n_clusters_, "dc": self.dc_, "dc_error": self.dc_error_, "gamma_drop": drop},
            "diagnostics": {"exactness": self.exactness_},
            "warnings": warnings,
        }


def _is_automatic(parameters: dict[str, Any]) -> bool:
    return all(parameters[name] is None for name in ("n_clusters", "rho_min", "delta_min"))
