r"""Densities and their standard errors, from the k nearest rows; with k="adaptive", k is chosen for each row.

r_il is the distance of row i to its l-th nearest row, d is the intrinsic dimension
(`mgclust.algorithms.density_peaks.topography.intrinsic_dimension`), omega_d is the volume of the unit ball in d
dimensions, and ``V_ik = omega_d r_ik^d``::

    integer k   log density = log(k / (n V_ik))                       error = 1 / sqrt(k)
    k_i*        the first k >= 3 at which the densities about row i and about its (k + 1)-th nearest row j differ:
                2 k (2 log(V_ik + V_jk) - log V_ik - log V_jk - log 4) > 23.928,
                which has the probability 1e-6 by chance; k_i* is at most 100
    PAk         log density = b - log n, where b and a maximise the likelihood of the k = k_i* shells around row i
                L = k b + a k (k + 1) / 2 - sum over l of v_il exp(b + a l)          v_il = V_il - V_i,l-1
                The term a l removes the bias if the density grows or falls by exp(a) with each neighbour.
                error = sqrt((4 k + 2) / (k (k - 1)))

(Rodriguez, d'Errico, Facco, Laio, Computing the free energy without collective variables, J. Chem. Theory Comput.
14:1206-1215, 2018.)

Maximum of L. For given a, L is largest at ``exp(b) = k / S(a)`` with ``S = sum v_l exp(a l)``. The remaining function
of a is largest if the mean of l, weighted with ``v_l exp(a l)``, is (k + 1) / 2. This mean grows with a, so Newton's
method within a bracket finds the root. If there is no root, because nearly all of the k shells are empty, a is 0.

rho is, up to a constant, the d-th root of exp(log density - error): ``exp((b - error) / d)``, where the volumes omit
omega_d; for an integer k it is 1 / r_k. rho orders the rows as ``log density - error`` does, and does not overflow for
any d.

Duplicate rows. Distances of 0 do not end a neighbourhood: it contains at least the first row that differs, if this row
is among the 100 nearest. If it is not, r_k is half the smallest r_k of the other rows. The results of equal rows are
bitwise identical.

Cost. After the passes for the nearest rows come a few dozen steps on 100 numbers per row. The ranks take turns to send
the distances of their lists to all others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.density_peaks.passes.all_pairs import Neighbors, positive_radii
from mgclust.algorithms.density_peaks.topography.intrinsic_dimension import two_nearest_dimension
from mgclust.base.errors import InputError
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import all_true
from mgclust.kernels.pairs.metrics import Metric

__all__ = [
    "FEWEST_ROWS",
    "MAX_K",
    "MIN_K",
    "PIECE_BYTES",
    "LogDensity",
    "adaptive_error",
    "adaptive_rho",
    "log_densities",
    "most_neighbors",
    "shells",
]

Array = Any

MIN_K, MAX_K = 3, 100
FEWEST_ROWS = MIN_K + 2
CHANCE = 23.928127  # a chi-square variable of one degree of freedom exceeds this with probability 1e-6
STEEPEST = 20.0  # log of the largest change of the density between the middle of a neighbourhood and its end
STEPS, CLOSE = 60, 1e-10  # largest number of Newton steps, and relative tolerance of the mean
PIECE_BYTES = 12 * 8 * MAX_K  # memory per row of a block


class LogDensity(NamedTuple):
    """Densities of all rows, on the device of every rank, with the dimension and neighbourhoods used for them."""

    dim: float  # intrinsic dimension
    dim_rows: int  # number of rows from which the dimension was found
    k: Array  # (n,), int32: number of rows in each neighbourhood
    value: Array  # (n,), float64: log density
    error: Array  # (n,), float64: its standard error


def most_neighbors(n: int) -> int:
    """Return the length of the lists of nearest rows that ``k="adaptive"`` needs for n rows.

    Parameters
    ----------
    n : int

    Returns
    -------
    int
    """
    return min(MAX_K, n - 1)


def log_densities(
    context: Context, measure: Metric, near: Neighbors, *, adaptive: bool, most_dim: float
) -> tuple[LogDensity, Array]:
    """Find the densities from lists of nearest rows, and the rho by which rows are ordered.

    Parameters
    ----------
    context : Context
    measure : Metric
        Metric of the distances in the lists.
    near : Neighbors
        Nearest rows of this rank's rows, without the rows themselves: k per row, or `most_neighbors`.
    adaptive : bool
        Whether k is chosen for each row; else k is the length of the lists.
    most_dim : float
        Upper limit of the intrinsic dimension.

    Returns
    -------
    LogDensity
    rho : float64 array of shape (n,)
    """
    xp, n, gather = context.kernels.xp, context.dataset_shape[0], context.comm.all_gather
    dim, dim_rows = _dimension(context, measure, near, most_dim)
    m, width = near.s.shape
    k = xp.full(m, width, dtype="int32")
    if adaptive:
        beyond = _radii_beyond(context, near.s, near.index)
        for piece in _pieces(context):
            r = measure.distances(near.s[piece].astype("float64"), xp)
            k[piece] = neighborhoods(r, measure.distances(beyond[piece].astype("float64"), xp), dim, xp)
        del beyond
    last = xp.take_along_axis(near.s, k[:, None].astype("int64") - 1, axis=1)[:, 0]
    radius = positive_radii(measure.distances(gather(last.astype("float64")), xp), width, xp, adaptive=adaptive)
    own_radius = radius[context.rows.start : context.rows.stop]
    b = xp.zeros(m, dtype="float64")
    if adaptive:
        for piece in _pieces(context):
            r = measure.distances(near.s[piece].astype("float64"), xp)
            b[piece] = shells(r, own_radius[piece], k[piece], dim, xp)
            context.progress(piece.stop / m)
    k, b = gather(k), gather(b)
    if adaptive:
        error = adaptive_error(k, xp)
        rho = adaptive_rho(b, error, radius, dim, xp)
    else:
        b, error, rho = xp.log(k.astype("float64")), 1.0 / xp.sqrt(k.astype("float64")), 1.0 / radius
    log_ball = dim / 2 * math.log(math.pi) - math.lgamma(dim / 2 + 1)
    value = b - dim * xp.log(radius) - (log_ball + math.log(n))
    return LogDensity(dim, dim_rows, k, value, error), rho


def _dimension(context: Context, measure: Metric, near: Neighbors, most: float) -> tuple[float, int]:
    """Return the intrinsic dimension, at most `most`, and the number of rows from which it was found."""
    xp = context.kernels.xp
    two = context.comm.all_gather(measure.distances(near.s[:, :2].astype("float64"), xp))
    r = context.kernels.memory.to_host(two)
    apart = r[:, 0] > 0
    dim = min(two_nearest_dimension(np.log(r[apart, 1] / r[apart, 0])), most)
    if not math.isfinite(dim):
        raise InputError(
            "metric='precomputed': the intrinsic dimension is unknown, because each row has a duplicate, or its two "
            "nearest rows are at the same distance; drop duplicate rows, or use an integer k without significance."
        )
    return dim, int(apart.sum())


def _pieces(context: Context) -> Iterator[slice]:
    """Yield positions of local rows, block by block: each block has the same rows on any number of ranks."""
    first = context.rows.start
    for block in context.partition.blocks_of(context.rank):
        start, stop = context.partition.bounds(block)
        yield slice(start - first, stop - first)


def _radii_beyond(context: Context, s: Array, index: Array) -> Array:
    """Return the reduced distance of each row's (k + 1)-th nearest row to its own k-th nearest row, for k >= 3."""
    xp, columns = context.kernels.xp, slice(MIN_K, s.shape[1])
    out = xp.zeros((len(s), s.shape[1] - MIN_K), dtype=s.dtype)
    place = xp.arange(MIN_K - 1, s.shape[1] - 1)
    for owner in range(context.size):
        start, stop = context.partition.rows_of(owner)
        if start == stop:
            continue
        theirs = context.comm.broadcast(s if owner == context.rank else None, owner)
        for piece in _pieces(context):
            which = index[piece, columns] - start
            here = (which >= 0) & (which < stop - start)
            out[piece] = xp.where(here, theirs[xp.where(here, which, 0), place], out[piece])
    return out


