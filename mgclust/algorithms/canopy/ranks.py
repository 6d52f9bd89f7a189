r"""Canopy clustering (McCallum, Nigam, Ungar, KDD 2000), exact, on any number of ranks.

There are two distances, t1 > t2. At first, all rows are candidates::

    while there are candidates:
        the first candidate becomes a centre
        its canopy consists of all rows within t1; a row can be in several canopies
        the rows within t2 are no longer candidates

"Within" means ``distance <= t``. All parts of the code decide this by the same comparison (`threshold_of`).

Parallel execution. Each rank owns consecutive blocks of rows. Only rows that may become centres are sent. Stages::

    prepare      float32: rows are moved near the origin; float64: they stay unchanged
    thresholds   if not given: quantiles of the distances among at most 2048 rows
    centers      4096 candidates at a time                    (`mgclust.algorithms.canopy.centers`)
    memberships  all rows against all centres                 (`mgclust.algorithms.canopy.members`)
    trees        only for `Canopy.agglomerate`: pairs within canopies
                                                              (`mgclust.algorithms.canopy.agglomeration`)

Cost for K centres. Time: 3 to 3.5 n K reduced distances of d multiply-adds, shared by the ranks; with few features and
many centres, far fewer (`mgclust.kernels.pairs.boxes.column_boxes`). Memory per rank: its rows up to three times, the
centres, and 60 bytes per row; on the rank's host also 5 bytes per membership (9 if there are 2^31 of them), which are
checked when their number is known. Communication: 4096 rows per step,
in at most n / 4096 steps, usually in a handful of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mgclust.algorithms.canopy.agglomeration import AgglomerationTree, tree_of_canopies
from mgclust.algorithms.canopy.centers import STEP, Candidates, Picked, pick_centers, threshold_of
from mgclust.algorithms.canopy.members import (
    Members,
    candidate_bytes,
    candidate_pieces,
    find_members,
    piece_bytes,
    room_for_boxes,
)
from mgclust.algorithms.common.preparation import Prepared, prepare_rows, reject_out_of_range
from mgclust.base.errors import InputError
from mgclust.engine.memory import Estimate
from mgclust.engine.rows import few_digits
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.metrics import METRICS, Metric

__all__ = ["CanopyOutput", "LinkageOutput", "Thresholds", "canopy", "estimate", "linkage", "suggest"]

SAMPLE_ROWS = 2048
LOOSE_SHARE, TIGHT_SHARE = 0.30, 0.15
RATIO = 0.7  # t2 / t1 if no distance of the sample exceeds t2


class Thresholds(NamedTuple):
    """The two distances that define canopies, in the units of the metric.

    Attributes
    ----------
    t1 : float
        The loose distance: a canopy consists of all rows within `t1` of its centre.
    t2 : float
        The tight distance: rows within `t2` of a centre cannot become centres.
    """

    t1: float
    t2: float


@dataclass(frozen=True)
class CanopyOutput:
    """Results of `canopy` on rank 0."""

    centers: np.ndarray  # row numbers of the centres, in the order in which they were picked
    n_steps: int
    t1: float
    t2: float
    total: int  # number of memberships of all rows
    alone: int  # number of rows that are in exactly one canopy
    distance_error: float  # relative error of t2 from rounding of the rows


@dataclass(frozen=True)
class LinkageOutput:
    """Results of `linkage` on rank 0."""

    tree: AgglomerationTree
    n_canopies: int
    n_pairs: int
    thresholds: Thresholds


class Cover(NamedTuple):
    """The centres of all canopies, and the memberships of this rank's rows."""

    picked: Picked
    members: Members  # memberships of this rank's rows
    thresholds: Thresholds
    distance_error: float


def canopy(
    context: Context, *, metric: str, t1: float | None, t2: float | None, order: str, seed: int
) -> CanopyOutput | None:
    """Run the method on every rank; rank 0 returns the results, each rank delivers "labels" and "memberships"."""
    found = cover(context, metric=metric, t1=t1, t2=t2, order=order, seed=seed, result=True)
    picked, members, thresholds, error = found
    context.deliver(labels=members.labels, memberships=members.memberships)
    if context.rank != 0:
        return None
    return CanopyOutput(picked.rows, picked.steps, *thresholds, members.total, members.alone, error)


