"""Greedy modularity merging on a CUDA device (``greedy.cu``): one block, launched for a tenth of a second at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from mgclust.base.errors import InputError
from mgclust.kernels.toolkit.gpu_compiler import Module, compiled

__all__ = ["greedy_merges"]

Array = Any
THREADS = 512  # threads of the block: most are idle for short rows, and long rows could use more
WARP = 32
ROWS = 4  # warps per block in all kernels except `merge`; each warp processes one row or node
SHARED_NODES = 1900  # as in greedy.cu
SPARE = 1024
MAX_ENTRIES = (2**31 - 2**14) // 2 - SPARE  # positions in the pool, which has twice as many entries, must fit int32
NO_ROOM, DONE = 2, 1  # states of the kernel, as in greedy.cu; 0: merging is not done yet


def module_of(integer: bool) -> Module:
    """Return the kernels for int64 weights if `integer`, else for float64 weights."""
    return compiled("greedy_merges/greedy.cu", "float64", INTEGER=int(integer), THREADS=THREADS)


def greedy_merges(
    starts: Array,
    columns: Array,
    weights: Array,
    strength: Array,
    *,
    resolution: float,
    on_progress: Callable[[int], None],
) -> tuple[np.ndarray, np.ndarray]:
    n = len(strength)
    if not len(columns):
        return np.empty((0, 2), np.int32), np.empty(0, weights.dtype)
    if len(columns) > MAX_ENTRIES:
        raise InputError(
            f"n_edges={len(columns) // 2} between different nodes should be <= {MAX_ENTRIES // 2} for "
            "strategy='greedy' on a GPU: use strategy='parallel' or device='cpu'."
        )
    # The kernel searches for a column in its row, so the columns of a row ascend.
    row = cp.searchsorted(starts, cp.arange(len(columns)), side="right") - 1
    order = cp.argsort(row * n + columns)
    columns, weights = columns[order], weights[order]
    # The sum is computed on the host, so that it is bitwise identical to the sum of the CPU kernel.
    scale = weights.dtype.type(cp.asnumpy(strength).sum()), np.float64(resolution)
    module = module_of(weights.dtype.kind == "i")
    graph = _prepared(module, starts, columns, weights, strength, scale)
    merges, gains = cp.empty((n, 2), np.int32), cp.empty(n, weights.dtype)
    state = cp.array([0, len(columns), 0], np.int32)  # number of merges, end of the pool, state of the kernel
    kernel = module.get_function("merge")
    while True:
        kernel((1,), (THREADS,), (*graph.arguments(), *scale, merges, gains, state))
        done, _, reason = (int(value) for value in cp.asnumpy(state))
        on_progress(done)
        if reason == DONE:
            return cp.asnumpy(merges[:done]), cp.asnumpy(gains[:done])
        if reason == NO_ROOM:
            state[1] = _make_room(module, graph)


@dataclass
class _Graph:
    """Data structures of the kernel; ``greedy.cu`` has their layouts."""

    entries: Array  # (pool, 4) int32
    communities: Array  # (n, 4) int32
    rows: Array  # (n, 4) int32: start, used, capacity, live
    times: Array  # (n, 2) int32
    keys: Array  # (nodes of the tree, 4) int32
    pairs: Array  # (nodes of the tree, 2) int32
    offsets: Array  # int32: start of each level of the tree, then the number of nodes
    shared_from: int

    def arguments(self) -> tuple[Any, ...]:
        pool, root_level = np.int32(len(self.entries)), np.int32(len(self.offsets) - 2)
        tree = self.keys, self.pairs, self.offsets, root_level, np.int32(self.shared_from)
        return (self.entries, pool, self.communities, self.rows, self.times, *tree)


def _prepared(module: Any, starts: Array, columns: Array, weights: Array, strength: Array, scale: Any) -> _Graph:
    """Return the data structures before the first merge: a row for each node, and the tree over their best pairs."""
    n = len(strength)
    sizes = [n]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // WARP))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    nodes = int(offsets[-1])
    shared_from = int(offsets[np.flatnonzero(nodes - offsets <= SHARED_NODES)[0]])
    graph = _Graph(
        entries=cp.empty((2 * len(columns) + SPARE, 4), np.int32),
        communities=cp.empty((n, 4), np.int32),
        rows=cp.empty((n, 4), np.int32),
        times=cp.empty((n, 2), np.int32),
        keys=cp.empty((nodes, 4), np.int32),
        pairs=cp.empty((nodes, 2), np.int32),
        offsets=cp.asarray(offsets),
        shared_from=shared_from,
    )
    arrays = graph.entries, graph.communities, graph.rows, graph.times, graph.keys, graph.pairs
    block = (WARP * ROWS,)
    values = (starts, columns, weights, strength, np.int32(n), *scale)
    module.get_function("prepare")((-(-n // ROWS),), block, (*values, *arrays))
    above = module.get_function("best_of_children")
    for level in range(len(sizes) - 1):
        below = np.int32(offsets[level]), np.int32(sizes[level])
        parents = np.int32(offsets[level + 1]), np.int32(sizes[level + 1])
        above((-(-sizes[level + 1] // ROWS),), block, (graph.keys, graph.pairs, *below, *parents))
    return graph


def _make_room(module: Any, graph: _Graph) -> int:
    """Move all rows to the front of a new pool of twice the size they need; return the number of entries they need."""
    live = graph.rows[:, 3].astype(np.int64)
    starts = cp.cumsum(live) - live
    count, n = int(live.sum()), len(live)
    entries = cp.empty((2 * count + SPARE, 4), np.int32)
    places = cp.empty(len(graph.entries), np.int32)
    arrays = graph.entries, graph.rows, starts, np.int32(n), entries, places
    module.get_function("gather")((-(-n // ROWS),), (WARP * ROWS,), arrays)
    module.get_function("relink")((-(-count // 256),), (256,), (entries, places, np.int32(count)))
    graph.entries = entries
    return count
