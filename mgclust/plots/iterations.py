"""Decrease of the objective of an iterative method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from mgclust.base.errors import InputError
from mgclust.plots.sources import holds_result, result_with
from mgclust.plots.style import ACCENT, FIGURE, MUTED, faint_axis, marks, own_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mgclust.results.result import Result

__all__ = ["objective"]

STEEP = 30.0  # a first value so many times the last one asks for a logarithmic axis
STOPPED = {"tol": "settled", "max_iter": "max_iter reached"}


def objective(result_or_history: Result | Any, ax: Axes | None = None) -> Axes:
    """Objective over the iterations, and how much each of them changed it.

    Parameters
    ----------
    result_or_history : Result, fitted estimator or array of shape (n_iter + 1,)
        Of ``fuzzy-c-means``; or the history itself, from the value at the initial centres to that at the last ones.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib Axes
    """
    history, stopped = _history(result_or_history)
    if history.ndim != 1 or not len(history):
        raise InputError(f"history has shape {history.shape}, it should be one value an iteration, at least one.")
    ax = own_axes(ax, FIGURE)
    steps = np.arange(len(history))
    ax.plot(steps, history, color=ACCENT, linewidth=1.6, **marks(len(history), 4))
    if history[-1] > 0 and history[0] > STEEP * history[-1]:
        ax.set_yscale("log")
    if len(history) > 1:
        _draw_change(ax, steps[1:], history)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("iteration (0: the initial centres)")
    ax.set_ylabel("objective J")
    count = len(history) - 1
    title = f"Objective: {history[-1]:.6g} after {count:,} iteration{'' if count == 1 else 's'}"
    ax.set_title(title + (f" ({stopped})" if stopped else ""))
    return ax


def _history(source: Any) -> tuple[np.ndarray, str]:
    """The values, and in words why they end; that is unknown of a history alone."""
    if holds_result(source):
        result = result_with(source, "objective_history", "give one of 'fuzzy-c-means'")
        reason = str(result.diagnostics.get("stop_reason", ""))
        return np.asarray(result.arrays["objective_history"], dtype=float), STOPPED.get(reason, "")
    return np.asarray(source, dtype=float), ""


def _draw_change(ax: Axes, steps: np.ndarray, history: np.ndarray) -> None:
    """Show each iteration's relative decrease, faint, on a logarithmic axis of its own: J itself soon looks level."""
    before = np.maximum(history[:-1], np.finfo(float).tiny)
    change = (history[:-1] - history[1:]) / before
    positive = change > 0
    if not positive.any():
        return
    right = faint_axis(ax, "relative decrease by the iteration (dotted)")
    mark = marks(len(history), 2)
    right.plot(steps[positive], change[positive], color=MUTED, linewidth=1.2, linestyle=(0, (1, 2)), **mark)
    right.set_yscale("log")