def linkage(
    context: Context, *, metric: str, t1: float | None, t2: float | None, order: str, seed: int
) -> LinkageOutput | None:
    """Run on every rank: find canopies, and the spanning forest of the pairs of rows that share a canopy."""
    found = cover(context, metric=metric, t1=t1, t2=t2, order=order, seed=seed, result=False)
    picked, members, thresholds, _ = found
    with context.stage("trees"):
        tree, n_pairs = tree_of_canopies(context, members.memberships, METRICS[metric].norm)
    return LinkageOutput(tree, len(picked.rows), n_pairs, thresholds) if context.rank == 0 else None


def cover(
    context: Context, *, metric: str, t1: float | None, t2: float | None, order: str, seed: int, result: bool
) -> Cover:
    """Find the canopies; every rank takes part. `result`: whether the client receives the memberships."""
    measure, saved = METRICS[metric], context.checkpoint.load()
    with context.stage("prepare"):
        prepared = _prepare(context, measure)
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
        members = find_members(context, picked.x, measure.norm, loose, tight, result=result)
    return Cover(picked, members, Thresholds(t1, t2), prepared.error_of(measure, np.array([measure.reduced(t2)])))


def suggest(context: Context, *, metric: str, seed: int) -> Thresholds:
    """Suggest thresholds, the same on every rank."""
    measure = METRICS[metric]
    with context.stage("prepare"):
        _prepare(context, measure)
    with context.stage("thresholds"):
        return _thresholds(context, measure, seed)


def _prepare(context: Context, measure: Metric) -> Prepared:
    """Prepare the rows, and bound how far rounding has moved them.

    float64 rows stay unchanged, so that equal distances stay equal.
    """
    if measure.unit_rows:
        return prepare_rows(context, measure)
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
    reject_out_of_range(context, measure, reach)
    if context.dtype == np.float32:
        middle = few_digits(low / 2 + high / 2, (high - low) / 4)
        context.rows.apply(measure.prepare(xp.asarray(middle)))
    # Rounding to the type of the rows changes each number by at most half a unit in its last place.
    rounded = float(comm.all_reduce(np.array([int(context.rows.rounded)]), "max")[0])
    largest = np.maximum(np.abs(low), np.abs(high))
    length = float(largest.sum() if measure.norm == "l1" else np.linalg.norm(largest))
    return Prepared(reach**2, np.zeros(len(low)), rounded * float(np.finfo(context.dtype).eps) / 2 * length)


def _thresholds(context: Context, measure: Metric, seed: int) -> Thresholds:
    """Suggest thresholds by the rule of `Canopy.suggest_thresholds`."""
    n, kernels = context.dataset_shape[0], context.kernels
    m = min(n, SAMPLE_ROWS)
    chosen = np.arange(n) if m == n else np.sort(np.random.default_rng(seed).choice(n, m, replace=False))
    x = context.gather_rows(chosen)
    s = kernels.pairs.reduced_distances(x, x, norm=measure.norm)
    s = kernels.memory.to_host(kernels.xp.sort(s[s > 0]))
    distances = s * s.dtype.type(measure.factor) if measure.squared else np.sqrt(s)
    if not len(s) or distances[-1] <= 0:
        what = "all rows are" if m == n else f"all {m} rows of a sample are"
        raise InputError(f"{what} equal, so no positive distance can suggest t1 and t2; give both.")
    t1, t2 = (float(distances[int(np.ceil(share * len(s))) - 1]) for share in (LOOSE_SHARE, TIGHT_SHARE))
    if t1 <= t2:  # many equal distances
        larger = distances[np.searchsorted(distances, t2, side="right") :]
        t1 = float(larger[0]) if len(larger) else t2 / RATIO
    return Thresholds(t1, t2)


def estimate(shape: tuple[int, int], itemsize: int, size: int, room: int) -> Estimate:
    """Estimate the memory of a rank in addition to its rows, without centres and memberships.

    Their number depends on the data. It is checked during the run: see `pick_centers` and `find_members`.
    """
    n, d = shape
    own = -(-n // size)
    what = {
        "copies of candidates": candidate_bytes(own * d * itemsize, room // 2),
        "vectors of local rows": own * (64 + itemsize),
        "candidates of a step": (1 + size) * min(n, STEP) * (d * itemsize + 16),
        "memberships in transit": min(piece_bytes(room, size), 8 * n * n),
    }
    return Estimate(what)