def neighborhoods(r: Array, beyond: Array, dim: float, xp: Any) -> Array:
    """Find k* of some rows.

    Parameters
    ----------
    r : float64 array of shape (m, width)
        Distances to the nearest rows, ascending.
    beyond : float64 array of shape (m, width - 3)
        For k = 3, 4, ...: the distance of the (k + 1)-th nearest row to its own k-th nearest row.
    dim : float
        Intrinsic dimension.
    xp : module
        numpy or cupy.

    Returns
    -------
    int32 array of shape (m,)
    """
    width = r.shape[1]
    own = r[:, MIN_K - 1 : width - 1]
    ks = xp.arange(MIN_K, width, dtype="float64")
    ratio = xp.where((own > 0) & (beyond > 0), own / xp.where(beyond > 0, beyond, 1.0), 1.0)
    half = abs(dim / 2 * xp.log(ratio))
    # 2 log(V + W) - log V - log W - log 4 = 2 log cosh(log(V / W) / 2)
    statistic = 4 * ks * (half + xp.log1p(xp.exp(-2 * half)) - math.log(2))
    differ = ((statistic > CHANCE) | (beyond == 0)) & (own > 0)
    differ = differ.view("uint8")
    return xp.where(differ.max(axis=1) > 0, differ.argmax(axis=1) + MIN_K, width).astype("int32")


