"""The numerical work, by concept; each folder holds the same functions for both devices, side by side.

A concept's ``cpu.py`` is written in Numba, its ``gpu.py`` in CuPy with kernels in ``.cu`` files::

    memory                 arrays on their way to and from the device
    pairs                  all pairs of rows: Gaussian sums, counts, histograms, nearest rows; metrics
    low_dimension          the same figures in near-linear time where rows have one to three features
    affinity_propagation   similarities, the noise that breaks ties, one iteration of messages
    label_sums             sums over rows that share a label: silhouettes, cluster sums, nearest exemplars
    fuzzy_c_means          weighted sums in one pass, memberships
    canopy                 independent rows of a block, lists of near centres
    exact_sums             sums of float64 whose bits do not depend on their order
    graph                  adjacency rows: moves between communities, matching, contraction
    greedy_merges          Newman's greedy merging
    toolkit                compilers, threads, vectors, hashing: what the concepts are written with

An algorithm is handed one `Kernels` and does not ask for which device it is.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

__all__ = ["Kernels", "load"]

_CONCEPTS = (
    "memory",
    "pairs",
    "low_dimension",
    "affinity_propagation",
    "label_sums",
    "fuzzy_c_means",
    "canopy",
    "exact_sums",
    "graph",
    "greedy_merges",
)


class Kernels:
    """The kernels of one device: an attribute a concept, imported on first use.

    Parameters
    ----------
    device : {"cpu", "cuda"}

    Attributes
    ----------
    xp : module
        The array module of the device, NumPy or CuPy.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.xp: Any = importlib.import_module({"cpu": "numpy", "cuda": "cupy"}[device])
        self._file = {"cpu": "cpu", "cuda": "gpu"}[device]

    def __getattr__(self, name: str) -> Any:
        if name not in _CONCEPTS:
            raise AttributeError(f"{type(self).__name__} has no concept {name!r}")
        module = importlib.import_module(f"mgclust.kernels.{name}.{self._file}")
        setattr(self, name, module)
        return module


@functools.cache
def load(device: str) -> Kernels:
    """The kernels of a device.

    Parameters
    ----------
    device : {"cpu", "cuda"}

    Returns
    -------
    Kernels
    """
    return Kernels(device)
