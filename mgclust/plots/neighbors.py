"""Distances of rows to their nearest rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.plots import style
from mgclust.plots.sources import holds_result, result_with
from mgclust.plots.style import ACCENT, FIGURE, MUTED, POINT, own_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["neighbor_distances"]


def neighbor_distances(distances: Any, ax: Axes | None = None) -> Axes:
    """Distances to the first, a middle and the last neighbour, each sorted over all rows.

    A sharp rise at the right end shows outliers: rows that are far from all others. In density-based clustering, the
    distance at such a rise is a common choice of the neighbourhood radius [1]_.

    Parameters
    ----------
    distances : array of shape (n_samples, n_neighbors), or Result
        Distances of each row to its nearest rows, ascending, as from `mgclust.nearest_neighbors`.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        The array is not two-dimensional or has no columns, or the result is of another method.

    References
    ----------
    .. [1] M. Ester, H.-P. Kriegel, J. Sander and X. Xu, A density-based algorithm for discovering clusters in large
       spatial databases with noise, KDD 1996, section 4.2.

    Examples
    --------
    >>> from mgclust import plots
    >>> plots.neighbor_distances([[1.0, 2.0], [1.0, 1.5], [1.5, 2.0]]).get_title()
    'Distances to 2 neighbours, 3 points'
    """
    if holds_result(distances):
        remedy = "give a result of 'nearest-neighbors', or the distances of nearest_neighbors(X)"
        distances = result_with(distances, "distances", remedy).arrays["distances"]
    distances = np.asarray(distances)
    if distances.ndim != 2 or not distances.shape[1]:
        raise InputError(f"distances has shape {distances.shape}, it should be (n_samples, n_neighbors).")
    n, k = distances.shape
    ax = own_axes(ax, FIGURE)
    shown = min(n, style.MAX_POINTS)
    places = np.linspace(0, max(n - 1, 0), shown).round().astype(int)
    looks = ((POINT, 1.2), (MUTED, 1.2), (ACCENT, 1.8))
    largest = 0.0
    columns = sorted({0, (k - 1) // 2, k - 1})
    for column, (color, width) in zip(columns, looks[-len(columns) :], strict=True):
        values = np.sort(distances[:, column])[places]
        largest = max(largest, float(values.max(initial=0.0)))
        ax.plot(places + 1, values, color=color, linewidth=width, label=f"neighbour {column + 1}")
    ax.set_xlim(1, max(n, 2))
    ax.set_ylim(0, 1.05 * largest or 1.0)
    ax.set_xlabel("rows, sorted by each distance")
    ax.set_ylabel("distance")
    ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=9, labelcolor=MUTED, loc="upper left")
    ax.set_title(style.counted_title(f"Distances to {k:,} neighbour{'s' * (k > 1)}", n, n))
    return ax
