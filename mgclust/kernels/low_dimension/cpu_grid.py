"""Inner loops for `gaussian_grid`: rows are spread onto a grid, and the grid is interpolated at rows.

The 16 window values of a row along an axis are one vector of 16 doubles (two AVX-512 registers). So spreading a row
takes 16 times "load 16 integers, add, store" in two dimensions, and 256 times in three. The window takes 15
multiply-adds per axis. Grids of 2 MB stay in the L2 cache. Grids in three dimensions do not; there, rows in the order
of the tree are several times faster than rows in random order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mgclust.kernels.toolkit.cpu_compiler import allocating, inlined
from mgclust.kernels.toolkit.simd import Vector, call_intrinsic, multiply, pointer_to, spread_lanes, total

__all__ = ["interpolate", "spread"]

WINDOW = 16
INTEGERS = ir.VectorType(ir.IntType(64), WINDOW)
REALS = ir.VectorType(ir.DoubleType(), WINDOW)
MAGIC = 1.5 * 2.0**52  # adding it to a double below 2^51 rounds the double, and puts the integer into the low bits
MAGIC_BITS = int(np.float64(MAGIC).view(np.int64))


@intrinsic
def load_window(_: Any, array: Any, index: Any) -> Any:
    """Load 16 consecutive doubles of a flat array, without a bounds check."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(pointer_to(context, builder, array, arguments[0], arguments[1], REALS), align=8)

    return Vector(types.float64, WINDOW)(array, types.int64), generate


@intrinsic
def scale_add(_: Any, vector: Any, factor: Any, addend: Any) -> Any:
    """Return fma(vector, factor, addend) for a scalar factor."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        v, s, a = arguments
        return call_intrinsic(builder, "llvm.fma.v16f64", [v, spread_lanes(builder, s, WINDOW), a])

    return vector(vector, types.float64, addend), generate


@intrinsic
def add_rounded(_: Any, grid: Any, index: Any, vector: Any, factor: Any) -> Any:
    """Add round(vector * factor) to grid[index : index + 16]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, v, s = arguments
        magic = ir.Constant(REALS, [MAGIC] * WINDOW)
        shifted = call_intrinsic(builder, "llvm.fma.v16f64", [v, spread_lanes(builder, s, WINDOW), magic])
        rounded = builder.sub(builder.bitcast(shifted, INTEGERS), ir.Constant(INTEGERS, [MAGIC_BITS] * WINDOW))
        pointer = pointer_to(context, builder, grid, arguments[0], arguments[1], INTEGERS)
        builder.store(builder.add(builder.load(pointer, align=8), rounded), pointer, align=8)
        return context.get_dummy_value()

    return types.void(grid, types.int64, vector, types.float64), generate


@intrinsic
def store_window(_: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write 16 consecutive doubles of a flat array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], pointer_to(context, builder, array, arguments[0], arguments[1], REALS), align=8)
        return context.get_dummy_value()

    return types.void(array, types.int64, vector), generate


@inlined
def _place(x: Any, i: int, d: int, origin: Any, inverse: float, polynomials: Any, strides: Any, weights: Any) -> int:
    """Write the window values of row i to `weights`, from the last axis to the first; return the row's first cell."""
    first = 0
    for k in range(d):
        position = (np.float64(x[i * d + k]) - origin[k]) * inverse
        cell = int(np.floor(position))
        f = position - cell - 0.5
        value = load_window(polynomials, 0)
        for row in range(WINDOW, len(polynomials), WINDOW):
            value = scale_add(value, f, load_window(polynomials, row))
        store_window(weights, (d - 1 - k) * WINDOW, value)
        first += (cell - (WINDOW // 2 - 1)) * strides[k]
    return first


@allocating
def spread(
    x: Any, d: int, start: int, stop: int, origin: Any, inverse: float, polynomials: Any, strides: Any, factor: float,
    grid: Any,
) -> None:  # fmt: skip
    """Add rows start..stop-1, multiplied by `factor` and rounded, to the flat grid."""
    weights = np.zeros(3 * WINDOW)
    weights[d * WINDOW :] = 1.0
    planes = WINDOW if d == 3 else 1
    lines = WINDOW if d >= 2 else 1
    plane = strides[0] if d == 3 else 0
    line = strides[d - 2] if d >= 2 else 0
    for i in range(start, stop):
        first = _place(x, i, d, origin, inverse, polynomials, strides, weights)
        along = load_window(weights, 0)
        for a in range(planes):
            outer = weights[2 * WINDOW + a] * factor
            for b in range(lines):
                add_rounded(grid, first + a * plane + b * line, along, weights[WINDOW + b] * outer)


@allocating
def interpolate(
    x: Any, d: int, start: int, stop: int, origin: Any, inverse: float, polynomials: Any, strides: Any, grid: Any,
    out: Any,
) -> None:  # fmt: skip
    """Write the interpolated values of the flat grid at rows start..stop-1 to `out`."""
    weights = np.zeros(3 * WINDOW)
    weights[d * WINDOW :] = 1.0
    nothing = np.zeros(WINDOW)
    planes = WINDOW if d == 3 else 1
    lines = WINDOW if d >= 2 else 1
    plane = strides[0] if d == 3 else 0
    line = strides[d - 2] if d >= 2 else 0
    for i in range(start, stop):
        first = _place(x, i, d, origin, inverse, polynomials, strides, weights)
        zero = load_window(nothing, 0)
        value = zero
        for a in range(planes):
            inner = zero
            for b in range(lines):
                cells = load_window(grid, first + a * plane + b * line)
                inner = scale_add(cells, weights[WINDOW + b], inner)
            value = scale_add(inner, weights[2 * WINDOW + a], value)
        out[i] = total(multiply(load_window(weights, 0), value))
