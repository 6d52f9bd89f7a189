"""The ``.cu`` files of the concepts, compiled for the device at hand."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
from cupy_backends.cuda.libs import nvrtc

from mgclust.kernels.toolkit.cuda_text import constants_of, cuda_text, only_kernel
from mgclust.kernels.toolkit.gpu_processes import Compile, Task, idle_cores, share_out

__all__ = ["Module", "compile_ahead", "compiled", "compiled_for_hopper", "is_hopper", "multiprocessors", "or_null"]

STANDARD = "--std=c++17"


class Module:
    """The kernels of a file, each compiled by itself when it is first asked for: a run needs few of them.

    Parameters
    ----------
    code : str
        All of them.
    build : callable
        Compiles the code of one, by a process of its own or here, and returns what has a `get_function`.
    """

    def __init__(self, code: str, build: Callable[[str, Compile], Any]) -> None:
        self._code, self._build = code, build
        self._functions: dict[str, Any] = {}
        self._ahead: dict[str, Future[Any]] = {}

    def get_function(self, name: str) -> Any:
        """Return a kernel."""
        if name not in self._functions:
            ahead = self._ahead.pop(name, None)
            # What has not begun is compiled here rather than waited for behind other kernels.
            here = ahead is None or ahead.cancel()
            self._functions[name] = self._compile(name, _compiled_here) if here or ahead is None else ahead.result()
        return self._functions[name]

    def plan(self, name: str) -> Iterator[Task]:
        """Yield what compiles a kernel ahead, once; what goes wrong is raised where the kernel is asked for."""
        if name not in self._functions and name not in self._ahead:
            self._ahead[name] = Future()
            yield self._ahead[name], functools.partial(self._compile, name)

    def _compile(self, name: str, compile_: Compile) -> Any:
        return self._build(only_kernel(self._code, name), compile_).get_function(name)


def compile_ahead(kernels: Iterable[tuple[Module, str]]) -> None:
    """Compile kernels side by side, while this thread continues; see `gpu_processes`."""
    tasks = [task for module, name in kernels for task in module.plan(name)]
    share_out(tasks, max(1, idle_cores() // 2), cp.cuda.Device().use)  # the other cores are for CuPy's kernels


def compiled(file: str, dtype: str, norm: str = "l2", **defines: int) -> Module:
    """Return a module of kernels; what was compiled is kept on disk, beside what CuPy keeps.

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
    return _module(file, dtype, norm, **defines)


@functools.cache  # which would have two modules of `compiled(file, dtype)` and `compiled(file, dtype, "l2")`
def _module(file: str, dtype: str, norm: str, **defines: int) -> Module:
    return Module(cuda_text(file, constants_of(dtype, norm, **defines)), _build)


@functools.cache
def compiled_for_hopper(file: str, **defines: int) -> Module:
    """Return a module that has instructions of compute capability 9.0 alone, for float32 and norm "l2".

    Parameters
    ----------
    file : str
    **defines : int
        As for `compiled`.
    """
    return Module(cuda_text(file, constants_of("float32", "l2", **defines)), _build_for_hopper)


def _build(code: str, compile_: Compile) -> Any:
    capability = cp.cuda.Device().compute_capability
    if int(capability) not in nvrtc.getSupportedArchs():
        # CuPy knows what a device can run that is newer than the compiler.
        return cp.RawModule(code=code, options=(STANDARD,))
    return _built(code, f"sm_{capability}", compile_)


def _build_for_hopper(code: str, compile_: Compile) -> Any:
    return _built(code, "sm_90a", compile_)


def _built(code: str, target: str, compile_: Compile) -> Any:
    options = (STANDARD, "-ftz=true", f"-arch={target}")
    key = hashlib.sha256(repr((code, options, nvrtc.getVersion())).encode()).hexdigest()
    folder = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
    kept = folder / f"mgclust-{key}.cubin"
    if kept.exists():
        return cp.RawModule(path=str(kept))
    binary = compile_(code, options) or _compiled_here(code, options)
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


def _compiled_here(code: str, options: Sequence[str]) -> bytes:
    program = nvrtc.createProgram(code, "", (), ())
    try:
        nvrtc.compileProgram(program, tuple(options))
        binary: bytes = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)
    return binary


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
