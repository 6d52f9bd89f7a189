"""Moves between communities on a CUDA device (``communities.cu``)."""

from __future__ import annotations

import itertools
from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency, Gain
from mgclust.kernels.graph.gpu_adjacency import (
    THREADS,
    bins,
    by_rows,
    kernel,
    row_arguments,
    warp_grid,
    whole,
)
from mgclust.kernels.toolkit.gpu_compiler import multiprocessors

__all__ = ["activate_neighbors", "apply_moves", "cross_weight", "propose_moves", "sweep_alone"]

Array = Any
LARGE_BLOCK = 1024  # threads per block for rows that need a hash table
SHARED_TABLES = ((6144, 1 << 13), (12288, 1 << 14))  # longest row for a table in shared memory, and slots of the table
TABLE_BYTES = 1 << 30  # maximum bytes of all hash tables of longer rows


def propose_moves(
    rows: Adjacency,
    strength: Array,
    labels: Array,
    totals: Array,
    active: Array,
    *,
    gain: Gain,
    classes: int,
    turn: int,
    salt: int,
    out: Array,
    tally: Array,
) -> None:
    out.data.memset_async(0xFF, out.nbytes)  # -1
    if not rows.entries:
        return
    own = row_arguments(rows)
    wanted: tuple[Any, ...] = (strength, labels, totals, active, np.int64(gain.two_m), np.float64(gain.resolution))
    wanted += (np.uint32(classes), np.uint32(turn), np.uint64(salt), out, tally)
    kernel(rows, gain, "propose_short")(warp_grid(rows), (THREADS,), (*own, *wanted))
    found = bins(rows)
    if len(found.medium):
        listed = (found.medium, np.int32(len(found.medium)))
        grid = (min(len(found.medium), 16 * multiprocessors()),)
        kernel(rows, gain, "propose_medium")(grid, (128,), (*own, *listed, *wanted))
    if not len(found.longer):
        return
    propose_long = kernel(rows, gain, "propose_long")
    for listed, room in _shared(rows):
        size = room * (8 if gain.exact else 12)
        propose_long.max_dynamic_shared_size_bytes = max(size, propose_long.max_dynamic_shared_size_bytes)
        grid = (min(len(listed), 2 * multiprocessors()),)
        arguments = (*own, listed, np.int32(len(listed)), *wanted, np.uint64(0), np.uint64(0), np.int32(room))
        propose_long(grid, (LARGE_BLOCK,), arguments, shared_mem=size)
    longest = _by_length(rows)[-1]
    if len(longest):
        keys, sums, room = _tables(rows, gain)
        grid = (len(keys) // room,)
        arguments = (*own, longest, np.int32(len(longest)), *wanted, keys, sums, np.int32(room))
        propose_long(grid, (LARGE_BLOCK,), arguments)


def sweep_alone(
    rows: Adjacency,
    strength: Array,
    labels: Array,
    totals: Array,
    active: Array,
    *,
    gain: Gain,
    classes: int,
    salt: int,
    activated: Array,
    tally: Array,
) -> bool:
    return False  # each step needs the results of the previous step for all nodes, so it needs its own launch


def apply_moves(proposal: Array, strength: Array, labels: Array, totals: Array) -> None:
    whole("apply_moves", len(proposal), proposal, strength, labels, totals)


def activate_neighbors(rows: Adjacency, proposal: Array, labels: Array, active: Array) -> None:
    by_rows(rows, "activate_neighbors", proposal, labels, active)


def cross_weight(rows: Adjacency, labels: Array) -> int:
    out = cp.zeros(1, cp.int64)
    by_rows(rows, "cross", labels, out)
    return int(out[0])


def _by_length(rows: Adjacency) -> list[Array]:
    """Return the long rows by class: those for each table in shared memory, and the longest rows."""
    if "by length" not in rows.plan:
        longer = bins(rows).longer
        lengths = rows.starts[longer + 1] - rows.starts[longer]
        limits = [0, *(most for most, _ in SHARED_TABLES), np.iinfo(np.int64).max]
        rows.plan["by length"] = [
            longer[(lengths > least) & (lengths <= most)] for least, most in itertools.pairwise(limits)
        ]
    return rows.plan["by length"]


def _shared(rows: Adjacency) -> list[tuple[Array, int]]:
    """Return the long rows that have a table in shared memory, and the slots of the table."""
    classes = zip(_by_length(rows)[:-1], SHARED_TABLES, strict=True)
    return [(listed, room) for listed, (_, room) in classes if len(listed)]


def _tables(rows: Adjacency, gain: Gain) -> tuple[Array, Array, int]:
    """Return hash tables, one for each block, and their size; they are kept as long as the rows."""
    sums = np.dtype(np.int32 if gain.exact else np.int64)
    name = f"tables of {sums}"  # the same rows may be used at resolution 1 and at others
    if name not in rows.plan:
        room = 1 << (bins(rows).longest - 1).bit_length() + 1
        blocks = TABLE_BYTES // (room * (4 + sums.itemsize))
        blocks = max(1, min(blocks, 2 * multiprocessors(), len(_by_length(rows)[-1])))
        rows.plan[name] = cp.empty(blocks * room, cp.int32), cp.empty(blocks * room, sums), room
    return rows.plan[name]
