"""Vectors of random numbers, in addition to `simd`: each number depends only on its position and the seed."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mgclust.kernels.toolkit.simd import INT64, WIDTH, VectorFormat, spread_lanes

__all__ = ["random_bytes"]

INT32 = ir.IntType(32)
PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10


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
    (k // 16, row, draw, 0) with the key (seed & 0xffffffff, seed >> 32). So any rank, thread or device can compute each
    number independently.
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
        drawn = builder.bitcast(drawn, ir.VectorType(ir.IntType(8), WIDTH))  # all platforms are little-endian
        return builder.uitofp(drawn, VectorFormat(like.scalar).vector)

    return like(like, types.int64, types.int64, types.int64, types.int64), generate
