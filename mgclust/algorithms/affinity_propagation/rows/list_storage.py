"""Storage of a rank's neighbour lists: lists are created, extended, shortened and moved.

`mgclust.kernels.affinity_propagation.sparse_forms.listed` defines what a list holds. `listed_rows` decides when lists
change.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from mgclust.algorithms.affinity_propagation.rows.list_pace import PACES
from mgclust.algorithms.affinity_propagation.rows.message_rows import MessageRows, vector_bytes
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import BLOCK_BYTES, Similarities
from mgclust.base.errors import InsufficientMemoryError
from mgclust.engine.memory import human
from mgclust.engine.spmd import Context
from mgclust.kernels.affinity_propagation.messages import PADDING, RECENT_ARGMAXES
from mgclust.kernels.affinity_propagation.sparse_forms.listed import ListedMessages, load_lists

__all__ = ["LIST_GROWTH", "SHORTEST_LIST", "StoredLists", "first_length"]

Array = Any
SAMPLE_COLUMNS = 1024  # number of columns from which a row's similarity at a given list length is estimated
# First length of a list: this fraction of a row, within limits.
LIST_SHARE = 1 / 50
SHORTEST_LIST, LONGEST_LIST = 48, 400
ROOM = 1.25  # size of the arrays of all lists, relative to their contents
TIGHT_GROWTH = 1.125  # length of a list relative to its elements in use, once memory has been short
LIST_GROWTH = 1.5  # length of an extended list, relative to the length that is needed
MAX_TIMES = 20  # extensions of a row beyond this number do not increase its growth
LARGE = 1 << 30  # if moved lists have more bytes than this, the freed memory is given back to the device
PAYS = 2.0  # lists are shortened only if they are more than this many times as long as the shortened lists


class StoredLists(MessageRows):
    """Neighbour lists in three arrays that hold all lists: columns, similarities and availabilities."""

    messages: ListedMessages

    def __init__(self, context: Context, similarities: Similarities) -> None:
        super().__init__(context, similarities)
        self._kernels, self._pace = load_lists(context.kernels.device), PACES[context.kernels.device]
        xp, n, m, dtype = context.kernels.xp, context.dataset_shape[0], len(context.rows), context.dtype
        vectors = self.vectors(n)
        if context.size > 1:  # undecided rows need the local sums again
            vectors["totals"] = xp.zeros_like(vectors["sums"])
        self.messages = ListedMessages(
            **vectors,
            begin=xp.zeros(m, "int64"),
            length=xp.zeros(m, "int64"),
            own=xp.zeros(m, "int64"),
            floor=xp.zeros(m, dtype),
            column=xp.zeros(0, "int32"),
            s=xp.zeros(0, dtype),
            a=xp.zeros(0, dtype),
            a_column=xp.zeros(n, dtype),
            recent_place=xp.full((m, RECENT_ARGMAXES), -1, "int32"),
            recent_s=xp.zeros((m, RECENT_ARGMAXES), dtype),
            active=xp.zeros(0, "int32"),
            active_s=xp.zeros((m, 0), dtype),
            outside=xp.zeros(2, f"uint{8 * dtype.itemsize}"),
            wanted=xp.zeros(m, dtype),
            slack=xp.zeros(m, dtype),
            read=xp.zeros(m, "int64"),
            undecided=xp.zeros(m, "uint8"),
        )
        self._used = 0  # number of used elements of the arrays
        self._rows, self._asked = xp.arange(m), xp.zeros(m)  # `_asked`: how often each list was extended
        self._tight = False  # whether memory has been short

    def _first_lists(self) -> None:
        n, m = self.messages.n, len(self._rows)
        columns = -(-n // _sample_step(n))
        self._reserve(int(1.1 * m * (n / columns * (math.ceil(first_length(n) * columns / n) + 1) + PADDING / 2)))
        for start, s in self.similarities.blocks():
            self._list(self._rows[start : start + len(s)], s, self._floors(s, None))

    def _make_lists(self, rows: Array, wanted: Array) -> None:
        """Make new lists for some rows, with at least all similarities >= `wanted`; own elements stay."""
        # `wanted` is rounded, so R may still be positive at `wanted` itself.
        wanted = wanted - abs(wanted) * 4 * np.finfo(self.context.dtype).eps
        step = self.similarities.rows_at_once()
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            s = self.similarities.of_rows(part)
            asked = self.context.kernels.xp.minimum(self._asked[part], MAX_TIMES)
            growth = TIGHT_GROWTH if self._tight else LIST_GROWTH ** (1 + asked)
            self._asked[part] += 1
            self._list(part, s, self._floors(s, wanted[start : start + step], growth))

    def _list(self, rows: Array, s: Array, low: Array) -> None:
        """Make lists of all similarities >= low."""
        messages, kernels, xp = self.messages, self._kernels, self.context.kernels.xp
        counts = xp.empty(len(rows), "int64")
        kernels.count_similar(s, low, out=counts)
        room = _padded(counts)
        total = int(room.sum())
        messages.length[rows] = xp.where(messages.own[rows] > 0, messages.length[rows], 0)
        self._reserve(total)
        begin = self._used + xp.cumsum(room) - room
        self._used += total
        kernels.list_similar(s, low, begin, column=messages.column, out=messages.s)
        kernels.move_own(rows, messages.begin[rows], begin, counts, messages.own, messages.a)
        lowest = np.finfo(s.dtype).min
        messages.begin[rows], messages.length[rows] = begin, counts
        messages.floor[rows] = xp.where(low > lowest, low, -xp.inf)

    def _floors(self, s: Array, wanted: Array | None, growth: Array = LIST_GROWTH) -> Array:
        """Return the similarity down to which each list should reach, from the needed length plus some margin."""
        xp, n = self.context.kernels.xp, self.messages.n
        lowest = np.finfo(s.dtype).min
        sample = s[:, : n : _sample_step(n)]
        length = xp.full(len(s), first_length(n))
        if wanted is not None:
            self._kernels.count_similar(s, xp.maximum(wanted, lowest), out=length)
            most = xp.maximum(LIST_GROWTH * length, 0 if self._tight else self._pace.long_list)
            length = xp.minimum(growth * length, most).astype("int64") + 16
        place = sample.shape[1] - 1 - -(-length * sample.shape[1] // n)
        if wanted is None:
            whole, kth = place[0] < 0, max(int(place[0]), 0)
            low = xp.full(len(s), lowest) if whole else xp.partition(sample, kth, axis=1)[:, kth]
            return xp.maximum(low, lowest)
        low = xp.where(place < 0, lowest, xp.sort(sample, axis=1)[xp.arange(len(s)), xp.maximum(place, 0)])
        return xp.maximum(xp.minimum(low, wanted), lowest)

    def _remake(self, wanted: Array, counts: Array, columns: Array, values: Array) -> None:
        """Replace all lists by lists of all similarities >= `wanted`; own elements are given by their columns."""
        messages, xp = self.messages, self.context.kernels.xp
        self._used = 0
        messages.length[:] = messages.own[:] = 0
        ends = np.cumsum(self.context.kernels.memory.to_host(counts))
        step = self.similarities.rows_at_once()
        for start in range(0, len(self._rows), step):
            rows = self._rows[start : start + step]
            s = self.similarities.of_rows(rows)
            self._list(rows, s, xp.maximum(wanted[rows], np.finfo(s.dtype).min))
            recent = messages.recent_argmax[rows]
            messages.recent_s[rows] = xp.where(recent >= 0, xp.take_along_axis(s, xp.maximum(recent, 0), axis=1), 0)
            part = slice(int(ends[start - 1]) if start else 0, int(ends[start + len(rows) - 1]))
            self._kernels.place_own(messages, rows, counts[rows], columns[part], values[part])
        if len(messages.active):
            messages.active_s = self.similarities.of_columns(self._rows, messages.active)

    def _drop_beyond(self, keep: Array) -> None:
        """Shorten lists to `keep` elements, and make their arrays smaller, if this frees enough memory."""
        messages, xp = self.messages, self.context.kernels.xp
        keep = xp.maximum(keep, first_length(messages.n))
        kept = int(_padded(xp.minimum(keep, messages.length)).sum())
        saved = len(messages.column) - kept
        room = int(ROOM * kept)
        if saved > (PAYS - 1) * kept and self._bytes(saved) > self._pace.least_saved and room <= self._largest_room():
            self._shorten(keep)
            self._move_lists(max(room, int(_padded(messages.length).sum())))

    def _shorten(self, keep: Array) -> None:
        """Shorten lists to `keep` elements, but to no fewer than the own elements plus one; ties stay together.

        If a row needs more elements later, it is undecided, and its list is extended again.
        """
        messages, xp = self.messages, self.context.kernels.xp
        keep = xp.maximum(keep, messages.own + 1)
        rows = xp.flatnonzero(keep < messages.length)
        if not len(rows):
            return
        self.shortened += 1
        begin, low, high = messages.begin[rows], keep[rows], messages.length[rows]
        floor = xp.maximum(messages.s[begin + low - 1], messages.floor[rows])
        last = high - 1
        for _ in range(int(high.max()).bit_length()):  # bisect for the first similarity below `floor`
            middle = xp.minimum((low + high) // 2, last)
            above = (low < high) & (messages.s[begin + middle] >= floor)
            low, high = xp.where(above, middle + 1, low), xp.where(above | (low == high), high, middle)
        messages.floor[rows] = xp.where(low <= last, floor, messages.floor[rows])
        messages.length[rows] = low

    def _reserve(self, more: int) -> None:
        """Make room for `more` elements after the elements in use; gaps between lists may be filled."""
        messages, xp = self.messages, self.context.kernels.xp
        if self._used + more <= len(messages.column):
            return
        # New arrays are at least as large as before, so that they can reuse the memory of old arrays.
        needed, most = int(_padded(messages.length).sum()) + more, self._largest_room()
        room = max(int(ROOM * needed), len(messages.column))
        if room > most:  # drop elements that no row needs now, and keep lists tight from now on
            self._tight = True
            in_use = messages.own + xp.maximum(messages.read, 0)
            self._shorten((TIGHT_GROWTH * in_use).astype("int64") + PADDING)
            needed, room = (
                int(_padded(messages.length).sum()) + more,
                most,
            )  # all memory, because no second move would fit
            if needed <= len(messages.column):
                self._close_gaps()
                return
        if room < needed:
            raise self._too_large(needed)
        self._move_lists(room)

    def _close_gaps(self) -> None:
        """Move all lists to the beginning of their arrays, without second arrays of the same size."""
        messages, xp, step = self.messages, self.context.kernels.xp, BLOCK_BYTES[self.context.kernels.device] // 16
        order = xp.argsort(messages.begin)
        lengths = _padded(messages.length)[order]
        ends = self.context.kernels.memory.to_host(xp.cumsum(lengths))
        to, start, done = xp.cumsum(lengths) - lengths, 0, 0
        while start < len(ends):  # in storage order, so that no list is overwritten before it has moved
            stop = max(start + 1, int(np.searchsorted(ends, done + step, side="right")))
            rows, end = order[start:stop], int(ends[stop - 1])
            part = replace(messages, begin=messages.begin[rows], length=messages.length[rows])
            for name in ("column", "s", "a"):
                values = getattr(messages, name)
                piece = xp.empty(end - done, values.dtype)
                self._kernels.move_lists(part, to[start:stop] - done, values=values, out=piece)
                values[done:end] = piece
            messages.begin[rows] = to[start:stop]
            start, done = stop, end
        self._used = done

    def _largest_room(self) -> int:
        """Return the number of elements of the largest arrays that can replace the present arrays one by one."""
        (n, d), itemsize = self.context.dataset_shape, self.context.dtype.itemsize
        block = self.similarities.rows_at_once() * n * itemsize  # similarities from which lists are made
        beside = 2 * block + 2 * self.messages.active_s.nbytes + n * d * itemsize
        beside += vector_bytes(n, len(self.context.rows), itemsize)
        free, before = self.context.free - beside, len(self.messages.column)
        last = (free - self.context.dtype.itemsize * before) // self._bytes(1)
        return int(min((free - self._bytes(before)) // 4, last))

    def _move_lists(self, room: int) -> None:
        """Move all lists without gaps into arrays of `room` elements."""
        messages, xp = self.messages, self.context.kernels.xp
        lengths, before = _padded(messages.length), len(messages.column)
        begin = xp.cumsum(lengths) - lengths
        for name in ("column", "s", "a"):
            values = getattr(messages, name)
            try:
                out = xp.empty(room, values.dtype)
            except MemoryError:  # enough memory is free, but it is fragmented
                raise self._too_large(room) from None
            self._kernels.move_lists(messages, begin, values=values, out=out)
            setattr(messages, name, out)
            del values, out
            if room != before and self._bytes(max(room, before)) > LARGE:
                self.context.kernels.memory.give_back()
        messages.begin, self._used = begin, int(lengths.sum())

    def _too_large(self, room: int) -> InsufficientMemoryError:
        return InsufficientMemoryError(
            f"not enough memory: the neighbour lists of {len(self._rows)} rows need {human(self._bytes(room))}, "
            f"{human(self.context.free)} is free; use more workers, fewer rows, a higher preference, "
            "n_clusters_range=(low, high) to end a scan earlier, or algorithm='dense' if two n x n matrices fit."
        )

    def _bytes(self, elements: int) -> int:
        return elements * (4 + 2 * self.context.dtype.itemsize)


def first_length(n: int) -> int:
    """Return the first length of a list, for rows of n elements."""
    return int(max(SHORTEST_LIST, min(LIST_SHARE * n, LONGEST_LIST)))


def _sample_step(n: int) -> int:
    """Return the distance between two sampled columns of a row."""
    return n // min(n, SAMPLE_COLUMNS)


def _padded(lengths: Array) -> Array:
    """Return the number of elements that lists occupy, with padding."""
    return (lengths + PADDING - 1) // PADDING * PADDING
