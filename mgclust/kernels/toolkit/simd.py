"""Vectors of 32 columns in Numba functions, with which the pair kernels are written.

If the compiler vectorised loops, speed and rounding would depend on its choices: which additions it regroups,
and which products it fuses. So kernels use an explicit type `Vector` (LLVM's ``<32 x float>`` or ``<32 x double>``;
two AVX-512 registers, or four AVX2 registers), and every operation on a vector is one named function with one
rounding. The result of a kernel is therefore defined only by its source:

    s = 0;  s = fma(x_k - y_k, x_k - y_k, s)  for k = 0, 1, ... d-1        one chain per pair

The same chain written in CUDA (``__fmaf_rn``) gives the same bits.

`exp2_of` takes 11 operations per element and no table: ``2^t = 2^n 2^f``, where n is the nearest integer (found by
adding 1.5 * 2^23, which leaves n in the low bits). 2^f is a polynomial on [-1/2, 1/2] with relative error 9e-8
(float32) or 6e-17 (float64) plus rounding, and n is added to the exponent bits. Below t = -127 (-1023), the result
is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

__all__ = [
    "WIDTH",
    "Vector",
    "VectorFormat",
    "absolute_step",
    "add",
    "add_to",
    "as_mask",
    "bits_below",
    "bits_of",
    "broadcast",
    "call_intrinsic",
    "element",
    "exp2_of",
    "first_lane",
    "lanes_of",
    "load",
    "lowest_bit",
    "multiply",
    "ordered_below",
    "pointer_to",
    "splat",
    "spread_lanes",
    "square_step",
    "store",
    "total",
    "values_below",
    "values_differ",
]

WIDTH = 32
MASK = ir.IntType(WIDTH)
INT64 = ir.IntType(64)


class Vector(types.Type):  # type: ignore[misc]
    """Numba type of a vector: `width` elements of one scalar type."""

    def __init__(self, scalar: types.Type, width: int = WIDTH) -> None:
        self.scalar = scalar
        self.width = width
        super().__init__(name=f"Vector({scalar}, {width})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, vector: Vector) -> None:
        scalar = manager.lookup(vector.scalar).get_value_type()
        super().__init__(manager, vector, ir.VectorType(scalar, vector.width))


class VectorFormat:
    """LLVM types, names and constants that differ between float32 and float64."""

    def __init__(self, scalar: types.Type) -> None:
        single = scalar == types.float32
        self.real = ir.FloatType() if single else ir.DoubleType()
        self.vector = ir.VectorType(self.real, WIDTH)
        self.integer = ir.IntType(32 if single else 64)
        self.integers = ir.VectorType(self.integer, WIDTH)
        self.suffix = f"v{WIDTH}f{32 if single else 64}"
        self.mantissa = 23 if single else 52
        self.lowest = -127.0 if single else -1023.0
        self.polynomial = EXP2_SINGLE if single else EXP2_DOUBLE

    def constant(self, value: float) -> ir.Constant:
        """Return a vector that holds one value in every lane."""
        if self.real == ir.FloatType():
            value = float(np.float32(value))
        return ir.Constant(self.vector, [value] * WIDTH)


# 2^f = 1 + f (c_0 + c_1 f + ...): Lawson's minimax fits of the relative error on [-1/2, 1/2]. The constant 1
# is exact so that exp2_of(0) is exactly 1 and exp2_of(lowest) exactly 0.
EXP2_SINGLE = (
    0.6931469775988575,
    0.24022242085173218,
    0.05550733743691008,
    0.009671512648911309,
    0.001326472706533547,
)
EXP2_DOUBLE = (
    0.6931471805599456,
    0.24022650695910072,
    0.05550410866479658,
    0.00961812910761673,
    0.0013333558151752806,
    0.00015403530428068096,
    1.5252729289460648e-05,
    1.32154496343335e-06,
    1.0179759388059854e-07,
    7.071388010988468e-09,
    4.2222223721728115e-10,
)


def spread_lanes(builder: Any, value: Any, width: int = WIDTH) -> Any:
    """Copy a scalar LLVM value to all lanes."""
    kind = ir.VectorType(value.type, width)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)


def pointer_to(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any = None) -> Any:
    """Return the address of an element of a flat array, as a pointer to `kind`; no bounds check."""
    data = context.make_array(array_type)(context, builder, array).data
    pointer = builder.gep(data, [index])
    return builder.bitcast(pointer, ir.PointerType(kind)) if kind is not None else pointer


def call_intrinsic(builder: Any, name: str, arguments: list[Any], result: Any = None) -> Any:
    """Call an LLVM function by its name; by default, its result has the type of its first argument."""
    kind = ir.FunctionType(result or arguments[0].type, [a.type for a in arguments])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, arguments)


def lowest_bit(builder: Any, mask: Any) -> Any:
    """Position of the lowest set bit of an LLVM integer of 64 bits that is not 0."""
    return call_intrinsic(builder, "llvm.cttz.i64", [mask, ir.IntType(1)(1)])


def as_mask(builder: Any, lanes: Any) -> Any:
    """Pack WIDTH truth values into the bits of an integer."""
    return builder.zext(builder.bitcast(lanes, MASK), INT64)


@intrinsic
def load(_: Any, array: Any, index: Any) -> Any:
    """WIDTH consecutive elements of a flat array; no bounds check."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_value_type(signature.return_type)
        pointer = pointer_to(context, builder, array, arguments[0], arguments[1], kind)
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return Vector(array.dtype)(array, types.int64), generate


