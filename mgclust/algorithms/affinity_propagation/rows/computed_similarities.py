"""Similarities that no rank stores: each one is computed from the rows whenever it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import (
    AFFINITIES,
    BLOCK_BYTES,
    LATER_NOISE,
    Similarities,
    agreed_range,
    prepare_affinity,
    range_of,
    similarity_matrix,
)
from mgclust.algorithms.common.row_hashes import row_hashes
from mgclust.engine.spmd import Context
from mgclust.kernels.affinity_propagation.messages import padded
from mgclust.kernels.affinity_propagation.sparse_forms.columns import load_columns
from mgclust.kernels.affinity_propagation.sparse_forms.listed import load_lists

__all__ = ["ComputedSimilarities", "similarities_of"]

Array = Any

SAMPLE = 1024  # number of rows whose similarities give a rough quantile
BRACKET = 0.05  # a quantile of all pairs is within this fraction of the sample's quantile
PAIR_COST = 16  # time of a similarity in selected columns, relative to a similarity in a full block
LABEL_COST = {"cpu": 1e5, "cuda": 1e8}  # extra time per label, in similarities of a full block


class ComputedSimilarities(Similarities):
    """Similarities that are computed from the rows on demand: each rank has all rows, but no matrix.

    The values are bitwise identical to the values of a stored matrix.
    """

    def __init__(self, context: Context, seed: int, affinity: str, norm: str) -> None:
        super().__init__(context, seed)
        self._lists = load_lists(context.kernels.device)
        self._factor, self._norm = AFFINITIES[affinity][1], norm
        self._y = context.gather_rows(np.arange(context.dataset_shape[0]))
        self._range: list[tuple[float, float]] | None = None  # range of each block, after the first pass
        self._most: Array | None = None  # result of the last `add_positive_products`

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """See `Similarities`."""
        m, seen = len(self.context.rows), []
        for start in range(0, m, step := self.rows_at_once()):
            block = self._block(start, min(start + step, m))
            if self._range is None:
                seen.append(range_of(self.context, block))
            yield start, block
            self.context.progress(start / m)
        if self._range is None:
            self._range = seen

    def _block(self, start: int, stop: int) -> Array:
        kernels, n, first = self.context.kernels, self.context.dataset_shape[0], self.context.rows.start
        s = kernels.xp.empty((stop - start, self._width()), self.context.dtype)
        s[:, n:] = -np.inf
        kernels.affinity_propagation.similarities(
            self._y[first + start : first + stop], self._y, norm=self._norm, factor=self._factor,
            first_row=first + start, y_start=0, seed=self.seed, out=s,
        )  # fmt: skip
        return self._drawn(s, kernels.xp.arange(first + start, first + stop))

    def _drawn(self, s: Array, numbers: Array) -> Array:
        """Add the noise of later draws to rows with these numbers."""
        n, kernels = self.context.dataset_shape[0], self.context.kernels.affinity_propagation
        for draw in range(1, self.draws + 1):
            kernels.jitter(s, numbers, n=n, seed=self.seed, draw=draw, tiny=LATER_NOISE)
        return s

    def synchronize(self) -> None:
        """See `Similarities`."""
        if self._range is None:
            for _ in self.blocks():
                pass
        ends = np.array([*(self._range or []), (np.inf, -np.inf)])
        self.lowest, self.highest = agreed_range(self.context, ends[:, 0].min(), ends[:, 1].max())

    def matrix(self) -> Array:
        """See `Similarities`."""
        s = self.context.kernels.xp.empty((len(self.context.rows), self._width()), self.context.dtype)
        for start, block in self.blocks():
            s[start : start + len(block)] = block
        return s

    def of_rows(self, rows: Array) -> Array:
        """See `Similarities`."""
        kernels, n = self.context.kernels, self.context.dataset_shape[0]
        numbers = rows + self.context.rows.start
        s = kernels.xp.empty((len(rows), self._width()), self.context.dtype)
        s[:, n:] = -np.inf
        self._lists.similarities_of_rows(
            self._y[numbers], numbers, self._y, norm=self._norm, factor=self._factor, seed=self.seed, out=s
        )
        return self._drawn(s, numbers)

    def of_columns(self, rows: Array, columns: Array, draws: int | None = None) -> Array:
        """See `Similarities`; `draws` is the number of later draws of noise, by default all."""
        numbers = rows + self.context.rows.start
        s = self.context.kernels.xp.empty((len(rows), len(columns)), self.context.dtype)
        self._lists.similarities_of_columns(
            self._y[numbers], numbers, self._y[columns], columns, norm=self._norm, factor=self._factor, seed=self.seed,
            out=s,
        )  # fmt: skip
        for draw in range(1, (self.draws if draws is None else draws) + 1):
            self._lists.jitter_pairs(s, numbers, columns, seed=self.seed, draw=draw, tiny=LATER_NOISE)
        return s

    def add_positive(self, u: Array, sigma: float, scale: float, out: Array) -> None:
        """Add to each column the sum over local rows of max(0, sigma S - u), in fixed point.

        Parameters
        ----------
        u : array of shape (own rows,), the similarities' type
        sigma, scale : float
            rint(value * scale) is added.
        out : int64 array of shape (at least n,)
        """
        kernels, n, first = (
            load_columns(self.context.kernels.device),
            self.context.dataset_shape[0],
            self.context.rows.start,
        )
        m, numbers = len(u), {"sigma": sigma, "scale": scale, "out": out}
        if not self.draws:
            self._most = kernels.add_positive_products(
                self._y[first : first + m], self._y, u, self._most, norm=self._norm, factor=self._factor,
                first_row=first, seed=self.seed, **numbers,
            )  # fmt: skip
            if self._most is not None:
                return
        for start in range(0, m, step := self.rows_at_once()):
            stop = min(start + step, m)
            kernels.add_positive(self._block(start, stop), u[start:stop], n=n, **numbers)

    def add_noise(self) -> None:
        """See `Similarities`."""
        self.draws += 1

    def add_same_label_sums(self, labelings: list[Array], scale: float, out: Array) -> None:
        """See `Similarities`; computes only the pairs of rows with equal labels if these pairs are few."""
        n, beside = self.context.dataset_shape[0], LABEL_COST[self.context.kernels.device]
        sizes = [np.bincount(self.context.kernels.memory.to_host(labels)) for labels in labelings]
        many = [bool((size**2).sum() * PAIR_COST + len(size) * beside > n**2) for size in sizes]
        of_many = out[many]  # a copy, written back below
        super().add_same_label_sums([x for x, each in zip(labelings, many, strict=True) if each], scale, of_many)
        out[many] = of_many
        for labels, total, whole in zip(labelings, out, many, strict=True):
            if not whole:
                self._add_by_label(labels, scale, total)

    def _add_by_label(self, labels: Array, scale: float, out: Array) -> None:
        """Add the sums of the labels of this rank; each rank has all rows, so one rank per label is enough."""
        xp, context = self.context.kernels.xp, self.context
        order = xp.argsort(labels, kind="stable")
        sizes = np.bincount(context.kernels.memory.to_host(labels))
        ends = np.cumsum(sizes)
        before = np.cumsum(sizes**2 * PAIR_COST + LABEL_COST[context.kernels.device])
        owner = (before - before[0]) * context.size // before[-1]
        for label in np.flatnonzero((owner == context.rank) & (sizes > 0)).tolist():
            columns = order[ends[label] - sizes[label] : ends[label]]
            step = max(1, BLOCK_BYTES[context.kernels.device] // (8 * len(columns)))
            for start in range(0, len(columns), step):
                rows = columns[start : start + step] - context.rows.start
                s = self.of_columns(rows, columns).astype("float64")
                out[columns] += xp.rint(xp.where(s > -xp.inf, s, 0) * scale).astype("int64").sum(axis=0)

    def typical(self, share: float) -> tuple[float, float] | None:
        """See `Similarities`."""
        xp, n = self.context.kernels.xp, self.context.dataset_shape[0]
        if n < 2 * SAMPLE:
            return None
        chosen = xp.asarray(np.sort(np.random.default_rng(0).choice(n, SAMPLE, replace=False)))
        x = self._y[chosen]
        s = self.context.kernels.pairs.reduced_distances(x, x, norm=self._norm).astype("float64") * -self._factor
        away = ~xp.eye(SAMPLE, dtype=bool)
        ends = xp.array([max(0.0, share - BRACKET), min(1.0, share + BRACKET)])
        low, high = xp.quantile(s[away], ends)
        return float(low), float(high)

    def _width(self) -> int:
        return padded(self.context.dataset_shape[0])


def similarities_of(context: Context, affinity: str, seed: int, stored: bool) -> Similarities:
    """Return the similarities of a run; leaves the rows prepared for the metric.

    Parameters
    ----------
    context : Context
    affinity : {"euclidean", "cosine", "correlation", "precomputed"}
    seed : int
        Seed of the noise that breaks ties.
    stored : bool
        Whether to store all similarities; precomputed similarities are always stored.
    """
    if stored or affinity == "precomputed":
        return similarity_matrix(context, affinity, seed)
    norm, prepared = prepare_affinity(context, affinity)
    similarities = ComputedSimilarities(context, seed, affinity, norm)
    similarities.prepared = prepared
    similarities.find_equal(row_hashes(chunk.x, context.kernels.xp) for chunk in context.rows.chunks())
    return similarities
