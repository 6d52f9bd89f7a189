"""Communities by local moving, for originals that draw random numbers from the module `random`."""

from __future__ import annotations

import random
from typing import Any

from mgclust.accel.calls import AccelSettings

__all__ = ["communities"]


def communities(settings: AccelSettings, graph: Any, resolution: float, seed: int | None = None) -> Any:
    """Fit `mgclust.Communities`; without a seed, the seed is drawn from the generator that the original uses.

    So repeated calls find other communities, as the original's calls do, and the same ones after ``random.seed``.

    Parameters
    ----------
    settings : AccelSettings
    graph : mgclust.data.Graph
    resolution : float
    seed : int, optional
    """
    from mgclust.algorithms import Communities

    state = random.getstate()
    try:
        drawn = random.getrandbits(31) if seed is None else seed
        model = Communities(strategy="parallel", resolution=resolution, random_state=drawn, **settings.place)
        model.fit_dataset(graph, provenance=False)
    except BaseException:
        random.setstate(state)  # the original function will draw the same numbers
        raise
    return model
