"""Validity indices of fuzzy partitions against the number of clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from mgclust.plots.sources import result_with
from mgclust.plots.style import ACCENT, FIGURE, INK, MUTED, POINT, faint_axis, marks, own_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mgclust.results.result import Result

__all__ = ["validity"]

STEEP = 30.0  # smallest ratio of the largest to the smallest value for which the axis is logarithmic
LOW_IS_BETTER = {"fuzzy_hypervolume": "fuzzy hypervolume", "xie_beni": "Xie-Beni"}
HIGH_IS_BETTER = {
    "modified_partition_coefficient": ("modified partition coefficient (right)", MUTED, (0, (1, 2))),
    "fuzzy_silhouette": ("fuzzy silhouette (right)", POINT, "-"),
}


def validity(result: Result | Any, ax: Axes | None = None) -> Axes:
    """Validity indices against the number of clusters, with the chosen number marked by a dashed line.

    Left axis, lower is better: the Xie-Beni index, or the fuzzy hypervolume if clusters have covariances. Right axis,
    higher is better: the modified partition coefficient, and the fuzzy silhouette if it was computed.

    Parameters
    ----------
    result : Result or fitted estimator
        A result of ``fuzzy-c-means``, or a fitted `mgclust.FuzzyCMeans`, with ``n_clusters_range``.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        The fit did not scan several numbers of clusters.

    Examples
    --------
    >>> from mgclust import FuzzyCMeans, plots
    >>> from mgclust.datasets import make_gaussian_rings
    >>> model = FuzzyCMeans(n_clusters_range=(2, 4), random_state=0).fit(make_gaussian_rings().X)
    >>> ax = plots.validity(model)
    """
    result = result_with(result, "scan_xie_beni", "give a result of 'fuzzy-c-means' with n_clusters_range")
    arrays = result.arrays
    k = np.asarray(arrays["scan_n_clusters"])
    ax = own_axes(ax, FIGURE)
    hypervolume = np.asarray(arrays.get("scan_fuzzy_hypervolume", np.nan), dtype=float)
    least = "xie_beni" if np.isnan(hypervolume).all() else "fuzzy_hypervolume"
    words, index = LOW_IS_BETTER[least], np.asarray(arrays[f"scan_{least}"], dtype=float)
    defined = np.isfinite(index)
    lines = ax.plot(
        k[defined], index[defined], color=ACCENT, linewidth=1.6, label=f"{words} (left)", **marks(len(k), 4)
    )
    if defined.any() and index[defined].max() > STEEP * index[defined].min() > 0:
        ax.set_yscale("log")
    right = faint_axis(ax, "other indices: higher is better")
    for name, (label, color, line) in HIGH_IS_BETTER.items():
        values = np.asarray(arrays[f"scan_{name}"], dtype=float)
        if np.isfinite(values).any():
            look: dict[str, Any] = {"color": color, "linewidth": 1.2, "linestyle": line, **marks(len(k), 3)}
            lines += right.plot(k, values, label=label, **look)
    chosen = result.scores.get("n_clusters")
    if chosen is not None:
        ax.axvline(chosen, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), alpha=0.7)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("clusters")
    ax.set_ylabel(f"{words}: lower is better")
    ax.legend(handles=lines, frameon=True, framealpha=0.85, edgecolor="none", fontsize=9, labelcolor=MUTED, loc="best")
    ax.set_title(f"{len(k):,} numbers of clusters compared" + (f", {chosen:,} chosen" if chosen is not None else ""))
    return ax
