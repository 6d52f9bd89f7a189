"""Density peaks as the paper's sentences say it: slow, in float64, and sharing no code with mgclust.

One oracle for every device and every number of ranks. Distances are direct differences, pair by pair
(SciPy's ``cdist``), so nothing cancels; rows go by blocks, so 20,000 points fit a small machine. Only the
exact ``dc`` holds all pairs at once.

Conventions (the same as documented by `mgclust.DensityPeaks`):

* ``dc``: of the N = n (n - 1) / 2 pair distances in increasing order, number k = round(fraction N), counted
  from 1 and kept within 1 .. N.
* ``rho``: sum over the *other* points of exp(-(d / dc)^2), or the number of other points with d < dc.
* higher: of two points with equal rho, the lower index is the higher one.
* nearest higher: of several at the same distance, the lowest index. The densest point has none (-1) and its
  delta is its largest distance.
* halo: a cluster's border is its points within dc (d < dc) of a point of another cluster; rho_b is the
  highest density in the border; points of the cluster with rho <= rho_b are halo. No border, no halo.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist, pdist

CDIST_NAMES = {
    "euclidean": "euclidean",
    "sqeuclidean": "sqeuclidean",
    "manhattan": "cityblock",
    "cosine": "cosine",
    "correlation": "correlation",
}
METRICS = tuple(CDIST_NAMES)
BLOCK = 1024


def distances(a, b, metric="euclidean") -> np.ndarray:
    """All distances between the rows of a and of b, float64."""
    out = cdist(np.asarray(a, "float64"), np.asarray(b, "float64"), CDIST_NAMES[metric])
    # 1 - cos of two equal directions comes out as some 1e-17 of either sign.
    return np.maximum(out, 0.0)


def row_blocks(X, metric) -> Iterator[tuple[slice, np.ndarray]]:
    X = np.asarray(X, "float64")
    for start in range(0, len(X), BLOCK):
        rows = slice(start, min(start + BLOCK, len(X)))
        yield rows, distances(X[rows], X, metric)


def cutoff_rank(n_pairs: int, fraction: float) -> int:
    return min(max(round(fraction * n_pairs), 1), n_pairs)


def cutoff_distance(X, fraction=0.02, metric="euclidean") -> float:
    pairs = np.maximum(pdist(np.asarray(X, "float64"), CDIST_NAMES[metric]), 0.0)
    k = cutoff_rank(len(pairs), fraction)
    return float(np.partition(pairs, k - 1)[k - 1])


def density(X, dc, kernel="gaussian", metric="euclidean") -> np.ndarray:
    rho = np.empty(len(X))
    for rows, d in row_blocks(X, metric):
        own = np.arange(rows.start, rows.stop)
        weight = np.exp(-((d / dc) ** 2)) if kernel == "gaussian" else (d < dc).astype("float64")
        weight[np.arange(len(own)), own] = 0.0  # the sum is over the others
        rho[rows] = weight.sum(axis=1)
    return rho


def rank_by_density(rho) -> np.ndarray:
    """Position of every point by decreasing density, ties by increasing index; 0 is the densest."""
    order = np.lexsort((np.arange(len(rho)), -np.asarray(rho, "float64")))
    position = np.empty(len(rho), dtype=np.int64)
    position[order] = np.arange(len(rho))
    return position


def nearest_higher(X, rho, metric="euclidean") -> tuple[np.ndarray, np.ndarray]:
    """delta and the index of the nearest point of higher density."""
    position = rank_by_density(rho)
    delta = np.empty(len(X))
    index = np.empty(len(X), dtype=np.int64)
    for rows, d in row_blocks(X, metric):
        lower = position[None, :] >= position[rows][:, None]
        densest = np.flatnonzero(position[rows] == 0)
        farthest = d[densest].max(axis=1)
        d[lower] = np.inf
        index[rows] = d.argmin(axis=1)  # the first of equals
        delta[rows] = d.min(axis=1)
        index[rows][densest] = -1
        delta[rows][densest] = farthest
    return delta, index


def choose_centers(rho, delta, n_clusters) -> np.ndarray:
    """The n_clusters points of largest rho * delta, ties by index; sorted by index."""
    score = np.asarray(rho, "float64") * np.asarray(delta, "float64")
    return np.sort(np.lexsort((np.arange(len(score)), -score))[:n_clusters])


def assign(rho, higher, centers) -> np.ndarray:
    """For every point the *index of its centre*: comparable, however labels are numbered."""
    owner = np.full(len(rho), -1, dtype=np.int64)
    owner[centers] = centers
    for i in np.argsort(rank_by_density(rho)):
        if owner[i] < 0 and higher[i] >= 0:
            owner[i] = owner[higher[i]]
    return owner


def halo(X, rho, owner, dc, metric="euclidean") -> np.ndarray:
    rho = np.asarray(rho, "float64")
    border = np.zeros(len(X), dtype=bool)
    for rows, d in row_blocks(X, metric):
        border[rows] = ((d < dc) & (owner[None, :] != owner[rows][:, None])).any(axis=1)
    out = np.zeros(len(X), dtype=bool)
    for center in np.unique(owner):
        members = owner == center
        in_border = members & border
        if in_border.any():
            out |= members & (rho <= rho[in_border].max())
    return out


@dataclass(frozen=True)
class DensityPeaksReference:
    dc: float
    rho: np.ndarray
    delta: np.ndarray
    higher: np.ndarray
    centers: np.ndarray
    owner: np.ndarray  # of every point, the index of its centre


def density_peaks(
    X, n_clusters, dc=None, dc_fraction=0.02, kernel="gaussian", metric="euclidean"
) -> DensityPeaksReference:
    dc = cutoff_distance(X, dc_fraction, metric) if dc is None else dc
    rho = density(X, dc, kernel, metric)
    delta, higher = nearest_higher(X, rho, metric)
    centers = choose_centers(rho, delta, n_clusters)
    return DensityPeaksReference(dc, rho, delta, higher, centers, assign(rho, higher, centers))


def rounding(X, dtype) -> float:
    """How far a euclidean distance may move when every centred coordinate is rounded to `dtype`."""
    X = np.asarray(X, "float64")
    return float(4 * np.finfo(dtype).eps * np.abs(X - X.mean(axis=0)).max() * X.shape[1] ** 0.5)


def check_nearest_higher(X, rho, delta, higher, metric="euclidean", rtol=2e-6, atol=0.0) -> None:
    """Check delta and higher *for this rho*; points at equal distance, to rounding, may replace each other.

    Nothing else is forgiven: the point named must be higher under the tie rule, delta must be the distance to
    it, and no higher point may be nearer by more than rounding.
    """
    position = rank_by_density(rho)
    exact_delta, _ = nearest_higher(X, rho, metric)
    tolerance = rtol * exact_delta + atol
    wrong = np.flatnonzero(np.abs(delta - exact_delta) > tolerance)
    assert len(wrong) == 0, (
        f"delta is wrong for {len(wrong)} points, the first is {wrong[0]}: {delta[wrong[0]]!r}, "
        f"should be {exact_delta[wrong[0]]!r}"
    )
    densest = int(np.flatnonzero(position == 0)[0])
    assert higher[densest] == -1, f"the densest point {densest} names {higher[densest]} as higher"
    others = np.flatnonzero(position > 0)
    named = higher[others]
    assert (named >= 0).all() and (position[named] < position[others]).all(), "a named point is not higher"
    far = others[pair_distances(X, others, named, metric) > (exact_delta + 2 * tolerance)[others]]
    assert len(far) == 0, f"point {far[0]} names {higher[far[0]]}, which is not the nearest higher"


def pair_distances(X, i, j, metric="euclidean") -> np.ndarray:
    """Distances between the rows i[k] and j[k]."""
    X = np.asarray(X, "float64")
    pairs = [distances(X[[a]], X[[b]], metric)[0, 0] for a, b in zip(i, j, strict=True)]
    return np.array(pairs, "float64")


def check_against_reference(X, model, ref, metric="euclidean", rtol_rho=1e-5, atol=0.0) -> int:
    """Check a fitted estimator against `DensityPeaksReference`; returns how many ties went the other way.

    Two points whose exact densities agree to rounding may come out in either order, and so may two points at
    the same distance; every other difference fails.
    """
    np.testing.assert_allclose(model.dc_, ref.dc, rtol=2e-6, atol=atol, err_msg="dc")
    np.testing.assert_allclose(model.rho_, ref.rho, rtol=rtol_rho, atol=1e-12 * len(X), err_msg="rho")
    differ = np.flatnonzero(model.nearest_higher_ != ref.higher)
    for i in differ:
        mine, theirs = int(model.nearest_higher_[i]), int(ref.higher[i])
        close = [abs(ref.rho[j] - ref.rho[i]) <= 2 * rtol_rho * ref.rho[i] for j in (mine, theirs) if j >= 0]
        if any(close):
            continue
        assert mine >= 0 and theirs >= 0, f"point {i} is not the densest one: {mine} against {theirs}"
        a, b = pair_distances(X, [i, i], [mine, theirs], metric)
        assert abs(a - b) <= 4e-6 * b + 2 * atol, f"point {i} names {mine} at {a}, should name {theirs} at {b}"
    same = model.nearest_higher_ == ref.higher
    np.testing.assert_allclose(model.delta_[same], ref.delta[same], rtol=4e-6, atol=2 * atol, err_msg="delta")
    return len(differ)


def owners(model) -> np.ndarray:
    """For every point the index of its centre, from a fitted estimator."""
    return np.asarray(model.cluster_centers_indices_)[np.asarray(model.labels_)]
