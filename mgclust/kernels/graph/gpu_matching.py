"""Matching on a CUDA device (``communities.cu``): the neighbour that each community would merge with, and the pairs."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency, Gain
from mgclust.kernels.graph.gpu_adjacency import by_rows, whole

__all__ = ["best_partners", "match_mutual"]

Array = Any


def best_partners(
    rows: Adjacency,
    strength: Array,
    within: Array | None,
    *,
    gain: Gain,
    any_sign: bool,
    noise: float,
    salt: int,
    out: Array,
) -> None:
    out.data.memset_async(0xFF, out.nbytes)
    nowhere = np.uint64(0) if within is None else within
    choice = (strength, nowhere, np.int64(gain.two_m), np.float64(gain.resolution), np.bool_(any_sign))
    by_rows(rows, "partners", *choice, np.float64(noise), np.uint64(salt), out, gain=gain)


def match_mutual(partner: Array, *, share: float) -> Array:
    n = len(partner)
    counts, out = cp.zeros(2, cp.int32), cp.empty(n, cp.int32)
    whole("count_pairs", n, partner, counts)
    whole("match_mutual", n, partner, counts, np.float64(share), out)
    return out