@intrinsic
def store(_: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write WIDTH consecutive elements of a flat array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = pointer_to(context, builder, array, arguments[0], arguments[1], arguments[2].type)
        builder.store(arguments[2], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.int64, vector), generate


@intrinsic
def broadcast(_: Any, array: Any, index: Any) -> Any:
    """One element of a flat array in every lane; no bounds check."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return spread_lanes(builder, builder.load(pointer_to(context, builder, array, *arguments)))

    return Vector(array.dtype)(array, types.int64), generate


@intrinsic
def splat(_: Any, scalar: Any) -> Any:
    """A scalar in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return spread_lanes(builder, arguments[0])

    return Vector(scalar)(scalar), generate


@intrinsic
def add(_: Any, a: Any, b: Any) -> Any:
    """a + b."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments)

    return a(a, b), generate


@intrinsic
def multiply(_: Any, a: Any, b: Any) -> Any:
    """a * b."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(*arguments)

    return a(a, b), generate


@intrinsic
def square_step(_: Any, s: Any, x: Any, y: Any) -> Any:
    """fma(x - y, x - y, s): one term of a squared distance."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, a, b = arguments
        difference = builder.fsub(a, b)
        return call_intrinsic(builder, f"llvm.fma.{VectorFormat(s.scalar).suffix}", [difference, difference, total])

    return s(s, x, y), generate


@intrinsic
def absolute_step(_: Any, s: Any, x: Any, y: Any) -> Any:
    """s + |x - y|: one term of a Manhattan distance."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, a, b = arguments
        return builder.fadd(
            total, call_intrinsic(builder, f"llvm.fabs.{VectorFormat(s.scalar).suffix}", [builder.fsub(a, b)])
        )

    return s(s, x, y), generate


@intrinsic
def exp2_of(_: Any, vector: Any) -> Any:
    """2 to the power of each lane, for lanes <= 0; see the docstring of this module."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        fmt = VectorFormat(vector.scalar)
        fma = f"llvm.fma.{fmt.suffix}"
        lowest = fmt.constant(fmt.lowest)
        above = builder.fcmp_ordered(">", arguments[0], lowest)
        t = builder.select(above, arguments[0], lowest)
        magic = fmt.constant(1.5 * 2.0**fmt.mantissa)
        shifted = builder.fadd(t, magic)
        f = builder.fsub(t, builder.fsub(shifted, magic))
        p = fmt.constant(fmt.polynomial[-1])
        for coefficient in (*fmt.polynomial[-2::-1], 1.0):
            p = call_intrinsic(builder, fma, [p, f, fmt.constant(coefficient)])
        exponent = builder.shl(
            builder.bitcast(shifted, fmt.integers), ir.Constant(fmt.integers, [fmt.mantissa] * WIDTH)
        )
        return builder.bitcast(builder.add(builder.bitcast(p, fmt.integers), exponent), fmt.vector)

    return vector(vector), generate


@intrinsic
def total(_: Any, vector: Any) -> Any:
    """Sum of the lanes by halving: lanes i and i + width / 2 are added, and so on, down to lanes 0 and 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, width = arguments[0], vector.width
        while width > 1:
            width //= 2
            halves = [
                ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(start, start + width)))
                for start in (0, width)
            ]
            value = builder.fadd(*(builder.shuffle_vector(value, value, half) for half in halves))
        return builder.extract_element(value, ir.IntType(32)(0))

    return vector.scalar(vector), generate


