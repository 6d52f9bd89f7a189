"""`FuzzyCMeans` beside the float64 oracle and scikit-fuzzy from the same memberships: 1e-5 in all results."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from mgclust import FuzzyCMeans
from mgclust.algorithms.fuzzy_c_means import run_spec
from oracles import fuzzy_c_means as reference
from support.fuzzy_cases import CASES, ITERATIONS, start_of
from support.points import load_points

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*centres coincide"),
]

BOUND = 1e-5
ALL = [pytest.param(name, marks=pytest.mark.slow) if name == "c = 1000" else name for name in CASES]


def fit(X, device="cpu", **parameters):
    return FuzzyCMeans(device=device, client=None, **{"m": 2.0} | parameters).fit(X)


@pytest.fixture
def small_data_too(monkeypatch):
    """float32 where it is asked for: `fit` computes small data in float64 whatever is asked."""
    monkeypatch.setattr(run_spec, "FEW_NUMBERS", 0)


@cache
def oracle(name: str) -> dict[int, reference.State]:
    X, U, m, _ = start_of(name)
    return reference.states(X, m, at=(0, *ITERATIONS), U=U)


@pytest.mark.quick("cpu-clusters-*", "cpu-m = 1.001-*")
@pytest.mark.parametrize("iterations", ITERATIONS)
@pytest.mark.parametrize("name", ALL)
def test_equals_the_oracle(name, iterations, device):
    X, U, m, _ = start_of(name)
    state = oracle(name)[iterations]
    model = fit(X, device, n_clusters=U.shape[1], m=m, init=U, tol=0.0, max_iter=iterations)
    found = reference.differences(model, state, X, m)
    assert max(found.values()) <= BOUND, found
    assert model.cluster_centers_.dtype == np.float64
    assert model.objective_history_[0] == pytest.approx(oracle(name)[0].objective, rel=BOUND, abs=1e-9)
    apart = np.partition(state.memberships, -2, axis=1)[:, -2:] if U.shape[1] > 1 else np.tile([0.0, 1], (len(X), 1))
    sure = apart[:, 1] - apart[:, 0] > 4 * BOUND
    np.testing.assert_array_equal(model.labels_[sure], state.memberships.argmax(axis=1)[sure])


@pytest.mark.quick("cpu-clusters-10", "cpu-m = 10-1", "cpu-c = 1-*")
@pytest.mark.parametrize(
    ("name", "iterations"),
    # scikit-fuzzy takes ten seconds for the last: the oracle is compared there.
    [(name, n) for name in CASES for n in ITERATIONS if (name, n) != ("c = 1000", 100)],
)
def test_equals_scikit_fuzzy(name, iterations, device):
    """Its iterations count the centres of the given memberships too, so it has one more; its J has the older U."""
    skfuzzy = pytest.importorskip("skfuzzy")
    X, U, m, y = start_of(name)
    wide = np.asarray(X, "float64")
    centers, u, _, d, *_ = skfuzzy.cmeans(wide.T, U.shape[1], m, 0.0, iterations + 1, init=U.T)
    theirs = reference.State(centers, u.T, float((u**m * d**2).sum()))
    model = fit(X, device, n_clusters=U.shape[1], m=m, init=U, tol=0.0, max_iter=iterations)
    found = reference.differences(model, theirs, X, m)
    assert max(found.values()) <= BOUND, found
    if y is not None:
        assert adjusted_rand_score(y, model.labels_) >= adjusted_rand_score(y, u.argmax(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clusters", "overlap3", "pendigits", "shifted by 1000 sigma"])
def test_converged_labels_are_as_good_as_those_of_scikit_fuzzy(name, device):
    skfuzzy = pytest.importorskip("skfuzzy")
    X, U, m, y = start_of(name)
    wide = np.asarray(X, "float64")
    theirs = skfuzzy.cmeans(wide.T, U.shape[1], m, 1e-9, 1000, init=U.T)[1].argmax(axis=0)
    model = fit(X, device, n_clusters=U.shape[1], m=m, init=U, tol=1e-7, max_iter=1000)
    assert model.stop_reason_ == "tol"
    assert adjusted_rand_score(y, model.labels_) >= adjusted_rand_score(y, theirs)


def check_one_step(X, start, m, dtype, device) -> None:
    """Centres, J and the indices after an iteration; memberships beside those that belong to the very same centres.

    A membership takes 2 / (m - 1) times the relative error of a distance, and float32 rounds rows and centres.
    """
    c = len(start)
    state = reference.states(X, m, at=(1,), centers=start)[1]
    model = fit(X, device, n_clusters=c, m=m, init=start, tol=0.0, max_iter=1, dtype=dtype)
    found = reference.differences(model, state, X, m)
    bound, eps = (BOUND, 2.0**-24) if model.memberships_.dtype == np.float32 else (1e-9, 2.0**-53)
    assert max(found["centers"], found["objective"]) <= bound, found
    # Xie and Beni's index magnifies what two close centres have of rounding: it is asked of the model's own centres.
    known = reference.indices(state) | {
        "xie_beni_": reference.indices(reference.State(model.cluster_centers_, state.memberships, model.objective_))[
            "xie_beni_"
        ]
    }
    for name, value in known.items():
        assert getattr(model, name) == pytest.approx(value, rel=20 * bound, nan_ok=True), name
    own = reference.memberships(X, model.cluster_centers_, m)
    nearest = np.sqrt(reference.distances(X, model.cluster_centers_, "sqeuclidean").min(axis=1))
    reach = np.abs(X - X.mean(axis=0)).max() * X.shape[1] ** 0.5
    rounding = (4 * eps * reach / nearest + (X.shape[1] + c) * eps) * 2 / (m - 1)
    assert (np.abs(model.memberships_ - own).max(axis=1) <= rounding).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", [1.05, 1.2, 1.5, 2.0, 2.5, 3.0, 6.0])
def test_one_step_at_any_m(m, dtype, device, small_data_too):
    X = load_points("clusters")[0]
    check_one_step(X, X[np.random.default_rng(4).choice(len(X), 12, replace=False)] + 0.01, m, dtype, device)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("c", [1, 2, 3, 17, 64, 300])
@pytest.mark.parametrize("d", [1, 2, 3, 16, 33, 130])
def test_one_step_of_any_shape(c, d, dtype, device, rng, small_data_too):
    X = rng.normal(size=(700, d)) + 4 * rng.normal(size=(5, d))[rng.integers(0, 5, 700)]
    check_one_step(X, X[:c] + 0.01, 2.0, dtype, device)


@pytest.mark.quick("cpu-clusters", "cpu-overlap1")
@pytest.mark.parametrize("name", ["clusters", "overlap1", "pendigits"])
def test_float32_ends_where_float64_does(name, device, small_data_too):
    """From centres that are distinct rows, at the end of the way."""
    X = load_points(name)[0]
    start = X[:: len(X) // 12][:12]
    single, double = (
        fit(X, device, n_clusters=12, m=1.5, init=start, tol=1e-7, max_iter=1000, dtype=dtype)
        for dtype in ("float32", "float64")
    )
    np.testing.assert_allclose(single.cluster_centers_, double.cluster_centers_, atol=BOUND * reference.scale(X))
    np.testing.assert_allclose(single.memberships_, double.memberships_, atol=10 * BOUND)
    assert single.objective_ == pytest.approx(double.objective_, rel=BOUND)


@pytest.mark.parametrize("m", [1.5, 2.0])
def test_weights(m, device, rng):
    X = load_points("overlap1")[0][::4]
    w = rng.integers(0, 4, len(X)).astype("float64")
    centers = X[w > 0][:9].astype("float64")
    state = reference.states(X, m, at=(10,), centers=centers, weights=w)[10]
    options = {"n_clusters": 9, "m": m, "init": centers, "tol": 0.0, "max_iter": 10, "dtype": "float64"}
    model = FuzzyCMeans(device=device, client=None, **options).fit(X, sample_weight=w)
    found = reference.differences(model, state, X, m)
    assert max(found.values()) <= 1e-9, found
    for name, value in reference.indices(state, w).items():
        assert getattr(model, name) == pytest.approx(value, rel=1e-9), name
    repeated = fit(np.repeat(X, w.astype(int), axis=0), device, **options)
    np.testing.assert_allclose(model.cluster_centers_, repeated.cluster_centers_, rtol=1e-9)
    assert model.objective_ == pytest.approx(repeated.objective_, rel=1e-9)
    assert model.partition_coefficient_ == pytest.approx(repeated.partition_coefficient_, rel=1e-9)
    doubled = FuzzyCMeans(device=device, client=None, **options).fit(X, sample_weight=2 * w)
    np.testing.assert_allclose(doubled.cluster_centers_, model.cluster_centers_, rtol=1e-12)
    assert doubled.objective_ == pytest.approx(2 * model.objective_, rel=1e-12)
    assert doubled.xie_beni_ == pytest.approx(model.xie_beni_, rel=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_angles_are_distances_of_unit_rows(metric, device, rng, small_data_too):
    X = rng.normal(size=(900, 12)) + 3 * rng.normal(size=(4, 12))[rng.integers(0, 4, 900)] + 20
    unit = reference.unit_rows(X, metric)
    U = reference.memberships(unit, unit[:4], 2.0)
    state = reference.states(unit, at=(10,), U=U)[10]
    model = fit(X, device, n_clusters=4, init=U, metric=metric, tol=0.0, max_iter=10)
    found = reference.differences(model, state, unit, 2.0)
    assert max(found.values()) <= BOUND, found
    new = rng.normal(size=(30, 12)) + 20
    expected = reference.memberships(reference.unit_rows(new, metric), model.cluster_centers_, 2.0)
    np.testing.assert_allclose(model.predict_memberships(new), expected, atol=BOUND)


def test_near_one_is_k_means(device):
    """m = 1.001 from k-means++ centres: Lloyd's labels and inertia."""
    X = load_points("overlap1")[0].astype("float64")
    start = KMeans(15, n_init=1, max_iter=1, random_state=1).fit(X).cluster_centers_
    theirs = KMeans(15, init=start, n_init=1, tol=0.0, max_iter=200).fit(X)
    model = fit(X, device, n_clusters=15, m=1.001, init=start, tol=0.0, max_iter=200)
    assert adjusted_rand_score(theirs.labels_, model.labels_) > 0.9995
    assert model.objective_ == pytest.approx(theirs.inertia_, rel=1e-3)
    assert model.partition_coefficient_ > 0.99


@pytest.mark.parametrize("name", ["rings", "clusters", "overlap1", "overlap2"])
def test_defaults_find_the_known_clusters(name, device):
    """k-means++ and ten restarts; what hard clusterings of these sets score."""
    X, y = load_points(name)
    model = fit(X, device, n_clusters=len(np.unique(y)), m="auto", n_init=10, random_state=0)
    least = {"rings": 0.98, "clusters": 0.96, "overlap1": 0.98, "overlap2": 0.93}
    assert adjusted_rand_score(y, model.labels_) > least[name]
    assert model.stop_reason_ == "tol"
