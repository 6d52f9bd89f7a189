"""Significant density peaks as the papers' sentences say it: slow, in float64, and sharing no code with mgclust.

TwoNN (Facco et al. 2017), k* and PAk (Rodriguez et al. 2018), topography (d'Errico et al. 2021). Conventions that the
papers leave open:

* rows are ordered by log density less its error; of equal ones the lower number is the denser one;
* nearest rows are ordered by (distance, number), and a row is not its own;
* the nearest denser row is looked for among all rows;
* a distance of 0 does not end a neighbourhood; a neighbourhood of radius 0 gets half the smallest radius of others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.stats import chi2

from oracles.density_peaks import distances, nearest_higher, rank_by_density

THRESHOLD = float(chi2.isf(1e-6, 1))


@dataclass(frozen=True)
class Densities:
    dim: float
    k: np.ndarray
    value: np.ndarray
    error: np.ndarray


@dataclass(frozen=True)
class TopographyReference:
    owner: np.ndarray  # of each row, the peak of its cluster
    heights: dict[int, float]  # of each peak left
    saddles: dict[tuple[int, int], int]  # of two peaks left: the row
    peaks: list[int]  # before merges


def neighbor_lists(X, width, metric="euclidean") -> tuple[np.ndarray, np.ndarray]:
    d = distances(X, X, metric)
    np.fill_diagonal(d, np.inf)
    index = np.argsort(d, axis=1, kind="stable")[:, :width]
    return np.take_along_axis(d, index, axis=1), index


def two_nearest_dimension(r) -> float:
    mu = np.sort([row[1] / row[0] for row in r if row[0] > 0])
    points = [(math.log(mu[i]), -math.log(1 - (i + 1) / len(mu))) for i in range(int(0.9 * len(mu)))]
    squares = sum(x * x for x, _ in points)
    return sum(x * y for x, y in points) / squares if squares > 0 else math.inf


def neighborhood(i, r, index, dim) -> int:
    width = r.shape[1]
    for k in range(3, width):
        own, other = r[i, k - 1], r[index[i, k], k - 1]
        if own == 0:
            continue
        if other == 0:
            return k
        V, W = own**dim, other**dim
        if -2 * k * (math.log(V) + math.log(W) - 2 * math.log(V + W) + math.log(4)) > THRESHOLD:
            return k
    return width


def most_likely(r, k, radius, dim) -> float:
    """b where the likelihood is largest, with volumes in units of that of the neighbourhood."""
    u = np.concatenate([[0.0], np.minimum(r[:k] / radius, 1) ** dim])
    v, number = np.diff(u), np.arange(1, k + 1)
    middle = (k + 1) / 2
    if not ((v[number < middle] > 0).any() and (v[number > middle] > 0).any()):
        return math.log(k)

    def loss(at):
        weight = v * np.exp(np.clip(at[0] + at[1] * number, -600, 600))
        value = -(k * at[0] + at[1] * k * (k + 1) / 2 - weight.sum())
        gradient = [-(k - weight.sum()), -(k * (k + 1) / 2 - (weight * number).sum())]
        second = [
            [weight.sum(), (weight * number).sum()],
            [(weight * number).sum(), (weight * number**2).sum()],
        ]
        return value, np.array(gradient), np.array(second)

    found = minimize(
        lambda at: loss(at)[0], [math.log(k), 0.0], jac=lambda at: loss(at)[1], hess=lambda at: loss(at)[2],
        method="trust-exact", options={"gtol": 1e-9, "maxiter": 500},
    )  # fmt: skip
    b, a = found.x
    return float(b) if abs(a) < 40 / (k - 1) else math.log(k)


def densities(X, k="adaptive", metric="euclidean") -> Densities:
    X = np.asarray(X, "float64")
    n = len(X)
    r, index = neighbor_lists(X, min(100, n - 1) if k == "adaptive" else k, metric)
    dim = min(two_nearest_dimension(r), X.shape[1])
    ks = np.array([neighborhood(i, r, index, dim) if k == "adaptive" else k for i in range(n)])
    radius = r[np.arange(n), ks - 1]
    radius = np.where(radius > 0, radius, radius[radius > 0].min() / 2)
    if k == "adaptive":
        b = np.array([most_likely(r[i], ks[i], radius[i], dim) for i in range(n)])
        error = np.sqrt((4 * ks + 2) / (ks * (ks - 1)))
    else:
        b, error = np.log(ks), 1 / np.sqrt(ks)
    ball = math.pi ** (dim / 2) / math.gamma(dim / 2 + 1)
    return Densities(dim, ks, b - np.log(n * ball) - dim * np.log(radius), error)


def topography(X, density: Densities, significance, width, metric="euclidean") -> TopographyReference:
    n = len(X)
    _, index = neighbor_lists(X, width, metric)
    _, higher = nearest_higher(X, density.value - density.error, metric)
    rank = rank_by_density(density.value - density.error)
    near = [index[i, : density.k[i]] for i in range(n)]
    peaks = [i for i in range(n) if all(rank[i] < rank[j] for j in near[i])]
    inside = {j for i in range(n) for j in near[i] if rank[j] > rank[i]}
    peaks = [i for i in peaks if i not in inside]
    owner = np.full(n, -1)
    owner[peaks] = peaks
    for i in np.argsort(rank):
        if owner[i] < 0:
            owner[i] = owner[higher[i]]
    saddle: dict[frozenset, int] = {}
    for i in range(n):
        if i in peaks:
            continue
        j = next((j for j in near[i] if owner[j] != owner[i]), None)
        if j is None or next((m for m in index[j] if owner[m] == owner[i]), i) != i:
            continue
        pair = frozenset((owner[i], owner[j]))
        if pair not in saddle or rank[i] < rank[saddle[pair]]:
            saddle[pair] = i

    def height(peak, row):
        return (density.value[peak] - density.value[row]) / (density.error[peak] + density.error[row])

    def low(pair):
        return min(height(peak, saddle[pair]) for peak in pair) < significance

    while any(map(low, saddle)):
        pair = min(filter(low, saddle), key=lambda pair: (-density.value[saddle[pair]], *sorted(pair)))
        first, second = sorted(pair)
        row = saddle.pop(pair)
        stays, goes = (first, second) if height(first, row) >= height(second, row) else (second, first)
        owner[owner == goes] = stays
        for other in [pair for pair in saddle if goes in pair]:
            (third,) = other - {goes}
            found, place = frozenset((stays, third)), saddle.pop(other)
            if found not in saddle or density.value[place] > density.value[saddle[found]]:
                saddle[found] = place
    left = [peak for peak in peaks if owner[peak] == peak]
    over = {p: min((height(p, row) for pair, row in saddle.items() if p in pair), default=math.inf) for p in left}
    ordered = {(int(a), int(b)): row for pair, row in saddle.items() for a, b in [sorted(pair)]}
    return TopographyReference(owner, over, ordered, peaks)
