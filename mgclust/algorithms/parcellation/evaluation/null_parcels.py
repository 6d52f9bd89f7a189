"""Null parcels: connected parcels that ignore the series, for comparison with the same number of parcels of the series.

Null parcels show how large a score gets without any knowledge of the series. Parcels that grow from random rows differ
in size. Parcels of the coordinates are compact, and similar in size.

The graph of neighbours is in compressed form: the neighbours of row i are ``columns[starts[i]:starts[i + 1]]``,
ascending, and each edge is in the lists of both its rows. An island is a connected component of this graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from mgclust.algorithms.parcellation.merge_cuts import labels_after
from mgclust.base.errors import InputError
from mgclust.data.neighbors import checked_coordinates
from mgclust.kernels.parcels.ward import ward_merges

__all__ = ["coordinate_parcels", "neighbor_matrix", "random_parcels"]


def random_parcels(starts: Any, columns: Any, k: int | Sequence[int], seed: int = 0) -> np.ndarray:
    """Grow connected parcels from random rows, without regard to any series.

    The parcels start from k random rows, at least one on each island. Rounds follow until all rows are in parcels. In
    each round, every row without a parcel that has neighbours in parcels draws one of these neighbours at random, and
    joins its parcel.

    Parameters
    ----------
    starts : array of shape (n + 1,), int64
    columns : array, int32
        Neighbours of each row.
    k : int or sequence of int
        Number of parcels; for several numbers, each number gets its own parcellation.
    seed : int, default=0
        Equal seeds give equal parcels.

    Returns
    -------
    ndarray of shape (n,) or (n, len(k)), int32
        Parcel of each row, from 0 to k - 1.

    Raises
    ------
    InputError
        k is below the number of islands, or above the number of rows.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation.scores import n_pieces
    >>> from mgclust.algorithms.parcellation.evaluation.null_parcels import random_parcels
    >>> starts, columns = [0, 1, 3, 5, 6], [1, 0, 2, 1, 3, 2]  # four rows in a line
    >>> n_pieces(random_parcels(starts, columns, 2), starts, columns).tolist()
    [1, 1]
    """
    graph = neighbor_matrix(starts, columns)
    islands, island = connected_components(graph, directed=False)
    numbers = _checked_numbers(k, islands, graph.shape[0])
    labels = np.stack([_grown(graph, island, each, seed) for each in numbers], axis=1)
    return labels[:, 0] if np.ndim(k) == 0 else labels


def coordinate_parcels(
    coordinates: Any, starts: Any, columns: Any, k: int | Sequence[int], seed: int | None = None
) -> np.ndarray:
    """Make connected, compact parcels of similar size from the coordinates, without regard to any series.

    Ward's method merges neighbours as it does for series, but with the coordinates of the rows instead of their series.
    With a seed, each coordinate is first moved by a random step, so that two seeds give two parcellations. A step is
    at most half the median distance between a row and its nearest neighbour, so a row moves only within its voxel.

    Parameters
    ----------
    coordinates : array of shape (n, 3), float64
        Coordinates of each row in mm.
    starts : array of shape (n + 1,), int64
    columns : array, int32
        Neighbours of each row.
    k : int or sequence of int
        Number of parcels; several numbers are computed from the same merges.
    seed : int, optional
        Seed of the random steps. By default, coordinates are used as they are.

    Returns
    -------
    ndarray of shape (n,) or (n, len(k)), int32
        Parcel of each row, from 0 to k - 1; parcels are numbered in the order of their first rows.

    Raises
    ------
    InputError
        k is below the number of islands or above the number of rows, or coordinates are not finite.

    References
    ----------
    J. H. Ward, Hierarchical grouping to optimize an objective function, Journal of the American Statistical Association
    58:236-244, 1963.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation.null_parcels import coordinate_parcels
    >>> line = [[0, 0, 0], [1, 0, 0], [5, 0, 0], [6, 0, 0]]
    >>> coordinate_parcels(line, [0, 1, 3, 5, 6], [1, 0, 2, 1, 3, 2], 2).tolist()
    [0, 0, 1, 1]
    """
    graph = neighbor_matrix(starts, columns)
    n = graph.shape[0]
    islands = connected_components(graph, directed=False, return_labels=False)
    numbers = _checked_numbers(k, islands, n)
    places = checked_coordinates(coordinates, n)
    if seed is not None:
        row = np.repeat(np.arange(n), np.diff(graph.indptr))
        lengths = np.sqrt(((places[row] - places[graph.indices]) ** 2).sum(axis=1))
        nearest = np.full(n, np.inf)
        np.minimum.at(nearest, row, lengths)
        near = nearest[np.isfinite(nearest)]
        step = float(np.median(near)) / 2 if len(near) else 0.0
        places = places + np.random.default_rng(seed).uniform(-step, step, places.shape)
    merges = ward_merges(places, graph.indptr.astype(np.int64), graph.indices.astype(np.int32), lambda _: None)[0]
    labels = np.stack([labels_after(merges, n, each) for each in numbers], axis=1)
    return labels[:, 0] if np.ndim(k) == 0 else labels


def neighbor_matrix(starts: Any, columns: Any) -> csr_array:
    """Return the graph of neighbours as a sparse matrix of ones."""
    first, neighbours = np.asarray(starts, np.int64), np.asarray(columns, np.int32)
    n = len(first) - 1
    return csr_array((np.ones(len(neighbours), np.int8), neighbours, first), shape=(n, n))


def _checked_numbers(k: int | Sequence[int], islands: int, n: int) -> list[int]:
    numbers = [int(each) for each in np.atleast_1d(k)]
    for each in numbers:
        if each < islands:
            raise InputError(
                f"k={each} is below the number of islands of the graph, {islands}; give at least {islands}."
            )
        if each > n:
            raise InputError(f"k={each} is above the number of rows, {n}; give at most {n}.")
    return numbers


def _grown(graph: csr_array, island: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Grow k random parcels, as `random_parcels` describes; `island` has the island of each row."""
    n = len(island)
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    ahead = np.zeros(n, bool)
    ahead[np.unique(island[order], return_index=True)[1]] = True  # the first row of each island in the random order
    front = order[np.argsort(~ahead, kind="stable")[:k]]
    labels = np.full(n, -1, np.int32)
    labels[front] = np.arange(k)
    while len(front):
        counts = np.diff(graph.indptr)[front]
        at = np.repeat(graph.indptr[front] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        row, offered = graph.indices[at], np.repeat(labels[front], counts)
        shuffled = rng.permutation(np.flatnonzero(labels[row] < 0))
        labels[row[shuffled]] = offered[shuffled]  # a row keeps the last label that it gets
        joined = np.zeros(n, bool)
        joined[row[shuffled]] = True
        front = np.flatnonzero(joined)
    return labels
