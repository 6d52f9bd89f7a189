"""What must hold for any data: drawn by hypothesis, small, on lattices so that ties and duplicates abound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mgclust import DensityPeaks
from mgclust.base.errors import InputError
from oracles import density_peaks as reference

quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

shapes = st.tuples(st.integers(3, 60), st.integers(1, 4))
lattices = shapes.flatmap(lambda shape: arrays("float64", shape, elements=st.integers(-8, 8).map(float)))
metrics = st.sampled_from(["euclidean", "sqeuclidean", "manhattan"])
kernels = st.sampled_from(["gaussian", "cutoff"])
algorithms = st.sampled_from(["auto", "brute"])


def fit(X, **parameters):
    options = {"n_clusters": 2, "device": "cpu", "client": None, "dtype": "float64"}
    return DensityPeaks(**{**options, **parameters}).fit(X)


def distinct(X):
    return len(np.unique(X, axis=0)) >= 2


@quick
@given(lattices, metrics, kernels, algorithms, st.sampled_from([1.5, 4.25, 20.0]))
def test_equals_the_oracle(X, metric, kernel, algorithm, dc):
    assume(distinct(X))
    ref = reference.density_peaks(X, 2, dc=dc, kernel=kernel, metric=metric)
    model = fit(X, dc=dc, density=kernel, metric=metric, algorithm=algorithm)
    np.testing.assert_allclose(model.rho_, ref.rho, rtol=1e-11, atol=1e-11)
    reference.check_nearest_higher(X, model.rho_, model.delta_, model.nearest_higher_, metric=metric, atol=1e-9)
    if kernel == "cutoff":  # counts are exact, so every tie falls the same way
        np.testing.assert_array_equal(model.nearest_higher_, ref.higher)
        np.testing.assert_array_equal(reference.owners(model), ref.owner)


@quick
@given(lattices, metrics, st.floats(0.0, 1.0, exclude_min=True))
def test_dc_is_the_order_statistic(X, metric, fraction):
    assume(distinct(X))
    expected = reference.cutoff_distance(X, fraction, metric)
    pairs = reference.distances(X, X, metric)[np.triu_indices(len(X), 1)]
    equal = expected == 0  # more than that fraction of the pairs: the smallest distance of the others counts
    model = fit(X, metric=metric, dc_fraction=fraction)
    assert model.dc_ == pytest.approx(pairs[pairs > 0].min() if equal else expected, rel=1e-12)
    assert model.exactness_.get("equal_pairs") == ((pairs == 0).sum() if equal else None)
    assert any("smallest positive distance" in text for text in model.result_.warnings) == equal


@quick
@given(lattices, st.randoms(use_true_random=False), kernels)
def test_order_of_the_rows_does_not_matter(X, random, kernel):
    assume(distinct(X))
    order = np.array(random.sample(range(len(X)), len(X)))
    first, second = fit(X, dc=3.5, density=kernel), fit(X[order], dc=3.5, density=kernel)
    np.testing.assert_allclose(second.rho_, first.rho_[order], rtol=1e-12, atol=1e-12)
    reference.check_nearest_higher(X[order], second.rho_, second.delta_, second.nearest_higher_, atol=1e-9)
    if len(np.unique(np.round(first.rho_, 9))) == len(X):  # without ties, the same points are centres
        chosen = order[second.cluster_centers_indices_]
        np.testing.assert_allclose(
            np.sort((first.rho_ * first.delta_)[chosen]),
            np.sort((first.rho_ * first.delta_)[first.cluster_centers_indices_]),
            rtol=1e-9,
        )


@quick
@given(lattices, st.integers(-1000, 1000), kernels)
def test_translation_changes_nothing(X, shift, kernel):
    assume(distinct(X))
    first, second = fit(X, dc=3.5, density=kernel), fit(X + shift, dc=3.5, density=kernel)
    np.testing.assert_allclose(second.rho_, first.rho_, rtol=1e-9, atol=1e-9)
    reference.check_nearest_higher(X, second.rho_, second.delta_, second.nearest_higher_, atol=1e-9)


@quick
@given(lattices, st.integers(-20, 20), kernels)
def test_scaling_by_a_power_of_two_is_exact(X, exponent, kernel):
    assume(distinct(X))
    factor = 2.0**exponent
    first, second = fit(X, dc=3.5, density=kernel), fit(X * factor, dc=3.5 * factor, density=kernel)
    np.testing.assert_array_equal(second.rho_, first.rho_)
    np.testing.assert_array_equal(second.delta_, first.delta_ * factor)
    np.testing.assert_array_equal(second.nearest_higher_, first.nearest_higher_)
    np.testing.assert_array_equal(second.labels_, first.labels_)


@quick
@given(lattices, kernels)
def test_every_point_twice(X, kernel):
    """Each point gains its twin at distance zero: rho becomes 2 rho + 1."""
    assume(distinct(X))
    once, twice = fit(X, dc=3.5, density=kernel), fit(np.repeat(X, 2, axis=0), dc=3.5, density=kernel)
    np.testing.assert_allclose(twice.rho_[::2], 2 * once.rho_ + 1, rtol=1e-11)
    np.testing.assert_array_equal(twice.labels_[::2], twice.labels_[1::2])


@quick
@given(lattices, st.integers(1, 3))
def test_labels_are_whole(X, n_clusters):
    assume(distinct(X))
    model = fit(X, dc=3.5, n_clusters=n_clusters)
    assert sorted(set(model.labels_)) == list(range(n_clusters))
    centers = model.cluster_centers_indices_
    np.testing.assert_array_equal(model.labels_[centers], np.arange(n_clusters))
    higher, owner = model.nearest_higher_, reference.owners(model)
    follows = np.setdiff1d(np.flatnonzero(higher >= 0), centers)
    np.testing.assert_array_equal(owner[follows], owner[higher[follows]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_smallest_sets(dtype):
    model = fit(np.array([[0.0], [1.0]]), n_clusters=1, dtype=dtype)
    assert model.dc_ == 1.0
    np.testing.assert_array_equal(model.labels_, [0, 0])
    np.testing.assert_array_equal(model.nearest_higher_, [-1, 0])
    np.testing.assert_allclose(model.rho_, np.exp(-1.0), rtol=1e-6)
    np.testing.assert_allclose(model.delta_, 1.0)
    model = fit(np.array([[0.0], [1.0]]), n_clusters=2, dtype=dtype)
    np.testing.assert_array_equal(np.sort(model.labels_), [0, 1])


def test_points_on_a_line_far_apart():
    """Every Gaussian underflows: all densities are zero, all ties fall to the lowest index."""
    X = np.arange(6.0)[:, None] * 1e6
    model = fit(X, dc=1.0)
    np.testing.assert_array_equal(model.rho_, 0.0)
    np.testing.assert_array_equal(model.nearest_higher_, [-1, 0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("X", "parameters", "sentence"),
    [
        (np.ones((50, 3)), {}, "dupl|equal|identical|distinct"),
        (np.zeros((1, 2)), {"n_clusters": 1}, "sample"),
        (np.zeros((0, 2)), {}, "sample"),
        (np.arange(8.0).reshape(4, 2), {"n_clusters": 5}, "n_clusters=5"),
        (np.array([[0.0, 1.0], [np.nan, 2.0], [3.0, np.inf]]), {}, "(?i)nan|infin"),
        (np.arange(8.0).reshape(4, 2), {"dc": 0.0}, r"dc=0"),
        (np.arange(8.0).reshape(4, 2), {"dc": -1.0}, r"dc=-1"),
        (np.arange(8.0).reshape(4, 2), {"dc_fraction": 0.0}, r"dc_fraction=0"),
        (np.arange(8.0).reshape(4, 2), {"dc_fraction": 1.5}, r"dc_fraction=1\.5"),
        (np.arange(8.0).reshape(4, 2), {"metric": "chebyshev"}, "chebyshev"),
        (np.arange(8.0).reshape(4, 2), {"density": "box"}, "box"),
        (np.zeros((3, 2)) + np.arange(3)[:, None], {"metric": "correlation"}, "constant"),
        (np.arange(8.0).reshape(4, 2), {"metric": "cosine", "dc": "x"}, "dc='x'"),
    ],
)
def test_bad_input_is_a_sentence(X, parameters, sentence):
    with pytest.raises(InputError, match=sentence):
        fit(X, **parameters)
