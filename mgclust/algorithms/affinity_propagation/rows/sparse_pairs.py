"""Similarities of some pairs; all other pairs are impossible (-inf).

The lists of a row's pairs are complete (see `mgclust.kernels.affinity_propagation.sparse_forms.listed`), so no row is
ever undecided, and no n x n array exists. Two things differ from runs with all pairs. A row may have no pair with any
exemplar. A member of a cluster may lack a pair with another member, and so cannot become the exemplar of the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from mgclust.algorithms.affinity_propagation.rows.listed_rows import ListedRows
from mgclust.algorithms.affinity_propagation.rows.message_rows import MessageRows
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import (
    FIRST_NOISE,
    LATER_NOISE,
    Similarities,
    agreed_range,
)
from mgclust.engine.memory import Estimate
from mgclust.engine.spmd import Context
from mgclust.kernels.affinity_propagation.messages import PADDING, padded
from mgclust.kernels.affinity_propagation.sparse_forms.listed import load_lists

__all__ = ["SparsePairRows", "SparseSimilarities", "estimate_of_pairs", "fewest_exemplars"]

Array = Any


class SparseSimilarities(Similarities):
    """Similarities of the pairs of this rank's rows, as lists from largest to smallest; ties are ordered by column.

    The lists are on the host for every device, because work on them takes little time compared with the messages.

    Parameters
    ----------
    context : Context
    seed : int
        Seed of the noise that breaks ties.
    values, columns, bounds
        Pairs of all rows, as in `mgclust.data.sparse.SparseDataset`.

    Attributes
    ----------
    begin, length : int64 arrays of shape (own rows,)
        Beginning and length of each row's list.
    column, s : int32 and real arrays
        The lists, each in a multiple of 32 elements; S is -inf after the end of a list.
    """

    given = True
    complete = False

    def __init__(
        self, context: Context, seed: int, *, values: np.ndarray, columns: np.ndarray, bounds: np.ndarray
    ) -> None:
        super().__init__(context, seed)
        rows = context.rows
        part = slice(bounds[rows.start], bounds[rows.stop])
        self._bounds = bounds[rows.start : rows.stop + 1] - bounds[rows.start]
        self._numbers = np.arange(rows.start, rows.stop)
        self._column = columns[part].astype(np.int32)
        self._s = values[part].astype(context.dtype)
        self.length = np.diff(self._bounds)
        room = -(-self.length // PADDING) * PADDING
        self.begin = np.cumsum(room) - room
        self.column, self.s = np.zeros(room.sum(), np.int32), np.full(room.sum(), -np.inf, context.dtype)
        # Row of each pair, and its place in the lists; pairs are in the order of rows.
        self._row = np.repeat(np.arange(len(rows)), self.length)
        self._place = np.arange(len(self._row)) + np.repeat(self.begin - self._bounds[:-1], self.length)
        self._draw(FIRST_NOISE)

    def _draw(self, tiny: float) -> None:
        """Add noise to the similarities, and sort the lists."""
        load_lists("cpu").jitter_lists(
            self._s, self._bounds, self._numbers, self._column, seed=self.seed, draw=self.draws, tiny=tiny
        )
        order = np.lexsort((self._column, -self._s, self._row))
        self.column[self._place], self.s[self._place] = self._column[order], self._s[order]

    @property
    def all_alike(self) -> bool:
        """See `Similarities`; False, because the choice of pairs is a structure even if all similarities are equal."""
        return False

    def synchronize(self) -> None:
        """See `Similarities`."""
        ends = self._s.min(initial=np.inf), self._s.max(initial=-np.inf)
        self.lowest, self.highest = agreed_range(self.context, *ends)
        self._share_highest([self._s])

    def numbers(self) -> Iterator[Array]:
        """See `Similarities`."""
        n = self.context.dataset_shape[0]
        width = padded(n)
        for start in range(0, len(self._s), n):
            row = np.full((1, width), -np.inf, self._s.dtype)
            part = self._s[start : start + n]
            row[0, : len(part)] = part
            yield self.context.kernels.memory.to_device(row)

    def count(self) -> int:
        """See `Similarities`."""
        return int(self.context.comm.all_reduce(np.array([len(self._s)]), "sum")[0])

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """See `Similarities`."""
        for start in range(0, len(self._numbers), step := self.rows_at_once()):
            yield start, self.of_rows(np.arange(start, min(start + step, len(self._numbers))))

    def matrix(self) -> Array:
        """See `Similarities`."""
        return self.of_rows(np.arange(len(self._numbers)))

    def of_rows(self, rows: Array) -> Array:
        """See `Similarities`."""
        memory = self.context.kernels.memory
        s = np.full((len(rows), padded(self.context.dataset_shape[0])), -np.inf, self._s.dtype)
        for at, row in enumerate(memory.to_host(rows)):
            part = slice(self._bounds[row], self._bounds[row + 1])
            s[at, self._column[part]] = self._s[part]
        return memory.to_device(s)

    def of_columns(self, rows: Array, columns: Array) -> Array:
        """See `Similarities`."""
        return self.of_rows(rows)[:, columns]

    def add_noise(self) -> None:
        """See `Similarities`."""
        self.draws += 1
        self._draw(LATER_NOISE)

    def add_same_label_sums(self, labelings: list[Array], scale: float, out: Array) -> None:
        """See `Similarities`."""
        memory = self.context.kernels.memory
        for labels, total in zip(labelings, out, strict=True):
            same, own = self._same(memory.to_host(labels)), np.zeros(len(labels), np.int64)
            np.add.at(own, self._column[same], np.rint(self._s[same].astype(np.float64) * scale).astype(np.int64))
            total += memory.to_device(own)

    def can_represent(self, labels: Array) -> Array:
        """See `Similarities`."""
        members = np.bincount(self._column[self._same(labels)], minlength=len(labels))
        members = self.context.comm.all_reduce(members, "sum")
        return members + 1 == np.bincount(labels[labels >= 0], minlength=1)[labels]

    def _same(self, labels: Array) -> Array:
        """Return which pairs have both rows in one cluster."""
        return labels[self._numbers[self._row]] == labels[self._column]


class SparsePairRows(ListedRows):
    """Messages of the pairs that the caller gave."""

    similarities: SparseSimilarities

    def _first_lists(self) -> None:
        messages, given, xp = self.messages, self.similarities, self.context.kernels.xp
        for name in ("begin", "length", "column", "s"):
            setattr(messages, name, xp.array(getattr(given, name)))
        messages.a = xp.full(messages.s.shape, -np.inf, messages.s.dtype)
        messages.floor[...] = -np.inf

    def nearest(self, exemplars: np.ndarray) -> tuple[Array, Array]:
        """See `MessageRows`; -1 and -inf if a row has no pair with an exemplar."""
        found, similarity = self._nearest_listed(exemplars)
        missing = found < 0
        xp = self.context.kernels.xp
        position = xp.searchsorted(xp.asarray(exemplars), found).astype("int32")
        position[missing], similarity[missing] = -1, -np.inf
        return position, similarity

    def improved(self) -> MessageRows:
        """See `MessageRows`."""
        return self

    def _choose_active(self, slack: Array, most: int, pairs: float = math.inf) -> bool:
        return False

    def _remake(self, wanted: Array, counts: Array, columns: Array, values: Array) -> None:
        messages, given, memory = self.messages, self.similarities, self.context.kernels.memory
        messages.own[...], messages.a[...] = 0, -np.inf
        messages.column[...], messages.s[...] = memory.to_device(given.column), memory.to_device(given.s)
        recent_argmax, recent_s = memory.to_host(messages.recent_argmax), memory.to_host(messages.recent_s)
        for row, recent in enumerate(recent_argmax):
            part = slice(given.begin[row], given.begin[row] + given.length[row])
            for place in np.flatnonzero(recent >= 0):
                recent_s[row, place] = given.s[part][given.column[part] == recent[place]][0]
        messages.recent_s[...] = memory.to_device(recent_s)
        self._kernels.place_own(messages, self._rows, counts, columns, values)


def fewest_exemplars(columns: np.ndarray, bounds: np.ndarray, wanted: int) -> tuple[int, str]:
    """Return a lower bound of the number of exemplars with these pairs, and why it exceeds the requested number.

    Parameters
    ----------
    columns, bounds
        As in `mgclust.data.sparse.SparseDataset`.
    wanted : int
        Requested number of clusters.

    Returns
    -------
    least : int
        Lower bound of the number of exemplars of any solution.
    reason : str
        Why `least` is above `wanted`; empty if it is not.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(bounds) - 1
    rows = np.repeat(np.arange(n), np.diff(bounds))
    graph = csr_array((np.ones(len(columns), np.int8), columns, bounds), shape=(n, n))
    parts, part = connected_components(graph, connection="weak")
    closed, group = connected_components(graph, connection="strong")
    closed -= len(np.unique(group[rows[group[rows] != group[columns]]]))  # groups with a pair to a row outside
    # In each part, take the rows with the most pairs until they could have pairs with all rows of the part; count them.
    reached = 1 + np.bincount(columns, minlength=n)
    order = np.lexsort((-reached, part))
    sizes = np.bincount(part)
    first = np.cumsum(sizes) - sizes
    before = np.cumsum(reached[order]) - reached[order]
    needed = int((before - before[first][part[order]] < sizes[part[order]]).sum())
    reasons = [
        (parts, f"the pairs have {parts} connected components, each of which needs an exemplar"),
        (closed, f"{closed} groups of rows have no pair with a row outside, and each needs an exemplar"),
        (needed, f"rows need a pair with their exemplar, and no {needed - 1} rows together have pairs with all others"),
    ]
    return max(reasons)[0], next((reason for least, reason in reasons if least > wanted), "")


def estimate_of_pairs(shape: tuple[int, int], itemsize: int, size: int, room: int, *, pairs: int) -> Estimate:
    """Estimate the memory of a rank for `pairs` pairs: all pairs as given, and lists of its own rows."""
    n, own = shape[0], -(-shape[0] // size)
    lists = (-(-pairs // size) + own * PADDING // 2) * (4 + 2 * itemsize)
    given, sorted_pairs, vectors = pairs * 12, -(-pairs // size) * 48, n * 100 + own * 32 * 4 * (4 + 2 * itemsize)
    what = {"pairs as given": given, "lists": lists, "pairs while they are sorted": sorted_pairs, "vectors": vectors}
    return Estimate(what)
