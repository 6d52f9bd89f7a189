"""32 rows as one vector per feature: the transposition with which a kernel starts if it reads every row once.

A copy of single elements would take two cycles per element, which is longer than the rest of fuzzy c-means with few
features and centres. Here, four features of 32 rows are loaded as 32 short vectors, and shuffles turn these into four
long vectors::

    row 0   a0 b0 c0 d0          a0 a1 a2 ... a31      one store per feature
    row 1   a1 b1 c1 d1    ->    b0 b1 b2 ... b31
    ...                          c0 c1 c2 ... c31
    row 31  a31 ...              d0 d1 d2 ... d31      0.2 cycles per element
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mgclust.kernels.toolkit.cpu_compiler import inlined
from mgclust.kernels.toolkit.simd import INT64, WIDTH, call_intrinsic, pointer_to

__all__ = ["fetch", "pack_rows"]


@intrinsic
def fetch(_: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of an element of a flat array into the L2 cache; an index after its end does no harm."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = pointer_to(context, builder, array, arguments[0], arguments[1], ir.IntType(8))
        flag = ir.IntType(32)
        call_intrinsic(builder, "llvm.prefetch.p0", [pointer, flag(0), flag(2), flag(1)], ir.VoidType())
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _numbers(values: Iterable[int]) -> Any:
    """Make a constant vector for shuffles."""
    listed = list(values)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(listed)), listed)


def _joined(builder: Any, vectors: list[Any]) -> Any:
    """Join short vectors to one vector; their number is a power of two."""
    while len(vectors) > 1:
        lanes = _numbers(range(2 * vectors[0].type.count))
        vectors = [builder.shuffle_vector(a, b, lanes) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def _transposition(features: int) -> Callable[..., Any]:
    @intrinsic
    def transpose(_: Any, x: Any, at: Any, stride: Any, panel: Any, to: Any) -> Any:
        """Copy features from x[at] on, of WIDTH rows that are `stride` apart, to panel[to], panel[to + WIDTH] ..."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows, first, step, target, begin = arguments
            real = context.get_value_type(x.dtype)
            short = ir.PointerType(ir.VectorType(real, features))
            long = ir.PointerType(ir.VectorType(real, WIDTH))
            size = x.dtype.bitwidth // 8
            loaded = []
            for lane in range(WIDTH):
                place = builder.add(first, builder.mul(step, INT64(lane)))
                pointer = builder.bitcast(pointer_to(context, builder, x, rows, place), short)
                loaded.append(builder.load(pointer, align=size))
            flat = _joined(builder, loaded)
            for f in range(features):
                column = builder.shuffle_vector(flat, flat, _numbers(range(f, features * WIDTH, features)))
                place = builder.add(begin, INT64(f * WIDTH))
                pointer = builder.bitcast(pointer_to(context, builder, panel, target, place), long)
                builder.store(column, pointer, align=size)
            return context.get_dummy_value()

        return types.void(x, types.int64, types.int64, panel, types.int64), generate

    return transpose


_transpose_four, _transpose_two, _transpose_one = _transposition(4), _transposition(2), _transposition(1)


@inlined
def pack_rows(x: Any, d: int, row: int, end: int, count: int, panels: Any, to: int) -> None:
    """Write rows row..end-1 as `count` panels [feature][lane], from panels[to] on; 0 after the last row."""
    for p in range(count):
        first, begin = row + p * WIDTH, to + p * d * WIDTH
        if first + WIDTH > end:
            for lane in range(WIDTH):
                for f in range(d):
                    panels[begin + f * WIDTH + lane] = x[(first + lane) * d + f] if first + lane < end else 0
        elif d >= 4:
            for step in range(0, d, 4):
                f = min(step, d - 4)  # the last four features may overlap the previous four
                _transpose_four(x, first * d + f, d, panels, begin + f * WIDTH)
        elif d >= 2:
            _transpose_two(x, first * d, d, panels, begin)
            _transpose_two(x, first * d + d - 2, d, panels, begin + (d - 2) * WIDTH)
        else:
            _transpose_one(x, first, 1, panels, begin)
