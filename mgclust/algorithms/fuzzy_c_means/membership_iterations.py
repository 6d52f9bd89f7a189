r"""Fuzzy c-means that starts from memberships and ends when they converge, as in Ross (2010) and scikit-fuzzy.

With u_0 given, and d the distances of rows and centres, iteration p = 1, 2, ... is (Ross, equations 10.28 to 10.35)

    v_p = sum_i u_{p-1}^m x_i / sum_i u_{p-1}^m        J_p = sum_ij u_{p-1,ij}^m d(x_i, v_{p,j})^2
    u_p = memberships of the rows at v_p

The last iteration is the first in which u_p differs from u_{p-1} by less than `error` in the Frobenius norm. Centres,
and the pass that sums u^m and u^m x, are the same as in `mgclust.algorithms.fuzzy_c_means.ranks`. The start, the end
and J differ: J uses the memberships before the step. With W_j = sum_i u_{p,ij}^m, it needs no additional pass:

    J_{p+1} = sum_ij u_{p,ij}^m d(x_i, v_{p,j})^2 - sum_j W_j |v_{p+1,j} - v_{p,j}|^2

Cost of an iteration on a rank with k rows: that pass, and the memberships once more, to compare them with the previous
memberships. Memory: the memberships, 8 k c bytes. Communication: 2 (c (d + 1) + 4) numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mgclust.algorithms.common.preparation import prepare_rows
from mgclust.algorithms.fuzzy_c_means.memberships import pieces_of_rows
from mgclust.algorithms.fuzzy_c_means.ranks import estimate
from mgclust.algorithms.fuzzy_c_means.weighted_sums import WeightedSums
from mgclust.data import open_dataset
from mgclust.engine.dask.cluster import connect
from mgclust.engine.memory import Estimate
from mgclust.engine.spmd import Context, RunSpec, run
from mgclust.kernels.pairs.metrics import METRICS

__all__ = ["MembershipIterations", "iterate_memberships"]

Array = Any


@dataclass(frozen=True)
class MembershipIterations:
    """Outcome of the iterations; all numbers are float64.

    Attributes
    ----------
    centers : ndarray of shape (n_clusters, n_features)
    memberships, distances : ndarray of shape (n_samples, n_clusters)
        Memberships and distances of the rows at these centres.
    history : list of float
        J_p of each iteration.
    n_iter : int
    partition_coefficient : float
    """

    centers: np.ndarray
    memberships: np.ndarray
    distances: np.ndarray
    history: list[float]
    n_iter: int
    partition_coefficient: float


def iterate_memberships(
    X: Any,
    memberships: np.ndarray,
    centers: np.ndarray | None = None,
    *,
    m: float,
    error: float,
    max_iter: int,
    device: str = "auto",
    client: Any = "auto",
    n_workers: int | None = None,
    workers: Any = None,
    resources: dict[str, float] | None = None,
    retries: int = 0,
) -> MembershipIterations:
    """Run fuzzy c-means from given memberships, in float64 with Euclidean distances.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), path, URL or Dataset
    memberships : ndarray of shape (n_samples, n_clusters)
        Positive memberships. Rows need not sum to 1: they are scaled for the first centres, but not scaled when they
        are compared with the next memberships.
    centers : ndarray of shape (n_clusters, n_features), optional
        Fixed centres.
    m : float
        Fuzzifier, above 1.
    error : float
        The iterations end when the memberships change by less than this, in the Frobenius norm.
    max_iter : int
        Largest number of iterations, at least 1.
    device, client, n_workers, workers, resources, retries
        See `FuzzyCMeans`.

    Returns
    -------
    MembershipIterations
    """
    arguments = {"memberships": memberships, "fixed": centers, "m": m, "error": error, "max_iter": max_iter}
    need = partial(estimate_iterations, c=memberships.shape[1])
    spec = RunSpec(membership_iterations, arguments, need, "float64", metric="euclidean")
    with connect(
        client=client, device=device, n_workers=n_workers, workers=workers, resources=resources, retries=retries
    ) as cluster:
        outcome = run(spec, open_dataset(X), cluster)
    found, history, coefficient = outcome.value
    each = outcome.arrays
    return MembershipIterations(found, each["memberships"], each["distances"], history, len(history), coefficient)


def membership_iterations(
    context: Context, *, memberships: np.ndarray, fixed: np.ndarray | None, m: float, error: float, max_iter: int
) -> tuple[np.ndarray, list[float], float]:
    """Iterate on every rank; return the centres, J_p of each iteration and the partition coefficient.

    Each rank delivers the memberships and distances of its rows.
    """
    kernels, xp = context.kernels, context.kernels.xp
    with context.stage("prepare"):
        sums = WeightedSums(context, m, None)
        origin = prepare_rows(context, METRICS["euclidean"]).origin
        u = xp.array(memberships[context.rows.start : context.rows.stop], order="C")  # a copy, to overwrite
    with context.stage("iterate"):
        first, objective = begin(context, sums, memberships, None if fixed is None else fixed - origin)
        history, centers = [objective], kernels.memory.to_device(first[None])
        exponent = -int(sums.log2_scale(len(first)))
        while True:
            reduced = sums.at(centers)
            found, at = context.fetch(reduced), context.fetch(centers)
            change = math.sqrt(float(context.fetch(replaced(context, u, centers[0], m))()[0]))
            context.progress(len(history) / max_iter, iteration=len(history), max_iter=max_iter, objective=history[-1])
            total, v = found()[0], at()[0]
            if change < error or len(history) == max_iter:
                break
            if fixed is None:
                centers = kernels.fuzzy_c_means.weighted_means(reduced, centers)
            moved = ((context.fetch(centers)()[0] - v) ** 2).sum(axis=1)
            history.append(math.ldexp(float(total[-3] - (total[v.size : -3] * moved).sum()), exponent))
    with context.stage("memberships"):
        context.deliver(memberships=u, distances=own_distances(context, v))
    n = context.dataset_shape[0]
    return v + origin, history, float(total[-2]) / n


def begin(
    context: Context, sums: WeightedSums, memberships: np.ndarray, fixed: np.ndarray | None
) -> tuple[np.ndarray, float]:
    """Return the first centres from memberships that need not sum to 1 (or the fixed centres), and J."""
    scaled = memberships / memberships.sum(axis=1, keepdims=True)
    to_device, centers = context.kernels.memory.to_device, fixed
    if centers is None:
        centers = sums.centers_of(lambda start, stop: to_device(scaled[start:stop]), scaled.shape[1])
    return centers, objective_of(context, scaled, centers, sums.m)


def objective_of(context: Context, memberships: np.ndarray, centers: np.ndarray, m: float) -> float:
    """Return J of given memberships at centres that need not follow from them."""
    kernels, xp = context.kernels, context.kernels.xp
    own, v = context.partition.blocks_of(context.rank), context.kernels.memory.to_device(centers)
    parts = xp.zeros((len(own), 1))
    for part, block in zip(parts, own, strict=True):
        start, stop = context.partition.bounds(block)
        squares = kernels.pairs.reduced_distances(context.rows.block(block), v, norm="l2")
        part[0] = (xp.asarray(memberships[start:stop]) ** m * squares).sum()
    return float(context.fetch(context.sum_parts(parts))()[0])


def replaced(context: Context, u: Array, centers: Array, m: float) -> Array:
    """Overwrite the memberships of the local rows; return the sum of squared changes on all ranks."""
    kernels, xp, rows = context.kernels, context.kernels.xp, context.rows
    own, size = context.partition.blocks_of(context.rank), context.partition.block_rows
    parts = xp.zeros((len(own), 1))
    for start, stop in pieces_of_rows(context, len(centers)):
        if stop == start:
            continue
        new, old = xp.empty((stop - start, len(centers))), u[start - rows.start : stop - rows.start]
        kernels.fuzzy_c_means.memberships(rows.read(start, stop), centers, m=m, out=new)
        old -= new
        for at in range(0, stop - start, size):
            parts[(start + at) // size - own.start, 0] = (old[at : at + size] ** 2).sum()
        old[...] = new
    return context.sum_parts(parts)


def own_distances(context: Context, centers: np.ndarray) -> np.ndarray:
    """Return the distances of the local rows from the centres, on the host."""
    kernels, rows, v = context.kernels, context.rows, context.kernels.memory.to_device(centers)
    distances = np.empty((len(rows), len(v)))
    for start, stop in pieces_of_rows(context, len(v)):
        if stop > start:
            squares = kernels.pairs.reduced_distances(rows.read(start, stop), v, norm="l2")
            distances[start - rows.start : stop - rows.start] = kernels.memory.to_host(kernels.xp.sqrt(squares))
    return distances


def estimate_iterations(shape: tuple[int, int], itemsize: int, size: int, room: int, *, c: int) -> Estimate:
    """Estimate the memory of a rank in addition to its rows."""
    passes = estimate(shape, itemsize, size, room, models=1, c=c, weighted=False)
    kept = 8 * c * -(-shape[0] // size)
    return passes + Estimate({"memberships": kept})
