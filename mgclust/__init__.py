"""Exact clustering of large data on several GPUs, or on CPUs.

Large dependencies are imported at first use: ``import mgclust`` loads neither Dask nor CuPy nor Numba. Type checkers
read the same names in ``__init__.pyi``.

Packages::

    algorithms   clustering methods, one folder each
    datasets     generated data
    engine       ranks, and the functions that run on them
    kernels      numerical work, for CPUs and GPUs
    data         rows and graphs from arrays and files
    params       checks of parameters
    results      results and their files
    output       from a data file to a folder of results, with a report
    plots        pictures
    cli          the command line
    service      jobs on a server
    accel        drop-in acceleration of other projects' calls
    outside      reading of untrusted content, within limits
    base         errors, progress, hashing
"""

from __future__ import annotations

import importlib
import os

__version__ = "0.1.0"

# CuPy reads this variable when it is imported. It then parses headers once per process instead of once for each of
# the 50 kernels of a first fit.
os.environ.setdefault("CUPY_NVRTC_USE_PCH", "1")

_ERRORS = (
    "AmbiguousCountWarning",
    "ClusterUnavailableError",
    "ClusteringWarning",
    "CollectiveTimeout",
    "DataWarning",
    "DegenerateClustersWarning",
    "DeviceUnavailableError",
    "InputError",
    "InsufficientMemoryError",
    "MergedClustersWarning",
    "MgclustError",
    "ParameterWarning",
    "PoorOptimumWarning",
    "PrecisionWarning",
    "RetryWarning",
    "RunCancelled",
    "RunFailed",
    "WeakStructureWarning",
    "WorkerLost",
    "WorkerWarning",
)
_HOME = {
    "AdaptiveAffinityPropagation": "mgclust.algorithms",
    "AffinityPropagation": "mgclust.algorithms",
    "Canopy": "mgclust.algorithms",
    "Communities": "mgclust.algorithms",
    "DensityPeaks": "mgclust.algorithms",
    "FastNewman": "mgclust.algorithms",
    "FuzzyCMeans": "mgclust.algorithms",
    "Parcellation": "mgclust.algorithms",
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
    "log_to_mlflow": "mgclust.output.mlflow_log",
    "Result": "mgclust.results.result",
    "Service": "mgclust.service.client.service",
    "UnconvergedWarning": "mgclust.algorithms.base",
    **dict.fromkeys(_ERRORS, "mgclust.base.errors"),
}
_MODULES = ("algorithms", "data", "datasets", "engine", "kernels", "output", "plots")

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"mgclust.{name}")
    raise AttributeError(f"module 'mgclust' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
