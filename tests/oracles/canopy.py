"""Canopy clustering as its definition says it, one centre after the other; shares no code with mgclust.

Take the first remaining candidate as a centre; its canopy is every point within t1 (d <= t1); the points within t2
(d <= t2), the centre itself among them, are candidates no more; repeat until there is none. Distances are float64,
direct differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy.sparse

from oracles.density_peaks import distances

BLOCK = 1024
NUMBERS = 1 << 21  # distances at a time


@dataclass(frozen=True)
class CanopyReference:
    centers: np.ndarray  # rows, in the order in which they were picked
    memberships: scipy.sparse.csr_array  # n x canopies, bool
    labels: np.ndarray  # the nearest centre, of several the one picked first


def pick_centers(X, t2, metric="euclidean", order=None) -> np.ndarray:
    """The centres; candidates are tried in `order`, by default that of the rows."""
    candidates = np.arange(len(X)) if order is None else np.asarray(order)
    rows = np.asarray(X, "float64")[candidates]
    left = np.ones(len(rows), bool)
    picked, at = [], 0
    while at < len(rows):
        picked.append(candidates[at])
        left[at:] &= distances(rows[at : at + 1], rows[at:], metric)[0] > t2
        left[at] = False  # a centre is within any t2 of itself, whatever its rounding says
        ahead = left[at:].argmax()
        at = at + ahead if ahead else len(rows)
        if len(picked) % 64 == 0:  # rows that are no candidates cost time: forget them now and then
            candidates, rows, left, at = candidates[at:], rows[at:], left[at:], 0
            candidates, rows, left = candidates[left], rows[left], left[left]
    return np.array(picked, "int64")


def canopies(X, centers, t1, metric="euclidean") -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Which rows are within t1 of which centre, and the nearest centre of each row."""
    X = np.asarray(X, "float64")
    columns, counts, labels = [], [], []
    block, at = max(1, NUMBERS // len(centers)), X[centers]
    for start in range(0, len(X), block):
        d = distances(X[start : start + block], at, metric)
        within = d <= t1
        columns.append(np.nonzero(within)[1])
        counts.append(within.sum(axis=1))
        labels.append(d.argmin(axis=1))  # the first of equals
    indptr = np.r_[0, np.cumsum(np.concatenate(counts))]
    indices = np.concatenate(columns)
    members = scipy.sparse.csr_array((np.ones(len(indices), bool), indices, indptr), shape=(len(X), len(centers)))
    return members, np.concatenate(labels)


def canopy(X, t1, t2, metric="euclidean", order=None) -> CanopyReference:
    centers = pick_centers(X, t2, metric, order)
    return CanopyReference(centers, *canopies(X, centers, t1, metric))


def canopy_of_squares(S, t1, t2) -> CanopyReference:
    """The same, of a matrix of all squared euclidean distances."""
    D = np.sqrt(S)
    candidates, picked = np.arange(len(D)), []
    while len(candidates):
        picked.append(candidates[0])
        candidates = candidates[D[candidates[0], candidates] > t2]
    members = scipy.sparse.csr_array(D[:, picked] <= t1)
    members.indptr = members.indptr.astype("int64")
    return CanopyReference(np.array(picked), members, S[:, picked].argmin(axis=1))


def fused_squares(X) -> np.ndarray:
    """Squared distances as mgclust rounds them: one fused multiply-add a feature, in order.

    Of coordinates such as 0.1 no two programs agree on which distances are exactly 0.5; this says what ours should.
    """
    S = np.zeros((len(X), len(X)))
    for i, x in enumerate(X):
        for j in range(i):
            s = 0.0
            for difference in (x - X[j]).tolist():
                s = float(Fraction(difference) ** 2 + Fraction(s))
            S[i, j] = S[j, i] = s
    return S


def check_cover(X, centers, t2, metric="euclidean") -> None:
    """No two centres within t2 of each other, and every point within t2 of a centre."""
    X = np.asarray(X, "float64")
    between = distances(X[centers], X[centers], metric)
    np.fill_diagonal(between, np.inf)
    assert (between > t2).all(), "two centres are within t2"
    for start in range(0, len(X), BLOCK):
        nearest = distances(X[start : start + BLOCK], X[centers], metric).min(axis=1)
        assert (nearest <= t2).all(), f"row {start + int(nearest.argmax())} is farther than t2 from every centre"


def check_equal(model, ref: CanopyReference) -> None:
    """A fitted estimator equals the definition: centres in their order, memberships bit for bit, labels."""
    np.testing.assert_array_equal(model.cluster_centers_indices_, ref.centers)
    assert model.n_canopies_ == len(ref.centers)
    members = model.memberships_
    assert members.shape == ref.memberships.shape
    assert members.dtype == bool and members.indptr.dtype == members.indices.dtype
    np.testing.assert_array_equal(members.indptr, ref.memberships.indptr)
    np.testing.assert_array_equal(members.indices, ref.memberships.indices)
    assert members.data.all()
    np.testing.assert_array_equal(model.labels_, ref.labels)


def papers_data(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Normal points in a cube of side 10 n, as Hayashi and others draw them; of their unstated deviation 10 n / 6."""
    rng = np.random.default_rng(seed)
    X = np.empty((0, d))
    while len(X) < n:
        more = rng.normal(5.0 * n, 10.0 * n / 6, size=(n, d))
        X = np.concatenate([X, more[((more >= 0) & (more <= 10.0 * n)).all(axis=1)]])
    return X[:n]
