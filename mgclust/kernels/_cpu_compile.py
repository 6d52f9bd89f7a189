"""How Numba compiles the CPU kernels: on first use, into a cache on disk.

A function that only kernels call needs no entry from Python, and none needs one from C: wrappers take longer to compile
than many a body. Assign slices in loops: what NumPy says of shapes that do not fit takes Numba two seconds to compile.
"""

from __future__ import annotations

from functools import partial

from numba import njit

__all__ = ["called", "compiled", "inlined", "uncounted"]

uncounted = partial(njit, nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True, _nrt=False)
compiled = njit(nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True)
called = njit(nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True)
inlined = njit(
    nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True, forceinline=True
)
