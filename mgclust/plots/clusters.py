"""The decision graph of density peaks, and rows by cluster in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.outside.quoting import shortened
from mgclust.plots import style
from mgclust.plots.sources import (
    feature_names_of,
    holds_result,
    labels_of,
    one_per_row,
    result_of,
    result_with,
    rows_of,
)
from mgclust.plots.style import (
    FIGURE,
    INK,
    MUTED,
    POINT,
    UNASSIGNED,
    cluster_colors,
    counted_title,
    drawn_rows,
    own_axes,
    rgb,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mgclust.results.result import Result

__all__ = ["decision_graph", "scatter"]

NUMBERED_CLUSTERS = 40  # largest number of clusters for which centres have numbers
DENSITIES = {"cutoff": "neighbours within $d_c$", "knn": "1 / distance to the nearest rows"}


def decision_graph(result: Result | Any, ax: Axes | None = None, log: bool | None = None) -> Axes:
    """Decision graph: density against the distance to the nearest denser row.

    Cluster centres stand out above and to the right. A dashed line separates them from the other rows, unless low
    density or a significance test selected them.

    Parameters
    ----------
    result : Result or fitted estimator
        A result of ``density-peaks``, or a fitted `mgclust.DensityPeaks`.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    log : bool, optional
        Whether both axes are logarithmic. By default, an axis is logarithmic if most centres would lie in the lowest
        tenth of a linear axis.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        `result` is the result of another method.

    Examples
    --------
    >>> from mgclust import DensityPeaks, plots
    >>> from mgclust.datasets import make_gaussian_rings
    >>> model = DensityPeaks().fit(make_gaussian_rings().X)
    >>> plots.decision_graph(model).get_title()
    'Decision graph: 15 centres, 600 points'
    """
    result = result_with(result, "delta", "give a result of 'density-peaks'")
    ax = own_axes(ax, FIGURE)
    rho, delta = (np.asarray(result.arrays[name], dtype=float) for name in ("rho", "delta"))
    centers = np.asarray(result.arrays["centers"])
    rows = drawn_rows(len(rho), always=_largest(delta, style.MAX_POINTS // 25))
    log_rho, log_delta = (_squeezed(values, centers) if log is None else log for values in (rho, delta))
    if log_rho:
        ax.set_xscale("log")
    if log_delta:
        # Duplicates have delta 0, which has no logarithm: draw them at the bottom.
        delta = np.maximum(delta, delta[delta > 0].min(initial=1.0) / 2)
        ax.set_yscale("log")
    many = len(rows) > 5_000
    size, alpha = (5, 0.3) if many else (16, 0.55)
    others = np.setdiff1d(rows, centers)
    ax.scatter(rho[others], delta[others], s=size, color=POINT, alpha=alpha, linewidths=0, rasterized=True)
    _draw_centers(ax, np.column_stack([rho[centers], delta[centers]]))
    _draw_thresholds(ax, result, rho, delta, centers)
    density = result.parameters.get("density", "gaussian")
    ax.set_xlabel(f"density $\\rho$ ({DENSITIES.get(str(density), 'Gaussian-weighted neighbours')})")
    ax.set_ylabel("$\\delta$: distance to the nearest denser point (data units)")
    ax.set_title(counted_title(f"Decision graph: {len(centers)} centres", len(rows), len(rho)))
    return ax


def scatter(
    X: Any,
    labels: Any,
    centers: Any = None,
    halo: Any = None,
    ax: Axes | None = None,
    total: int | None = None,
    feature_names: Sequence[str] | None = None,
) -> Axes:
    """Rows in the plane, coloured by cluster.

    With more than two features, the axes are the first two principal components.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        The rows, or a sample of them; see `total`.
    labels : array of shape (n_samples,), int, Result or fitted estimator
        Cluster of each row; rows labelled -1 are grey. A result or an estimator also provides `centers` and `halo`.
    centers : array of shape (n_clusters, n_features), optional
        Cluster centres in the order of the labels, drawn on top.
    halo : array of shape (n_samples,), bool, optional
        True for rows in the border region of their cluster, which are drawn faintly.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    total : int, optional
        Number of rows of the data, for the title, if `X` is a sample.
    feature_names : sequence of str, optional
        Names of the columns of `X`. By default, the column names of `X` if it is a table, else the feature names of the
        fitted result or estimator.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        The shapes do not match, or `labels` are not integers.

    Examples
    --------
    >>> from mgclust import plots
    >>> ax = plots.scatter([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], [0, 0, 1])
    >>> ax.get_title()
    '2 clusters, 3 points'
    """
    known = feature_names_of(X, labels) if feature_names is None else list(feature_names)
    X = rows_of(X)
    if known is None or len(known) != X.shape[1]:
        known = [f"feature {j}" for j in range(X.shape[1])]
    if centers is None and halo is None and holds_result(labels):
        centers, halo = _centers_and_halo(X, result_of(labels))
    labels = one_per_row("labels", labels_of(labels), len(X))
    if labels.dtype.kind not in "iub":
        raise InputError(f"labels has dtype {labels.dtype}, it should be integers: the number of each row's cluster.")
    halo = None if halo is None else one_per_row("halo", halo, len(X)).astype(bool)
    centers = None if centers is None else np.asarray(centers, dtype=float)
    if centers is not None and (centers.ndim != 2 or centers.shape[1] != X.shape[1]):
        raise InputError(f"centers has shape {centers.shape}, it should be (n_clusters, {X.shape[1]}), like X.")
    rows = drawn_rows(len(X))
    plane, centers, names = _plane(X, centers, known)
    plane, labels = plane[rows], np.maximum(labels[rows].astype(np.int64), -1)
    n_clusters = max(int(labels.max(initial=-1)) + 1, 0 if centers is None else len(centers))
    colors = np.vstack([cluster_colors(n_clusters), [rgb(UNASSIGNED)]])[labels]
    faint = np.zeros(len(rows), dtype=bool) if halo is None else halo[rows]
    ax = own_axes(ax, FIGURE)
    size = float(np.clip(18_000 / max(len(rows), 1), 1.6, 20))
    for chosen, alpha in ((faint, 0.28), (~faint, 0.85)):
        ax.scatter(
            plane[chosen, 0], plane[chosen, 1], s=size, c=colors[chosen],
            alpha=alpha, linewidths=0, rasterized=True,
        )  # fmt: skip
    if centers is not None:
        _draw_centers(ax, centers)
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    if _comparable(np.ptp(plane, axis=0)) and X.shape[1] > 1:
        ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(counted_title(f"{n_clusters} clusters", len(rows), total or len(X)))
    return ax


def _centers_and_halo(X: np.ndarray, result: Any) -> tuple[Any, Any]:
    """Centres of a result, if they lie in the space of X or are rows of X, and the halo of the result."""
    arrays = getattr(result, "arrays", {})
    centers = arrays.get("cluster_centers")
    if centers is not None and result.parameters.get("metric", "euclidean") != "euclidean":
        centers = None  # these centres belong to rows that were scaled to unit length
    if centers is None and "centers" in arrays and len(result.labels) == len(X):
        centers = X[np.asarray(arrays["centers"])]
    return centers, arrays.get("halo")


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    count = min(count, len(values))
    return np.argpartition(values, len(values) - count)[len(values) - count :]


def _squeezed(values: np.ndarray, centers: np.ndarray) -> bool:
    """Return whether a linear axis would press most centres into the lowest tenth of the axis."""
    return len(centers) > 2 and bool(np.median(values[centers]) < 0.1 * values.max())


def _draw_thresholds(ax: Axes, result: Result, rho: np.ndarray, delta: np.ndarray, centers: np.ndarray) -> None:
    """Draw the line that separates the centres: thresholds of rho and delta, or a threshold of their product."""
    style: dict[str, Any] = {"color": INK, "linewidth": 1.0, "linestyle": (0, (4, 3)), "alpha": 0.7}
    limits = {name: result.parameters.get(name) for name in ("rho_min", "delta_min")}
    if any(value is not None for value in limits.values()):
        if limits["rho_min"] is not None:
            ax.axvline(float(limits["rho_min"]), **style)
        if limits["delta_min"] is not None:
            ax.axhline(float(limits["delta_min"]), **style)
        return
    if "significance" in result.arrays or (result.diagnostics.get("dc_choice") or {}).get("separated"):
        return  # a significance test or low density selected the centres
    product = rho * delta
    rest = np.delete(product, centers).max(initial=0.0)
    if not len(centers) or not 0 < rest < product[centers].min():
        return
    cut = np.sqrt(rest * product[centers].min())
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    x = np.geomspace(cut / high, right, 300)
    ax.plot(x, cut / x, zorder=1.5, **style)
    ax.annotate(
        f"$\\rho\\,\\delta$ = {cut:.4g}", (cut / high, high), xytext=(7, -4),
        textcoords="offset points", ha="left", va="top", fontsize=9, color=MUTED,
    )  # fmt: skip
    ax.set_xlim(left, right)
    ax.set_ylim(low, high)


def _draw_centers(ax: Axes, centers: np.ndarray) -> None:
    """Mark the centres in the colours of their clusters, with their labels if there is room."""
    colors = cluster_colors(len(centers))
    look: dict[str, Any] = {"edgecolors": "white", "linewidths": 1.0}
    if len(centers) > NUMBERED_CLUSTERS:
        ax.scatter(centers[:, 0], centers[:, 1], s=30, c=colors, zorder=4, **look)
        return
    for k, (x, y) in enumerate(centers):
        # Draw each number directly after its mark: if marks overlap, the number stays with its mark.
        level = 4 + (len(centers) - k) / (len(centers) + 1)
        ax.scatter(x, y, s=125, color=colors[k], zorder=level, **look)
        ax.annotate(
            str(k), (x, y), ha="center", va="center_baseline", fontsize=6.5, color="white",
            fontweight="bold", zorder=level,
        )  # fmt: skip


def _plane(
    X: np.ndarray, centers: np.ndarray | None, known: Sequence[str] = ("feature 0", "feature 1")
) -> tuple[np.ndarray, np.ndarray | None, tuple[str, str]]:
    """Two coordinates for each row and centre, and the names of the axes."""
    d = X.shape[1]
    first, second = (shortened(name, 40).replace("$", r"\$") for name in (known[0], known[-1]))
    if d == 1:
        level = np.arange(len(X), dtype=float)
        if centers is not None:
            centers = np.column_stack([centers[:, 0], np.full(len(centers), len(X) / 2)])
        return np.column_stack([X[:, 0], level]), centers, (first, "row")
    if d == 2:
        return X, centers, (first, second)
    mean = X.mean(axis=0)
    centred = X - mean
    if 1 < len(X) < d:  # use the smaller matrix: it has the same axes, and the time is cubic in its size
        variance, weights = np.linalg.eigh(centred @ centred.T)
        axes = centred.T @ weights[:, -2:]
        lengths = np.linalg.norm(axes, axis=0)
        axes /= np.maximum(lengths, max(1e-6 * lengths[-1], np.finfo(float).tiny))  # without variance, an axis is noise
    else:
        variance, axes = np.linalg.eigh(centred.T @ centred)
    # The sign of an eigenvector is arbitrary: fix it, so that the same data give the same picture.
    axes = axes[:, [-1, -2]]
    axes = axes * np.where(axes[abs(axes).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    share = 100 * variance[[-1, -2]] / max(variance.sum(), np.finfo(float).tiny)
    names = tuple(f"principal component {i + 1} ({share[i]:.0f} % of the variance)" for i in (0, 1))
    projected = None if centers is None else (centers - mean) @ axes
    return centred @ axes, projected, (names[0], names[1])


def _comparable(spans: np.ndarray) -> bool:
    """Return whether the picture is wide and high enough if both axes have the same scale."""
    return bool(spans.min() > 0.2 * spans.max())
