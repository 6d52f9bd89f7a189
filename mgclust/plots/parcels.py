"""Plot of the evaluation of parcels against the number of parcels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from mgclust.plots.sources import result_with
from mgclust.plots.style import ACCENT, FIGURE, INK, MUTED, POINT, marks, own_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mgclust.results.result import Result

__all__ = ["parcel_evaluation"]

LINES = {
    "held_out": ("homogeneity, held out", ACCENT),
    "dcbc": ("DCBC, held out", POINT),
    "split_half_ari": ("ARI of the halves", INK),
}


def parcel_evaluation(result: Result | Any, ax: Axes | None = None) -> Axes:
    """Scores of the parcels of both halves of the series, against the number of parcels; the chosen number is marked.

    Solid lines are the scores of the fit: homogeneity of the parcels of one half on the other half, distance-controlled
    boundary coefficient on the other half, and adjusted Rand index of the parcels of both halves. Dashed lines of the
    same colours are the scores of connected parcels that are made only from coordinates, without the series.

    Parameters
    ----------
    result : Result or fitted estimator
        A result of ``parcellation``, or a fitted `mgclust.Parcellation`, with an evaluation.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
        The Axes of the plot.

    Raises
    ------
    InputError
        The fit did not evaluate its parcels.

    Examples
    --------
    >>> from mgclust import Parcellation, plots
    >>> from mgclust.datasets import make_bold
    >>> bold, mask, _ = make_bold(shape=(8, 8, 6), n_parcels=4)
    >>> from mgclust.data.neighbors import volume_neighbors
    >>> graph = volume_neighbors(mask, mask.shape)
    >>> model = Parcellation([2, 4, 8], client=None).fit(bold[mask], neighbors=graph)
    >>> plots.parcel_evaluation(model).get_xlabel()
    'parcels'
    """
    result = result_with(result, "scan_split_half_ari", "give a result of 'parcellation' with several n_parcels")
    arrays = result.arrays
    k = np.asarray(arrays["scan_n_clusters"])
    ax = own_axes(ax, FIGURE)
    for name, (label, color) in LINES.items():
        ax.plot(
            k, np.asarray(arrays[f"scan_{name}"], float), color=color, linewidth=1.6, label=label, **marks(len(k), 4)
        )
        alone = np.asarray(arrays.get(f"scan_coordinates_{name}", np.nan), float)
        if np.isfinite(alone).any():
            ax.plot(k, alone, color=color, linewidth=1.1, linestyle=(0, (4, 3)), alpha=0.8)
    chosen = result.scores["n_clusters"]
    ax.axvline(chosen, color=MUTED, linewidth=1.0, linestyle=(0, (1, 2)))
    if len(k) > 2 and k.max() > 8 * k.min():
        ax.set_xscale("log")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("parcels")
    ax.set_ylabel("higher is better")
    ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=9, labelcolor=MUTED, loc="best")
    ax.set_title(f"{len(k):,} number{'s' * (len(k) != 1)} of parcels compared, {chosen:,} chosen")
    return ax
