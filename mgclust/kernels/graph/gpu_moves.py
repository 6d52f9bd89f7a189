"""Moves between communities on a CUDA device (``communities.cu``)."""

from __future__ import annotations

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
TABLE_BYTES = 1 << 30  # maximum bytes of all hash tables of long rows


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
    if len(found.longer):
        keys, sums, room = _tables(rows, gain)
        listed = (found.longer, np.int32(len(found.longer)))
        grid = (len(keys) // room,)
        kernel(rows, gain, "propose_long")(grid, (LARGE_BLOCK,), (*own, *listed, *wanted, keys, sums, np.int32(room)))


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


def _tables(rows: Adjacency, gain: Gain) -> tuple[Array, Array, int]:
    """Return hash tables, one for each block, and their size; they are kept as long as the rows."""
    sums = np.dtype(np.int32 if gain.exact else np.int64)
    name = f"tables of {sums}"  # the same rows may be used at resolution 1 and at others
    if name not in rows.plan:
        room = 1 << (bins(rows).longest - 1).bit_length() + 1
        blocks = TABLE_BYTES // (room * (4 + sums.itemsize))
        blocks = max(1, min(blocks, 2 * multiprocessors(), len(bins(rows).longer)))
        rows.plan[name] = cp.empty(blocks * room, cp.int32), cp.empty(blocks * room, sums), room
    return rows.plan[name]
