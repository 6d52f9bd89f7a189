"""The pass of fuzzy c-means: sums over all rows that the memberships at given centres weigh."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.algorithms.fuzzy_c_means.noise import nearest_distances, share_of_clusters
from mgclust.algorithms.fuzzy_c_means.prototypes import Prototypes
from mgclust.base.errors import InputError
from mgclust.engine.spmd import Context

__all__ = ["MAX_BITS", "NOISE_BYTES", "OwnWeights", "WeightedSums", "digits_of", "number_of", "rows_of_piece"]

Array = Any
MAX_BITS = 100  # where u^m is smaller than 2^-MAX_BITS in all rows, it is scaled: of weights only the ratios count
TINY, MAX_EXPONENT = 1e-300, 900.0
PIECE = 256 << 20  # bytes of what some rows have at a time, at most
NOISE_BYTES = 40  # of a membership beside a noise cluster: itself, its share in float64, its logarithm
DIGIT_BITS = 30  # of a digit of exact sums, of which 2^33 add up in an int64
DIGITS = 36  # behind the point: all that float64 has
SUMMED_AT_ONCE = 1 << 20  # numbers


@dataclass(frozen=True)
class OwnWeights:
    """Weights of this rank's rows, in units of the largest weight on any rank.

    Attributes
    ----------
    array : ndarray of shape (own rows,), float64
        As they were given.
    unit : float
        The largest of all. Only ratios move centres; up to 1, none is too large for float32.
    total : float
        Sum of all in that unit, rounded once: the same on any number of ranks.
    on_device : array of shape (own rows,)
        In that unit and the rows' type.
    """

    array: np.ndarray
    unit: float
    total: float
    on_device: Array

    @classmethod
    def of(cls, context: Context, own: np.ndarray | None) -> OwnWeights | None:
        """Meet the other ranks; None without weights."""
        if own is None:
            return None
        unit = float(context.comm.all_reduce(np.array([own.max(initial=0.0)]), "max")[0])
        scaled = own / unit
        total = number_of(context.comm.all_reduce(digits_of(scaled), "sum"))
        return cls(own, unit, total, context.kernels.memory.to_device(scaled.astype(context.dtype)))


def digits_of(numbers: np.ndarray) -> np.ndarray:
    """Sum of numbers from 0 to 1, exact: int64 digits behind the point that may be larger than their base.

    Such sums of parts of the numbers add up digit by digit to that of all.
    """
    digits = np.zeros(DIGITS, np.int64)
    for start in range(0, len(numbers), SUMMED_AT_ONCE):
        left = numbers[start : start + SUMMED_AT_ONCE]
        for place in range(DIGITS):
            left = np.ldexp(left, DIGIT_BITS)
            whole = np.floor(left)
            digits[place] += whole.astype(np.int64).sum()
            left = left - whole
            if not left.any():
                break
    return digits


def number_of(digits: np.ndarray) -> float:
    """The float64 number nearest to a sum of `digits_of`, as `math.fsum` would find it."""
    exact = 0
    for digit in digits.tolist():
        exact = (exact << DIGIT_BITS) + digit
    return exact / (1 << DIGIT_BITS * len(digits))  # integers: rounded once


def rows_of_piece(context: Context, row_bytes: int) -> int:
    """Rows of a piece, whole blocks: as many as memory is left for, where each needs so many bytes beside itself.

    Of rows that are streamed a block at a time: a piece with few columns would be more rows than the device may hold.
    """
    block = context.partition.block_rows
    most = min(PIECE, context.spare // 2) if context.rows.resident else 0
    return block * max(1, most // (block * row_bytes))


class WeightedSums:
    """The pass: sums over all rows that the memberships at given centres weigh.

    Parameters
    ----------
    context : Context
        With prepared rows.
    m : float
    weights : OwnWeights, optional
    noise : float, optional
        Squared distance of a noise cluster (see `mgclust.algorithms.fuzzy_c_means.noise`), which J, the memberships and
        their sums then take into account.
    """

    def __init__(self, context: Context, m: float, weights: OwnWeights | None, noise: float | None = None) -> None:
        self.context = context
        self.m = m
        self.noise = noise
        self.unit = 1.0 if weights is None else weights.unit
        self.total = float(context.dataset_shape[0]) if weights is None else weights.total
        self.weights = None if weights is None else weights.on_device

    def log2_scale(self, c: int) -> float:
        """Power of two by which all u^m are multiplied in the sums of c clusters, since they might vanish; mostly 0."""
        bits = self.m * math.log2(c)
        return float(math.ceil(bits)) if bits > MAX_BITS else 0.0

    def at(self, centers: Array) -> Array:
        """Sums of some models at their centres; queued, on a GPU.

        Parameters
        ----------
        centers : float64 array of shape (models, c, d)
            On the device, equal on all ranks.

        Returns
        -------
        float64 array of shape (models, c * d + c + 3)
            Of each model the sums of ``w u^m x`` (c times d) and ``w u^m`` (c); J; the sums of ``w u^2`` and
            ``- w u log u``. The first three are scaled by ``2^log2_scale``. On the device.
        """
        context, kernels = self.context, self.context.kernels
        models, c, d = centers.shape
        own, size = context.partition.blocks_of(context.rank), context.partition.block_rows
        parts = kernels.xp.zeros((len(own), models, c * d + c + 3))
        v = centers.astype(context.dtype)
        if self.noise is not None:
            self._add_with_noise(v, parts)
            return context.sum_parts(parts)
        for chunk in context.chunks():
            if len(chunk.x):
                kernels.fuzzy_c_means.fuzzy_sums(
                    chunk.x,
                    v,
                    m=self.m,
                    log2_scale=self.log2_scale(c),
                    weights=self._weights_of(chunk.start, chunk.stop),
                    first_row=chunk.start,
                    block_rows=size,
                    out=parts[chunk.start // size - own.start : -(-chunk.stop // size) - own.start],
                )
        return context.sum_parts(parts)

    def _add_with_noise(self, v: Array, parts: Array) -> None:
        """Fill the blocks' sums: those of rows that weigh less, and what the noise adds to the last three."""
        assert self.noise is not None
        context, kernels, xp = self.context, self.context.kernels, self.context.kernels.xp
        own, size, c = context.partition.blocks_of(context.rank), context.partition.block_rows, v.shape[1]
        step = rows_of_piece(context, NOISE_BYTES * (c + 1))
        for start in range(context.rows.start, context.rows.stop, step):
            stop = min(start + step, context.rows.stop)
            x, weights = context.rows.read(start, stop), self._weights_of(start, stop)
            weighs = xp.ones(stop - start) if weights is None else weights.astype("float64")
            for model in range(len(v)):
                u = xp.empty((stop - start, c), dtype=context.dtype)
                kernels.fuzzy_c_means.memberships(x, v[model], m=self.m, out=u)
                phi = share_of_clusters(xp, nearest_distances(kernels, x, v[model]), u, self.m, self.noise)
                found = xp.zeros((-(-(stop - start) // size), 1, parts.shape[2]))
                kernels.fuzzy_c_means.fuzzy_sums(
                    x,
                    v[model : model + 1],
                    m=self.m,
                    log2_scale=self.log2_scale(c),
                    weights=(weighs * phi**self.m).astype(context.dtype),
                    first_row=start,
                    block_rows=size,
                    out=found,
                )
                self._score_noise(found[:, 0], weights, u.astype("float64") * phi[:, None], 1.0 - phi)
                at = start // size - own.start
                parts[at : at + len(found), model] = found[:, 0]

    def _score_noise(self, found: Array, weights: Array | None, u: Array, rest: Array) -> None:
        """Add the noise's J to that of blocks of rows, and write the other two of the last three sums.

        Memberships `u` in the clusters are those beside the noise, which has the `rest`.
        """
        assert self.noise is not None
        xp, size = self.context.kernels.xp, self.context.partition.block_rows
        scale = 2.0 ** self.log2_scale(u.shape[1])
        weighs = xp.ones(len(u)) if weights is None else weights.astype("float64")
        shares = xp.concatenate([u, rest[:, None]], axis=1)
        logs = xp.log(xp.maximum(shares, TINY))
        for block, first in enumerate(range(0, len(u), size)):
            rows = slice(first, first + size)
            w, share = weighs[rows], shares[rows]
            found[block, -3] += scale * self.noise * (w * rest[rows] ** self.m).sum()
            found[block, -2] = (w * (share**2).sum(axis=1)).sum()
            found[block, -1] = -(w * (share * logs[rows]).sum(axis=1)).sum()

    def start(self, centers: np.ndarray) -> Prototypes:
        """Prototypes to start from, with such centres; (c, d), on the host."""
        return Prototypes(centers)

    def placed(self, prototypes: np.ndarray) -> Array:
        """Prototypes of some models where `at` takes them; each as `Prototypes.packed` has it."""
        return self.context.kernels.memory.to_device(prototypes)

    def fetched(self, prototypes: Array) -> Callable[[], np.ndarray]:
        """Start to copy prototypes to the host; see `Context.fetch`."""
        return self.context.fetch(prototypes)

    def moved(self, sums: Array, prototypes: Array) -> Array:
        """Prototypes that the sums of a pass lead to: the weighted means (2)."""
        return self.context.kernels.fuzzy_c_means.weighted_means(sums, prototypes)

    def readied(self, prototypes: Array) -> list[Any]:
        """Each model's prototypes as `memberships` takes them."""
        return list(prototypes.astype(self.context.dtype))

    def memberships(self, x: Array, v: Any) -> Array:
        """Memberships of rows in the clusters of one model, which `readied` gave; beside the noise, if there is one."""
        kernels = self.context.kernels
        u = kernels.xp.empty((len(x), len(v)), dtype=self.context.dtype)
        kernels.fuzzy_c_means.memberships(x, v, m=self.m, out=u)
        if self.noise is not None:
            phi = share_of_clusters(kernels.xp, nearest_distances(kernels, x, v), u, self.m, self.noise)
            u *= phi.astype(u.dtype)[:, None]
        return u

    def masses(self, sums: np.ndarray, prototypes: np.ndarray) -> np.ndarray:
        """Sums of ``w u^m`` of each cluster, among those of a model; both on the host."""
        return sums[prototypes.size : -3]

    def objective_at(self, prototypes: Prototypes) -> float:
        """J at the prototypes of one model."""
        sums = self.context.fetch(self.at(self.placed(prototypes.packed[None])))()
        return self.unit * math.ldexp(float(sums[0, -3]), -int(self.log2_scale(len(prototypes.centers))))

    def means_at(self, centers: np.ndarray) -> np.ndarray:
        """One step of some models: the weighted means (2) at their centres; both (models, c, d), on the host."""
        kernels = self.context.kernels
        v = kernels.memory.to_device(centers)
        return self.context.fetch(kernels.fuzzy_c_means.weighted_means(self.at(v), v))()

    def scale(self) -> float:
        """Root mean square distance of the rows from their mean: what one cluster adds up."""
        d = self.context.dataset_shape[1]
        mean = self.context.kernels.xp.zeros((1, 1, d))
        for _ in range(2):  # at the origin, to find the mean; there, to find how far rows are
            sums_at_mean = self.at(mean)
            mean = self.context.kernels.fuzzy_c_means.weighted_means(sums_at_mean, mean)
        return math.sqrt(max(0.0, float(self.context.fetch(sums_at_mean)()[0, -3]) / self.total))

    def centers_of(self, memberships: Callable[[int, int], Array], c: int) -> np.ndarray:
        """Centres (2) of c clusters by the memberships of the rows from a first to a last; (c, d) float64."""
        context, xp = self.context, self.context.kernels.xp
        d = context.dataset_shape[1]
        parts = xp.zeros((len(context.partition.blocks_of(context.rank)), c * d + c))
        for part, block in zip(parts, context.partition.blocks_of(context.rank), strict=True):
            start, stop = context.partition.bounds(block)
            u = memberships(start, stop)
            g = xp.exp2(xp.minimum(self.m * xp.log2(xp.maximum(u, TINY)) + self.log2_scale(c), MAX_EXPONENT))
            g = xp.where(u > 0, g, 0.0)
            weights = self._weights_of(start, stop)
            if weights is not None:
                g = g * weights[:, None]
            part[: c * d] = xp.einsum("ij,if->jf", g, context.rows.block(block).astype("float64")).reshape(-1)
            part[c * d :] = g.sum(axis=0)
        sums = context.fetch(context.sum_parts(parts))()
        if not (sums[c * d :] > 0).all():
            raise InputError("init gives a cluster memberships in rows of sample_weight=0 alone; give it others.")
        return sums[: c * d].reshape(c, d) / sums[c * d :, None]

    def _weights_of(self, start: int, stop: int) -> Array | None:
        first = self.context.rows.start
        return None if self.weights is None else self.weights[start - first : stop - first]
