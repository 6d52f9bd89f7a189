"""Clusters with covariances of their own: long ones, whatever their direction, and what they do not go with."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from mgclust import FuzzyCMeans, load_result, plots
from mgclust.algorithms import base, presentation_of
from mgclust.base.errors import ClusteringWarning, InputError, InsufficientMemoryError
from oracles import gustafson_kessel as reference

pytestmark = [
    pytest.mark.xdist_group("workers"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def fit(X, device="cpu", sample_weight=None, **parameters):
    options = {"n_clusters": 3, "covariance_type": "full", "random_state": 0} | parameters
    return FuzzyCMeans(device=device, client=None, **options).fit(X, sample_weight=sample_weight)


def stripes(rng, n=200, clusters=3):
    """Long clusters side by side: three times as long as they are far from each other."""
    X = np.concatenate([rng.normal(size=(n, 2)) * [6, 0.5] + [0, 4 * k] for k in range(clusters)])
    return X, np.repeat(np.arange(clusters), n)


def turned(rng, n, d, clusters):
    """Clusters of other shapes each."""
    each = [rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 4 * rng.normal(size=d) for _ in range(clusters)]
    return np.concatenate(each), np.repeat(np.arange(clusters), n)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"m": 1.4},
        {"noise_distance": 3.0},
        {"shrinkage": 0.1},
        {"m": 1.6, "noise_distance": 4.0, "shrinkage": 0.05},
    ],
    ids=str,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_as_the_equations_have_it(options, weighted, device, rng):
    X, _ = turned(rng, 50, 3, 3)
    start, weights = X[[10, 70, 120]], rng.random(150) + 0.1 if weighted else None
    options = {"m": 2.0} | options
    expected = reference.iterate(X, start, iterations=6, weights=weights, **options)
    model = fit(X, device, weights, init=start, max_iter=6, tol=0.0, **options)
    np.testing.assert_allclose(model.cluster_centers_, expected.centers, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(model.covariances_, expected.covariances, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(model.memberships_, expected.memberships[:, :3], atol=1e-8)
    assert model.objective_ == pytest.approx(expected.objective, rel=1e-9)
    assert model.computed_in_ == "float64"
    w = np.ones(150) if weights is None else weights
    coefficient = (w[:, None] * expected.memberships**2).sum() / w.sum()
    assert model.partition_coefficient_ == pytest.approx(coefficient, rel=1e-9)
    of_all = np.linalg.det(np.cov(X.T, bias=True, aweights=w))
    volumes = np.sqrt(np.linalg.det(expected.covariances) / of_all)
    assert model.fuzzy_hypervolume_ == pytest.approx(volumes.sum(), rel=1e-7)
    first = expected.memberships.argmax(axis=1)
    np.testing.assert_array_equal(model.labels_, np.where(first == 3, -1, first))
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert -model.score(X, sample_weight=weights) == pytest.approx(model.objective_, rel=1e-12)
    again = model.predict_memberships(np.repeat(X[:5], 30, axis=0))
    np.testing.assert_array_equal(again, np.repeat(model.memberships_[:5], 30, axis=0))


@pytest.mark.slow
def test_long_clusters_are_found(device, rng):
    """Spheres cut them across; the number is found, too."""
    X, y = stripes(rng)
    assert adjusted_rand_score(y, fit(X, device).labels_) > 0.98
    assert adjusted_rand_score(y, fit(X, device, covariance_type="spherical").labels_) < 0.2
    model = fit(X, device, n_clusters_range=(2, 5), n_init=3)
    assert model.n_clusters_ == 3 and model.scan_["fuzzy_hypervolume"].argmin() == 1
    assert model.fuzzy_hypervolume_ == model.scan_["fuzzy_hypervolume"][1]


def test_clusters_may_share_a_center(device, rng):
    """Two lines that cross: no warning of centres that coincide, since the covariances do not."""
    X = np.concatenate([rng.normal(size=(300, 2)) * [6, 0.4], rng.normal(size=(300, 2)) * [0.4, 6]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClusteringWarning)
        model = fit(X, device, n_clusters=2)
    assert np.abs(model.cluster_centers_).max() < 0.5
    assert adjusted_rand_score(np.repeat([0, 1], 300), model.labels_) > 0.8


def test_clusters_that_coincide_are_said(device, rng):
    with pytest.warns(ClusteringWarning, match=r"centres coincide.*fewer than n_clusters=4"):
        fit(rng.normal(size=(300, 6)), device, n_clusters=4, m=2.0)


def test_the_objective_falls(device, rng):
    X, _ = turned(rng, 80, 4, 3)
    model = fit(X, device, n_init=2, m=2.0)
    assert (np.diff(model.objective_history_) <= 1e-10 * model.objective_history_[0]).all()
    assert model.stop_reason_ == "tol" and model.objective_ == min(model.result_.diagnostics["objectives"])


@pytest.mark.parametrize("noise_distance", [None, 5.0])
@pytest.mark.parametrize("stop", ["objective", "memberships"])
def test_other_ends(stop, noise_distance, device, rng):
    """The change that the end names, from prototypes that another run gives."""
    X, _ = turned(rng, 60, 3, 2)
    options = {"n_clusters": 2, "m": 1.5, "init": X[[0, 80]], "noise_distance": noise_distance}
    model = fit(X, device, stop=stop, tol=1e-5, **options)
    states = [fit(X, device, tol=0.0, max_iter=model.n_iter_ - late, **options) for late in (0, 1)]
    now, before = ((each.objective_ if stop == "objective" else each.memberships_) for each in states)
    change = abs(now - before) / before if stop == "objective" else np.abs(now - before).max()
    assert model.stop_reason_ == "tol" and change <= 1e-5
    assert model.result_.diagnostics["last_change"] == pytest.approx(change, rel=1e-6)


def test_one_feature_has_one_shape(device, rng):
    X = np.concatenate([rng.normal(size=(80, 1)), 3 * rng.normal(size=(80, 1)) + 12])
    start = np.array([[0.0], [10.0]])
    full, round_ = (fit(X, device, n_clusters=2, init=start, covariance_type=t) for t in ("full", "spherical"))
    np.testing.assert_allclose(full.cluster_centers_, round_.cluster_centers_, atol=1e-3)
    np.testing.assert_allclose(full.memberships_, round_.memberships_, atol=1e-3)


def test_one_cluster_has_the_covariance_of_all_rows(device, rng):
    X, _ = turned(rng, 300, 3, 1)
    weights = rng.random(300)
    model = fit(X, device, weights, n_clusters=1)
    np.testing.assert_allclose(model.covariances_[0], np.cov(X.T, bias=True, aweights=weights), rtol=1e-9)
    assert model.fuzzy_hypervolume_ == pytest.approx(1.0, rel=1e-9)


def test_rows_without_weight_are_absent(device, rng):
    X, _ = stripes(rng, 100)
    options = {"init": X[[5, 150, 250]], "tol": 1e-8}
    expected = fit(X, device, **options)
    every, count = np.concatenate([X, X + 1e4]), np.repeat([1.0, 0.0], len(X))
    found = fit(every, device, count, **options)
    np.testing.assert_allclose(found.covariances_, expected.covariances_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.memberships_[: len(X)], expected.memberships_, atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), log_scale=st.floats(-20, 20), shrinkage=st.sampled_from([0.0, 0.2]))
def test_similar_rows_have_the_same_memberships(seed, log_scale, shrinkage):
    """Turned, moved and in other units, after any number of iterations."""
    rng = np.random.default_rng(seed)
    X, _ = turned(rng, 40, 3, 2)
    matrix, moved = np.linalg.qr(rng.normal(size=(3, 3)))[0] * 2.0**log_scale, 2.0**log_scale * rng.normal(size=3)
    start = X[[0, 60]]
    options = {"n_clusters": 2, "m": 2.0, "max_iter": 8, "tol": 0.0, "shrinkage": shrinkage}
    one = fit(X, init=start, **options)
    other = fit(X @ matrix + moved, init=start @ matrix + moved, **options)
    np.testing.assert_allclose(other.memberships_, one.memberships_, atol=1e-6)
    assert other.objective_ == pytest.approx(4.0**log_scale * one.objective_, rel=1e-6)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), logs=st.tuples(*[st.floats(-3, 3)] * 3), shrinkage=st.sampled_from([0.0, 0.2]))
def test_affine_maps_do_not_matter(seed, logs, shrinkage):
    """Where clusters are clear, any units of the features, turned and moved, lead to the same memberships."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(size=(40, 3)), rng.normal(size=(40, 3)) + 40])
    matrix = np.linalg.qr(rng.normal(size=(3, 3)))[0] * np.exp2(logs)[:, None]
    start, moved = X[[0, 60]], 100 * rng.normal(size=3)
    options = {"n_clusters": 2, "m": 1.5, "tol": 1e-9, "shrinkage": shrinkage}
    one = fit(X, init=start, **options)
    other = fit(X @ matrix + moved, init=start @ matrix + moved, **options)
    np.testing.assert_allclose(other.memberships_, one.memberships_, atol=1e-6)
    np.testing.assert_allclose(other.cluster_centers_, one.cluster_centers_ @ matrix + moved, rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(other.covariances_, matrix.T @ one.covariances_ @ matrix, rtol=1e-5, atol=1e-5)
    assert other.fuzzy_hypervolume_ == pytest.approx(one.fuzzy_hypervolume_, rel=1e-6)
    volume = np.exp2(sum(logs)) ** (2 / 3)
    assert other.objective_ == pytest.approx(volume * one.objective_, rel=1e-6)


def flat():
    """Two clusters in lines."""
    line = np.linspace(-5, 5, 100)
    return np.concatenate([np.stack([line, 0 * line], axis=1), np.stack([0 * line + 9, line], axis=1)])


def test_singular_covariances_are_bounded_and_said(device):
    X = flat()
    with pytest.warns(ClusteringWarning, match=r"covariances of 2 of 2 clusters are nearly singular.*shrinkage=0"):
        model = fit(X, device, n_clusters=2)
    for name in ("cluster_centers_", "covariances_", "memberships_", "objective_"):
        assert np.isfinite(getattr(model, name)).all(), name
    assert adjusted_rand_score(np.repeat([0, 1], 100), model.labels_) > 0.9
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClusteringWarning)
        model = fit(X, device, n_clusters=2, shrinkage=0.01)
    assert adjusted_rand_score(np.repeat([0, 1], 100), model.labels_) > 0.9


