"""Memberships of rows in canopies, as compressed sparse rows.

Every rank compares its rows with all centres. It first counts the canopies of each row. The sums of these counts are
the positions at which the lists of the rows begin. The lists are then written in place, with ascending columns. The
nearest centre of a row is among its canopies, because t1 > t2. Lists are made for one batch of rows at a time, so a
device holds only some of the lists at once. The counts also give the memory of all lists, which is checked before the
first list is written.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from mgclust.base.errors import InsufficientMemoryError
from mgclust.engine.memory import human
from mgclust.engine.spmd import Context

__all__ = [
    "Members",
    "candidate_bytes",
    "candidate_pieces",
    "find_members",
    "own_pieces",
    "piece_bytes",
    "room_for_boxes",
]

Array = Any
PIECE = 1 << 28  # largest number of memberships per batch; each batch puts the centres into bounding boxes again
VECTOR_BYTES = 40  # bytes per local row in addition to memberships: counts, labels, positions, temporary arrays
USABLE = 0.95  # proposals leave the rest of the free memory unused
# If a rank gets more memory, its chunks of rows and its temporary arrays also grow; memberships get this part of it.
PART_OF_MORE = 0.6


class Members(NamedTuple):
    """Memberships of a rank's rows, on its host, with counts for all rows."""

    memberships: csr_array  # (local rows, n_canopies), bool; columns ascend
    labels: np.ndarray  # (local rows,), int32: the nearest centre; among equally near centres, the first
    total: int  # number of memberships of all rows
    alone: int  # number of rows, on all ranks, that are in exactly one canopy


