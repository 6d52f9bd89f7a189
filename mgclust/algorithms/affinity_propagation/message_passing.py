"""Affinity propagation's messages on this rank's rows, until its caller has seen enough.

The equations, and what is kept of them, stand in `mgclust.kernels.affinity_propagation.messages`. Here iterations are
queued: a GPU works through many of them while the host prepares the next ones, and their numbers of exemplars are read
together afterwards. So a caller says how many iterations it wants under which damping, looks at what came out, and
decides.

All ranks hold the same vectors (c, the diagonals, the exemplars) bit for bit, so all come to the same decisions
without asking each other. Per iteration they meet once, in the sum of 2 n integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.affinity_propagation.similarity_matrix import Similarities
from mgclust.engine.checkpoint import Saved
from mgclust.engine.spmd import Context
from mgclust.errors import InputError
from mgclust.kernels.affinity_propagation.messages import HOT_COLUMNS, Messages, padded

__all__ = ["SLOTS", "Assignment", "MessagePassing", "bytes_needed"]

Array = Any
SLOTS = 32  # iterations that are queued at once
RESOLUTION = 1e-6  # of those sums, as a share of the largest similarity: worse is refused
# What a checkpoint holds of `Messages`: what all ranks have alike, and what belongs to their rows. S is computed again.
ALIKE = ("c", "r_diagonal", "a_diagonal", "last_exemplars")
OF_ROWS = ("a", "u", "hot_column", "hot_e", "hot_a")
BITS = 61  # of a fixed-point sum: one is the sign, one is left for rounding


class Assignment(NamedTuple):
    """Exemplars, and the rows that belong to each."""

    exemplars: np.ndarray  # shape (k,), int64: rows, ascending
    labels: np.ndarray  # shape (n,), int32: position of each row's exemplar
    net_similarity: float  # sum of the similarities of rows to their exemplars, and of the exemplars' preferences


class MessagePassing:
    """The state of the messages, and the sweeps that change it.

    Parameters
    ----------
    context : Context
    similarities : Similarities
    preference : ndarray of shape (n,), float64
        S(k,k).
    seed : int
        Of the noise that breaks ties.
    """

    def __init__(self, context: Context, similarities: Similarities, preference: np.ndarray, seed: int) -> None:
        xp, n, m = context.kernels.xp, context.dataset_shape[0], len(context.rows)
        s = similarities.s
        self._context = context
        self._similarities = similarities
        self._seed = seed
        self._draws = 0
        self._filled = 0
        self._sigma, self._damping = 0.0, 1.0
        a = xp.zeros_like(s)
        step = context.partition.block_rows
        for start in range(0, m, step):
            part = slice(start, start + step)
            a[part][s[part] == -xp.inf] = -xp.inf
        self.messages = Messages(
            n=n,
            first_row=context.rows.start,
            s=s,
            a=a,
            u=xp.zeros(m),
            hot_column=xp.full((m, HOT_COLUMNS), -1, "int32"),
            hot_e=xp.zeros((m, HOT_COLUMNS), s.dtype),
            hot_a=xp.zeros((m, HOT_COLUMNS), s.dtype),
            hot_most=xp.zeros(1, "int32"),
            c=xp.zeros(s.shape[1], s.dtype),
            r_diagonal=xp.zeros(n),
            a_diagonal=xp.zeros(n),
            preference=xp.zeros(n),
            sums=xp.zeros((2, n), "int64"),
            exemplars=xp.zeros((SLOTS, n), "uint8"),
            last_exemplars=xp.zeros(n, "uint8"),
            counts=xp.zeros((SLOTS, 2), "int64"),
        )
        self.set_preference(preference)

    def set_preference(self, preference: np.ndarray) -> None:
        """Change S(k,k) from the next iteration on; the messages stay.

        Parameters
        ----------
        preference : ndarray of shape (n,), float64
        """
        self.messages.preference = self._context.kernels.memory.to_device(np.array(preference, np.float64))
        self._preference = preference
        self._scale = self._fixed_point(preference)

    def iterate(self, dampings: list[float]) -> list[tuple[int, bool]]:
        """Go through so many iterations, each with its damping.

        Parameters
        ----------
        dampings : list of float
            At most `SLOTS`; each > 0 and < 1.

        Returns
        -------
        list of (int, bool)
            Of each: the number of exemplars, and whether they are those of the iteration before.
        """
        kernels, comm, messages = self._context.kernels, self._context.comm, self.messages
        self._make_room(len(dampings))
        for slot, damping in enumerate(dampings):
            sigma = damping * self._sigma + (1.0 - damping)
            kernels.affinity_propagation.pass_rows(
                messages,
                sigma=self._sigma,
                next_sigma=sigma,
                damping=self._damping,
                next_damping=damping,
                scale=self._scale,
                negligible=float(np.finfo(messages.s.dtype).eps) / 8,  # below the rounding of R = sigma S - u - E
            )
            comm.queue_reduce(messages.sums)
            kernels.affinity_propagation.pass_columns(messages, damping=damping, scale=self._scale, slot=slot)
            self._sigma, self._damping = sigma, damping
        comm.settle()
        counts = kernels.memory.to_host(messages.counts[: len(dampings)])
        return [(int(n_exemplars), changed == 0) for n_exemplars, changed in counts]

    def exemplars(self, slot: int) -> np.ndarray:
        """Rows that were exemplars after the slot-th of the last iterations; ascending, int64."""
        return np.flatnonzero(self._context.kernels.memory.to_host(self.messages.exemplars[slot]))

    def add_noise(self) -> None:
        """Break ties again, harder: ``S + (eps S + 1000 tiny) U`` with fresh U."""
        self._draws += 1
        messages = self.messages
        self._context.kernels.affinity_propagation.jitter(
            messages.s, n=messages.n, first_row=messages.first_row, seed=self._seed, draw=self._draws, tiny=1000.0
        )

    def save(self, control: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> None:
        """Save the messages, with what the caller needs beside them; after an iteration, the preference set.

        Parameters
        ----------
        control, arrays : mapping
            As for `Checkpointer.save`.
        """
        own = {"sigma": self._sigma, "damping": self._damping, "draws": self._draws}
        alike = {name: self._context.kernels.memory.to_host(getattr(self.messages, name)) for name in ALIKE}
        self._context.checkpoint.save(
            {**control, "messages": own},
            {**(arrays or {}), **alike},
            {name: getattr(self.messages, name) for name in OF_ROWS},
            background=True,
        )

    def restore(self, saved: Saved) -> None:
        """Resume from messages that were saved: those of a new instance, its preference the same."""
        kernels, own = self._context.kernels, saved.control["messages"]
        self._sigma, self._damping = own["sigma"], own["damping"]
        while self._draws < own["draws"]:
            self.add_noise()
        for name in ALIKE:
            getattr(self.messages, name)[...] = kernels.memory.to_device(saved.arrays[name])
        for name in OF_ROWS:
            for place, rows in saved.rows(name):
                if name == "hot_column":
                    # Ranks have as many hot places as their rows have needed.
                    self._widen(rows.shape[1])
                    self._filled = max(self._filled, int((rows >= 0).sum(axis=1).max()))
                getattr(self.messages, name)[place][..., : rows.shape[-1]] = kernels.memory.to_device(rows)
        self.messages.hot_most[0] = self._filled

    def assign(self, exemplars: np.ndarray, preference: np.ndarray | None = None) -> Assignment:
        """Give each row to the exemplar it is most similar to, the lowest of equals, and exemplars to themselves.

        Parameters
        ----------
        exemplars : ndarray of shape (k,), int64
            Rows, ascending, at least one.
        preference : ndarray of shape (n,), optional
            For the net similarity; by default the present one.
        """
        kernels, xp, comm, s = self._context.kernels, self._context.kernels.xp, self._context.comm, self.messages.s
        rows = self._context.rows
        columns = xp.asarray(exemplars, "int64")
        nearest = xp.zeros(len(rows), "int32")
        kernels.label_sums.best_columns(s, columns, out=nearest)
        labels = kernels.memory.to_host(comm.all_gather(nearest))
        labels[exemplars] = np.arange(len(exemplars), dtype=labels.dtype)
        of_own = columns[xp.asarray(labels[rows.start : rows.stop], "int64")]
        chosen = kernels.memory.to_host(comm.all_gather(s[xp.arange(len(rows)), of_own].astype("float64")))
        own_preference = self._preference if preference is None else preference
        chosen[exemplars] = own_preference[exemplars]
        return Assignment(exemplars, labels, math.fsum(chosen))

    def refine(self, assignment: Assignment) -> Assignment:
        """Make the member that the others of its cluster are most similar to the exemplar, and assign again."""
        kernels, xp, comm = self._context.kernels, self._context.kernels.xp, self._context.comm
        n, labels = self.messages.n, assignment.labels
        largest = max(abs(self._similarities.lowest), abs(self._similarities.highest), 1e-290)
        scale = 2.0 ** (BITS - math.ceil(math.log2(n)) - math.ceil(math.log2(largest)))
        sums = xp.zeros(n, "int64")
        kernels.label_sums.same_label_sums(
            self.messages.s, xp.asarray(labels), n=n, first_row=self.messages.first_row, scale=scale, out=sums
        )
        total = kernels.memory.to_host(comm.all_reduce(sums, "sum")) / scale + self._preference
        order = np.lexsort((-total, labels))  # stable: of equals the lowest row comes first
        _, first = np.unique(labels[order], return_index=True)
        return self.assign(np.sort(order[first]))

    def _fixed_point(self, preference: np.ndarray) -> float:
        """The scale by which a sum of n positive R fits into an integer, whatever the messages.

        m1 and m2 of a row are at least min S + min(0, p - max S) for p the second largest preference, since A(i,k) is
        at least min(0, R(k,k)) and R(k,k) at least p(k) - max S; and at least the smallest preference of all.
        """
        lowest, highest = self._similarities.lowest, self._similarities.highest
        second = float(np.partition(preference, -2)[-2])
        largest = min(highest - lowest + max(0.0, highest - second), highest - float(preference.min()))
        largest = max(largest, 1e-290)
        reach = max(highest - lowest, abs(lowest), abs(highest))
        most = RESOLUTION * reach * 2.0**BITS / self.messages.n
        if reach > 1e3 * np.finfo(self.messages.s.dtype).tiny and largest > most:
            raise InputError(
                f"preference={second:g} should be >= {highest - most:.2g}: the similarities reach from {lowest:g} to "
                f"{highest:g}, and sums of messages could not hold both; raise it."
            )
        return 2.0 ** (BITS - math.ceil(math.log2(self.messages.n)) - math.ceil(math.log2(largest)))

    def close(self) -> Array:
        """Free the messages; returns the similarities."""
        s = self.messages.s
        del self.messages
        return s

    def _make_room(self, iterations: int) -> None:
        """Each iteration fills at most one more hot place a row."""
        messages = self.messages
        places = messages.hot_column.shape[1]
        self._filled += iterations
        if self._filled <= places:
            return
        self._filled = int(messages.hot_most[0]) + iterations
        if self._filled <= places:
            return
        self._widen(-(-self._filled // HOT_COLUMNS) * HOT_COLUMNS)

    def _widen(self, more: int) -> None:
        """Make it at least so many hot places a row."""
        messages, xp = self.messages, self._context.kernels.xp
        places = messages.hot_column.shape[1]
        if places >= more:
            return
        for name, empty in (("hot_column", -1), ("hot_e", 0), ("hot_a", 0)):
            old = getattr(messages, name)
            grown = xp.full((old.shape[0], more), empty, old.dtype)
            grown[:, :places] = old
            setattr(messages, name, grown)


def bytes_needed(n: int, size: int, itemsize: int) -> tuple[int, int]:
    """Bytes of the matrices of one rank of so many, and of all else that message passing keeps there."""
    rows = -(-n // size)
    return 2 * rows * padded(n) * itemsize, rows * 4 * HOT_COLUMNS * (4 + 2 * itemsize) + n * (8 * 8 + SLOTS)
