"""A rank's rows of the messages as neighbour lists, for the elements that matter.

What lists hold, and why the numbers are those of all elements bit for bit, stands in
`mgclust.kernels.affinity_propagation.listed`. Here lists are made, made longer where a row is undecided, and given up
for all elements where those are cheaper.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from mgclust.algorithms.affinity_propagation.message_rows import SPARSE, DenseRows, MessageRows
from mgclust.algorithms.affinity_propagation.similarity_matrix import Similarities
from mgclust.engine.checkpoint import Saved
from mgclust.engine.memory import human
from mgclust.engine.spmd import Context
from mgclust.errors import InsufficientMemoryError
from mgclust.kernels.affinity_propagation.listed import ListedMessages, load_lists
from mgclust.kernels.affinity_propagation.messages import HOT_COLUMNS, PADDING, Vectors, padded

__all__ = ["LIST_GROWTH", "ListedRows", "first_length"]

Array = Any
SAMPLE_COLUMNS = 1024  # columns of a row that tell how similar its nearest ones are
# Length of a list at first: a share of a row, between two numbers.
LIST_SHARE = 1 / 50
SHORTEST_LIST, LONGEST_LIST = 48, 400
LIST_GROWTH = 1.5  # a list is made that much longer than it would have to be
ACTIVE_INTERVAL = 16  # iterations from one choice of active columns to the next
DENSE_PACE = 2.0  # elements of a dense row that are passed in the time of one of a list
PATIENCE = 16.0  # dense iterations' time that lists have cost more than matrices would have, which ends them


class ListedRows(MessageRows):
    """Neighbour lists: memory and time for the elements that matter."""

    name = SPARSE
    of_rows = ("u", "hot_column", "hot_e", "hot_a", "floor")
    replicated = (*MessageRows.replicated, "a_column")
    hot: ClassVar[dict[str, int]] = {**MessageRows.hot, "hot_place": -1, "hot_s": 0}
    messages: ListedMessages

    def __init__(self, context: Context, similarities: Similarities, *, keep_lists: bool) -> None:
        super().__init__(context, similarities)
        self._kernels = load_lists(context.kernels.device)
        self._keep_lists = keep_lists
        xp, n, m, dtype = context.kernels.xp, context.dataset_shape[0], len(context.rows), context.dtype
        self.messages = ListedMessages(
            **self.vectors(n),
            begin=xp.zeros(m, "int64"),
            length=xp.zeros(m, "int64"),
            own=xp.zeros(m, "int64"),
            floor=xp.zeros(m, dtype),
            column=xp.zeros(0, "int32"),
            s=xp.zeros(0, dtype),
            a=xp.zeros(0, dtype),
            a_column=xp.zeros(n, dtype),
            hot_place=xp.full((m, HOT_COLUMNS), -1, "int32"),
            hot_s=xp.zeros((m, HOT_COLUMNS), dtype),
            active=xp.zeros(0, "int32"),
            active_s=xp.zeros((m, 0), dtype),
            wanted=xp.zeros(m, dtype),
            slack=xp.zeros(m, dtype),
            read=xp.zeros(m, "int64"),
            undecided=xp.zeros(m, "uint8"),
        )
        self._used, self._chosen, self._lost = 0, 0, 0.0
        self._rows = xp.arange(m)
        self._first_lists()

    def _first_lists(self) -> None:
        for start, s in self.similarities.blocks():
            self._list(self._rows[start : start + len(s)], s, self._floors(s, None))

    def pass_rows(self, **numbers: float) -> None:
        """See `MessageRows`."""
        messages = self.messages
        self._kernels.pass_listed_rows(messages, self._rows, again=False, **numbers)
        rows = np.flatnonzero(messages.undecided)
        self._chosen += 1
        many = 64 * len(rows) > len(self._rows)
        if self._chosen > ACTIVE_INTERVAL and (many or self._read() > 4 * len(self._rows) + messages.own.sum()):
            self._choose_active()
            if many:
                self._kernels.pass_listed_rows(messages, rows, again=True, **numbers)
                rows = rows[messages.undecided[rows] > 0]
        while len(rows):
            self.searched += len(rows)
            self._make_lists(rows, messages.wanted[rows])
            self._kernels.pass_listed_rows(messages, rows, again=True, **numbers)
            rows = rows[messages.undecided[rows] > 0]

    def reset(self) -> None:
        """See `MessageRows`."""
        super().reset()
        messages = self.messages
        messages.a[...] = -np.inf
        messages.own[...] = messages.a_column[...] = messages.read[...] = messages.undecided[...] = 0
        self._chosen, self._lost = 0, 0.0

    def nearest(self, exemplars: np.ndarray) -> tuple[Array, Array]:
        """See `MessageRows`."""
        xp = self.context.kernels.xp
        found, similarity = self._nearest_listed(exemplars)
        columns, missing = xp.asarray(exemplars), np.flatnonzero(found < 0)
        step = max(1, (4 << 20) // len(exemplars))
        for start in range(0, len(missing), step):
            rows = missing[start : start + step]
            s = self.similarities.of_columns(rows, columns)
            best = s.argmax(axis=1)
            found[rows], similarity[rows] = columns[best], s[xp.arange(len(rows)), best]
        return xp.searchsorted(columns, found).astype("int32"), similarity

    def _nearest_listed(self, exemplars: np.ndarray) -> tuple[Array, Array]:
        """The exemplars that come first in the lists, and their similarities; -1 where a list has none."""
        xp, m = self.context.kernels.xp, len(self._rows)
        flags, found = xp.zeros(self.messages.n, "uint8"), xp.empty(m, "int64")
        similarity = xp.empty(m, self.context.dtype)
        flags[exemplars] = 1
        self._kernels.nearest_flagged(self.messages, flags, out=found, out_s=similarity)
        return found, similarity

    def kept(self) -> int:
        """See `MessageRows`."""
        return int(self.messages.length.sum())

    def noise_added(self) -> None:
        """See `MessageRows`."""
        limits = np.finfo(self.context.dtype)
        floor = self.messages.floor
        wanted = floor - abs(floor) * 4 * limits.eps - 4000 * limits.tiny
        own = self._kernels.gather_own(self.messages, self._rows)
        self._remake(wanted, *own)

    def improved(self, iterations: int) -> MessageRows:
        """See `MessageRows`."""
        messages, m = self.messages, len(self._rows)
        looked = int(messages.own.sum()) + self._read()
        loss = iterations * (DENSE_PACE * looked / max(1, m * messages.n) - 1.0)
        self._lost = max(0.0, self._lost + loss)
        if self._keep_lists:
            return self
        dense = 2 * m * padded(messages.n) * self.context.dtype.itemsize
        fits = dense + self._bytes(len(messages.column)) <= self.context.free
        # All ranks together: a checkpoint holds all rows in one form.
        mine = np.array([int(self._lost > PATIENCE), int(not fits)])
        slow_somewhere, too_large = self.context.comm.all_reduce(mine, "max")
        return self._dense() if slow_somewhere and not too_large else self

    def saved(self) -> tuple[dict[str, np.ndarray], dict[str, Array]]:
        """See `MessageRows`."""
        replicated, rows = super().saved()
        counts, columns, values = self._kernels.gather_own(self.messages, self._rows)
        width = int(counts.max(initial=0))
        column, a = np.full((len(counts), width), -1, "int32"), np.zeros((len(counts), width), values.dtype)
        filled = np.arange(width) < counts[:, None]
        column[filled], a[filled] = columns, values
        return replicated, {**rows, "own_column": column, "own_a": a}

    def restore(self, saved: Saved) -> None:
        """See `MessageRows`."""
        super().restore(saved)
        counts = np.zeros(len(self._rows), "int64")
        columns, values = [np.zeros(0, "int32")], [np.zeros(0, self.context.dtype)]
        for (place, column), (_, a) in zip(saved.rows("own_column"), saved.rows("own_a"), strict=True):
            filled = column >= 0
            counts[place] = filled.sum(axis=1)
            columns.append(column[filled])
            values.append(a[filled])
        self._remake(self.messages.floor, counts, np.concatenate(columns), np.concatenate(values))

    def _dense(self) -> DenseRows:
        """The same messages with all elements."""
        xp, old = self.context.kernels.xp, self.messages
        rows = DenseRows(self.context, self.similarities)
        new = rows.messages
        for name in Vectors.__dataclass_fields__:
            if name != "c":
                setattr(new, name, getattr(old, name))
        new.c[: old.n] = old.c
        new.a[:, : old.n] += old.a_column  # zeros so far, and -inf
        counts, columns, values = self._kernels.gather_own(old, self._rows)
        new.a[np.repeat(self._rows, counts), columns] = values
        filled = old.hot_column >= 0
        new.a[np.repeat(self._rows, filled.sum(axis=1)), old.hot_column[filled]] = -xp.inf
        rows._filled, rows.searched = self._filled, self.searched
        return rows

    def _read(self) -> int:
        """Count the elements behind the own ones that the last pass read in the lists."""
        return int(np.maximum(self.messages.read, 0).sum())

    def _choose_active(self) -> None:
        """Find the columns that must be looked at wherever lists would be read far, unless these are too many."""
        messages, xp = self.messages, self.context.kernels.xp
        self._chosen = 0
        most = max(SHORTEST_LIST, self._read() // len(self._rows))
        for share in (0.005, 0.05, 0.2):
            count = 16 + int(LIST_GROWTH * (messages.a_column >= np.quantile(messages.slack, share)).sum())
            if count <= most:
                break
        else:
            return
        columns = np.sort(xp.argsort(-messages.a_column)[:count]).astype("int32")
        kept = np.isin(columns, messages.active)
        s = xp.empty((len(self._rows), count), self.context.dtype)
        s[:, kept] = messages.active_s[:, np.isin(messages.active, columns)]
        new = columns[~kept]
        step = max(1, (4 << 20) // max(1, len(new)))
        for start in range(0, len(self._rows) if len(new) else 0, step):
            rows = self._rows[start : start + step]
            s[start : start + step, ~kept] = self.similarities.of_columns(rows, new)
        messages.active, messages.active_s = columns, s

    def _make_lists(self, rows: Array, wanted: Array) -> None:
        """Give rows lists that hold at least the similarities wanted; own elements stay."""
        step = self.similarities.rows_at_once()
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            s = self.similarities.of_rows(part)
            self._list(part, s, self._floors(s, wanted[start : start + step]))

    def _list(self, rows: Array, s: Array, low: Array) -> None:
        """Lists of all similarities >= low."""
        messages, kernels, xp = self.messages, self._kernels, self.context.kernels.xp
        counts = xp.empty(len(rows), "int64")
        kernels.count_similar(s, low, out=counts)
        room = _padded(counts)
        total = int(room.sum())
        messages.length[rows] = np.where(messages.own[rows] > 0, messages.length[rows], 0)
        self._reserve(total)
        begin = self._used + np.cumsum(room) - room
        self._used += total
        kernels.list_similar(s, low, begin, column=messages.column, out=messages.s)
        kernels.move_own(rows, messages.begin[rows], begin, counts, messages.own, messages.a)
        lowest = np.finfo(s.dtype).min
        messages.begin[rows], messages.length[rows] = begin, counts
        messages.floor[rows] = np.where(low > lowest, low, -np.inf)

    def _floors(self, s: Array, wanted: Array | None) -> Array:
        """Similarities from which on lists hold the columns: about as many as it takes, and some more."""
        xp, n = self.context.kernels.xp, self.messages.n
        lowest = np.finfo(s.dtype).min
        sample = s[:, : n : max(1, n // SAMPLE_COLUMNS)]
        length = xp.full(len(s), first_length(n))
        if wanted is not None:
            self._kernels.count_similar(s, xp.maximum(wanted, lowest), out=length)
            length = (LIST_GROWTH * length).astype("int64") + 16
        place = sample.shape[1] - 1 - -(-length * sample.shape[1] // n)
        if wanted is None:
            whole, kth = place[0] < 0, max(int(place[0]), 0)
            low = xp.full(len(s), lowest) if whole else xp.partition(sample, kth, axis=1)[:, kth]
            return xp.maximum(low, lowest)
        low = xp.where(place < 0, lowest, xp.sort(sample, axis=1)[xp.arange(len(s)), xp.maximum(place, 0)])
        return xp.maximum(xp.minimum(low, wanted), lowest)

    def _reserve(self, more: int) -> None:
        """Room for so many elements behind those in use; what lists have left behind is given back."""
        messages, xp = self.messages, self.context.kernels.xp
        if self._used + more <= len(messages.column):
            return
        lengths = _padded(messages.length)
        live = int(lengths.sum())
        room = int(1.25 * (live + more))
        if self._bytes(room + live) > self.context.free:
            raise InsufficientMemoryError(
                f"not enough memory: the neighbour lists of {len(self._rows)} rows need {human(self._bytes(room))}, "
                f"there are {human(self.context.free)}. What would fit: more workers, a higher preference (more "
                "clusters, shorter lists), fewer rows, or algorithm='dense' where two n x n matrices fit."
            )
        begin = np.cumsum(lengths) - lengths
        column, s = xp.empty(room, "int32"), xp.empty(room, messages.s.dtype)
        a = xp.empty(room, messages.s.dtype)
        self._kernels.move_lists(messages, begin, column, s, a)
        messages.begin, messages.column, messages.s, messages.a = begin, column, s, a
        self._used = live

    def _remake(self, wanted: Array, counts: Array, columns: Array, values: Array) -> None:
        """Replace all lists by such of all similarities >= `wanted`; own elements are given by their columns."""
        messages = self.messages
        self._used = 0
        messages.length[:] = messages.own[:] = 0
        ends = np.cumsum(counts)
        step = self.similarities.rows_at_once()
        for start in range(0, len(self._rows), step):
            rows = self._rows[start : start + step]
            s = self.similarities.of_rows(rows)
            self._list(rows, s, np.maximum(wanted[rows], np.finfo(s.dtype).min))
            hot = messages.hot_column[rows]
            messages.hot_s[rows] = np.where(hot >= 0, np.take_along_axis(s, np.maximum(hot, 0), axis=1), 0)
            part = slice(ends[start] - counts[start], ends[rows[-1]])
            self._kernels.place_own(messages, rows, counts[rows], columns[part], values[part])
        if len(messages.active):
            messages.active_s = self.similarities.of_columns(self._rows, messages.active)

    def _bytes(self, elements: int) -> int:
        return elements * (4 + 2 * self.context.dtype.itemsize)


def first_length(n: int) -> int:
    """Elements of a list at first, of n."""
    return int(max(SHORTEST_LIST, min(LIST_SHARE * n, LONGEST_LIST)))


def _padded(lengths: Array) -> Array:
    """Elements that lists take up."""
    return (lengths + PADDING - 1) // PADDING * PADDING
