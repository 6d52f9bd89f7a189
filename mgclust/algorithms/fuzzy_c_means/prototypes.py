"""Prototypes of fuzzy clusters: centres and, if clusters have their own, covariances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Prototypes"]


@dataclass(frozen=True)
class Prototypes:
    """Values that, together with m, determine the memberships of rows.

    Attributes
    ----------
    centers : ndarray of shape (c, d), float64
        Centres, in the coordinates of the prepared rows.
    factors : ndarray of shape (c, d, d), float64, optional
        R of each cluster, upper triangular with a positive diagonal, so that R' R is the inverse of its covariance.
        None if all clusters have the Euclidean norm.
    """

    centers: np.ndarray
    factors: np.ndarray | None = None

    @classmethod
    def of(cls, packed: np.ndarray) -> Prototypes:
        """Return prototypes from the array that `packed` returned."""
        return cls(packed) if packed.ndim == 2 else cls(packed[:, 0], packed[:, 1:])

    @property
    def packed(self) -> np.ndarray:
        """All values in one array, centres first; its shape is (c, d), or (c, 1 + d, d) with factors."""
        return self.centers if self.factors is None else np.concatenate([self.centers[:, None], self.factors], axis=1)

    @property
    def norms(self) -> np.ndarray:
        """Factors of the norms: the factors scaled so that their determinants are 1; (c, d, d)."""
        assert self.factors is not None
        logs = np.log(np.diagonal(self.factors, axis1=1, axis2=2)).mean(axis=1)
        return self.factors * np.exp(-logs)[:, None, None]

    @property
    def roots(self) -> np.ndarray:
        """Upper triangular C of each cluster, so that C C' is its covariance; (c, d, d)."""
        # LAPACK is not used: its rounding depends on the number of threads, and all ranks must make the same decisions.
        assert self.factors is not None
        roots, d = np.zeros_like(self.factors), self.factors.shape[1]
        for e in reversed(range(d)):
            pivot = self.factors[:, e, e]
            roots[:, e, e] = 1.0 / pivot
            below = self.factors[:, e, e + 1 :, None] * roots[:, e + 1 :, e + 1 :]
            roots[:, e, e + 1 :] = -below.sum(axis=1) / pivot[:, None]
        return roots

    @property
    def covariances(self) -> np.ndarray:
        """Covariance of each cluster; (c, d, d)."""
        roots = self.roots
        return np.einsum("jef,jgf->jeg", roots, roots)

    @property
    def volumes(self) -> np.ndarray:
        """Logarithm of the square root of each covariance's determinant; (c,)."""
        assert self.factors is not None
        return -np.log(np.diagonal(self.factors, axis1=1, axis2=2)).sum(axis=1)

    def shift(self, moved: Prototypes) -> float:
        """Return the largest move of a prototype: its centre, and the root of its covariance.

        If clusters are normal distributions, this bounds their distance (2-Wasserstein) from above.
        """
        squares = ((moved.centers - self.centers) ** 2).sum(axis=1)
        if self.factors is not None:
            squares = squares + ((moved.roots - self.roots) ** 2).sum(axis=(1, 2))
        return float(np.sqrt(squares.max()))

    def separations(self) -> np.ndarray:
        """Return the squared distance of each prototype to the nearest other prototype; infinite if there is none.

        Without covariances, the distance is in the units of the rows. With covariances, it is in units of the cluster's
        own spread, in which rows are at a squared distance of 1 on average, and includes the difference of the
        covariances.
        """
        c, d = self.centers.shape
        nearest, roots = np.full(c, np.inf), None if self.factors is None else self.roots
        for j in range(c):
            away = self.centers - self.centers[j]
            if self.factors is None or roots is None:
                squares = (away**2).sum(axis=1)
            else:
                squares = ((away @ self.factors[j].T) ** 2).sum(axis=1) / d
                squares += ((np.einsum("ef,kfg->keg", self.factors[j], roots) - np.eye(d)) ** 2).sum(axis=(1, 2)) / d
            squares[j] = np.inf
            nearest[j] = squares.min()
        return nearest
