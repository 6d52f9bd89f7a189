r"""Functions of the ranks of canopy clustering (McCallum, Nigam, Ungar, KDD 2000), exact, on any number of ranks.

Two distances, t1 > t2. The first candidate becomes a centre; its canopy is every row within t1, so that a row may be
in several canopies; the rows within t2 are candidates no longer. Repeat until there are none. "Within" means
``distance <= t``, decided everywhere by one comparison (`threshold_of`).

What runs where. Every rank owns consecutive row blocks; rows never move but for those that may become centres::

    prepare      float32: rows are moved near the origin; float64: they stay as they are
    thresholds   if not given: quantiles of the distances among at most 2048 rows
    centers      4096 candidates at a time, `mgclust.algorithms.canopy.centers`
    memberships  all rows with all centres, `mgclust.algorithms.canopy.members`
    trees        of `Canopy.agglomerate` alone: pairs within canopies, `mgclust.algorithms.canopy.agglomeration`

Cost, for K centres. Time: 3 to 3.5 n K reduced distances (d multiply-adds each) over all ranks; few features and many
centres take far fewer (`mgclust.kernels.pairs.boxes.column_boxes`). Memory per rank: its rows up to three times,
the centres, 60 bytes a row; on its host 5 to 9 bytes a membership besides. Communication: 4096 rows a step, at most
n / 4096 steps and usually a handful.
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
    distance_error: float  # of t2, relative: by rounding of the rows


@dataclass(frozen=True)
class LinkageOutput:
    """Rank 0's findings of `linkage`."""

    tree: AgglomerationTree
    n_canopies: int
    n_pairs: int
    thresholds: Thresholds


class Cover(NamedTuple):
    """Canopies as every rank knows them."""

    picked: Picked
    members: Members  # of its rows
    thresholds: Thresholds
    distance_error: float


def canopy(
    context: Context, *, metric: str, t1: float | None, t2: float | None, order: str, seed: int
) -> CanopyOutput | None:
    """Run the method on every rank; rank 0 returns what `Canopy.fit` reports, beside "labels" and "memberships"."""
    picked, members, thresholds, error = cover(context, metric=metric, t1=t1, t2=t2, order=order, seed=seed)
    context.deliver(labels=members.labels, memberships=members.memberships)
    if context.rank != 0:
        return None
    return CanopyOutput(picked.rows, picked.steps, *thresholds, members.total, members.alone, error)


def linkage(
    context: Context, *, metric: str, t1: float | None, t2: float | None, order: str, seed: int
) -> LinkageOutput | None:
    """Find canopies and the spanning forest of pairs that share one; on every rank."""
    picked, members, thresholds, _ = cover(context, metric=metric, t1=t1, t2=t2, order=order, seed=seed)
    with context.stage("trees"):
        tree, n_pairs = tree_of_canopies(context, members.memberships, METRICS[metric].norm)
    return LinkageOutput(tree, len(picked.rows), n_pairs, thresholds) if context.rank == 0 else None


def cover(context: Context, *, metric: str, t1: float | None, t2: float | None, order: str, seed: int) -> Cover:
    """Find the canopies, on every rank."""
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
        members = find_members(context, picked.x, measure.norm, loose, tight)
    return Cover(picked, members, Thresholds(t1, t2), prepared.error_of(measure, np.array([measure.reduced(t2)])))


def suggest(context: Context, *, metric: str, seed: int) -> Thresholds:
    """Find thresholds, the same on every rank."""
    measure = METRICS[metric]
    with context.stage("prepare"):
        _prepare(context, measure)
    with context.stage("thresholds"):
        return _thresholds(context, measure, seed)


def _prepare(context: Context, measure: Metric) -> Prepared:
    """Make the rows ready, and bound by how far rounding has moved them.

    float64 rows stay where they are, so that ties of given distances stay ties.
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
    # Each number changes by half a unit in its last place at most, as it is rounded to the rows' type.
    rounded = float(comm.all_reduce(np.array([int(context.rows.rounded)]), "max")[0])
    largest = np.maximum(np.abs(low), np.abs(high))
    length = float(largest.sum() if measure.norm == "l1" else np.linalg.norm(largest))
    return Prepared(reach**2, np.zeros(len(low)), rounded * float(np.finfo(context.dtype).eps) / 2 * length)


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


def estimate(shape: tuple[int, int], itemsize: int, size: int, room: int) -> Estimate:
    """Memory of a rank beside its rows, but for the centres and memberships, whose number the data decide."""
    n, d = shape
    own = -(-n // size)
    what = {
        "rows of candidates": candidate_bytes(own * d * itemsize, room // 2),
        "vectors of own rows": own * (64 + itemsize),
        "candidates of a step": (1 + size) * min(n, STEP) * (d * itemsize + 16),
        "memberships on their way": min(piece_bytes(room, size), 8 * n * n),
    }
    return Estimate(what)
