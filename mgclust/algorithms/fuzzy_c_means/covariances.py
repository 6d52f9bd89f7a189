r"""Clusters with their own covariances: the algorithm of Gustafson and Kessel (1979), on any number of ranks.

Memberships u, weights w and centres v are as in `mgclust.algorithms.fuzzy_c_means.ranks`. Each cluster has the fuzzy
covariance F of its rows, and a distance d that follows from F:

    F_j    = sum_i w_i u_ij^m (x_i - v_j)(x_i - v_j)' / sum_i w_i u_ij^m
    d_ij^2 = (x_i - v_j)' A_j (x_i - v_j),    A_j = det(F_j)^(1/d) F_j^-1

The determinant of A_j is 1, so clusters adapt their shape and not their volume. If F is a multiple of the identity, the
distance is the Euclidean distance. J, the memberships and the centres follow the equations of fuzzy c-means with these
distances, and an iteration lowers J. A minimum of J stays a minimum, with the same memberships, if the units of the
features change, and under any other affine map.

A pass returns the sums of u^m (x - v, 1)(x - v, 1)' about the centres with which it began. The sums give the new
centres, and F about the new centres: with M, S and G the sums of u^m (x - v)(x - v)', of u^m (x - v) and of u^m, and
with s = S / G the mean of x - v, F = M / G - s s'. This loses digits only while centres move far.

F may be singular, if a cluster has few rows or rows in a line. Babuska, van der Veen and Kaymak (2002) bound the
condition of F and mix it with the covariance of all rows. Here, both steps use coordinates in which the covariance F_0
of all rows is the identity, so that they do not depend on units: with F_0 = T^-T T^-1, and M = T' F T,

    M <- (1 - shrinkage) M + shrinkage I,    eigenvalues of M at least the largest / `MAX_CONDITION`.

Clusters start round. The distances between clusters stretch the covariance of all rows. If clusters started with this
covariance, separate clusters would look like one long cluster. Drawn centres first go through `ROUND_STEPS` iterations
of fuzzy c-means. The kernels use a factor R with R' R = F^-1 (QR of the whitened eigenvectors). Rank 0 computes R on
one thread and sends it to the others, so that it is bitwise identical on all ranks.

Cost of an iteration on a rank with k rows: k c d^2 multiply-adds. Memory: c (d + 1) (d + 2) / 2 sums for each block of
rows, and a tile of distances. All numbers are float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from mgclust.algorithms.fuzzy_c_means.noise import share_of_clusters
from mgclust.algorithms.fuzzy_c_means.prototypes import Prototypes
from mgclust.algorithms.fuzzy_c_means.weighted_sums import OwnWeights, WeightedSums, rows_of_piece
from mgclust.base.errors import InputError
from mgclust.engine.spmd import Context

__all__ = ["ROUND_STEPS", "CovarianceSums", "Whitening", "numbers_of_sums", "row_bytes"]

Array = Any
# Largest ratio of a covariance's eigenvalues: with rounding, the smallest is at most 10 to 12 digits below the largest.
MAX_CONDITION = 1e10
ROUND_STEPS = 10
MIN_VARIANCE = 1e-24  # relative to the variance of all rows; smaller variances are rounding errors of equal rows


@dataclass(frozen=True)
class Whitening:
    """The map under which the covariance of all rows is the identity."""

    transform: np.ndarray  # T, (d, d)
    variance: float  # mean variance of the features
    volume: float  # logarithm of the root of the covariance's determinant

    @classmethod
    def of(cls, covariance: np.ndarray) -> Whitening:
        """Return the map for a covariance of all rows; reject a singular covariance."""
        spread = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
        if not spread.all():
            raise InputError(
                f"covariance_type='full' inverts covariances, but feature {int(spread.argmin())} is the same in all "
                "rows; leave such features out, or give covariance_type='spherical'."
            )
        with _one_thread():
            variances, axes = np.linalg.eigh(covariance / np.outer(spread, spread))
        rank = int((variances > variances[-1] / MAX_CONDITION).sum())
        if rank < len(spread):
            raise InputError(
                f"covariance_type='full' inverts covariances, but all n_features={len(spread)} features are linear "
                f"functions of {rank} of them; leave such features out, use {rank} principal components, or give "
                "covariance_type='spherical'."
            )
        volume = float(np.log(spread).sum() + np.log(variances).sum() / 2)
        return cls(axes / np.sqrt(variances) / spread[:, None], float((spread**2).mean()), volume)

    def factors(self, covariances: np.ndarray, shrinkage: float) -> np.ndarray:
        """Return factors R of bounded covariances, with R' R the inverse of a covariance; both shapes are (c, d, d)."""
        t, d = self.transform, len(self.transform)
        with _one_thread():
            within = (1 - shrinkage) * (t.T @ covariances @ t) + shrinkage * np.eye(d)
            variances, axes = np.linalg.eigh(within)
            variances = np.maximum(variances, np.maximum(variances[:, -1:] / MAX_CONDITION, MIN_VARIANCE))
            return _triangular(t @ axes / np.sqrt(variances)[:, None])

    def singular(self, prototypes: Prototypes) -> int:
        """Return the number of clusters whose covariance was bounded."""
        with _one_thread():
            variances = np.linalg.eigvalsh(self.transform.T @ prototypes.covariances @ self.transform)
        least = np.maximum(variances[:, -1] / MAX_CONDITION, MIN_VARIANCE)
        return int((variances[:, 0] <= 2 * least).sum())

    def hypervolume(self, prototypes: Prototypes) -> float:
        """Return the sum of sqrt(det F_j / det F_0) over the clusters (Gath and Geva 1989)."""
        return float(np.exp(prototypes.volumes - self.volume).sum())


