"""More vector operations, in addition to `simd`: for message passing, memberships, sort keys and fixed-point sums.

As in `simd`, each operation is one named function with defined roundings, so that a kernel's bits are defined by its
source. Comparisons with NaN are false: a lane of ``0 * inf`` is never the maximum and adds nothing.

`log2_of` splits a lane into 2^e g with g in [sqrt(1/2), sqrt(2)). The result is e + f P(f) with f = g - 1. So the
result has full relative accuracy near 1, and is 0 at 1. P is the polynomial with the smallest relative error: 3e-8
(float32), 1e-18 (float64).

All operations are in one file, because they form one list.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mgclust.kernels.toolkit.simd import (
    INT64,
    WIDTH,
    Vector,
    VectorFormat,
    as_mask,
    call_intrinsic,
    lowest_bit,
    pointer_to,
    spread_lanes,
)

__all__ = [
    "add_bins",
    "add_doubles",
    "add_fixed",
    "at_least",
    "divide",
    "exceeds",
    "finite_or",
    "fixed",
    "fma",
    "gather",
    "greater",
    "integers_below",
    "lanes_above",
    "largest",
    "lesser",
    "log2_of",
    "negative_part",
    "ordered_keys",
    "positive_part",
    "prefetch",
    "quotient_or_one",
    "reaches",
    "scatter_fixed",
    "second_largest",
    "square_root",
    "subtract",
    "zero_unless",
]

INT32 = ir.IntType(32)
LOG2_SINGLE = (
    1.4426950036525477,
    -0.7213473468034032,
    0.4809106429176262,
    -0.36070368275273645,
    0.2879162488217083,
    -0.2389448234364125,
    0.21571560236941845,
    -0.20726973056130865,
    0.1258370079617391,
)
LOG2_DOUBLE = (
    1.4426950408889634,
    -0.7213475204444818,
    0.48089834696299105,
    -0.36067376022220776,
    0.2885390081766877,
    -0.24044917348694214,
    0.2060992917028423,
    -0.18033687976307997,
    0.1602994389328278,
    -0.14426951143630823,
    0.13115448890696368,
    -0.1202247641295784,
    0.11096726163465251,
    -0.10303666500310844,
    0.096309247967458,
    -0.09046572374701903,
    0.0838957711896095,
    -0.0767586577838038,
    0.07819151950230414,
    -0.09080384532573572,
    0.08233624563309176,
    -0.03496850081697011,
)


def _same(build: Callable[[Any, list[Any], VectorFormat], Any]) -> Callable[..., Any]:
    """Generate code for an operation whose arguments and result have the same type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.return_type
        return build(builder, arguments, VectorFormat(kind.scalar if isinstance(kind, Vector) else kind))

    return generate


