"""Gaussian clusters in the manner of the point sets of the literature, with the truth that they were drawn from."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import InputError
from mgclust.datasets.npz import write_npz

__all__ = ["Points", "make_gaussian_clusters", "make_gaussian_grid", "make_gaussian_rings"]

_TRIES = 10_000  # places for one centre before the box counts as full


class Points(NamedTuple):
    """Points drawn from Gaussian clusters; unpacks as ``X, labels, centers``.

    Attributes
    ----------
    X : ndarray of shape (n_points, n_features), float64
        Rows in random order.
    labels : ndarray of shape (n_points,), int32
        The cluster that each row was drawn from.
    centers : ndarray of shape (n_clusters, n_features), float64
        The means of the clusters, not of the rows drawn.
    """

    X: np.ndarray
    labels: np.ndarray
    centers: np.ndarray

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a .npz file that `mgclust.open_dataset` reads: ``X`` and the labels as ``y``, and ``centers``.

        Parameters
        ----------
        path : path
            Should end in ``.npz``.

        Returns
        -------
        Path
            The file.
        """
        return write_npz(path, X=self.X, y=self.labels, centers=self.centers)


def make_gaussian_grid(
    side: int = 10, cluster_size: int = 1000, spacing: float = 4 * 2**0.5, random_state: Any = 0
) -> Points:
    """Make Gaussian clusters on a square grid, as the data set DS1 of the BIRCH paper.

    The defaults are those of the paper [1]_: 100 clusters of 1,000 points on a 10 x 10 grid, radius r = sqrt(2), that
    is standard deviation 1 in each of the two dimensions, neighbouring centres 4 r apart, rows in random order.

    Parameters
    ----------
    side : int
        Clusters along either side of the grid.
    cluster_size : int
        Points of each cluster.
    spacing : float
        Distance of neighbouring centres, the standard deviation of a cluster being 1.
    random_state : int or numpy.random.Generator
        Equal numbers give equal points.

    Returns
    -------
    Points
        ``X, labels, centers``; cluster ``side * i + j`` is in row i and column j of the grid.

    References
    ----------
    .. [1] Zhang T., Ramakrishnan R., Livny M., *BIRCH: A new data clustering algorithm and its applications*, Data
       Mining and Knowledge Discovery 1(2), 1997.

    Examples
    --------
    >>> from mgclust.datasets import make_gaussian_grid
    >>> X, labels, centers = make_gaussian_grid(side=3, cluster_size=50)
    >>> X.shape, centers.shape
    ((450, 2), (9, 2))
    """
    _check_count(side=side, cluster_size=cluster_size)
    _check_size(spacing=spacing)
    rows, columns = np.divmod(np.arange(side * side), side)
    return _draw(spacing * np.stack([columns, rows], axis=1), cluster_size, _generator(random_state))


def make_gaussian_rings(
    ring_size: int = 7, cluster_size: int = 40, spacing: float = 5.0, random_state: Any = 0
) -> Points:
    """Make one Gaussian cluster in the middle of two rings of others: a near one and a far one.

    The arrangement of a set of Veenman et al. [1]_: 15 clusters of 40 points, of which one is in the middle, 7
    close around it, where clusters nearly touch, and 7 far out.

    Parameters
    ----------
    ring_size : int
        Clusters of each ring.
    cluster_size : int
        Points of each cluster.
    spacing : float
        Distance of neighbouring centres of the inner ring, the standard deviation of a cluster being 1. The outer
        ring's radius is two and a half times the inner one's.
    random_state : int or numpy.random.Generator
        Equal numbers give equal points.

    Returns
    -------
    Points
        ``X, labels, centers``; cluster 0 is in the middle, then come the inner and the outer ring.

    References
    ----------
    .. [1] Veenman C. J., Reinders M. J. T., Backer E., *A maximum variance cluster algorithm*, IEEE TPAMI 24(9), 2002.

    Examples
    --------
    >>> from mgclust.datasets import make_gaussian_rings
    >>> X, labels, centers = make_gaussian_rings()
    >>> X.shape, centers.shape
    ((600, 2), (15, 2))
    """
    _check_count(ring_size=ring_size, cluster_size=cluster_size)
    _check_size(spacing=spacing)
    radius = spacing / (2 * math.sin(math.pi / ring_size)) if ring_size > 1 else spacing
    # By `math`: NumPy's cosine depends on the processor in the last bit.
    angles = [2 * math.pi * k / ring_size for k in range(ring_size)]
    circle = np.array([(math.cos(angle), math.sin(angle)) for angle in angles])
    centers = np.concatenate([np.zeros((1, 2)), radius * circle, 2.5 * radius * circle])
    return _draw(centers, cluster_size, _generator(random_state))


def make_gaussian_clusters(
    n_clusters: int = 31,
    cluster_size: int = 100,
    separation: float = 4.0,
    n_features: int = 2,
    random_state: Any = 0,
) -> Points:
    """Make Gaussian clusters at random places that are not too close to each other.

    Centres are uniform in a cube; a place nearer than `separation` to an earlier one is drawn again. By default 31
    clusters of 100 points in the plane, as a set of Veenman et al. [1]_.

    Parameters
    ----------
    n_clusters : int
    cluster_size : int
        Points of each cluster.
    separation : float
        Smallest distance of two centres, the standard deviation of a cluster being 1 in each feature.
    n_features : int
    random_state : int or numpy.random.Generator
        Equal numbers give equal points.

    Returns
    -------
    Points
        ``X, labels, centers``.

    References
    ----------
    .. [1] Veenman C. J., Reinders M. J. T., Backer E., *A maximum variance cluster algorithm*, IEEE TPAMI 24(9), 2002.

    Examples
    --------
    >>> from mgclust.datasets import make_gaussian_clusters
    >>> X, labels, centers = make_gaussian_clusters(n_clusters=5, n_features=16)
    >>> X.shape, centers.shape
    ((500, 16), (5, 16))
    """
    _check_count(n_clusters=n_clusters, cluster_size=cluster_size, n_features=n_features)
    _check_size(separation=separation)
    rng = _generator(random_state)
    # Discs of diameter `separation` then fill a third of a square, well below the 0.55 where random places run out.
    side = 1.5 * separation * n_clusters ** (1 / n_features)
    centers = np.empty((n_clusters, n_features))
    for k in range(n_clusters):
        for _ in range(_TRIES):
            place = side * rng.random(n_features)
            if k == 0 or ((centers[:k] - place) ** 2).sum(axis=1).min() >= separation**2:
                break
        else:
            raise InputError(f"n_clusters={n_clusters} centres found no places; choose fewer.")
        centers[k] = place
    return _draw(centers, cluster_size, rng)


def _draw(centers: np.ndarray, cluster_size: int, rng: np.random.Generator) -> Points:
    labels = np.repeat(np.arange(len(centers), dtype=np.int32), cluster_size)
    rng.shuffle(labels)
    X = rng.standard_normal((len(labels), centers.shape[1]))
    X += centers[labels]
    return Points(X, labels, np.asarray(centers, dtype=np.float64))


def _generator(random_state: Any) -> np.random.Generator:
    """The generator; of a number PCG64 by name, because what `default_rng` takes may change between versions."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.Generator(np.random.PCG64(random_state))


def _check_count(**counts: Any) -> None:
    for name, value in counts.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name}={value!r} should be an integer >= 1.")


def _check_size(**sizes: Any) -> None:
    for name, value in sizes.items():
        if not isinstance(value, (int, float, np.integer, np.floating)) or not 0 < value < math.inf:
            raise InputError(f"{name}={value!r} should be a finite number > 0.")