def own_pieces(context: Context) -> list[tuple[int, int]]:
    """Return bounds of batches of local rows. The device holds one batch at a time; resident rows are one batch."""
    rows = context.rows
    step = max(1, -(-len(rows) // rows.chunk_count))
    edges = [*range(rows.start, rows.stop, step), rows.stop]
    return list(pairwise(edges)) or [(rows.start, rows.stop)]


def candidate_bytes(rows: int, room: int) -> int:
    """Return the bytes of the two copies of a rank's rows in `Candidates`: before and after a step drops some rows.

    The number is 0 if `room` does not hold both copies. In this case, rows are copied in batches, of any size.
    """
    return 2 * rows if 2 * rows <= room else 0


def candidate_pieces(context: Context) -> list[tuple[int, int]]:
    """Return bounds of batches for `Candidates`: one batch if there is memory to copy the rows that a step keeps."""
    rows = context.rows
    row_bytes = rows.n_features * context.dtype.itemsize
    most = -(-context.partition.blocks // context.size) * context.partition.block_rows
    if not rows.resident or candidate_bytes(most * row_bytes, context.free // 2):
        return own_pieces(context)
    step = max(1, min(context.spare // (4 * row_bytes), len(rows) // 2))
    return list(pairwise([*range(rows.start, rows.stop, step), rows.stop]))


def room_for_boxes(context: Context) -> bool:
    """Return whether bounding boxes around all candidates of a rank fit into memory, together with the rows."""
    rows = context.rows
    return len(rows) * (3 * rows.n_features * context.dtype.itemsize + 64) <= context.spare


def piece_bytes(free: int, size: int) -> int:
    """Return the bytes for the local and gathered memberships of one batch: at most an eighth of the free memory."""
    return min(4 * PIECE * (1 + size), free // 8)


def find_members(
    context: Context, centers: Array, norm: str, threshold: float, reach: float, *, result: bool
) -> Members:
    """Find the canopies of every row, on every rank.

    Parameters
    ----------
    context : Context
    centers : array of shape (K, n_features)
        The centres, on the device; the same on all ranks.
    norm : {"l2", "l1"}
        Kind of reduced distance.
    threshold : float
        A row belongs to a canopy if s < threshold, where s is its reduced distance to the centre.
    reach : float
        Every row has a centre with s < reach.
    result : bool
        Whether the memberships become a part of the result, which the client receives.

    Returns
    -------
    Members

    Raises
    ------
    InsufficientMemoryError
        The memberships do not fit into the memory of a rank, or of the client. It is raised on every rank.
    """
    kernels, comm = context.kernels, context.comm
    counts, nearest = _count(context, centers, norm, threshold, reach)
    own = np.array([int(counts.astype(np.int64).sum()), int((counts == 1).astype(np.int64).sum())], np.int64)
    total, alone = comm.all_reduce(own, "sum").tolist()
    # SciPy needs the same type for both index arrays: int32 if this type holds the number of memberships.
    index = np.dtype(np.int32 if total < 2**31 else np.int64)
    limit = max(piece_bytes(context.free, comm.size) // (4 * (1 + comm.size)), len(centers))
    own_total = int(own[0])
    taken = centers.nbytes + VECTOR_BYTES * len(counts) + 4 * min(limit, own_total)
    _check_room(context, own_total, total, index.itemsize + 1, taken, len(centers), result)
    bounds = _split(context, counts, own_total, limit)
    starts = np.zeros(len(counts) + 1, index)
    np.cumsum(kernels.memory.to_host(counts), out=starts[1:])
    indices = np.empty(own_total, index)
    for done, (start, stop) in enumerate(bounds):
        part = slice(starts[start - context.rows.start], starts[stop - context.rows.start])
        indices[part] = kernels.memory.to_host(_list(context, centers, norm, threshold, counts, start, stop))
        context.progress(0.5 + 0.5 * (done + 1) / len(bounds))
    memberships = csr_array((np.ones(own_total, bool), indices, starts), shape=(len(counts), len(centers)))
    return Members(memberships, kernels.memory.to_host(nearest), total, alone)


def _count(context: Context, centers: Array, norm: str, threshold: float, reach: float) -> tuple[Array, Array]:
    """Return the number of canopies of each local row, and its nearest centre; on the device."""
    kernels, xp, rows = context.kernels, context.kernels.xp, context.rows
    narrow = xp.empty(len(rows), dtype="int32")
    nearest = xp.empty(len(rows), dtype="int32")
    pieces = own_pieces(context)
    for done, (start, stop) in enumerate(pieces):
        x, own = rows.read(start, stop), slice(start - rows.start, stop - rows.start)
        if not len(x):
            continue
        counts = xp.zeros(len(x), dtype="int64")
        kernels.pairs.count_within(x, centers, norm=norm, threshold=threshold, out=counts)
        narrow[own] = counts
        best = xp.full(len(x), reach, dtype=context.dtype)
        index = xp.full(len(x), -1, dtype="int64")
        kernels.pairs.nearest_column(x, centers, norm=norm, y_start=0, best=best, best_index=index)
        nearest[own] = index
        context.progress(0.5 * (done + 1) / len(pieces))
    return narrow, nearest


def _split(context: Context, counts: Array, total: int, limit: int) -> list[tuple[int, int]]:
    """Return bounds of batches with at most `limit` memberships, each within a batch that the device holds."""
    if total <= limit:
        return own_pieces(context)
    first = context.rows.start
    ends = np.cumsum(context.kernels.memory.to_host(counts), dtype=np.int64)
    bounds = []
    for start, stop in own_pieces(context):
        while start < stop:
            before = int(ends[start - first - 1]) if start > first else 0
            end = first + int(np.searchsorted(ends, before + limit, side="right"))
            bounds.append((start, min(max(end, start + 1), stop)))
            start = bounds[-1][1]
    return bounds


def _list(context: Context, centers: Array, norm: str, threshold: float, counts: Array, start: int, stop: int) -> Array:
    """Return the canopies of some local rows, row after row; int32, on the device."""
    xp, rows = context.kernels.xp, context.rows
    starts = xp.zeros(stop - start + 1, dtype="int64")
    starts[1:] = xp.cumsum(counts[start - rows.start : stop - rows.start], dtype="int64")
    out = xp.empty(int(starts[-1]), dtype="int32")
    x = rows.read(start, stop)
    context.kernels.canopy.write_within(x, centers, norm=norm, threshold=threshold, starts=starts[:-1], out=out)
    return out


def _check_room(context: Context, own: int, total: int, each: int, taken: int, n_canopies: int, result: bool) -> None:
    """Raise an error on every rank if the memberships do not fit into the memory of a rank, or of the client.

    Parameters
    ----------
    own, total : int
        Number of memberships of this rank's rows, and of all rows.
    each : int
        Bytes of a membership.
    taken : int
        Bytes that the method uses in addition to the memberships.
    """
    needs = context.comm.all_gather(np.array([[own * each, context.host_room(taken)]], np.int64))
    needed, there = needs[int(np.argmax(needs[:, 0] - needs[:, 1]))].tolist()
    size, where = context.size, "a rank"
    of_workers = f"{human((needed - there) / PART_OF_MORE)} more free memory for each rank"
    if needed <= there and result and context.client_free is not None:
        # The client joins the parts of several ranks to one array.
        needed, there, where = total * each * (2 if size > 1 else 1), context.client_free, "the client"
        of_workers = f"a client with {human(needed / USABLE - there)} more free memory, X as a Dask array"
    elif there > 0:
        of_workers = (
            f"{int(size * needed / (USABLE * there)) + 1} workers like this one instead of {size}, {of_workers}"
        )
    if needed > there:
        average = total / context.dataset_shape[0]
        raise InsufficientMemoryError(
            f"not enough memory: {total} memberships (each row in {average:.4g} of {n_canopies} canopies on average) "
            f"need {human(needed)} on {where}, {human(max(0, there))} is free. What would fit: a "
            f"smaller t1, {of_workers}, or about {int(100 * USABLE * max(0, there) / needed)}% of the rows."
        )
