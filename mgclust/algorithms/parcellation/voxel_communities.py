"""Parcels as communities of the graph of neighbours; an edge has the weight r^4 if its two series have correlation r.

Communities are connected, and are the same on any number of ranks and on all devices. Their number grows with the
resolution, about as its power 3/4: in a volume of n voxels with resolution g, communities of V voxels lose similarity
at their borders, V^(-1/3) per voxel, and resolution costs g V / n per voxel, so V is in proportion to (n / g)^(3/4).
So a search for the resolution takes a few steps. It ends when there are as many communities as requested parcels, or at
most 5% more. Then Ward's merges of the communities make the number exact. If the search finds no resolution with enough
communities, the merges begin with the rows.

More starts and cycles of `communities` than the few that are used here raise the modularity a little, but not the
homogeneity of the parcels of one half of a series on the other half.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mgclust.algorithms.communities.levels import MAX_RESOLUTION, WIDE_BITS, Level
from mgclust.algorithms.communities.parallel import Effort, communities
from mgclust.algorithms.parcellation.parcel_graph import ParcelGraph
from mgclust.engine.partition import Partition
from mgclust.engine.spmd import Context
from mgclust.engine.transport.comm import SoloComm
from mgclust.kernels.graph.adjacency import Adjacency, Gain
from mgclust.kernels.parcels.borders import edge_products

__all__ = ["VoxelCommunities"]

POWER = 4  # exponent of the correlation in a weight; 1 and 2 gave less homogeneous parcels
EFFORT = Effort(starts=1, cycles=2, least_rise=1e-5)
STEPS = 12  # largest number of steps of a search
START = 64.0  # first resolution of a search
GROWTH = 4 / 3  # in a volume, the resolution grows as this power of the number of communities
SURPLUS = 0.05  # a search may find more communities than requested, by at most this fraction


class VoxelCommunities:
    """Communities of the graph of neighbours of one set of series.

    Parameters
    ----------
    context : Context
        Context of rank 0.
    rows : float32 array of shape (n, n_features)
        Series of mean 0 and length 1, or 0.
    starts, columns : int64 array of shape (n + 1,), int32 array
        Graph of neighbours.
    seed : int
        Seed of the communities.
    """

    def __init__(self, context: Context, rows: np.ndarray, starts: np.ndarray, columns: np.ndarray, seed: int) -> None:
        self._context, self._seed = context, seed
        self._graph = ParcelGraph.of_rows(rows, starts, columns)
        self._level = _level(context, rows, starts, columns)
        self._found: dict[float, np.ndarray] = {}

    def parcels(self, k: int) -> np.ndarray:
        """Return the parcel of each row, for k parcels; int32 array of shape (n,)."""
        most = k + int(k * SURPLUS)
        low, high, best, resolution = 0.0, math.inf, None, START
        for _ in range(STEPS):
            labels = self._at(resolution)
            count = int(labels.max()) + 1
            if count >= k:
                high = resolution
                if best is None or count < int(best.max()) + 1:
                    best = labels
                if count <= most:
                    break
            else:
                low = resolution
            resolution = resolution * ((k + most) / (2 * count)) ** GROWTH
            if not low < resolution < high:
                resolution = (low * high) ** 0.5
            # Few digits, so that the last bits of a power, which differ between machines, do not count.
            resolution = min(float(f"{resolution:.4g}"), MAX_RESOLUTION)
            if resolution in (low, high):
                break
        graph = self._graph if best is None else self._graph.contracted(best)
        return graph.merged(k)

    def _at(self, resolution: float) -> np.ndarray:
        """Return the communities for a resolution."""
        if resolution not in self._found:
            level = replace(self._level, gain=replace(self._level.gain, resolution=resolution))
            labels, _ = communities(self._context, level, self._seed, EFFORT)
            self._found[resolution] = self._level.kernels.memory.to_host(labels)
        return self._found[resolution]


def _level(context: Context, rows: np.ndarray, starts: np.ndarray, columns: np.ndarray) -> Level:
    """Return the graph of neighbours on one rank, with weights that are integers."""
    kernels = context.kernels
    products = edge_products(rows, starts, columns)
    weights = np.maximum(products, 0.0) ** POWER
    total = float(weights.sum())
    shift = WIDE_BITS - 1 - np.frexp(max(total, 1.0))[1]
    whole = np.maximum(np.rint(np.ldexp(weights, shift)), 1).astype(np.int64)  # at least 1, so that no edge is lost
    strength = np.add.reduceat(np.append(whole, 0), starts[:-1]) * (np.diff(starts) > 0)
    to_device = kernels.memory.to_device
    adjacency = Adjacency(0, to_device(starts), to_device(columns), to_device(whole))
    gain = Gain(int(strength.sum()), 1.0, False)
    solo = SoloComm(Partition(1, 1, 1), 1)
    return Level(
        kernels, solo, len(rows), len(columns), adjacency, to_device(strength), gain, int(whole.max(initial=1))
    )