def shells(r: Array, radius: Array, k: Array, dim: float, xp: Any) -> Array:
    """Return b, the logarithm of the density times the volume of a ball of radius r_k; it replaces log(k).

    Parameters
    ----------
    r : float64 array of shape (m, width)
        Distances to the nearest rows, ascending.
    radius : float64 array of shape (m,)
        r_k, positive.
    k : int32 array of shape (m,)
        Number of rows in each neighbourhood.
    dim : float
        Intrinsic dimension.
    xp : module
        numpy or cupy.

    Returns
    -------
    float64 array of shape (m,)
    """
    ks = k.astype("float64")
    number = xp.arange(1, r.shape[1] + 1, dtype="float64")
    inside = number <= ks[:, None]
    volume = xp.where(inside, (xp.minimum(r / radius[:, None], 1.0)) ** dim, 0.0)
    v = volume.copy()
    v[:, 1:] -= volume[:, :-1]
    v = xp.where(inside, v, 0.0)
    t = xp.where(inside, number - ((ks + 1) / 2)[:, None], 0.0)  # position relative to the middle of the neighbourhood
    a = xp.zeros(len(r), dtype="float64")
    high = 2 * STEEPEST / (ks - 1)
    low = -high
    rooted = (_moments(v, t, low, xp)[1] < 0) & (_moments(v, t, high, xp)[1] > 0)
    for _ in range(STEPS):
        _, mean, variance = _moments(v, t, a, xp)
        settled = ~rooted | (abs(mean) <= CLOSE * ks)
        if all_true(settled):
            break
        high, low = xp.where(mean > 0, a, high), xp.where(mean > 0, low, a)
        step = a - mean / xp.where(variance > 0, variance, 1.0)
        within = (variance > 0) & (step > low) & (step < high)
        a = xp.where(settled, a, xp.where(within, step, (low + high) / 2))
    a = xp.where(rooted, a, 0.0)
    total = xp.where(rooted, _moments(v, t, a, xp)[0], 1.0)
    return xp.log(ks) - xp.log(total) - a * (ks + 1) / 2


def _moments(v: Array, t: Array, a: Array, xp: Any) -> tuple[Array, Array, Array]:
    """Return, for each row, the sum of the weights v exp(a t), and the weighted mean and variance of t."""
    weight = v * xp.exp(a[:, None] * t)
    total = weight.sum(axis=1)
    some = xp.where(total > 0, total, 1.0)
    mean = (weight * t).sum(axis=1) / some
    return total, mean, (weight * t * t).sum(axis=1) / some - mean * mean


def adaptive_error(k: Array, xp: Any) -> Array:
    """Return the standard error of the logarithm of a density from k rows, float64."""
    ks = k.astype("float64")
    return xp.sqrt((4 * ks + 2) / (ks * (ks - 1)))


def adaptive_rho(b: Array, error: Array, radius: Array, dim: float, xp: Any) -> Array:
    """Return the d-th root of exp(log density - error), up to a constant."""
    return xp.exp((b - error) / dim) / radius