def test_equal_rows(device):
    places = np.repeat(np.array([[0.0, 0], [9, 0], [0, 9]]), 20, axis=0)
    with pytest.warns(ClusteringWarning, match="nearly singular"):
        model = fit(places, device)
    assert adjusted_rand_score(np.repeat([0, 1, 2], 20), model.labels_) == 1.0
    assert np.isfinite(model.covariances_).all()
    with pytest.warns(ClusteringWarning, match="distinct rows, 3"):
        fit(places, device, n_clusters=5)


def test_shrinkage_takes_the_place_of_rows(device, rng):
    """Nine rows of eight features for each of three clusters: a covariance of them alone says nothing."""
    X = np.concatenate([rng.normal(size=(9, 8)) + 12 * k for k in range(3)])
    with pytest.raises(InputError, match=r"n_samples=27 should be >= .* = 45 .*fewer clusters.*give shrinkage=0.1"):
        fit(X, device, n_clusters=5)
    assert adjusted_rand_score(np.repeat([0, 1, 2], 9), fit(X, device, shrinkage=0.01).labels_) == 1.0
    model = fit(X, device, shrinkage=1.0)
    np.testing.assert_allclose(model.covariances_, [np.cov(X.T, bias=True)] * 3, rtol=1e-7)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"metric": "cosine"}, "metric='cosine' cannot apply; give metric='euclidean'"),
        ({"covariance_type": "diagonal"}, "covariance_type='diagonal'"),
        ({"shrinkage": 1.5}, "shrinkage=1.5"),
        ({"covariance_type": "spherical", "shrinkage": 0.1}, "shrinkage=0.1 applies to covariances"),
        ({"covariance_type": "spherical", "criterion": "fuzzy_hypervolume"}, "'fuzzy_hypervolume' needs covariances"),
        ({"criterion": "fuzzy_silhouette"}, "compares Euclidean distances of rows.*give criterion="),
        ({"criterion": "xie_beni", "n_clusters_range": (2, 4)}, "compares Euclidean distances of centres"),
        (
            {"criterion": "fuzzy_hypervolume", "n_clusters_range": (2, 4), "noise_distance": 3.0},
            "criterion='fuzzy_hypervolume' chooses too few.*give criterion='modified_partition_coefficient'.$",
        ),
        ({"n_clusters_range": (2, 300)}, r"n_clusters \* \(n_features \+ 1\) = 900"),
    ],
)
def test_refused(parameters, says, rng):
    X, _ = stripes(rng, 200)
    with pytest.raises(InputError, match=says):
        fit(X, **parameters)


