"""`DensityPeaks(density="knn")` against distances sorted in float64."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import adjusted_rand_score

from mgclust import DensityPeaks, load_result
from mgclust.base.errors import InputError, InsufficientMemoryError
from oracles import density_peaks as reference
from oracles.nearest_neighbors import nearest_neighbors
from support.points import TRUE_CLUSTERS, load_points

quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
shapes = st.tuples(st.integers(4, 60), st.integers(1, 4))
lattices = shapes.flatmap(lambda shape: arrays("float64", shape, elements=st.integers(-6, 6).map(float)))


def fit(X, device="cpu", **parameters):
    return DensityPeaks(**{"density": "knn", "device": device, "client": None, **parameters}).fit(X)


def densities(X, k, metric="euclidean"):
    last = nearest_neighbors(X, k, metric)[0][:, -1]
    return 1 / np.where(last > 0, last, last[last > 0].min() / 2)


@pytest.mark.parametrize("metric", reference.METRICS)
@pytest.mark.parametrize("name", ["wide032", "pendigits"])
def test_equals_the_definition(name, metric, device):
    X = load_points(name)[0][:1100].astype("float64")
    for dtype, tolerance in (("float32", 3e-5), ("float64", 1e-9)):
        model = fit(X, device, k=9, n_clusters=8, metric=metric, dtype=dtype)
        np.testing.assert_allclose(model.rho_, densities(X, 9, metric), rtol=tolerance)
        atol = tolerance * model.delta_.max()
        reference.check_nearest_higher(X, model.rho_, model.delta_, model.nearest_higher_, metric=metric, atol=atol)
    assert model.dc_ is None and model.dc_error_ == 0 and "dc" not in model.result_.scores
    assert not model.halo_.any() and "dc" not in {stage for stage, taken in model.timings_.items() if taken > 0.1}


@quick
@given(lattices, st.integers(1, 59), st.sampled_from(["brute", "auto"]))
def test_ties_and_equal_rows(X, k, algorithm):
    k = min(k, len(X) - 1)
    assume((nearest_neighbors(X, k)[0][:, -1] > 0).any())
    model = fit(X, k=k, n_clusters=2, algorithm=algorithm, dtype="float64")
    np.testing.assert_array_equal(model.rho_, densities(X, k))
    reference.check_nearest_higher(X, model.rho_, model.delta_, model.nearest_higher_)
    _, higher = reference.nearest_higher(X, model.rho_)
    np.testing.assert_array_equal(model.nearest_higher_, higher)


@pytest.mark.parametrize("name", ["overlap1", "rings", "wide1024"])
def test_clusters_are_found(name):
    X, truth = load_points(name)
    model = fit(X, n_clusters=TRUE_CLUSTERS[name])
    assert np.isfinite(model.rho_).all()
    assert adjusted_rand_score(truth, model.labels_) > 0.9


def test_grid_and_brute_have_the_same_bits():
    X = load_points("overlap2")[0]
    grid, brute = fit(X, algorithm="grid", halo=True), fit(X, algorithm="brute", halo=True)
    for name in ("rho_", "delta_", "nearest_higher_", "labels_", "halo_"):
        np.testing.assert_array_equal(getattr(grid, name), getattr(brute, name), err_msg=name)
    assert grid.dc_ == brute.dc_ == DensityPeaks(client=None, device="cpu").fit(X).dc_ and grid.halo_.any()


def test_saved_and_opened_again(tmp_path):
    model = fit(load_points("rings")[0], k=7)
    model.result_.save(tmp_path / "out")
    again = DensityPeaks.from_result(load_result(tmp_path / "out"))
    assert again.dc_ is None and again.density == "knn" and again.k == 7
    np.testing.assert_array_equal(again.select_centers(4).labels_, model.select_centers(4).labels_)


@pytest.mark.parametrize(
    ("X", "parameters", "message"),
    [
        (np.zeros((5, 2)), {"k": 4}, r"k=4: each row is equal to 4 other rows, .* drop duplicate rows, or raise k"),
        (np.eye(5), {"k": 5}, "k=5 should be < n_samples=5, .*; give a smaller k"),
        (np.eye(5), {"k": 0}, "k=0 should be an integer >= 1"),
        (np.eye(5), {"k": 2, "density": "kNN"}, "did you mean 'knn'"),
    ],
)
def test_what_is_refused(X, parameters, message):
    with pytest.raises(InputError, match=message):
        fit(X, **parameters)


def test_lists_count_as_memory():
    with pytest.raises(InsufficientMemoryError, match="nearest rows"):
        fit(np.random.default_rng(0).normal(size=(5000, 4)), k=2000, memory_limit="100 MB")


@pytest.mark.parametrize(("density", "given"), [("knn", {"k": 5}), ("cutoff", {"dc": 3e-3})])
def test_a_dense_group_far_from_the_others_is_said(density, given):
    """Rounding about the mean of all rows moves its rows by more than a density can bear."""
    rng = np.random.default_rng(0)
    group, others = 0.1 * rng.normal(size=(600, 2)), rng.normal(size=(600, 2))
    for offset, said in ((0, False), (1e5, True)):
        model = DensityPeaks(2, density=density, client=None, device="cpu", **given)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(np.concatenate([group, offset + others]))
        assert any("rounding may change their distances" in str(each.message) for each in caught) == said
        assert ("distance_relative_error" in model.exactness_) == said
