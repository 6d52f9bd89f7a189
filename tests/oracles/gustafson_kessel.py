"""The algorithm of Gustafson and Kessel as its formulas say it: U stored, float64; shares no code with mgclust.

    v_j   = sum_i w_i u_ij^m x_i / sum_i w_i u_ij^m
    F_j   = sum_i w_i u_ij^m (x_i - v_j)(x_i - v_j)' / sum_i w_i u_ij^m
    A_j   = det(F_j)^(1/d) F_j^-1
    d_ij2 = (x_i - v_j)' A_j (x_i - v_j)
    u_ij  = 1 / sum_k (d_ij / d_ik)^(2 / (m - 1))
    J     = sum_ij w_i u_ij^m d_ij2

Every A_j is at first the identity, and later F_j is (1 - shrinkage) F_j + shrinkage F_0, with the covariance F_0 of all
rows. A noise cluster is one more column of distances, all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Partition:
    """Centres and covariances after some iterations; memberships (that of noise last) and J at them."""

    centers: np.ndarray
    covariances: np.ndarray
    memberships: np.ndarray
    objective: float


def squared_distances(X, centers, covariances) -> np.ndarray:
    d = X.shape[1]
    columns = []
    for v, F in zip(centers, covariances, strict=True):
        A = np.linalg.det(F) ** (1 / d) * np.linalg.inv(F)
        columns.append([(x - v) @ A @ (x - v) for x in X])
    return np.array(columns).T


def memberships(squares, m) -> np.ndarray:
    logs = -np.log(np.maximum(squares, 1e-300)) / (m - 1)
    u = np.exp(logs - logs.max(axis=1, keepdims=True))
    return u / u.sum(axis=1, keepdims=True)


def covariance(X, v, g) -> np.ndarray:
    return sum(weight * np.outer(x - v, x - v) for x, weight in zip(X, g, strict=True)) / g.sum()


def iterate(X, centers, m, iterations, *, weights=None, noise_distance=None, shrinkage=0.0) -> Partition:
    X, v = np.asarray(X, "float64"), np.asarray(centers, "float64")
    w = np.ones(len(X)) if weights is None else np.asarray(weights, "float64")
    of_all = covariance(X, (w @ X) / w.sum(), w)
    F = np.array([np.eye(X.shape[1]) * np.trace(of_all) / X.shape[1]] * len(v))
    far = [] if noise_distance is None else [np.full(len(X), noise_distance**2)]
    for turn in range(iterations + 1):
        squares = np.column_stack([squared_distances(X, v, F), *far])
        u = memberships(squares, m)
        if turn == iterations:
            return Partition(v, F, u, float((w[:, None] * u**m * squares).sum()))
        g = w[:, None] * u[:, : len(v)] ** m
        v = (g.T @ X) / g.sum(axis=0)[:, None]
        each = [covariance(X, center, column) for center, column in zip(v, g.T, strict=True)]
        F = np.array([(1 - shrinkage) * mine + shrinkage * of_all for mine in each])
    raise AssertionError
