"""Affinity propagation and the silhouette as their equations say it: R and A in full, float64, nothing implicit.

Oracles that share no code with mgclust. The adaptive variant is in `adaptive_affinity_propagation`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracles.density_peaks import distances


def similarity(X, affinity="euclidean") -> np.ndarray:
    """Minus the squared distance; minus (1 - r) / 2 for the cosine or Pearson's correlation r. 0 on the diagonal."""
    X = np.asarray(X, "float64")
    if affinity == "precomputed":
        return X.copy()
    s = -distances(X, X, "sqeuclidean") if affinity == "euclidean" else -distances(X, X, affinity) / 2
    np.fill_diagonal(s, 0.0)
    return s


def pass_messages(S, R, A, damping) -> None:
    """One damped update of responsibilities, then of availabilities, in place; preferences on S's diagonal."""
    n = len(S)
    rows = np.arange(n)
    total = A + S
    first = total.argmax(axis=1)
    largest = total[rows, first].copy()
    total[rows, first] = -np.inf
    update = S - largest[:, None]
    update[rows, first] = S[rows, first] - total.max(axis=1)
    R *= damping
    R += (1 - damping) * update
    positive = np.maximum(R, 0)
    positive[rows, rows] = R[rows, rows]
    column = positive.sum(axis=0)
    update = column[None, :] - positive
    own = update[rows, rows].copy()
    update = np.minimum(update, 0)
    update[rows, rows] = own
    A *= damping
    A += (1 - damping) * update


def assign_to_exemplars(S, exemplars) -> np.ndarray:
    """Position of the most similar exemplar, the first of equals; exemplars belong to themselves."""
    labels = S[:, exemplars].argmax(axis=1)
    labels[exemplars] = np.arange(len(exemplars))
    return labels


def refine_exemplars(S, exemplars) -> np.ndarray:
    """In each cluster the member with the largest sum of similarities from the members."""
    labels = assign_to_exemplars(S, exemplars)
    chosen = []
    for cluster in range(len(exemplars)):
        members = np.flatnonzero(labels == cluster)
        chosen.append(members[S[np.ix_(members, members)].sum(axis=0).argmax()])
    return np.sort(np.array(chosen, dtype=np.int64))


def net_similarity(S, exemplars) -> float:
    """Similarities of rows to their exemplars, with the preferences of these."""
    return float(S[np.arange(len(S)), exemplars[assign_to_exemplars(S, exemplars)]].sum())


def best_exemplars(S, flags) -> np.ndarray:
    """Of the states of the last 32 iterations, and the last with exemplars, that with the highest net similarity."""
    with_any = [np.flatnonzero(state) for state in flags if state.any()]
    if not with_any:
        return np.zeros(0, np.int64)
    recent = [np.flatnonzero(state) for state in flags[-32:] if state.any()]
    return max([*recent, with_any[-1]], key=lambda exemplars: net_similarity(S, exemplars))


@dataclass(frozen=True)
class AffinityPropagationReference:
    exemplars: np.ndarray
    labels: np.ndarray
    n_iter: int
    converged: bool
    counts: list[int]  # number of exemplars after each iteration
    net_similarity: float
    flags: list[np.ndarray]  # whether each row was an exemplar, after each iteration


def affinity_propagation(
    S, preference=None, damping=0.5, max_iter=200, convergence_iter=15
) -> AffinityPropagationReference:
    """scikit-learn's meaning: its median preference counts the zero diagonal, and it needs K > 0 to converge.

    But where it does not: then the best exemplars of the last 32 iterations, or the last that there were.
    """
    S = np.array(S, "float64")
    n = len(S)
    np.fill_diagonal(S, 0.0)
    preference = np.median(S) if preference is None else preference
    S[np.arange(n), np.arange(n)] = preference
    R, A = np.zeros((n, n)), np.zeros((n, n))
    flags: list[np.ndarray] = []
    converged = False
    while len(flags) < max_iter and not converged:
        pass_messages(S, R, A, damping)
        flags.append(np.diagonal(A) + np.diagonal(R) > 0)
        window = np.array(flags[-convergence_iter:])
        still = len(window) == convergence_iter and (window == window[-1]).all()
        converged = bool(still and window[-1].any() and len(flags) > convergence_iter)
    exemplars = np.flatnonzero(flags[-1]) if converged else best_exemplars(S, flags)
    labels, net = np.full(n, -1), np.nan
    if len(exemplars):
        exemplars = refine_exemplars(S, exemplars)
        labels = assign_to_exemplars(S, exemplars)
        net = net_similarity(S, exemplars)
    counts = [int(state.sum()) for state in flags]
    return AffinityPropagationReference(exemplars, labels, len(flags), converged, counts, net, flags)


def silhouette(D, labels) -> tuple[np.ndarray, float, np.ndarray]:
    """Of every point, their mean, and the mean of each cluster, from a matrix of dissimilarities; singletons 0."""
    labels = np.asarray(labels)
    clusters = np.unique(labels)
    s = np.zeros(len(labels))
    for i, own in enumerate(labels):
        others = (labels == own) & (np.arange(len(labels)) != i)
        if others.any():
            a = D[i, others].mean()
            b = min(D[i, labels == other].mean() for other in clusters if other != own)
            s[i] = (b - a) / max(a, b) if max(a, b) > 0 else 0.0
    return s, float(s.mean()), np.array([s[labels == c].mean() for c in clusters])
