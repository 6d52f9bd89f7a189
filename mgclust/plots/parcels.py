"""Plot of the evaluation of parcels against the number of parcels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

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
DASHES = (0, (4, 3))
LOG_FROM = 4  # the axis is logarithmic if the largest number is more than this many times the smallest
LABEL_ROOM = 0.07  # room for the label of a tick, as a fraction of the axis


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
    ax, drawn_null = own_axes(ax, FIGURE), False
    for name, (label, color) in LINES.items():
        ax.plot(
            k, np.asarray(arrays[f"scan_{name}"], float), color=color, linewidth=1.6, label=label, **marks(len(k), 4)
        )
        alone = np.asarray(arrays.get(f"scan_coordinates_{name}", np.nan), float)
        if np.isfinite(alone).any():
            drawn_null = True
            ax.plot(k, alone, color=color, linewidth=1.1, linestyle=DASHES, alpha=0.8)
    chosen = result.scores["n_clusters"]
    ax.axvline(chosen, color=MUTED, linewidth=1.0, linestyle=(0, (1, 2)))
    if drawn_null:
        ax.plot([], [], color=MUTED, linewidth=1.1, linestyle=DASHES, label="the same, if parcels ignore the series")
    _number_axis(ax, k, chosen)
    ax.set_xlabel("parcels")
    ax.set_ylabel("higher is better")
    # Below the axes, where it covers no line.
    look: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": MUTED}
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, **look)
    ax.set_title(f"{len(k):,} number{'s' * (len(k) != 1)} of parcels compared, {chosen:,} chosen")
    return ax


def _number_axis(ax: Axes, numbers: np.ndarray, chosen: int) -> None:
    """Mark the compared numbers on the horizontal axis; label as many of them as there is room for."""
    low, high = int(numbers.min()), int(numbers.max())
    scaled = np.asarray(numbers, float)
    if len(numbers) > 2 and high > LOG_FROM * low:
        ax.set_xscale("log")
        scaled = np.log(scaled)
    scaled = (scaled - scaled.min()) / max(np.ptp(scaled), np.finfo(float).tiny)
    labelled: list[int] = []
    for at in sorted(range(len(numbers)), key=lambda at: (numbers[at] != chosen, numbers[at] not in (low, high), at)):
        if all(abs(scaled[at] - scaled[other]) >= LABEL_ROOM for other in labelled):
            labelled.append(at)
    ax.xaxis.set_major_locator(FixedLocator(sorted(numbers[labelled].tolist())))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.xaxis.set_minor_locator(FixedLocator(numbers.tolist()))
    ax.xaxis.set_minor_formatter(NullFormatter())
