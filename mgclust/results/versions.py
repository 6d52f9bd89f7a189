"""Versions of the software that a result depends on."""

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
    """Return the versions of Python and of the installed packages that a result depends on."""
    return {"python": platform.python_version(), "mgclust": __version__, **_distributions()}


@functools.cache
def _distributions() -> dict[str, str]:
    """Return the versions of packages. They are read once, because reading can take longer than a run on a GPU."""
    versions = {}
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
