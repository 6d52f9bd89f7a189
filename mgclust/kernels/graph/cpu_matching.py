"""Matching on the CPU: the neighbour that each community would merge with, and the pairs that merge."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.base.hashing import GOLDEN
from mgclust.kernels.graph.adjacency import Adjacency, Gain
from mgclust.kernels.graph.cpu_adjacency import (
    clear_others,
    degree,
    each_part,
    factors,
    mix,
    score,
    unsigned,
    weight_of,
    weights_or_none,
)
from mgclust.kernels.toolkit.cpu_compiler import compiled, signed

__all__ = ["best_partners", "match_mutual"]

Array = Any
NOWHERE = np.empty(0, np.int32)
SURELY = 1.0 - 1e-12  # the margin is larger than the rounding errors of a comparison of squares


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
    two_m, factor = factors(gain)
    weights, salt, inside = weights_or_none(rows.weights), signed(salt), NOWHERE if within is None else within
    clear_others(rows, out)

    def body(start: int, stop: int) -> None:
        choose(
            start, stop, rows.first, rows.starts, rows.columns, weights, strength, inside, two_m, factor, any_sign,
            noise, salt, out,
        )  # fmt: skip

    each_part(rows, body)


def match_mutual(partner: Array, *, share: float) -> Array:
    representative = np.empty(len(partner), np.int32)
    join(partner, float(share), representative)
    return representative


@compiled
def choose(
    start: int,
    stop: int,
    first: int,
    starts: Array,
    columns: Array,
    weights: Array,
    strength: Array,
    within: Array,
    two_m: Any,
    factor: Any,
    any_sign: bool,
    noise: float,
    salt: int,
    out: Array,
) -> None:
    """Do `best_partners` for rows start..stop-1."""
    everywhere = len(within) == 0
    for row in range(start, stop):
        v = first + row
        d = strength[v]
        own = 0 if everywhere else within[v]
        best, best_hash, to = 0.0, np.uint64(0), -1
        for entry in range(starts[row], starts[row + 1]):
            u = unsigned(columns[entry])
            if not everywhere and within[u] != own:
                continue
            g = np.float64(score(two_m, factor, weight_of(weights, entry), d, strength[u]))
            if g <= 0.0 and not any_sign:
                continue
            product = np.float64(degree(factor, d)) * np.float64(degree(factor, strength[u]))
            if g > 0.0 and best > 0.0 and g * g < SURELY * (best * best * product):  # noise only lowers scores
                continue
            s = g / np.sqrt(product)
            a, b = np.uint64(min(u, v)), np.uint64(max(u, v))
            h = mix(a * np.uint64(GOLDEN) + b * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(salt))
            s = s * (1.0 - noise * (np.float64(h >> np.uint64(40)) / 16777216.0))
            if to < 0 or s > best or (s == best and (h > best_hash or (h == best_hash and u < to))):
                best, best_hash, to = s, h, u
        out[v] = to


@compiled
def join(partner: Array, share: float, representative: Array) -> None:
    """Do `match_mutual`: fill `representative`."""
    mutual, live = 0, 0
    for v in range(len(partner)):
        p = partner[v]
        representative[v] = v
        if p >= 0:
            live += 1
            if partner[p] == v:
                mutual += 1
                representative[v] = min(v, p)
    if 0.5 * mutual < share * live:
        for v in range(len(partner)):
            p = partner[v]
            if p >= 0 and partner[p] >= 0 and partner[p] != v and partner[partner[p]] == p:
                representative[v] = representative[p]
