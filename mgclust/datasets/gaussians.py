"""Gaussian clusters like well-known point sets in the literature, with the true labels and centres."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import InputError
from mgclust.datasets.npz import write_npz

__all__ = ["Points", "make_gaussian_clusters", "make_gaussian_grid", "make_gaussian_rings"]

_TRIES = 10_000  # random places that are tried for a centre before the box counts as full


class Points(NamedTuple):
    """Points drawn from Gaussian clusters; unpacks as ``X, labels, centers``.

    Attributes
    ----------
    X : ndarray of shape (n_points, n_features), float64
        Rows in random order.
    labels : ndarray of shape (n_points,), int32
        The cluster that each row was drawn from.
    centers : ndarray of shape (n_clusters, n_features), float64
        The true means of the clusters, which differ from the means of the drawn rows.
    """

    X: np.ndarray
    labels: np.ndarray
    centers: np.ndarray

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a .npz file that `mgclust.open_dataset` reads, with ``X``, the labels as ``y``, and ``centers``.

        Parameters
        ----------
        path : path
            Name of the file, which must end in ``.npz``.

        Returns
        -------
        Path
            The file.
        """
        return write_npz(path, X=self.X, y=self.labels, centers=self.centers)


def make_gaussian_grid(
    side: int = 10, cluster_size: int = 1000, spacing: float = 4 * 2**0.5, random_state: Any = 0
) -> Points:
    """Make Gaussian clusters on a square grid, like the data set DS1 of the BIRCH paper.

    The defaults are the values of the paper [1]_: 100 clusters of 1,000 points on a 10 x 10 grid. The radius of a
    cluster is r = sqrt(2), so its standard deviation is 1 in each of the two dimensions. Neighbouring centres are 4 r
    apart. The rows are in random order.

    Parameters
    ----------
    side : int
        Number of clusters along each side of the grid.
    cluster_size : int
        Number of points per cluster.
    spacing : float
        Distance between neighbouring centres; the standard deviation of a cluster is 1.
    random_state : int or numpy.random.Generator
        Seed or generator; equal seeds give equal points.

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
    """Make a Gaussian cluster that is surrounded by two rings of Gaussian clusters.

    The arrangement is like a data set of Veenman et al. [1]_ with 15 clusters of 40 points: one cluster in the middle,
    7 clusters close around it, which nearly touch, and 7 clusters far out.

    Parameters
    ----------
    ring_size : int
        Number of clusters per ring.
    cluster_size : int
        Number of points per cluster.
    spacing : float
        Distance between neighbouring centres of the inner ring; the standard deviation of a cluster is 1. The radius
        of the outer ring is two and a half times the radius of the inner ring.
    random_state : int or numpy.random.Generator
        Seed or generator; equal seeds give equal points.

    Returns
    -------
    Points
        ``X, labels, centers``; cluster 0 is in the middle, followed by the inner and then the outer ring.

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
    # Use `math`, because the last bit of NumPy's cosine depends on the processor.
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

    Centres are drawn uniformly in a cube. A centre that is closer than `separation` to an earlier centre is drawn
    again. The defaults, 31 clusters of 100 points in the plane, are like a data set of Veenman et al. [1]_.

    Parameters
    ----------
    n_clusters : int
        Number of clusters.
    cluster_size : int
        Number of points per cluster.
    separation : float
        Smallest distance between two centres; the standard deviation of a cluster is 1 in each feature.
    n_features : int
        Number of features.
    random_state : int or numpy.random.Generator
        Seed or generator; equal seeds give equal points.

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
    # In a square of this side, discs of diameter `separation` cover a third of the area. Random placing fails if they
    # cover about 0.55.
    side = 1.5 * separation * n_clusters ** (1 / n_features)
    centers = np.empty((n_clusters, n_features))
    for k in range(n_clusters):
        for _ in range(_TRIES):
            place = side * rng.random(n_features)
            if k == 0 or ((centers[:k] - place) ** 2).sum(axis=1).min() >= separation**2:
                break
        else:
            raise InputError(f"n_clusters={n_clusters} is too large to place all centres; give a smaller number.")
        centers[k] = place
    return _draw(centers, cluster_size, rng)


def _draw(centers: np.ndarray, cluster_size: int, rng: np.random.Generator) -> Points:
    labels = np.repeat(np.arange(len(centers), dtype=np.int32), cluster_size)
    rng.shuffle(labels)
    X = rng.standard_normal((len(labels), centers.shape[1]))
    X += centers[labels]
    return Points(X, labels, np.asarray(centers, dtype=np.float64))


def _generator(random_state: Any) -> np.random.Generator:
    """Return the generator. A seed starts PCG64, because NumPy may change the generator of `default_rng`."""
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
