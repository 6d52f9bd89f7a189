"""Exchange of pairs with the ranks that own them, on a CUDA device (``communities.cu``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency
from mgclust.kernels.graph.gpu_adjacency import THREADS, functions
from mgclust.kernels.graph.gpu_contraction import keys_of_groups, keys_of_pairs, sum_keys, weight_bits
from mgclust.kernels.toolkit.gpu_compiler import multiprocessors, or_null

__all__ = ["contract_parts", "pair_parts", "sum_parts"]

Array = Any


def pair_parts(
    row: Array, column: Array, weight: Array | None, *, count: int, bounds: Sequence[int], largest: int
) -> list[Array]:
    if largest and weight is None:
        weight = cp.ones(len(row), cp.int32)
    keys, bits = keys_of_pairs(row, column, weight, count, largest)
    return _cut(keys, weight, bits, count, bounds)


def contract_parts(rows: Adjacency, ids: Array, *, count: int, bounds: Sequence[int], largest: int) -> list[Array]:
    keys, bits = keys_of_groups(rows, ids, count, largest)
    return _cut(keys, rows.weights, bits, count, bounds)


def sum_parts(parts: Array, *, count: int, largest: int, kind: np.dtype | None) -> tuple[Array, Array, Array | None]:
    if parts.ndim == 2:
        return sum_keys(cp.ascontiguousarray(parts[:, 0]), parts[:, 1].astype(kind), count, 0, kind)
    return sum_keys(parts, None, count, 0 if kind is None else weight_bits(count, largest), kind)


def _cut(keys: Array, weight: Array | None, bits: int, count: int, bounds: Sequence[int]) -> list[Array]:
    """Return the keys for each rank that owns them, without dropped keys; add a column of weights if keys hold none."""
    beside = weight is not None and not bits
    kind = weight.dtype if weight is not None and beside else None
    owners = len(bounds) - 1
    limits = cp.asarray(np.array([(stop * count) << bits for stop in bounds[1:]], np.int64))
    counts = cp.zeros(owners, cp.int64)
    grid = (max(1, min(-(-len(keys) // (8 * THREADS)), 16 * multiprocessors())),)
    which = (np.int64(len(keys)), keys)
    functions(None).get_function("count_parts")(
        grid, (THREADS,), (*which, limits, np.int32(owners), counts), shared_mem=4 * owners
    )
    stops = np.cumsum(cp.asnumpy(counts))
    after = cp.asarray(stops) - counts
    parts = cp.empty((int(stops[-1]), 2) if beside else int(stops[-1]), cp.int64)
    functions(kind).get_function("place_parts")(
        grid,
        (THREADS,),
        (*which, or_null(weight if beside else None), limits, np.int32(owners), after, parts),
        shared_mem=12 * owners,
    )
    return [parts[start:stop] for start, stop in pairwise([0, *stops.tolist()])]
