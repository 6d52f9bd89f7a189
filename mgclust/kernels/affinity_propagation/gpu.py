"""Affinity propagation on a CUDA device: similarities, their noise, and one iteration of messages (``messages.cu``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mgclust.kernels.affinity_propagation.messages import Iteration, Messages, Vectors
from mgclust.kernels.affinity_propagation.similarities.gpu_similarities import jitter, similarities
from mgclust.kernels.affinity_propagation.sparse_forms.gpu_listed import module_of
from mgclust.kernels.pairs.gpu_launch import LOW_DIMENSIONS
from mgclust.kernels.toolkit.gpu_compiler import Module, compiled, compiled_for_hopper, is_hopper

__all__ = ["jitter", "kernels_of", "pass_columns", "pass_rows", "similarities"]

Array = Any
THREADS = 256  # threads per block in messages.cu


def pass_rows(messages: Messages, numbers: Iteration) -> None:
    m, stride = messages.s.shape
    if not m:
        return
    kernel = compiled("affinity_propagation/messages.cu", messages.s.dtype.name).get_function("pass_rows")
    sizes = (messages.n, messages.first_row, stride, messages.recent_argmax.shape[1])
    arrays = (
        messages.s, messages.a, messages.u, messages.recent_argmax, messages.recent_e, messages.recent_a,
        messages.recent_most, messages.c, messages.r_diagonal, messages.a_diagonal, messages.preference, messages.sums,
    )  # fmt: skip
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


def kernels_of(function: str, d: int, dtype: Any) -> Iterator[tuple[Module, str]]:
    if function == "pass_rows":  # for a matrix, or for lists
        every, few = (module_of(dtype.name, active) for active in (False, True))
        lists = compiled("affinity_propagation/sparse_forms/lists.cu", dtype.name)
        yield from ((every, "pass_listed_rows"), (few, "pass_listed_rows"), (lists, "list_similar"))
        yield compiled("affinity_propagation/messages.cu", dtype.name), "pass_rows"
        yield compiled("affinity_propagation/sparse_forms/columns.cu", dtype.name), "sum_positive"
        yield from ((module, name) for module in (every, few) for name in ("begin_listed", "pass_listed_columns"))
        yield from ((lists, name) for name in ("count_similar", "move_columns", "move_own"))
    elif dtype == np.float32 and d > LOW_DIMENSIONS:
        if is_hopper():
            packed = compiled_for_hopper("affinity_propagation/similarities/similarity_hopper.cu")
            yield from ((packed, name) for name in ("similarities_packed", "pack_rows"))
        split = compiled("affinity_propagation/similarities/similarity.cu", "float32")
        yield from ((split, name) for name in ("similarities_chosen", "split_rows"))
