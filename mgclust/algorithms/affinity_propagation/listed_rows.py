"""A rank's rows of the messages as neighbour lists, for the elements that matter.

What lists hold, and why the numbers are those of all elements bit for bit, stands in
`mgclust.kernels.affinity_propagation.listed`. Here lists are made, made longer where a row is undecided, shorter where
nothing reads what they hold, and given up for all elements where those are cheaper.

Rows whose two largest A + S are undecided ask for columns far away, up to their whole row, where one exemplar less is
left. A few columns that are active now decide them instead, so those are chosen again wherever that takes fewer
similarities than longer lists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar

import numpy as np

from mgclust.algorithms.affinity_propagation.column_rows import ColumnRows
from mgclust.algorithms.affinity_propagation.message_rows import SPARSE, DenseRows, MessageRows
from mgclust.algorithms.affinity_propagation.similarity_matrix import (
    BLOCK_BYTES,
    LATER_NOISE,
    ComputedSimilarities,
    Similarities,
)
from mgclust.base.errors import InsufficientMemoryError
from mgclust.engine.checkpoint import Ragged, Saved
from mgclust.engine.memory import human
from mgclust.engine.spmd import Context
from mgclust.kernels.affinity_propagation.listed import ListedMessages, Step, load_lists
from mgclust.kernels.affinity_propagation.messages import PADDING, RECENT_ARGMAXES, Iteration, Vectors, padded
from mgclust.kernels.masks import count_true

__all__ = ["LIST_GROWTH", "ListedRows", "first_length"]

Array = Any
SAMPLE_COLUMNS = 1024  # columns of a row that tell how similar its nearest ones are
# Length of a list at first: a share of a row, between two numbers.
LIST_SHARE = 1 / 50
SHORTEST_LIST, LONGEST_LIST = 48, 400
ROOM = 1.25  # of the arrays of all lists, as many times of what they hold
TIGHT_GROWTH = 1.125  # lists are that much longer than what is in use where memory has been short
LIST_GROWTH = 1.5  # a list is made that much longer than it would have to be
MAX_TIMES = 20  # that a row has asked, as far as they count
WHOLE_AFTER = 2  # rounds of longer lists for one iteration
INTERVAL = 16  # iterations from one look at what they cost to the next, and from one choice of active columns
LARGE = 1 << 30  # bytes of lists that have moved: what they leave is given back
FEWEST_OWN = 1 << 25  # elements of lists whose memory and time are not worth few columns
LOOKS = 8  # at what rows read, before lists become shorter: what one of them has seen in use stays
SPARE = 2.0  # a list keeps so many times of what has been in use
FEW_COLUMNS = 4  # active ones that are not worth a choice
PAYS = 2.0  # lists become shorter where they are so many times as long as they will be
DENSE_PACE = 2.0  # elements of a dense row that are passed in the time of one of a list
WAIT_LIMIT = 16.0  # dense iterations' time that lists have cost more than matrices would have, which ends them


@dataclass(frozen=True)
class Pace:
    """Costs and limits of a device.

    On a GPU a row that is undecided stops all others, and reading far in a list costs little.
    """

    long_list: int  # Up to that many elements a list is made longer by `LIST_GROWTH` again each time.
    nearly_short: float  # Lists in use to that share are made longer together with those that are too short.
    # Active columns are chosen where one of so many rows has undecided maxima, and are at most so many.
    rows_a_choice: int
    most_active: int
    # They are chosen, too, where rows read more elements in their lists than that on average, beside own ones.
    read_far: int
    # Pairs that matrices would pass while undecided rows are decided: because all wait, and for each of their pairs.
    stop_pairs: float
    search_pace: float
    # Similarities that longer lists would take for each one of chosen columns, from which on these are chosen at once.
    choice_pace: float
    least_saved: int  # bytes: lists become shorter where that gives back more
    # With more own elements than such a share of what there is room for, or of all pairs, few columns take the lists'
    # place.
    most_own: float
    most_share: float


PACES = {
    "cpu": Pace(
        long_list=0,
        nearly_short=math.inf,
        rows_a_choice=64,
        most_active=128,
        read_far=4,
        stop_pairs=0.0,
        search_pace=0.0,
        choice_pace=4.0,
        least_saved=16 << 20,
        most_own=0.5,
        most_share=math.inf,
    ),
    "cuda": Pace(
        long_list=4096,
        nearly_short=0.6,
        rows_a_choice=1 << 40,
        most_active=2048,
        read_far=64,
        stop_pairs=1e9,
        search_pace=6.0,
        choice_pace=4.0,
        least_saved=1 << 29,
        most_own=0.2,
        most_share=0.02,
    ),
}


class ListedRows(MessageRows):
    """Neighbour lists: memory and time for the elements that matter."""

    name = SPARSE
    of_rows = ("u", "recent_argmax", "hot_e", "hot_a", "floor")
    replicated = (*MessageRows.replicated, "a_column")
    hot: ClassVar[dict[str, int]] = {**MessageRows.hot, "hot_place": -1, "hot_s": 0}
    messages: ListedMessages

    def __init__(
        self, context: Context, similarities: Similarities, *, keep_lists: bool, can_end: bool = False
    ) -> None:
        super().__init__(context, similarities)
        self._can_end = can_end and isinstance(similarities, ComputedSimilarities)
        self._kernels = load_lists(context.kernels.device)
        self._keep_lists, self._pace = keep_lists, PACES[context.kernels.device]
        xp, n, m, dtype = context.kernels.xp, context.dataset_shape[0], len(context.rows), context.dtype
        vectors = self.vectors(n)
        if context.size > 1:  # own sums are needed again where rows are undecided
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
            hot_place=xp.full((m, RECENT_ARGMAXES), -1, "int32"),
            hot_s=xp.zeros((m, RECENT_ARGMAXES), dtype),
            active=xp.zeros(0, "int32"),
            active_s=xp.zeros((m, 0), dtype),
            outside=xp.zeros(2, f"uint{8 * dtype.itemsize}"),
            wanted=xp.zeros(m, dtype),
            slack=xp.zeros(m, dtype),
            read=xp.zeros(m, "int64"),
            undecided=xp.zeros(m, "uint8"),
        )
        self._used, self._lost = 0, 0.0
        self._finished = 0  # iterations
        self._unseen, self._chosen = 0, 0  # iterations since their cost was looked at, and since columns were chosen
        self._rows, self._asked = xp.arange(m), xp.zeros(m)  # how often lists have become longer
        self._tight = False  # memory has been short
        self._looks, self._in_use = 0, xp.zeros(m, "int64")  # most elements in use at the last looks
        self._first_lists()

    def _first_lists(self) -> None:
        n, m = self.messages.n, len(self._rows)
        columns = -(-n // _sample_step(n))
        self._reserve(int(1.1 * m * (n / columns * (math.ceil(first_length(n) * columns / n) + 1) + PADDING / 2)))
        for start, s in self.similarities.blocks():
            self._list(self._rows[start : start + len(s)], s, self._floors(s, None))

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
                # Longer lists move what decides; whole rows decide whatever comes.
                wanted = messages.wanted if round_ < WHOLE_AFTER else xp.full_like(messages.wanted, -xp.inf)
                self._make_lists(rows, wanted[rows])
            rows = self._pass_again(rows, numbers)
        self._lost += pace.stop_pairs / max(1, len(self._rows) * messages.n)
        messages.sums[-1] = messages.progress[0] = 0

    def _too_short(self) -> tuple[Array, Array]:
        """Rows whose lists end before they decide, or nearly so, and the similarities that these should hold."""
        messages, xp, pace = self.messages, self.context.kernels.xp, self._pace
        # Where one list is too short now, those that are nearly so would each stop an iteration soon.
        used, undecided = messages.own + xp.maximum(messages.read, 0), messages.undecided > 0
        # Not where memory has been short: there all lists are nearly used up.
        share = math.inf if self._tight else pace.nearly_short
        nearly = (used > share * messages.length) & (messages.floor > -xp.inf)
        rows = xp.flatnonzero(nearly | undecided)
        self._lost += pace.search_pace * len(rows) / len(self._rows)
        return rows, xp.where(undecided, messages.wanted, messages.floor)[rows]

    def _pass_again(self, rows: Array, numbers: Iteration) -> Array:
        """Pass rows that were undecided; those that are so still."""
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
        """The exemplars that come first in the lists, and their similarities; -1 where a list has none."""
        xp, m = self.context.kernels.xp, len(self._rows)
        flags, found = xp.zeros(self.messages.n, "uint8"), xp.empty(m, "int64")
        similarity = xp.empty(m, self.context.dtype)
        flags[xp.asarray(exemplars)] = 1
        self._kernels.nearest_flagged(self.messages, flags, out=found, out_s=similarity)
        return found, similarity

    def kept(self) -> int:
        """See `MessageRows`."""
        return int(self.messages.length.sum())

    def noise_added(self) -> None:
        """See `MessageRows`."""
        messages, similarities, xp = self.messages, self.similarities, self.context.kernels.xp
        limits, floor = np.finfo(self.context.dtype), messages.floor
        # What lists leave out has become at most that much more similar.
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
        # All ranks together: a checkpoint holds all rows in one form.
        mine = np.array([int(self._lost > WAIT_LIMIT), int(not fits)])
        slow_somewhere, too_large = self.context.comm.all_reduce(mine, "max")
        return self._dense() if slow_somewhere and not too_large else self

    def _few_columns_pay(self, own: int) -> bool:
        """Tell whether own elements, so many, will soon take more memory than there is, or more than few columns."""
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
        # Noise may have raised a floor above the last of its own elements.
        limits, floor = np.finfo(self.context.dtype), self.messages.floor
        floor = floor - abs(floor) * 8 * limits.eps - 8000 * limits.tiny
        self._remake(floor, *map(self.context.kernels.memory.to_device, own))

    def _fill_first_places(self) -> None:
        """Bring hot columns to the first places of their rows: a GPU once left free ones between them."""
        messages, xp = self.messages, self.context.kernels.xp
        places = xp.arange(messages.recent_argmax.shape[1])
        order = xp.argsort(xp.where(messages.recent_argmax < 0, len(places), 0) + places, axis=1)
        for name in ("recent_argmax", "hot_e", "hot_a"):
            setattr(messages, name, xp.take_along_axis(getattr(messages, name), order, axis=1))

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
        new.a[xp.searchsorted(xp.cumsum(counts), xp.arange(len(columns)), side="right"), columns] = values
        filled = old.recent_argmax >= 0
        new.a[xp.nonzero(filled)[0], old.recent_argmax[filled]] = -xp.inf
        rows._filled, rows.searched, rows.shortened = self._filled, self.searched, self.shortened
        return rows

    def _read(self) -> int:
        """Count the elements behind the own ones that the last pass read in the lists."""
        return int(self.context.kernels.xp.maximum(self.messages.read, 0).sum())

    def _drop_unused(self) -> None:
        """Make lists shorter where they hold much more than rows have read lately; drop columns that decide nothing."""
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
        keep = xp.maximum((SPARE * self._in_use).astype("int64") + PADDING, first_length(messages.n))
        kept = int(_padded(xp.minimum(keep, messages.length)).sum())
        saved = len(messages.column) - kept
        room = int(ROOM * kept)
        if saved > (PAYS - 1) * kept and self._bytes(saved) > self._pace.least_saved and room <= self._largest_room():
            self._shorten(keep)
            self._move_lists(max(room, int(_padded(messages.length).sum())))
        self._looks, self._in_use[...] = 0, 0

    def _shorten(self, keep: Array) -> None:
        """Cut lists to so many elements, and to no fewer than own ones and one more; equal similarities stay together.

        A row that would read on is undecided then, and has its list made longer.
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
        for _ in range(int(high.max()).bit_length()):  # the first below: from `low` to `high`
            middle = xp.minimum((low + high) // 2, last)
            above = (low < high) & (messages.s[begin + middle] >= floor)
            low, high = xp.where(above, middle + 1, low), xp.where(above | (low == high), high, middle)
        messages.floor[rows] = xp.where(low <= last, floor, messages.floor[rows])
        messages.length[rows] = low

    def _choose_active(self, slack: Array, most: int, pairs: float = math.inf) -> bool:
        """Find the columns that decide about nearly all rows with this slack.

        Not where they are more than `most`, or take more similarities than `pairs`.
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
        """Number of columns that are taken where those with a(k) >= least are to be among them."""
        return 16 + int(LIST_GROWTH * count_true(self.messages.a_column >= least))

    def _take_active(self, count: int, pairs: float) -> bool:
        """Make so many columns with the largest a(k) active, unless that takes more similarities than `pairs`."""
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

    def _make_lists(self, rows: Array, wanted: Array) -> None:
        """Give rows lists that hold at least the similarities wanted; own elements stay."""
        # `wanted` is rounded: at itself, R may be positive still.
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
        """Lists of all similarities >= low."""
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
        """Similarities from which on lists hold the columns: about as many as it takes, and some more."""
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

    def _reserve(self, more: int) -> None:
        """Room for so many elements behind those in use; what lists have left behind is given back."""
        messages, xp = self.messages, self.context.kernels.xp
        if self._used + more <= len(messages.column):
            return
        # As large as before at least, so that arrays can take each other's place.
        needed, most = int(_padded(messages.length).sum()) + more, self._largest_room()
        room = max(int(ROOM * needed), len(messages.column))
        if room > most:  # what no row needs now goes, and from now on lists take little more than that
            self._tight = True
            in_use = messages.own + xp.maximum(messages.read, 0)
            self._shorten((TIGHT_GROWTH * in_use).astype("int64") + PADDING)
            needed, room = int(_padded(messages.length).sum()) + more, most  # all there is: no other move will fit
            if needed <= len(messages.column):
                self._close_gaps()
                return
        if room < needed:
            raise self._too_large(needed)
        self._move_lists(room)

    def _close_gaps(self) -> None:
        """Bring all lists together at the beginning of their arrays, without others of that size."""
        messages, xp, step = self.messages, self.context.kernels.xp, BLOCK_BYTES[self.context.kernels.device] // 16
        order = xp.argsort(messages.begin)
        lengths = _padded(messages.length)[order]
        ends = self.context.kernels.memory.to_host(xp.cumsum(lengths))
        to, start, done = xp.cumsum(lengths) - lengths, 0, 0
        while start < len(ends):  # in the order in which they lie: none is written over before it has moved
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
        """Elements of the largest arrays that can take the place of the present ones, one after the other."""
        block = min(BLOCK_BYTES[self.context.kernels.device], self.context.free // 8)
        beside = 2 * block + 2 * self.messages.active_s.nbytes  # similarities of rows that lists are made of
        free, before = self.context.free - beside, len(self.messages.column)
        last = (free - self.context.dtype.itemsize * before) // self._bytes(1)
        return int(min((free - self._bytes(before)) // 4, last))

    def _move_lists(self, room: int) -> None:
        """Bring all lists, without gaps, into arrays of so many elements."""
        messages, xp = self.messages, self.context.kernels.xp
        lengths, before = _padded(messages.length), len(messages.column)
        begin = xp.cumsum(lengths) - lengths
        for name in ("column", "s", "a"):
            values = getattr(messages, name)
            try:
                out = xp.empty(room, values.dtype)
            except MemoryError:  # free, but in pieces
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
            f"there are {human(self.context.free)}. What would fit: more workers, a higher preference (more "
            "clusters, shorter lists), n_clusters_range=(low, n) of a scan, which ends it at fewer clusters than that, "
            "fewer rows, or algorithm='dense' where two n x n matrices fit."
        )

    def _remake(self, wanted: Array, counts: Array, columns: Array, values: Array) -> None:
        """Replace all lists by such of all similarities >= `wanted`; own elements are given by their columns."""
        messages, xp = self.messages, self.context.kernels.xp
        self._used = 0
        messages.length[:] = messages.own[:] = 0
        ends = np.cumsum(self.context.kernels.memory.to_host(counts))
        step = self.similarities.rows_at_once()
        for start in range(0, len(self._rows), step):
            rows = self._rows[start : start + step]
            s = self.similarities.of_rows(rows)
            self._list(rows, s, xp.maximum(wanted[rows], np.finfo(s.dtype).min))
            hot = messages.recent_argmax[rows]
            messages.hot_s[rows] = xp.where(hot >= 0, xp.take_along_axis(s, xp.maximum(hot, 0), axis=1), 0)
            part = slice(int(ends[start - 1]) if start else 0, int(ends[start + len(rows) - 1]))
            self._kernels.place_own(messages, rows, counts[rows], columns[part], values[part])
        if len(messages.active):
            messages.active_s = self.similarities.of_columns(self._rows, messages.active)

    def _bytes(self, elements: int) -> int:
        return elements * (4 + 2 * self.context.dtype.itemsize)


def first_length(n: int) -> int:
    """Elements of a list at first, of n."""
    return int(max(SHORTEST_LIST, min(LIST_SHARE * n, LONGEST_LIST)))


def _sample_step(n: int) -> int:
    """Columns of a row from one of its sample to the next."""
    return n // min(n, SAMPLE_COLUMNS)


def _padded(lengths: Array) -> Array:
    """Elements that lists take up."""
    return (lengths + PADDING - 1) // PADDING * PADDING
