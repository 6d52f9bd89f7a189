"""Objectives that communities maximise: modularity, and the quality of the constant Potts model (CPM).

    CPM quality = sum over communities of [ e_c - resolution k_c (k_c - 1) / 2 ]

e_c is the weight of the edges inside community c, and k_c its number of nodes. If two communities of k and l nodes
merge, and the edges between them have the weight w, the quality changes by ``w - resolution k l``. Multiplied by two_m,
this is the formula of `Gain`, with numbers of nodes as strengths and with ``resolution two_m`` as resolution. So local
moving, matching and contraction are the same for both objectives.

References
----------
V. A. Traag, P. Van Dooren, Y. Nesterov, Narrow scope for resolution-limit-free community detection, Phys. Rev. E
84:016114 (2011).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.communities.levels import Level, WeightScale, at_resolution, modularity_of
from mgclust.base.errors import InputError
from mgclust.kernels.graph.adjacency import Gain

__all__ = ["OBJECTIVES", "Objective", "objective_of"]

Array = Any
OBJECTIVES = ("modularity", "cpm")
MAX_BITS = 100  # above this power of two, in units of the weights, a resolution is rejected; gains overflow far above


class Objective(NamedTuple):
    """An objective on a graph."""

    level: Level  # the graph, with the strengths and the gain of the objective
    unit: float  # quality = unit * modularity_of(level, labels) + offset; 0 for CPM in a graph without edges
    offset: float
    resolution: float

    def quality(self, labels: Array) -> float:
        """Return the quality of communities, int32 labels of shape (n,) below n."""
        if self.unit:
            return self.of_normalized(modularity_of(self.level, labels))
        sizes = self.level.kernels.graph.sum_by_id(self.level.strength, labels, self.level.n)
        return self.offset - self.resolution / 2 * int((sizes * sizes).sum())  # no edges

    def of_normalized(self, value: float) -> float:
        """Return the quality, from the value that `modularity_of` computes with the strengths of the objective."""
        return self.unit * value + self.offset


def objective_of(level: Level, scale: WeightScale, name: str, resolution: float) -> Objective:
    """Return an objective on a graph.

    Parameters
    ----------
    level : Level
        The graph with the gain of modularity at resolution 1.
    scale : WeightScale
        Scale of the weights of `level`.
    name : {"modularity", "cpm"}
    resolution : float

    Returns
    -------
    Objective

    Raises
    ------
    InputError
        The resolution of "cpm" is too large for these weights.
    """
    if name == "modularity":
        return Objective(at_resolution(level, resolution), 1.0, 0.0, resolution)
    if math.frexp(resolution)[1] + scale.shift > MAX_BITS:
        raise InputError(
            f"resolution={resolution:g} should be at most {math.ldexp(0.5, MAX_BITS - scale.shift):.3g} for weights of "
            "this size; no nodes share a community if resolution is above the largest weight."
        )
    two_m = level.gain.two_m
    gain = Gain(two_m, math.ldexp(resolution, scale.shift) * two_m, False)
    nodes = level.kernels.xp.ones(level.n, np.int64)
    unit = math.ldexp(float(two_m), -scale.shift - 1)
    return Objective(replace(level, strength=nodes, gain=gain), unit, resolution * level.n / 2, resolution)
