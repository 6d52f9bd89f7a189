"""Parcels as communities of the graph of neighbours; an edge has the weight r^4 if its two series have correlation r.

Communities are connected, and are the same on any number of ranks and on all devices. Their number grows with the
resolution. A bisection looks for the resolution with the smallest number of communities that is at least the requested
number of parcels. Then Ward's merges of the communities make the number exact. If the bisection finds no such
resolution, the merges begin with the rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mgclust.algorithms.communities.levels import MAX_RESOLUTION, WIDE_BITS, Level
from mgclust.algorithms.communities.parallel import communities
from mgclust.algorithms.parcellation.parcel_graph import ParcelGraph
from mgclust.engine.partition import Partition
from mgclust.engine.spmd import Context
from mgclust.engine.transport.comm import SoloComm
from mgclust.kernels.graph.adjacency import Adjacency, Gain
from mgclust.kernels.parcels.borders import edge_products

__all__ = ["VoxelCommunities"]

POWER = 4  # exponent of the correlation in a weight; 1 and 2 gave less homogeneous parcels
STEPS = 12  # largest number of steps of a bisection
START = 64.0  # first resolution of a bisection


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
        low, high, best, resolution = 0.0, MAX_RESOLUTION, None, START
        for _ in range(STEPS):
            labels = self._at(resolution)
            count = int(labels.max()) + 1
            if count >= k:
                high = resolution
                if best is None or count < int(best.max()) + 1:
                    best = labels
                if count == k:
                    break
            else:
                low = resolution
            resolution = (
                (low * high) ** 0.5
                if low and high < MAX_RESOLUTION
                else resolution * (4 if high == MAX_RESOLUTION else 0.25)
            )
        graph = self._graph if best is None else self._graph.contracted(best)
        return graph.merged(k)

    def _at(self, resolution: float) -> np.ndarray:
        if resolution not in self._found:
            level = replace(self._level, gain=replace(self._level.gain, resolution=resolution))
            labels, _ = communities(self._context, level, self._seed)
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
