"""How Numba compiles the CPU kernels: on first use, into a cache on disk where there is room for one.

A function that only kernels call needs no entry from Python, and none needs one from C: wrappers take longer to compile
than many a body. Assign slices in loops: what NumPy says of shapes that do not fit takes Numba two seconds to compile.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

__all__ = ["called", "compiled", "inlined", "uncounted"]

_warned = False


class _Cache(FunctionCache):  # type: ignore[misc]  # Numba has no types
    """Numba's, except that a disk that is full or cannot be written costs time, and no result."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load what was compiled for these types, if it is there and can be read."""
        try:
            return super().load_overload(sig, target_context)
        except OSError as error:
            _warn(error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, if it can be kept."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn(error)


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
        stacklevel=3,
    )


def _compiler(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    decorate = njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options)

    def compile_at_use(function: Callable[..., Any]) -> Any:
        dispatcher = decorate(function)
        if hasattr(dispatcher, "enable_caching"):  # else compilation is switched off
            try:
                dispatcher._cache = _Cache(function)
            except (RuntimeError, ImportError, OSError) as error:  # of one of Numba's ways to find a folder
                _warn(error)
        return dispatcher

    return compile_at_use


uncounted = functools.partial(_compiler, _nrt=False)
compiled = _compiler()
called = _compiler(no_cpython_wrapper=True)
inlined = _compiler(no_cpython_wrapper=True, forceinline=True)
