"""Versions of what decides what a run computes."""

from __future__ import annotations

import contextlib
import functools
import platform
from importlib import metadata

from mgclust import __version__

__all__ = ["installed_versions"]

_DISTRIBUTIONS = (
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "dask",
    "distributed",
    "dask-cuda",
    "cupy-cuda13x",
    "cupy-cuda12x",
)


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that decide what a run computes."""
    return {"python": platform.python_version(), "mgclust": __version__, **_distributions()}


@functools.cache
def _distributions() -> dict[str, str]:
    """Looked up once: reading the packages' metadata takes longer than many a run on a GPU."""
    versions = {}
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
