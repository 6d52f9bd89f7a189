"""Exact clustering of large data on several GPUs, or on the CPUs there are.

Nothing heavy is imported before it is used: ``import mgclust`` loads neither Dask nor CuPy nor Numba.

Modules: runs and results are in ``file_run``, ``result``, ``atomic_directory``, ``label_output``, ``label_agreement``,
``progress``,
``params``, ``versions`` and ``errors``; content from outside in ``beneath``, ``array_files``, ``zarr_store``,
``json_text``, ``quoting`` and ``hashing``.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

__version__ = "0.1.0"

# Read when CuPy is imported: headers are parsed once a process, not once for each of the 50 kernels of a first fit.
os.environ.setdefault("CUPY_NVRTC_USE_PCH", "1")

_HOME = {
    "AdaptiveAffinityPropagation": "mgclust.algorithms",
    "AffinityPropagation": "mgclust.algorithms",
    "Canopy": "mgclust.algorithms",
    "ClusteringWarning": "mgclust.base.errors",
    "Communities": "mgclust.algorithms",
    "DensityPeaks": "mgclust.algorithms",
    "FastNewman": "mgclust.algorithms",
    "FuzzyCMeans": "mgclust.algorithms",
    "compare_labels": "mgclust.results.label_agreement",
    "kneighbors_graph": "mgclust.algorithms.nearest_neighbors.estimator",
    "modularity": "mgclust.algorithms.communities.modularity",
    "nearest_neighbors": "mgclust.algorithms.nearest_neighbors.estimator",
    "silhouette_samples": "mgclust.algorithms.silhouette.estimator",
    "silhouette_score": "mgclust.algorithms.silhouette.estimator",
    "submit": "mgclust.algorithms.background",
    "open_dataset": "mgclust.data",
    "open_graph": "mgclust.data",
    "load_result": "mgclust.results.result",
    "Result": "mgclust.results.result",
    "Service": "mgclust.service.client",
}
_MODULES = ("algorithms", "data", "datasets", "engine", "errors", "kernels", "plots", "report")

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"mgclust.{name}")
    raise AttributeError(f"module 'mgclust' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
