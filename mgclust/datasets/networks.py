"""Random networks with known clusters, generated at once or while they are read."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data import Graph
from mgclust.data.graphs.random_network import network_shape, random_network_edges
from mgclust.datasets.npz import write_npz

__all__ = ["Network", "RandomNetwork", "make_random_network", "open_random_network"]


class Network(NamedTuple):
    """Generated network with known clusters; unpacks as ``edges, labels``.

    Attributes
    ----------
    edges : array of shape (n_edges, 2), int32
        NumPy or CuPy array with each edge once, and without self-loops.
    labels : ndarray of shape (n_nodes,), int32
        The cluster of each node.
    """

    edges: Any
    labels: np.ndarray

    @property
    def n_nodes(self) -> int:
        """Number of nodes, including nodes without edges."""
        return len(self.labels)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a .npz file that `mgclust.open_graph` reads, with ``edges``, ``n`` and ``labels``.

        Parameters
        ----------
        path : path
            Name of the file, which must end in ``.npz``.

        Returns
        -------
        Path
            The file.
        """
        edges = self.edges.get() if hasattr(self.edges, "get") else self.edges
        return write_npz(path, edges=edges, n=self.n_nodes, labels=self.labels)


def make_random_network(
    n_clusters: int,
    cluster_size: int,
    degree: float,
    p_in: float,
    random_state: Any = 0,
    device: str = "cpu",
) -> Network:
    """Make the random network RN(C, s, d, pin) of the literature.

    The network has C clusters of s nodes, and ``C * s * d / 2`` distinct edges. With probability pin, an edge joins a
    random pair of nodes of the same cluster; otherwise it joins a random pair of nodes of different clusters.

    Parameters
    ----------
    n_clusters, cluster_size : int
        C and s. Node ``i`` is in cluster ``i // cluster_size``.
    degree : float
        Mean number of edges per node, d.
    p_in : float
        Expected fraction of edges within clusters, pin, from 0 to 1.
    random_state : int or numpy.random.Generator
        Seed or generator; equal seeds give equal networks on any device.
    device : {"cpu", "cuda"}
        Device on which the edges are generated and kept.

    Returns
    -------
    Network
        ``edges, labels``; `Network.save` writes them.

    Examples
    --------
    >>> from mgclust.datasets import make_random_network
    >>> edges, labels = make_random_network(5, 100, 16, 0.8)
    >>> edges.shape, labels.shape
    ((4000, 2), (500,))
    """
    graph = open_random_network(n_clusters, cluster_size, degree, p_in, random_state, device)
    return Network(graph.read(0, graph.shape[0]), graph.labels)


def open_random_network(
    n_clusters: int,
    cluster_size: int,
    degree: float,
    p_in: float,
    random_state: Any = 0,
    device: str = "cpu",
) -> RandomNetwork:
    """Open the network of `make_random_network` as a graph whose edges are generated when they are read.

    Each rank generates only the edges that it needs, so the network may be larger than the memory of one machine.

    Parameters
    ----------
    n_clusters, cluster_size, degree, p_in, random_state
        See `make_random_network`.
    device : {"cpu", "cuda"}
        Device on which each rank generates its edges.

    Returns
    -------
    RandomNetwork
        A `mgclust.data.Graph`, whose attribute `labels` holds the clusters.

    Examples
    --------
    >>> from mgclust.datasets import open_random_network
    >>> open_random_network(1000, 1000, 16, 0.8)
    <RandomNetwork 'RN(1000, 1000, 16, 0.8), seed 0': 1000000 nodes, 8000000 edges>
    """
    if device not in ("cpu", "cuda"):
        raise InputError(f"device={device!r} should be 'cpu' or 'cuda'.")
    seed = random_state if isinstance(random_state, (int, np.integer)) else None
    if seed is None:
        seed = np.random.default_rng(random_state).integers(2**63)
    return RandomNetwork((n_clusters, cluster_size, degree, p_in, int(seed)), device)


class RandomNetwork(Graph):
    """Graph whose edges are generated when they are read; see `open_random_network`."""

    kind = "random network"

    def __init__(self, parameters: tuple[int, int, float, float, int], device: str) -> None:
        n_clusters, cluster_size, degree, p_in, seed = parameters
        shape = network_shape(n_clusters, cluster_size, degree, p_in)
        random_network_edges(*parameters, 0, 0)  # raises an error for invalid parameters
        name = f"RN({n_clusters}, {cluster_size}, {degree}, {p_in}), seed {seed}"
        super().__init__(shape.edges, n_clusters * cluster_size, name)
        self._parameters = parameters
        self._device = device

    @property
    def labels(self) -> np.ndarray:
        """The cluster of each node."""
        n_clusters, cluster_size = self._parameters[:2]
        return np.repeat(np.arange(n_clusters, dtype=np.int32), cluster_size)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the parameters, which determine all edges."""
        return hashlib.sha256(self.name.encode()).hexdigest()

    def _read(self, start: int, stop: int) -> Any:
        xp = np
        if self._device == "cuda":
            from mgclust.kernels import load

            xp = load("cuda").xp
        return random_network_edges(*self._parameters, start, stop, xp)
