"""A noise cluster: rows far from all centres belong to it, and hardly move them."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust import FuzzyCMeans
from mgclust.algorithms import base, presentation_of
from mgclust.base.errors import ClusteringWarning, InputError
from support.points import load_points

pytestmark = pytest.mark.xdist_group("workers")
TINY = 1e-300


def shares(X, v, m, delta):
    """Memberships in the clusters, and in the last column that of the noise, as Davé's equations have them."""
    squares = ((X[:, None] - v) ** 2).sum(axis=2)
    log = -np.log(np.maximum(np.column_stack([squares, np.full(len(X), delta**2)]), TINY)) / (m - 1)
    u = np.exp(log - log.max(axis=1, keepdims=True))
    return u / u.sum(axis=1, keepdims=True), squares


def reference(X, v, m, delta, iterations, weights):
    for _ in range(iterations):
        g = weights[:, None] * shares(X, v, m, delta)[0][:, :-1] ** m
        v = (g.T @ X) / g.sum(axis=0)[:, None]
    u, squares = shares(X, v, m, delta)
    far = np.column_stack([squares, np.full(len(X), delta**2)])
    return v, u, float((weights[:, None] * u**m * far).sum())


@pytest.fixture
def scattered(rng):
    """Two clusters, and rows all over the place at one side of them."""
    near = rng.normal(size=(600, 2)) + np.array([10, 0]) * (np.arange(600) % 2)[:, None]
    return np.concatenate([near, rng.uniform(20, 80, (60, 2))])


@pytest.mark.parametrize(("m", "delta"), [(2.0, 4.0), (1.2, 4.0), (1.01, 3.0), (80.0, 4.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_as_the_equations_have_it(m, delta, weighted, scattered, device, rng):
    start, weights = np.array([[0.5, 0.5], [9.0, 0.5]]), rng.random(660) if weighted else np.ones(660)
    v, u, objective = reference(scattered, start, m, delta, 8, weights)
    model = FuzzyCMeans(2, m=m, init=start, noise_distance=delta, max_iter=8, tol=0.0, device=device, client=None)
    with pytest.warns(UserWarning, match="max_iter"):
        model.fit(scattered, sample_weight=weights if weighted else None)
    np.testing.assert_allclose(model.cluster_centers_, v, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(model.memberships_, u[:, :-1], atol=1e-7)
    assert model.objective_ == pytest.approx(objective, rel=1e-7)
    assert (np.diff(model.objective_history_) <= 1e-9 * model.objective_history_[0]).all()
    w = weights / weights.sum()
    assert model.partition_coefficient_ == pytest.approx((w[:, None] * u**2).sum(), rel=1e-7)
    entropy = -(w[:, None] * u * np.log(np.maximum(u, TINY))).sum()
    assert model.partition_entropy_ == pytest.approx(entropy, rel=1e-6, abs=1e-9)
    np.testing.assert_array_equal(model.labels_, np.where(u.argmax(axis=1) == 2, -1, u.argmax(axis=1)))
    np.testing.assert_array_equal(model.predict(scattered), model.labels_)
    assert -model.score(scattered, sample_weight=weights) == pytest.approx(model.objective_, rel=1e-9)
    assert model.result_.scores["noise_share"] == (model.labels_ < 0).mean() > 0


def test_rows_far_away_do_not_move_centers(scattered, device):
    options = {"init": "random", "n_init": 10, "random_state": 0, "device": device, "client": None}
    model = FuzzyCMeans(2, noise_distance=6.0, **options).fit(scattered)
    order = np.argsort(model.cluster_centers_[:, 0])
    assert np.abs(model.cluster_centers_[order] - [[0, 0], [10, 0]]).max() < 0.3
    assert (model.labels_[600:] < 0).mean() > 0.8 > 0.05 > (model.labels_[:600] < 0).mean()
    without = FuzzyCMeans(2, **options).fit(scattered)
    assert np.abs(np.sort(without.cluster_centers_[:, 0]) - [0, 10]).max() > 1
    distant = FuzzyCMeans(2, noise_distance=1e8, **options).fit(scattered)
    np.testing.assert_allclose(distant.cluster_centers_, without.cluster_centers_, rtol=1e-4)
    assert distant.result_.scores["noise_share"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("size", "limit"), [(3, None), (2, None), (4, None), (1, "64 MiB")])
def test_same_bits_on_any_number_of_ranks(size, limit, ranks, monkeypatch):
    X = load_points("pendigits")[0]
    options = {"noise_distance": 80.0, "m": 1.4, "dtype": "float64", "max_iter": 5, "random_state": 1, "device": "cpu"}

    def on(size, limit=None):
        monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        with pytest.warns(UserWarning):
            return FuzzyCMeans(6, n_init=2, memory_limit=limit, **options).fit(X)

    one, several = on(1), on(size, limit)
    assert 0 < one.result_.scores["noise_share"] < 0.9
    for name in ("cluster_centers_", "labels_", "memberships_", "objective_history_"):
        np.testing.assert_array_equal(getattr(several, name), getattr(one, name), err_msg=name)


def test_what_is_said_and_refused(scattered, device):
    model = FuzzyCMeans(2, noise_distance=0.1, random_state=0, device=device, client=None)
    with pytest.warns(ClusteringWarning, match=r"of 660 rows are noise.*noise_distance=0.1.*raise noise_distance"):
        model.fit(scattered)
    with pytest.raises(InputError, match="noise_distance=0"):
        FuzzyCMeans(2, noise_distance=0, device=device, client=None).fit(scattered)


def test_it_is_shown_beside_the_clusters(scattered, device):
    model = FuzzyCMeans(2, noise_distance=4.0, init="random", n_init=10, random_state=0, device=device, client=None)
    result = model.fit(scattered).result_
    shown = presentation_of("fuzzy-c-means")
    table = shown.tables(result)[0]
    at = table.columns.index("mean membership of its rows")
    means = [f"{model.memberships_[model.labels_ == c, c].mean():.3f}" for c in range(2)]
    assert (model.labels_ < 0).any() and [row[at] for row in table.rows] == means
    assert ("noise", f"{100 * (model.labels_ < 0).mean():.1f} % of the rows") in shown.summary(result)


def test_clear_clusters_do_not_become_noise(device, rng):
    """Xie-Beni would choose 2: the outer ones, which lie far apart."""
    X = np.concatenate([rng.normal((10 * at, 0), 1, (60, 2)) for at in range(4)])
    options = {"init": "random", "n_init": 10, "random_state": 0, "device": device, "client": None}
    model = FuzzyCMeans(n_clusters_range=(2, 6), noise_distance=3.0, **options).fit(X)
    assert model.scan_["xie_beni"].argmin() == 0
    assert model.n_clusters_ == 4 and model.result_.scores["noise_share"] < 0.1
    heading = presentation_of("fuzzy-c-means").tables(model.result_)[-1].heading
    assert heading.endswith("chosen by modified_partition_coefficient")
    with pytest.raises(InputError, match=r"criterion='xie_beni'.*noise_distance=3.*give criterion="):
        FuzzyCMeans(n_clusters_range=(2, 6), noise_distance=3.0, criterion="xie_beni", **options).fit(X)