class CovarianceSums(WeightedSums):
    """Pass over the rows for clusters with their own covariances; prototypes stay on the host.

    Parameters
    ----------
    context, m, weights, noise
        See `WeightedSums`.
    shrinkage : float
        Fraction of the covariance of all rows in the covariance of each cluster.
    """

    def __init__(
        self, context: Context, m: float, weights: OwnWeights | None, noise: float | None = None, shrinkage: float = 0.0
    ) -> None:
        super().__init__(context, m, weights, noise)
        self.shrinkage = shrinkage
        self.whitening: Whitening | None = None

    def look_at_all_rows(self) -> Whitening:
        """Compute the covariance of all rows, which `start` and `moved` need; all ranks get the same result."""
        context, d = self.context, self.context.dataset_shape[1]
        sums = np.asarray(context.fetch(self._sums_of_all())()).reshape(1, -1)
        _, covariances = _moments(sums, np.zeros((1, d)), np.zeros((1, d, d)))
        whitening: Whitening = context.comm.agree(Whitening.of(covariances[0]))
        self.whitening = whitening
        return whitening

    def start(self, centers: np.ndarray) -> Prototypes:
        """Return round prototypes with these centres."""
        assert self.whitening is not None
        c, d = centers.shape
        return Prototypes(centers, np.repeat(np.eye(d)[None] / self.whitening.variance**0.5, c, axis=0))

    def placed(self, prototypes: np.ndarray) -> Array:
        """See `WeightedSums`."""
        return prototypes

    def fetched(self, prototypes: Array) -> Callable[[], np.ndarray]:
        """See `WeightedSums`."""
        return lambda: prototypes

    def at(self, prototypes: Array) -> Array:
        """Compute the sums of some models at their prototypes; on a GPU, the work is only queued.

        Parameters
        ----------
        prototypes : float64 ndarray of shape (models, c, 1 + d, d)
            `Prototypes.packed` of each model.

        Returns
        -------
        float64 array of shape (models, c * (d + 1) * (d + 2) / 2 + 3)
            For each model the sums of ``w u^m (x - v, 1)(x - v, 1)'`` in the layout of `scatter_sums` of the kernels,
            and the last three sums of `WeightedSums.at`. On the device.
        """
        context, kernels, xp = self.context, self.context.kernels, self.context.kernels.xp
        models, c, _, d = prototypes.shape
        own, size = context.partition.blocks_of(context.rank), context.partition.block_rows
        packed = (d + 1) * (d + 2) // 2
        parts = xp.zeros((len(own), models, c * packed + 3))
        scale = self.log2_scale(c)
        each = self.readied(prototypes)
        for start, stop in self._pieces(c):
            x, weights = context.rows.read(start, stop), self._weights_of(start, stop)
            for model, (v, norms) in enumerate(each):
                g, scores = xp.empty((stop - start, c)), xp.empty((stop - start, 3))
                kernels.fuzzy_c_means.norm_distances(x, v, norms, out=g)
                counts, shares = weights, None
                if self.noise is not None:
                    u = g.copy()
                    kernels.fuzzy_c_means.tile_memberships(u, m=self.m)
                    phi = share_of_clusters(xp, g.min(axis=1), u, self.m, self.noise)
                    counts = phi**self.m if weights is None else weights * phi**self.m
                    shares = u * phi[:, None], 1.0 - phi
                kernels.fuzzy_c_means.tile_memberships(g, m=self.m, log2_scale=scale, weights=counts, scores=scores)
                found = xp.zeros((-(-(stop - start) // size), c * packed + 3))
                products = xp.zeros((len(found), c, packed))
                kernels.fuzzy_c_means.scatter_sums(x, v, g, first_row=start, block_rows=size, out=products)
                found[:, : c * packed] = products.reshape(len(found), -1)
                for block, first in enumerate(range(0, stop - start, size)):
                    found[block, -3:] = scores[first : first + size].sum(axis=0)
                if shares is not None:
                    self._score_noise(found, weights, *shares)
                at = start // size - own.start
                parts[at : at + len(found), model] = found
        return context.sum_parts(parts)

    def readied(self, prototypes: Array) -> list[Any]:
        """See `WeightedSums`."""
        to_device, each = self.context.kernels.memory.to_device, [Prototypes.of(model) for model in prototypes]
        return [(to_device(np.ascontiguousarray(one.centers)), to_device(one.norms)) for one in each]

    def memberships(self, x: Array, v: Any) -> Array:
        """See `WeightedSums`."""
        kernels, u = self.context.kernels, self.distances(x, v)
        nearest = u.min(axis=1)
        kernels.fuzzy_c_means.tile_memberships(u, m=self.m)
        if self.noise is not None:
            u *= share_of_clusters(kernels.xp, nearest, u, self.m, self.noise)[:, None]
        return u

    def distances(self, x: Array, v: Any) -> Array:
        """Return squared distances of rows in the norms of one model's clusters; `v` comes from `readied`."""
        distances = self.context.kernels.xp.empty((len(x), len(v[0])))
        self.context.kernels.fuzzy_c_means.norm_distances(x, *v, out=distances)
        return distances

    def moved(self, sums: Array, prototypes: Array) -> Array:
        """Return the prototypes that follow from the sums of a pass; a cluster without memberships stays as it is."""
        assert self.whitening is not None
        found, new = self.context.fetch(sums)(), prototypes.copy()
        if self.context.rank == 0:
            for model, packed in enumerate(prototypes):
                old = Prototypes.of(packed)
                centers, covariances = _moments(found[model : model + 1, :-3], old.centers, old.covariances)
                there = self.masses(found[model], packed) > 0
                new[model, :, 0] = centers
                new[model, there, 1:] = self.whitening.factors(covariances[there], self.shrinkage)
        return self.context.comm.agree(new)

    def masses(self, sums: np.ndarray, prototypes: np.ndarray) -> np.ndarray:
        """Return the sum of ``w u^m`` of each cluster, from the sums of a model."""
        return sums[:-3].reshape(len(prototypes), -1)[:, -1]

    def _sums_of_all(self) -> Array:
        """Compute the sums of products of all rows, about the origin."""
        context, kernels, xp = self.context, self.context.kernels, self.context.kernels.xp
        own, size, d = context.partition.blocks_of(context.rank), context.partition.block_rows, context.dataset_shape[1]
        parts, origin = xp.zeros((len(own), 1, (d + 1) * (d + 2) // 2)), xp.zeros((1, d))
        for start, stop in self._pieces(1):
            weights = self._weights_of(start, stop)
            g = xp.ones((stop - start, 1)) if weights is None else weights[:, None]
            at = start // size - own.start
            kernels.fuzzy_c_means.scatter_sums(
                context.rows.read(start, stop), origin, g, first_row=start, block_rows=size, out=parts[at:]
            )
        return context.sum_parts(parts)

    def _pieces(self, c: int) -> list[tuple[int, int]]:
        """Return bounds of pieces of the local rows, in whole blocks."""
        rows, step = self.context.rows, rows_of_piece(self.context, row_bytes(c, self.context.dataset_shape[1]))
        return [(start, min(start + step, rows.stop)) for start in range(rows.start, rows.stop, step)]


@functools.cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # cached, because the search for libraries takes a millisecond


def _one_thread() -> Any:
    """Return a context in which LAPACK runs on one thread, because its rounding depends on the number of threads."""
    return _libraries().limit(limits=1, user_api="blas")


def _triangular(transforms: np.ndarray) -> np.ndarray:
    """Return upper triangular R with a positive diagonal, so that R' R = T T'; shape (c, d, d)."""
    with _one_thread():
        factors = np.linalg.qr(np.swapaxes(transforms, 1, 2), mode="r")
    return np.asarray(factors * np.where(np.diagonal(factors, axis1=1, axis2=2) < 0, -1.0, 1.0)[:, :, None])


def _moments(sums: np.ndarray, centers: np.ndarray, covariances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and covariances from packed sums of products about centres; clusters without mass keep theirs."""
    c, d = centers.shape
    products, upper = np.zeros((c, d + 1, d + 1)), np.triu_indices(d + 1)
    products[:, *upper] = sums.reshape(c, -1)
    products += np.swapaxes(np.triu(products, 1), 1, 2)
    mass = products[:, d, d]
    there, divisor = mass > 0, np.where(mass > 0, mass, 1.0)
    away = products[:, :d, d] / divisor[:, None]
    about = products[:, :d, :d] / divisor[:, None, None] - away[:, :, None] * away[:, None]
    return np.where(there[:, None], centers + away, centers), np.where(there[:, None, None], about, covariances)


def numbers_of_sums(c: int, d: int) -> int:
    """Return the number of sums of a model with c clusters, per block of rows."""
    return c * ((d + 1) * (d + 2) // 2) + 3


def row_bytes(c: int, d: int) -> int:
    """Return the bytes per row of a piece, for distances, memberships, shares, the row and its transposed copy."""
    return 8 * (4 * c + 2 * d + 8)
