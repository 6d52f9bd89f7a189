"""Rows and the canopies that cover them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import PolyCollection

from mgclust.base.errors import InputError
from mgclust.plots.clusters import NUMBERED_CLUSTERS, scatter
from mgclust.plots.sources import feature_names_of, holds_result, result_with, rows_of
from mgclust.plots.style import cluster_colors, counted_title, drawn_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["canopies"]

MAX_OUTLINES = 1_000  # more would cover the rows
# Outlines of the unit ball around the origin, for the metrics whose canopies can be drawn in the plane.
_TURN = 2 * np.pi * np.arange(72) / 72
OUTLINES = {
    "euclidean": np.column_stack([np.cos(_TURN), np.sin(_TURN)]),
    "manhattan": np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]),
}


def canopies(
    X: Any,
    labels: Any,
    centers: Any = None,
    t1: float | None = None,
    t2: float | None = None,
    ax: Axes | None = None,
    *,
    metric: str | None = None,
    total: int | None = None,
    feature_names: Sequence[str] | None = None,
) -> Axes:
    """Rows in the plane, coloured by their nearest centre; with two features, also the canopies.

    With more than two features, the axes are the first two principal components (see `scatter`). With two features,
    solid lines at the distance `t1` from the centres show the canopies, unless there are more than 1,000. Dotted lines
    show the distance `t2`, unless there are more than 40 canopies.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        The rows, or a sample of them; see `total`.
    labels : array of shape (n_samples,), int, Result or fitted estimator
        Index of the nearest centre of each row. A result or an estimator also provides `centers`, `t1`, `t2` and
        `metric`, if these are not given.
    centers : array of shape (n_canopies, n_features), optional
        Centres in the order of the labels. Required unless `labels` is a result or an estimator.
    t1, t2 : float, optional
        The loose and the tight distance. Required unless `labels` is a result or an estimator.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    metric : str, optional
        Metric of the distances, by default "euclidean". Canopies are drawn as circles for "euclidean", as squares that
        stand on a corner for "manhattan", and not at all for other metrics.
    total : int, optional
        Number of rows of the data, for the title, if `X` is a sample.
    feature_names : sequence of str, optional
        Names of the columns of `X`; see `scatter`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        `centers`, `t1` or `t2` is missing.

    Examples
    --------
    >>> from mgclust import plots
    >>> X = [[0.0, 0.0], [0.5, 0.0], [5.0, 5.0]]
    >>> ax = plots.canopies(X, [0, 0, 1], centers=[X[0], X[2]], t1=2.0, t2=1.0)
    >>> ax.get_title()
    '2 canopies, 3 points'
    """
    feature_names = feature_names_of(X, labels) if feature_names is None else feature_names
    X = rows_of(X)
    if holds_result(labels):
        result = result_with(labels, "cluster_centers", "give a result of 'canopy'")
        centers = result.arrays["cluster_centers"] if centers is None else centers
        t1, t2 = (result.scores[name] if t is None else t for name, t in (("t1", t1), ("t2", t2)))
        metric, labels = metric or result.parameters.get("metric"), result.labels
    if centers is None or t1 is None or t2 is None:
        raise InputError("centers, t1 or t2 is missing; give all three, or a fitted Canopy as labels.")
    metric = metric or "euclidean"
    centers = rows_of(centers)
    count = len(centers)
    few = count <= NUMBERED_CLUSTERS
    ax = scatter(
        X, labels, centers if few or X.shape[1] != 2 else None, ax=ax, total=total, feature_names=feature_names
    )
    if X.shape[1] == 2 and metric in OUTLINES and count <= MAX_OUTLINES:
        colors = cluster_colors(count)
        outline = OUTLINES[metric]
        look: dict[str, Any] = {"facecolors": "none", "edgecolors": colors, "zorder": 3}
        width, alpha = (1.3, 0.9) if few else (0.7, 0.6)
        loose = PolyCollection(t1 * outline + centers[:, None], linewidths=width, alpha=alpha, **look)
        tight = PolyCollection(t2 * outline + centers[:, None], linewidths=width, linestyles=":", alpha=alpha, **look)
        for outlines in (loose, tight) if few else (loose,):
            ax.add_collection(outlines)
        ax.autoscale_view()
    n_drawn = len(drawn_rows(len(X)))
    title = f"{count:,} canop{'y' if count == 1 else 'ies'}"
    ax.set_title(counted_title(title, n_drawn, total or len(X)))
    return ax
