r"""Density peaks clustering on any number of ranks.

The method follows Rodriguez and Laio (Science 344:1492, 2014). d_ij is the distance between rows i and j. dc is the
cut-off distance: the fraction `dc_fraction` of the pairs i < j is closer than dc::

    rho_i              density, by `density` (with weights, see `AllPairs.weighted_rho`):
        "gaussian"         sum over j != i of exp(-(d_ij / dc)^2)
        "cutoff"           number of rows j != i with d_ij < dc
        "knn"              1 / distance from row i to its k-th nearest row; needs no dc
    nearest_higher_i   nearest row that is denser than row i
    delta_i            distance to that row; for the densest row, the distance to the farthest row

Ties. Rows are ordered by decreasing rho, and rows of equal rho by index. Among denser rows at the same distance, the
one with the lowest index is the nearest.

Labels. Rows with a large rho and a large delta are the centres. Every other row takes the label of its nearest denser
row.

Halo. A row is on the border of its cluster if a row of another cluster lies within dc. The halo of a cluster consists
of the rows that are no denser than its densest border row.

Parallel execution. Each rank owns consecutive blocks of rows. In every pass, the blocks of all ranks stream past each
rank in one global order. A tile of distances is reduced as soon as it is computed, so no n x n array exists. Stages::

    fraction  choose `dc_fraction` if it is not given                           (`cutoff_distance.fraction_choice`)
    dc        bracket the quantile by a sample; then, in one pass over the pairs i < j, build a histogram of the
              representable values in the bracket, and refine the bin that holds the requested rank until it is one
              value wide (seldom needed in float32). The result is the value that sorting all distances would give.
    rho       one pass over all pairs; duplicate rows get the same rho          (`passes.duplicate_rows`)
              "knn": up to a constant, the d-th root of the density k / (n V_d r^d) of Loftsgaarden and Quesenberry
              (1965), where r is the distance to the k-th nearest row. The root keeps the order of the rows and does not
              overflow for any d.
              k="adaptive": k is chosen for each row                            (`topography.adaptive_density`)
    delta     one pass over all pairs, once every rank knows the density order of all rows
    labels    pointer jumping along nearest_higher in log2(n) steps
              `significance`: from the lists of nearest rows                    (`topography.significance`)
    halo      one more pass if requested; none with `significance`

Two paths replace the passes over all pairs:

- Trees and grids, in one to three dimensions (``algorithm="grid"``, `passes.near_linear`). A tree of bounding boxes
  gives dc, and delta for a given rho; both are bitwise identical to the values from all pairs. A non-uniform FFT gives
  the Gaussian rho, with a stated error. The time is nearly linear in n.
- Precomputed distances (``metric="precomputed"``, `passes.precomputed_pairs`). Each rank reads its own rows of the
  matrix, in one or a few passes per stage.

Cost of the passes over all pairs. Time: 2.5 n^2 reduced distances of d multiply-adds, shared by the ranks. Memory per
rank: its rows, two blocks in flight, and 64 n bytes of vectors. Communication per rank: three times the data, one
histogram (8 MB), and 20 n bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.algorithms.density_peaks.clusters import ChosenClusters, choose_clusters
from mgclust.algorithms.density_peaks.cutoff_distance.cutoff import CHOOSE, CutoffDistance, find_cutoff
from mgclust.algorithms.density_peaks.cutoff_distance.fraction_choice import choose_fraction
from mgclust.algorithms.density_peaks.cutoff_distance.row_sample import COMPARED_ROWS, draw_sample
from mgclust.algorithms.density_peaks.cutoff_distance.sample_passes import densities_at
from mgclust.algorithms.density_peaks.cutoff_distance.separation import FullPeaks, graph_of
from mgclust.algorithms.density_peaks.cutoff_distance.spanning_tree import MIN_NEIGHBORS
from mgclust.algorithms.density_peaks.decision_graph import (
    choose_centers,
    clear_drop,
    density_order,
    gamma_drop,
    number_of_different,
)
from mgclust.algorithms.density_peaks.density_state import DensityState
from mgclust.algorithms.density_peaks.lost_groups import lost_groups
from mgclust.algorithms.density_peaks.passes import near_linear
from mgclust.algorithms.density_peaks.passes.all_pairs import AllPairs, Neighbors
from mgclust.algorithms.density_peaks.passes.precomputed_pairs import PrecomputedPairs, measure_of
from mgclust.algorithms.density_peaks.topography.adaptive_density import log_densities
from mgclust.algorithms.density_peaks.topography.significance import CLEAR_NEIGHBORS, Peaks, significant_clusters
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import any_true, count_true
from mgclust.kernels.pairs.metrics import Metric

__all__ = ["FIRST_CALLS", "DensityPeaksOutput", "density_peaks"]

Array = Any
LINE_ROWS = 256  # rows of the sample that shows whether all rows lie on a line
MAX_LINE_FEATURES = 1024
LINE_SPREAD = 1e-5  # largest variance across a line, relative to the variance along it
FIRST_CALLS: dict[str, dict[str, Any]] = {
    "pairs.pair_histogram": {}, "pairs.count_within": {}, "pairs.nearest_higher": {}, "pairs.gaussian_sum": {},
    "pairs.nearest_rows": {},
}  # fmt: skip


@dataclass(frozen=True)
class DensityPeaksOutput:
    """Findings of rank 0 in addition to the delivered arrays; the attributes of `DensityPeaks` have the same names."""

    centers: np.ndarray
    gamma_drop: float
    different_rows: int  # number of distinct rows
    lone_rows: int  # number of rows whose rho is 0
    dc: float | None
    dc_error: float
    dc_fraction: float | None
    exactness: dict[str, Any]
    choice: dict[str, Any] | None
    separation: FullPeaks | None  # None: each row follows its nearest denser row
    mixed: int  # number of separated clusters, if clusters of a given number cut across them; else 0
    lost: tuple[int, int]  # number of groups that lie far from the rest of their clusters, and number of their rows
    intrinsic_dim: tuple[float, int] | None  # dimension, and number of rows from which it was found
    peaks: Peaks | None


def density_peaks(
    context: Context,
    *,
    metric: str,
    dc: float | None,
    dc_fraction: float | str,
    assignment: str,
    dc_method: str,
    sample_size: int | None,
    density: str,
    k: int,
    adaptive: bool,
    significance: float | None,
    centers: dict[str, Any],
    halo: bool,
    algorithm: str,
    seed: int,
    weights: np.ndarray | None = None,
) -> DensityPeaksOutput | None:
    """Run the method on every rank; rank 0 returns the findings that `DensityPeaks.fit` reports.

    dc_fraction: see `cutoff.find_cutoff`.
    adaptive: whether each row uses only those of its k nearest rows that share its density.
    weights: weights of this rank's rows.

    Each rank delivers "labels", "rho", "delta" and "nearest_higher" of its rows; with `halo`, also "halo"; if the
    densities have errors, also "k", "log_density" and "log_density_error".
    """
    measure = measure_of(metric)
    xp, host = context.kernels.xp, context.kernels.memory.to_host
    state = DensityState.finished(context)
    exactness = state.exactness
    every_weight = None if weights is None else context.comm.all_gather(xp.asarray(weights, "float64"))
    rest = np.zeros(0, np.int64) if every_weight is None else np.flatnonzero(host(every_weight) == 0)
    options: dict[str, Any] = {"gaussian": density == "gaussian", "weights": every_weight}

    with context.stage("prepare"):
        passes: AllPairs
        if metric == "precomputed":
            passes = PrecomputedPairs(context, measure, exactness, **options)
        elif near_linear.is_taken(context.dataset_shape, measure, algorithm):
            passes = near_linear.NearLinear(context, measure, exactness, **options)
        else:
            passes = AllPairs(context, measure, exactness, **options)

        if metric != "precomputed" and all(each is None for each in centers.values()) and _on_a_line(context):
            exactness["on_a_line"] = True

    automatic = all(each is None for each in centers.values())
    # Clusters of a given number are compared with clusters separated by low density, for a warning.
    compared = assignment == "auto" and centers["n_clusters"] is not None and context.dataset_shape[1] > 1
    with context.stage("dc"):
        sample, graph, better = None, None, None
        wanted = assignment == "separated" or compared
        if state.separated is None and density == "gaussian" and (wanted or dc_fraction == CHOOSE):
            limit = COMPARED_ROWS if compared else None
            sample = draw_sample(context, seed, every_weight, given=metric == "precomputed", most=limit)
        if dc is not None:
            state.cut = CutoffDistance(measure.reduced(dc), dc, 0.0, None)
        elif state.cut is None and (density != "knn" or (halo and significance is None)):
            if dc_fraction == CHOOSE and sample is not None:
                line = "on_a_line" in exactness
                state.choice, better, graph = choose_fraction(
                    context, measure, sample, on_a_line=line, assignment=assignment
                )
            state.cut = find_cutoff(
                context, measure, passes, dc_fraction, state.choice, exactness,
                exact=dc_method == "exact", pairs=sample_size, seed=seed,
            )  # fmt: skip
        if sample is not None and state.cut is not None and (wanted or better is not None):
            if graph is None and (assignment == "separated" or len(sample) > MIN_NEIGHBORS):
                graph = graph_of(context, measure, sample)
            if graph is not None:
                at_dc = host(densities_at(context, measure, sample, [state.cut.distance])[0])
                state.separated = graph.separated(at_dc, centers["n_clusters"], better, compared=compared)
        del sample, graph
        state.keep(context)
    s_dc, dc, dc_error, fraction = state.cut or CutoffDistance(0.0, None, 0.0, None)
    norm = exactness["norm"] = passes.norm(0.0 if density == "knn" else s_dc)

    with context.stage("rho"):
        if state.rho is None:
            if adaptive or significance is not None:
                state.neighbors = passes.nearest_rows(k)
                most = context.dataset_shape[1] if metric != "precomputed" else float("inf")
                state.log_density, state.rho = log_densities(
                    context, measure, state.neighbors, adaptive=adaptive, most_dim=most
                )
            elif density == "knn":
                state.rho, state.neighbors = passes.knn_rho(k)
            elif metric == "precomputed" or weights is not None:
                on_device = None if every_weight is None else every_weight.astype(context.dtype)
                state.rho = passes.weighted_rho(density, s_dc, on_device)
            elif density == "cutoff":
                state.rho = passes.count_within(norm, s_dc).astype("float64") - 1.0
            else:
                state.rho, state.neighbors = passes.gaussian_rho(norm, dc)
            if density == "gaussian" and metric != "precomputed":
                total = float(context.dataset_shape[0])
                if every_weight is not None:
                    total = float(every_weight.sum())
                exactness["rho_relative_error"] = passes.rho_error(dc, total)
            elif density == "cutoff" and metric != "precomputed":
                passes.watch_distances(np.array([dc]))
            elif density == "knn" and metric != "precomputed" and not adaptive:
                dense = host(state.rho)
                passes.watch_distances(np.where(dense < dense.max(), 1 / dense, 0.0))  # 0 for rows with k duplicates
            state.keep(context)

    with context.stage("delta"):
        rho = state.rho  # defines the order: rows of weight 0 come last, so no other row links to them
        if len(rest):
            rho = rho.copy()
            rho[xp.asarray(rest)] = -1.0
        if state.nearest is None:
            state.best, state.nearest = _nearest_higher(xp, passes, norm, rho, state.neighbors)
            if significance is None:
                state.neighbors = None
            state.keep(context)
        delta = measure.distances(state.best.astype("float64"), xp)

    with context.stage("labels"):
        nearest = state.nearest
        topography, peaks = None, None
        found, near = state.log_density, state.neighbors
        if significance is not None and found is not None and near is not None:
            order = density_order(xp, state.rho)
            topography = significant_clusters(context, found, near, order, nearest, host(rho * delta), significance)
            clusters = ChosenClusters(topography.centers, topography.labels)
            standing = _standing_out(context, passes, measure, norm, near, on_a_line="on_a_line" in exactness)
            joined = int((np.bincount(topography.labels[standing]) > 1).sum())
            peaks = topography.peaks._replace(standing=len(standing), joined=joined)
        else:
            clusters = choose_clusters(context, state, rho, delta, centers, compared=compared)
        chosen, labels = clusters.centers, clusters.labels
        if clusters.separation is None:
            state.choice = state.choice and {**state.choice, "separated": None}
        if len(rest):
            _link_the_rest(context, passes, state, rest, chosen, all_rows=clusters.separation is not None)
            delta = measure.distances(state.best.astype("float64"), xp)
            labels[xp.asarray(rest)] = labels[nearest[xp.asarray(rest)]]
        lost = lost_groups(xp, passes, measure, rho, delta, nearest, chosen) if automatic else (0, 0)

    own = slice(context.rows.start, context.rows.stop)
    context.deliver(labels=labels[own], rho=state.rho[own], delta=delta[own], nearest_higher=nearest[own])
    if found is not None:
        context.deliver(k=found.k[own], log_density=found.value[own], log_density_error=found.error[own])
    if topography is not None and halo:
        context.deliver(halo=topography.halo[own])
    elif halo:
        with context.stage("halo"):
            context.deliver(halo=halo_rows(context, passes.border(norm, s_dc, labels), labels, host(rho))[own])

    if context.rank != 0:
        return None
    return DensityPeaksOutput(
        centers=chosen,
        gamma_drop=gamma_drop(xp, rho, delta, chosen),
        different_rows=number_of_different(delta if every_weight is None else delta[every_weight > 0]),
        lone_rows=count_true(rho == 0),
        dc=dc,
        dc_error=dc_error,
        dc_fraction=fraction,
        exactness=exactness,
        choice=state.choice,
        separation=clusters.separation,
        mixed=clusters.mixed,
        lost=lost,
        intrinsic_dim=None if found is None else (found.dim, found.dim_rows),
        peaks=peaks,
    )


def _on_a_line(context: Context) -> bool:
    """Return whether rows of 2 to 1,024 features lie on a line, from the nine tenths of a sample nearest its median."""
    n, d = context.dataset_shape
    if not 1 < d <= MAX_LINE_FEATURES:
        return False
    xp = context.kernels.xp
    numbers = np.unique(np.linspace(0, n - 1, LINE_ROWS).astype(np.int64))
    x = context.gather_rows(numbers).astype("float64")
    far = xp.abs(x - xp.median(x, axis=0)).max(axis=1)
    x = x[xp.argsort(far)[: -(-9 * len(numbers) // 10)]]
    x = x - x.mean(axis=0)
    products = context.kernels.memory.to_host(x.T @ x if d < len(x) else x @ x.T)
    # On a line, the largest eigenvalue nearly equals the sum of all eigenvalues (the trace), and the root of the sum of
    # their squares.
    most = (1 + LINE_SPREAD * len(products)) ** 2
    if len(x) <= 2 or np.trace(products) ** 2 > most * np.square(products).sum() * (1 + 1e-6):
        return False
    spread = np.linalg.eigvalsh(products)
    return bool(spread[-2] <= LINE_SPREAD * spread[-1])


def _nearest_higher(
    xp: Any, passes: AllPairs, norm: str, rho: Array, neighbors: Neighbors | None
) -> tuple[Array, Array]:
    """Return the reduced distance and index of each row's nearest denser row.

    For the densest row, return the distance to the farthest row, and -1.
    """
    order = density_order(xp, rho)
    best, nearest = passes.nearest_higher(norm, order, neighbors)
    densest = int(xp.argmin(order))
    best[densest] = passes.farthest(densest)
    return best, nearest


def _standing_out(
    context: Context, passes: AllPairs, measure: Metric, norm: str, near: Neighbors, *, on_a_line: bool
) -> np.ndarray:
    """Return the centres that stand out clearly if the density comes from a few nearest rows; empty if none do."""
    xp = context.kernels.xp
    k = min(CLEAR_NEIGHBORS, near.s.shape[1])
    if not any_true(context.comm.all_gather(near.s[:, k - 1].astype("float64")) > 0):
        return np.empty(0, np.int64)  # each row has k duplicates, so all densities are equal
    rho = passes.rho_of(near, k)
    delta = measure.distances(_nearest_higher(xp, passes, norm, rho, near)[0].astype("float64"), xp)
    centers = choose_centers(xp, rho, delta)
    least = clear_drop(
        len(centers),
        number_of_different(delta),
        n_features=1 if on_a_line else context.dataset_shape[1],
        squares=measure.is_square,
    )
    return centers if gamma_drop(xp, rho, delta, centers) >= least else centers[:0]


def halo_rows(context: Context, border: Array, labels: Array, rho: np.ndarray) -> np.ndarray:
    """Return a mask of the rows in the halo of their cluster, from a mask of the border rows."""
    on_border = context.kernels.memory.to_host(border).astype(bool)
    label = context.kernels.memory.to_host(labels)
    densest_border = np.full(int(label.max()) + 1, -np.inf)
    np.maximum.at(densest_border, label[on_border], rho[on_border])
    return rho <= densest_border[label]


def _link_the_rest(
    context: Context, passes: AllPairs, state: DensityState, rest: np.ndarray, centers: np.ndarray, *, all_rows: bool
) -> None:
    """Link each row of weight 0 to the nearest row of positive weight that is a centre or at least as dense.

    `predict` links new rows by the same rule.

    all_rows: whether to link to the nearest row of any density instead.
    """
    xp, n = context.kernels.xp, len(state.rho)
    few = xp.asarray(rest)
    rho = state.rho.copy()
    rho[few] = -1.0
    order = density_order(xp, rho)
    last = n - len(rest)
    order[xp.asarray(centers)] = 0
    order[few] = n
    ascending = xp.sort(rho)[len(rest) :]
    denser = xp.maximum(last - xp.searchsorted(ascending, state.rho[few]), 1)
    limit = xp.full(len(few), last, dtype="int64") if all_rows else denser
    state.best[few], state.nearest[few] = passes.nearest_below(order, few, limit)
