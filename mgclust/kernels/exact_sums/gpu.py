"""Sums that are bitwise independent of the order of addition, on a CUDA device (``sums.cu``)."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.exact_sums import ZERO
from mgclust.kernels.toolkit.gpu_compiler import compiled, or_null

__all__ = ["column_sums", "from_integers", "integer_sums", "largest_exponents"]

Array = Any
THREADS = 128
RUN = 8  # parts that a thread reads; equals RUN in sums.cu
COLUMN_THREADS, COLUMN_ROWS = 256, 1024  # threads and rows per thread block of column_sums


def column_sums(x: Array, about: Array | None = None) -> Array:
    blocks, m, d = x.shape
    runs = -(-m // COLUMN_ROWS)
    out = cp.zeros((blocks, runs, d))
    if out.size:
        kernel = compiled("exact_sums/sums.cu", x.dtype.name).get_function("column_sums")
        sizes = (np.int64(m), np.int64(d), np.int32(COLUMN_ROWS))
        arguments = (cp.ascontiguousarray(x), *sizes, or_null(about), out)
        kernel((runs, blocks), (COLUMN_THREADS,), arguments)
    return out[:, 0] if runs == 1 else column_sums(out) if runs else cp.zeros((blocks, d))


def largest_exponents(parts: Array) -> Array:
    out = cp.full(parts.shape[1:], ZERO, np.int32)
    _launch("largest_exponents", parts, out.size, out)
    return out


def integer_sums(parts: Array, exponents: Array, *, bits: int) -> Array:
    out = cp.zeros(parts.shape[1:], np.int64)
    _launch("integer_sums", parts, out.size, exponents, np.int32(bits), out)
    return out


def from_integers(integers: Array, exponents: Array, *, bits: int) -> Array:
    out = cp.empty(integers.shape)
    kernel = compiled("exact_sums/sums.cu", "float64").get_function("from_integers")
    sizes = (np.int32(bits), np.int64(out.size))
    kernel((-(-out.size // THREADS),), (THREADS,), (integers, exponents, *sizes, out))
    return out


def _launch(name: str, parts: Array, length: int, *arguments: Any) -> None:
    count = len(parts)
    if count:
        grid = (-(-length // THREADS), -(-count // RUN))
        sizes = (parts, np.int64(count), np.int64(length))
        compiled("exact_sums/sums.cu", "float64").get_function(name)(grid, (THREADS,), (*sizes, *arguments))
