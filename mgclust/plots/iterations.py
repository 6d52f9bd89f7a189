"""The objective of an iterative method against the iterations."""

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

STEEP = 30.0  # smallest ratio of the first to the last value for which the axis is logarithmic
STOPPED = {"tol": "converged", "max_iter": "max_iter reached"}


def objective(result_or_history: Result | Any, ax: Axes | None = None) -> Axes:
    """Objective of fuzzy c-means against the iterations.

    The dotted line shows the relative decrease in each iteration, on the right axis.

    Parameters
    ----------
    result_or_history : Result, fitted estimator or array of shape (n_iter + 1,)
        A result of ``fuzzy-c-means``, a fitted `mgclust.FuzzyCMeans`, or the history itself: the objective at the
        initial centres and after each iteration.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        The history is empty, or the result has no history.

    Examples
    --------
    >>> from mgclust import plots
    >>> plots.objective([9.0, 4.0, 3.5]).get_title()
    'Objective: 3.5 after 2 iterations'
    """
    history, stopped = _history(result_or_history)
    if history.ndim != 1 or not len(history):
        raise InputError(f"history has shape {history.shape}, it should be one value per iteration, at least one.")
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
    """Return the values, and the reason why the iterations stopped, which is empty if only a history is given."""
    if holds_result(source):
        result = result_with(source, "objective_history", "give a result of 'fuzzy-c-means'")
        reason = str(result.diagnostics.get("stop_reason", ""))
        return np.asarray(result.arrays["objective_history"], dtype=float), STOPPED.get(reason, "")
    return np.asarray(source, dtype=float), ""


def _draw_change(ax: Axes, steps: np.ndarray, history: np.ndarray) -> None:
    """Draw each iteration's relative decrease faintly on a logarithmic axis at the right: J itself soon looks level."""
    before = np.maximum(history[:-1], np.finfo(float).tiny)
    change = (history[:-1] - history[1:]) / before
    positive = change > 0
    if not positive.any():
        return
    right = faint_axis(ax, "relative decrease in each iteration (dotted)")
    mark = marks(len(history), 2)
    right.plot(steps[positive], change[positive], color=MUTED, linewidth=1.2, linestyle=(0, (1, 2)), **mark)
    right.set_yscale("log")
