"""More vector operations, beside `_simd`: message passing, random numbers, keys, fixed point.

As there, each is one named function with its roundings written down, so that a kernel's bits are defined by its
source. NaN compares false everywhere: a lane of ``0 * inf`` is nobody's maximum and adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mgclust.kernels._simd import INT64, MASK, WIDTH, Format, Vector, call_intrinsic, pointer_to, spread_lanes

__all__ = [
    "add_fixed",
    "at_least",
    "finite_or",
    "fixed",
    "fma",
    "integers_below",
    "lanes_above",
    "negative_part",
    "ordered_keys",
    "positive_part",
    "random_bytes",
    "reaches",
    "square_root",
    "subtract",
    "zero_unless",
]

INT32 = ir.IntType(32)
PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10


def _mask(builder: Any, lanes: Any) -> Any:
    return builder.zext(builder.bitcast(lanes, MASK), INT64)


def _same(build: Callable[[Any, list[Any], Format], Any]) -> Callable[..., Any]:
    """Code generation of an operation whose arguments and result are of one type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.return_type
        return build(builder, arguments, Format(kind.scalar if isinstance(kind, Vector) else kind))

    return generate


@intrinsic
def subtract(_: Any, a: Any, b: Any) -> Any:
    """a - b."""
    return a(a, b), _same(lambda builder, values, fmt: builder.fsub(*values))


