r"""Noise cluster of Davé (1991): it has the same distance delta from every row, and no centre.

The noise takes part in the memberships as any cluster does. Let s be the squared distance of a row to its nearest
centre, u its membership there without noise, and t = (s / delta^2)^(1/(m-1)) u. Then the noise gets t / (1 + t) of the
row, and the clusters share the rest, phi = 1 / (1 + t), in the same proportions as without noise. So u^m becomes
phi^m u^m: a pass with noise has the same sums as a pass without noise in which each row has the weight phi^m.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels import Kernels

__all__ = ["nearest_distances", "share_of_clusters"]

Array = Any
MAX_EXPONENT = 1000.0


def nearest_distances(kernels: Kernels, x: Array, v: Array) -> Array:
    """Return the squared distance of each row to its nearest centre."""
    nearest, index = kernels.xp.full(len(x), kernels.xp.inf, dtype=x.dtype), kernels.xp.full(len(x), -1, dtype="int64")
    kernels.pairs.nearest_column(x, v, norm="l2", y_start=0, best=nearest, best_index=index)
    return nearest


def share_of_clusters(xp: Any, nearest: Array, u: Array, m: float, noise: float) -> Array:
    """Return the fraction phi of each row that the clusters get; the noise cluster gets the rest.

    Parameters
    ----------
    xp : module
        numpy or cupy.
    nearest : array of shape (k,)
        Squared distance of each row to its nearest centre.
    u : array of shape (k, c)
        Memberships without noise.
    m : float
    noise : float
        Squared distance of the noise cluster.

    Returns
    -------
    float64 array of shape (k,)
    """
    least = np.finfo(np.float64).tiny
    ratio = xp.maximum(nearest.astype("float64") / noise, least)
    exponent = xp.log2(ratio) / (m - 1) + xp.log2(xp.maximum(u.max(axis=1).astype("float64"), least))
    return 1.0 / (1.0 + xp.exp2(xp.minimum(exponent, MAX_EXPONENT)))
