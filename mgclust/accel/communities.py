"""Communities by local moving, instead of functions that draw random numbers from the module `random`."""

from __future__ import annotations

import random
from typing import Any

from mgclust.accel.calls import AccelSettings

__all__ = ["communities"]


def communities(settings: AccelSettings, graph: Any, resolution: float, seed: int | None = None, **which: Any) -> Any:
    """Fit `mgclust.Communities`; if no seed is given, draw a seed from the generator that the original uses.

    Therefore, repeated calls find different communities, and calls after the same ``random.seed`` find the same
    communities, as with the original.

    Parameters
    ----------
    settings : AccelSettings
        Choices of the user.
    graph : mgclust.data.Graph
        The graph.
    resolution : float
        Resolution of the objective.
    seed : int, optional
        Seed of the call.
    **which : object
        The objective, if it is not modularity: `objective` and `directed` of `mgclust.Communities`.
    """
    from mgclust.algorithms import Communities

    state = random.getstate()
    try:
        drawn = random.getrandbits(31) if seed is None else seed
        model = Communities(strategy="parallel", resolution=resolution, random_state=drawn, **which, **settings.place)
        model.fit_dataset(graph, provenance=False)
    except BaseException:
        random.setstate(state)  # the original function will draw the same numbers
        raise
    return model
