"""The n x n similarities of affinity propagation: their definition and noise, and a matrix that stores a rank's rows.

=============  ===============================  =============================================
affinity       S(i,k), i != k                   dissimilarity for the silhouette
=============  ===============================  =============================================
euclidean      -|x_i - x_k|^2                   |x_i - x_k|, or its square if requested
cosine         -(1 - cos(x_i, x_k)) / 2         1 - cos
correlation    -(1 - r(x_i, x_k)) / 2           1 - r
precomputed    row i of the data                -S, shifted to be positive
=============  ===============================  =============================================

Ties between similarities would make messages oscillate, so noise breaks them: ``S + (eps S + 100 tiny) U``. U is in
[0, 1), from a counter-based generator (Philox) keyed on (seed, i, k). So S(i,k) does not depend on the rank.

Only the preferences S(k,k) distinguish duplicate rows. So if rows are equal or nearly equal, preferences also get noise
(`Similarities.distinct`): ``S(k,k) - PREFERENCE_NOISE |S(k,k)| (16 - E)``. The noise is larger than the rounding of
messages. E has an exponential distribution, so the expected gap between the two largest of m values is the same for any
m. E is nearly always below 16, so the noise lowers preferences. As a result, two rows share a cluster if their
similarity equals the preference.

Cost. Stored similarities: n^2 reduced distances over all ranks, each written once; all rows are sent to every rank
once. Computed similarities: n^2 reduced distances for each pass over all pairs, and all rows on every rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from mgclust.algorithms.common.preparation import DOT_CONDITION, MIN_FEATURES_FOR_DOT, Prepared, prepare_rows
from mgclust.algorithms.common.row_hashes import row_hashes
from mgclust.base.errors import InputError
from mgclust.engine.spmd import Context
from mgclust.kernels.affinity_propagation.messages import padded
from mgclust.kernels.masks import count_true
from mgclust.kernels.pairs.metrics import METRICS

__all__ = [
    "AFFINITIES",
    "BLOCK_BYTES",
    "FIRST_NOISE",
    "LATER_NOISE",
    "PRECOMPUTED",
    "Similarities",
    "StoredSimilarities",
    "agreed_range",
    "prepare_affinity",
    "range_of",
    "similarity_matrix",
]

Array = Any

# Metric and factor of each affinity: similarity = -factor * (reduced distance of the metric).
AFFINITIES = {"euclidean": ("euclidean", 1.0), "cosine": ("cosine", 0.25), "correlation": ("correlation", 0.25)}
PRECOMPUTED = ("precomputed", "precomputed_nearest_neighbors")  # the input holds similarities or distances, not rows
TYPICAL_ROWS = 256  # number of rows whose distances determine the scale
BLOCK_BYTES = {"cpu": 16 << 20, "cuda": 1 << 30}  # bytes of similarities that are computed together
TILE = {"cpu": 1, "cuda": 128}  # rows of a block are a multiple of this, because tiles fix the order of operations
FIRST_NOISE, LATER_NOISE = 100.0, 1000.0  # multiples of tiny in the noise of the first draw, and of later draws
PREFERENCE_NOISE = 2.0**-18
USUALLY_BELOW = 16.0  # nearly all values of E
NEARLY_EQUAL = 16.0  # in units of eps, relative to preferences: rounding of messages nearly hides smaller differences


class Similarities(ABC):
    """Similarities of this rank's rows to all rows.

    Parameters
    ----------
    context : Context
    seed : int
        Seed of the noise that breaks ties.

    Attributes
    ----------
    lowest, highest : float
        Range of the similarities of all ranks, without the diagonal.
    first_equal : ndarray of shape (n,), int64
        For each row, the first row with the same values; the row itself if similarities are precomputed.
    equal_rows : bool
        Whether any rows have the same values.
    diagonal : ndarray of shape (n,)
        Diagonal of precomputed similarities; else zeros, the similarity of a row to itself.
    ties : str
        Type whose eps decides which rows are nearly equal, so that preferences get noise; by default the type of
        messages.
    prepared : Prepared or None
        How the rows were prepared; None if similarities are precomputed.
    """

    lowest: float
    highest: float
    complete = True  # whether each pair has a similarity above -inf
    given = False  # whether the user precomputed the similarities, so that they are bitwise identical on every device
    prepared: Prepared | None = None

    def __init__(self, context: Context, seed: int) -> None:
        self.context, self.seed, self.draws = context, seed, 0
        self.ties = context.dtype.name
        self.diagonal = np.zeros(context.dataset_shape[0])
        self.first_equal, self.equal_rows = np.arange(len(self.diagonal)), False

    def apart(self, preference: np.ndarray) -> float:
        """Return the smallest gap between a row's similarities to itself and to other rows, relative to preferences."""
        if self.equal_rows:
            return 0.0
        apart = max(0.0, float(self.diagonal.max())) - self.highest
        # A diagonal below `highest` does not hold the similarity of rows to themselves.
        return apart / max(float(abs(preference).max()), 1e-290) if apart >= -self._noise() else np.inf

    def distinct(self, preference: np.ndarray) -> np.ndarray:
        """Add noise to preferences, shape (n,), float64, if rows are equal or messages cannot tell them apart.

        The result is bitwise identical on any number of ranks and on any device. Call `synchronize` first.
        """
        if self.apart(preference) > NEARLY_EQUAL * np.finfo(self.ties).eps:
            return preference
        random = np.random.Philox(key=np.array([self.seed, self.draws], np.uint64)).random_raw(len(preference))
        # Minus the logarithm of a random number, but linear between powers of 2, so that each operation is exact.
        fraction, exponent = np.frexp(((random >> 11) + 0.5) * 2.0**-53)
        tiny = (LATER_NOISE if self.draws else FIRST_NOISE) * float(np.finfo(self.context.dtype).tiny)
        size = PREFERENCE_NOISE * abs(preference) + tiny
        return preference - size * (USUALLY_BELOW + exponent - 2 * (1 - fraction))

    @property
    def all_alike(self) -> bool:
        """True if no similarity differs from another by more than the noise."""
        return bool(self.highest - self.lowest <= self._noise())

    def _noise(self) -> float:
        """Return a bound of the differences that noise makes between equal similarities."""
        limits = np.finfo(self.context.dtype)
        return float(4 * (limits.eps * max(abs(self.lowest), abs(self.highest)) + 100 * limits.tiny))

    def _share_highest(self, values: Iterable[Array]) -> None:
        """Count rows as equal if more than one pair has the highest precomputed similarity. Collective."""
        found = sum(count_true(each >= self.highest - self._noise()) for each in values)
        self.equal_rows |= bool(self.context.comm.all_reduce(np.array([found]), "sum")[0] > 2)

    @abstractmethod
    def blocks(self) -> Iterator[tuple[int, Array]]:
        """Yield local rows in blocks: the position of a block's first row, and an array of shape (rows, padded(n)).

        The diagonal and the padding are -inf. An array is valid until the next array is requested.
        """

    @abstractmethod
    def matrix(self) -> Array:
        """Return all local rows, shape (m, padded(n)); the caller may keep the array."""

    @abstractmethod
    def of_rows(self, rows: Array) -> Array:
        """Return some local rows, by their positions among the local rows: shape (len(rows), padded(n))."""

    @abstractmethod
    def of_columns(self, rows: Array, columns: Array) -> Array:
        """Return some columns, ascending, of some local rows: shape (len(rows), len(columns)); -inf on the diagonal."""

    @abstractmethod
    def add_noise(self) -> None:
        """Break ties again with fresh and larger noise: ``S + (eps S + 1000 tiny) U``."""

    def add_same_label_sums(self, labelings: list[Array], scale: float, out: Array) -> None:
        """Add, for several labelings, each column's similarities to the local rows with the same label, in fixed point.

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
        """Return which rows have a similarity to all rows of their label: (n,), bool; None if all do. Collective."""
        return None

    def numbers(self) -> Iterator[Array]:
        """Yield local similarities in the form that `order_statistics` reads."""
        return (block for _, block in self.blocks())

    def count(self) -> int:
        """Return the number of similarities of all ranks."""
        n = self.context.dataset_shape[0]
        return n * (n - 1)

    def rows_at_once(self) -> int:
        """Return the number of full rows in a block."""
        width, device = padded(self.context.dataset_shape[0]), self.context.kernels.device
        rows = min(BLOCK_BYTES[device], self.context.spare // 8) // (width * self.context.dtype.itemsize)
        return max(TILE[device], rows // TILE[device] * TILE[device])

    def typical(self, share: float) -> tuple[float, float] | None:
        """Return numbers that probably enclose a quantile; None if a pass over all similarities is cheap."""
        return None

    @abstractmethod
    def synchronize(self) -> None:
        """Compute `lowest` and `highest`. Collective."""

    def find_equal(self, hashes: Iterable[Array]) -> None:
        """Find equal rows from hashes of local rows, which come in parts. Collective."""
        xp = self.context.kernels.xp
        own = xp.concatenate([xp.zeros(0, "uint64"), *hashes])
        every = self.context.kernels.memory.to_host(self.context.comm.all_gather(own))
        _, first, group = np.unique(every, return_index=True, return_inverse=True)
        self.first_equal, self.equal_rows = first[group], len(first) < len(every)


class StoredSimilarities(Similarities):
    """Similarities stored as a matrix of local rows times all rows, shape (m, padded(n)).

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
        self.lowest, self.highest = agreed_range(self.context, *range_of(self.context, self.s))
        if self.given:
            self._share_highest(self.s[start : start + 128] for start in range(0, len(self.s), 128))
        if self.given and self.lowest >= 0 and not self.all_alike and not self.diagonal.any() and self._is_symmetric():
            raise InputError(
                "X is symmetric, has no negative value, and has zeros on its diagonal, so it may hold distances or "
                "similarities: for distances, give -X**2; for similarities, give X - X.max()."
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


def similarity_matrix(context: Context, affinity: str, seed: int) -> StoredSimilarities:
    """Compute or read the similarities of this rank's rows; leaves the rows prepared for the metric.

    Parameters
    ----------
    context : Context
    affinity : {"euclidean", "cosine", "correlation", "precomputed"}
    seed : int
        Seed of the noise that breaks ties.
    """
    if affinity == "precomputed":
        return _read(context, seed)
    xp, kernels, rows = context.kernels.xp, context.kernels, context.rows
    n = context.dataset_shape[0]
    norm, prepared = prepare_affinity(context, affinity)
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
    similarities.prepared = prepared
    similarities.find_equal(row_hashes(chunk.x, xp) for chunk in rows.chunks())
    return similarities


def prepare_affinity(context: Context, affinity: str) -> tuple[str, Prepared]:
    """Prepare the rows; return the norm that is precise enough for their distances, and how they were prepared."""
    measure = METRICS[AFFINITIES[affinity][0]]
    prepared = prepare_rows(context, measure)
    if context.rows.n_features < MIN_FEATURES_FOR_DOT:
        return measure.norm, prepared
    n = context.dataset_shape[0]
    chosen = np.sort(np.random.default_rng(0).choice(n, min(n, TYPICAL_ROWS), replace=False))
    x = context.gather_rows(chosen)
    typical = float(
        np.median(context.kernels.memory.to_host(context.kernels.pairs.reduced_distances(x, x, norm=measure.norm)))
    )
    return "l2-dot" if prepared.radius <= DOT_CONDITION * typical else measure.norm, prepared


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


def range_of(context: Context, s: Array) -> tuple[float, float]:
    """Return the smallest and the largest similarity of some rows."""
    xp = context.kernels.xp
    low, high = xp.full(1, xp.inf), xp.full(1, -xp.inf)
    step = context.partition.block_rows
    for start in range(0, s.shape[0], step):
        part = s[start : start + step]  # with the padding: CuPy reduces contiguous arrays many times faster
        high = xp.maximum(high, part.max())
        low = xp.minimum(low, xp.where(part > -xp.inf, part, xp.inf).min())
        context.progress(start / s.shape[0])
    return float(low[0]), float(high[0])


def agreed_range(context: Context, low: float, high: float) -> tuple[float, float]:
    """Return the smallest and the largest value of all ranks. Collective."""
    least, largest = context.comm.all_reduce(np.array([low]), "min"), context.comm.all_reduce(np.array([high]), "max")
    return float(least[0]), float(largest[0])
