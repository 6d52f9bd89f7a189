"""Local moving, matching and groups of nodes on a CUDA device (``communities.cu``)."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency, Gain
from mgclust.kernels.graph.gpu_contraction import bins, whole
from mgclust.kernels.toolkit.gpu_compiler import compiled, multiprocessors

__all__ = [
    "activate_neighbors",
    "apply_moves",
    "best_partners",
    "cross_weight",
    "match_mutual",
    "propagate_roots",
    "propose_moves",
    "relabel",
    "sum_by_id",
    "weights_before",
]

Array = Any
THREADS = 256
BLOCK, LARGE_BLOCK = 512, 1024  # threads for a long row; for one with a hash table
TABLE_BYTES = 1 << 30  # hash tables of long rows together


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
    own = _own(rows)
    wanted: tuple[Any, ...] = (strength, labels, totals, active, np.int64(gain.two_m), np.float64(gain.resolution))
    wanted += (np.uint32(classes), np.uint32(turn), np.uint64(salt), out, tally)
    _kernel(rows, gain, "propose_short")(_warps(rows), (THREADS,), (*own, *wanted))
    found = bins(rows)
    if len(found.medium):
        listed = (found.medium, np.int32(len(found.medium)))
        grid = (min(len(found.medium), 16 * multiprocessors()),)
        _kernel(rows, gain, "propose_medium")(grid, (128,), (*own, *listed, *wanted))
    if len(found.longer):
        keys, sums, room = _tables(rows, gain)
        listed = (found.longer, np.int32(len(found.longer)))
        grid = (len(keys) // room,)
        _kernel(rows, gain, "propose_long")(grid, (LARGE_BLOCK,), (*own, *listed, *wanted, keys, sums, np.int32(room)))


def apply_moves(proposal: Array, strength: Array, labels: Array, totals: Array) -> None:
    whole("apply_moves", len(proposal), proposal, strength, labels, totals)


def activate_neighbors(rows: Adjacency, proposal: Array, labels: Array, active: Array) -> None:
    _by_rows(rows, "activate_neighbors", proposal, labels, active)


def cross_weight(rows: Adjacency, labels: Array) -> int:
    out = cp.zeros(1, cp.int64)
    _by_rows(rows, "cross", labels, out)
    return int(out[0])


def best_partners(
    rows: Adjacency,
    strength: Array,
    within: Array | None,
    *,
    gain: Gain,
    any_sign: bool,
    noise: float,
    salt: int,
    out: Array,
) -> None:
    out.data.memset_async(0xFF, out.nbytes)
    nowhere = np.uint64(0) if within is None else within
    choice = (strength, nowhere, np.int64(gain.two_m), np.float64(gain.resolution), np.bool_(any_sign))
    _by_rows(rows, "partners", *choice, np.float64(noise), np.uint64(salt), out, gain=gain)


def match_mutual(partner: Array, *, share: float) -> Array:
    n = len(partner)
    counts, out = cp.zeros(2, cp.int32), cp.empty(n, cp.int32)
    whole("count_pairs", n, partner, counts)
    whole("match_mutual", n, partner, counts, np.float64(share), out)
    return out


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


def propagate_roots(rows: Adjacency, labels: Array, roots: Array) -> None:
    _by_rows(rows, "spread", labels, roots)


def weights_before(rows: Adjacency, ids: Array, order: Array) -> Array:
    out = cp.zeros(rows.rows, cp.int64)
    _by_rows(rows, "before", ids, order.astype(cp.int64, copy=False), out)
    return out


def _by_rows(rows: Adjacency, name: str, *arguments: Any, gain: Gain | None = None) -> None:
    """Rows by warps, and long ones by blocks."""
    if not rows.entries:
        return
    own = _own(rows)
    _kernel(rows, gain, f"{name}_short")(_warps(rows), (THREADS,), (*own, *arguments))
    longer = bins(rows).longer
    if len(longer):
        grid = (min(len(longer), 2 * multiprocessors()),)
        _kernel(rows, gain, f"{name}_long")(grid, (BLOCK,), (*own, longer, np.int32(len(longer)), *arguments))


def _own(rows: Adjacency) -> tuple[Any, ...]:
    weights = np.uint64(0) if rows.weights is None else rows.weights
    return np.int32(rows.first), np.int32(rows.rows), rows.starts, rows.columns, weights


def _warps(rows: Adjacency) -> tuple[int]:
    return (max(1, min(-(-rows.rows // THREADS), 16 * multiprocessors())),)


def _kernel(rows: Adjacency, gain: Gain | None, name: str) -> Any:
    width = 0 if rows.weights is None else 8 * rows.weights.dtype.itemsize
    exact = int(gain is None or gain.exact)
    return compiled("graph/communities.cu", "float64", WEIGHT=width, EXACT=exact).get_function(name)


def _tables(rows: Adjacency, gain: Gain) -> tuple[Array, Array, int]:
    """A hash table for each of some blocks, kept as long as the rows."""
    if "tables" not in rows.plan:
        room = 1 << (bins(rows).longest - 1).bit_length() + 1
        sums = np.dtype(np.int32 if gain.exact else np.int64)
        blocks = TABLE_BYTES // (room * (4 + sums.itemsize))
        blocks = max(1, min(blocks, 2 * multiprocessors(), len(bins(rows).longer)))
        rows.plan["tables"] = cp.empty(blocks * room, cp.int32), cp.empty(blocks * room, sums), room
    return rows.plan["tables"]