def test_memory_is_known_before(rng):
    X, options = rng.normal(size=(3000, 60)), {"n_clusters": 30, "memory_limit": "12 MiB"}
    with pytest.raises(InsufficientMemoryError, match=r"12\.0 MiB"):
        fit(X, **options)
    fit(X, covariance_type="spherical", max_iter=1, **options)


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (lambda X: np.full(len(X), 3.0), "feature 2 is the same in all rows; leave such"),
        (lambda X: X[:, 0] - 2 * X[:, 1], "n_features=3 features are linear functions of 2 of them; .*2 principal"),
    ],
)
def test_features_that_say_nothing_new_are_refused(last, says, device, rng):
    X, _ = stripes(rng, 100)
    with pytest.raises(InputError, match=says):
        fit(np.column_stack([X, last(X)]), device)


@pytest.mark.slow
def test_the_fuzzifier_follows_the_numbers_of_a_covariance(device, rng):
    """With m = 2, four features are too many."""
    X = np.concatenate([rng.normal(size=(50, 4)) + 4 * k for k in range(5)])
    y = np.repeat(np.arange(5), 50)
    model = fit(X, device, n_clusters=5, n_init=3)
    assert 1.2 < model.m_ < 1.3 and adjusted_rand_score(y, model.labels_) > 0.95
    assert adjusted_rand_score(y, fit(X, device, n_clusters=5, n_init=3, m=2.0).labels_) < 0.5


