"""The n x n similarities of affinity propagation: kept, each rank those of its own rows, or computed when asked for.

=============  ===============================  =============================================
affinity       S(i,k), i != k                   dissimilarity that the silhouette belongs to
=============  ===============================  =============================================
euclidean      -|x_i - x_k|^2                   |x_i - x_k|, or its square if asked for
cosine         -(1 - cos(x_i, x_k)) / 2         1 - cos
correlation    -(1 - r(x_i, x_k)) / 2           1 - r
precomputed    as given, row i of the data      -S, shifted to be positive
=============  ===============================  =============================================

Ties between similarities would make messages oscillate; noise breaks them: ``S + (eps S + 100 tiny) U``, with U in
[0, 1) from a counter-based generator (Philox) keyed on (seed, i, k). So S(i,k) does not depend on the rank.

Only their preferences S(k,k) distinguish duplicate rows. So if rows are duplicates or nearly so, preferences also get
noise (`Similarities.distinct`): ``S(k,k) - PREFERENCE_NOISE |S(k,k)| (16 - E)``. The noise is larger than the rounding
of messages. E has an exponential distribution, so the expected gap between the two largest of m values is the same for
any m. E is nearly always below 16, so the noise lowers preferences, and rows as similar as the preference share a
cluster.

Cost. Kept ones: n^2 reduced distances over all ranks, each written once; the data pass every rank once. Computed ones:
as many for each pass over all pairs, and all rows on every rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from mgclust.algorithms.common.preparation import DOT_CONDITION, MIN_FEATURES_FOR_DOT, prepare_rows
from mgclust.algorithms.common.row_hashes import row_hashes
from mgclust.base.errors import InputError
from mgclust.engine.spmd import Context
from mgclust.kernels.affinity_propagation.messages import padded
from mgclust.kernels.affinity_propagation.sparse_forms.columns import load_columns
from mgclust.kernels.affinity_propagation.sparse_forms.listed import load_lists
from mgclust.kernels.masks import count_true
from mgclust.kernels.pairs.metrics import METRICS

__all__ = [
    "AFFINITIES",
    "FIRST_NOISE",
    "LATER_NOISE",
    "PRECOMPUTED",
    "ComputedSimilarities",
    "Similarities",
    "StoredSimilarities",
    "agreed_range",
    "similarities_of",
    "similarity_matrix",
]

Array = Any

# The metric whose reduced distance the similarity is a multiple of, and that multiple (without its sign).
AFFINITIES = {"euclidean": ("euclidean", 1.0), "cosine": ("cosine", 0.25), "correlation": ("correlation", 0.25)}
PRECOMPUTED = ("precomputed", "precomputed_nearest_neighbors")  # what is no affinity between rows
TYPICAL_ROWS = 256  # whose distances tell the scale
BLOCK_BYTES = {"cpu": 16 << 20, "cuda": 1 << 30}  # of similarities that are computed at a time
TILE = {"cpu": 1, "cuda": 128}  # rows that a block has a multiple of: those of a tile have one order of operations
SAMPLE = 1024  # rows whose similarities tell about where the median is
BRACKET = 0.05  # of all pairs: a quantile of all is that close to the sample's
PAIR_COST = 16  # times as long as in a block takes a similarity of some columns
LABEL_COST = {"cpu": 1e5, "cuda": 1e8}  # similarities of a block that are computed in the time a label takes beside
FIRST_NOISE, LATER_NOISE = 100.0, 1000.0  # tiny of the noise that breaks ties, and of later draws
PREFERENCE_NOISE = {"float32": 2.0**-18, "float64": 2.0**-40}
USUALLY_BELOW = 16.0
NEARLY_EQUAL = 16.0  # eps, relative to preferences: messages round smaller differences away, or nearly so


class Similarities(ABC):
    """The similarities of this rank's rows to all rows.

    Parameters
    ----------
    context : Context
    seed : int
        Of the noise that breaks ties.

    Attributes
    ----------
    lowest, highest : float
        Of all ranks, the diagonal left out.
    first_equal : ndarray of shape (n,), int64
        The first row with the same values; the row itself if similarities are precomputed.
    equal_rows : bool
        Whether any rows have the same values.
    diagonal : ndarray of shape (n,)
        As it was given with precomputed similarities; else zeros, the similarity of a row to itself.
    """

    lowest: float
    highest: float
    complete = True  # each pair has a similarity above -inf
    given = False  # precomputed by the user, so bitwise identical on every device

    def __init__(self, context: Context, seed: int) -> None:
        self.context, self.seed, self.draws = context, seed, 0
        self.diagonal = np.zeros(context.dataset_shape[0])
        self.first_equal, self.equal_rows = np.arange(len(self.diagonal)), False

    def apart(self, preference: np.ndarray) -> float:
        """Return the least difference of a row's similarities to itself and to others, relative to preferences."""
        if self.equal_rows:
            return 0.0
        apart = max(0.0, float(self.diagonal.max())) - self.highest
        # A diagonal below `highest` does not hold the similarity of rows to themselves.
        return apart / max(float(abs(preference).max()), 1e-290) if apart >= -self._noise() else np.inf

    def distinct(self, preference: np.ndarray) -> np.ndarray:
        """Add noise to preferences, shape (n,), float64, if rows are equal, or messages cannot tell them apart.

        The result is bitwise identical on any number of ranks and on any device. Call `synchronize` before.
        """
        limits = np.finfo(self.context.dtype)
        if self.apart(preference) > NEARLY_EQUAL * limits.eps:
            return preference
        random = np.random.Philox(key=np.array([self.seed, self.draws], np.uint64)).random_raw(len(preference))
        # Minus the logarithm of a random number, but linear between powers of 2, so that each operation is exact.
        fraction, exponent = np.frexp(((random >> 11) + 0.5) * 2.0**-53)
        tiny = (LATER_NOISE if self.draws else FIRST_NOISE) * float(limits.tiny)
        size = PREFERENCE_NOISE[self.context.dtype.name] * abs(preference) + tiny
        return preference - size * (USUALLY_BELOW + exponent - 2 * (1 - fraction))

    @property
    def all_alike(self) -> bool:
        """No similarity differs from another by more than the noise."""
        return bool(self.highest - self.lowest <= self._noise())

    def _noise(self) -> float:
        """Return a bound of the differences that noise makes between equal similarities."""
        limits = np.finfo(self.context.dtype)
        return float(4 * (limits.eps * max(abs(self.lowest), abs(self.highest)) + 100 * limits.tiny))

    def _share_highest(self, values: Iterable[Array]) -> None:
        """Take some rows as equal if more than one pair has the highest precomputed similarity. Collective."""
        found = sum(count_true(each >= self.highest - self._noise()) for each in values)
        self.equal_rows |= bool(self.context.comm.all_reduce(np.array([found]), "sum")[0] > 2)

    @abstractmethod
    def blocks(self) -> Iterator[tuple[int, Array]]:
        """Own rows, some at a time: the position of the first among them, and an array (some, padded(n)).

        The diagonal and the padding are -inf. An array may be used until the next one comes.
        """

    @abstractmethod
    def matrix(self) -> Array:
        """All own rows, shape (m, padded(n)); the caller may keep them."""

    @abstractmethod
    def of_rows(self, rows: Array) -> Array:
        """Some own rows, by their positions among them: shape (len(rows), padded(n))."""

    @abstractmethod
    def of_columns(self, rows: Array, columns: Array) -> Array:
        """Some columns, ascending, of some own rows: shape (len(rows), len(columns)); -inf on the diagonal."""

    @abstractmethod
    def add_noise(self) -> None:
        """Break ties again, harder: ``S + (eps S + 1000 tiny) U`` with fresh U."""

    def add_same_label_sums(self, labelings: list[Array], scale: float, out: Array) -> None:
        """Add each column's similarities to own rows of its own label, in fixed point, for several labelings.

        Parameters
        ----------
        labelings : list of int32 arrays of shape (n,)
        scale : float
            rint(value * scale) is added.
        out : int64 array of shape (len(labelings), n)
        """
        sums, n = self.context.kernels.label_sums.same_label_sums, self.context.dataset_shape[0]
        for position, block in self.blocks() if labelings else ():
            for labels, total in zip(labelings, out, strict=True):
                sums(block, labels, n=n, first_row=self.context.rows.start + position, scale=scale, out=total)

    def can_represent(self, labels: Array) -> Array | None:
        """Tell which rows all others of their label have a similarity to: shape (n,), bool; None: all. Ranks meet."""
        return None

    def numbers(self) -> Iterator[Array]:
        """Own similarities as `order_statistics` takes them."""
        return (block for _, block in self.blocks())

    def count(self) -> int:
        """Count the similarities of all ranks."""
        n = self.context.dataset_shape[0]
        return n * (n - 1)

    def rows_at_once(self) -> int:
        """Number of rows of all columns that make a block."""
        width, device = padded(self.context.dataset_shape[0]), self.context.kernels.device
        rows = min(BLOCK_BYTES[device], self.context.free // 8) // (width * self.context.dtype.itemsize)
        return max(TILE[device], rows // TILE[device] * TILE[device])

    def typical(self, share: float) -> tuple[float, float] | None:
        """Numbers between which this quantile is believed to be; None where a pass costs little."""
        return None

    @abstractmethod
    def synchronize(self) -> None:
        """Find `lowest` and `highest`; all ranks meet."""

    def find_equal(self, hashes: Iterable[Array]) -> None:
        """Find equal rows from hashes of local rows, some at a time. Collective."""
        xp = self.context.kernels.xp
        own = xp.concatenate([xp.zeros(0, "uint64"), *hashes])
        every = self.context.kernels.memory.to_host(self.context.comm.all_gather(own))
        _, first, group = np.unique(every, return_index=True, return_inverse=True)
        self.first_equal, self.equal_rows = first[group], len(first) < len(every)


class StoredSimilarities(Similarities):
    """They are kept, own rows times all: shape (m, padded(n)).

    Parameters
    ----------
    context, seed
        As in `Similarities`.
    s : array of shape (m, padded(n))
    given : bool
        Whether the user precomputed the similarities, so that the run has no rows.
    """

    def __init__(self, context: Context, seed: int, s: Array, given: bool = False) -> None:
        super().__init__(context, seed)
        self.s, self.given = s, given

    def synchronize(self) -> None:
        """See `Similarities`."""
        self.lowest, self.highest = agreed_range(self.context, *_range(self.context, self.s))
        if self.given:
            self._share_highest(self.s[start : start + 128] for start in range(0, len(self.s), 128))
        if self.given and self.lowest >= 0 and not self.all_alike and not self.diagonal.any() and self._is_symmetric():
            raise InputError(
                "X has no negative value and zeros on its diagonal, and is symmetric, so it may hold distances or "
                "similarities. For distances give -X**2; from similarities subtract the largest (X - X.max())."
            )

    def _is_symmetric(self) -> bool:
        """Return whether similarities are symmetric among the rows of each rank, as distances are. Collective."""
        own = self.context.rows
        xp, square = self.context.kernels.xp, self.s[:, own.start : own.stop]
        square = xp.where(xp.isfinite(square), square, 0)  # the diagonal is -inf
        apart = float(abs(square - square.T).max()) if len(square) else 0.0
        return float(self.context.comm.all_reduce(np.array([apart]), "max")[0]) <= 1e-5 * self.highest

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """See `Similarities`."""
        if len(self.s):
            yield 0, self.s

    def matrix(self) -> Array:
        """See `Similarities`."""
        return self.s

    def of_rows(self, rows: Array) -> Array:
        """See `Similarities`."""
        return self.s[rows]

    def of_columns(self, rows: Array, columns: Array) -> Array:
        """See `Similarities`."""
        return self.s[rows[:, None], columns[None]]

    def add_noise(self) -> None:
        """See `Similarities`."""
        self.draws += 1
        kernels, rows = self.context.kernels, self.context.rows
        kernels.affinity_propagation.jitter(
            self.s, rows.start + kernels.xp.arange(len(rows)), n=self.context.dataset_shape[0], seed=self.seed,
            draw=self.draws, tiny=LATER_NOISE,
        )  # fmt: skip


class ComputedSimilarities(Similarities):
    """They are computed from the rows whenever they are asked for: each rank has all rows, and no matrix.

    The same numbers as a matrix would hold, bit for bit.
    """

    def __init__(self, context: Context, seed: int, affinity: str, norm: str) -> None:
        super().__init__(context, seed)
        self._lists = load_lists(context.kernels.device)
        self._factor, self._norm = AFFINITIES[affinity][1], norm
        self._y = context.gather_rows(np.arange(context.dataset_shape[0]))
        self._range: list[tuple[float, float]] | None = None  # of all blocks, once they have passed
        self._most: Array | None = None  # what `add_positive_products` has found

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """See `Similarities`."""
        m, seen = len(self.context.rows), []
        for start in range(0, m, step := self.rows_at_once()):
            block = self._block(start, min(start + step, m))
            if self._range is None:
                seen.append(_range(self.context, block))
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
        """Rows with these numbers, with the noise of later draws."""
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
        """See `Similarities`; with the noise of so many later draws, by default of all."""
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
        """Add to each column the sum over own rows of max(0, sigma S - u) in fixed point.

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
        """See `Similarities`; without the pairs of other labels where these are nearly all."""
        n, beside = self.context.dataset_shape[0], LABEL_COST[self.context.kernels.device]
        sizes = [np.bincount(self.context.kernels.memory.to_host(labels)) for labels in labelings]
        many = [bool((size**2).sum() * PAIR_COST + len(size) * beside > n**2) for size in sizes]
        of_many = out[many]  # a copy
        super().add_same_label_sums([x for x, each in zip(labelings, many, strict=True) if each], scale, of_many)
        out[many] = of_many
        for labels, total, whole in zip(labelings, out, many, strict=True):
            if not whole:
                self._add_by_label(labels, scale, total)

    def _add_by_label(self, labels: Array, scale: float, out: Array) -> None:
        xp, first = self.context.kernels.xp, self.context.rows.start
        own = labels[first : first + len(self.context.rows)]
        for label in np.unique(self.context.kernels.memory.to_host(own)).tolist():
            columns, rows = xp.flatnonzero(labels == label), xp.flatnonzero(own == label)
            step = max(1, BLOCK_BYTES[self.context.kernels.device] // (8 * len(columns)))
            for start in range(0, len(rows), step):
                s = self.of_columns(rows[start : start + step], columns).astype("float64")
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
    """Make the similarities ready; the rows are left as the metric wants them.

    Parameters
    ----------
    context : Context
    affinity : {"euclidean", "cosine", "correlation", "precomputed"}
    seed : int
        Of the noise that breaks ties.
    stored : bool
        Keep all of them; precomputed ones are kept always.
    """
    if stored or affinity == "precomputed":
        return similarity_matrix(context, affinity, seed)
    similarities = ComputedSimilarities(context, seed, affinity, _prepare(context, affinity))
    similarities.find_equal(row_hashes(chunk.x, context.kernels.xp) for chunk in context.rows.chunks())
    return similarities


def similarity_matrix(context: Context, affinity: str, seed: int) -> StoredSimilarities:
    """Compute or read the similarities of this rank's rows; the rows are left as the metric wants them.

    Parameters
    ----------
    context : Context
    affinity : {"euclidean", "cosine", "correlation", "precomputed"}
    seed : int
        Of the noise that breaks ties.
    """
    if affinity == "precomputed":
        return _read(context, seed)
    xp, kernels, rows = context.kernels.xp, context.kernels, context.rows
    n = context.dataset_shape[0]
    norm = _prepare(context, affinity)
    s = xp.empty((len(rows), padded(n)), context.dtype)
    s[:, n:] = -xp.inf
    for chunk, block in context.all_pairs():
        kernels.affinity_propagation.similarities(
            chunk.x,
            block.x,
            norm=norm,
            factor=AFFINITIES[affinity][1],
            first_row=chunk.start,
            y_start=block.start,
            seed=seed,
            out=s[chunk.start - rows.start : chunk.stop - rows.start],
        )
    similarities = StoredSimilarities(context, seed, s)
    similarities.find_equal(row_hashes(chunk.x, xp) for chunk in rows.chunks())
    return similarities


def _prepare(context: Context, affinity: str) -> str:
    """Make the rows ready; return the arithmetic that their distances can afford."""
    measure = METRICS[AFFINITIES[affinity][0]]
    radius = prepare_rows(context, measure).radius
    if context.rows.n_features < MIN_FEATURES_FOR_DOT:
        return measure.norm
    n = context.dataset_shape[0]
    chosen = np.sort(np.random.default_rng(0).choice(n, min(n, TYPICAL_ROWS), replace=False))
    x = context.gather_rows(chosen)
    typical = float(
        np.median(context.kernels.memory.to_host(context.kernels.pairs.reduced_distances(x, x, norm=measure.norm)))
    )
    return "l2-dot" if radius <= DOT_CONDITION * typical else measure.norm


def _read(context: Context, seed: int) -> StoredSimilarities:
    """Read precomputed similarities: row i of the data holds the similarities of row i."""
    xp, rows, n = context.kernels.xp, context.rows, context.dataset_shape[0]
    s = xp.empty((len(rows), padded(n)), context.dtype)
    s[:, n:] = -xp.inf
    hashes = []
    for block in rows.chunks():
        hashes.append(row_hashes(block.x, xp))
        s[block.start - rows.start : block.stop - rows.start, :n] = block.x
        context.progress((block.stop - rows.start) / max(1, len(rows)))
    own = xp.arange(len(rows))
    diagonal = context.kernels.memory.to_host(context.comm.all_gather(s[own, own + rows.start].astype("float64")))
    s[own, own + rows.start] = -xp.inf
    numbers = rows.start + xp.arange(len(rows))
    context.kernels.affinity_propagation.jitter(s, numbers, n=n, seed=seed, draw=0, tiny=100.0)
    similarities = StoredSimilarities(context, seed, s, given=True)
    similarities.find_equal(hashes)
    # If two rows of similarities are equal, their columns may still differ.
    similarities.first_equal, similarities.diagonal = np.arange(n), diagonal
    return similarities


def _range(context: Context, s: Array) -> tuple[float, float]:
    """The least and the largest of some rows' similarities."""
    xp = context.kernels.xp
    low, high = xp.full(1, xp.inf), xp.full(1, -xp.inf)
    step = context.partition.block_rows
    for start in range(0, s.shape[0], step):
        part = s[start : start + step]  # with its padding of -inf: contiguous, which CuPy reduces many times faster
        high = xp.maximum(high, part.max())
        low = xp.minimum(low, xp.where(part > -xp.inf, part, xp.inf).min())
        context.progress(start / s.shape[0])
    return float(low[0]), float(high[0])


def agreed_range(context: Context, low: float, high: float) -> tuple[float, float]:
    """The least and the largest of all ranks."""
    least, largest = context.comm.all_reduce(np.array([low]), "min"), context.comm.all_reduce(np.array([high]), "max")
    return float(least[0]), float(largest[0])
