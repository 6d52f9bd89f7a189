"""Affinity propagation on the CPU: similarities, their noise, and one iteration of messages."""

from __future__ import annotations

from typing import Any

from mgclust.kernels.affinity_propagation import cpu_similarities
from mgclust.kernels.affinity_propagation.cpu_messages import pass_columns, pass_rows
from mgclust.kernels.affinity_propagation.cpu_similarities import jitter, noise_of
from mgclust.kernels.pairs.cpu_tasks import each_task
from mgclust.kernels.toolkit.cpu_compiler import signed

__all__ = ["jitter", "pass_columns", "pass_rows", "similarities"]

Array = Any


def similarities(
    x: Array, y: Array, *, norm: str, factor: float, first_row: int, y_start: int, seed: int, out: Array
) -> None:
    if y_start % 16:
        raise ValueError(f"y_start={y_start} is not a multiple of 16")
    flat, d, negated = x.reshape(-1), x.shape[1], x.dtype.type(-factor)
    eps, offset = noise_of(x.dtype, 100.0)
    matrix, width = out.reshape(-1), out.shape[1]

    def body(start: int, stop: int, panels: Array, first: int, columns: int, thread: int) -> None:
        cpu_similarities.similarities(
            flat, d, start, stop, panels, columns, norm == "l1", negated, first_row, y_start + first, width,
            signed(seed), eps, offset, matrix,
        )  # fmt: skip

    each_task(x, y, body)
