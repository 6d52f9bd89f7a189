"""The numerical work, twice: `cpu` (Numba) and `gpu` (CuPy and CUDA files), with the same signatures.

An algorithm is handed one of the two modules and does not ask which. A test compares their signatures.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["load"]


def load(device: str) -> ModuleType:
    """The kernel module of a device, imported on first use.

    Parameters
    ----------
    device : {"cpu", "cuda"}

    Returns
    -------
    module
        `mgclust.kernels.cpu` or `mgclust.kernels.gpu`.
    """
    return importlib.import_module({"cpu": "mgclust.kernels.cpu", "cuda": "mgclust.kernels.gpu"}[device])