@intrinsic
def fma(_: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c with one rounding, of vectors or of scalars."""
    lanes = f"v{WIDTH}" if isinstance(a, Vector) else ""
    name = f"llvm.fma.{lanes}f{(a.scalar if lanes else a).bitwidth}"
    return a(a, b, c), _same(lambda builder, values, fmt: call_intrinsic(builder, name, values))


@intrinsic
def square_root(_: Any, vector: Any) -> Any:
    """Square root of each lane, correctly rounded."""

    def build(builder: Any, values: list[Any], fmt: Format) -> Any:
        return call_intrinsic(builder, f"llvm.sqrt.{fmt.suffix}", values)

    return vector(vector), _same(build)


def _part(sign: str) -> Callable[..., Any]:
    def build(builder: Any, values: list[Any], fmt: Format) -> Any:
        zero = fmt.constant(0.0)
        return builder.select(builder.fcmp_ordered(sign, values[0], zero), values[0], zero)

    return _same(build)


@intrinsic
def positive_part(_: Any, vector: Any) -> Any:
    """max(0, lane); 0 for NaN."""
    return vector(vector), _part(">")


@intrinsic
def negative_part(_: Any, vector: Any) -> Any:
    """min(0, lane); 0 for NaN."""
    return vector(vector), _part("<")


@intrinsic
def finite_or(_: Any, vector: Any, other: Any) -> Any:
    """The lanes that are finite; in place of the others, those of the second vector."""

    def build(builder: Any, values: list[Any], fmt: Format) -> Any:
        size = call_intrinsic(builder, f"llvm.fabs.{fmt.suffix}", values[:1])
        return builder.select(builder.fcmp_ordered("<", size, fmt.constant(float("inf"))), *values)

    return vector(vector, other), _same(build)


@intrinsic
def reaches(_: Any, values: Any, limits: Any, others: Any) -> Any:
    """Mask of lanes with values >= limits, or others > 0: one branch for both."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.fcmp_ordered(">=", *arguments[:2])
        second = builder.fcmp_ordered(">", arguments[2], Format(others.scalar).constant(0.0))
        return _mask(builder, builder.or_(first, second))

    return types.int64(values, limits, others), generate


def _against(sign: str) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _mask(builder, builder.fcmp_ordered(sign, arguments[0], spread_lanes(builder, arguments[1])))

    return generate


@intrinsic
def at_least(_: Any, vector: Any, limit: Any) -> Any:
    """Mask of lanes >= limit."""
    return types.int64(vector, limit), _against(">=")


@intrinsic
def lanes_above(_: Any, vector: Any, limit: Any) -> Any:
    """Mask of lanes > limit."""
    return types.int64(vector, limit), _against(">")


@intrinsic
def ordered_keys(_: Any, vector: Any) -> Any:
    """Signed integers in the order of the lanes: their bits, all but the sign flipped below 0; -0.0 counts as 0.0."""
    scalar = types.int32 if vector.scalar == types.float32 else types.int64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        fmt = Format(vector.scalar)
        bits = builder.bitcast(builder.fadd(arguments[0], fmt.constant(0.0)), fmt.integers)
        width = fmt.integer.width
        sign = builder.ashr(bits, ir.Constant(fmt.integers, [width - 1] * WIDTH))
        flips = builder.and_(sign, ir.Constant(fmt.integers, [(1 << (width - 1)) - 1] * WIDTH))
        return builder.xor(bits, flips)

    return Vector(scalar)(vector), generate


@intrinsic
def integers_below(_: Any, vector: Any, limit: Any) -> Any:
    """Mask of integer lanes < limit, a number that their type can hold."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type.element
        bound = arguments[1] if kind.width == 64 else builder.trunc(arguments[1], kind)
        return _mask(builder, builder.icmp_signed("<", arguments[0], spread_lanes(builder, bound)))

    return types.int64(vector, types.int64), generate


@intrinsic
def zero_unless(_: Any, mask: Any, vector: Any) -> Any:
    """The lanes whose bit in the mask is set; 0 in place of the others."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = builder.bitcast(builder.trunc(arguments[0], MASK), ir.VectorType(ir.IntType(1), WIDTH))
        return builder.select(lanes, arguments[1], Format(vector.scalar).constant(0.0))

    return vector(types.int64, vector), generate


def _to_fixed(builder: Any, value: Any, scale: Any, name: str, integers: Any) -> Any:
    return builder.fptosi(call_intrinsic(builder, name, [builder.fmul(value, scale)]), integers)


@intrinsic
def fixed(_: Any, value: Any, scale: Any) -> Any:
    """value * scale in float64, to the nearest integer, even at ties."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = arguments[0] if value == types.float64 else builder.fpext(arguments[0], ir.DoubleType())
        return _to_fixed(builder, wide, arguments[1], "llvm.rint.f64", INT64)

    return types.int64(value, types.float64), generate


@intrinsic
def add_fixed(_: Any, sums: Any, index: Any, vector: Any, scale: Any) -> Any:
    """Add `fixed` of each lane to as many consecutive int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, position, value, factor = arguments
        integers = ir.VectorType(INT64, WIDTH)
        pointer = pointer_to(context, builder, sums, array, position, integers)
        if vector.scalar == types.float32:
            value = builder.fpext(value, ir.VectorType(ir.DoubleType(), WIDTH))
        added = _to_fixed(builder, value, spread_lanes(builder, factor), f"llvm.rint.v{WIDTH}f64", integers)
        builder.store(builder.add(builder.load(pointer, align=8), added), pointer, align=8)
        return context.get_dummy_value()

    return types.void(sums, types.int64, vector, types.float64), generate


def _philox(builder: Any, counter: list[Any], key: list[Any], lanes: int) -> list[Any]:
    """Philox4x32-10 (Salmon et al., SC 2011) on words kept in 64 bits, whose upper halves are 0."""
    kind = ir.VectorType(INT64, lanes)
    low, half = ir.Constant(kind, [0xFFFFFFFF] * lanes), ir.Constant(kind, [32] * lanes)
    for turn in range(PHILOX_ROUNDS):
        if turn:
            key = [
                builder.and_(builder.add(word, ir.Constant(kind, [step] * lanes)), low)
                for word, step in zip(key, PHILOX_KEY_STEPS, strict=True)
            ]
        first, second = (
            builder.mul(counter[2 * h], ir.Constant(kind, [PHILOX_MULTIPLIERS[h]] * lanes)) for h in range(2)
        )
        counter = [
            builder.xor(builder.xor(builder.lshr(second, half), counter[1]), key[0]),
            builder.and_(second, low),
            builder.xor(builder.xor(builder.lshr(first, half), counter[3]), key[1]),
            builder.and_(first, low),
        ]
    return counter


@intrinsic
def random_bytes(_: Any, like: Any, first: Any, row: Any, draw: Any, seed: Any) -> Any:
    """Random whole numbers 0..255, in `like`'s type, for columns first .. first + 31 of a row.

    `first` is a multiple of 16. Column k takes byte k % 16, lowest first, of the words of Philox4x32-10 at the counter
    (k // 16, row, draw, 0) with the key (seed & 0xffffffff, seed >> 32): any rank, thread or device finds the number
    by itself.
    """
    lanes = WIDTH // 16

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, column, row_number, draw_number, key = arguments
        low = ir.Constant(INT64, 0xFFFFFFFF)
        kind = ir.VectorType(INT64, lanes)

        def spread(word: Any) -> Any:
            return spread_lanes(builder, builder.and_(word, low), lanes)

        block = spread_lanes(builder, builder.lshr(column, ir.Constant(INT64, 4)), lanes)
        counter = [
            builder.add(block, ir.Constant(kind, list(range(lanes)))),
            spread(row_number),
            spread(draw_number),
            ir.Constant(kind, [0] * lanes),
        ]
        words = _philox(builder, counter, [spread(key), spread(builder.lshr(key, ir.Constant(INT64, 32)))], lanes)
        drawn = ir.Constant(ir.VectorType(INT32, 4 * lanes), ir.Undefined)
        for block_number in range(lanes):
            for w, word in enumerate(words):
                value = builder.trunc(builder.extract_element(word, INT32(block_number)), INT32)
                drawn = builder.insert_element(drawn, value, INT32(4 * block_number + w))
        drawn = builder.bitcast(drawn, ir.VectorType(ir.IntType(8), WIDTH))  # little-endian, as all that Numba knows
        return builder.uitofp(drawn, Format(like.scalar).vector)

    return like(like, types.int64, types.int64, types.int64, types.int64), generate
