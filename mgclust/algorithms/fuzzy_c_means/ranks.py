r"""Fuzzy c-means (Dunn 1973, Bezdek 1981) on any number of ranks; the memberships are never stored.

w_i is the weight of row x_i (1 by default), and d_ij the distance of row i and centre j. The centres v and memberships
u minimise

    J(u, v) = sum_i sum_j w_i u_ij^m d_ij^2        under    sum_j u_ij = 1,  m > 1

by alternating two steps:

    u_ij = 1 / sum_k (d_ij / d_ik)^(2 / (m - 1))                            (1)
    v_j  = sum_i w_i u_ij^m x_i / sum_i w_i u_ij^m                          (2)

(1) is computed as r^(1/(m-1)), r = min_k d_ik^2 / d_ij^2, divided by its sum over j. So r lies in [0, 1] for any m.
With 0/0 = 1, a row that coincides with several centres is shared evenly between them.

The result is equal to these plain lines on n x c arrays::

    v = starting centres
    repeat:
        d2 = squared distances of rows x and centres v
        r = d2.min(axis=1, keepdims=True) / d2                             # 0 / 0 = 1
        u = r ** (1 / (m - 1));  u = u / u.sum(axis=1, keepdims=True)
        g = w[:, None] * u ** m
        J = (g * d2).sum()
        v = g.T @ x / g.sum(axis=0)[:, None]
    until centres, J or memberships change by at most tol, or max_iter iterations have passed

Clusters may have their own covariances; see `mgclust.algorithms.fuzzy_c_means.covariances`.

One pass over the rows does both steps (`mgclust.algorithms.fuzzy_c_means.weighted_sums`). A row's memberships exist
only while its weighted sums are computed. At the centres v with which it began, the pass returns all sums of (2), J,
and the sums for the validity indices of `mgclust.algorithms.fuzzy_c_means.validity`. Restarts share the pass: it serves
several sets of centres at once, each until it has converged. The convergence test is relative to the scale of the data,
whatever n, d, c and the units are; see `mgclust.algorithms.fuzzy_c_means.convergence`.

Cost of an iteration on a rank with k rows: k d numbers read once, and about 3 k c d multiply-adds. Memory: c (d + 1)
sums for each block of rows, and no n x c array. Communication: 2 (c (d + 1) + 3) numbers, whatever n is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from mgclust.algorithms.common.preparation import Prepared, prepare_rows
from mgclust.algorithms.fuzzy_c_means.convergence import ConvergenceTest
from mgclust.algorithms.fuzzy_c_means.covariances import (
    ROUND_STEPS,
    CovarianceSums,
    Whitening,
    numbers_of_sums,
    row_bytes,
)
from mgclust.algorithms.fuzzy_c_means.initialization import gathered_bytes, random_memberships, starting_centers
from mgclust.algorithms.fuzzy_c_means.memberships import assign, estimate_rows
from mgclust.algorithms.fuzzy_c_means.prototypes import Prototypes
from mgclust.algorithms.fuzzy_c_means.validity import (
    RangeCandidate,
    chosen,
    fuzzy_silhouettes,
    silhouette_bytes,
    with_silhouettes,
    xie_beni,
)
from mgclust.algorithms.fuzzy_c_means.weighted_sums import NOISE_BYTES, OwnWeights, WeightedSums
from mgclust.base.errors import InputError
from mgclust.engine.checkpoint import Saved
from mgclust.engine.memory import Estimate
from mgclust.engine.partition import Partition
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.metrics import METRICS

__all__ = ["Fit", "FuzzyCMeansOutput", "estimate", "first_calls", "fuzzy_c_means", "iterate"]

Array = Any
SCRATCH, GROUP = 512 << 20, 128  # largest size in bytes of sums that wait to be added; fewest rows of a group
CUSTOMARY_M = 2.0


@dataclass(frozen=True)
class FuzzyCMeansOutput:
    """Results of rank 0."""

    fit: Fit  # the set of centres with the lowest J, for the chosen number of clusters
    prepared: Prepared
    sizes: np.ndarray  # (1 + c,) int64: number of rows in the noise cluster, and in each cluster
    dtype: str  # type of the computation
    m: float
    noise: float | None  # squared distance of a noise cluster
    scale: float  # root mean square distance of the rows from their mean
    total: float  # sum of all weights
    best: int  # position of `fit` among the starts
    objectives: list[float]  # last J of each start
    history: list[float]  # J of `fit` at the initial centres and after each iteration
    candidates: list[RangeCandidate]  # one for each number of clusters
    chosen: int  # position of the chosen candidate
    moving: list[int]  # numbers of clusters whose fit ended at max_iter
    singular: int  # number of clusters whose covariance was bounded
    distance_error: float  # error of distances in silhouettes; see `fuzzy_silhouettes`


def fuzzy_c_means(
    context: Context,
    *,
    metric: str,
    numbers: Sequence[int],
    criterion: str,
    m: float,
    covariance_type: str,
    shrinkage: float,
    init: str,
    given: np.ndarray | None,
    n_init: int,
    max_iter: int,
    tol: float,
    stop: str,
    noise: float | None,
    keep_memberships: bool,
    seed: int,
    weights: np.ndarray | None = None,
) -> FuzzyCMeansOutput | None:
    """Run the method on every rank for some numbers of clusters; rank 0 returns what `FuzzyCMeans.fit` reports.

    `weights` are the weights of the local rows.
    """
    saved = context.checkpoint.load()
    with context.stage("prepare"):
        own_weights = OwnWeights.of(context, weights)
        full = CovarianceSums(context, m, own_weights, noise, shrinkage) if covariance_type == "full" else None
        sums = full or WeightedSums(context, m, own_weights, noise)
        prepared = prepare_rows(context, METRICS[metric], sums.weights)
        scale = WeightedSums(context, m, own_weights).scale()
        convergence = ConvergenceTest(stop, tol, scale)
        whitening = None if full is None else full.look_at_all_rows()

    def start(c: int) -> list[Fit]:
        if init == "memberships":
            assert given is not None
            xp, own = context.kernels.xp, given
            starts = sums.centers_of(lambda start, stop: xp.asarray(own[start:stop]), c)[None]
        elif init == "random-memberships":
            drawn = random_memberships(context.kernels.xp, c, starts=n_init, seed=seed)
            starts = np.stack([sums.centers_of(memberships, c) for memberships in drawn])
        elif init == "centers":
            starts = _checked_centers(context, given, prepared.origin)[None]
        else:
            starts = starting_centers(
                context, init, c, starts=n_init, weights=sums.weights, total=sums.total, seed=seed
            )
            if m > CUSTOMARY_M:
                # A row on which a centre lies outweighs all other rows, and more so for larger m. So this step moves
                # the centres off the rows first.
                starts = WeightedSums(context, CUSTOMARY_M, own_weights).means_at(starts)
            if full is not None:
                for _ in range(ROUND_STEPS):
                    starts = WeightedSums(context, m, own_weights, noise).means_at(starts)
        return [Fit(sums.start(centers)) for centers in starts]

    if saved is None:
        done = []
        with context.stage("init"):
            fits = start(numbers[0])
    else:
        done, fits = saved_numbers(saved), saved_fits(saved)
    with context.stage("iterate"):
        for c in numbers[len(done) :]:
            fits = fits or start(c)
            iterate(context, sums, fits, saved, done, of=len(numbers), max_iter=max_iter, convergence=convergence)
            best = int(np.argmin([fit.history[-1] for fit in fits]))
            done.append(Number(fits[best], best, [sums.unit * fit.history[-1] for fit in fits]))
            saved, fits = None, []
    candidates, distance_error = [each.candidate(sums, whitening) for each in done], 0.0
    if criterion == "fuzzy_silhouette":
        with context.stage("silhouette"):
            partitions = [each.fit.prototypes for each in done]
            silhouettes, distance_error = fuzzy_silhouettes(
                context, METRICS[metric], partitions, m, noise, own_weights, prepared
            )
            candidates = with_silhouettes(candidates, silhouettes)
    at = chosen(candidates, criterion)
    fit = done[at].fit
    with context.stage("labels"):
        sizes = assign(context, fit.prototypes, m, keep_memberships, noise)
    if context.rank != 0:
        return None
    return FuzzyCMeansOutput(
        fit=fit,
        prepared=prepared,
        sizes=sizes,
        dtype=context.dtype.name,
        m=m,
        noise=noise,
        scale=scale,
        total=sums.total,
        best=done[at].best,
        objectives=done[at].objectives,
        history=[sums.unit * objective for objective in fit.history],
        candidates=candidates,
        chosen=at,
        moving=[len(each.fit.centers) for each in done if each.fit.stop_reason == "max_iter"],
        singular=0 if whitening is None else whitening.singular(fit.prototypes),
        distance_error=distance_error,
    )


@dataclass
class Fit:
    """One set of prototypes during the iterations."""

    prototypes: Prototypes
    history: list[float] = field(default_factory=list)  # J at the centres that each pass began with
    n_iter: int = 0
    stop_reason: str = ""  # "" until the iterations end, then "tol" or "max_iter"
    shift: float = math.inf  # largest move of a prototype in the last iteration
    change: float = math.inf  # change in the last iteration, of the quantity that `stop` names
    idle: int = 0  # number of clusters in which no row has a membership; their centres do not move
    # squares, entropy: sums of w u^2 and of - w u log u at the final centres
    squares: float = math.nan
    entropy: float = math.nan
    within: float = math.nan  # mean squared distance of rows and final centres, with the weights w u^m

    @property
    def centers(self) -> np.ndarray:
        """Centres, shape (c, d), float64."""
        return self.prototypes.centers

    def score(self, found: np.ndarray, sums: WeightedSums) -> None:
        """Store J and the sums of a pass, at the prototypes with which the pass began."""
        self.history.append(math.ldexp(found[-3], -int(sums.log2_scale(len(self.centers)))))
        self.squares, self.entropy = float(found[-2]), float(found[-1])
        weight = float(sums.masses(found, self.prototypes.packed).sum())
        self.within = float(found[-3]) / weight if weight else 0.0

    def update(self, found: np.ndarray, moved: np.ndarray, sums: WeightedSums) -> None:
        """Store the moved prototypes."""
        self.idle = int((sums.masses(found, moved) <= 0).sum())
        there = Prototypes.of(moved)
        self.shift = self.prototypes.shift(there)
        self.prototypes = there
        self.n_iter += 1


@dataclass(frozen=True)
class Number:
    """Outcome of all starts with one number of clusters."""

    fit: Fit  # the start with the lowest J
    best: int  # its position among the starts
    objectives: list[float]  # last J of each start

    def candidate(self, sums: WeightedSums, whitening: Whitening | None) -> RangeCandidate:
        """Return the validity of the partition, as far as the sums of the last pass give it."""
        fit, total, c = self.fit, sums.total, len(self.fit.centers)
        # With one cluster, all memberships are 1. A GPU rounds them, so their logarithm would not be exactly 0.
        alone = c == 1 and sums.noise is None
        coefficient = 1.0 if alone else fit.squares / total
        return RangeCandidate(
            n_clusters=c,
            objective=self.objectives[self.best],
            partition_coefficient=coefficient,
            modified_partition_coefficient=1 - c / (c - 1) * (1 - coefficient) if c > 1 else math.nan,
            partition_entropy=0.0 if alone else fit.entropy / total,
            xie_beni=xie_beni(fit.history[-1], total, Prototypes(fit.centers).separations()),
            fuzzy_silhouette=math.nan,
            fuzzy_hypervolume=math.nan if whitening is None else whitening.hypervolume(fit.prototypes),
            n_iter=fit.n_iter,
        )


def first_calls(clusters: int, m: float) -> dict[str, dict[str, Any]]:
    """Return the functions that take longest to compile on a GPU."""
    sums = {"fuzzy_c_means.fuzzy_sums": {"clusters": clusters, "m": m}}
    return {**sums, "pairs.reduced_distances": {}, "pairs.nearest_higher": {}}


def iterate(
    context: Context,
    sums: WeightedSums,
    fits: list[Fit],
    saved: Saved | None,
    done: Sequence[Number] = (),
    *,
    of: int = 1,
    max_iter: int,
    convergence: ConvergenceTest,
) -> None:
    """Pass over the rows until every set of prototypes has converged, and once more to score the final prototypes.

    The device does not wait for the test of convergence: it moves the centres and begins the next pass. If a set has
    converged, this next pass scores it. `done` has the outcomes for smaller numbers of clusters, and `of` is how many
    numbers of clusters there are in all.
    """
    shown = {"n_clusters": len(fits[0].centers)} if of > 1 else {}
    moving = [fit for fit in fits if not fit.stop_reason]
    prototypes = sums.placed(np.stack([fit.prototypes.packed for fit in moving]))
    reduced = sums.at(prototypes) if saved is None else context.kernels.memory.to_device(saved.arrays["found"])
    while moving:
        before, prototypes = prototypes, sums.moved(reduced, prototypes)
        scores, moved = context.fetch(reduced), sums.fetched(prototypes)
        reduced = sums.at(prototypes)
        changes = convergence.of_memberships(context, sums, before, prototypes, last=moving[0].n_iter + 1 == max_iter)
        for fit, of_fit, to, change in zip(moving, scores(), moved(), changes, strict=True):
            fit.score(of_fit, sums)
            fit.change = convergence.of_objective(fit.history)
            if fit.change > convergence.tol:
                fit.update(of_fit, to, sums)
                fit.change = min(fit.change, convergence.of_centers(fit.shift), change)
            if fit.change <= convergence.tol:
                fit.stop_reason = "tol"
            elif fit.n_iter == max_iter:
                fit.stop_reason = "max_iter"
        n_iter, objective = moving[0].n_iter, min(fit.history[-1] for fit in moving)
        fraction = (len(done) + n_iter / max_iter) / of
        context.progress(fraction, **shown, iteration=n_iter, max_iter=max_iter, objective=objective)
        if any(fit.stop_reason for fit in moving):
            scored = context.fetch(reduced)()
            for fit, of_fit in zip(moving, scored, strict=True):
                if fit.stop_reason and len(fit.history) == fit.n_iter:  # the centres have moved since they were scored
                    fit.score(of_fit, sums)
                    if convergence.stop == "objective":
                        fit.change = convergence.of_objective(fit.history)
                        fit.stop_reason = "tol" if fit.change <= convergence.tol else fit.stop_reason
            left = [i for i, fit in enumerate(moving) if not fit.stop_reason]
            moving, prototypes, reduced = [moving[i] for i in left], prototypes[left], reduced[left]
        if moving and context.checkpoint.due():
            save_fits(context, fits, reduced, done)


def save_fits(context: Context, fits: list[Fit], found: Array, done: Sequence[Number]) -> None:
    """Save all prototypes, the sums with which the next iteration of the moving sets begins, and `done`."""
    arrays = {"prototypes": np.stack([fit.prototypes.packed for fit in fits]), "found": context.fetch(found)()}
    arrays |= {f"prototypes_{at}": number.fit.prototypes.packed for at, number in enumerate(done)}
    numbers = [_plain(number.fit) | {"best": number.best, "objectives": number.objectives} for number in done]
    context.checkpoint.save({"fits": [_plain(fit) for fit in fits], "numbers": numbers}, arrays)


def saved_fits(saved: Saved) -> list[Fit]:
    """Return the sets of prototypes that `save_fits` saved."""
    each = zip(saved.arrays["prototypes"], saved.control["fits"], strict=True)
    return [Fit(Prototypes.of(packed), **told) for packed, told in each]


def saved_numbers(saved: Saved) -> list[Number]:
    """Return the finished numbers of clusters that `save_fits` saved."""
    done = []
    for at, told in enumerate(saved.control["numbers"]):
        best, objectives = told.pop("best"), told.pop("objectives")
        fit = Fit(Prototypes.of(saved.arrays[f"prototypes_{at}"]), **told)
        done.append(Number(fit, best, objectives))
    return done


def _plain(fit: Fit) -> dict[str, Any]:
    told = {field.name: getattr(fit, field.name) for field in fields(fit) if field.name != "prototypes"}
    return told | {"history": list(fit.history)}  # a copy, because the list grows while the checkpoint is written


def _checked_centers(context: Context, given: np.ndarray | None, origin: np.ndarray) -> np.ndarray:
    """Return given centres in the coordinates of prepared rows; reject centres whose squared distances overflow."""
    assert given is not None
    with np.errstate(over="ignore", invalid="ignore"):
        centers = given - origin
    most = float(np.finfo(context.dtype).max) ** 0.5 / (4 * centers.shape[1] ** 0.5)
    if not np.abs(centers).max() < most:
        raise InputError(
            f"init holds centres up to {np.abs(centers).max():.3g} from the mean of the rows, but "
            f"dtype='{context.dtype}' needs values below {most:.1g}; give centres among the rows."
        )
    return centers


def estimate(
    shape: tuple[int, int],
    itemsize: int,
    size: int,
    room: int,
    *,
    models: int,
    c: int,
    weighted: bool,
    from_memberships: bool = False,
    silhouettes: int = 0,
    metric: str = "euclidean",
    compared: bool = False,
    full: bool = False,
    all_weights: bool = False,
    noise: bool = False,
    kept: bool = False,
) -> Estimate:
    """Estimate the memory of a rank in addition to its rows, for up to c clusters and `silhouettes` scored partitions.

    all_weights: whether each rank temporarily has the weights of all rows.
    """
    n, d = shape
    partition = Partition.plan(n, size)
    blocks = -(-partition.blocks // size)
    sums = 8 * models * (numbers_of_sums(c, d) if full else c * d + c + 3)
    what = {
        "sums of blocks": 4 * blocks * sums,
        "sums of groups of rows": min(SCRATCH, -(-n // (size * GROUP)) * sums),
        **estimate_rows(n, size, c, itemsize),
    }
    if not from_memberships:
        what["rows to start from"] = gathered_bytes(n, d, itemsize)
    if kept:
        what["memberships"] = -(-n // size) * c * itemsize
    if noise:
        what["memberships with noise"] = NOISE_BYTES * (c + 1) * min(n, partition.block_rows)
    if full:
        what["distances and memberships of some rows"] = row_bytes(c, d) * min(n, partition.block_rows)
        what["covariances"] = 8 * 6 * models * c * d * d
    if from_memberships:  # for a block of rows: memberships, logarithms, powers and weights; and the rows in float64
        what["memberships to start from"] = 8 * partition.block_rows * (5 * c + d)
    if compared:
        what["memberships before and after"] = what["memberships of some rows"]
    if silhouettes:
        each = silhouette_bytes(shape, itemsize, size, room, metric=metric, n_clusters=c)
        what["silhouettes"] = silhouettes * each
    if weighted:
        what["weights"] = (8 + itemsize) * (-(-n // size)) + (8 + itemsize) * n * all_weights
    return Estimate(what)
