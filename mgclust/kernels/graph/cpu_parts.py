"""Exchange of rows on the CPU: a rank's rows are split by owner; the owners sum them again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency
from mgclust.kernels.graph.cpu_contraction import sum_pairs

__all__ = ["join_rows", "split_rows"]

Array = Any


def split_rows(rows: Adjacency, *, count: int, bounds: Sequence[int], largest: int) -> list[Array]:
    table = np.empty((rows.entries, 3), np.int64)
    table[:, 0] = np.repeat(np.arange(rows.rows), np.diff(rows.starts))
    table[:, 1], table[:, 2] = rows.columns, 1 if rows.weights is None else rows.weights
    return [table[start:stop] for start, stop in pairwise(rows.starts[list(bounds)].tolist())]


def join_rows(parts: Array, *, count: int, first: int, stop: int, largest: int, kind: np.dtype | None) -> Adjacency:
    row, column = (parts[:, i].astype(np.int32) for i in (0, 1))
    weight = None if kind is None else parts[:, 2].astype(kind)
    return sum_pairs(row, column, weight, count=count, first=first, stop=stop)