@intrinsic
def add_bins(_: Any, counts: Any, shared: Any, vector: Any, lanes: Any, low: Any, shift: Any) -> Any:
    """counts[1 + ((IEEE bits - low) >> shift)] += 1 for these lanes, whose bits are at least `low`.

    The additions are atomic if threads share the array. A core then waits some 20 cycles per addition, and longer if
    another core has written the element. The vector is stored to memory once, because each read of a single lane from
    registers would store it again.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        form = VectorFormat(vector.scalar)
        array, atomic, values, mask, least, by = arguments
        room = _on_stack(builder, form.integers)
        builder.store(builder.bitcast(values, form.integers), room)
        elements = builder.bitcast(room, form.integer.as_pointer())
        with _each_lane(builder, mask) as lane:
            bits = builder.load(builder.gep(elements, [lane]))
            bits = builder.zext(bits, INT64) if form.integer != INT64 else bits
            index = builder.add(builder.lshr(builder.sub(bits, least), by), INT64(1))
            pointer = pointer_to(context, builder, counts, array, index)
            with builder.if_else(atomic) as (together, alone):
                with together:
                    builder.atomic_rmw("add", pointer, INT64(1), "monotonic")
                with alone:
                    builder.store(builder.add(builder.load(pointer), INT64(1)), pointer)
        return context.get_dummy_value()

    return types.void(counts, types.boolean, vector, types.int64, types.int64, types.int64), generate


def _on_stack(builder: Any, kind: Any) -> Any:
    """Allocate a value on the stack, once for each call of the function that is being built."""
    with builder.goto_entry_block():
        return builder.alloca(kind)


@contextlib.contextmanager
def _each_lane(builder: Any, mask: Any) -> Iterator[Any]:
    """Build a loop over the set bits of a mask; the caller builds its body."""
    left = _on_stack(builder, INT64)
    builder.store(mask, left)
    test, body, after = (builder.append_basic_block(name) for name in ("lanes.test", "lanes.body", "lanes.after"))
    builder.branch(test)
    builder.position_at_end(test)
    lanes = builder.load(left)
    builder.cbranch(builder.icmp_unsigned("!=", lanes, INT64(0)), body, after)
    builder.position_at_end(body)
    builder.store(builder.and_(lanes, builder.sub(lanes, INT64(1))), left)
    yield lowest_bit(builder, lanes)
    builder.branch(test)
    builder.position_at_end(after)


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

    def build(builder: Any, values: list[Any], fmt: VectorFormat) -> Any:
        return call_intrinsic(builder, f"llvm.sqrt.{fmt.suffix}", values)

    return vector(vector), _same(build)


@intrinsic
def divide(_: Any, a: Any, b: Any) -> Any:
    """a / b."""
    return a(a, b), _same(lambda builder, values, fmt: builder.fdiv(*values))


@intrinsic
def quotient_or_one(_: Any, a: Any, b: Any) -> Any:
    """a / b; 1 if b is 0."""

    def build(builder: Any, values: list[Any], fmt: VectorFormat) -> Any:
        zero = builder.fcmp_ordered("==", values[1], fmt.constant(0.0))
        return builder.select(zero, fmt.constant(1.0), builder.fdiv(*values))

    return a(a, b), _same(build)


def _chosen(sign: str) -> Callable[..., Any]:
    return _same(lambda builder, values, fmt: builder.select(builder.fcmp_ordered(sign, *values), *values))


@intrinsic
def lesser(_: Any, a: Any, b: Any) -> Any:
    """min(a, b); b if one of them is NaN."""
    return a(a, b), _chosen("<")


@intrinsic
def greater(_: Any, a: Any, b: Any) -> Any:
    """max(a, b); b if one of them is NaN."""
    return a(a, b), _chosen(">")


@intrinsic
def largest(_: Any, vector: Any) -> Any:
    """The largest lane; no lane is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_element(_halved(builder, arguments[0])[0], INT32(0))

    return vector.scalar(vector), generate


