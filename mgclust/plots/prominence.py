"""Prominence of density peaks: by how much each peak exceeds the saddle to a denser cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mgclust.plots.sources import result_of, result_with
from mgclust.plots.style import UNASSIGNED, cluster_colors, own_axes, rgb

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mgclust.results.result import Result

__all__ = ["prominence"]

GIVE = "give a result of 'density-peaks' with separated clusters (assignment='separated') or with `significance`"
MAX_BARS = 60
MORE = 10  # peaks that are drawn in addition to the peaks of the clusters


def prominence(result: Result | Any, ax: Axes | None = None) -> Axes:
    """Prominence of the density peaks, in standard errors, the largest first.

    A clear step between two bars shows the number of clusters. A hatched bar is a peak without a saddle: its prominence
    has no limit. A dashed line marks the `significance` of the test, if a test selected the clusters.

    Parameters
    ----------
    result : Result or DensityPeaks
        A result of ``density-peaks`` or its fitted estimator, with separated clusters (``assignment="separated"``) or
        a test by `significance`.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        The result has neither separated clusters nor a test by `significance`.

    Examples
    --------
    >>> from mgclust import DensityPeaks, plots
    >>> from mgclust.datasets import make_gaussian_clusters
    >>> model = DensityPeaks(density="knn", k="adaptive", significance=1.65).fit(make_gaussian_clusters().X)
    >>> plots.prominence(model).get_title()
    'Prominence of peaks: 31 clusters'
    """
    apart = "separated_prominence" in getattr(result_of(result), "arrays", {})
    result = result_with(result, "" if apart else "significance", GIVE)
    ax, labels = own_axes(ax, (7, 4)), np.asarray(result.labels)
    k = int(result.scores["n_clusters"])
    if apart:
        heights = np.asarray(result.arrays["separated_prominence"])
        cluster = labels[np.asarray(result.arrays["separated_rows"])]
        order = np.argsort(-heights, kind="stable")[: min(k + MORE, MAX_BARS)]
        _, first = np.unique(cluster[order], return_index=True)
        own = np.isin(np.arange(len(order)), first)  # the most prominent peak of each cluster
        heights, cluster = heights[order], np.where(own, cluster[order], -1)
    else:
        heights = np.asarray(result.arrays["significance"], dtype=float)
        cluster = np.argsort(-heights, kind="stable")[:MAX_BARS]
        heights = heights[cluster]
        ax.axhline(float(result.parameters["significance"]), color="0.3", linestyle="--", linewidth=1)
    meets = np.isfinite(heights)
    top = 1.5 * float(heights[meets].max(initial=1.0))
    colors = np.vstack([cluster_colors(k), [rgb(UNASSIGNED)]])[cluster]
    bars = ax.bar(np.arange(1, len(heights) + 1), np.where(meets, heights, top), color=colors)
    for bar, saddle in zip(bars, meets, strict=True):
        bar.set_hatch("" if saddle else "//")
    ax.set_yscale("log")
    ax.set_xlabel("density peak, by rank")
    ax.set_ylabel("prominence over the saddle (standard errors)")
    ax.set_title(f"Prominence of peaks: {k} clusters")
    return ax
