"""Iterations from given memberships: beside the equations in float64, and the same bits on any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.algorithms.fuzzy_c_means import membership_iterations
from mgclust.algorithms.fuzzy_c_means.membership_iterations import iterate_memberships


def oracle(X, u, m, error, max_iter, centers=None):
    u = u / u.sum(axis=1, keepdims=True)
    history = []
    while True:
        v = (u**m).T @ X / (u**m).sum(axis=0)[:, None] if centers is None else centers
        squares = ((X[:, None] - v) ** 2).sum(axis=2)
        history.append((u**m * squares).sum())
        new = squares ** (-1 / (m - 1))
        new /= new.sum(axis=1, keepdims=True)
        change, u = np.linalg.norm(new - u), new
        if change < error or len(history) == max_iter:
            return v, u, np.sqrt(squares), history


def rows(n):
    rng = np.random.default_rng(4)
    X = 4 * rng.normal(size=(3, 5))[rng.integers(3, size=n)] + rng.normal(size=(n, 5)) + 100
    start = rng.random((n, 3)) + 0.01
    return X, start / start.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("m", "max_iter", "fixed"), [(2.0, 100, False), (1.3, 6, False), (2.0, 100, True)])
def test_the_equations(m, max_iter, fixed, device):
    X, start = rows(400)
    centers = X[:3] + 0.1 if fixed else None
    found = iterate_memberships(X, start, centers, m=m, error=1e-7, max_iter=max_iter, device=device, client=None)
    v, u, distances, history = oracle(X, start, m, 1e-7, max_iter, centers)
    assert found.n_iter == len(history)
    for ours, theirs in ((found.centers, v), (found.memberships, u), (found.distances, distances)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.history, history, rtol=1e-9)
    assert found.partition_coefficient == pytest.approx((u**2).sum() / len(X))


@pytest.mark.slow
def test_same_bits_on_any_number_of_ranks(ranks, monkeypatch):
    X, start = rows(6500)  # seven blocks
    seen = []
    for size in (1, 2, 4):
        monkeypatch.setattr(membership_iterations, "connect", lambda size=size, **_: ranks(size))
        found = iterate_memberships(X, start, m=1.7, error=1e-6, max_iter=50, device="cpu")
        parts = (found.centers, found.memberships, found.distances, np.array(found.history))
        seen.append((found.n_iter, found.partition_coefficient, *(part.tobytes() for part in parts)))
    assert seen[0] == seen[1] == seen[2] and seen[0][0] > 3
