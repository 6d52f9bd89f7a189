"""Random memberships to start from: what they are, and that a fit begins with them."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust import FuzzyCMeans
from mgclust.algorithms.fuzzy_c_means.initialization import random_memberships
from oracles import fuzzy_c_means as reference

LIMIT = 2**64


def splitmix64(value: int) -> int:
    """The generator of Steele, Lea and Flood (2014), its output function in Python's integers."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % LIMIT
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % LIMIT
    return value ^ (value >> 31)


def expected(n: int, c: int, stream: np.random.SeedSequence) -> np.ndarray:
    key = splitmix64((int(np.random.default_rng(stream).integers(2**63)) + 0x9E3779B97F4A7C15) % LIMIT)
    shares = np.array([[1 - (splitmix64((i * c + j + key) % LIMIT) >> 11) / 2**53 for j in range(c)] for i in range(n)])
    return shares / shares.sum(axis=1, keepdims=True)


def test_every_row_has_its_own_numbers():
    """The same whichever rows are asked for together; each start has others."""
    found = random_memberships(np, 3, starts=2, seed=7)
    for memberships, stream in zip(found, np.random.SeedSequence(7).spawn(2), strict=True):
        of_all = expected(50, 3, stream)
        np.testing.assert_allclose(memberships(0, 50), of_all, rtol=1e-15)
        np.testing.assert_allclose(memberships(20, 31), of_all[20:31], rtol=1e-15)
    assert np.abs(found[0](0, 50) - found[1](0, 50)).max() > 0.1


def test_clusters_are_alike_and_rows_independent():
    """Means 1 / c, columns correlated as those of exchangeable shares, rows not at all; four standard errors."""
    n, c = 40_000, 4
    u = random_memberships(np, c, starts=1, seed=1)[0](0, n)
    assert u.min() > 0
    np.testing.assert_allclose(u.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(u.mean(axis=0), 1 / c, atol=4 * u.std() / n**0.5)
    between = np.corrcoef(u.T)[np.triu_indices(c, 1)]
    np.testing.assert_allclose(between, -1 / (c - 1), atol=4 / n**0.5)
    for j in range(c):
        assert abs(np.corrcoef(u[:-1, j], u[1:, j])[0, 1]) < 4 / n**0.5


@pytest.mark.parametrize("m", [1.5, 2.0, 3.0])
def test_a_fit_begins_with_them(m, device, rng):
    """J at the centres of the memberships that the seed stands for, and after three iterations from them."""
    X = rng.normal(size=(500, 3)) + 5 * np.eye(3)[rng.integers(0, 3, 500)]
    options = {"m": m, "max_iter": 3, "tol": 0, "device": device, "client": None}
    with pytest.warns(UserWarning, match="max_iter"):
        model = FuzzyCMeans(3, init="random-memberships", random_state=11, **options).fit(X)
    U = expected(500, 3, np.random.SeedSequence(11).spawn(1)[0])
    weights = U**m
    centers = (weights.T @ X) / weights.sum(axis=0)[:, None]
    J = []
    for _ in range(4):
        u = reference.memberships(X, centers, m)
        J.append(reference.objective(X, centers, u, m))
        centers = reference.weighted_means(X, u, m)
    np.testing.assert_allclose(model.objective_history_, J, rtol=1e-9)
