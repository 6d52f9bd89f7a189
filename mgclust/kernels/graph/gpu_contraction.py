"""Adjacency rows from pairs and from groups of nodes, on a CUDA device (``contraction.cu``).

A row of the result sums the entries of several rows. Its entries are put into a hash table in shared memory, first to
count its columns, and then to write them. Rows with too many columns for such a table are sorted by a library, and so
are small graphs. The columns of a row are in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from mgclust.base.errors import InsufficientMemoryError
from mgclust.kernels.graph.adjacency import Adjacency
from mgclust.kernels.graph.gpu_adjacency import THREADS, bins, by_rows, functions, whole
from mgclust.kernels.toolkit.gpu_compiler import compiled, multiprocessors, or_null

__all__ = ["contract", "crossing_rows", "join_rows", "rows_of_edges"]

Array = Any
MAX_ENTRIES = 2**31 - 1  # that are sorted in one piece
KEY_BITS = 63
SORTED = 1 << 23  # the entries of smaller graphs are sorted: that takes fewer steps, each of which has to be launched
SHORT = 256  # entries of a row that a warp sums, as in contraction.cu
LONG = 1 << 20  # rows of more entries are sorted
BATCH = 1 << 27  # entries that are sorted at once, unless one row has more; `memory.estimate` counts them
RANGE = 1 << 22  # rows into which pairs are put at once; the counters of these rows (32 MiB) stay in the cache
# For longer rows: bits of the slots of a table, largest number of entries with which the rows have this table, threads.
TABLES = ((12, 3072, 256), (13, 6144, 512), (14, LONG, 1024))


@dataclass(frozen=True)
class Source:
    """Entries whose columns are summed: groups of rows, or single rows."""

    rows: Adjacency
    count: int  # number of groups
    columns: int  # bound of the columns of the result
    first: int = 0  # number of the first group; entries in the column with their group's number are dropped
    ids: Array | None = None  # int32: group of each column; None: columns stay
    members: Array | None = None  # int32: rows in the order of their groups; None: group g is row g
    groups: Array | None = None  # int32: group of each of these
    begins: Array | None = None  # int64 array of shape (count + 1,): position of the first member of each group

    @classmethod
    def of_groups(cls, rows: Adjacency, ids: Array, columns: int, own: Array, first: int, stop: int) -> Source:
        """Sort the rows by their groups `own`, and skip rows of other groups than first .. stop - 1."""
        count, members = stop - first, cp.argsort(own).astype(cp.int32)
        groups = own[members]
        inside = slice(*cp.searchsorted(groups, cp.asarray([first, stop], np.int32)).tolist())
        members, groups = members[inside], groups[inside] - np.int32(first)
        begins = cp.empty(count + 1, cp.int64)
        whole("row_starts", count + 1, groups, np.int32(0), np.int32(count), begins, size=len(groups))
        return cls(rows, count, columns, first, ids, members, groups, begins)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """First arguments of all kernels."""
        rows = self.rows
        arrays = rows.weights, self.members, self.begins, self.ids
        return rows.starts, rows.columns, *(or_null(each) for each in arrays)


def rows_of_edges(edges: list[tuple[Array, Array, Array | None]], *, count: int, summed: bool = True) -> Adjacency:
    pairs = [(*ends, weight) for u, v, weight in edges for ends in ((u, v), (v, u))]
    rows = _rows_of_pairs(pairs, count)
    return _fold(Source(rows, count, count), 2 * sum(int((u == v).sum()) for u, v, _ in edges)) if summed else rows


def contract(
    rows: Adjacency,
    ids: Array,
    *,
    count: int,
    groups: Array | None = None,
    first: int = 0,
    stop: int | None = None,
) -> Adjacency:
    if groups is not None or rows.entries > SORTED:
        own = ids[rows.first : rows.first + rows.rows] if groups is None else groups
        source = Source.of_groups(rows, ids, count, own, first, count if stop is None else stop)
        return _write(source, _kind_of_sums(rows), *_count(source))
    kind = _kind(rows)
    bits = 0 if kind is None else weight_bits(count, bins(rows).largest)
    keys = cp.empty(rows.entries, cp.int64)
    by_rows(rows, "keys", ids, np.int64(count), np.int32(bits), keys)
    row, column, weight = _sum_keys(keys, None if bits else rows.weights, count, bits, _kind_of_sums(rows))
    starts = cp.empty(count + 1, cp.int64)
    whole("row_starts", count + 1, row, np.int32(0), np.int32(count), starts, size=len(row))
    return Adjacency(0, starts, column, weight)


def crossing_rows(rows: Adjacency, ids: Array, *, first: int, stop: int) -> tuple[Array, Array, Array | None]:
    groups = ids[rows.first : rows.first + rows.rows]
    listed = cp.flatnonzero((groups >= first) & (groups < stop)).astype(cp.int32)
    starts, columns, weights = _copied(rows, listed, groups[listed], ids)
    return cp.diff(starts).astype(cp.int32), columns, weights


def join_rows(lengths: Array, columns: Array, weights: Array | None, *, count: int, first: int, rows: int) -> Adjacency:
    received = Adjacency(0, _starts(lengths), columns, weights)  # a row for each rank and row
    joined = Adjacency(first, *_copied(received, None, cp.arange(first, first + rows, dtype=cp.int32), None))
    return _fold(Source(joined, rows, count, first), 0)


def _copied(rows: Adjacency, listed: Array | None, own: Array, ids: Array | None) -> tuple[Array, Array, Array | None]:
    """Copy listed rows without entries whose column, or with `ids` the group of the column, is the row's own number.

    Listed row i becomes part of row ``i % len(own)`` of the result, which is returned as starts, columns and weights.
    """
    count = rows.rows if listed is None else len(listed)

    def run(cursor: Array, columns: Array | None, weights: Array | None) -> None:
        kernel = _module(_kind(rows), None).get_function("copy_rows")
        source = rows.starts, rows.columns, or_null(rows.weights), np.int64(count), or_null(listed)
        out = cursor, or_null(columns), or_null(weights)
        for by_block in (False, True):
            keys = own, or_null(ids), np.int64(len(own)), np.bool_(by_block)
            kernel((16 * multiprocessors(),), (THREADS,), (*source, *keys, *out))

    lengths = cp.zeros(len(own), cp.int64)
    run(lengths, None, None)
    starts = _starts(lengths)
    columns = cp.empty(int(starts[-1]), cp.int32)
    weights = None if rows.weights is None else cp.empty(len(columns), rows.weights.dtype)
    run(starts[:-1].copy(), columns, weights)
    return starts, columns, weights


def weight_bits(count: int, largest: int) -> int:
    """Return the number of bits for the weight, which follows the pair in a key of 63 bits; 0 if it does not fit."""
    bits = largest.bit_length()
    return bits if (count * count).bit_length() + bits < KEY_BITS else 0


def _kind_of_sums(rows: Adjacency) -> np.dtype:
    if rows.weights is not None:
        return rows.weights.dtype
    return np.dtype(np.int32 if rows.entries < 2**31 else np.int64)


def _rows_of_pairs(pairs: list[tuple[Array, Array, Array | None]], count: int) -> Adjacency:
    """Return pairs as rows that may have equal columns, in any order."""
    kind = None if pairs[0][2] is None else pairs[0][2].dtype
    module = _module(kind, None)
    counts = cp.zeros(count, cp.int32)
    ranges = [(low, min(count, low + RANGE)) for low in range(0, count, RANGE)]
    for low, high in ranges:
        for row, _, _ in pairs:
            _over_all(module, "count_rows", len(row), row, np.int32(low), np.int32(high), counts)
    starts = _starts(counts)
    del counts
    total = int(starts[-1])
    columns, weights = cp.empty(total, cp.int32), None if kind is None else cp.empty(total, kind)
    cursor = starts[:-1].copy()
    for low, high in ranges:
        for row, column, weight in pairs:
            own = row, column, or_null(weight), np.int32(low), np.int32(high)
            _over_all(module, "place_pairs", len(row), *own, cursor, columns, or_null(weights))
    return Adjacency(0, starts, columns, weights)


def _fold(source: Source, loops: int) -> Adjacency:
    """Sum equal columns of single rows, of whose entries `loops` are in the column with the row's own number."""
    rows = source.rows
    lengths, rest = _count(source)
    distinct = int(lengths.sum()) + (0 if rest is None else len(rest.row))
    if distinct == rows.entries:
        return rows
    alike = rows.weights is None and distinct == rows.entries - loops
    return _write(source, None if alike else _kind_of_sums(rows), lengths, rest)


