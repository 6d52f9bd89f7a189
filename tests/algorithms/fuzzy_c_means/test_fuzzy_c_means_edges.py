"""`FuzzyCMeans`: what holds for any data, starting, stopping, predicting, and the extremes."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial import KDTree
from sklearn.exceptions import ConvergenceWarning

from mgclust import FuzzyCMeans, load_result
from mgclust.algorithms.fuzzy_c_means import memberships, ranks, run_spec
from mgclust.base.errors import InputError, InsufficientMemoryError
from oracles import fuzzy_c_means as reference
from support.points import load_points

INITS = ["k-means++", "random", "canopy"]
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
shapes = st.tuples(st.integers(4, 50), st.integers(1, 4))
lattices = shapes.flatmap(lambda shape: arrays("float64", shape, elements=st.integers(-8, 8).map(float)))


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(autouse=True)
def small_data_too(monkeypatch):
    """float32 where it is asked for: `fit` computes small data in float64 whatever is asked."""
    monkeypatch.setattr(run_spec, "FEW_NUMBERS", 0)


def fit(X, device="cpu", sample_weight=None, **parameters):
    return FuzzyCMeans(device=device, client=None, **{"m": 2.0} | parameters).fit(X, sample_weight=sample_weight)


@pytest.fixture
def blobs(rng) -> np.ndarray:
    return rng.normal(size=(600, 3)) + 8 * rng.normal(size=(4, 3))[rng.integers(0, 4, 600)]


@quick
@given(lattices, st.integers(1, 4), st.sampled_from([1.001, 1.3, 2.0, 3.5, 20.0]), st.sampled_from(INITS))
def test_rows_sum_to_one_and_j_falls(X, c, m, init):
    model = fit(X, n_clusters=c, m=m, init=init, max_iter=30, random_state=0, dtype="float64")
    U = model.memberships_
    assert np.isfinite(U).all() and (U >= 0).all()
    np.testing.assert_allclose(U.sum(axis=1), 1.0, rtol=1e-12)
    assert np.isfinite(model.cluster_centers_).all()
    assert (model.cluster_centers_ >= X.min(axis=0) - 1e-9).all()
    assert (model.cluster_centers_ <= X.max(axis=0) + 1e-9).all()
    history = model.objective_history_
    assert len(history) == model.n_iter_ + 1 and history[-1] == model.objective_
    assert (np.diff(history) <= 1e-12 * history[0] + 1e-12).all()
    assert 1 / c - 1e-12 <= model.partition_coefficient_ <= 1 + 1e-12
    assert -1e-12 <= model.partition_entropy_ <= np.log(c) + 1e-12
    assert model.labels_.dtype == np.int32
    np.testing.assert_array_equal(U[np.arange(len(X)), model.labels_], U.max(axis=1))


@quick
@given(lattices, st.integers(1, 4), st.sampled_from([1.3, 2.0, 5.0]))
def test_equals_the_oracle_on_lattices(X, c, m):
    """Rows that meet centres, duplicates, and centres that meet each other."""
    state = reference.states(X, m, at=(1,), centers=X[:c])[1]
    model = fit(X, n_clusters=c, m=m, init=X[:c], max_iter=1, tol=0.0, dtype="float64")
    np.testing.assert_allclose(model.cluster_centers_, state.centers, atol=1e-9)
    assert model.objective_ == pytest.approx(state.objective, rel=1e-9, abs=1e-9)
    first = reference.memberships(X, X[:c], m)
    assert model.objective_history_[0] == pytest.approx(reference.objective(X, X[:c], first, m), rel=1e-9, abs=1e-9)


@quick
@given(lattices, st.integers(2, 4))
def test_equal_centers_share_evenly(X, c):
    """c copies of one centre and of another: each copy has the c-th part, also of rows that they coincide with."""
    two = np.array([X.min(axis=0) - 1, X[0]])
    model = fit(X, n_clusters=2 * c, init=np.repeat(two, c, axis=0), max_iter=1, tol=0.0, dtype="float64")
    U = model.memberships_
    assert np.isfinite(U).all()
    for group in (U[:, :c], U[:, c:]):
        np.testing.assert_allclose(group, np.repeat(group[:, :1], c, axis=1), atol=1e-12)
    assert np.isposinf(model.xie_beni_)


@quick
@given(lattices, st.integers(-1000, 1000), st.sampled_from([0.25, 1.0, 1024.0]))
def test_origin_and_unit_do_not_matter(X, shift, unit):
    """The stop rule has the data's scale."""
    start = X[:3] + np.arange(3)[:, None]
    options = {"n_clusters": 3, "max_iter": 15, "dtype": "float64"}
    first, second = fit(X, init=start, **options), fit((X + shift) * unit, init=(start + shift) * unit, **options)
    if X.std() > 0:
        assert abs(second.n_iter_ - first.n_iter_) <= (0 if first.stop_reason_ == "max_iter" else 1)
    if second.n_iter_ == first.n_iter_:
        np.testing.assert_allclose(second.cluster_centers_ / unit - shift, first.cluster_centers_, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("init", INITS)
def test_a_seed_decides(init, device, blobs):
    options = {"n_clusters": 4, "init": init, "n_init": 2, "random_state": 7}
    first, second = fit(blobs, device, **options), fit(blobs, device, **options)
    np.testing.assert_array_equal(first.cluster_centers_, second.cluster_centers_)
    np.testing.assert_array_equal(first.memberships_, second.memberships_)
    if init == "random":
        other = fit(blobs, device, **{**options, "random_state": 8})
        assert other.objective_history_[0] != first.objective_history_[0]


@pytest.mark.parametrize("init", INITS)
def test_starts_are_rows_of_the_data(init, device, blobs, monkeypatch):
    """They are four distinct rows but for a shift of all rows, and the first J is the oracle's at these rows."""
    begin, given = ranks.starting_centers, []

    def starts(*args, **kwargs):
        given.append(begin(*args, **kwargs))
        return given[-1]

    monkeypatch.setattr(ranks, "starting_centers", starts)
    model = fit(blobs, device, n_clusters=4, init=init, max_iter=1, random_state=3, dtype="float64")
    ((centers,),) = given
    tree = KDTree(blobs)
    distance, rows = min(
        ((found.max(), rows) for found, rows in (tree.query(centers + (row - centers[0])) for row in blobs)),
        key=lambda each: each[0],
    )
    assert distance < 1e-9 and len(set(rows)) == 4
    state = next(reference.iterate(blobs, centers=blobs[rows]))
    assert model.objective_history_[0] == pytest.approx(state.objective, rel=1e-9)


def test_restarts_keep_the_best(device):
    X = load_points("overlap2")[0]
    several = fit(X, device, n_clusters=15, init="random", n_init=6, random_state=1)
    objectives = several.result_.diagnostics["objectives"]
    assert len(objectives) == 6 and len(set(objectives)) > 1
    assert several.objective_ == min(objectives)
    assert several.result_.diagnostics["best_init"] == int(np.argmin(objectives))
    one = fit(X, device, n_clusters=15, init="random", random_state=1)
    assert several.objective_ <= one.objective_


def test_restarts_do_not_touch_each_other(device):
    """A set of centres has the same bits alone and among others that are served by the same passes."""
    X = load_points("overlap1")[0]
    several = fit(X, device, n_clusters=15, init="random", n_init=5, random_state=2, tol=1e-6)
    one = fit(X, device, n_clusters=15, init="random", n_init=1, random_state=2, tol=1e-6)
    assert one.objective_ in several.result_.diagnostics["objectives"]


@pytest.mark.parametrize("kind", ["centers", "memberships"])
def test_start_from_a_file_of_the_command_line(kind, device, blobs, tmp_path):
    array = blobs[:4] if kind == "centers" else reference.memberships(blobs, blobs[:4], 2.0)
    np.save(tmp_path / "start.npy", array)
    option = next(option for option in FuzzyCMeans.options() if option.name == "init")
    parsed = option.constraint.parse(str(tmp_path / "start.npy"), "init")
    here, there = fit(blobs, device, n_clusters=4, init=array), fit(blobs, device, n_clusters=4, init=parsed)
    np.testing.assert_array_equal(here.cluster_centers_, there.cluster_centers_)


def test_canopies_start_in_separate_groups(device, rng):
    """One centre in each of eight groups that are far from each other, whatever their sizes."""
    sizes = [400, 200, 100, 60, 50, 40, 30, 30]
    y = rng.permutation(np.repeat(np.arange(8), sizes))
    X = 100 * np.stack([y % 3, y // 3], axis=1) + rng.normal(size=(len(y), 2))
    model = fit(X, device, n_clusters=8, init="canopy", random_state=0)
    assert len({tuple(np.unique(model.labels_[y == k])) for k in range(8)}) == 8
    assert all(len(np.unique(model.labels_[y == k])) == 1 for k in range(8))


def test_stop_rule(device):
    """It stops after the first iteration in which no centre moves farther than tol times the data's scale."""
    X = load_points("overlap1")[0].astype("float64")
    start, tol = X[:15], 1e-3
    reached = previous = None
    for t, state in enumerate(reference.iterate(X, centers=start)):
        if previous is not None:
            shift = np.sqrt(((state.centers - previous) ** 2).sum(axis=1)).max()
            if shift <= tol * reference.scale(X):
                reached = t
                break
        previous = state.centers
    model = fit(X, device, n_clusters=15, init=start, tol=tol)
    assert model.n_iter_ == reached and model.stop_reason_ == "tol"
    np.testing.assert_allclose(model.cluster_centers_, state.centers, rtol=1e-5)
    assert model.result_.diagnostics["stop_reason"] == "tol"
    assert model.result_.warnings == []


def test_stop_rule_does_not_depend_on_n(device):
    X = load_points("overlap1")[0].astype("float64")
    options = {"n_clusters": 15, "init": X[:15], "dtype": "float64"}
    assert fit(X, device, **options).n_iter_ == fit(np.repeat(X, 4, axis=0), device, **options).n_iter_


def test_running_out_of_iterations_is_said(device, blobs):
    model = FuzzyCMeans(4, init=blobs[:4], max_iter=2, device=device, client=None)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2.*raise max_iter or tol"):
        model.fit(blobs)
    assert model.stop_reason_ == "max_iter" and model.n_iter_ == 2
    assert len(model.objective_history_) == 3
    assert any("max_iter" in text for text in model.result_.warnings)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_predict(dtype, device, blobs, rng, tmp_path):
    model = fit(blobs, device, n_clusters=4, random_state=0, dtype=dtype)
    np.testing.assert_array_equal(model.predict(blobs), model.labels_)
    np.testing.assert_array_equal(model.predict_memberships(blobs), model.memberships_)
    assert model.memberships_.dtype == dtype
    new = 10 * rng.normal(size=(5000, 3))
    U = model.predict_memberships(new)
    expected = reference.memberships(new, model.cluster_centers_, 2.0)
    np.testing.assert_allclose(U, expected, atol=1e-5 if dtype == "float32" else 1e-12)
    np.testing.assert_array_equal(model.predict(new), U.argmax(axis=1))
    lazily = model.predict_memberships(new, out=tmp_path / "memberships.zarr")
    assert (tmp_path / "memberships.zarr").exists()
    np.testing.assert_array_equal(lazily[:], U)
    one = model.predict_memberships(new[:1])
    np.testing.assert_array_equal(one, U[:1])


def test_predict_checks_its_rows(device, blobs):
    model = fit(blobs, device, n_clusters=4, random_state=0)
    for call in (model.predict, model.predict_memberships):
        with pytest.raises(InputError, match="2 features, but FuzzyCMeans is expecting 3"):
            call(blobs[:, :2])
        with pytest.raises(InputError, match=r"1 value.*NaN|NaN"):
            call(np.where(np.arange(3) == 1, np.nan, blobs[:5]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("far", [1e8, 1e18, 1e19, 1e30, 1e150, 1e160])
def test_far_rows_belong_to_all_alike(far, dtype, device, blobs):
    """While their squared distances are numbers; beyond that they are refused, as a fit would."""
    model = fit(blobs, device, n_clusters=4, random_state=0, dtype=dtype)
    if far > (1e18 if model.computed_in_ == "float32" else 1e150):
        for call in (model.predict, model.predict_memberships):
            with pytest.raises(InputError, match=r"rows lie up to.*leave such rows out"):
                call(np.full((1, 3), far))
        return
    np.testing.assert_allclose(model.predict_memberships(np.full((1, 3), far)), 0.25, atol=1e-5)
    assert 0 <= model.predict(np.full((1, 3), far))[0] < 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("unit", [1e-200, 1e-45, 1e30, 1e200])
def test_weights_have_no_unit(unit, dtype, device, blobs, rng):
    weights = rng.random(600)
    options = {"n_clusters": 4, "init": blobs[:4], "max_iter": 5, "dtype": dtype}
    known = fit(blobs, device, sample_weight=weights, **options)
    model = fit(blobs, device, sample_weight=weights * unit, **options)
    np.testing.assert_allclose(model.cluster_centers_, known.cluster_centers_, rtol=1e-6)
    assert model.objective_ == pytest.approx(known.objective_ * unit, rel=1e-6)
    assert model.partition_coefficient_ == pytest.approx(known.partition_coefficient_, rel=1e-6)


def test_result_directory(device, blobs, tmp_path):
    model = fit(blobs, device, n_clusters=4, random_state=0)
    model.result_.save(tmp_path / "out")
    loaded = load_result(tmp_path / "out")
    assert loaded.method == "fuzzy-c-means"
    np.testing.assert_array_equal(loaded.labels, model.labels_)
    np.testing.assert_array_equal(loaded.arrays["cluster_centers"], model.cluster_centers_)
    np.testing.assert_array_equal(loaded.arrays["objective_history"], model.objective_history_)
    np.testing.assert_array_equal(np.asarray(loaded.arrays["memberships"][:]), model.memberships_)
    for name in ("objective", "partition_coefficient", "partition_entropy", "xie_beni", "n_iter"):
        assert loaded.scores[name] == pytest.approx(getattr(model, f"{name}_"))


def test_memberships_that_a_fit_does_not_keep(device, blobs, tmp_path, monkeypatch):
    """Large ones are computed when they are asked for, and when a result is saved: then as a zarr store."""
    kept = fit(blobs, device, n_clusters=4, random_state=0)
    monkeypatch.setattr(memberships, "SMALL", 0)
    model = fit(blobs, device, n_clusters=4, random_state=0)
    assert not isinstance(model.result_.arrays["memberships"], np.ndarray)
    model.result_.save(tmp_path / "out")
    assert (tmp_path / "out" / "memberships.zarr").is_dir()
    stored = load_result(tmp_path / "out").arrays["memberships"]
    np.testing.assert_array_equal(stored[:], kept.memberships_)
    np.testing.assert_array_equal(model.memberships_, kept.memberships_)


def test_memberships_that_memory_does_not_hold(device, blobs, tmp_path, monkeypatch):
    model = fit(blobs, device, n_clusters=4, random_state=0)
    expected = model.memberships_
    little = SimpleNamespace(virtual_memory=lambda: SimpleNamespace(available=1000))
    monkeypatch.setattr(memberships, "psutil", little)
    monkeypatch.setattr(memberships, "SMALL", 0)
    with pytest.raises(InsufficientMemoryError, match=r"600 rows in 4 clusters.*out="):
        model.predict_memberships(blobs)
    model = fit(blobs, device, n_clusters=4, random_state=0)
    assert not isinstance(model.memberships_, np.ndarray)  # a zarr array
    np.testing.assert_array_equal(model.memberships_[:], expected)


def test_where_memberships_can_be_written(device, blobs, tmp_path):
    model = fit(blobs, device, n_clusters=4, random_state=0)
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="exists; choose another name"):
        model.predict_memberships(blobs, out=tmp_path / "there")
    with pytest.raises(InputError, match="is not a directory"):
        model.predict_memberships(blobs, out=tmp_path / "nowhere" / "u.zarr")
    with pytest.raises(InputError):
        model.predict_memberships(np.full((5, 3), np.nan), out=tmp_path / "u.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]  # nothing half-written


def test_a_second_fit_forgets_the_first(device, blobs):
    model = FuzzyCMeans(4, device=device, client=None, random_state=0).fit(blobs)
    assert model.memberships_.shape == (600, 4)
    model.set_params(n_clusters=2).fit(blobs[:100])
    assert model.memberships_.shape == (100, 2)
    np.testing.assert_array_equal(model.memberships_, model.predict_memberships(blobs[:100]))


@pytest.mark.parametrize("m", [1.001, 1.01, 1.1, 1.3, 5.0, 10.0, 50.0, 150.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_m_gives_numbers(m, dtype, device):
    X = load_points("clusters")[0]
    model = fit(X, device, n_clusters=31, m=m, max_iter=20, random_state=0, dtype=dtype)
    for value in (model.cluster_centers_, model.memberships_, model.objective_history_, model.partition_entropy_):
        assert np.isfinite(value).all()
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1.0, atol=1e-5)
    history = model.objective_history_
    assert (np.diff(history) <= 1e-6 * history[0]).all()


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_unit_gives_the_same(size, dtype, device, blobs):
    options = {"n_clusters": 4, "dtype": dtype, "tol": 1e-5}
    known = fit(blobs, device, init=blobs[:4], **options)
    model = fit(blobs * size, device, init=blobs[:4] * size, **options)
    np.testing.assert_allclose(model.cluster_centers_ / size, known.cluster_centers_, rtol=1e-4)
    np.testing.assert_allclose(model.memberships_, known.memberships_, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_rows_equal(dtype, device):
    model = fit(np.full((50, 2), 3.7), device, n_clusters=3, random_state=0, dtype=dtype)
    np.testing.assert_allclose(model.cluster_centers_, 3.7)
    np.testing.assert_allclose(model.memberships_, 1 / 3, rtol=1e-6)
    assert model.objective_ < 1e-25 and np.isposinf(model.xie_beni_)
    assert (model.labels_ == 0).all()


def test_one_cluster(device, blobs):
    model = fit(blobs, device, n_clusters=1, dtype="float64")
    np.testing.assert_allclose(model.cluster_centers_[0], blobs.mean(axis=0), rtol=1e-12)
    assert model.objective_ == pytest.approx(((blobs - blobs.mean(axis=0)) ** 2).sum(), rel=1e-12)
    assert model.partition_coefficient_ == 1 and model.partition_entropy_ == 0 and np.isnan(model.xie_beni_)
