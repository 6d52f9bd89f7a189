r"""Validity indices of fuzzy partitions, and the choice of a number of clusters by one of them.

n rows in c clusters have memberships u and weights w, which sum to W; v are the centres, and J is the objective (see
`mgclust.algorithms.fuzzy_c_means.ranks`):

    partition coefficient   sum w u^2 / W                 from 1/c (nothing is clear) to 1 (each row in one cluster)
    modified coefficient    1 - c / (c - 1) (1 - PC)      from 0 to 1 for any c (Dave 1996)
    partition entropy       - sum w u log u / W           from 0 to log c
    Xie-Beni                J / (W min over j != k of |v_j - v_k|^2)         lower: clusters are tight and far apart
    fuzzy silhouette        sum w (u1 - u2) s / sum w (u1 - u2)              from -1 to 1 (Campello and Hruschka 2006)
    fuzzy hypervolume       sum over j of sqrt(det F_j / det F_0)            lower is better (Gath, Geva 1989)

u1 and u2 are a row's two largest memberships. s is the silhouette of the row if each row belongs to its nearest centre;
it is exact, from all pairs. F_j is the covariance of a cluster and F_0 the covariance of all rows, if clusters have
their own covariances (`mgclust.algorithms.fuzzy_c_means.covariances`). J then uses the distances of these covariances,
but |v_j - v_k| is Euclidean.

Cost. The fuzzy silhouette needs the distances of all pairs of rows, or three passes over the rows for cosine and
correlation, once for all numbers of clusters. The other indices cost nothing: they come with the sums of a pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mgclust.algorithms.common.nearest_centers import nearest_centers
from mgclust.algorithms.common.preparation import Prepared
from mgclust.algorithms.fuzzy_c_means.memberships import pieces_of_memberships
from mgclust.algorithms.fuzzy_c_means.options import CRITERIA
from mgclust.algorithms.fuzzy_c_means.prototypes import Prototypes
from mgclust.algorithms.fuzzy_c_means.weighted_sums import OwnWeights
from mgclust.algorithms.silhouette.ranks import estimate as estimate_silhouettes
from mgclust.algorithms.silhouette.ranks import has_closed_form, score_labelings
from mgclust.engine.spmd import Context
from mgclust.kernels.pairs.metrics import METRICS, Metric

__all__ = [
    "RangeCandidate",
    "chosen",
    "fuzzy_silhouettes",
    "silhouette_bytes",
    "silhouettes_in_float64",
    "with_silhouettes",
    "xie_beni",
]


@dataclass(frozen=True)
class RangeCandidate:
    """Validity of the best partition into one number of clusters."""

    n_clusters: int
    objective: float
    partition_coefficient: float
    modified_partition_coefficient: float
    partition_entropy: float
    xie_beni: float
    fuzzy_silhouette: float
    fuzzy_hypervolume: float
    n_iter: int

    @staticmethod
    def columns(candidates: Sequence[RangeCandidate]) -> dict[str, np.ndarray]:
        """Return the fields of all candidates as arrays, by name."""
        names = [field.name for field in fields(RangeCandidate)]
        return {name: np.array([getattr(each, name) for each in candidates]) for name in names}


def chosen(candidates: Sequence[RangeCandidate], criterion: str) -> int:
    """Return the position of the best candidate by a criterion; ties go to the first; 0 if no value is finite."""
    values = [getattr(each, criterion) for each in candidates]
    defined = [value for value in values if math.isfinite(value)]
    return values.index(CRITERIA[criterion](defined)) if defined else 0


def xie_beni(objective: float, total: float, nearest: np.ndarray) -> float:
    """Return the Xie-Beni index; infinite if centres coincide, NaN for one cluster."""
    if len(nearest) < 2:
        return math.nan
    least = float(nearest.min())
    return objective / (total * least) if least > 0 else math.inf


def fuzzy_silhouettes(
    context: Context,
    measure: Metric,
    partitions: list[Prototypes],
    m: float,
    noise: float | None,
    weights: OwnWeights | None,
    prepared: Prepared,
) -> tuple[list[float], float]:
    """Return the fuzzy silhouettes of partitions in Euclidean norms; equal on all ranks.

    Parameters
    ----------
    context : Context
        Its rows have been through `prepare_rows` with `measure`.
    measure : Metric
    partitions : list of Prototypes
    m : float
    noise : float, optional
        Squared distance of a noise cluster.
    weights : OwnWeights, optional
    prepared : Prepared
        Result of `prepare_rows`.

    Returns
    -------
    silhouettes : list of float
        NaN if all rows are nearest to one centre.
    distance_error : float
        Largest error of all partitions; see `SilhouetteScores`.
    """
    nearest = (nearest_centers(context, each.centers) for each in partitions)
    every = [context.kernels.memory.to_host(context.comm.all_gather(labels)) for labels in nearest]
    codes = [np.unique(labels, return_inverse=True)[1].astype(np.int32) for labels in every]
    found = [math.nan] * len(partitions)
    several = [at for at, each in enumerate(codes) if each.max() > 0]
    labelings = [codes[at] for at in several]
    scores = score_labelings(context, measure, labelings, keep_samples=True, prepared=prepared)
    for at, score in zip(several, scores, strict=True):
        assert score.samples is not None
        found[at] = _weighed(context, pieces_of_memberships(context, partitions[at], m, noise), weights, score.samples)
    return found, max((score.distance_error for score in scores), default=0.0)


def silhouettes_in_float64(metric: str) -> bool:
    """Return whether silhouettes come from sums of squares, which lose digits in float32."""
    return has_closed_form(METRICS[metric])


def silhouette_bytes(
    shape: tuple[int, int], itemsize: int, size: int, room: int, *, metric: str, n_clusters: int
) -> int:
    """Return the bytes of a rank for the silhouettes of a partition into `n_clusters` clusters."""
    closed = has_closed_form(METRICS[metric])
    return estimate_silhouettes(shape, itemsize, size, room, closed=closed, n_clusters=n_clusters).needed


def _weighed(context: Context, pieces: Any, weights: OwnWeights | None, samples: np.ndarray) -> float:
    """Return the mean silhouette of the rows, weighted by the difference of their two largest memberships."""
    size, own = context.partition.block_rows, context.partition.blocks_of(context.rank)
    parts = np.zeros((len(own), 2))
    for start, stop, u in pieces:
        if stop == start:
            continue
        second, first = np.partition(u, -2, axis=1)[:, -2:].T.astype(np.float64)
        clear = first - second
        if weights is not None:
            clear *= weights.array[start - context.rows.start : stop - context.rows.start]
        edges = np.arange(0, stop - start, size)
        blocks = slice(start // size - own.start, start // size - own.start + len(edges))
        parts[blocks, 0] = np.add.reduceat(clear * samples[start:stop], edges)
        parts[blocks, 1] = np.add.reduceat(clear, edges)
    kernels = context.kernels
    above, below = context.fetch(context.sum_parts(kernels.memory.to_device(parts)))()
    return float(above / below) if below > 0 else math.nan


def with_silhouettes(candidates: Sequence[RangeCandidate], silhouettes: Sequence[float]) -> list[RangeCandidate]:
    """Return the candidates with their fuzzy silhouettes."""
    return [replace(each, fuzzy_silhouette=s) for each, s in zip(candidates, silhouettes, strict=True)]
