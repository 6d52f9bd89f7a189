"""`FuzzyCMeans` as an object: what a fit leaves, what a failed one does not touch, and rows that should not matter."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mgclust import Canopy, FuzzyCMeans, plots
from mgclust.base.errors import InputError
from support.points import load_points


@pytest.fixture
def blobs(rng):
    return np.concatenate([rng.normal(size=(200, 3)) + 7 * k for k in range(3)])


def fit(X, device, sample_weight=None, **parameters):
    return FuzzyCMeans(device=device, client=None, **{"m": 2.0, "random_state": 0} | parameters).fit(
        X, sample_weight=sample_weight
    )


@pytest.mark.quick("cpu-float32-True-10000000.0", "cpu-float64-False-10000.0")
@pytest.mark.parametrize("far", [1e4, 1e7])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_without_weight_are_absent(far, first, dtype, device, rng):
    """In float32 too, whose digits are spent where the rows that count are."""
    X = (rng.normal(size=(300_000, 2)) + [[3, 0]] * rng.integers(0, 3, (300_000, 1))).astype(dtype)
    away = np.full_like(X, far)
    every, count = ((away, X), (0.0, 1.0)) if first else ((X, away), (1.0, 0.0))
    options = {"n_clusters": 3, "init": X[:3].astype("float64"), "tol": 1e-6, "max_iter": 50}
    expected = fit(X, device, **options)
    found = fit(np.concatenate(every), device, np.repeat(count, len(X)), **options)
    assert found.computed_in_ == "float32"
    np.testing.assert_allclose(found.cluster_centers_, expected.cluster_centers_, atol=3e-5)
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    assert abs(found.n_iter_ - expected.n_iter_) <= 2


@pytest.mark.parametrize("init", ["k-means++", "random", "canopy"])
def test_no_start_from_rows_without_weight(init, device, rng):
    X, _ = load_points("overlap2")
    X = np.asarray(X, "float64")
    every = np.concatenate([X, X.mean(axis=0) + 20 * X.std(axis=0) * rng.normal(size=(300, 2))])
    weights = np.repeat([1.0, 0.0], [len(X), 300])
    model = fit(every, device, weights, n_clusters=15, init=init, max_iter=2)
    low, high = X.min(axis=0), X.max(axis=0)
    assert ((model.cluster_centers_ >= low) & (model.cluster_centers_ <= high)).all()
    few = np.zeros(len(every))
    few[:3] = 1.0
    assert np.isfinite(fit(every, device, few, n_clusters=3, init=init).cluster_centers_).all()


def test_duplicates_among_rows_without_weight(device, rng):
    """k-means||: three rows count, all equal."""
    X = rng.normal(size=(70_000, 2))
    X[[5, 500, 50_000]] = 9.0
    weights = np.zeros(len(X))
    weights[[5, 500, 50_000]] = 2.0
    with pytest.warns(UserWarning, match="distinct rows with a positive sample_weight, 1:"):
        model = fit(X, device, weights, n_clusters=3)
    np.testing.assert_allclose(model.cluster_centers_, 9.0, rtol=1e-6)


@pytest.mark.parametrize("m", [4.0, 10.0, 100.0])
def test_large_m_does_not_stay_on_the_rows_it_starts_from(m, device):
    X = np.asarray(load_points("overlap1")[0], "float64")
    model = fit(X, device, n_clusters=15, m=m)
    away = np.sqrt(((model.cluster_centers_[:, None] - X[None]) ** 2).sum(axis=2).min(axis=1))
    assert model.n_iter_ > 1
    if m == 10.0:
        U = np.random.default_rng(0).dirichlet(np.ones(15), size=len(X))
        assert model.objective_ <= 1.01 * fit(X, device, n_clusters=15, m=m, init=U).objective_
    assert (away > 1e-9 * X.std()).any()


def test_a_failed_fit_leaves_the_last_one(blobs, device):
    model = fit(blobs, device, n_clusters=3)
    expected, centers = model.memberships_.copy(), model.cluster_centers_.copy()
    model.set_params(n_clusters=10**6)
    with pytest.raises(InputError):
        model.fit(blobs[:100, :2])
    np.testing.assert_array_equal(model.memberships_, expected)
    model.set_params(n_clusters=3, m=5.0, metric="cosine")
    np.testing.assert_array_equal(model.predict_memberships(blobs), expected)
    np.testing.assert_array_equal(model.cluster_centers_, centers)


def test_names_of_features_are_those_of_the_last_fit(blobs, device):
    frame = pd.DataFrame(blobs, columns=["a", "b", "c"])
    for model in (FuzzyCMeans(3, device=device, client=None), Canopy(6.0, 4.0, device=device, client=None)):
        model.fit(frame)
        assert model.feature_names_in_.tolist() == ["a", "b", "c"]
        model.fit(blobs[:, :2])
        assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("value", [1e39, 1e154, 1e200])
def test_rows_too_far_to_have_a_distance_are_refused(value, blobs, device):
    model = fit(blobs, device, n_clusters=3)
    far = np.array([[value, 0.0, 0.0], [1.0, 2, 3]])
    if value < 1e150:
        assert (model.predict(far) >= 0).all()
        return
    for ask in (model.predict, model.predict_memberships):
        with pytest.raises(InputError, match=r"rows lie up to 1e\+\d+ from the fitted rows.*leave"):
            ask(far)
    with pytest.raises(InputError, match="init holds centres up to"):
        fit(blobs, device, n_clusters=3, init=np.full((3, 3), 1e300))


def test_a_start_from_a_file(blobs, device, tmp_path):
    np.save(tmp_path / "start.npy", blobs[:3])
    for path in (tmp_path / "start.npy", str(tmp_path / "start.npy")):
        model = fit(blobs, device, n_clusters=3, init=path)
        np.testing.assert_array_equal(
            model.cluster_centers_, fit(blobs, device, n_clusters=3, init=blobs[:3]).cluster_centers_
        )
    with pytest.raises(InputError, match="cannot be read"):
        fit(blobs, device, n_clusters=3, init=tmp_path / "missing.npy")


def test_what_is_no_path_and_what_is_not_ours(blobs, device, tmp_path):
    model = fit(blobs, device, n_clusters=3)
    with pytest.raises(InputError, match="out=5 should be the path"):
        model.predict_memberships(blobs, out=5)
    (tmp_path / ".mine.zarr.partial").mkdir()
    model.predict_memberships(blobs, out=tmp_path / "mine.zarr")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.zarr.partial", "mine.zarr"]
    with pytest.raises(InputError, match="has no objective"):
        plots.objective(Canopy(6.0, 4.0, device=device, client=None).fit(blobs).result_)
    with pytest.raises(InputError, match="at least one"):
        plots.objective([])


def test_canopy_warns(blobs, device):
    with pytest.warns(UserWarning, match="single canopy"):
        Canopy(1e3, 9e2, device=device, client=None).fit(blobs)
