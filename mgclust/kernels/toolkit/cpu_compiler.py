"""Compilation of the CPU kernels by Numba: on first use, into a cache on disk if a folder for one can be written.

A kernel has an entry from Python and is kept on disk. A function that only kernels call has none, and is a part of
every kernel that calls it: entries take longer to compile than many a body.

Two things make a kernel compile needlessly long:

- Numba compiles a function again for each literal that it is called with. Write ``np.int64(0)`` or ``np.bool_(True)``
  as an argument of a function that is also called with other values.
- Slices that are assigned take two seconds, because of what NumPy says if shapes do not fit. Assign in loops.

Numba counts references to arrays by atomic instructions. In inner loops they can take longer than all else, and threads
wait for each other at them. Only `allocating` functions, which make arrays, count references.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from numba import njit

# Numba has no other name for its events; its manual documents this one.
from numba.core import event

__all__ = ["allocating", "called", "compiled", "inlined", "on_compiling", "signed"]

OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
# No reference counts. Numba has no option without an underscore for it; the docstring of
# `numba.extending.register_jitable` names this one.
UNCOUNTED = dict(_nrt=False)
PART = {"no_cpython_wrapper": True}
_warned = False


class _Listener(event.Listener):  # type: ignore[misc]  # Numba has no types
    def __init__(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    def on_start(self, _: Any) -> None:
        self._listener()

    def on_end(self, _: Any) -> None:
        pass


@contextlib.contextmanager
def on_compiling(listener: Callable[[], None]) -> Iterator[None]:
    """Call something before each function that is compiled in the block because no cache has it."""
    with event.install_listener("numba:compile", _Listener(listener)):
        yield


class _Kernel:
    """A function with an entry from Python. A cache that cannot be read or written costs time, but no result."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options

    def __call__(self, *arguments: Any) -> Any:
        try:
            return (vars(self).get("_compiled") or self._with_cache())(*arguments)
        except OSError as error:  # only a cache raises it: the disk is full, or the folder is gone
            _warn(error)
            self._compiled = njit(**self._options)(self._function)
            return self._compiled(*arguments)

    def _with_cache(self) -> Callable[..., Any]:
        """Choose the folder of the cache, which a process may set after it has imported this module."""
        try:
            kernel = njit(cache=True, **self._options)(self._function)
        except RuntimeError as error:  # Numba finds no folder that can be written
            _warn(error)
            kernel = njit(**self._options)(self._function)
        # Threads that are here at the same time use one kernel, so that it is compiled once.
        chosen: Callable[..., Any] = vars(self).setdefault("_compiled", kernel)
        return chosen


def _warn(error: Exception) -> None:
    """Warn once that compiled kernels are not kept."""
    global _warned
    if _warned:
        return
    _warned = True
    why = error.strerror if isinstance(error, OSError) else "no folder for them can be written"
    warnings.warn(
        f"compiled kernels cannot be kept on disk ({why}), so that every process compiles them again; set "
        "NUMBA_CACHE_DIR to a folder that can be written.",
        RuntimeWarning,
        stacklevel=4,
    )


def _kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    return lambda function: _Kernel(function, OPTIONS | options)


allocating = _kernel()  # makes arrays
compiled = _kernel(**UNCOUNTED)
called = njit(**OPTIONS, **UNCOUNTED, **PART)
inlined = njit(**OPTIONS, **UNCOUNTED, **PART, forceinline=True)


def signed(bits: int) -> int:
    """The same 64 bits as the signed number that compiled functions take."""
    return (bits + (1 << 63)) % (1 << 64) - (1 << 63)