@intrinsic
def second_largest(_: Any, vector: Any, below: Any) -> Any:
    """The second largest lane of two vectors; lanes of `below` are at most those of `vector`, and never NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_element(_halved(builder, *arguments)[1], INT32(0))

    return vector.scalar(vector, below), generate


def _halved(builder: Any, first: Any, second: Any = None) -> tuple[Any, Any]:
    """Halve vectors of the largest and the second largest lanes until one lane is left."""
    width = WIDTH
    while width > 1:
        width //= 2
        low, high = (_part_of(builder, first, begin, width) for begin in (0, width))
        if second is not None:
            others = [_part_of(builder, second, begin, width) for begin in (0, width)]
            lower = builder.select(builder.fcmp_ordered("<", low, high), low, high)
            second = _higher(builder, _higher(builder, *others), lower)
        first = _higher(builder, low, high)
    return first, second


def _part_of(builder: Any, vector: Any, begin: int, width: int) -> Any:
    lanes = ir.Constant(ir.VectorType(INT32, width), list(range(begin, begin + width)))
    return builder.shuffle_vector(vector, vector, lanes)


def _higher(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@intrinsic
def log2_of(_: Any, vector: Any) -> Any:
    """Logarithm to base 2 of each lane, for finite lanes >= 0; -inf for 0. See the docstring of this module."""

    def build(builder: Any, values: list[Any], fmt: VectorFormat) -> Any:
        def whole(value: int) -> Any:
            return ir.Constant(fmt.integers, [value] * WIDTH)

        single = fmt.integer.width == 32
        # A lane below the smallest normal number is scaled up by a power of 2, and its exponent is then reduced.
        tiny = builder.fcmp_ordered("<", values[0], fmt.constant(2.0**-126 if single else 2.0**-1022))
        scaled = builder.select(tiny, builder.fmul(values[0], fmt.constant(2.0**fmt.mantissa)), values[0])
        bits = builder.bitcast(scaled, fmt.integers)
        root = whole(0x3F3504F3 if single else 0x3FE6A09E667F3BCD)  # bits of the square root of 1/2
        exponent = builder.ashr(builder.sub(bits, root), whole(fmt.mantissa))
        g = builder.bitcast(builder.sub(bits, builder.shl(exponent, whole(fmt.mantissa))), fmt.vector)
        e = builder.sitofp(exponent, fmt.vector)
        e = builder.fsub(e, builder.select(tiny, fmt.constant(float(fmt.mantissa)), fmt.constant(0.0)))
        f = builder.fsub(g, fmt.constant(1.0))
        polynomial = LOG2_SINGLE if single else LOG2_DOUBLE
        p = fmt.constant(polynomial[-1])
        for coefficient in polynomial[-2::-1]:
            p = call_intrinsic(builder, f"llvm.fma.{fmt.suffix}", [p, f, fmt.constant(coefficient)])
        result = call_intrinsic(builder, f"llvm.fma.{fmt.suffix}", [f, p, e])
        positive = builder.fcmp_ordered(">", values[0], fmt.constant(0.0))
        return builder.select(positive, result, fmt.constant(-float("inf")))

    return vector(vector), _same(build)


def _part(sign: str) -> Callable[..., Any]:
    def build(builder: Any, values: list[Any], fmt: VectorFormat) -> Any:
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
    """The lanes that are finite; other lanes are replaced by lanes of the second vector."""

    def build(builder: Any, values: list[Any], fmt: VectorFormat) -> Any:
        size = call_intrinsic(builder, f"llvm.fabs.{fmt.suffix}", values[:1])
        return builder.select(builder.fcmp_ordered("<", size, fmt.constant(float("inf"))), *values)

    return vector(vector, other), _same(build)


@intrinsic
def reaches(_: Any, values: Any, limits: Any, others: Any) -> Any:
    """Mask of lanes with values >= limits or others > 0, so that a kernel needs only one branch."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.fcmp_ordered(">=", *arguments[:2])
        second = builder.fcmp_ordered(">", arguments[2], VectorFormat(others.scalar).constant(0.0))
        return as_mask(builder, builder.or_(first, second))

    return types.int64(values, limits, others), generate


def _against(sign: str) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_mask(builder, builder.fcmp_ordered(sign, arguments[0], spread_lanes(builder, arguments[1])))

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
def exceeds(_: Any, a: Any, b: Any) -> Any:
    """Mask of lanes with a > b."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_mask(builder, builder.fcmp_ordered(">", *arguments))

    return types.int64(a, b), generate


@intrinsic
def ordered_keys(_: Any, vector: Any) -> Any:
    """Signed integers in the order of the lanes: each lane's bits, all flipped but the sign if the lane is negative.

    -0.0 counts as 0.0.
    """
    scalar = types.int32 if vector.scalar == types.float32 else types.int64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        fmt = VectorFormat(vector.scalar)
        bits = builder.bitcast(builder.fadd(arguments[0], fmt.constant(0.0)), fmt.integers)
        width = fmt.integer.width
        sign = builder.ashr(bits, ir.Constant(fmt.integers, [width - 1] * WIDTH))
        flips = builder.and_(sign, ir.Constant(fmt.integers, [(1 << (width - 1)) - 1] * WIDTH))
        return builder.xor(bits, flips)

    return Vector(scalar)(vector), generate


@intrinsic
def integers_below(_: Any, vector: Any, limit: Any) -> Any:
    """Mask of integer lanes < limit; the type of the lanes must be able to hold the limit."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type.element
        bound = arguments[1] if kind.width == 64 else builder.trunc(arguments[1], kind)
        return as_mask(builder, builder.icmp_signed("<", arguments[0], spread_lanes(builder, bound)))

    return types.int64(vector, types.int64), generate


