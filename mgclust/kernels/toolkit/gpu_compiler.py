"""The ``.cu`` files of the concepts, compiled for the device at hand."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import cupy as cp
from cupy_backends.cuda.libs import nvrtc

__all__ = ["compiled", "compiled_for_hopper", "is_hopper", "multiprocessors"]

HEADERS = ("pairs/split_products.cuh", "pairs/pairs.cuh", "toolkit/hashing.cuh")
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
    real = {"float32": "float", "float64": "double"}[dtype]
    flags = [f"-DREAL={real}", f"-DNORM={NORMS[norm]}", *(f"-D{name}={value}" for name, value in defines.items())]
    return cp.RawModule(code=_text(file), options=("--std=c++17", *flags))


@functools.cache
def compiled_for_hopper(file: str) -> Any:
    """Return a module that has instructions of compute capability 9.0 alone, for float32 and norm "l2".

    CuPy names no such target to its compiler. What was compiled is kept beside what CuPy keeps.

    Parameters
    ----------
    file : str
        As for `compiled`.
    """
    options = ("--std=c++17", "-DREAL=float", "-DNORM=NORM_L2", "-ftz=true", "-arch=sm_90a")
    code = _text(file)
    key = hashlib.sha256(repr((code, options, nvrtc.getVersion())).encode()).hexdigest()
    folder = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
    kept = folder / f"mgclust-{key}.cubin"
    if kept.exists():
        return cp.RawModule(path=str(kept))
    program = nvrtc.createProgram(code, file, (), ())
    try:
        nvrtc.compileProgram(program, options)
        binary = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)
    with tempfile.TemporaryDirectory() as private:
        new = Path(private) / kept.name
        new.write_bytes(binary)
        module = cp.RawModule(path=str(new))
        module.compile()
    with contextlib.suppress(OSError):  # a cache that cannot be written costs the next process a second
        folder.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(binary)
        part.replace(kept)
    return module


def _text(file: str) -> str:
    """A ``.cu`` file with its shared headers as text: the cache on disk then sees a change to them."""
    folder = Path(__file__).parents[1]
    code = (folder / file).read_text()
    for header in HEADERS:
        text = (folder / header).read_text().replace("#pragma once", "")
        code = code.replace(f'#include "{header}"', text)
    return code


@functools.cache
def is_hopper() -> bool:
    """Whether the device has compute capability 9.0: wgmma and bulk copies."""
    return str(cp.cuda.Device().compute_capability) == "90"


@functools.cache
def multiprocessors() -> int:
    """How many the device has."""
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])
