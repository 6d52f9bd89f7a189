"""Groups of nodes on the CPU: their numbers, sums, connected parts, and the weights within groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency
from mgclust.kernels.graph.cpu_adjacency import each_part, weight_of, weights_or_none
from mgclust.kernels.toolkit.cpu_compiler import compiled, inlined

__all__ = ["propagate_roots", "relabel", "sum_by_id", "weights_before"]

Array = Any


def relabel(representative: Array) -> tuple[Array, int]:
    ids = np.empty(len(representative), np.int32)
    return ids, number_groups(representative, ids)


def sum_by_id(values: Array, ids: Array, count: int) -> Array:
    out = np.zeros(count, np.int64)
    add_values(values, ids, out)
    return out


def propagate_roots(rows: Adjacency, labels: Array, roots: Array) -> bool:
    unite(rows.first, rows.starts, rows.columns, labels, roots)
    return rows.rows == len(roots)


def weights_before(rows: Adjacency, ids: Array, order: Array) -> Array:
    out = np.empty(rows.rows, np.int64)
    weights = weights_or_none(rows.weights)

    def body(start: int, stop: int) -> None:
        add_before(start, stop, rows.first, rows.starts, rows.columns, weights, ids, order, out)

    each_part(rows, body)
    return out


@compiled
def number_groups(representative: Array, ids: Array) -> int:
    """Fill `ids`; return the number of groups."""
    count = 0
    for v in range(len(representative)):
        if representative[v] == v:
            ids[v] = count
            count += 1
    for v in range(len(representative)):
        if representative[v] != v:
            ids[v] = ids[representative[v]]
    return count


@compiled
def add_values(values: Array, ids: Array, out: Array) -> None:
    """Sum the values of each group."""
    for v in range(len(values)):
        out[ids[v]] += values[v]


@inlined
def root_of(roots: Array, v: int) -> int:
    """Return the final root of a node, and halve the path to it."""
    while roots[v] != v:
        roots[v] = roots[roots[v]]
        v = roots[v]
    return v


@compiled
def unite(first: int, starts: Array, columns: Array, labels: Array, roots: Array) -> None:
    """Unite the ends of local entries within communities; then set the root of each node to its final root."""
    stop = first + len(starts) - 1
    for row in range(len(starts) - 1):
        v = first + row
        for entry in range(starts[row], starts[row + 1]):
            u = columns[entry]
            if v < u < stop or roots[u] == roots[v]:  # the row of u also has it, or both are united already
                continue
            if labels[u] != labels[v]:
                continue
            a, b = root_of(roots, v), root_of(roots, u)
            roots[max(a, b)] = min(a, b)
    for v in range(len(roots)):
        roots[v] = roots[roots[v]]


@compiled
def add_before(
    start: int,
    stop: int,
    first: int,
    starts: Array,
    columns: Array,
    weights: Array,
    ids: Array,
    order: Array,
    out: Array,
) -> None:
    """Do `weights_before` for rows start..stop-1."""
    for row in range(start, stop):
        v = first + row
        total = np.int64(0)
        for entry in range(starts[row], starts[row + 1]):
            u = columns[entry]
            if ids[u] == ids[v] and order[u] < order[v]:
                total += weight_of(weights, entry)
        out[row] = total