@pytest.mark.slow
def test_a_range_with_noise(device, rng):
    X, y = stripes(rng, 100)
    X = np.concatenate([X, rng.uniform(-60, 60, (40, 2))])
    model = fit(X, device, n_clusters_range=(2, 4), noise_distance=4.0, init="random", n_init=3)
    assert model.n_clusters_ == 3 and np.isfinite(model.scan_["fuzzy_hypervolume"]).all()
    assert adjusted_rand_score(y, model.labels_[:300]) > 0.8
    assert (model.labels_[300:] < 0).mean() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("size", "limit"), [(2, None), (3, None), (4, None), (3, "80 MiB")])
def test_same_bits_on_any_number_of_ranks(size, limit, ranks, monkeypatch):
    rng = np.random.default_rng(2)
    X, weights = turned(rng, 1000 if limit is None else 60_000, 6, 5)[0], None
    if limit is None:
        weights = rng.random(len(X))

    def on(size, limit=None):
        monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        options = {"n_clusters": 5, "n_init": 2, "noise_distance": 30.0, "max_iter": 4, "memory_limit": limit}
        with pytest.warns(UserWarning, match="max_iter"):
            return fit(X, sample_weight=weights, **options)

    one, several = on(1), on(size, limit)
    for name in ("cluster_centers_", "covariances_", "labels_", "memberships_", "objective_history_", "n_iter_"):
        np.testing.assert_array_equal(getattr(several, name), getattr(one, name), err_msg=name)
    assert several.fuzzy_hypervolume_ == one.fuzzy_hypervolume_
    assert several.partition_entropy_ == one.partition_entropy_
    np.testing.assert_array_equal(several.predict(X[:500]), one.labels_[:500])


def test_results_and_later_fits(device, rng, tmp_path):
    X, _ = stripes(rng, 60)
    model = fit(X, device, n_clusters_range=(2, 4))
    result = load_result(model.result_.save(tmp_path / "out"))
    np.testing.assert_array_equal(result.arrays["covariances"], model.covariances_)
    assert result.scores["fuzzy_hypervolume"] == model.fuzzy_hypervolume_
    shown = presentation_of("fuzzy-c-means")
    assert shown.tables(result)[-1].heading == "3 numbers of clusters, chosen by modified_partition_coefficient"
    assert "fuzzy hypervolume" in shown.tables(result)[-1].columns
    assert plots.validity(result).get_ylabel() == "fuzzy hypervolume: lower is better"
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.predict_memberships(X), model.predict_memberships(X))
    assert clone(model).get_params()["covariance_type"] == "full"
    model.set_params(covariance_type="spherical", n_clusters_range=None).fit(X)
    assert not hasattr(model, "covariances_") and not hasattr(model, "fuzzy_hypervolume_")
    assert plots.validity(fit(X, covariance_type="spherical", n_clusters_range=(2, 4)).result_).get_ylabel() == (
        "Xie-Beni: lower is better"
    )


def test_clusters_of_fewer_rows_than_features_are_said(rng):
    X = rng.normal(size=(40, 12)) + 8 * np.repeat(np.eye(12)[:4], 10, axis=0)
    says = r"4 of 4 clusters have at most n_features=12 rows, too few for a covariance:"
    with pytest.warns(ClusteringWarning, match=says):
        fit(X, n_clusters=4, shrinkage=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClusteringWarning)
        fit(X, n_clusters=4, covariance_type="spherical")
        fit(X[:, :3], n_clusters=4, shrinkage=0.1)
