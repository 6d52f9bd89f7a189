"""Affinity propagation on a CUDA device: similarities, their noise, and one iteration of messages (``messages.cu``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.affinity_propagation.gpu_similarities import jitter, similarities
from mgclust.kernels.affinity_propagation.messages import Messages, Vectors
from mgclust.kernels.toolkit.gpu_compiler import compiled

__all__ = ["jitter", "pass_columns", "pass_rows", "similarities"]

Array = Any
THREADS = 256  # of a block in messages.cu


def pass_rows(
    messages: Messages,
    *,
    sigma: float,
    next_sigma: float,
    damping: float,
    next_damping: float,
    scale: float,
    negligible: float,
) -> None:
    m, stride = messages.s.shape
    if not m:
        return
    kernel = compiled("affinity_propagation/messages.cu", messages.s.dtype.name).get_function("pass_rows")
    sizes = (messages.n, messages.first_row, stride, messages.hot_column.shape[1])
    arrays = (
        messages.s, messages.a, messages.u, messages.hot_column, messages.hot_e, messages.hot_a, messages.hot_most,
        messages.c, messages.r_diagonal, messages.a_diagonal, messages.preference, messages.sums,
    )  # fmt: skip
    numbers = (sigma, next_sigma, damping, next_damping, scale, negligible)
    kernel((m,), (THREADS,), (*map(np.int32, sizes), *arrays, *map(np.float64, numbers)))


def pass_columns(messages: Vectors, *, damping: float, scale: float, slot: int) -> None:
    counts = messages.counts[slot]
    counts[...] = 0
    kernel = compiled("affinity_propagation/messages.cu", messages.c.dtype.name).get_function("pass_columns")
    sums = (messages.totals, messages.sums, messages.progress)
    vectors = (messages.c, messages.r_diagonal, messages.a_diagonal)
    flags = (messages.exemplars[slot], messages.last_exemplars, counts)
    numbers = (np.float64(damping), np.float64(scale))
    kernel((-(-messages.n // 256),), (256,), (np.int32(messages.n), *sums, *vectors, *flags, *numbers))
