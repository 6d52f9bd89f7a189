"""Groups of nodes on a CUDA device (``communities.cu``): their numbers, sums, and connected parts."""

from __future__ import annotations

from typing import Any

import cupy as cp

from mgclust.kernels.graph.adjacency import Adjacency
from mgclust.kernels.graph.gpu_adjacency import by_rows, whole

__all__ = ["propagate_roots", "relabel", "sum_by_id", "weights_before"]

Array = Any


def relabel(representative: Array) -> tuple[Array, int]:
    n = len(representative)
    heads, ids = cp.empty(n, cp.int32), cp.empty(n, cp.int32)
    whole("find_heads", n, representative, heads)
    ranks = cp.cumsum(heads, dtype=cp.int32)
    whole("number_groups", n, representative, ranks, ids)
    return ids, int(ranks[-1])


def sum_by_id(values: Array, ids: Array, count: int) -> Array:
    out = cp.zeros(count, cp.int64)
    whole("sum_by_id", len(values), values, ids, out)
    return out


def propagate_roots(rows: Adjacency, labels: Array, roots: Array) -> bool:
    by_rows(rows, "spread", labels, roots)
    return False


def weights_before(rows: Adjacency, ids: Array, order: Array) -> Array:
    out = cp.zeros(rows.rows, cp.int64)
    by_rows(rows, "before", ids, order.astype(cp.int64, copy=False), out)
    return out
