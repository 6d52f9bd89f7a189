"""The ``.cu`` files of the concepts, compiled for the device at hand."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import cupy as cp

__all__ = ["compiled", "multiprocessors"]

NORMS = {"l2": "NORM_L2", "l2-dot": "NORM_DOT", "l1": "NORM_L1"}


@functools.cache
def compiled(file: str, dtype: str, norm: str = "l2", **defines: int) -> Any:
    """Return a module of kernels; CuPy keeps what it compiled on disk.

    Parameters
    ----------
    file : str
        A ``.cu`` file, from the folder of the kernels on: ``pairs/few_features.cu``.
    dtype : {"float32", "float64"}
        The rows' type, REAL in the file.
    norm : {"l2", "l2-dot", "l1"}
        NORM in the file.
    **defines : int
        Further constants, DIM for example.
    """
    folder = Path(__file__).parents[1]
    real = {"float32": "float", "float64": "double"}[dtype]
    flags = [f"-DREAL={real}", f"-DNORM={NORMS[norm]}", *(f"-D{name}={value}" for name, value in defines.items())]
    code = (folder / file).read_text()
    for header in ("pairs/pairs.cuh", "toolkit/hashing.cuh"):
        # Shared headers go in as text: the cache on disk then sees a change to them.
        text = (folder / header).read_text().replace("#pragma once", "")
        code = code.replace(f'#include "{header}"', text)
    return cp.RawModule(code=code, options=("--std=c++17", *flags))


@functools.cache
def multiprocessors() -> int:
    """How many the device has."""
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])
