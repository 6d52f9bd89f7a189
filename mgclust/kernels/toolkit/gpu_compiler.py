"""Compilation of the ``.cu`` files of all kernel folders for the GPU of this process."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
from cuda.pathfinder import load_nvidia_dynamic_lib
from cupy.cuda import nvrtc

from mgclust.kernels.toolkit import nvrtc_process
from mgclust.kernels.toolkit.cuda_text import constants_of, cuda_text, only_kernel

__all__ = [
    "Module",
    "compile_ahead",
    "compiled",
    "compiled_for_hopper",
    "is_hopper",
    "multiprocessors",
    "on_compiling",
    "or_null",
]

# The second option makes generic lambdas device code, because NVRTC accepts no annotation of a lambda.
STANDARD = ("--std=c++17", "--device-as-default-execution-space")
WAIT_LIMIT = 60.0  # seconds for a process that compiles a kernel
_begun: dict[Path, subprocess.Popen[bytes]] = {}  # processes, by the file that each writes
_listeners: list[Callable[[], None]] = []


class Module:
    """The kernels of a file. Each kernel is compiled separately when it is first used, because a run needs few kernels.

    Parameters
    ----------
    code : str
        Source code of all kernels.
    target : str, optional
        Architecture; by default the architecture of the device.
    """

    def __init__(self, code: str, target: str = "") -> None:
        self._code, self._target = code, target
        self._functions: dict[str, Any] = {}
        self._ahead: set[str] = set()

    def get_function(self, name: str) -> Any:
        """Return a kernel, compiled if necessary."""
        if name not in self._functions:
            code, target = self.program(name)
            # If the device is newer than the compiler, CuPy knows the architecture to compile for.
            module = _loaded(code, target) if target else cp.RawModule(code=code, options=STANDARD)
            self._functions[name] = module.get_function(name)
        return self._functions[name]

    def is_new(self, name: str) -> bool:
        """Return True only at the first call for a kernel that is not loaded, because each fit calls this method."""
        new = name not in self._functions and name not in self._ahead
        self._ahead.add(name)
        return new

    def program(self, name: str) -> tuple[str, str]:
        """Return the code of a kernel and its architecture, which is empty if NVRTC does not know it."""
        return only_kernel(self._code, name), self._target or _own_target()


def compile_ahead(kernels: Iterable[tuple[Module, str]]) -> None:
    """Compile kernels in processes, at most one per other core, while this thread continues."""
    new = [(module, name) for module, name in kernels if module.is_new(name)]
    if not new:
        return
    for path in [path for path, process in _begun.items() if process.poll() is not None]:
        _begun.pop(path, None)
    library, processes = load_nvidia_dynamic_lib("nvrtc").abs_path, len(os.sched_getaffinity(0)) - 1
    for module, name in new:
        code, target = module.program(name)
        options, kept = _options_and_file(code, target)
        if not library or not target or len(_begun) >= processes or kept in _begun or kept.exists():
            continue
        command = [sys.executable, "-I", "-S", nvrtc_process.__file__, library, str(kept), *options]
        with contextlib.suppress(OSError), tempfile.TemporaryFile() as program:  # if it fails, the first call compiles
            kept.parent.mkdir(parents=True, exist_ok=True)
            program.write(code.encode())
            program.seek(0)
            # Ctrl-C does not reach the process, because it has its own process group.
            nothing = subprocess.DEVNULL
            _begun[kept] = subprocess.Popen(command, stdin=program, stdout=nothing, stderr=nothing, process_group=0)


@contextlib.contextmanager
def on_compiling(listener: Callable[[], None]) -> Iterator[None]:
    """Call the listener before each wait for a kernel that no cache has, within the ``with`` block.

    Waits for CuPy's own kernels are not reported.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def compiled(file: str, dtype: str, norm: str = "l2", **defines: int) -> Module:
    """Return a module of kernels; compiled kernels are kept on disk, in CuPy's cache folder.

    Parameters
    ----------
    file : str
        Path of a ``.cu`` file, relative to ``mgclust/kernels``, such as ``pairs/few_features.cu``.
    dtype : {"float32", "float64"}
        Type of the rows: REAL in the file.
    norm : {"l2", "l2-dot", "l1"}
        Norm of the distances: NORM in the file.
    **defines : int
        Other constants, for example DIM.
    """
    return _module(file, dtype, norm, **defines)


@functools.cache  # a cache of `compiled` would keep two equal modules: for calls with norm="l2", and without norm
def _module(file: str, dtype: str, norm: str, **defines: int) -> Module:
    return Module(cuda_text(file, constants_of(dtype, norm, **defines)))


@functools.cache
def compiled_for_hopper(file: str, **defines: int) -> Module:
    """Return a module with instructions that only compute capability 9.0 has, for float32 and norm "l2".

    Parameters
    ----------
    file : str
    **defines : int
        See `compiled`.
    """
    return Module(cuda_text(file, constants_of("float32", "l2", **defines)), "sm_90a")


@functools.cache
def _own_target() -> str:
    capability = cp.cuda.Device().compute_capability
    return f"sm_{capability}" if int(capability) in nvrtc.getSupportedArchs() else ""


def _options_and_file(code: str, target: str) -> tuple[tuple[str, ...], Path]:
    """Return NVRTC's options for a program, and the path of the file for its machine code."""
    options = (*STANDARD, "-ftz=true", f"-arch={target}")
    key = hashlib.sha256(repr((code, options, nvrtc.getVersion())).encode()).hexdigest()
    folder = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
    return options, folder / f"mgclust-{key}.cubin"


def _loaded(code: str, target: str) -> Any:
    options, kept = _options_and_file(code, target)
    process = _begun.pop(kept, None)
    if not kept.exists():
        for listener in _listeners:
            listener()
    if process is not None:
        try:
            process.wait(WAIT_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
    if kept.exists():
        return cp.RawModule(path=str(kept))
    binary = _compiled_here(code, options)
    with tempfile.TemporaryDirectory() as private:
        new = Path(private) / kept.name
        new.write_bytes(binary)
        module = cp.RawModule(path=str(new))
        module.compile()
    with contextlib.suppress(OSError):  # without the cache, the next process takes a second to compile the kernel again
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(binary)
        part.replace(kept)
    return module


def _compiled_here(code: str, options: tuple[str, ...]) -> bytes:
    program = nvrtc.createProgram(code, "", (), ())
    try:
        nvrtc.compileProgram(program, options)
        binary: bytes = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)
    return binary


@functools.cache
def is_hopper() -> bool:
    """Return whether the device has compute capability 9.0, and therefore wgmma instructions and bulk copies."""
    return str(cp.cuda.Device().compute_capability) == "90"


@functools.cache
def multiprocessors() -> int:
    """Return the number of multiprocessors of the device."""
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])


def or_null(array: Any) -> Any:
    """Return the array as an argument of a kernel; None becomes a null pointer."""
    return np.uint64(0) if array is None else array
