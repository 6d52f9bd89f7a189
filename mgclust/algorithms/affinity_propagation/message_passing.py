"""Affinity propagation's messages on this rank's rows: iterations, exemplars and assignments.

`mgclust.kernels.affinity_propagation.messages` has the equations and the stored arrays. Iterations are queued: a GPU
works through many of them while the host prepares the next ones, and their numbers of exemplars are read together
afterwards. So a caller passes the damping of each of the next iterations, reads the outcomes, and decides.

All ranks hold bitwise identical vectors (c, the diagonals, the exemplars), so all ranks make the same decisions without
communication. Each iteration has one collective operation, the sum of 2 n integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.affinity_propagation.rows.message_rows import SLOTS, MessageRows
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import LATER_NOISE, NEARLY_EQUAL
from mgclust.base.errors import InputError
from mgclust.engine.checkpoint import Saved
from mgclust.engine.spmd import Context
from mgclust.kernels.affinity_propagation.messages import Iteration

__all__ = ["SLOTS", "ExemplarAssignment", "MessagePassing"]

Array = Any
RESOLUTION = 1e-6  # coarsest accepted resolution of the fixed-point sums, relative to the largest similarity
FEWEST_AHEAD = 4  # iterations queued after an iteration with undecided rows, because more such iterations are likely
MAX_AHEAD = (
    24  # largest number of queued iterations: rows rarely have more than 8 recent columns, and there are 32 places
)
FEW_VALUES = 64  # up to this many values, `math.fsum` adds them
TIED = 2.0**-19  # if differences are below this fraction of preferences, messages may seem to converge too early
BITS = 61  # bits of a fixed-point sum; one more bit is the sign, and one bit is left for rounding


def rounded_sum(values: np.ndarray) -> float:
    """Return the sum of finite float64 values, rounded once; `math.fsum` would need a Python number for each value."""
    errors = []
    while len(values) > FEW_VALUES:
        half = len(values) // 2
        one, other, odd = values[:half], values[half : 2 * half], values[2 * half :]
        total = one + other
        rounded = total - one
        error = (one - (total - rounded)) + (other - rounded)  # one + other = total + error, exactly
        errors.append(error[error != 0])
        values = np.concatenate([total, odd])
    return math.fsum(np.concatenate([values, *errors]).tolist())


class ExemplarAssignment(NamedTuple):
    """Exemplars, and the label of each row."""

    exemplars: np.ndarray  # shape (k,), int64: row numbers, ascending
    labels: np.ndarray  # shape (n,), int32: position of each row's exemplar; -1 if it has no pair with an exemplar
    net_similarity: float  # similarities of rows to their exemplars plus preferences of exemplars, summed

    @property
    def missing(self) -> int:
        """Number of rows without an exemplar; the net similarity does not include them."""
        return int((self.labels < 0).sum())


class MessagePassing:
    """State of the messages, and the iterations that change it.

    Parameters
    ----------
    context : Context
    rows : MessageRows
        Rows before their first iteration.
    preference : ndarray of shape (n,), float64
        Preference S(k,k) of each row.

    Attributes
    ----------
    rows : MessageRows
        Rows in their present form.
    preference : ndarray of shape (n,)
        The preference that was set last, without noise.
    tied : bool
        Whether some rows are so similar that messages may seem to converge before they tell these rows apart.
    noise_of_zero : float
        Bound of the noise on a similarity of 0.
    """

    def __init__(self, context: Context, rows: MessageRows, preference: np.ndarray) -> None:
        self._context = context
        self.rows = rows
        self._similarities = rows.similarities
        self._negligible = float(np.finfo(context.dtype).eps) / 8  # below the rounding of R = sigma S - u - E
        self.noise_of_zero = LATER_NOISE * float(np.finfo(context.dtype).tiny)
        self._numbers = Iteration.before_the_first(self._negligible)
        self._ahead = MAX_AHEAD
        # The slots hold the exemplars of the last iterations, in turn. `_latest` holds the exemplars of the last
        # iteration that had any.
        self._slots, self._count = np.arange(SLOTS), 0
        self._latest = context.kernels.xp.zeros(context.dataset_shape[0], "uint8")
        self.set_preference(preference)

    @property
    def messages(self) -> Any:
        """Arrays of the messages, from `rows`."""
        return self.rows.messages

    def set_preference(self, preference: np.ndarray) -> None:
        """Change S(k,k) from the next iteration on; messages are kept.

        Parameters
        ----------
        preference : ndarray of shape (n,), float64
            Preference without the noise that breaks ties.
        """
        noisy = self._similarities.distinct(preference)
        self.tied = self._similarities.apart(preference) < TIED
        self.rows.messages.preference = self._context.kernels.memory.to_device(noisy)
        self.preference = preference
        self._scale = self._fixed_point(preference)

    def iterate(self, dampings: list[float]) -> list[tuple[int, bool]]:
        """Run iterations, one per damping.

        Parameters
        ----------
        dampings : list of float
            Damping of each iteration, above 0 and below 1; at most `SLOTS` iterations.

        Returns
        -------
        list of (int, bool)
            For each iteration: the number of exemplars, and whether they are the same as in the iteration before.
        """
        kernels, comm, messages = self._context.kernels, self._context.comm, self.rows.messages
        self._slots = np.roll(self._slots, -len(dampings))
        slots = self._slots[SLOTS - len(dampings) :]
        numbers = []
        for damping in dampings:
            self._numbers = self._numbers.followed_by(damping, self._scale)
            numbers.append(self._numbers)
        steps, passed = list(zip(slots.tolist(), numbers, strict=True)), False
        while steps:
            # An iteration may leave rows undecided. Then the iterations queued after it do nothing, and are queued
            # again. All ranks queue the same number of iterations, because each iteration has a collective sum.
            queued = steps[: self._ahead]
            self.rows.make_room(len(queued))
            self.rows.queue(queued, passed=passed)
            comm.synchronize()
            done = self.rows.finished(len(queued))
            passed = done < len(queued)
            self._ahead = FEWEST_AHEAD if passed else min(MAX_AHEAD, 2 * self._ahead)
            steps = steps[done:]
            if passed:
                self.rows.decide(steps[0][1])
        counts = kernels.memory.to_host(messages.counts)[slots]
        if counts[:, 0].any():
            self._latest[...] = messages.exemplars[int(slots[np.flatnonzero(counts[:, 0])[-1]])]
        self._count = len(dampings)
        self.rows = self.rows.improved()
        return [(int(n_exemplars), changed == 0) for n_exemplars, changed in counts]

    def exemplars(self, slot: int) -> np.ndarray:
        """Return the exemplars after the slot-th of the last iterations: row numbers, ascending, int64."""
        ring = int(self._slots[SLOTS - self._count + slot])
        return np.flatnonzero(self._context.kernels.memory.to_host(self.rows.messages.exemplars[ring]))

    def states(self) -> list[np.ndarray]:
        """Return the distinct non-empty sets of exemplars of the last iterations, newest first.

        These iterations are the last `SLOTS` iterations, and the last iteration that had exemplars. Each set is
        ascending, int64. The list is empty if no exemplar has ever emerged.
        """
        different = dict.fromkeys(state.tobytes() for state in self._flags()[::-1] if state.any())
        return [np.flatnonzero(np.frombuffer(state, "uint8")) for state in different]

    def reach_all(self) -> bool:
        """Return whether each row has a similarity to one of the present exemplars."""
        return self._similarities.complete or not self.assign(self.states()[0]).missing

    def _flags(self) -> np.ndarray:
        """Return the exemplar flags of the last iteration with exemplars, then of the last iterations in order."""
        to_host = self._context.kernels.memory.to_host
        return np.vstack([to_host(self._latest), to_host(self.rows.messages.exemplars)[self._slots]])

    def add_noise(self) -> None:
        """Break ties again with fresh and larger noise: ``S + (eps S + 1000 tiny) U``."""
        self._similarities.add_noise()
        self.rows.noise_added()
        self.set_preference(self.preference)

    def save(self, control: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> None:
        """Save the messages after an iteration, with the caller's state. Set the next preference first.

        If this form of the rows cannot be saved, nothing happens, and the last checkpoint stays.

        Parameters
        ----------
        control, arrays : mapping
            State of the caller, as for `Checkpointer.save`.
        """
        if not self.rows.can_be_saved:
            return
        own = {
            "sigma": self._numbers.next_sigma,
            "damping": self._numbers.next_damping,
            "draws": self._similarities.draws,
            "rows": self.rows.name,
        }
        replicated, rows = self.rows.saved()
        replicated = {**(arrays or {}), **replicated, "states": np.packbits(self._flags(), axis=1)}
        self._context.checkpoint.save({**control, "messages": own}, replicated, rows, background=True)

    def restore(self, saved: Saved) -> None:
        """Resume from saved messages; call it on a new instance with the same preference."""
        own = saved.control["messages"]
        self._numbers = Iteration.before_the_first(self._negligible, own["sigma"], own["damping"])
        while self._similarities.draws < own["draws"]:
            self._similarities.add_noise()
        self.set_preference(self.preference)
        self.rows.restore(saved)
        to_device = self._context.kernels.memory.to_device
        flags = np.unpackbits(saved.arrays["states"], axis=1, count=self.rows.messages.n)
        self._latest[...], self.rows.messages.exemplars[...] = to_device(flags[0]), to_device(flags[1:])

    def assign(self, exemplars: np.ndarray, preference: np.ndarray | None = None) -> ExemplarAssignment:
        """Assign each row to its most similar exemplar, and each exemplar to itself; ties go to the lowest row number.

        Parameters
        ----------
        exemplars : ndarray of shape (k,), int64
            Row numbers, ascending, at least one.
        preference : ndarray of shape (n,), optional
            Preference for the net similarity; by default, the present preference.
        """
        labels, chosen = self.similar(exemplars)
        labels[exemplars] = np.arange(len(exemplars), dtype=labels.dtype)
        own_preference = self.preference if preference is None else preference
        chosen[exemplars] = own_preference[exemplars]
        return ExemplarAssignment(exemplars, labels, rounded_sum(chosen[labels >= 0]))

    def similar(self, exemplars: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each row's most similar exemplar other than the row itself, and the similarity in float64."""
        kernels, comm = self._context.kernels, self._context.comm
        nearest, similarity = self.rows.nearest(exemplars)
        to_host = kernels.memory.to_host
        return to_host(comm.all_gather(nearest)), to_host(comm.all_gather(similarity.astype("float64")))

    def gains(self, chosen: np.ndarray) -> np.ndarray:
        """Return for each row how much the similarities would grow if it became an exemplar, shape (n,).

        Parameters
        ----------
        chosen : ndarray of shape (n,), float64
            Similarity of each row to its exemplar; infinite if the row must keep its exemplar.
        """
        kernels, own, n = self._context.kernels, self._context.rows, len(chosen)
        lowest, highest = self._similarities.lowest, self._similarities.highest
        least = np.minimum(chosen, highest)
        sums = kernels.xp.zeros(n, "int64")
        reach = max(highest - min(lowest, float(least.min())), 1e-290)
        scale = 2.0 ** (BITS - math.ceil(math.log2(n)) - math.ceil(math.log2(reach)))
        u = kernels.memory.to_device(least[own.start : own.stop].astype(self._context.dtype))
        self.rows.add_gains(u, scale, sums)
        return kernels.memory.to_host(self._context.comm.all_reduce(sums, "sum")) / scale

    def refine(
        self, assignments: Sequence[ExemplarAssignment], preferences: Sequence[np.ndarray] | None = None
    ) -> list[ExemplarAssignment]:
        """Make the best member of each cluster its exemplar, and assign all rows again.

        The best member has the largest sum of its preference and the similarities of the other members to it.

        Parameters
        ----------
        assignments : sequence of ExemplarAssignment
        preferences : sequence of ndarray of shape (n,), optional
            Preference for each assignment; by default, the present preference.
        """
        given = preferences or [self.preference] * len(assignments)
        kernels, xp, comm = self._context.kernels, self._context.kernels.xp, self._context.comm
        n = self.rows.messages.n
        largest = max(abs(self._similarities.lowest), abs(self._similarities.highest), 1e-290)
        scale = 2.0 ** (BITS - math.ceil(math.log2(n)) - math.ceil(math.log2(largest)))
        sums = xp.zeros((len(assignments), n), "int64")
        self._similarities.add_same_label_sums([xp.asarray(each.labels) for each in assignments], scale, sums)
        refined = []
        totals = kernels.memory.to_host(comm.all_reduce(sums, "sum")) / scale
        for assignment, total, preference in zip(assignments, totals + np.array(given), given, strict=True):
            able = self._similarities.can_represent(assignment.labels)
            if able is not None:
                total = np.where(able, total, -np.inf)
            order = np.lexsort((-total, assignment.labels))  # stable, so that ties go to the lowest row
            cluster, first, size = np.unique(assignment.labels[order], return_index=True, return_counts=True)
            chosen = order[first]
            if self.tied and not self._similarities.given:
                # Devices round differently, so choose the first of the members that are equal up to rounding.
                rounding = NEARLY_EQUAL * float(np.finfo(self._context.dtype).eps)
                least = total[chosen] - rounding * abs(total[chosen] - preference[chosen])
                near = np.sort(order[total[order] >= np.repeat(least, size)])
                chosen = near[np.unique(assignment.labels[near], return_index=True)[1]]
            chosen = chosen[cluster >= 0]
            if self.tied and not self._similarities.given and len(chosen):
                chosen = self._first_near(chosen, assignment.labels, rounding * largest)
            # Take the first of duplicate rows: rounding on the device and noise may favour another duplicate.
            equal = self._similarities.first_equal[chosen]
            same = (assignment.labels[equal] == assignment.labels[chosen]) & (preference[equal] == preference[chosen])
            refined.append(self.assign(np.sort(np.where(same, equal, chosen)), preference))
        return refined

    def _first_near(self, chosen: np.ndarray, labels: np.ndarray, rounding: float) -> np.ndarray:
        """Return the first member of each cluster that equals the exemplar up to rounding."""
        nearest, similarity = self.similar(np.sort(chosen))
        own = self._similarities.diagonal
        exemplar = np.sort(chosen)[nearest]
        alike = (labels == labels[exemplar]) & (own[exemplar] >= self._similarities.highest - rounding)
        rows = np.flatnonzero(alike & (similarity >= own[exemplar] - rounding))
        first = np.arange(len(labels))
        np.minimum.at(first, exemplar[rows], rows)
        return first[chosen]

    def holds(self, preference: np.ndarray) -> bool:
        """Return whether the fixed-point sums can hold the messages that a preference gives.

        Parameters
        ----------
        preference : ndarray of shape (n,), float64
            As for `set_preference`.
        """
        _, largest, most = self._sums_of(preference)
        return largest <= most

    def _sums_of(self, preference: np.ndarray) -> tuple[float, float, float]:
        """Return the second largest preference, the largest message, and the largest message that sums can resolve.

        Let m1 and m2 be a row's two largest values of A + S, and p the second largest preference. Then m1 and m2 are at
        least min S + min(0, p - max S), because A(i,k) is at least min(0, R(k,k)) and R(k,k) is at least p(k) - max S.
        Both values are also at least the smallest preference. If a row may have no pair with row k, only this second
        bound holds.
        """
        lowest, highest = self._similarities.lowest, self._similarities.highest
        second = float(preference.min())
        if self._similarities.complete and second < preference.max():
            second = float(np.partition(preference, -2)[-2])
        largest = min(highest - lowest + max(0.0, highest - second), highest - float(preference.min()))
        reach = max(highest - lowest, abs(lowest), abs(highest))
        tiny = reach <= 1e3 * np.finfo(self._context.dtype).tiny
        most = math.inf if tiny else RESOLUTION * reach * 2.0**BITS / self.rows.messages.n
        return second, max(largest, 1e-290), most

    def _fixed_point(self, preference: np.ndarray) -> float:
        """Return the scale with which any sum of n positive R fits into an integer."""
        second, largest, most = self._sums_of(preference)
        if largest > most:
            lowest, highest = self._similarities.lowest, self._similarities.highest
            raise InputError(
                f"preference={second:g} should be >= {highest - most:.2g}, because the similarities range from "
                f"{lowest:g} to {highest:g}, and sums of messages cannot hold both; raise preference."
            )
        return 2.0 ** (BITS - math.ceil(math.log2(self.rows.messages.n)) - math.ceil(math.log2(largest)))