class Rest(NamedTuple):
    """Sorted and summed entries of the rows that have too many columns for a table."""

    groups: Array  # numbers of these rows
    lengths: Array
    row: Array
    column: Array
    weight: Array


def _count(source: Source) -> tuple[Array, Rest | None]:
    """Return the length of each row of the result, 0 for rows of the rest."""
    rows, count = source.rows, source.count
    lengths = cp.zeros(count, cp.int64)
    if not rows.entries:
        return lengths, None
    entries, ends = _entries(source)
    module, first = _module(_kind(rows), _kind_of_sums(rows)), np.int32(source.first)
    own = source.arguments
    grid = (max(1, min(-(-count // THREADS), 16 * multiprocessors())),)
    module.get_function("count_short")(grid, (THREADS,), (*own, np.int32(count), entries, first, lengths))
    for groups, bits, threads in _listed(entries):
        kernel = module.get_function("count_long")
        listed = (groups, np.int32(len(groups)), entries, first, np.int32(bits))
        _launch(kernel, groups, threads, 4 << bits, (*own, *listed, lengths))
    asked = (entries > LONG) | (lengths < 0)
    which = cp.flatnonzero(asked)
    if not len(which):
        return lengths, None
    lengths[which] = 0
    return lengths, _sorted_rest(source, entries, ends, which)


def _write(source: Source, kind: np.dtype | None, lengths: Array, rest: Rest | None) -> Adjacency:
    rows, count = source.rows, source.count
    if rest is not None:
        lengths[rest.groups] = rest.lengths
    starts = _starts(lengths)
    total = int(starts[-1])
    columns, sums = cp.empty(total, cp.int32), None if kind is None else cp.empty(total, kind)
    if not total:
        return Adjacency(source.first, starts, columns, sums)
    entries, _ = _entries(source)
    if rest is not None:
        entries[rest.groups] = 0  # these are copied
    module, first = _module(_kind(rows), kind), np.int32(source.first)
    own, out = source.arguments, (starts, columns, or_null(sums))
    grid = (max(1, min(-(-count // THREADS), 16 * multiprocessors())),)
    module.get_function("write_short")(grid, (THREADS,), (*own, np.int32(count), entries, first, *out))
    size = 4 + (0 if kind is None else kind.itemsize)
    for groups, bits, threads in _listed(cp.where(entries > SHORT, cp.maximum(lengths, SHORT + 1), 0)):
        kernel = module.get_function("write_long")
        listed = (groups, np.int32(len(groups)), entries, first, np.int32(bits))
        _launch(kernel, groups, threads, size << bits, (*own, *listed, *out))
    if rest is not None:
        gap = cp.empty(count, cp.int64)  # from a pair's place in the rest to its place in the result
        gap[rest.groups] = starts[rest.groups] - cp.cumsum(rest.lengths) + rest.lengths
        places = gap[rest.row] + cp.arange(len(rest.row))
        columns[places] = rest.column
        if sums is not None:
            sums[places] = rest.weight
    return Adjacency(source.first, starts, columns, sums)


def _entries(source: Source) -> tuple[Array, Array]:
    """Return the number of entries of each group, and of all members up to each, in their order."""
    lengths = cp.diff(source.rows.starts)
    if source.members is None:
        return lengths, source.rows.starts[1:]
    ends = cp.cumsum(lengths[source.members], dtype=cp.int64)
    edges = cp.concatenate([cp.zeros(1, cp.int64), ends])[source.begins]
    return cp.diff(edges), ends


def _listed(entries: Array) -> Iterator[tuple[Array, int, int]]:
    """Yield the rows of a class of lengths for which blocks have tables, with the bits of these and the threads."""
    least = SHORT
    longest = int(entries.max()) if len(entries) else 0
    for bits, most, threads in TABLES:
        if longest > least:
            groups = cp.flatnonzero((entries > least) & (entries <= most))
            if len(groups):
                yield groups, bits, threads
        least = most


def _sorted_rest(source: Source, entries: Array, ends: Array, which: Array) -> Rest:
    """Sum the entries of some groups by sorting their keys."""
    sizes = entries[which]
    stops = ends[source.begins[which + 1] - 1] if source.begins is not None else ends[which]
    piece = (cp.cumsum(sizes) - 1) // BATCH  # pieces bound the memory of the sort
    cuts = cp.asnumpy(cp.flatnonzero(cp.diff(piece))) + 1
    parts = []
    for start, stop in pairwise([0, *cuts.tolist(), len(which)]):
        parts.append(_sorted_piece(source, ends, which[start:stop], sizes[start:stop], stops[start:stop]))
    row, column, weight = (cp.concatenate(each) if len(each) > 1 else each[0] for each in zip(*parts, strict=True))
    found = [cp.searchsorted(row, which.astype(cp.int32), side=side) for side in ("left", "right")]
    return Rest(which, found[1] - found[0], row, column, weight)


def _sorted_piece(source: Source, ends: Array, which: Array, sizes: Array, stops: Array) -> tuple[Array, Array, Array]:
    rows = source.rows
    m = int(sizes.sum())
    if m > MAX_ENTRIES:
        raise InsufficientMemoryError(
            f"one GPU would have to sort {m} neighbours at once, but can sort at most {MAX_ENTRIES}; use more GPUs."
        )
    # A key's place: the place of its group, plus its place among all entries of the group.
    offsets, before = cp.full(source.count, -1, cp.int64), cp.zeros(source.count, cp.int64)
    offsets[which], before[which] = cp.cumsum(sizes) - sizes, stops - sizes
    kind = _kind(rows)
    bits = 0 if kind is None else weight_bits(source.columns, bins(rows).largest)
    keys = cp.empty(m, cp.int64)
    beside = None if kind is None or bits else cp.empty(m, kind)
    module = _module(kind, None)
    members = rows.rows if source.members is None else len(source.members)
    for by_block in (False, True):
        arguments: tuple[Any, ...] = (
            np.int64(members),
            or_null(source.groups),
            ends,
            offsets,
            before,
            np.int64(source.columns),
        )
        arguments += (np.int32(source.first), np.int32(bits), np.bool_(by_block), keys, or_null(beside))
        grid = (16 * multiprocessors(),)
        module.get_function("keys_of_groups")(grid, (THREADS,), (*source.arguments, *arguments))
    return _sum_keys(keys, beside, source.columns, bits, _kind_of_sums(rows))


def _sum_keys(keys: Array, weight: Array | None, count: int, bits: int, kind: np.dtype) -> tuple[Array, Array, Array]:
    """Sort keys of (row, column, weight), and sum the weights of equal pairs."""
    m = len(keys)
    if not m:
        none = cp.empty(0, cp.int32)
        return none, none.copy(), cp.empty(0, kind)
    order = None
    if weight is not None:  # the keys have no bits left for the weights
        order = cp.argsort(keys)
        keys = keys[order]
    else:
        keys.sort()
    heads, counts = cp.empty(m, cp.int32), cp.zeros(2, cp.int64)
    by_rows_module = functions(kind)
    _over_all(functions(None), "pair_heads", m, keys, np.int32(bits), heads, counts)
    slot = cp.cumsum(heads, dtype=cp.int32)
    pairs = int(counts[1])
    row, column, sums = cp.empty(pairs, cp.int32), cp.empty(pairs, cp.int32), cp.zeros(pairs, kind)
    arguments = (keys, np.int32(bits), slot, or_null(weight), or_null(order), np.int64(count))
    _over_all(by_rows_module, "pair_sums", m, *arguments, row, column, sums)
    return row, column, sums


def _starts(lengths: Array) -> Array:
    starts = cp.zeros(len(lengths) + 1, cp.int64)
    cp.cumsum(lengths, out=starts[1:])
    return starts


def _kind(rows: Adjacency) -> np.dtype | None:
    return None if rows.weights is None else rows.weights.dtype


def _module(kind: np.dtype | None, sums: np.dtype | None) -> Any:
    """Return the kernels for weights of type `kind` (None: all are 1) and sums of type `sums`."""
    out = 32 if sums is None else 8 * sums.itemsize
    return compiled("graph/contraction.cu", "float64", WEIGHT=0 if kind is None else 8 * kind.itemsize, OUT=out)


def _launch(kernel: Any, groups: Array, threads: int, shared: int, arguments: tuple[Any, ...]) -> None:
    """Launch a kernel with one block for each listed row, as many as fit at once."""
    kernel.max_dynamic_shared_size_bytes = max(shared, kernel.max_dynamic_shared_size_bytes)
    at_once = 2048 // threads * multiprocessors()
    kernel((min(len(groups), 4 * at_once),), (threads,), arguments, shared_mem=shared)


def _over_all(module: Any, name: str, items: int, *arguments: Any) -> None:
    """Launch a kernel over all elements."""
    if items:
        grid = (min(-(-items // THREADS), 64 * multiprocessors()),)
        module.get_function(name)(grid, (THREADS,), (np.int64(items), *arguments))
