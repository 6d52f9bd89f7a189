"""Edges of random networks, generated range by range. See `mgclust.datasets.make_random_network`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import InputError
from mgclust.base.hashing import FIRST, SECOND

__all__ = ["NetworkShape", "network_shape", "random_network_edges"]

_ROUNDS = 6  # rounds of the permutation of pairs; four rounds mix all bits, and small networks need two more
_CHUNK = 2**16  # edges that NumPy generates at a time, so that they stay in the cache
_CHUNK_ON_DEVICE = 2**24


def random_network_edges(
    n_clusters: int, cluster_size: int, degree: float, p_in: float, seed: int, start: int, stop: int, xp: Any = np
) -> Any:
    """Generate the edges ``start`` to ``stop - 1`` of a random network, independently of other edges and of the device.

    Edges within clusters come first, then edges between clusters. Edge k of each kind is the pair of nodes with number
    ``permutation(k)`` among all pairs of this kind. All edges are therefore distinct, although no edges are stored.

    Parameters
    ----------
    n_clusters, cluster_size, degree, p_in
        Shape of the network; see `make_random_network`.
    seed : int
        The `random_state` of the network.
    start, stop : int
        Range of the edges, from 0 to ``n_clusters * cluster_size * degree // 2``, the number of edges.
    xp : module
        NumPy or CuPy.

    Returns
    -------
    array of shape (stop - start, 2), int32
        The nodes of each edge; the smaller number is first.
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
                f"different edges {where}, but there are only {pairs} pairs of nodes; choose a smaller degree, larger "
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
    """Number of edges of a random network, and number of pairs of nodes that may be edges."""

    edges: int
    pairs_within: int
    pairs_between: int


def network_shape(n_clusters: Any, cluster_size: Any, degree: Any, p_in: Any) -> NetworkShape:
    """Return the numbers of edges and of pairs; reject invalid parameters."""
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
    """Permute numbers from 0 to ``size - 1`` by a Feistel network with cycle walking.

    The network permutes all numbers below the next power of two. A number that leaves the range is permuted again until
    it is in the range, which takes less than one more step on average.
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
    """Permute the numbers below ``2**bits``: each round combines one half of the bits with a hash of the other half."""
    u64 = np.uint64
    low_bits = bits // 2
    masks = (u64(2**low_bits - 1), u64(2 ** (bits - low_bits) - 1))
    halves = [numbers & masks[0], numbers >> u64(low_bits)]
    for turn, key in enumerate(keys):
        changed, other = turn % 2, 1 - turn % 2
        mixed = halves[other] + u64(key)
        # These are the two multiplications of splitmix64, which mix the upper bits best.
        mixed ^= mixed >> u64(30)
        mixed *= FIRST
        mixed ^= mixed >> u64(27)
        mixed *= SECOND
        mixed >>= u64(32)
        halves[changed] = halves[changed] ^ (mixed & masks[changed])
    return halves[0] | (halves[1] << u64(low_bits))


def _nodes_within(pair: Any, n_clusters: int, cluster_size: int) -> tuple[Any, Any]:
    """Return the two nodes of each pair within a cluster.

    The s nodes of a cluster lie on a circle, and their pairs are numbered by (distance, node), which needs only
    integers. There are s pairs for each distance from 1 on, but s / 2 pairs for the distance s / 2 if s is even.
    """
    s = np.uint64(cluster_size)
    each = np.uint64(max(1, cluster_size * (cluster_size - 1) // 2))
    first = pair // each * s
    inside = pair % each
    node, distance = inside % s, inside // s + np.uint64(1)
    return first + node, first + (node + distance) % s


def _nodes_between(pair: Any, n_clusters: int, cluster_size: int) -> tuple[Any, Any]:
    """Return the nodes of each pair between clusters. Pairs of clusters are numbered like pairs within a cluster."""
    c, s = np.uint64(n_clusters), np.uint64(cluster_size)
    clusters, nodes = pair // (s * s), pair % (s * s)
    cluster, distance = clusters % c, clusters // c + np.uint64(1)
    other = (cluster + distance) % c
    return cluster * s + nodes // s, other * s + nodes % s
