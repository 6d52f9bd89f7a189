"""The pass of fuzzy c-means: weighted sums over all rows, with the memberships at given centres as weights."""

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
MAX_BITS = 100  # if u^m may be below 2^-MAX_BITS in all rows, it is scaled, because only ratios of weights matter
TINY, MAX_EXPONENT = 1e-300, 900.0
PIECE = 256 << 20  # largest number of bytes of the arrays for a piece of rows
NOISE_BYTES = 40  # bytes per membership with a noise cluster: itself, its share in float64, its logarithm
DIGIT_BITS = 30  # bits per digit of exact sums, so that 2^33 digits add up in an int64
DIGITS = 36  # digits after the point, enough for all bits of a float64
SUMMED_AT_ONCE = 1 << 20  # numbers whose digits are summed together


@dataclass(frozen=True)
class OwnWeights:
    """Weights of this rank's rows, in units of the largest weight on any rank.

    Attributes
    ----------
    array : ndarray of shape (own rows,), float64
        Weights as given.
    unit : float
        Largest weight of all rows. Only ratios of weights move centres, and weights up to 1 do not overflow float32.
    total : float
        Sum of all weights in that unit, rounded once, so that it is the same on any number of ranks.
    on_device : array of shape (own rows,)
        Weights in that unit, in the type of the rows.
    """

    array: np.ndarray
    unit: float
    total: float
    on_device: Array

    @classmethod
    def of(cls, context: Context, own: np.ndarray | None) -> OwnWeights | None:
        """Return the weights of this rank, or None without weights; all ranks must call this together."""
        if own is None:
            return None
        unit = float(context.comm.all_reduce(np.array([own.max(initial=0.0)]), "max")[0])
        scaled = own / unit
        total = number_of(context.comm.all_reduce(digits_of(scaled), "sum"))
        return cls(own, unit, total, context.kernels.memory.to_device(scaled.astype(context.dtype)))


