"""Similarities on the CPU: their making, and the noise that breaks ties.

Noise moves a value by no, one or two units of its last place, so a random byte is enough, and one block of Philox
serves 16 columns. `simd_steps.random_bytes` says which column gets which byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.pairs.cpu_loops import pair_distances
from mgclust.kernels.toolkit.cpu_compiler import compiled, inlined, signed
from mgclust.kernels.toolkit.simd import WIDTH, load, multiply, splat, store
from mgclust.kernels.toolkit.simd_steps import finite_or, fma, random_bytes
from mgclust.kernels.toolkit.threads import rows_of_a_task, run_tasks

__all__ = ["jitter", "similarities"]

Array = Any


def noise_of(dtype: np.dtype, tiny: float) -> tuple[Any, Any]:
    """The factor and the offset of the tie noise per unit of a random byte, in a matrix's type."""
    limits = np.finfo(dtype)
    return dtype.type(float(limits.eps) / 256), dtype.type(tiny * float(limits.smallest_normal) / 256)


def jitter(s: Array, *, n: int, first_row: int, seed: int, draw: int, tiny: float) -> None:
    eps, offset = noise_of(s.dtype, tiny)
    flat, rows, width = s.reshape(-1), rows_of_a_task(n), s.shape[1]

    def task(index: int, _: int) -> None:
        start, stop = index * rows, min((index + 1) * rows, len(s))
        add_noise(flat, width, start, stop, n, first_row, signed(seed), draw, eps, offset)

    run_tasks(-(-len(s) // rows), task)


@inlined
def with_noise(v: Any, column: int, row: int, draw: int, seed: int, eps: Any, offset: Any) -> Any:
    """Tie noise on a vector of columns."""
    return finite_or(fma(fma(v, eps, offset), random_bytes(v, column, row, draw, seed), v), v)


@inlined
def _store_part(out: Any, at: int, v: Any, buffer: Any, lanes: int) -> None:
    if lanes == WIDTH:
        store(out, at, v)
    else:
        store(buffer, 0, v)
        for lane in range(lanes):
            out[at + lane] = buffer[lane]


@compiled
def add_noise(
    s: Any,
    width: int,
    start: int,
    stop: int,
    n: int,
    first_row: int,
    seed: int,
    draw: int,
    eps: Any,
    offset: Any,
) -> None:
    """Tie noise on rows start..stop-1 of a matrix with `width` >= n columns, a multiple of WIDTH."""
    factor, tiny = splat(eps), splat(offset)
    buffer = np.empty(WIDTH, s.dtype)
    for i in range(start, stop):
        for k in range(0, n, WIDTH):
            v = with_noise(load(s, i * width + k), k, first_row + i, draw, seed, factor, tiny)
            _store_part(s, i * width + k, v, buffer, min(WIDTH, n - k))


@compiled
def similarities(
    x: Any,
    d: int,
    start: int,
    stop: int,
    panels: Any,
    columns: int,
    manhattan: bool,
    negated: Any,
    first_row: int,
    first_column: int,
    width: int,
    seed: int,
    eps: Any,
    offset: Any,
    out: Any,
) -> None:
    """Write negated * s with tie noise for rows start..stop-1 and the panels' columns; -inf on the diagonal."""
    scale, factor, tiny = splat(negated), splat(eps), splat(offset)
    buffer = np.empty(WIDTH, x.dtype)
    for i in range(start, stop, 4):
        for p in range((columns + WIDTH - 1) // WIDTH):
            lanes = min(WIDTH, columns - p * WIDTH)
            k = first_column + p * WIDTH
            s0, s1, s2, s3 = pair_distances(x, i, stop - 1, d, panels, p, manhattan)
            row = first_row + i
            v = with_noise(multiply(s0, scale), k, row, 0, seed, factor, tiny)
            _store_part(out, i * width + k, v, buffer, lanes)
            if i + 1 < stop:
                v = with_noise(multiply(s1, scale), k, row + 1, 0, seed, factor, tiny)
                _store_part(out, (i + 1) * width + k, v, buffer, lanes)
            if i + 2 < stop:
                v = with_noise(multiply(s2, scale), k, row + 2, 0, seed, factor, tiny)
                _store_part(out, (i + 2) * width + k, v, buffer, lanes)
            if i + 3 < stop:
                v = with_noise(multiply(s3, scale), k, row + 3, 0, seed, factor, tiny)
                _store_part(out, (i + 3) * width + k, v, buffer, lanes)
    for i in range(start, stop):
        j = first_row + i - first_column
        if 0 <= j < columns:
            out[i * width + first_row + i] = -np.inf
