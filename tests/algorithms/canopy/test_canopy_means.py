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


def lloyd(X, model, n_clusters, seed, max_iter=100):
    """The definition, with plain loops: first prototypes as drawn, rows compared with those that share a canopy."""
    canopies, members = X[model.cluster_centers_indices_], model.memberships_.toarray()
    weights = np.bincount(model.labels_, minlength=len(canopies))
    v = canopies[means._drawn(canopies, weights, n_clusters, seed)]
    labels = None
    for _ in range(max_iter):
        to_canopies = np.linalg.norm(v[:, None] - canopies, axis=2)
        of_prototype = (to_canopies <= model.t1_) | (to_canopies == to_canopies.min(axis=1, keepdims=True))
        allowed = (members[:, None, :] & of_prototype[None]).any(axis=2)
        allowed[~allowed.any(axis=1)] = True
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
        for one, same in zip(alone, other, strict=True):
            assert np.array_equal(one, same)


def test_refused():
    X = np.random.default_rng(2).random((300, 2))
    with pytest.raises(InputError, match="metric='manhattan' should be 'euclidean'"):
        on_cpu(t1=0.5, t2=0.3, metric="manhattan").k_means(X, 2)
    with pytest.raises(InputError, match="n_clusters=0 should be"):
        on_cpu(t1=0.5, t2=0.3).k_means(X, 0)
    with pytest.raises(InputError, match=r"n_clusters=200 should be <= \d+, the number of canopies"):
        on_cpu(t1=0.5, t2=0.3).k_means(X, 200)
