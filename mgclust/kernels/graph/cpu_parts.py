"""Exchange of pairs on the CPU: each rank sums its pairs and splits them by owner; the owners sum them again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency
from mgclust.kernels.graph.cpu_contraction import contract, sum_pairs

__all__ = ["contract_parts", "pair_parts", "sum_parts"]

Array = Any


def pair_parts(
    row: Array, column: Array, weight: Array | None, *, count: int, bounds: Sequence[int], largest: int
) -> list[Array]:
    return _cut(*sum_pairs(row, column, weight, count=count), bounds)


def contract_parts(rows: Adjacency, ids: Array, *, count: int, bounds: Sequence[int], largest: int) -> list[Array]:
    groups = contract(rows, ids, count=count)
    row = np.repeat(np.arange(count, dtype=np.int32), np.diff(groups.starts))
    return _cut(row, groups.columns, groups.weights, bounds)


def sum_parts(parts: Array, *, count: int, largest: int, kind: np.dtype | None) -> tuple[Array, Array, Array | None]:
    row, column = (parts[:, i].astype(np.int32) for i in (0, 1))
    # Even if all original weights were 1, the parts may have larger weights, because each rank has summed its pairs.
    row, column, weight = sum_pairs(row, column, parts[:, 2].astype(kind or np.int32), count=count)
    assert weight is not None
    if kind is None and (not len(weight) or weight.max() == 1):
        return row, column, None
    return row, column, weight


def _cut(row: Array, column: Array, weight: Array | None, bounds: Sequence[int]) -> list[Array]:
    table = np.empty((len(row), 3), np.int64)
    table[:, 0], table[:, 1], table[:, 2] = row, column, 1 if weight is None else weight
    cuts = [0, *np.searchsorted(row, bounds[1:-1]).tolist(), len(row)]
    return [table[start:stop] for start, stop in pairwise(cuts)]