@intrinsic
def bits_below(_: Any, vector: Any, limit: Any) -> Any:
    """Mask (int64, one bit per lane) of lanes whose IEEE bits, as an integer, are < limit."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        fmt = VectorFormat(vector.scalar)
        bits = builder.bitcast(arguments[0], fmt.integers)
        bound = arguments[1] if fmt.integer.width == 64 else builder.trunc(arguments[1], fmt.integer)
        return as_mask(builder, builder.icmp_signed("<", bits, spread_lanes(builder, bound)))

    return types.int64(vector, types.int64), generate


@intrinsic
def values_below(_: Any, vector: Any, limit: Any) -> Any:
    """Mask of lanes < limit."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_mask(builder, builder.fcmp_ordered("<", arguments[0], spread_lanes(builder, arguments[1])))

    return types.int64(vector, limit), generate


@intrinsic
def ordered_below(_: Any, vector: Any, limit: Any, order: Any, order_limit: Any) -> Any:
    """Mask of lanes with value <= limit and order < order_limit."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, bound, position, position_bound = arguments
        near = builder.fcmp_ordered("<=", value, spread_lanes(builder, bound))
        higher = builder.icmp_signed("<", position, spread_lanes(builder, position_bound))
        return as_mask(builder, builder.and_(near, higher))

    return types.int64(vector, limit, order, types.int32), generate


@intrinsic
def values_differ(_: Any, vector: Any, value: Any) -> Any:
    """Mask of integer lanes that are not equal to a value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_mask(builder, builder.icmp_signed("!=", arguments[0], spread_lanes(builder, arguments[1])))

    return types.int64(vector, types.int32), generate


@intrinsic
def lanes_of(_: Any, mask: Any) -> Any:
    """Number of bits of a mask that are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return call_intrinsic(builder, "llvm.ctpop.i64", [arguments[0]])

    return types.int64(types.int64), generate


@intrinsic
def first_lane(_: Any, mask: Any) -> Any:
    """Position of the lowest set bit of a mask that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return lowest_bit(builder, arguments[0])

    return types.int64(types.int64), generate


@intrinsic
def element(_: Any, vector: Any, lane: Any) -> Any:
    """One lane as a scalar."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_element(arguments[0], arguments[1])

    return vector.scalar(vector, types.int64), generate


@intrinsic
def bits_of(_: Any, vector: Any, lane: Any) -> Any:
    """One lane's IEEE bits as an integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integers = builder.bitcast(arguments[0], VectorFormat(vector.scalar).integers)
        value = builder.extract_element(integers, arguments[1])
        return builder.sext(value, INT64) if value.type != INT64 else value

    return types.int64(vector, types.int64), generate


@intrinsic
def add_to(_: Any, counts: Any, index: Any, count: Any) -> Any:
    """counts[index] += count, atomically, because threads may share the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = pointer_to(context, builder, counts, *arguments[:2])
        builder.atomic_rmw("add", pointer, arguments[2], "monotonic")
        return context.get_dummy_value()

    return types.void(counts, types.int64, types.int64), generate
