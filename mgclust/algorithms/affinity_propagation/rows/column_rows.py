"""A rank's rows of the messages as a few columns, once lists would hold too many pairs.

Why the numbers are those of all elements bit for bit stands in
`mgclust.kernels.affinity_propagation.sparse_forms.columns`. Here columns are taken where rows are undecided, and the
course of the iterations is kept, from which their A follows.

Few clusters are left then. A scan does not come back to many, so this form is not left again, and it is not saved: a
run resumes from what its lists have saved.
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
FIRST_COLUMNS = 64  # that are taken at first, and at least whenever more are
SPAN = 64  # iterations of a part of the course


@dataclass
class IterationRange:
    """A part of the course: sigma, damping, c and u of some iterations, as the update of A had them."""

    c: Array  # shape (SPAN, n)
    u: Array  # shape (SPAN, own rows)
    draws: int  # of the noise on similarities
    sigmas: list[float]
    dampings: list[float]


class ColumnRows(MessageRows):
    """Few columns: memory and time for those that decide, and all similarities again in each iteration.

    Parameters
    ----------
    lists : ListedRows
        The messages so far, between two iterations; the lists are taken over, and their similarities dropped.
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
        # Where columns took the place of a list, its most similar element is still the first.
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
        # Whoever holds the lists still shall not hold these.
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
            # At most twice as many columns at a time: with each, fewer may be needed.
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
        # 64-bit integers, since CuPy would compile the sum of a mask; see `masks`.
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
        """Add all positive R without E to the own sums."""
        u = self.messages.u.astype(self.context.dtype)
        self.similarities.add_positive(u, numbers.next_sigma, numbers.scale, self.messages.sums)

    def _remember(self, sigma: float, damping: float) -> None:
        """Keep what the update of A, which comes next, is made of."""
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
        """Keep that many more columns, those with the largest a(k)."""
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
        # Recent elements of new columns were recent in the beginning.
        place = xp.where(messages.recent_argmax >= 0, where[xp.maximum(messages.recent_argmax, 0)], -1)
        rows, recent = xp.nonzero(place >= 0)
        a[rows, before + place[rows, recent]] = -np.inf
        messages.recent_place[rows, recent] = before + place[rows, recent]
        messages.s, messages.a, messages.columns = s, a, xp.concatenate([messages.columns, columns])
        self._taken[columns] = True

    def _replayed(self, part: slice, columns: Array, where: Array) -> tuple[Array, Array]:
        """S, and A by now, of some rows and columns."""
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
        """Number of rows that are looked at together."""
        return max(1, BLOCK_BYTES[self.context.kernels.device] // (16 * max(1, columns)))

    def _check(self, more: int) -> None:
        """Refuse what does not fit."""
        messages = self.messages
        arrays = (self._column, self._values, messages.s, messages.a, messages.recent_argmax)
        spans = sum(each.c.nbytes + each.u.nbytes for each in self._spans)
        needed = sum(each.nbytes for each in arrays) + spans + more
        if needed > self.context.free:
            raise InsufficientMemoryError(
                f"not enough memory: {len(messages.columns)} columns, and the course of "
                f"{sum(len(each.sigmas) for each in self._spans)} iterations, of {len(self._rows)} rows need "
                f"{human(needed)}, there are {human(self.context.free)}. What would fit: more workers, "
                "n_clusters_range=(low, n) of a scan, which ends it at fewer clusters than that, or fewer rows."
            )