@intrinsic
def zero_unless(_: Any, mask: Any, vector: Any) -> Any:
    """The lanes whose bit in the mask is set; other lanes become 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = builder.bitcast(builder.trunc(arguments[0], ir.IntType(WIDTH)), ir.VectorType(ir.IntType(1), WIDTH))
        return builder.select(lanes, arguments[1], VectorFormat(vector.scalar).constant(0.0))

    return vector(types.int64, vector), generate


def _to_fixed(builder: Any, value: Any, scale: Any, name: str, integers: Any) -> Any:
    return builder.fptosi(call_intrinsic(builder, name, [builder.fmul(value, scale)]), integers)


@intrinsic
def fixed(_: Any, value: Any, scale: Any) -> Any:
    """value * scale in float64, rounded to the nearest integer; ties go to the even integer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = arguments[0] if value == types.float64 else builder.fpext(arguments[0], ir.DoubleType())
        return _to_fixed(builder, wide, arguments[1], "llvm.rint.f64", INT64)

    return types.int64(value, types.float64), generate


@intrinsic
def add_fixed(_: Any, sums: Any, index: Any, vector: Any, scale: Any) -> Any:
    """Add `fixed` of each lane to WIDTH consecutive int64 elements of sums, lane by lane."""

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


def _each_of(context: Any, builder: Any, columns_type: Any, columns: Any, index: Any) -> Any:
    """Yield each lane with its element, for WIDTH consecutive elements of an array."""
    for lane in range(WIDTH):
        at = builder.add(index, ir.Constant(INT64, lane))
        yield lane, builder.sext(builder.load(pointer_to(context, builder, columns_type, columns, at)), INT64)


@intrinsic
def gather(_: Any, table: Any, columns: Any, index: Any) -> Any:
    """table[k] for WIDTH consecutive elements k of an int32 array; no bounds check."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = ir.Constant(context.get_value_type(signature.return_type), ir.Undefined)
        for lane, k in _each_of(context, builder, columns, *arguments[1:]):
            value = builder.load(pointer_to(context, builder, table, arguments[0], k))
            found = builder.insert_element(found, value, INT32(lane))
        return found

    return Vector(table.dtype)(table, columns, types.int64), generate


@intrinsic
def prefetch(_: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of an element of a flat array that will be read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = pointer_to(context, builder, array, arguments[0], arguments[1], ir.IntType(8))
        flags = [INT32(0), INT32(3), INT32(1)]  # read access; all cache levels; data
        call_intrinsic(builder, "llvm.prefetch.p0i8", [byte, *flags], ir.VoidType())
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic
def scatter_fixed(_: Any, sums: Any, columns: Any, index: Any, vector: Any, scale: Any) -> Any:
    """Add `fixed` of each lane to sums[k], for WIDTH consecutive elements k of an int32 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, numbers, position, value, factor = arguments
        if vector.scalar == types.float32:
            value = builder.fpext(value, ir.VectorType(ir.DoubleType(), WIDTH))
        integers = ir.VectorType(INT64, WIDTH)
        added = _to_fixed(builder, value, spread_lanes(builder, factor), f"llvm.rint.v{WIDTH}f64", integers)
        for lane, k in _each_of(context, builder, columns, numbers, position):
            pointer = pointer_to(context, builder, sums, array, k)
            builder.store(builder.add(builder.load(pointer), builder.extract_element(added, INT32(lane))), pointer)
        return context.get_dummy_value()

    return types.void(sums, columns, types.int64, vector, types.float64), generate


@intrinsic
def add_doubles(_: Any, sums: Any, index: Any, vector: Any) -> Any:
    """Add the lanes to WIDTH consecutive float64 elements of sums."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        doubles = ir.VectorType(ir.DoubleType(), WIDTH)
        pointer = pointer_to(context, builder, sums, arguments[0], arguments[1], doubles)
        wide = arguments[2] if vector.scalar == types.float64 else builder.fpext(arguments[2], doubles)
        builder.store(builder.fadd(builder.load(pointer, align=8), wide), pointer, align=8)
        return context.get_dummy_value()

    return types.void(sums, types.int64, vector), generate
