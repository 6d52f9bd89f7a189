"""Fuzzy c-means as its formulas say it: U stored, float64, direct differences; shares no code with mgclust.

    v_j  = sum_i w_i u_ij^m x_i / sum_i w_i u_ij^m
    u_ij = 1 / sum_k (d_ij / d_ik)^(2 / (m - 1))        a row with distances of 0 is split evenly among those
    J    = sum_ij w_i u_ij^m d_ij^2

Iteration t takes v_(t-1) to U(v_(t-1)) and that to v_t. Memberships that are given make v_0, their weighted means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oracles.density_peaks import distances


@dataclass(frozen=True)
class State:
    """v_t, and U and J at v_t."""

    centers: np.ndarray
    memberships: np.ndarray
    objective: float


@dataclass(frozen=True)
class Fitted:
    """What `differences` reads of an estimator, for programs that are none."""

    cluster_centers_: np.ndarray
    memberships_: np.ndarray
    objective_: float


def memberships(X, centers, m) -> np.ndarray:
    """U of these centres. Powers go through logarithms: 1 / (m - 1) may be 1000."""
    s = distances(X, centers, "sqeuclidean")
    zero = s == 0
    with np.errstate(divide="ignore"):
        logs = -np.log(s) / (m - 1)
    hit = zero.any(axis=1)
    logs[hit] = np.where(zero[hit], 0.0, -np.inf)
    u = np.exp(logs - logs.max(axis=1, keepdims=True))
    return u / u.sum(axis=1, keepdims=True)


def weighted_means(X, U, m, weights=None) -> np.ndarray:
    g = powers(U, m, weights)
    return (g.T @ np.asarray(X, "float64")) / g.sum(axis=0)[:, None]


def powers(U, m, weights=None) -> np.ndarray:
    """w u^m, each column scaled: at m = 100 and many centres u^m itself underflows."""
    with np.errstate(divide="ignore"):
        logs = m * np.log(np.asarray(U, "float64"))
    g = np.exp(logs - logs.max(axis=0, keepdims=True))
    return g if weights is None else g * np.asarray(weights, "float64")[:, None]


def objective(X, centers, U, m, weights=None) -> float:
    terms = (U**m * distances(X, centers, "sqeuclidean")).sum(axis=1)
    return float(terms.sum() if weights is None else (terms * weights).sum())


def iterate(X, m=2.0, *, U=None, centers=None, weights=None) -> Iterator[State]:
    """The states at v_0, v_1, v_2, ... from given memberships or given centres."""
    v = weighted_means(X, U, m, weights) if centers is None else np.asarray(centers, "float64")
    while True:
        u = memberships(X, v, m)
        yield State(v, u, objective(X, v, u, m, weights))
        v = weighted_means(X, u, m, weights)


def states(X, m=2.0, *, at, **start) -> dict[int, State]:
    """The states at the iterations `at` alone."""
    found = {}
    for t, state in enumerate(iterate(X, m, **start)):
        if t in at:
            found[t] = state
        if t >= max(at):
            return found
    return found


def scale(X) -> float:
    """Root mean square distance of the rows from their mean: what distances between centres are measured in."""
    X = np.asarray(X, "float64")
    return float(np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean()))


def unit_rows(X, metric) -> np.ndarray:
    """The rows that "cosine" and "correlation" cluster."""
    X = np.asarray(X, "float64")
    if metric == "correlation":
        X = X - X.mean(axis=1, keepdims=True)
    return X if metric == "euclidean" else X / np.linalg.norm(X, axis=1, keepdims=True)


def indices(state: State, weights=None) -> dict[str, float]:
    """Partition coefficient, partition entropy (natural logarithm) and Xie and Beni's index."""
    u = state.memberships
    w = np.ones(len(u)) if weights is None else np.asarray(weights, "float64")
    log_u = np.log(np.where(u > 0, u, 1.0))
    between = distances(state.centers, state.centers, "sqeuclidean")[~np.eye(len(state.centers), dtype=bool)]
    return {
        "partition_coefficient_": float((w[:, None] * u**2).sum() / w.sum()),
        "partition_entropy_": float(-(w[:, None] * u * log_u).sum() / w.sum()),
        "xie_beni_": float(state.objective / (w.sum() * between.min())) if len(between) else float("nan"),
    }


def differences(model, state: State, X, m) -> dict[str, float]:
    """How far a fitted model is from a state: centres in the data's scale, memberships as such, J relative.

    Past m = 3 a membership changes by the (2 / (m - 1))-th power of the distance to a centre that a row is about to
    meet, whose digits are all rounding (m = 10: 1e-14 of the scale makes 1e-3): at most one row a centre is left out.
    """
    size = scale(X) or 1.0
    floor = 1e-9 * len(X) * size**2  # J is 0, or but rounding, where every row has its centre
    u = np.abs(model.memberships_ - state.memberships).max(axis=1)
    if m > 3:
        met = np.sqrt(distances(X, state.centers, "sqeuclidean").min(axis=1)) < 1e-8 * size
        assert met.sum() <= len(state.centers)
        u = u[~met]
    return {
        "centers": float(np.abs(model.cluster_centers_ - state.centers).max() / size),
        "memberships": float(u.max()),
        "objective": abs(model.objective_ - state.objective) / max(state.objective, floor),
    }