def digits_of(numbers: np.ndarray) -> np.ndarray:
    """Return the exact sum of numbers from 0 to 1, as int64 digits after the point that may exceed their base.

    The digits of several parts of the numbers add up, digit by digit, to the digits of all numbers.
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
    """Return the float64 number nearest to a sum of `digits_of`, as `math.fsum` would return it."""
    exact = 0
    for digit in digits.tolist():
        exact = (exact << DIGIT_BITS) + digit
    return exact / (1 << DIGIT_BITS * len(digits))  # a quotient of integers is rounded once


def rows_of_piece(context: Context, row_bytes: int) -> int:
    """Return the number of rows in a piece, in whole blocks, if each row needs `row_bytes` in addition to itself.

    If rows are streamed, a piece is one block: with few columns, a larger piece could hold more rows than the device.
    """
    block = context.partition.block_rows
    most = min(PIECE, context.spare // 2) if context.rows.resident else 0
    return block * max(1, most // (block * row_bytes))


class WeightedSums:
    """The pass: sums over all rows, with the memberships at given centres as weights.

    Parameters
    ----------
    context : Context
        Its rows are prepared.
    m : float
    weights : OwnWeights, optional
    noise : float, optional
        Squared distance of a noise cluster (see `mgclust.algorithms.fuzzy_c_means.noise`). J, the memberships and their
        sums then include the noise.
    """

    def __init__(self, context: Context, m: float, weights: OwnWeights | None, noise: float | None = None) -> None:
        self.context = context
        self.m = m
        self.noise = noise
        self.unit = 1.0 if weights is None else weights.unit
        self.total = float(context.dataset_shape[0]) if weights is None else weights.total
        self.weights = None if weights is None else weights.on_device

    def log2_scale(self, c: int) -> float:
        """Return the exponent of 2 that scales all u^m in sums of c clusters against underflow; usually 0."""
        bits = self.m * math.log2(c)
        return float(math.ceil(bits)) if bits > MAX_BITS else 0.0

    def at(self, centers: Array) -> Array:
        """Compute the sums of some models at their centres; on a GPU, the work is only queued.

        Parameters
        ----------
        centers : float64 array of shape (models, c, d)
            On the device, equal on all ranks.

        Returns
        -------
        float64 array of shape (models, c * d + c + 3)
            For each model the sums of ``w u^m x`` (c times d) and ``w u^m`` (c); J; the sums of ``w u^2`` and ``- w u
            log u``. The first three are scaled by ``2^log2_scale``. On the device.
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
        """Compute the sums of blocks with noise: the rows weigh less, and the noise adds to the last three sums."""
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
        """Add J of the noise to J of blocks of rows, and write the last two sums.

        `u` are the memberships in the clusters with noise, and `rest` the memberships in the noise.
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
        """Return prototypes with these centres, to start from; (c, d), on the host."""
        return Prototypes(centers)

    def placed(self, prototypes: np.ndarray) -> Array:
        """Put the prototypes of some models, each as `Prototypes.packed`, where `at` needs them."""
        return self.context.kernels.memory.to_device(prototypes)

    def fetched(self, prototypes: Array) -> Callable[[], np.ndarray]:
        """Start to copy prototypes to the host; see `Context.fetch`."""
        return self.context.fetch(prototypes)

    def moved(self, sums: Array, prototypes: Array) -> Array:
        """Return the prototypes that follow from the sums of a pass: the weighted means (2)."""
        return self.context.kernels.fuzzy_c_means.weighted_means(sums, prototypes)

    def readied(self, prototypes: Array) -> list[Any]:
        """Return each model's prototypes in the form that `memberships` needs."""
        return list(prototypes.astype(self.context.dtype))

    def memberships(self, x: Array, v: Any) -> Array:
        """Return the memberships of rows in one model's clusters (with noise, if any); `v` comes from `readied`."""
        kernels = self.context.kernels
        u = kernels.xp.empty((len(x), len(v)), dtype=self.context.dtype)
        kernels.fuzzy_c_means.memberships(x, v, m=self.m, out=u)
        if self.noise is not None:
            phi = share_of_clusters(kernels.xp, nearest_distances(kernels, x, v), u, self.m, self.noise)
            u *= phi.astype(u.dtype)[:, None]
        return u

    def masses(self, sums: np.ndarray, prototypes: np.ndarray) -> np.ndarray:
        """Return the sum of ``w u^m`` of each cluster, from the sums of a model; both on the host."""
        return sums[prototypes.size : -3]

    def objective_at(self, prototypes: Prototypes) -> float:
        """Return J at the prototypes of one model."""
        sums = self.context.fetch(self.at(self.placed(prototypes.packed[None])))()
        return self.unit * math.ldexp(float(sums[0, -3]), -int(self.log2_scale(len(prototypes.centers))))

    def means_at(self, centers: np.ndarray) -> np.ndarray:
        """Return the weighted means (2) at the centres of some models; both (models, c, d), on the host."""
        kernels = self.context.kernels
        v = kernels.memory.to_device(centers)
        return self.context.fetch(kernels.fuzzy_c_means.weighted_means(self.at(v), v))()

    def scale(self) -> float:
        """Return the root mean square distance of the rows from their mean, from the sums of one cluster."""
        d = self.context.dataset_shape[1]
        mean = self.context.kernels.xp.zeros((1, 1, d))
        for _ in range(2):  # first at the origin, which gives the mean; then at the mean, which gives the distances
            sums_at_mean = self.at(mean)
            mean = self.context.kernels.fuzzy_c_means.weighted_means(sums_at_mean, mean)
        return math.sqrt(max(0.0, float(self.context.fetch(sums_at_mean)()[0, -3]) / self.total))

    def centers_of(self, memberships: Callable[[int, int], Array], c: int) -> np.ndarray:
        """Return centres (2) of c clusters, (c, d), float64; `memberships` is a function of the bounds of some rows."""
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
            raise InputError(
                "init has a cluster whose memberships are all in rows with sample_weight=0; give each cluster a "
                "membership in a row of positive weight."
            )
        return sums[: c * d].reshape(c, d) / sums[c * d :, None]

    def _weights_of(self, start: int, stop: int) -> Array | None:
        first = self.context.rows.start
        return None if self.weights is None else self.weights[start - first : stop - first]
