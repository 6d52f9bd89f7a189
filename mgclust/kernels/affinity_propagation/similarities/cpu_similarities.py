"""Similarities on the CPU, and the noise that breaks ties.

Noise changes a value by zero, one or two units in the last place. So one random byte per value is enough, and one
Philox block is enough for 16 columns. `simd_random.random_bytes` describes which column gets which byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.pairs.cpu import reduced_distances
from mgclust.kernels.pairs.cpu_loops import pair_distances
from mgclust.kernels.pairs.cpu_tasks import each_task
from mgclust.kernels.toolkit.cpu_compiler import compiled, inlined, signed
from mgclust.kernels.toolkit.simd import WIDTH, element, load, multiply, splat, store
from mgclust.kernels.toolkit.simd_random import random_bytes
from mgclust.kernels.toolkit.simd_steps import finite_or, fma
from mgclust.kernels.toolkit.threads import rows_of_a_task, run_tasks

__all__ = ["jitter", "jitter_lists", "jitter_pairs", "similarities", "similarities_of_columns", "similarities_of_rows"]

Array = Any


def noise_of(dtype: np.dtype, tiny: float) -> tuple[Any, Any]:
    """Return the factor and the offset of the tie noise per unit of a random byte, as numbers of type `dtype`."""
    limits = np.finfo(dtype)
    return dtype.type(float(limits.eps) / 256), dtype.type(tiny * float(limits.smallest_normal) / 256)


def jitter(s: Array, numbers: Array, *, n: int, seed: int, draw: int, tiny: float) -> None:
    eps, offset = noise_of(s.dtype, tiny)
    flat, rows, width = s.reshape(-1), rows_of_a_task(n), s.shape[1]

    def task(index: int, _: int) -> None:
        start, stop = index * rows, min((index + 1) * rows, len(s))
        add_noise(flat, width, start, stop, n, numbers, signed(seed), draw, eps, offset)

    run_tasks(-(-len(s) // rows), task)


def jitter_lists(s: Array, bounds: Array, numbers: Array, columns: Array, *, seed: int, draw: int, tiny: float) -> None:
    eps, offset = noise_of(s.dtype, tiny)
    rows = rows_of_a_task(WIDTH * max(1, len(s) // max(1, len(numbers))))

    def task(index: int, _: int) -> None:
        start, stop = index * rows, min((index + 1) * rows, len(numbers))
        add_noise_to_lists(s, start, stop, bounds, numbers, columns, signed(seed), draw, eps, offset)

    run_tasks(-(-len(numbers) // rows), task)


def jitter_pairs(s: Array, numbers: Array, columns: Array, *, seed: int, draw: int, tiny: float) -> None:
    eps, offset = noise_of(s.dtype, tiny)
    rows = rows_of_a_task(WIDTH * s.shape[1])

    def task(index: int, _: int) -> None:
        start, stop = index * rows, min((index + 1) * rows, len(s))
        add_noise_to_pairs(s, start, stop, numbers, columns, signed(seed), draw, eps, offset)

    run_tasks(-(-len(s) // rows), task)


def similarities_of_columns(
    x: Array, numbers: Array, y: Array, columns: Array, *, norm: str, factor: float, seed: int, out: Array
) -> None:
    out[...] = reduced_distances(x, y, norm=norm)
    out *= x.dtype.type(-factor)
    jitter_pairs(out, numbers, columns, seed=seed, draw=0, tiny=100.0)
    out[numbers[:, None] == columns[None]] = -np.inf


def similarities(
    x: Array, y: Array, *, norm: str, factor: float, first_row: int, y_start: int, seed: int, out: Array
) -> None:
    _write(x, np.arange(first_row, first_row + len(x)), y, norm, factor, y_start, seed, out)


def similarities_of_rows(
    x: Array, numbers: Array, y: Array, *, norm: str, factor: float, seed: int, out: Array
) -> None:
    _write(x, numbers, y, norm, factor, 0, seed, out)


def _write(x: Array, numbers: Array, y: Array, norm: str, factor: float, y_start: int, seed: int, out: Array) -> None:
    if y_start % 16:
        raise ValueError(f"y_start={y_start} should be a multiple of 16.")
    flat, d, negated = x.reshape(-1), x.shape[1], x.dtype.type(-factor)
    eps, offset = noise_of(x.dtype, 100.0)
    matrix, width = out.reshape(-1), out.shape[1]

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        pair_similarities(
            flat, d, start, stop, panels, columns, norm == "l1", negated, numbers, y_start + first, width,
            signed(seed), eps, offset, matrix,
        )  # fmt: skip

    each_task(x, y, body)


@inlined
def with_noise(v: Any, column: int, row: int, draw: int, seed: int, eps: Any, offset: Any) -> Any:
    """Return a vector of similarities, for consecutive columns from `column` on, with tie noise."""
    return finite_or(fma(fma(v, eps, offset), random_bytes(v, column, row, draw, seed), v), v)


@inlined
def _store_part(out: Any, at: int, v: Any, lanes: int) -> None:
    if lanes == WIDTH:
        store(out, at, v)
    else:
        for lane in range(lanes):
            out[at + lane] = element(v, lane)


@compiled
def add_noise(
    s: Any,
    width: int,
    start: int,
    stop: int,
    n: int,
    numbers: Any,
    seed: int,
    draw: int,
    eps: Any,
    offset: Any,
) -> None:
    """Add tie noise to rows start..stop-1 of a matrix with `width` >= n columns; width is a multiple of WIDTH."""
    factor, tiny = splat(eps), splat(offset)
    for i in range(start, stop):
        for k in range(0, n, WIDTH):
            v = with_noise(load(s, i * width + k), k, numbers[i], draw, seed, factor, tiny)
            _store_part(s, i * width + k, v, min(WIDTH, n - k))


@compiled
def add_noise_to_lists(
    s: Any, start: int, stop: int, bounds: Any, numbers: Any, columns: Any, seed: int, draw: int, eps: Any, offset: Any
) -> None:
    """Add tie noise to the lists of rows start..stop-1; each list has its own columns."""
    factor, tiny = splat(eps), splat(offset)
    for i in range(start, stop):
        for q in range(bounds[i], bounds[i + 1]):
            first = columns[q] // WIDTH * WIDTH
            v = with_noise(splat(s[q]), first, numbers[i], draw, seed, factor, tiny)
            s[q] = element(v, columns[q] - first)


@compiled
def add_noise_to_pairs(
    s: Any, start: int, stop: int, numbers: Any, columns: Any, seed: int, draw: int, eps: Any, offset: Any
) -> None:
    """Add tie noise to rows start..stop-1 of a matrix that has only some columns."""
    factor, tiny = splat(eps), splat(offset)
    for i in range(start, stop):
        for q in range(len(columns)):
            first = columns[q] // WIDTH * WIDTH
            v = with_noise(splat(s[i, q]), first, numbers[i], draw, seed, factor, tiny)
            s[i, q] = element(v, columns[q] - first)


@compiled
def pair_similarities(
    x: Any,
    d: int,
    start: int,
    stop: int,
    panels: Any,
    columns: int,
    manhattan: bool,
    negated: Any,
    numbers: Any,
    first_column: int,
    width: int,
    seed: int,
    eps: Any,
    offset: Any,
    out: Any,
) -> None:
    """Write negated * s with tie noise for rows start..stop-1 and the panels' columns; -inf on the diagonal."""
    scale, factor, tiny = splat(negated), splat(eps), splat(offset)
    for i in range(start, stop, 4):
        for p in range((columns + WIDTH - 1) // WIDTH):
            lanes = min(WIDTH, columns - p * WIDTH)
            k = first_column + p * WIDTH
            s0, s1, s2, s3 = pair_distances(x, i, stop - 1, d, panels, p, manhattan)
            v = with_noise(multiply(s0, scale), k, numbers[i], np.int64(0), seed, factor, tiny)
            _store_part(out, i * width + k, v, lanes)
            if i + 1 < stop:
                v = with_noise(multiply(s1, scale), k, numbers[i + 1], np.int64(0), seed, factor, tiny)
                _store_part(out, (i + 1) * width + k, v, lanes)
            if i + 2 < stop:
                v = with_noise(multiply(s2, scale), k, numbers[i + 2], np.int64(0), seed, factor, tiny)
                _store_part(out, (i + 2) * width + k, v, lanes)
            if i + 3 < stop:
                v = with_noise(multiply(s3, scale), k, numbers[i + 3], np.int64(0), seed, factor, tiny)
                _store_part(out, (i + 3) * width + k, v, lanes)
    for i in range(start, stop):
        if 0 <= numbers[i] - first_column < columns:
            out[i * width + numbers[i]] = -np.inf
