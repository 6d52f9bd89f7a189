"""What ends the iterations: moves of centres, J, or memberships, each as the equations have it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mgclust import FuzzyCMeans
from mgclust.algorithms.fuzzy_c_means import weighted_sums
from oracles import fuzzy_c_means as reference


@pytest.fixture
def blobs(rng):
    return rng.normal(size=(400, 3)) + 3 * np.eye(3)[rng.integers(0, 3, 400)]


def changes_of(X, start, weights=None, iterations=60):
    """Of iterations 1, 2, ...: the three changes; J at the centres 0, 1, 2, ... and these centres."""
    scale = np.sqrt(((X - np.average(X, axis=0, weights=weights)) ** 2).sum(axis=1))
    scale = np.sqrt(np.average(scale**2, weights=weights))
    v, centers, J, u = start, [start], [], []
    for _ in range(iterations):
        u.append(reference.memberships(X, v, 2.0))
        J.append(reference.objective(X, v, u[-1], 2.0, weights))
        v = reference.weighted_means(X, u[-1], 2.0, weights)
        centers.append(v)
    moves = [np.sqrt(((b - a) ** 2).sum(axis=1).max()) / scale for a, b in pairwise(centers[:-1])]
    changes = {
        "centers": moves,
        "objective": [abs(b - a) / a for a, b in pairwise(J)],
        "memberships": [np.abs(b - a).max() for a, b in pairwise(u)],
    }
    return changes, J, centers


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("stop", ["centers", "objective", "memberships"])
def test_it_ends_with_the_first_iteration_that_changes_little(stop, weighted, blobs, device, rng):
    weights = rng.random(400) if weighted else None
    changes, J, centers = changes_of(blobs, blobs[:3], weights)
    tol = 1e-5
    last = 1 + next(t for t, change in enumerate(changes[stop]) if change <= tol)
    model = FuzzyCMeans(3, m=2.0, init=blobs[:3], tol=tol, stop=stop, device=device, client=None)
    model.fit(blobs, sample_weight=weights)
    assert (model.n_iter_, model.stop_reason_) == (last, "tol")
    np.testing.assert_allclose(model.objective_history_, J[: last + 1], rtol=1e-9)
    np.testing.assert_allclose(model.cluster_centers_, centers[last], atol=1e-9)
    assert model.result_.diagnostics["last_change"] == pytest.approx(changes[stop][last - 1], rel=1e-6)
    if stop == "objective":
        assert changes["centers"][last - 1] > tol < changes["memberships"][last - 1]


@pytest.mark.parametrize(
    ("stop", "said"),
    [("centers", "centres still moved by"), ("objective", "the objective still"), ("memberships", "memberships still")],
)
def test_a_run_that_ends_before(stop, said, blobs, device):
    """Of the last iteration the largest change is found, though rows before it were above tol."""
    changes, _, _ = changes_of(blobs, blobs[:3])
    model = FuzzyCMeans(3, m=2.0, init=blobs[:3], max_iter=5, tol=1e-9, stop=stop, device=device, client=None)
    with pytest.warns(UserWarning, match=rf"{said}.*max_iter=5.*tol=1e-09"):
        model.fit(blobs)
    assert model.stop_reason_ == "max_iter" and model.n_iter_ == 5
    assert model.result_.diagnostics["last_change"] == pytest.approx(changes[stop][4], rel=1e-6)


def test_the_last_iteration_may_be_one_that_changes_little(blobs, device):
    changes, _, _ = changes_of(blobs, blobs[:3])
    for stop, each in changes.items():
        last = 1 + next(t for t, change in enumerate(each) if change <= 1e-5)
        options = {"m": 2.0, "init": blobs[:3], "tol": 1e-5, "stop": stop, "device": device, "client": None}
        model = FuzzyCMeans(3, max_iter=last, **options).fit(blobs)
        assert (model.n_iter_, model.stop_reason_) == (last, "tol"), stop


@pytest.mark.parametrize("noise_distance", [None, 2.0])
def test_memberships_of_all_rows_count(noise_distance, device, rng, monkeypatch):
    """The row that changes most is the last one: of several blocks, and of pieces of one block each."""
    X = np.concatenate([rng.normal(size=(5000, 2)) * 1e-3 + 5 * np.eye(2)[np.arange(5000) % 2], [[2.4, 2.6]]])
    options = {"m": 2.0, "init": X[:2] + np.array([[1, 0], [0, 0]]), "noise_distance": noise_distance}
    options |= {"device": device, "client": None}
    model = FuzzyCMeans(2, stop="memberships", tol=0.05, **options).fit(X)
    assert model.n_iter_ == 2
    with pytest.warns(UserWarning, match="max_iter"):
        before = FuzzyCMeans(2, max_iter=1, tol=0.0, **options).fit(X)
    change = np.abs(model.memberships_ - before.memberships_)
    found = model.result_.diagnostics["last_change"]
    assert (change.argmax() // 2, change.max()) == (len(X) - 1, pytest.approx(found, rel=1e-6))
    monkeypatch.setattr(weighted_sums, "PIECE", 1)
    again = FuzzyCMeans(2, stop="memberships", tol=0.05, **options).fit(X)
    assert (again.n_iter_, again.result_.diagnostics["last_change"]) == (2, found)


def test_each_start_settles_for_itself(blobs, device):
    """Starts in one pass end where each would alone, at its own iteration."""
    for stop in ("objective", "memberships"):
        options = {"m": 2.0, "tol": 1e-6, "stop": stop, "device": device, "client": None, "random_state": 3}
        several = FuzzyCMeans(3, n_init=4, init="random", **options).fit(blobs)
        streams = np.random.SeedSequence(3).spawn(4)
        rows = [np.sort(np.random.default_rng(each).choice(400, 3, replace=False)) for each in streams]
        alone = [FuzzyCMeans(3, **options, init=blobs[chosen]).fit(blobs) for chosen in rows]
        np.testing.assert_allclose(
            several.result_.diagnostics["objectives"], [each.objective_ for each in alone], rtol=1e-12
        )
        assert several.n_iter_ == alone[several.result_.diagnostics["best_init"]].n_iter_
        assert len({each.n_iter_ for each in alone}) > 1
