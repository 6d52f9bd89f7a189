"""Clusters of all rows from densities, links and separated peaks: by denser rows, or separated by low density.

A link leads from a row to its nearest denser row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.density_peaks.cutoff_distance.separation import (
    FullPeaks,
    clusters_of,
    full_peaks,
    heads_of,
    most_prominent,
)
from mgclust.algorithms.density_peaks.decision_graph import assign_labels, choose_centers, gamma_drop
from mgclust.algorithms.density_peaks.density_state import DensityState
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import occurrences

__all__ = ["ChosenClusters", "choose_again", "choose_clusters", "other_clusters"]

Array = Any
MIXED = 0.05  # separated clusters count as mixed if more than this fraction of the rows disagrees with them


class ChosenClusters(NamedTuple):
    """Clusters of all rows, with their peaks if they are separated by low density."""

    centers: np.ndarray
    labels: Array
    separation: FullPeaks | None = None
    mixed: int = 0  # see `DensityPeaksOutput`


def choose_clusters(
    context: Context, state: DensityState, rho: Array, delta: Array, wanted: dict[str, Any], *, compared: bool
) -> ChosenClusters:
    """Find clusters by denser rows, or clusters separated by low density, as requested or as `Separated` decides."""
    xp, host, nearest, apart = context.kernels.xp, context.kernels.memory.to_host, state.nearest, state.separated
    if apart is None:
        chosen = choose_centers(xp, rho, delta, **wanted)
        return ChosenClusters(chosen, assign_labels(xp, nearest, chosen))
    separation = full_peaks(apart, host(state.best), host(nearest))
    automatic = all(each is None for each in wanted.values())
    if automatic or compared:
        heads = most_prominent(separation.prominence, separation.rows, apart.n_clusters)
    else:
        thresholds = wanted["n_clusters"] is None
        rows = choose_centers(xp, rho, delta, **wanted) if thresholds else None
        heads = heads_of(separation, wanted["n_clusters"], rows, host(nearest))
    separated = ChosenClusters(*clusters_of(xp, separation, rho, rho * delta, nearest, heads), separation)
    if not (compared or apart.unless or apart.doubted):
        return separated
    chosen = choose_centers(xp, rho, delta, **wanted)
    denser = ChosenClusters(chosen, assign_labels(xp, nearest, chosen))
    mixed = _mixed(context, separated, denser)
    if compared:
        return denser._replace(mixed=mixed)
    if apart.doubted:
        return separated if mixed and len(chosen) == apart.n_clusters else denser
    return denser if len(chosen) == apart.unless and not mixed else separated


def _mixed(context: Context, separated: ChosenClusters, denser: ChosenClusters) -> int:
    """Return the number of separated clusters if the clusters by denser rows cut across them; else 0."""
    count, others = len(separated.centers), len(denser.centers)
    pair = separated.labels.astype("int64") * others + denser.labels
    table = context.kernels.memory.to_host(occurrences(pair, count * others, context.kernels.xp)).reshape(count, others)
    share = min(len(pair) - table.max(axis=axis).sum() for axis in (0, 1)) / len(pair)
    return count if count > 1 and share > MIXED else 0


def choose_again(
    context: Context,
    *,
    rho: np.ndarray,
    delta: np.ndarray,
    nearest_higher: np.ndarray,
    separation: FullPeaks | None,
    wanted: dict[str, Any],
) -> tuple[np.ndarray, float] | None:
    """Choose other centres on every rank, and deliver "labels"; rank 0 returns the centres and their gamma drop."""
    with context.stage("labels"):
        chosen, labels = other_clusters(rho, delta, nearest_higher, separation, wanted)
        context.deliver(labels=labels[context.rows.start : context.rows.stop])
    return (chosen, gamma_drop(np, rho, delta, chosen)) if context.rank == 0 else None


def other_clusters(
    rho: np.ndarray, delta: np.ndarray, nearest: np.ndarray, separation: FullPeaks | None, wanted: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Choose other centres and labels: by denser rows, or by peaks separated by low density.

    Parameters
    ----------
    rho, delta : ndarray of shape (n,), float64
        Density of each row, and distance to its nearest denser row.
    nearest : ndarray of shape (n,), int64
        Nearest denser row of each row.
    separation : FullPeaks or None
        The peaks, if low density separates the clusters. None: each row follows its nearest denser row.
    wanted : dict of str to object
        Arguments of `choose_centers`.

    Returns
    -------
    centers : ndarray of shape (n_clusters,), int64
    labels : ndarray of shape (n,), int32
    """
    alone = all(value is None for name, value in wanted.items() if name != "n_clusters")
    count = wanted.get("n_clusters") if alone else None
    chosen = None if separation is not None and count is not None else choose_centers(np, rho, delta, **wanted)
    if separation is None and chosen is not None:
        return chosen, np.asarray(assign_labels(np, nearest, chosen))
    assert separation is not None
    return clusters_of(np, separation, rho, rho * delta, nearest, heads_of(separation, count, chosen, nearest))
