"""Scores of parcels: homogeneity, silhouettes, connected pieces, and agreement of two parcellations."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from mgclust.algorithms.parcellation.evaluation.given_data import (
    OnProgress,
    checked_labels,
    checked_series,
    ignore,
    part_of,
)
from mgclust.algorithms.parcellation.unit_rows import means_and_lengths, unit_rows
from mgclust.base.errors import InputError
from mgclust.kernels import load
from mgclust.kernels.parcels.borders import add_rows
from mgclust.results.label_agreement import adjusted_rand

__all__ = ["agreement", "homogeneities", "homogeneity", "n_pieces", "silhouettes"]

SLICE = 64  # points in time that are standardised at a time
ROUNDING = 32  # distances of at most this many machine epsilons count as 0
DISTANCES = 1 << 20  # distances of rows to parcels that are computed at a time
BATCH_LABELS = 1 << 23  # labels of the candidates whose sums are computed together


def homogeneity(series: Any, labels: Any) -> float:
    """Return the mean correlation of rows in the same parcel.

    For each parcel of at least two rows, the correlations of all pairs of its rows are averaged. The result is the mean
    over these parcels, weighted by their numbers of rows. Parcels of one row have no pair, and are left out.

    If a parcel has m rows, and u_i is row i with mean 0 and length 1, then the mean correlation of the parcel is::

        (|sum of u_i|^2 - sum of |u_i|^2) / (m (m - 1))

    The function computes these sums instead of all pairs, so its time is proportional to the size of the series.
    Homogeneity grows with the number of parcels. If the parcels come from another series of the same rows, such as the
    other half of a run, the result is the held-out homogeneity.

    Parameters
    ----------
    series : array of shape (n, n_timepoints), float32 or float64
        Series of each row. A constant row has correlation 0 with all rows.
    labels : array of shape (n,), int
        Parcel of each row; -1 for rows in no parcel.

    Returns
    -------
    float
        Mean correlation; NaN if no parcel has two rows.

    Raises
    ------
    InputError
        The series are not finite, or their number differs from the number of labels.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation.scores import homogeneity
    >>> series = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0], [1.0, 0.0, 0.0]]
    >>> round(homogeneity(series, [0, 0, 1, 1]), 3)
    0.933
    """
    rows = checked_series(series, "series")
    return float(homogeneities(rows, checked_labels(labels, len(rows), "labels"))[0])


def homogeneities(rows: np.ndarray, labels: np.ndarray, on_progress: OnProgress = ignore) -> np.ndarray:
    """Return the homogeneity of each label vector, an int32 array of shape (n_candidates, n)."""
    on_progress(0.0)
    (means, lengths), batch, count = means_and_lengths(rows), max(1, BATCH_LABELS // len(rows)), len(labels)
    scaling = means, np.divide(1, lengths, out=np.zeros(len(rows)), where=lengths > 0)
    parts = [
        _homogeneities_of(
            rows, *scaling, labels[at : at + batch], part_of(on_progress, at / count, min(at + batch, count) / count)
        )
        for at in range(0, count, batch)
    ]
    return np.concatenate(parts)


def _homogeneities_of(
    rows: np.ndarray, means: np.ndarray, scales: np.ndarray, labels: np.ndarray, on_progress: OnProgress
) -> np.ndarray:
    counts = [np.bincount(vector[vector >= 0]) for vector in labels]
    ends = np.cumsum([len(each) for each in counts])
    begins = ends - [len(each) for each in counts]
    which, member = np.nonzero(labels >= 0)
    # This matrix has one row for each parcel of each candidate.
    parcels = csr_array(
        (np.ones(len(member)), (labels[which, member] + begins[which], member)), shape=(int(ends[-1]), len(rows))
    )
    squares = np.zeros(parcels.shape[0])
    for at in range(0, rows.shape[1], SLICE):
        on_progress(at / rows.shape[1])
        sums = parcels @ ((rows[:, at : at + SLICE] - means[:, None]) * scales[:, None])
        squares += np.einsum("ij,ij->i", sums, sums)
    varying = parcels @ (scales > 0).astype(np.float64)
    size = np.concatenate(counts)
    several = size > 1
    # For each parcel, the mean correlation times the number of rows.
    weighted = np.where(several, (squares - varying) / np.where(several, size - 1, 1), 0.0)
    found = np.full(len(labels), np.nan)
    for c, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if several[begin:end].any():
            found[c] = weighted[begin:end].sum() / size[begin:end][several[begin:end]].sum()
    return found


def silhouettes(series: Any, candidates: Any, on_progress: OnProgress | None = None) -> np.ndarray:
    """Return the mean silhouette of the rows of each candidate, for the distance 1 - r of two rows with correlation r.

    The silhouette of a row is (b - a) / max(a, b). a is the mean distance of the row to the other rows of its parcel,
    and b is the smallest mean distance of the row to the rows of another parcel. The silhouette of a row that is the
    only row of its parcel is 0. Let z_i be row i, scaled to mean 0 and length 1. The mean distance of row i to parcel p
    with n_p rows needs only the sum S_p of the rows z_j of p. So no distance between two rows is computed::

        mean over j in p of (1 - z_i . z_j) = 1 - z_i . S_p / n_p

    Parameters
    ----------
    series : array of shape (n, n_timepoints), float32 or float64
        Series of each row. A constant row has correlation 0 with all rows. Products are computed in the type of the
        series.
    candidates : array of shape (n,) or (n, n_candidates), int
        One label vector per candidate; -1 for rows in no parcel, which are left out.
    on_progress : callable, optional
        Receives the completed fraction.

    Returns
    -------
    ndarray of shape (n_candidates,), float64
        Mean silhouette, from -1 to 1; NaN if there are fewer than two parcels.

    Raises
    ------
    InputError
        The series are not finite, or their number differs from the number of labels.

    Notes
    -----
    All parcels are compared, including distant parcels. A brain has several regions with similar series, so connected
    parcels have silhouettes near or below 0.

    References
    ----------
    P. J. Rousseeuw, Silhouettes: a graphical aid to the interpretation and validation of cluster analysis, Journal of
    Computational and Applied Mathematics 20:53-65, 1987.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation.scores import silhouettes
    >>> series = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]
    >>> silhouettes(series, [[0, 0], [0, 1], [1, 1], [1, 0]]).round(3).tolist()
    [1.0, -0.5]
    """
    rows = checked_series(series, "series")
    labels = checked_labels(candidates, len(rows), "candidates")
    unit, found = unit_rows(rows, dtype=rows.dtype), []
    for at, each in enumerate(labels):
        (on_progress or ignore)(at / len(labels))
        found.append(_silhouette(unit, each))
    return np.array(found)


def _silhouette(unit: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean silhouette of one label vector; `unit` has rows of length 1, or 0."""
    kept = np.flatnonzero(labels >= 0)
    parcel, size = np.unique(labels[kept], return_inverse=True, return_counts=True)[1:]
    if len(size) < 2:
        return np.nan
    unit = unit if len(kept) == len(unit) else unit[kept]
    sums = np.zeros((len(size), unit.shape[1]))
    add_rows(unit, parcel, sums)
    means = (sums / size[:, None]).astype(unit.dtype)
    reduced_distances = load("cpu").pairs.reduced_distances
    of_means = np.einsum("ij,ij->i", means, means)
    a, b = np.empty((2, len(kept)))
    step = max(1, DISTANCES // len(size))
    for start in range(0, len(kept), step):
        part = slice(start, start + step)
        rows, own = unit[part], parcel[part]
        place = np.arange(len(rows)), own
        # 1 - z . m = 1 + (|z - m|^2 - |m|^2 - |z|^2) / 2
        distances = reduced_distances(rows, means, norm="l2")
        distances -= of_means
        of_rows, others = np.einsum("ij,ij->i", rows, rows, dtype=np.float64), size[own] - 1
        within = 1 + (distances[place] - of_rows) / 2
        a[part] = ((others + 1) * within - (1 - of_rows)) / np.maximum(others, 1)  # the row itself does not count
        distances[place] = np.inf
        b[part] = 1 + (distances.min(axis=1) - of_rows) / 2
    larger = np.maximum(a, b)
    # Distances that are rounding errors count as 0, so duplicates in different parcels have silhouette 0.
    defined = (larger > ROUNDING * np.finfo(unit.dtype).eps) & (size[parcel] > 1)
    values = np.divide(b - a, larger, out=np.zeros(len(kept)), where=defined)
    return float(values.mean())


def n_pieces(labels: Any, starts: Any, columns: Any) -> np.ndarray:
    """Count the pieces of each parcel, which are the connected components of the graph of its rows.

    Parameters
    ----------
    labels : array of shape (n,), int
        Parcel of each row; -1 for rows in no parcel.
    starts : array of shape (n + 1,), int64
    columns : array, int32
        Neighbours of each row.

    Returns
    -------
    ndarray of shape (labels.max() + 1,), int64
        Number of pieces of each parcel: 1 for a connected parcel, 0 for a label without rows.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation.scores import n_pieces
    >>> n_pieces([0, 1, 0], [0, 1, 3, 4], [1, 0, 2, 1]).tolist()  # three rows in a line
    [2, 1]
    """
    n = len(starts) - 1
    own = checked_labels(labels, n, "labels")[0]
    other = np.asarray(columns, np.int32)
    row = np.repeat(np.arange(n, dtype=np.int32), np.diff(starts))
    kept = (own[row] == own[other]) & (row < other)  # each pair of neighbours once
    ends = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=n))])
    inner = csr_array((np.ones(int(kept.sum()), np.int8), other[kept], ends), shape=(n, n))
    count, piece = connected_components(inner, directed=False)
    of = np.full(count, -1, np.int64)
    of[piece] = own
    return np.bincount(of[of >= 0], minlength=int(own.max(initial=-1)) + 1)


def agreement(a: Any, b: Any) -> float:
    """Return the adjusted Rand index of two label vectors, over the rows that are in a parcel of both.

    Parameters
    ----------
    a, b : array of shape (n,), int
        Parcel of each row; -1 for rows in no parcel.

    Returns
    -------
    float
        Adjusted Rand index: 1 for the same parcels, near 0 for unrelated parcels.

    Raises
    ------
    InputError
        The lengths differ, or no row is in a parcel of both.

    References
    ----------
    L. Hubert, P. Arabie, Comparing partitions, Journal of Classification 2:193-218, 1985.

    Examples
    --------
    >>> from mgclust.algorithms.parcellation.evaluation.scores import agreement
    >>> agreement([0, 0, 1, 1, -1], [5, 5, 2, 2, 2])
    1.0
    """
    one, other = np.asarray(a), np.asarray(b)
    if one.ndim != 1 or one.shape != other.shape:
        raise InputError(
            f"labels: the label vectors have shapes {one.shape} and {other.shape}; give two of the same rows."
        )
    kept = (one >= 0) & (other >= 0)
    if not kept.any():
        raise InputError("labels: no row is in a parcel of both label vectors; check the labels.")
    return adjusted_rand(one[kept], other[kept])
