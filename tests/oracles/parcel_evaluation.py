"""Scores of parcels in plain NumPy and float64, one pair of rows at a time.

`profile` and `dcbc` follow D. Zhi, M. King, C. R. Hernandez-Castillo and J. Diedrichsen, Evaluating brain parcellations
using the distance-controlled boundary coefficient, Human Brain Mapping 43:3706-3720, 2022. `ward` follows J. H. Ward,
Hierarchical grouping to optimize an objective function, Journal of the American Statistical Association 58:236-244,
1963, among neighbours. A graph is a list of sets: the neighbours of each row.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np


def correlation(a, b) -> float:
    """Pearson's correlation; 0 if a series is constant."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if (a == a[0]).all() or (b == b[0]).all():
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum()))


def homogeneity(series, labels) -> float:
    """Mean of the parcels' mean correlations, weighted by their numbers of rows, without parcels of one row."""
    total = rows = 0.0
    for parcel in set(labels) - {-1}:
        members = [i for i in range(len(labels)) if labels[i] == parcel]
        if len(members) > 1:
            total += len(members) * np.mean([correlation(series[i], series[j]) for i, j in combinations(members, 2)])
            rows += len(members)
    return total / rows if rows else math.nan


def profile(series, labels, coordinates, n_bins, width):
    """Lists of the correlations within and between parcels, for each bin of distance."""
    within, between = [[] for _ in range(n_bins)], [[] for _ in range(n_bins)]
    for i, j in combinations(range(len(labels)), 2):
        distance = math.dist(coordinates[i], coordinates[j])
        for b in range(n_bins):
            if b * width < distance <= (b + 1) * width and labels[i] >= 0 and labels[j] >= 0:
                (within if labels[i] == labels[j] else between)[b].append(correlation(series[i], series[j]))
    return within, between


def dcbc(within, between) -> float:
    """The distance-controlled boundary coefficient, from the lists of `profile`."""
    both = [(w, b) for w, b in zip(within, between, strict=True) if w and b]
    weights = [1 / (1 / len(w) + 1 / len(b)) for w, b in both]
    if not both:
        return math.nan
    return sum(v * (np.mean(w) - np.mean(b)) for v, (w, b) in zip(weights, both, strict=True)) / sum(weights)


def pieces(labels, neighbours):
    """Number of connected pieces of each parcel, by filling one piece after the other."""
    found, seen = [0] * (max(labels, default=-1) + 1), set()
    for row in range(len(labels)):
        if labels[row] < 0 or row in seen:
            continue
        found[labels[row]] += 1
        stack = [row]
        while stack:
            at = stack.pop()
            if at not in seen:
                seen.add(at)
                stack += [other for other in neighbours[at] if labels[other] == labels[row]]
    return found


def ward(rows, neighbours, k):
    """Labels after merging the two neighbouring clusters that differ the least, until there are k clusters."""
    rows = np.asarray(rows, np.float64)
    clusters = [[i] for i in range(len(rows))]
    while len(clusters) > k:
        costs = {}
        for a, b in combinations(range(len(clusters)), 2):
            if any(j in neighbours[i] for i in clusters[a] for j in clusters[b]):
                n, m = len(clusters[a]), len(clusters[b])
                gap = rows[clusters[a]].mean(axis=0) - rows[clusters[b]].mean(axis=0)
                costs[a, b] = n * m / (n + m) * float(gap @ gap)
        a, b = min(costs, key=costs.__getitem__)
        clusters[a] += clusters.pop(b)
    labels = np.empty(len(rows), int)
    for number, cluster in enumerate(sorted(clusters, key=min)):
        labels[cluster] = number
    return labels


def adjusted_rand(a, b) -> float:
    """Adjusted Rand index, from the numbers of pairs together (Hubert and Arabie 1985)."""
    pairs = list(combinations(range(len(a)), 2))
    one, other = [a[i] == a[j] for i, j in pairs], [b[i] == b[j] for i, j in pairs]
    both = sum(x and y for x, y in zip(one, other, strict=True))
    expected, mean = sum(one) * sum(other) / len(pairs), (sum(one) + sum(other)) / 2
    return 1.0 if mean == expected else (both - expected) / (mean - expected)
