"""A rank's rows of the messages: the interface of all forms, and the form that stores all elements.

`listed_rows` and `column_rows` have the other forms, and `row_choice` chooses the form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import Similarities
from mgclust.engine.checkpoint import Saved
from mgclust.engine.spmd import Context
from mgclust.kernels.affinity_propagation.messages import RECENT_ARGMAXES, Iteration, Messages
from mgclust.kernels.affinity_propagation.sparse_forms.columns import load_columns
from mgclust.kernels.affinity_propagation.sparse_forms.listed import Step

__all__ = ["DENSE", "SLOTS", "SPARSE", "DenseRows", "MessageRows", "vector_bytes"]

Array = Any
DENSE, SPARSE = "dense", "sparse"
SLOTS = 32  # largest number of iterations that are queued at once


def vector_bytes(n: int, own: int, itemsize: int) -> int:
    """Return the bytes of the vectors of a rank that owns `own` of n rows; the same for all forms."""
    return own * 4 * RECENT_ARGMAXES * (4 + 2 * itemsize) + n * (8 * 8 + SLOTS)


class MessageRows(ABC):
    """One rank's rows of the messages.

    Parameters
    ----------
    context : Context
    similarities : Similarities
    """

    name: ClassVar[str]
    of_rows: ClassVar[tuple[str, ...]]  # arrays of `messages` per row, which a checkpoint holds
    # arrays of `messages` that are the same on all ranks, so a checkpoint holds them once
    replicated: ClassVar[tuple[str, ...]] = ("c", "r_diagonal", "a_diagonal", "last_exemplars")
    recent: ClassVar[dict[str, int]] = {"recent_argmax": -1, "recent_e": 0, "recent_a": 0}
    can_be_saved = True
    messages: Any

    def __init__(self, context: Context, similarities: Similarities) -> None:
        self.context, self.similarities = context, similarities
        self.searched = 0  # number of rows that were searched again for longer lists
        self.shortened = 0  # number of times that lists have become shorter
        self._filled = 0

    def vectors(self, width: int) -> dict[str, Any]:
        """Return the fields of `Vectors` before the first iteration."""
        xp, n, m = self.context.kernels.xp, self.context.dataset_shape[0], len(self.context.rows)
        dtype, sums = self.context.dtype, xp.zeros(2 * n + 1, "int64")
        return {
            "n": n,
            "first_row": self.context.rows.start,
            "u": xp.zeros(m),
            "recent_argmax": xp.full((m, RECENT_ARGMAXES), -1, "int32"),
            "recent_e": xp.zeros((m, RECENT_ARGMAXES), dtype),
            "recent_a": xp.zeros((m, RECENT_ARGMAXES), dtype),
            "recent_most": xp.zeros(1, "int32"),
            "c": xp.zeros(width, dtype),
            "r_diagonal": xp.zeros(n),
            "a_diagonal": xp.zeros(n),
            "preference": xp.zeros(n),
            "sums": sums,
            "totals": sums,
            "progress": xp.zeros(2, "int64"),
            "exemplars": xp.zeros((SLOTS, n), "uint8"),
            "last_exemplars": xp.zeros(n, "uint8"),
            "counts": xp.zeros((SLOTS, 2), "int64"),
        }

    def exactness(self) -> dict[str, Any]:
        """Return the values of `exactness_` about the stored messages, summed over all ranks. Collective."""
        own = np.array([self.searched, self.kept(), self.shortened])
        searched, kept, shortened = self.context.comm.all_reduce(own, "sum").tolist()
        return {"rows_searched": searched, "pairs_kept": kept, "lists_shortened": shortened}

    def reset(self) -> None:
        """Forget all iterations; lists keep their length."""
        for name, empty in self.recent.items():
            getattr(self.messages, name)[...] = empty
        for name in ("u", "recent_most", "c", "r_diagonal", "a_diagonal", "exemplars", "last_exemplars"):
            getattr(self.messages, name)[...] = 0
        self._filled = 0

    @abstractmethod
    def kept(self) -> int:
        """Return the number of stored pairs."""

    def queue(self, steps: Sequence[Step], *, passed: bool) -> None:
        """Queue iterations; all iterations after an iteration with undecided rows do nothing.

        Parameters
        ----------
        steps : sequence of Step
            One per iteration.
        passed : bool
            Whether the rows of the first iteration have already been passed, and its undecided rows decided.
        """
        messages, kernels = self.messages, self.context.kernels.affinity_propagation
        for slot, numbers in steps:
            if not passed:
                self.pass_rows(numbers)
            passed = False
            self.meet()
            kernels.pass_columns(messages, damping=numbers.next_damping, scale=numbers.scale, slot=slot)
            if self.halted():
                break

    def meet(self) -> None:
        """Queue the sum over ranks, which comes between the passes over rows and over columns."""
        self.context.comm.queue_reduce(self.messages.sums, out=self.messages.totals)

    def pass_rows(self, numbers: Iteration) -> None:
        """Pass the rows of one iteration, for `queue`; see `pass_rows` of `mgclust.kernels.affinity_propagation`."""
        raise NotImplementedError

    def halted(self) -> bool:
        """Return whether later queued iterations do nothing, as far as this is known without waiting for the queue."""
        return False

    def finished(self, queued: int) -> int:
        """Return how many of the last queued iterations are finished."""
        return queued

    @abstractmethod
    def decide(self, numbers: Iteration) -> None:
        """Pass again the rows that a pass with these numbers has left undecided, until all rows are decided."""

    @abstractmethod
    def nearest(self, exemplars: np.ndarray) -> tuple[Array, Array]:
        """Return the position in `exemplars` of each local row's most similar exemplar, and the similarity.

        Ties go to the lowest row number.
        """

    def add_gains(self, least: Array, scale: float, out: Array) -> None:
        """Add to each column the sum over local rows of max(0, S - least), in fixed point: ``rint(value * scale)``."""
        self.add_gains_of(self.messages.s, least, scale, out)

    def add_gains_of(self, s: Array, least: Array, scale: float, out: Array) -> None:
        """Add the gains of rows with these similarities; see `add_gains`."""
        kernels = load_columns(self.context.kernels.device)
        kernels.add_positive(s, least, n=self.messages.n, sigma=1.0, scale=scale, out=out)

    @abstractmethod
    def noise_added(self) -> None:
        """Adapt to similarities whose noise has been drawn again."""

    def improved(self) -> MessageRows:
        """Return these rows, or the same rows in a form that is faster now."""
        return self

    def saved(self) -> tuple[dict[str, np.ndarray], dict[str, Array]]:
        """Return arrays for a checkpoint: arrays that are the same on all ranks, and arrays of local rows."""
        to_host = self.context.kernels.memory.to_host
        return (
            {name: to_host(getattr(self.messages, name)) for name in self.replicated},
            {name: getattr(self.messages, name) for name in self.of_rows},
        )

    def restore(self, saved: Saved) -> None:
        """Restore the arrays that `saved` returned, before the first iteration."""
        to_device = self.context.kernels.memory.to_device
        for name in self.replicated:
            getattr(self.messages, name)[...] = to_device(saved.arrays[name])
        for name in self.of_rows:
            for place, rows in saved.rows(name):
                if name == "recent_argmax":
                    # The number of recent places differs between ranks, because it grows with the needs of their rows.
                    self.widen(rows.shape[1])
                    self._filled = max(self._filled, int((rows >= 0).sum(axis=1).max()))
                getattr(self.messages, name)[place][..., : rows.shape[-1]] = to_device(rows)
        self.messages.recent_most[0] = self._filled

    def make_room(self, iterations: int) -> None:
        """Make room for the recent columns of some iterations; each iteration fills at most one more place per row."""
        if self._filled + iterations > self.messages.recent_argmax.shape[1]:
            self._filled = int(self.messages.recent_most[0])
            self.widen(-(-(self._filled + iterations) // RECENT_ARGMAXES) * RECENT_ARGMAXES)
        self._filled += iterations

    def widen(self, more: int) -> None:
        """Make room for at least `more` recent columns per row."""
        xp, places = self.context.kernels.xp, self.messages.recent_argmax.shape[1]
        if places >= more:
            return
        for name, empty in self.recent.items():
            old = getattr(self.messages, name)
            grown = xp.full((old.shape[0], more), empty, old.dtype)
            grown[:, :places] = old
            setattr(self.messages, name, grown)


class DenseRows(MessageRows):
    """Rows that store all elements: two numbers for each pair."""

    name = DENSE
    of_rows = ("a", "u", "recent_argmax", "recent_e", "recent_a")
    messages: Messages

    def __init__(self, context: Context, similarities: Similarities) -> None:
        super().__init__(context, similarities)
        s = similarities.matrix()
        self.messages = Messages(**self.vectors(s.shape[1]), s=s, a=context.kernels.xp.zeros_like(s))
        self._mark()

    def _mark(self) -> None:
        """Set A to -inf where S is -inf."""
        xp, s, a = self.context.kernels.xp, self.messages.s, self.messages.a
        step = self.context.partition.block_rows
        for start in range(0, len(s), step):
            part = slice(start, start + step)
            a[part][s[part] == -xp.inf] = -xp.inf

    def reset(self) -> None:
        """See `MessageRows`."""
        super().reset()
        self.messages.a[...] = 0
        self._mark()

    def pass_rows(self, numbers: Iteration) -> None:
        """See `MessageRows`."""
        self.context.kernels.affinity_propagation.pass_rows(self.messages, numbers)

    def decide(self, numbers: Iteration) -> None:
        """Do nothing: with all elements, no row is undecided."""

    def kept(self) -> int:
        """See `MessageRows`."""
        return len(self.context.rows) * self.messages.n

    def noise_added(self) -> None:
        """See `MessageRows`."""
        # Nothing to do: S is the array of the similarities.

    def nearest(self, exemplars: np.ndarray) -> tuple[Array, Array]:
        """See `MessageRows`."""
        kernels, xp, s = self.context.kernels, self.context.kernels.xp, self.messages.s
        columns, found = xp.asarray(exemplars, "int64"), xp.zeros(len(s), "int32")
        kernels.label_sums.best_columns(s, columns, out=found)
        return found, s[xp.arange(len(s)), columns[found]]
