"""Silhouettes: the rows of one labelling as bars, and the candidates of a scan as a curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.plots import style
from mgclust.plots.sources import holds_result, labels_of, one_per_row, result_with
from mgclust.plots.style import ACCENT, FIGURE, INK, MUTED, POINT, cluster_colors, counts_axis, faint_axis, own_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mgclust.results.result import Result

__all__ = ["scan", "silhouettes"]

MIN_BAND = 0.35  # smallest height of a band as a fraction of the mean height, so that small clusters are visible
GAP = 0.12  # gap between bands, as a fraction of their mean height
NAMED_BANDS = 34  # largest number of labels that have room next to the bands
BAND_ROWS = 40  # rows that are drawn of each cluster, if there are more clusters than can be named
CIRCLED = 14  # size of the mark of the chosen candidate


def silhouettes(samples: Any, labels: Any = None, ax: Axes | None = None) -> Axes:
    """Silhouette of every row as a bar, sorted within each cluster.

    A line marks the mean of each cluster, and a dashed line the mean of all rows. If there are many rows, equally
    spaced rows of each sorted cluster are drawn.

    Parameters
    ----------
    samples : array of shape (n_samples,), or Result
        The return value of `mgclust.silhouette_samples`, or a result of ``silhouette``, which also has labels.
    labels : array of shape (n_samples,), int or str, Result or fitted estimator
        Cluster of each row; rows labelled -1 are left out.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        `labels` is missing, or the shapes do not match.

    Examples
    --------
    >>> from mgclust import plots
    >>> plots.silhouettes([0.9, 0.7, 0.8, -0.1], [0, 0, 1, 1]).get_title()
    'Silhouettes: 2 clusters, 4 points'
    """
    if holds_result(samples):
        found = result_with(samples, "samples", "give a result of 'silhouette', or silhouette_samples(X, labels)")
        samples, labels = found.arrays["samples"], found.labels if labels is None else labels
    if labels is None:
        raise InputError("labels=None defines no clusters; give the labels for which the silhouettes were computed.")
    samples = np.asarray(samples, dtype=float)
    labels = one_per_row("labels", labels_of(labels), samples.size, "silhouette")
    if labels.dtype.kind in "if":
        samples, labels = samples[labels >= 0], labels[labels >= 0]
    names, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    means = np.bincount(codes, weights=samples) / np.maximum(sizes, 1)
    many = len(names) > NAMED_BANDS
    ordered = np.split(samples[np.lexsort((-samples, codes))], np.cumsum(sizes)[:-1])
    thinned = [rows[_thinned(len(rows), len(samples), len(names))] for rows in ordered]
    ax = own_axes(ax, FIGURE)
    ax.grid(visible=False, axis="y")
    # If there are many clusters, bands of equal height, sorted by their means, show a profile instead of thin stripes.
    places = np.argsort(-means, kind="stable") if many else np.arange(len(names))
    edges = np.empty((len(names), 2))
    edges[places] = _bands(np.ones(len(names)) if many else sizes, 0.0 if many else GAP)
    colors = _colors(names)
    look: dict[str, Any] = {"orientation": "horizontal", "linewidth": 0, "rasterized": True}
    for k, rows in enumerate(thinned):
        y = np.linspace(edges[k, 0], edges[k, 1], len(rows) + 1)
        ax.stairs(rows, y, fill=True, color=colors[k], alpha=0.6 if many else 0.85, **look)
    _mark_means(ax, means, edges[places], places, many)
    mean = float(samples.mean()) if len(samples) else 0.0
    ax.axvline(0, color=MUTED, linewidth=0.8)
    ax.axvline(mean, color=INK, linewidth=1.1, linestyle=(0, (4, 3)))
    step = max(1, -(-len(names) // NAMED_BANDS))
    shown = places[::step]
    ax.set_yticks(edges[shown].mean(axis=1), [str(name) for name in names[shown]])
    ax.tick_params(axis="y", length=0, labelsize=9 if len(names) <= 20 else 7.5)
    ax.set_xlim(min(-0.02, 1.05 * float(samples.min(initial=0.0))), 1.0)
    ax.set_ylim(edges.max(initial=0.1), 0.0)
    ax.set_xlabel(
        f"silhouette (dashed: mean of all rows, {mean:.3f}; {'dark' if many else 'short'} lines: means of the clusters)"
    )
    every = f"one in {step} named; " if step > 1 else ""
    ax.set_ylabel(f"clusters ({every}equal heights, sorted by mean)" if many else "cluster")
    drawn = sum(map(len, thinned))
    ax.set_title(style.counted_title(f"Silhouettes: {len(names):,} clusters", drawn, len(samples)))
    return ax


def scan(result_or_scan: Result | Mapping[str, Any], ax: Axes | None = None) -> Axes:
    """Mean silhouette of the candidates of a scan against their number of clusters, with the chosen candidate marked.

    A second curve shows the lowest mean silhouette of a cluster in each candidate.

    Parameters
    ----------
    result_or_scan : Result, fitted estimator or mapping
        A result of ``adaptive-affinity-propagation``, a fitted `mgclust.AdaptiveAffinityPropagation`, or its ``scan_``:
        arrays of equal length ``n_clusters``, ``silhouette``, ``min_cluster_silhouette`` and optionally ``preference``.
        For a mapping, the largest silhouette is marked, because the chosen candidate is not known.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        The result is of another method, or an array is missing.

    Examples
    --------
    >>> from mgclust import plots
    >>> scan = {"n_clusters": [2, 3], "silhouette": [0.4, 0.6], "min_cluster_silhouette": [0.3, 0.5]}
    >>> plots.scan(scan).get_title()
    'Scan: 2 candidates, 3 clusters chosen'
    """
    table, chosen, small = _scan_table(result_or_scan)
    ax = own_axes(ax, FIGURE)
    k, best = table["n_clusters"], table["silhouette"]
    many = len(k) > 60
    least = table.get("min_cluster_silhouette")
    if least is not None:
        ax.plot(
            k,
            least,
            color=POINT,
            marker="o",
            markersize=2 if many else 3.5,
            linewidth=1.0,
            label="lowest mean of a cluster",
        )
    ax.plot(k, best, color=ACCENT, marker="o", markersize=3 if many else 5, linewidth=1.6, label="mean of all rows")
    if small.any():
        look: dict[str, Any] = {
            "color": ACCENT,
            "markerfacecolor": "white",
            "markersize": 3 if many else 5,
            "linestyle": "none",
        }
        ax.plot(k[small], best[small], marker="o", label="not eligible: a cluster is too small", **look)
    at = np.flatnonzero(k == chosen)
    if len(at):
        _mark_chosen(ax, int(k[at[0]]), float(best[at[0]]))
    if "preference" in table:
        _draw_preference(ax, k, table["preference"])
    if k.max(initial=1) > 12 * k.min(initial=k.max(initial=1)):
        counts_axis(ax, "x", int(k.max()))
    ax.set_xlabel("clusters K")
    ax.set_ylabel("silhouette")
    ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=9, labelcolor=MUTED, loc="best")
    ax.set_title(f"Scan: {len(k):,} candidates" + (f", {chosen:,} clusters chosen" if len(at) else ""))
    return ax


def _colors(names: np.ndarray) -> np.ndarray:
    """Colour of each cluster: by its label if labels are numbers of clusters, else by its position."""
    numbered = names.dtype.kind in "iu" and len(names) > 0 and int(names.max()) < 2 * len(names)
    return cluster_colors(int(names.max()) + 1)[names] if numbered else cluster_colors(len(names))


def _bands(sizes: np.ndarray, gap: float) -> np.ndarray:
    """Edges of the bands, from 0 downwards."""
    if not len(sizes):
        return np.zeros((0, 2))
    heights = np.maximum(sizes / sizes.mean(), MIN_BAND)
    begins = np.concatenate([[0.0], np.cumsum(heights + gap)[:-1]]) + gap
    return np.column_stack([begins, begins + heights])


def _thinned(count: int, total: int, clusters: int) -> np.ndarray:
    """Positions of the rows to draw in one sorted cluster: all rows, or as many as its band has room for."""
    most = BAND_ROWS if clusters > NAMED_BANDS else max(20, style.MAX_POINTS * count // max(total, 1))
    if count <= most:
        return np.arange(count)
    return np.linspace(0, count - 1, most).round().astype(int)


def _mark_means(ax: Axes, means: np.ndarray, edges: np.ndarray, places: np.ndarray, many: bool) -> None:
    if many:
        ax.stairs(
            means[places],
            [*edges[:, 0], edges[-1, 1]],
            orientation="horizontal",
            color=INK,
            linewidth=1.2,
            baseline=None,
        )
    else:
        ax.vlines(means[places], edges[:, 0], edges[:, 1], color=INK, linewidth=1.4)


def _scan_table(source: Any) -> tuple[dict[str, np.ndarray], int, np.ndarray]:
    """Return the candidates as arrays by ascending K, the chosen K, and a mask of the candidates.

    The mask is True for candidates in which a cluster is too small.
    """
    chosen, least = None, 0
    if isinstance(source, Mapping):
        table = {name: np.asarray(values) for name, values in source.items()}
    else:
        source = result_with(source, "", "give a result of 'adaptive-affinity-propagation'")
        table = {name[5:]: np.asarray(column) for name, column in source.arrays.items() if name.startswith("scan_")}
        chosen, least = source.scores.get("n_clusters"), source.parameters.get("min_cluster_size") or 0
    if missing := {"n_clusters", "silhouette"} - table.keys():
        what = "the scan" if isinstance(source, Mapping) else f"a result of method={source.method!r}"
        other = " (plots.validity draws the scan of 'fuzzy-c-means')" if "xie_beni" in table else ""
        raise InputError(
            f"{what} has no {' and no '.join(sorted(missing))} of candidates; give a result of "
            f"'adaptive-affinity-propagation'{other}."
        )
    order = np.argsort(table["n_clusters"], kind="stable")
    table = {name: values[order] for name, values in table.items()}
    if chosen is None and len(order) and np.isfinite(table["silhouette"]).any():
        chosen = table["n_clusters"][np.nanargmax(table["silhouette"])]
    small = table.get("min_cluster_size", np.full(len(order), least)) < least
    return table, -1 if chosen is None else int(chosen), small & ~small.all()


def _mark_chosen(ax: Axes, k: int, value: float) -> None:
    ax.axvline(k, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), alpha=0.7, zorder=1.5)
    ax.plot([k], [value], marker="o", markersize=CIRCLED, markerfacecolor="none", markeredgecolor=INK, linestyle="none")
    ax.annotate(
        f"K = {k:,}: {value:.3f}", (k, value), xytext=(10, 8), textcoords="offset points", fontsize=10, color=INK,
        bbox={"facecolor": "white", "alpha": 0.85, "linewidth": 0, "pad": 1.5}, zorder=5,
    )  # fmt: skip


def _draw_preference(ax: Axes, k: np.ndarray, preference: np.ndarray) -> None:
    """Draw the preference of each candidate faintly, on a second axis at the right."""
    faint_axis(ax, "preference (dotted)").plot(k, preference, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
