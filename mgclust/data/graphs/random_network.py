"""Edges of random networks, any range of them by itself: see `mgclust.datasets.make_random_network`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import InputError
from mgclust.base.hashing import FIRST, SECOND

__all__ = ["NetworkShape", "network_shape", "random_network_edges"]

_ROUNDS = 6  # of the permutation of pairs; four mix every bit into every other, two more are for small networks
_CHUNK = 2**16  # edges that NumPy makes at a time: they stay in the cache
_CHUNK_ON_DEVICE = 2**24


def random_network_edges(
    n_clusters: int, cluster_size: int, degree: float, p_in: float, seed: int, start: int, stop: int, xp: Any = np
) -> Any:
    """Edges ``start`` to ``stop - 1`` of a random network; any range can be made by itself, on any device.

    The edges within clusters come first. Edge k of a kind is pair number ``permutation(k)`` of all pairs of that kind,
    so edges differ without being remembered.

    Parameters
    ----------
    n_clusters, cluster_size, degree, p_in
        As for `make_random_network`.
    seed : int
        Its `random_state`.
    start, stop : int
        From 0 to ``n_clusters * cluster_size * degree // 2``, the number of edges.
    xp : module
        NumPy or CuPy.

    Returns
    -------
    array of shape (stop - start, 2), int32
        The smaller node first.
    """
    shape = network_shape(n_clusters, cluster_size, degree, p_in)
    if not 0 <= start <= stop <= shape.edges:
        raise InputError(f"start={start}, stop={stop} should lie within 0 to {shape.edges}, the number of edges.")
    rng = np.random.default_rng([abs(seed), int(seed < 0)])
    within = int(rng.binomial(shape.edges, p_in))
    keys = [int(key) for key in rng.integers(2**63, size=2 * _ROUNDS)]
    for count, pairs, where in (
        (within, shape.pairs_within, "within clusters"),
        (shape.edges - within, shape.pairs_between, "between clusters"),
    ):
        if count > pairs:
            raise InputError(
                f"n_clusters={n_clusters}, cluster_size={cluster_size}, degree={degree}, p_in={p_in} need {count} "
                f"different edges {where}, where there are {pairs} pairs of nodes; choose a smaller degree, larger "
                "clusters or another p_in."
            )
    edges = xp.empty((stop - start, 2), np.int32)
    step = _CHUNK if xp is np else _CHUNK_ON_DEVICE
    for low, high, pairs, nodes_of, own_keys in (
        (0, within, shape.pairs_within, _nodes_within, keys[:_ROUNDS]),
        (within, shape.edges, shape.pairs_between, _nodes_between, keys[_ROUNDS:]),
    ):
        first, last = max(start, low), min(stop, high)
        for begin in range(first, last, step):
            end = min(begin + step, last)
            numbers = xp.arange(begin - low, end - low, dtype=np.uint64)
            u, v = nodes_of(_permute(numbers, pairs, own_keys), n_clusters, cluster_size)
            edges[begin - start : end - start, 0] = xp.minimum(u, v)
            edges[begin - start : end - start, 1] = xp.maximum(u, v)
    return edges


class NetworkShape(NamedTuple):
    """Number of edges of a random network, and of pairs of nodes that may be one."""

    edges: int
    pairs_within: int
    pairs_between: int


def network_shape(n_clusters: Any, cluster_size: Any, degree: Any, p_in: Any) -> NetworkShape:
    """Count, and refuse what is no network."""
    for name, value in (("n_clusters", n_clusters), ("cluster_size", cluster_size)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name}={value!r} should be an integer >= 1.")
    c, s = int(n_clusters), int(cluster_size)
    if c * s > 2**31 - 1:
        raise InputError(f"n_clusters={c} times cluster_size={s} should be at most {2**31 - 1} nodes.")
    for name, value in (("degree", degree), ("p_in", p_in)):
        if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
            raise InputError(f"{name}={value!r} should be a number.")
    if not 0 <= degree < math.inf:
        raise InputError(f"degree={degree!r} should be a finite number >= 0.")
    if not 0 <= p_in <= 1:
        raise InputError(f"p_in={p_in!r} should be a probability, from 0 to 1.")
    edges = c * s * degree / 2 if isinstance(degree, float) else c * s * int(degree) // 2
    return NetworkShape(int(edges), c * (s * (s - 1) // 2), c * (c - 1) // 2 * s * s)


def _permute(numbers: Any, size: int, keys: Sequence[int]) -> Any:
    """Apply a permutation of 0 to ``size - 1`` to some numbers: a Feistel network that is walked until it is back.

    The network permutes the next power of two; a number beyond `size` takes further steps, less than one in the
    mean.
    """
    bits = max(2, (size - 1).bit_length())
    numbers = _feistel(numbers, bits, keys)
    outside = (numbers >= size).nonzero()[0]
    while len(outside):
        moved = _feistel(numbers[outside], bits, keys)
        numbers[outside] = moved
        outside = outside[moved >= size]
    return numbers


def _feistel(numbers: Any, bits: int, keys: Sequence[int]) -> Any:
    """Permute 0 to ``2**bits - 1``: each half in turn is changed by what the other one hashes to."""
    u64 = np.uint64
    low_bits = bits // 2
    masks = (u64(2**low_bits - 1), u64(2 ** (bits - low_bits) - 1))
    halves = [numbers & masks[0], numbers >> u64(low_bits)]
    for turn, key in enumerate(keys):
        changed, other = turn % 2, 1 - turn % 2
        mixed = halves[other] + u64(key)
        # The two multiplications of splitmix64; the upper bits are the best.
        mixed ^= mixed >> u64(30)
        mixed *= FIRST
        mixed ^= mixed >> u64(27)
        mixed *= SECOND
        mixed >>= u64(32)
        halves[changed] = halves[changed] ^ (mixed & masks[changed])
    return halves[0] | (halves[1] << u64(low_bits))


def _nodes_within(pair: Any, n_clusters: int, cluster_size: int) -> tuple[Any, Any]:
    """The two nodes of a pair within a cluster.

    Pairs of s nodes are counted as node and distance on a circle, which needs integers only: for each distance from 1
    on there are s of them, and for half the circle, where s is even, half as many.
    """
    s = np.uint64(cluster_size)
    each = np.uint64(max(1, cluster_size * (cluster_size - 1) // 2))
    first = pair // each * s
    inside = pair % each
    node, distance = inside % s, inside // s + np.uint64(1)
    return first + node, first + (node + distance) % s


def _nodes_between(pair: Any, n_clusters: int, cluster_size: int) -> tuple[Any, Any]:
    """The two nodes of a pair between clusters; pairs of clusters are counted as above."""
    c, s = np.uint64(n_clusters), np.uint64(cluster_size)
    clusters, nodes = pair // (s * s), pair % (s * s)
    cluster, distance = clusters % c, clusters // c + np.uint64(1)
    other = (cluster + distance) % c
    return cluster * s + nodes // s, other * s + nodes % s
