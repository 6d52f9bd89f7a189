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
    rho     one pass over all pairs; the same bits for equal rows (`mgclust.algorithms.common.equal_rows`)
    delta   one pass over all pairs, once every rank knows the rank order of all rho
    labels  pointer jumping along nearest_higher, log2(n) steps
    halo    one more pass, if asked for

In one, two or three dimensions the answers come in near-linear time (``algorithm="grid"``): a tree of boxes for dc,
and for delta given rho, bit for bit the same; a non-uniform FFT for the Gaussian rho, with a stated error.

Cost. Time: 2.5 n^2 reduced distances (d multiply-adds each) over all ranks. Memory per rank: its rows, two blocks in
flight, 40 n bytes of vectors. Communication per rank: three times the data, one histogram (8 MB), 20 n bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.common import near_linear
from mgclust.algorithms.common.equal_rows import EqualRows
from mgclust.algorithms.common.pair_quantile import BINS, pair_quantile, sample_rows, sample_size
from mgclust.algorithms.common.preparation import choose_norm, prepare_rows
from mgclust.algorithms.density_peaks.decision_graph import assign_labels, choose_centers
from mgclust.engine.memory import Estimate
from mgclust.engine.spmd import Context
from mgclust.errors import InputError
from mgclust.kernels.pairs.metrics import METRICS, Metric
from mgclust.kernels.pairs.neighbors import nearest_known

__all__ = ["DensityPeaksOutput", "density_peaks", "estimate"]

Array = Any

MIN_FEATURES_FOR_NEIGHBORS = 4


@dataclass(frozen=True)
class DensityPeaksOutput:
    """Rank 0's findings: the attributes of `DensityPeaks` by these names; `halo` is None where it was not asked for."""

    rho: np.ndarray
    delta: np.ndarray
    nearest_higher: np.ndarray
    centers: np.ndarray
    labels: np.ndarray
    halo: np.ndarray | None
    dc: float
    dc_error: float
    exactness: dict[str, Any]


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
) -> DensityPeaksOutput | None:
    """Run the method on every rank; rank 0 returns what `DensityPeaks.fit` reports."""
    measure = METRICS[metric]
    comm, xp, host = context.comm, context.kernels.xp, context.kernels.memory.to_host
    d = context.dataset_shape[1]
    passes = DensityState.finished(context)
    exactness = passes.exactness

    with context.stage("prepare"):
        radius = prepare_rows(context, measure).radius
        near = near_linear.applies(context.dataset_shape, measure, algorithm)
        tree = near_linear.build_tree(context) if near else None
        exactness["algorithm"] = "grid" if near else "brute"

    with context.stage("dc"):
        if dc is not None:
            passes.cut = CutoffDistance(measure.reduced(dc), dc, 0.0)
        elif passes.cut is None:
            exact = dc_method == "exact"
            sample = sample_rows(context, measure, dc_fraction, seed, rough=exact and near)
            if exact:
                norm = choose_norm(measure, d, radius, sample.low)
                s_dc, exactness["dc_passes"] = pair_quantile(context, sample, norm, tree)
                passes.cut = CutoffDistance(s_dc, measure.distance(s_dc), 0.0)
            else:
                passes.cut = CutoffDistance(sample.value, measure.distance(sample.value), sample.error)
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
    return DensityPeaksOutput(rho, delta, host(nearest), chosen, host(labels), flags, dc, dc_error, exactness)


class CutoffDistance(NamedTuple):
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
class DensityState:
    """What the passes have found: all there is to save, since a pass that was interrupted is begun anew.

    Attributes
    ----------
    exactness : dict
        How it was found, for `DensityPeaks.exactness_`.
    cut : CutoffDistance or None
    rho, best, nearest : arrays of shape (n,) or None
        Density; reduced distance and index of the nearest denser row. On the device of every rank.
    neighbors : Neighbors or None
        Until `nearest` is known.
    """

    exactness: dict[str, Any] = field(default_factory=dict)
    cut: CutoffDistance | None = None
    rho: Array = None
    neighbors: Neighbors | None = None
    best: Array = None
    nearest: Array = None

    @classmethod
    def finished(cls, context: Context) -> DensityState:
        """Those that an interrupted run has saved, or none."""
        saved = context.checkpoint.load()
        if saved is None:
            return cls()
        to_device = context.kernels.memory.to_device
        passes = cls(saved.control["exactness"], CutoffDistance(*saved.control["cut"]))
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
        arrays = {name: context.kernels.memory.to_host(array) for name, array in known.items() if array is not None}
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
    equal_rows = EqualRows(context)
    mine = xp.zeros(len(rows), dtype="float64")
    keep = kernels.pairs.NEIGHBORS if tree is None and rows.n_features >= MIN_FEATURES_FOR_NEIGHBORS else 0
    near = Neighbors.none_yet(context, keep)
    for chunk, block in context.all_pairs():
        own = slice(chunk.start - rows.start, chunk.stop - rows.start)
        kernels.pairs.gaussian_sum(
            chunk.x,
            block.x,
            norm=norm,
            scale=scale,
            power=measure.power,
            out=mine[own],
            rows=equal_rows.columns(chunk, block),
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
        context.kernels.pairs.count_within(chunk.x, block.x, norm=norm, threshold=s_dc, out=out)
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
        context.kernels.pairs.nearest_higher(
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
            largest = xp.maximum(largest, kernels.pairs.reduced_distances(x, chunk.x, norm=measure.norm).max())
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
            context.kernels.pairs.border(
                chunk.x,
                block.x,
                labels[chunk.start : chunk.stop],
                labels[block.start : block.stop],
                norm=norm,
                threshold=s_dc,
                out=mine[chunk.start - context.rows.start : chunk.stop - context.rows.start],
            )
        border = context.comm.all_gather(mine)
    on_border = context.kernels.memory.to_host(border).astype(bool)
    label = context.kernels.memory.to_host(labels)
    densest_border = np.full(int(label.max()) + 1, -np.inf)
    np.maximum.at(densest_border, label[on_border], rho[on_border])
    return rho <= densest_border[label]


def estimate(
    shape: tuple[int, int], itemsize: int, size: int, resident_limit: int, *, metric: str, algorithm: str
) -> Estimate:
    """What a rank needs beside its rows."""
    n, d = shape
    # rho, delta, nearest_higher, order, labels, and one copy while they are gathered; what `EqualRows` sorts before.
    vectors = 64 * n
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
