"""The n x n similarities of affinity propagation: each rank holds those of its own rows.

=============  ===============================  =============================================
affinity       S(i,k), i != k                   dissimilarity that the silhouette belongs to
=============  ===============================  =============================================
euclidean      -|x_i - x_k|^2                   |x_i - x_k|, or its square if asked for
cosine         -(1 - cos(x_i, x_k)) / 2         1 - cos
correlation    -(1 - r(x_i, x_k)) / 2           1 - r
precomputed    as given, row i of the data      -S, shifted to be positive
=============  ===============================  =============================================

Ties between similarities would make messages oscillate; noise breaks them: ``S + (eps S + 100 tiny) U``, with U in
[0, 1) from a counter-based generator (Philox) keyed on (seed, i, k). So S(i,k) does not depend on the rank.

Cost. n^2 reduced distances over all ranks, each written once; the data pass every rank once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.common.preparation import DOT_CONDITION, MIN_FEATURES_FOR_DOT, prepare_rows
from mgclust.engine.spmd import Context
from mgclust.kernels.affinity_propagation.messages import padded
from mgclust.kernels.pairs.metrics import METRICS

__all__ = ["AFFINITIES", "Similarities", "median_ranks", "similarity_matrix"]

Array = Any

# The metric whose reduced distance the similarity is a multiple of, and that multiple (without its sign).
AFFINITIES = {"euclidean": ("euclidean", 1.0), "cosine": ("cosine", 0.25), "correlation": ("correlation", 0.25)}
TYPICAL_ROWS = 256  # whose distances tell the scale


class Similarities(NamedTuple):
    """What the ranks know of S."""

    s: Array  # shape (m, padded(n)): own rows; -inf on the diagonal and in the padding
    # lowest, highest: of all ranks, the diagonal left out
    lowest: float
    highest: float
    # shape (n,): as it was given with precomputed similarities; else zeros, the similarity of a row to
    # itself
    diagonal: np.ndarray

    @property
    def all_alike(self) -> bool:
        """Whether no similarity differs from another by more than the noise."""
        limits = np.finfo(self.s.dtype)
        noise = 4 * (limits.eps * max(abs(self.lowest), abs(self.highest)) + 100 * limits.tiny)
        return bool(self.highest - self.lowest <= noise)


def similarity_matrix(context: Context, affinity: str, seed: int) -> Similarities:
    """Compute or read the similarities of this rank's rows; the rows are left as the metric wants them.

    Parameters
    ----------
    context : Context
    affinity : {"euclidean", "cosine", "correlation", "precomputed"}
    seed : int
        Of the noise that breaks ties.
    """
    xp, kernels, rows = context.kernels.xp, context.kernels, context.rows
    n = context.dataset_shape[0]
    diagonal = np.zeros(n)
    if affinity == "precomputed":
        s, diagonal = _read(context, seed)
    else:
        norm = _prepare(context, affinity)
        s = xp.empty((len(rows), padded(n)), context.dtype)
        s[:, n:] = -xp.inf
        for chunk, block in context.all_pairs():
            kernels.affinity_propagation.similarities(
                chunk.x,
                block.x,
                norm=norm,
                factor=AFFINITIES[affinity][1],
                first_row=chunk.start,
                y_start=block.start,
                seed=seed,
                out=s[chunk.start - rows.start : chunk.stop - rows.start],
            )
    return Similarities(s, *_range(context, s), diagonal)


def median_ranks(count: int) -> tuple[int, int]:
    """Ranks (from 1) of the two values whose mean is the median of so many."""
    return (count + 1) // 2, count // 2 + 1


def _prepare(context: Context, affinity: str) -> str:
    """Make the rows ready; return the arithmetic that their distances can afford."""
    measure = METRICS[AFFINITIES[affinity][0]]
    radius = prepare_rows(context, measure).radius
    if context.rows.n_features < MIN_FEATURES_FOR_DOT:
        return measure.norm
    n = context.dataset_shape[0]
    chosen = np.sort(np.random.default_rng(0).choice(n, min(n, TYPICAL_ROWS), replace=False))
    x = context.gather_rows(chosen)
    typical = float(
        np.median(context.kernels.memory.to_host(context.kernels.pairs.reduced_distances(x, x, norm=measure.norm)))
    )
    return "l2-dot" if radius <= DOT_CONDITION * typical else measure.norm


def _read(context: Context, seed: int) -> tuple[Array, np.ndarray]:
    """Similarities from the data, whose row i they are, and the diagonal of all ranks."""
    xp, rows, n = context.kernels.xp, context.rows, context.dataset_shape[0]
    s = xp.empty((len(rows), padded(n)), context.dtype)
    s[:, n:] = -xp.inf
    for block in rows.chunks():
        s[block.start - rows.start : block.stop - rows.start, :n] = block.x
        context.progress((block.stop - rows.start) / max(1, len(rows)))
    own = xp.arange(len(rows))
    diagonal = context.kernels.memory.to_host(context.comm.all_gather(s[own, own + rows.start].astype("float64")))
    s[own, own + rows.start] = -xp.inf
    context.kernels.affinity_propagation.jitter(s, n=n, first_row=rows.start, seed=seed, draw=0, tiny=100.0)
    return s, diagonal


def _range(context: Context, s: Array) -> tuple[float, float]:
    xp = context.kernels.xp
    low, high = xp.full(1, xp.inf), xp.full(1, -xp.inf)
    step = context.partition.block_rows
    for start in range(0, s.shape[0], step):
        part = s[start : start + step]  # with its padding of -inf: contiguous, which CuPy reduces many times faster
        high = xp.maximum(high, part.max())
        low = xp.minimum(low, xp.where(part > -xp.inf, part, xp.inf).min())
        context.progress(start / s.shape[0])
    low, high = context.comm.all_reduce(low, "min"), context.comm.all_reduce(high, "max")
    return float(low[0]), float(high[0])
