"""The ``.cu`` files of the concepts, compiled for the device at hand."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
from cupy_backends.cuda.libs import nvrtc

__all__ = ["Module", "compile_ahead", "compiled", "compiled_for_hopper", "is_hopper", "multiprocessors", "or_null"]

HEADERS = (
    "pairs/split_products.cuh",
    "pairs/pairs.cuh",
    "fuzzy_c_means/approximations.cuh",
    "toolkit/hashing.cuh",
    "toolkit/tie_noise.cuh",
    "affinity_propagation/messages.cuh",
)
NORMS = {"l2": "NORM_L2", "l2-dot": "NORM_DOT", "l1": "NORM_L1"}
# A kernel in a file ends at the first brace that begins a line.
KERNEL = re.compile(
    r'^extern "C" __global__ void\s+(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s+)?(?P<name>\w+)\(.*?^}\n',
    re.MULTILINE | re.DOTALL,
)
STANDARD = "--std=c++17"


class Module:
    """The kernels of a file, each compiled by itself when it is first asked for: a run needs few of them.

    Parameters
    ----------
    code : str
        All of them.
    build : callable
        Compiles the code of one and returns what has a `get_function`.
    """

    def __init__(self, code: str, build: Callable[[str], Any]) -> None:
        self._code, self._build = code, build
        self._functions: dict[str, Any] = {}
        self._ahead: dict[str, Future[Any]] = {}

    def get_function(self, name: str) -> Any:
        """Return a kernel."""
        if name not in self._functions:
            ahead = self._ahead.pop(name, None)
            # What has not begun is compiled here rather than waited for behind other kernels.
            here = ahead is None or ahead.cancel()
            self._functions[name] = self._compile(name) if here or ahead is None else ahead.result()
        return self._functions[name]

    def start(self, name: str, pool: ThreadPoolExecutor) -> None:
        """Have a kernel compiled by a pool; what goes wrong is raised where the kernel is asked for."""
        if name not in self._functions and name not in self._ahead:
            self._ahead[name] = pool.submit(self._compile, name)

    def _compile(self, name: str) -> Any:
        return self._build(only_kernel(self._code, name)).get_function(name)


def only_kernel(code: str, name: str) -> str:
    """Code without all kernels but one."""
    return KERNEL.sub(lambda kernel: kernel.group() if kernel["name"] == name else "", code)


def compile_ahead(kernels: Iterable[tuple[Module, str]]) -> None:
    """Compile kernels side by side, while this thread continues: the compiler does not hold Python's lock."""
    device = cp.cuda.Device().id
    pool = ThreadPoolExecutor(initializer=lambda: cp.cuda.Device(device).use())
    for module, name in kernels:
        module.start(name, pool)
    pool.shutdown(wait=False)


@functools.cache
def compiled(file: str, dtype: str, norm: str = "l2", **defines: int) -> Module:
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
    constants = {"REAL": real, "NORM": NORMS[norm], **defines}
    # Not as options: for each set of them CuPy asks the compiler for its version.
    return Module(_text(file, constants), lambda code: cp.RawModule(code=code, options=(STANDARD,)))


@functools.cache
def compiled_for_hopper(file: str) -> Module:
    """Return a module that has instructions of compute capability 9.0 alone, for float32 and norm "l2".

    CuPy names no such target to its compiler. What was compiled is kept beside what CuPy keeps.

    Parameters
    ----------
    file : str
        As for `compiled`.
    """
    return Module(_text(file, {"REAL": "float", "NORM": "NORM_L2"}), _build_for_hopper)


def _build_for_hopper(code: str) -> Any:
    options = (STANDARD, "-ftz=true", "-arch=sm_90a")
    key = hashlib.sha256(repr((code, options, nvrtc.getVersion())).encode()).hexdigest()
    folder = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
    kept = folder / f"mgclust-{key}.cubin"
    if kept.exists():
        return cp.RawModule(path=str(kept))
    program = nvrtc.createProgram(code, "", (), ())
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


def _text(file: str, constants: dict[str, Any]) -> str:
    """A ``.cu`` file with its constants and shared headers as text: the cache on disk then sees a change to them."""
    folder = Path(__file__).parents[1]
    code = (folder / file).read_text()
    for header in HEADERS:
        text = (folder / header).read_text().replace("#pragma once", "")
        code = code.replace(f'#include "{header}"', text)
    return "".join(f"#define {name} {value}\n" for name, value in constants.items()) + code


@functools.cache
def is_hopper() -> bool:
    """Return whether the device has compute capability 9.0: wgmma and bulk copies."""
    return str(cp.cuda.Device().compute_capability) == "90"


@functools.cache
def multiprocessors() -> int:
    """Number of multiprocessors of the device."""
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])


def or_null(array: Any) -> Any:
    """The array as an argument of a kernel; a null pointer for None."""
    return np.uint64(0) if array is None else array
