"""How far a run is, in words: for the command line, for ``verbose=True`` and for logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["details_text", "progress_text"]

# What a reader calls the figures that methods report; others keep their names.
_FORMATS = {
    "iteration": "iteration {:,}",
    "n_clusters": "K={:,}",
    "preference": "preference={:.4g}",
    "damping": "damping={:.2f}",
    "modularity": "Q={:.4f}",
    "rate": "{:,.0f} it/s",
    "warning": "warning: {}",
}
_ALWAYS = {"stage", "fraction", "elapsed"}


def progress_text(event: Mapping[str, Any]) -> str:
    """Write an event as ``12% K=34 preference=-0.41 damping=0.50 812 it/s``.

    Parameters
    ----------
    event : mapping
        ``fraction`` from 0 to 1 if it is known, and what the method adds.

    Returns
    -------
    str
    """
    fraction = event.get("fraction")
    done = [] if fraction is None else [f"{fraction:.0%}"]
    return " ".join([*done, details_text(event)]).strip()


def details_text(event: Mapping[str, Any]) -> str:
    """Write what a method adds to an event, ``K=34 damping=0.50``; empty if it adds nothing."""
    told = {name: value for name, value in event.items() if name not in _ALWAYS and value is not None}
    known = [name for name in _FORMATS if name in told]
    return " ".join(_detail(name, told[name]) for name in [*known, *(name for name in told if name not in _FORMATS)])


def _detail(name: str, value: Any) -> str:
    if name in _FORMATS:
        return _FORMATS[name].format(value)
    return f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
