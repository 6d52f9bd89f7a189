"""K-means confined to canopies: Lloyd's where canopies decide nothing, the same bits on any ranks."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust import Canopy
from mgclust.algorithms.canopy import estimator, means
from mgclust.datasets import make_gaussian_rings
from mgclust.errors import InputError
from mgclust.label_agreement import compare_labels
from support.points import load_points

pytestmark = pytest.mark.xdist_group("workers")


def on_cpu(**parameters) -> Canopy:
    return Canopy(device="cpu", client=None, **parameters)


def allowed_pairs(model, v) -> np.ndarray:
    """Which rows share a canopy with which prototypes; all of a row that would have none."""
    canopies, members = model.cluster_centers_, model.memberships_.toarray()
    to_canopies = np.linalg.norm(v[:, None] - canopies, axis=2)
    of_prototype = (to_canopies <= model.t1_) | (to_canopies == to_canopies.min(axis=1, keepdims=True))
    allowed = (members[:, None, :] & of_prototype[None]).any(axis=2)
    allowed[~allowed.any(axis=1)] = True
    return allowed


def drawn(model, n_clusters, seed) -> np.ndarray:
    weights = np.bincount(model.labels_, minlength=model.n_canopies_)
    return model.cluster_centers_[means._drawn(model.cluster_centers_, weights, n_clusters, seed)]


def fuzzy(X, model, n_clusters, seed, m, iterations):
    """The definition of fuzzy c-means, likewise."""
    v = drawn(model, n_clusters, seed)
    for n_iter in range(iterations):
        s = np.where(allowed_pairs(model, v), ((X[:, None] - v) ** 2).sum(axis=2), np.inf)
        on = s == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            u = s ** (-1 / (m - 1))
            u = np.where(on.any(axis=1)[:, None], on / on.sum(axis=1)[:, None], u / u.sum(axis=1, keepdims=True))
        w = u**m
        if n_iter < iterations - 1:
            v = w.T @ X / w.sum(axis=0)[:, None]
    return u, v, (w * np.where(w > 0, s, 0)).sum()


def lloyd(X, model, n_clusters, seed, max_iter=100):
    """The definition of k-means, with plain loops: first prototypes as drawn, rows compared with allowed ones."""
    v = drawn(model, n_clusters, seed)
    labels = None
    for _ in range(max_iter):
        allowed = allowed_pairs(model, v)
        s = np.where(allowed, ((X[:, None] - v) ** 2).sum(axis=2), np.inf)
        before, labels = labels, s.argmin(axis=1)
        if before is not None and (before == labels).all():
            break
        v = np.array([X[labels == k].mean(axis=0) if (labels == k).any() else v[k] for k in range(n_clusters)])
    return labels, v, s.min(axis=1).sum()


@pytest.mark.parametrize(("t1", "t2"), [(100.0, 0.5), (3.0, 2.1), (1.0, 0.5), (0.3, 0.2)])
def test_the_definition(t1, t2, monkeypatch):
    monkeypatch.setattr(means, "PAIRS", 500)
    X = make_gaussian_rings()[0]
    model = on_cpu(t1=t1, t2=t2, random_state=3).fit(X)
    found = on_cpu(t1=t1, t2=t2, random_state=3).k_means(X, 9)
    labels, centers, inertia = lloyd(X, model, 9, 3)
    assert (found.labels == labels).all() and found.n_canopies == model.n_canopies_
    np.testing.assert_allclose(found.cluster_centers, centers, rtol=1e-9, atol=1e-9)
    assert found.inertia == pytest.approx(inertia, rel=1e-9)
    assert found.labels.dtype == np.int32 and found.n_compared <= found.n_iter * len(X) * 9


@pytest.mark.quick("3.0-2.1-*")
@pytest.mark.parametrize("m", [1.3, 2.0, 3.0])
@pytest.mark.parametrize(("t1", "t2"), [(100.0, 0.5), (3.0, 2.1), (0.3, 0.2)])
def test_the_definition_of_fuzzy_c_means(t1, t2, m, monkeypatch):
    monkeypatch.setattr(means, "PAIRS", 500)
    X = make_gaussian_rings()[0]
    model = on_cpu(t1=t1, t2=t2, random_state=3).fit(X)
    for iterations in (1, 4):
        found = on_cpu(t1=t1, t2=t2, random_state=3).fuzzy_c_means(X, 9, m=m, max_iter=iterations, tol=0.0)
        u, centers, objective = fuzzy(X, model, 9, 3, m, iterations)
        np.testing.assert_allclose(found.cluster_centers, centers, atol=1e-8)
        np.testing.assert_allclose(found.memberships.toarray(), u, atol=1e-8)
        assert found.inertia == pytest.approx(objective, rel=1e-8) and found.n_iter == iterations
        assert (found.labels == u.argmax(axis=1)).mean() > 0.99  # rows on several prototypes have several
    settled = on_cpu(t1=t1, t2=t2, random_state=3).fuzzy_c_means(X, 9, m=m, max_iter=1000, tol=0.01)
    assert settled.n_iter < 1000


def test_fewer_comparisons_find_the_clusters():
    X, truth, _ = make_gaussian_rings()
    found = on_cpu(t1=3.0, t2=1.5, random_state=0).k_means(X, 15)
    assert found.n_compared < 0.8 * found.n_iter * len(X) * 15
    assert compare_labels(truth, found.labels)["ari"] > 0.7


def test_one_iteration_and_as_many_clusters_as_canopies():
    X = np.array([[0.0], [1], [10], [11], [20]])
    model = on_cpu(t1=4.0, t2=3.0)
    assert on_cpu(t1=4.0, t2=3.0).k_means(X, 3, max_iter=1).n_iter == 1
    found = model.k_means(X, 3)
    order = np.argsort(found.cluster_centers[:, 0])
    assert found.cluster_centers[order, 0].tolist() == [0.5, 10.5, 20.0] and found.inertia == 1.0
    assert np.argsort(order)[found.labels].tolist() == [0, 0, 1, 1, 2]
    single = on_cpu(t1=50.0, t2=40.0).k_means(X, 1)
    assert single.cluster_centers.tolist() == [[8.4]]


@pytest.mark.slow
def test_same_bits_on_several_ranks_and_streamed(ranks, monkeypatch, tmp_path):
    X = load_points("pendigits")[0].astype("float64") * 0.1
    np.save(tmp_path / "rows.npy", X)
    options = {"t1": 9.0, "t2": 6.0, "order": "random", "random_state": 1, "device": "cpu"}
    alone = Canopy(client=None, **options).k_means(X, 20)
    runs = [Canopy(client=None, memory_limit="3 MB", **options).k_means(tmp_path / "rows.npy", 20)]
    for size in (2, 3):
        monkeypatch.setattr(estimator, "connect", lambda size=size, **_: ranks(size))
        runs.append(Canopy(**options).k_means(X, 20))
    for other in runs:
        same_bits(alone, other)


def same_bits(one, other):
    for name, value in one._asdict().items():
        there = getattr(other, name)
        if value is not None and name == "memberships":
            value, there = value.toarray(), there.toarray()
        assert np.array_equal(value, there), name


@pytest.mark.slow
def test_same_bits_of_fuzzy_c_means(ranks, monkeypatch, tmp_path):
    X = load_points("pendigits")[0].astype("float64") * 0.1
    np.save(tmp_path / "rows.npy", X)
    options = {"t1": 9.0, "t2": 6.0, "order": "random", "random_state": 1, "device": "cpu"}
    alone = Canopy(client=None, **options).fuzzy_c_means(X, 20, m=1.5, max_iter=8)
    runs = [Canopy(client=None, memory_limit="3 MB", **options)]
    same_bits(alone, runs[0].fuzzy_c_means(tmp_path / "rows.npy", 20, m=1.5, max_iter=8))
    for size in (2, 3):
        monkeypatch.setattr(estimator, "connect", lambda size=size, **_: ranks(size))
        same_bits(alone, Canopy(**options).fuzzy_c_means(X, 20, m=1.5, max_iter=8))


def test_refused():
    X = np.random.default_rng(2).random((300, 2))
    with pytest.raises(InputError, match="metric='manhattan' should be 'euclidean'"):
        on_cpu(t1=0.5, t2=0.3, metric="manhattan").k_means(X, 2)
    with pytest.raises(InputError, match="n_clusters=0 should be"):
        on_cpu(t1=0.5, t2=0.3).k_means(X, 0)
    with pytest.raises(InputError, match="m=1 should be"):
        on_cpu(t1=0.5, t2=0.3).fuzzy_c_means(X, 2, m=1)
    with pytest.raises(InputError, match=r"n_clusters=200 should be <= \d+, the number of canopies"):
        on_cpu(t1=0.5, t2=0.3).k_means(X, 200)


@pytest.mark.slow
def test_rows_of_a_dask_array_stay_with_their_workers(client):
    import dask.array as da

    X = make_gaussian_rings()[0]
    options = {"t1": 3.0, "t2": 2.1, "device": "cpu"}
    expected = Canopy(client=None, **options).fuzzy_c_means(X, 9, max_iter=3)
    found = Canopy(client=client, **options).fuzzy_c_means(da.from_array(X, chunks=(200, 2)), 9, max_iter=3)
    assert isinstance(found.labels, da.Array) and isinstance(found.memberships, da.Array)
    labels, memberships = (client.compute(each).result() for each in (found.labels, found.memberships))
    assert (labels == expected.labels).all() and (memberships != expected.memberships).nnz == 0
