"""Compilation of the CPU kernels by Numba, on first use.

Python can call a kernel, and its compiled code is kept in a cache on disk if the folder of the cache is writable. A
function that only kernels call has no entry point for Python, because the entry point often takes longer to compile
than the function itself. Such a function is compiled as a part of every kernel that calls it.

Two mistakes make compilation take longer than necessary:

- Numba compiles a function again for each literal that it is called with. Write ``np.int64(0)`` or ``np.bool_(True)``
  as an argument of a function that is also called with other values.
- Each assignment to a slice takes two seconds to compile, because of NumPy's error message about shapes. Assign in
  loops.

LLVM calls Python functions while it compiles or loads code, and errors in these functions are lost. So a signal, such
as the signal of Ctrl-C, is handled only after the function is compiled in the main thread and its code is in the cache.
This takes seconds at most.

Numba counts references to arrays by atomic instructions. In inner loops, these instructions can take longer than all
other work, and make threads wait for each other. Only `allocating` functions, which make arrays, count references.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from numba import njit

# Numba has no other name for its events; its manual documents this one.
from numba.core import event

__all__ = ["allocating", "called", "compiled", "inlined", "on_compiling", "signed"]

OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
# This turns reference counts off. Numba has no option without an underscore for this purpose; the docstring of
# `numba.extending.register_jitable` names this option.
UNCOUNTED = dict(_nrt=False)
PART = {"no_cpython_wrapper": True}
_warned = False
_choosing = threading.Lock()


class _Listener(event.Listener):  # type: ignore[misc]  # Numba has no types
    def __init__(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    def on_start(self, _: Any) -> None:
        self._listener()

    def on_end(self, _: Any) -> None:
        pass


@contextlib.contextmanager
def on_compiling(listener: Callable[[], None]) -> Iterator[None]:
    """Call the listener before each compilation of a function that no cache has, within the ``with`` block."""
    with event.install_listener("numba:compile", _Listener(listener)):
        yield


class _LaterSignals(event.Listener):  # type: ignore[misc]
    """Delays signals that have Python handlers until the main thread has compiled, or loaded, and stored a function."""

    def __init__(self) -> None:
        self._depth = 0  # above 1 if a function is compiled during the compilation of its caller
        self._handlers: dict[int, Any] = {}
        self._received: list[tuple[int, Any]] = []

    def on_start(self, _: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if self._depth == 0:
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler) and handler != self._receive:
                    self._handlers[number] = handler
                    signal.signal(number, self._receive)
        self._depth += 1

    def on_end(self, _: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if self._depth:
            return
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        received, self._received = self._received, []  # after the loop, because a signal may arrive during it
        for number, frame in received:
            self._handlers[number](number, frame)

    def _receive(self, number: int, frame: Any) -> None:
        self._received.append((number, frame))


# Numba holds this lock until the cache has the compiled function. At the end of the compilation itself, an exception of
# a signal's handler would discard the function, and the next process would compile it again.
event.register("numba:compiler_lock", _LaterSignals())


class _Kernel:
    """A function that Python can call. It is compiled without a cache if the cache cannot be read or written."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        try:
            return (self._compiled or self._with_cache())(*arguments)
        except OSError as error:  # only the cache raises this error: the disk is full, or the folder is gone
            _warn(error)
            self._compiled = njit(**self._options)(self._function)
            return self._compiled(*arguments)

    def _with_cache(self) -> Callable[..., Any]:
        """Choose the cache folder at the first call, because a process may set it after the import of this module."""
        try:
            kernel = njit(cache=True, **self._options)(self._function)
        except RuntimeError as error:  # Numba finds no writable folder
            _warn(error)
            kernel = njit(**self._options)(self._function)
        # If several threads are here at the same time, they use the same kernel, so that it is compiled once.
        with _choosing:
            self._compiled = self._compiled or kernel
        return self._compiled


def _warn(error: Exception) -> None:
    """Warn only once that compiled kernels are not kept on disk."""
    global _warned
    if _warned:
        return
    _warned = True
    why = error.strerror if isinstance(error, OSError) else "no folder for them is writable"
    warnings.warn(
        f"compiled kernels cannot be kept on disk ({why}), so every process compiles them again; set "
        "NUMBA_CACHE_DIR to a writable folder.",
        RuntimeWarning,
        stacklevel=4,
    )


def _kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    return lambda function: _Kernel(function, OPTIONS | options)


allocating = _kernel()  # for functions that make arrays
compiled = _kernel(**UNCOUNTED)
called = njit(**OPTIONS, **UNCOUNTED, **PART)
inlined = njit(**OPTIONS, **UNCOUNTED, **PART, forceinline=True)


def signed(bits: int) -> int:
    """Return the signed number with the same 64 bits; compiled functions take signed numbers."""
    return (bits + (1 << 63)) % (1 << 64) - (1 << 63)
