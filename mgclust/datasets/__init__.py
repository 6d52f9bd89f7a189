"""Generated data with known clusters: Gaussian clusters (`gaussians`), BOLD series (`bold`), networks (`networks`).

`npz` writes the data to files.
"""

from __future__ import annotations

from mgclust.data.graphs.random_network import random_network_edges
from mgclust.datasets.bold import Bold, make_bold
from mgclust.datasets.gaussians import Points, make_gaussian_clusters, make_gaussian_grid, make_gaussian_rings
from mgclust.datasets.networks import Network, RandomNetwork, make_random_network, open_random_network

__all__ = [
    "Bold",
    "Network",
    "Points",
    "RandomNetwork",
    "make_bold",
    "make_gaussian_clusters",
    "make_gaussian_grid",
    "make_gaussian_rings",
    "make_random_network",
    "open_random_network",
    "random_network_edges",
]
