"""A rank's rows of the messages as neighbour lists, which hold only the elements that matter.

`mgclust.kernels.affinity_propagation.sparse_forms.listed` defines what lists hold, and shows why the results are
bitwise identical to results from all elements. This module runs the iterations, and decides when lists change. Lists
become longer if a row is undecided, and shorter if nothing reads some of their elements. They are given up if all
elements or few columns are cheaper. `list_storage` changes the lists.

A row is undecided if its list does not determine its two largest A + S. When an exemplar disappears, an undecided row
may need distant columns, up to its whole row. A few active columns can decide many of these rows instead. So active
columns are chosen again if this needs fewer similarities than longer lists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count
from typing import Any, ClassVar

import numpy as np

from mgclust.algorithms.affinity_propagation.rows.column_rows import ColumnRows
from mgclust.algorithms.affinity_propagation.rows.computed_similarities import ComputedSimilarities
from mgclust.algorithms.affinity_propagation.rows.list_storage import LIST_GROWTH, SHORTEST_LIST, StoredLists
from mgclust.algorithms.affinity_propagation.rows.message_rows import SPARSE, DenseRows, MessageRows
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import (
    BLOCK_BYTES,
    LATER_NOISE,
    Similarities,
)
from mgclust.engine.checkpoint import Ragged, Saved
from mgclust.engine.spmd import Context
from mgclust.kernels.affinity_propagation.messages import PADDING, Iteration, Vectors, padded
from mgclust.kernels.affinity_propagation.sparse_forms.listed import Step
from mgclust.kernels.masks import count_true

__all__ = ["ListedRows"]

Array = Any
WHOLE_AFTER = 2  # after this many rounds of longer lists in one iteration, the whole row is listed
INTERVAL = 16  # iterations between two checks of the cost, and between two choices of active columns
FEWEST_OWN = 1 << 25  # with fewer own elements, few columns save too little memory and time
LOOKS = 8  # number of checks before lists become shorter; elements in use at any of these checks stay
SPARE = 2.0  # length that a shortened list keeps, relative to the elements in use
PAIRS_AT_ONCE = 1 << 22  # pairs of lists whose gains are summed together
FEW_COLUMNS = 4  # active columns are not chosen if the limit of similarities allows fewer columns than this
DENSE_PACE = 2.0  # number of elements of a dense row that take the time of one list element
WAIT_LIMIT = 16.0  # lists are given up if they have lost more time than this many iterations with matrices take


class ListedRows(StoredLists):
    """Rows as neighbour lists, which need memory and time only for the elements that matter."""

    name = SPARSE
    of_rows = ("u", "recent_argmax", "recent_e", "recent_a", "floor")
    replicated = (*MessageRows.replicated, "a_column")
    recent: ClassVar[dict[str, int]] = {**MessageRows.recent, "recent_place": -1, "recent_s": 0}

    def __init__(
        self, context: Context, similarities: Similarities, *, keep_lists: bool, can_end: bool = False
    ) -> None:
        super().__init__(context, similarities)
        self._can_end = can_end and isinstance(similarities, ComputedSimilarities)
        self._keep_lists, self._lost = keep_lists, 0.0
        self._finished = 0  # number of finished iterations
        self._unseen, self._chosen = 0, 0  # iterations since the last check of the cost, and since columns were chosen
        self._looks, self._in_use = (
            0,
            context.kernels.xp.zeros(len(context.rows), "int64"),
        )  # largest number of elements in use at the last checks
        self._first_lists()

    def queue(self, steps: Sequence[Step], *, passed: bool) -> None:
        """See `MessageRows`."""
        self._kernels.pass_listed_iterations(self.messages, steps, passed=passed, meet=self.meet)

    def finished(self, queued: int) -> int:
        """See `MessageRows`."""
        done = int(self.context.kernels.memory.to_host(self.messages.progress)[1]) - self._finished
        self._finished += done
        self._unseen += done
        self._chosen += done
        return done

    def decide(self, numbers: Iteration) -> None:
        """See `MessageRows`."""
        messages, xp, pace = self.messages, self.context.kernels.xp, self._pace
        rows = xp.flatnonzero(messages.undecided)
        unsure = messages.slack[rows[messages.undecided[rows] == 1]]
        if len(unsure):
            due = self._chosen > INTERVAL and len(unsure) * pace.rows_a_choice > len(self._rows)
            pairs = math.inf if due else len(unsure) * messages.n / pace.choice_pace
            if self._choose_active(unsure, max(pace.most_active, self._read() // len(self._rows)), pairs):
                rows = self._pass_again(rows, numbers)
        for round_ in count():
            if not len(rows):
                break
            self.searched += len(rows)
            if round_ == 0:
                self._make_lists(*self._too_short())
            else:
                # Longer lists change the values that decide, so more rounds may follow. Whole rows always decide.
                wanted = messages.wanted if round_ < WHOLE_AFTER else xp.full_like(messages.wanted, -xp.inf)
                self._make_lists(rows, wanted[rows])
            rows = self._pass_again(rows, numbers)
        self._lost += pace.stop_pairs / max(1, len(self._rows) * messages.n)
        messages.sums[-1] = messages.progress[0] = 0

    def _too_short(self) -> tuple[Array, Array]:
        """Return rows whose lists end (nearly) before they decide, and the similarities that the lists should reach."""
        messages, xp, pace = self.messages, self.context.kernels.xp, self._pace
        # If a list is too short now, each list that is nearly too short would soon stop another iteration.
        used, undecided = messages.own + xp.maximum(messages.read, 0), messages.undecided > 0
        # If memory has been short, all lists are nearly used up, so only undecided rows get longer lists.
        share = math.inf if self._tight else pace.nearly_short
        nearly = (used > share * messages.length) & (messages.floor > -xp.inf)
        rows = xp.flatnonzero(nearly | undecided)
        self._lost += pace.search_pace * len(rows) / len(self._rows)
        return rows, xp.where(undecided, messages.wanted, messages.floor)[rows]

    def _pass_again(self, rows: Array, numbers: Iteration) -> Array:
        """Pass undecided rows again; return the rows that are still undecided."""
        self._kernels.pass_listed_rows(self.messages, rows, numbers, again=True)
        return rows[self.messages.undecided[rows] > 0]

    def reset(self) -> None:
        """See `MessageRows`."""
        super().reset()
        messages = self.messages
        messages.a[...] = -np.inf
        messages.own[...] = messages.a_column[...] = messages.read[...] = messages.undecided[...] = 0
        self._unseen, self._chosen, self._lost = 0, 0, 0.0
        self._looks, self._in_use[...], self._tight = 0, 0, False

    def nearest(self, exemplars: np.ndarray) -> tuple[Array, Array]:
        """See `MessageRows`."""
        xp = self.context.kernels.xp
        found, similarity = self._nearest_listed(exemplars)
        columns, missing = xp.asarray(exemplars), xp.flatnonzero(found < 0)
        step = max(1, (4 << 20) // len(exemplars))
        for start in range(0, len(missing), step):
            rows = missing[start : start + step]
            s = self.similarities.of_columns(rows, columns)
            best = s.argmax(axis=1)
            found[rows], similarity[rows] = columns[best], s[xp.arange(len(rows)), best]
        return xp.searchsorted(columns, found).astype("int32"), similarity

    def _nearest_listed(self, exemplars: np.ndarray) -> tuple[Array, Array]:
        """Return the exemplar that comes first in each list, and its similarity; -1 if a list has no exemplar."""
        xp, m = self.context.kernels.xp, len(self._rows)
        flags, found = xp.zeros(self.messages.n, "uint8"), xp.empty(m, "int64")
        similarity = xp.empty(m, self.context.dtype)
        flags[xp.asarray(exemplars)] = 1
        self._kernels.nearest_flagged(self.messages, flags, out=found, out_s=similarity)
        return found, similarity

    def add_gains(self, least: Array, scale: float, out: Array) -> None:
        """See `MessageRows`."""
        messages, xp = self.messages, self.context.kernels.xp
        listed = xp.flatnonzero(least >= messages.floor)
        step = max(1, PAIRS_AT_ONCE * len(listed) // max(1, int(messages.length.sum())))
        for start in range(0, len(listed), step):
            rows = listed[start : start + step]
            ends = xp.cumsum(messages.length[rows])
            places = xp.arange(int(ends[-1]))
            row = xp.searchsorted(ends, places, side="right")
            places += (messages.begin[rows] + messages.length[rows] - ends)[row]
            more = messages.s[places] - least[rows][row]
            places, more = places[more > 0], xp.rint(more[more > 0].astype("float64") * scale).astype("int64")
            # CuPy adds unsigned integers only; the bits are the same.
            xp.add.at(out.view("uint64"), messages.column[places], more.view("uint64"))
        others = xp.flatnonzero(least < messages.floor)
        step = self.similarities.rows_at_once()
        for start in range(0, len(others), step):
            rows = others[start : start + step]
            self.add_gains_of(self.similarities.of_rows(rows), least[rows], scale, out)

    def kept(self) -> int:
        """See `MessageRows`."""
        return int(self.messages.length.sum())

    def noise_added(self) -> None:
        """See `MessageRows`."""
        messages, similarities, xp = self.messages, self.similarities, self.context.kernels.xp
        limits, floor = np.finfo(self.context.dtype), messages.floor
        # The noise has raised similarities outside the lists by at most this much.
        messages.floor = xp.where(floor > -xp.inf, floor + abs(floor) * 4 * limits.eps + 4000 * limits.tiny, floor)
        numbers, seed, draw = self._rows + self.context.rows.start, similarities.seed, similarities.draws
        self._kernels.redraw_lists(messages, numbers, seed=seed, draw=draw, tiny=LATER_NOISE)
        active = messages.active_s, numbers, messages.active
        self._kernels.jitter_pairs(*active, seed=seed, draw=draw, tiny=LATER_NOISE)

    def improved(self) -> MessageRows:
        """See `MessageRows`."""
        if self._unseen < INTERVAL:
            return self
        messages, m = self.messages, len(self._rows)
        own, read = int(messages.own.sum()), self._read()
        loss = self._unseen * (DENSE_PACE * (own + read) / max(1, m * messages.n) - 1.0)
        self._unseen, self._lost = 0, max(0.0, self._lost + loss)
        if read > self._pace.read_far * m + own and self._chosen >= INTERVAL:
            self._choose_active(messages.slack, max(SHORTEST_LIST, read // m))
        self._drop_unused()
        if self._can_end and int(self.context.comm.all_reduce(np.array([int(self._few_columns_pay(own))]), "max")[0]):
            return ColumnRows(self)
        if self._keep_lists:
            return self
        dense = 2 * m * padded(messages.n) * self.context.dtype.itemsize
        fits = dense + self._bytes(len(messages.column)) <= self.context.free
        # All ranks change together, because a checkpoint holds all rows in one form.
        mine = np.array([int(self._lost > WAIT_LIMIT), int(not fits)])
        slow_somewhere, too_large = self.context.comm.all_reduce(mine, "max")
        return self._dense() if slow_somewhere and not too_large else self

    def _few_columns_pay(self, own: int) -> bool:
        """Return whether own elements will soon exceed the memory, or cost more than few columns."""
        pairs = len(self._rows) * self.messages.n
        few_pay = own > FEWEST_OWN and own > self._pace.most_share * pairs
        return few_pay or own > self._pace.most_own * self._largest_room()

    def saved(self) -> tuple[dict[str, np.ndarray], dict[str, Array]]:
        """See `MessageRows`."""
        replicated, rows = super().saved()
        to_host = self.context.kernels.memory.to_host
        counts, columns, values = map(to_host, self._kernels.gather_own(self.messages, self._rows))
        own = {"own_column": Ragged(columns, counts), "own_a": Ragged(values, counts)}
        return replicated, {**rows, "own_count": counts, **own}

    def restore(self, saved: Saved) -> None:
        """See `MessageRows`."""
        super().restore(saved)
        self._fill_first_places()
        empty: dict[str, Any] = {"own_count": "int64", "own_column": "int32", "own_a": self.context.dtype}
        own = (np.concatenate([np.zeros(0, kind), *saved.blocks(name)]) for name, kind in empty.items())
        # Noise may have raised a floor above the last own element of its row.
        limits, floor = np.finfo(self.context.dtype), self.messages.floor
        floor = floor - abs(floor) * 8 * limits.eps - 8000 * limits.tiny
        self._remake(floor, *map(self.context.kernels.memory.to_device, own))

    def _fill_first_places(self) -> None:
        """Move recent columns to the first places of their rows; older checkpoints of GPUs may have gaps."""
        messages, xp = self.messages, self.context.kernels.xp
        places = xp.arange(messages.recent_argmax.shape[1])
        order = xp.argsort(xp.where(messages.recent_argmax < 0, len(places), 0) + places, axis=1)
        for name in ("recent_argmax", "recent_e", "recent_a"):
            setattr(messages, name, xp.take_along_axis(getattr(messages, name), order, axis=1))

    def _dense(self) -> DenseRows:
        """Return the same messages with all elements."""
        xp, old = self.context.kernels.xp, self.messages
        rows = DenseRows(self.context, self.similarities)
        new = rows.messages
        for name in Vectors.__dataclass_fields__:
            if name != "c":
                setattr(new, name, getattr(old, name))
        new.c[: old.n] = old.c
        new.a[:, : old.n] += old.a_column  # new.a holds only zeros and -inf so far
        counts, columns, values = self._kernels.gather_own(old, self._rows)
        new.a[xp.searchsorted(xp.cumsum(counts), xp.arange(len(columns)), side="right"), columns] = values
        filled = old.recent_argmax >= 0
        new.a[xp.nonzero(filled)[0], old.recent_argmax[filled]] = -xp.inf
        rows._filled, rows.searched, rows.shortened = self._filled, self.searched, self.shortened
        return rows

    def _read(self) -> int:
        """Return the number of elements that the last pass read in the lists after the own elements."""
        return int(self.context.kernels.xp.maximum(self.messages.read, 0).sum())

    def _drop_unused(self) -> None:
        """Shorten lists that hold far more elements than rows have read; drop active columns that decide nothing."""
        messages, xp = self.messages, self.context.kernels.xp
        self._in_use = xp.maximum(self._in_use, messages.own + xp.maximum(messages.read, 0))
        self._looks += 1
        if self._looks < LOOKS:
            return
        if len(messages.active) > SHORTEST_LIST:
            by_active = messages.slack[messages.read < 0]
            count = self._active_from(by_active.min()) if len(by_active) else 0
            if 0 < 2 * count < len(messages.active):
                self._take_active(count, math.inf)
        self._drop_beyond((SPARE * self._in_use).astype("int64") + PADDING)
        self._looks, self._in_use[...] = 0, 0

    def _choose_active(self, slack: Array, most: int, pairs: float = math.inf) -> bool:
        """Make the columns active that decide nearly all rows with this slack.

        Returns False without a change if this takes more than `most` columns, or more similarities than `pairs`.
        """
        xp = self.context.kernels.xp
        if pairs < FEW_COLUMNS * len(self._rows):
            return False
        if pairs == math.inf:
            self._chosen = 0
        most = min(most, self.context.free // (16 * self.context.dtype.itemsize * max(1, len(self._rows))))
        for share in (0.005, 0.05, 0.2):
            count = self._active_from(xp.quantile(slack, share))
            if count <= most:
                return self._take_active(count, pairs)
        return False

    def _active_from(self, least: float) -> int:
        """Return a number of active columns that is large enough to include all columns with a(k) >= least."""
        return 16 + int(LIST_GROWTH * count_true(self.messages.a_column >= least))

    def _take_active(self, count: int, pairs: float) -> bool:
        """Make the `count` columns with the largest a(k) active, unless this needs more similarities than `pairs`."""
        messages, xp = self.messages, self.context.kernels.xp
        columns = xp.sort(xp.argsort(-messages.a_column)[:count]).astype("int32")
        kept = xp.isin(columns, messages.active)
        new = columns[~kept]
        if len(new) * len(self._rows) > pairs or not (len(new) or len(columns) < len(messages.active)):
            return False
        self._chosen = 0
        s = xp.empty((len(self._rows), len(columns)), self.context.dtype)
        s[:, kept] = messages.active_s[:, xp.isin(messages.active, columns)]
        step = max(1, BLOCK_BYTES[self.context.kernels.device] // (4 * max(1, len(new))))
        for start in range(0, len(self._rows) if len(new) else 0, step):
            rows = self._rows[start : start + step]
            s[start : start + step, ~kept] = self.similarities.of_columns(rows, new)
        messages.active, messages.active_s = columns, s
        return True
