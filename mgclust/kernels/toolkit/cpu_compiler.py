"""Compilation of the CPU kernels by Numba: on first use, into a cache on disk where there is room for one.

A function that only kernels call needs no entry from Python, and none needs one from C: wrappers take longer to
compile than many a body. It is compiled as a part of them (`cpu_linking`), and not kept for itself. Assign slices in
loops: what NumPy says of shapes that do not fit takes Numba two seconds to compile.

Numba counts references to arrays, by atomic instructions: in inner loops they can take longer than all else, and
threads wait for each other at them. So only `allocating` functions, which make arrays, count; inner loops are others.
"""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba import njit, types
from numba.core import caching, config

__all__ = ["OWN_CACHE", "allocating", "called", "compiled", "inlined", "is_known", "signed", "told_of_compiling"]

KNOWN_NUMBA = (0, 68)
# Names a folder where this process keeps what it compiles: it may only read the usual ones.
OWN_CACHE = "MGCLUST_KERNEL_CACHE"
_warned = False
_listeners: list[Callable[[], None]] = []


@contextlib.contextmanager
def told_of_compiling(listener: Callable[[], None]) -> Iterator[None]:
    """Call something before each function that is compiled in the block, because no cache has it."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def _also_readable(locator: Any) -> Any:
    """The same way to find a folder, which also takes one with compiled kernels that can only be read."""

    class Locator(locator):  # type: ignore[misc]  # Numba has no types
        def ensure_cache_path(self) -> None:
            try:
                super().ensure_cache_path()
            except OSError:
                if not any(Path(self.get_cache_path()).glob("*.nbi")):
                    raise

    return Locator


class _OwnLocator(caching.UserProvidedCacheLocator):  # type: ignore[misc]
    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._cache_path = os.path.join(os.environ[OWN_CACHE], self.get_suitable_cache_subpath(file))

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        return cls(function, file)


class _UsualFiles(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = tuple(map(_also_readable, caching.CacheImpl._locator_classes[:3]))


class _OwnFiles(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_OwnLocator,)

    def __init__(self, function: Any) -> None:
        given, config.CACHE_LOCATOR_CLASSES = config.CACHE_LOCATOR_CLASSES, ""  # it would have priority
        try:
            super().__init__(function)
        finally:
            config.CACHE_LOCATOR_CLASSES = given


class _UsualCache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _UsualFiles


class _OwnCache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _OwnFiles


class _Cache(caching.NullCache):  # type: ignore[misc]
    """Numba's, except that a disk that is full or cannot be written costs time, and no result.

    With `OWN_CACHE` a second one follows, and keeps what is compiled.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        try:
            self._caches = [_UsualCache(function)]
        except (RuntimeError, ImportError, OSError) as error:  # of one of Numba's ways to find a folder
            self._caches = []
            if OWN_CACHE not in os.environ:
                _warn(error)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load what was compiled for these types, if it is there and can be read."""
        if OWN_CACHE in os.environ and not (self._caches and isinstance(self._caches[-1], _OwnCache)):
            self._caches.append(_OwnCache(self._function))
        for cache in self._caches:
            try:
                if (found := cache.load_overload(sig, target_context)) is not None:
                    return found
            except OSError as error:
                _warn(error)
        for listener in tuple(_listeners):
            listener()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, if it can be kept."""
        try:
            for cache in self._caches[-1:]:
                cache.save_overload(sig, data)
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


@functools.cache
def is_known() -> bool:
    """Return whether Numba is one whose compiler `cpu_linking` knows."""
    return tuple(map(int, numba.__version__.split(".")[:2])) == KNOWN_NUMBA


def _pipeline() -> dict[str, Any]:
    """Options for the shorter way through Numba, where it is known."""
    if not is_known():
        return {}
    from mgclust.kernels.toolkit.cpu_linking import Pipeline

    return {"pipeline_class": Pipeline}


def _compiler(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    pipeline = _pipeline()
    decorate = njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **pipeline, **options)

    def compile_at_use(function: Callable[..., Any]) -> Any:
        dispatcher = decorate(function)
        if hasattr(dispatcher, "enable_caching"):  # else compilation is switched off
            if not (pipeline and "no_cpython_wrapper" in options):  # a part is in what contains it
                dispatcher._cache = _Cache(function)
            # Numba would compile a function once more for each constant that it is called with.
            typed = dispatcher.get_call_template
            dispatcher.get_call_template = lambda args, kws: typed([types.unliteral(each) for each in args], kws)
        return dispatcher

    return compile_at_use


allocating = _compiler()  # makes arrays
compiled = _compiler(_nrt=False)
called = _compiler(_nrt=False, no_cpython_wrapper=True)
inlined = _compiler(_nrt=False, no_cpython_wrapper=True, forceinline=True)


def signed(bits: int) -> int:
    """The same 64 bits as the signed number that compiled functions take."""
    return (bits + (1 << 63)) % (1 << 64) - (1 << 63)
