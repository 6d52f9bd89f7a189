"""A rank's rows of the messages as a few columns, which replace lists that would hold too many pairs.

`mgclust.kernels.affinity_propagation.sparse_forms.columns` shows why the results are bitwise identical to results from
all elements. This module adds columns if rows are undecided. It also keeps the history of the iterations (c, u, sigma
and damping), from which A of a new column is computed.

Few clusters are left at this stage, and a scan does not return to many clusters. So rows never change to another form
again. Columns are not saved; a run resumes from the last checkpoint of its lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mgclust.algorithms.affinity_propagation.rows.computed_similarities import ComputedSimilarities
from mgclust.algorithms.affinity_propagation.rows.message_rows import SPARSE, MessageRows
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import (
    BLOCK_BYTES,
    LATER_NOISE,
)
from mgclust.base.errors import InsufficientMemoryError
from mgclust.engine.memory import human
from mgclust.kernels.affinity_propagation.messages import Iteration, Vectors
from mgclust.kernels.affinity_propagation.sparse_forms.columns import ColumnMessages, load_columns
from mgclust.kernels.affinity_propagation.sparse_forms.listed import load_lists
from mgclust.kernels.masks import count_true

if TYPE_CHECKING:
    from mgclust.algorithms.affinity_propagation.rows.listed_rows import ListedRows

__all__ = ["ColumnRows"]

Array = Any
FIRST_COLUMNS = 64  # number of columns at first, and smallest number that is added
SPAN = 64  # number of iterations in a part of the history


@dataclass
class IterationRange:
    """Part of the iteration history: sigma, damping, c and u of some iterations, as the update of A used them."""

    c: Array  # shape (SPAN, n)
    u: Array  # shape (SPAN, own rows)
    draws: int  # number of later draws of noise on similarities
    sigmas: list[float]
    dampings: list[float]


class ColumnRows(MessageRows):
    """Rows as few columns: store only the columns that decide, and compute all similarities again in each iteration.

    Parameters
    ----------
    lists : ListedRows
        Messages so far, between two iterations. Their own elements are taken over; their similarities are dropped.
    """

    name = SPARSE
    of_rows = ()
    recent: ClassVar[dict[str, int]] = {**MessageRows.recent, "recent_place": -1, "recent_s": 0}
    can_be_saved = False
    messages: ColumnMessages
    similarities: ComputedSimilarities

    def __init__(self, lists: ListedRows) -> None:
        super().__init__(lists.context, lists.similarities)
        old, xp, m = lists.messages, self.context.kernels.xp, len(self.context.rows)
        self._kernels = load_columns(self.context.kernels.device)
        self._rows = xp.arange(m)
        self._begin, self._own, self._column, self._values = old.begin, old.own, old.column, old.a
        self._beginning = old.a_column.copy()
        self._spans: list[IterationRange] = []
        self._taken = xp.zeros(old.n, bool)
        self._finished = int(old.progress[1])
        self.searched, self.shortened, self._filled = lists.searched, lists.shortened, lists._filled
        # Similarity of each row's nearest element: the first of its list, or the floor if the list is empty.
        nearest = xp.where(old.length > 0, old.s[xp.minimum(old.begin, len(old.s) - 1)], old.floor)
        self.messages = ColumnMessages(
            **{name: getattr(old, name) for name in Vectors.__dataclass_fields__},
            a_column=old.a_column,
            recent_place=xp.full_like(old.recent_place, -1),
            recent_s=old.recent_s,
            columns=xp.zeros(0, "int32"),
            s=xp.zeros((m, 0), self.context.dtype),
            a=xp.zeros((m, 0), self.context.dtype),
            nearest=nearest,
            slack=xp.zeros(m, self.context.dtype),
            undecided=xp.zeros(m, "uint8"),
        )
        # Free these arrays even if a caller still refers to the lists.
        old.s, old.active_s = xp.zeros(0, self.context.dtype), xp.zeros((m, 0), self.context.dtype)
        self.context.kernels.memory.give_back()
        self._take(max(FIRST_COLUMNS, 2 * len(old.active)))
        old.active = xp.zeros(0, "int32")

    def pass_rows(self, numbers: Iteration) -> None:
        """See `MessageRows`."""
        self._remember(numbers.sigma, numbers.damping)
        self._kernels.finish_columns(self.messages, damping=numbers.damping)
        self._pass(self._rows, numbers, again=False)
        if not int(self.messages.sums[-1]):
            self._add_positive(numbers)

    def halted(self) -> bool:
        """See `MessageRows`."""
        return bool(self.messages.progress[0])

    def finished(self, queued: int) -> int:
        """See `MessageRows`."""
        done = int(self.messages.progress[1]) - self._finished
        self._finished += done
        return done

    def decide(self, numbers: Iteration) -> None:
        """See `MessageRows`."""
        messages, xp = self.messages, self.context.kernels.xp
        rows = xp.flatnonzero(messages.undecided)
        self.searched += len(rows)
        late = len(rows) > 0
        while len(rows):
            # At most double the number of columns at a time, because new columns may decide more rows than expected.
            slack, most = float(messages.slack[rows].min()), max(FIRST_COLUMNS, len(messages.columns))
            needed = count_true(~self._taken & (messages.a_column >= slack)) + 16
            self._take(min(most, needed))
            self._pass(rows, numbers, again=True)
            rows = rows[messages.undecided[rows] > 0]
        messages.sums[-1] = 0
        if late:
            self._add_positive(numbers)
        messages.progress[0] = 0

    def kept(self) -> int:
        """See `MessageRows`."""
        return int(self._own.sum()) + self.messages.s.size

    def nearest(self, exemplars: np.ndarray) -> tuple[Array, Array]:
        """See `MessageRows`."""
        xp, m = self.context.kernels.xp, len(self._rows)
        columns, found = xp.asarray(exemplars), xp.zeros(m, "int32")
        similarity, step = xp.zeros(m, self.context.dtype), self._rows_of(len(exemplars))
        for start in range(0, m, step):
            s = self.similarities.of_columns(self._rows[start : start + step], columns)
            best = s.argmax(axis=1)
            found[start : start + step], similarity[start : start + step] = best, s[xp.arange(len(s)), best]
        return found, similarity

    def noise_added(self) -> None:
        """See `MessageRows`."""
        messages, kernels, xp = self.messages, load_lists(self.context.kernels.device), self.context.kernels.xp
        limits, nearest = np.finfo(self.context.dtype), messages.nearest
        messages.nearest = nearest + abs(nearest) * 4 * limits.eps + 4000 * limits.tiny
        numbers = self._rows + self.context.rows.start
        seed, draw = self.similarities.seed, self.similarities.draws
        kernels.jitter_pairs(messages.s, numbers, messages.columns, seed=seed, draw=draw, tiny=LATER_NOISE)
        filled = messages.recent_argmax >= 0
        # 64-bit integers, because CuPy would compile a kernel for the sum of a mask; see `masks`.
        bounds = xp.concatenate([xp.zeros(1, "int64"), xp.cumsum(filled.astype("int64").sum(axis=1))])
        s = messages.recent_s[filled]
        columns = messages.recent_argmax[filled]
        kernels.jitter_lists(s, bounds, numbers, columns, seed=seed, draw=draw, tiny=LATER_NOISE)
        messages.recent_s[filled] = s

    def _pass(self, rows: Array, numbers: Iteration, *, again: bool) -> None:
        messages, xp = self.messages, self.context.kernels.xp
        outside = float(xp.where(self._taken, -np.inf, messages.a_column).max())
        self._kernels.pass_column_rows(messages, rows, numbers, again=again, outside=outside)

    def _add_positive(self, numbers: Iteration) -> None:
        """Add all positive R, without E, to the local sums."""
        u = self.messages.u.astype(self.context.dtype)
        self.similarities.add_positive(u, numbers.next_sigma, numbers.scale, self.messages.sums)

    def _remember(self, sigma: float, damping: float) -> None:
        """Store the values from which the next update of A is made."""
        messages, xp, dtype, draws = self.messages, self.context.kernels.xp, self.context.dtype, self.similarities.draws
        if not self._spans or self._spans[-1].draws != draws or len(self._spans[-1].sigmas) == SPAN:
            self._check(2 * SPAN * (messages.n + len(self._rows)) * dtype.itemsize)
            c, u = xp.empty((SPAN, messages.n), dtype), xp.empty((SPAN, len(self._rows)), dtype)
            self._spans.append(IterationRange(c, u, draws, [], []))
        span = self._spans[-1]
        at = len(span.sigmas)
        span.c[at], span.u[at] = messages.c[: messages.n], messages.u.astype(dtype)
        span.sigmas.append(sigma)
        span.dampings.append(damping)

    def _take(self, count: int) -> None:
        """Store `count` more columns: the columns with the largest a(k)."""
        messages, xp, dtype, m = self.messages, self.context.kernels.xp, self.context.dtype, len(self._rows)
        order = xp.argsort(xp.where(self._taken, np.inf, -messages.a_column))
        columns = xp.sort(order[: min(count, messages.n - len(messages.columns))]).astype("int32")
        before = len(messages.columns)
        self._check(2 * m * (before + len(columns)) * dtype.itemsize * 2)
        s, a = (xp.empty((m, before + len(columns)), dtype) for _ in range(2))
        s[:, :before], a[:, :before] = messages.s, messages.a
        where = xp.full(messages.n, -1, "int32")
        where[columns] = xp.arange(len(columns), dtype="int32")
        step = self._rows_of(len(columns))
        for start in range(0, m, step):
            part = slice(start, min(start + step, m))
            s[part, before:], a[part, before:] = self._replayed(part, columns, where)
        # Recent elements in new columns are stored elsewhere, which -inf in A marks.
        place = xp.where(messages.recent_argmax >= 0, where[xp.maximum(messages.recent_argmax, 0)], -1)
        rows, recent = xp.nonzero(place >= 0)
        a[rows, before + place[rows, recent]] = -np.inf
        messages.recent_place[rows, recent] = before + place[rows, recent]
        messages.s, messages.a, messages.columns = s, a, xp.concatenate([messages.columns, columns])
        self._taken[columns] = True

    def _replayed(self, part: slice, columns: Array, where: Array) -> tuple[Array, Array]:
        """Return S of some rows and columns, and A after all iterations so far."""
        xp, similarities, rows = self.context.kernels.xp, self.similarities, self._rows[part]
        a = xp.repeat(self._beginning[columns][None], len(rows), axis=0)
        self._kernels.place_listed(self._begin[part], self._own[part], self._column, self._values, where, a)
        ends = [at for at, (one, then) in enumerate(pairwise(self._spans), 1) if one.draws != then.draws]
        for start, stop in pairwise([0, *ends, len(self._spans)]):
            spans = self._spans[start:stop]
            s = similarities.of_columns(rows, columns, spans[0].draws if spans else None)
            for span in spans:
                count = len(span.sigmas)
                c = xp.ascontiguousarray(span.c[:count, columns])
                self._kernels.replay(s, a, c, span.u[:count], part.start, span.sigmas, span.dampings)
        if self._spans and self._spans[-1].draws != similarities.draws:
            s = similarities.of_columns(rows, columns)
        return s, a

    def _rows_of(self, columns: int) -> int:
        """Return the number of rows that are processed together."""
        return max(1, BLOCK_BYTES[self.context.kernels.device] // (16 * max(1, columns)))

    def _check(self, more: int) -> None:
        """Raise `InsufficientMemoryError` if `more` bytes do not fit."""
        messages = self.messages
        arrays = (self._column, self._values, messages.s, messages.a, messages.recent_argmax)
        spans = sum(each.c.nbytes + each.u.nbytes for each in self._spans)
        needed = sum(each.nbytes for each in arrays) + spans + more
        if needed > self.context.free:
            raise InsufficientMemoryError(
                f"not enough memory: {len(messages.columns)} columns and "
                f"{sum(len(each.sigmas) for each in self._spans)} iterations of {len(self._rows)} rows need "
                f"{human(needed)}, {human(self.context.free)} is free; use more workers or fewer rows, or give "
                "n_clusters_range=(low, high): the scan then ends below the number low of clusters."
            )
