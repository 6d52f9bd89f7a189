"""`DensityPeaks(metric="precomputed")`: the rows are the distances."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics.pairwise import euclidean_distances

from mgclust import DensityPeaks
from mgclust.algorithms import base
from mgclust.base.errors import InputError, InsufficientMemoryError
from mgclust.cli import run_command
from mgclust.engine.memory import Residency
from oracles import density_peaks as reference
from support.points import load_points

ATTRIBUTES = ("rho_", "delta_", "nearest_higher_", "labels_", "cluster_centers_indices_", "halo_", "dc_")
few = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
lattices = st.tuples(st.integers(3, 40), st.integers(1, 3)).flatmap(
    lambda shape: arrays("float64", shape, elements=st.integers(-4, 4).map(float))
)


def fit(D, device="cpu", **parameters):
    return DensityPeaks(**{"metric": "precomputed", "device": device, "client": None, **parameters}).fit(D)


def assert_same_bits(model, other, what=""):
    for name in ATTRIBUTES:
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name), err_msg=f"{name} {what}")


@pytest.mark.parametrize("metric", ["euclidean", "correlation"])
@pytest.mark.parametrize("density", ["gaussian", "cutoff"])
def test_equals_the_definition(density, metric, device):
    X = load_points("wide032")[0][::2].astype("float64")
    D = reference.distances(X, X, metric)
    np.fill_diagonal(D, 0)
    expected = reference.density_peaks(X, 16, kernel=density, metric=metric)
    for dtype, tolerance in (("float64", 1e-9), ("float32", 1e-5)):
        model = fit(D, device, n_clusters=16, density=density, dtype=dtype, halo=True)
        reference.check_against_reference(X, model, expected, metric, rtol_rho=tolerance, atol=1e-6)
        np.testing.assert_array_equal(reference.owners(model), expected.owner)
        np.testing.assert_array_equal(
            model.halo_, reference.halo(X, model.rho_, expected.owner, model.dc_, metric), err_msg=dtype
        )
    assert model.exactness_["algorithm"] == "given"


@pytest.mark.parametrize("density", ["gaussian", "cutoff", "knn"])
@few
@given(lattices, st.sampled_from([0.02, 0.3, 1.0]))
def test_ties_and_equal_rows(density, X, fraction):
    """Whole distances: dc, neighbours and halo have the bits of the rows' own; equal rows have equal densities."""
    D = reference.distances(X, X, "manhattan")
    options = {"n_clusters": 2, "density": density, "k": 2, "dc_fraction": fraction, "dtype": "float64", "halo": True}
    try:
        rows = fit(X, **options | {"metric": "manhattan"})
    except InputError as refusal:
        with pytest.raises(InputError, match=str(refusal).split(":")[0]):
            fit(D, **options)
        return
    model = fit(D, **options)
    np.testing.assert_allclose(model.rho_, rows.rho_, rtol=1e-12)
    assert model.dc_ == rows.dc_
    _, same = np.unique(X, axis=0, return_inverse=True)
    assert all(len(set(model.rho_[same.ravel() == group])) == 1 for group in range(same.max() + 1))
    delta, higher = reference.nearest_higher(X, model.rho_, "manhattan")
    np.testing.assert_array_equal(model.nearest_higher_, higher)
    np.testing.assert_array_equal(model.delta_, delta)


@pytest.fixture(scope="module")
def matrix():
    X = load_points("overlap1")[0][::2].astype("float64")  # three blocks
    return reference.distances(X, X).astype("float32")


@pytest.mark.slow
@pytest.mark.parametrize("density", ["gaussian", "knn"])
def test_same_bits_on_any_number_of_ranks(density, matrix, ranks, monkeypatch, tmp_path):
    options = {"n_clusters": 15, "density": density, "halo": True}
    alone = fit(matrix, **options)
    np.save(tmp_path / "distances.npy", matrix)
    for size in (2, 3, 4):
        monkeypatch.setattr(base, "connect", lambda size=size, **_: ranks(size))
        assert_same_bits(fit(tmp_path / "distances.npy", **options), alone, f"on {size} ranks")


@pytest.mark.slow
def test_same_bits_from_files_chunks_and_streams(matrix, monkeypatch, tmp_path):
    zarr, dask_array = pytest.importorskip("zarr"), pytest.importorskip("dask.array")
    options = {"n_clusters": 15, "halo": True}
    whole = fit(matrix, **options)
    zarr.save(str(tmp_path / "distances.zarr"), matrix)
    for source in (tmp_path / "distances.zarr", dask_array.from_array(matrix, chunks=(700, 700))):
        assert_same_bits(fit(source, **options), whole, str(source))
    monkeypatch.setattr(Residency, "resident", lambda self, rows: False)
    monkeypatch.setattr(Residency, "chunk_rows", property(lambda self: self.block_rows))
    assert_same_bits(fit(matrix, **options), whole, "streamed")


def changed(*places, size=3000):
    """Distances of points on a line, with other values in some places."""
    X = np.arange(float(size))
    D = abs(X[:, None] - X)
    for i, j, value in places:
        D[i, j] = value
    return D


@pytest.mark.parametrize(
    ("D", "parameters", "message"),
    [
        (np.ones((3, 4)), {}, r"needs a square matrix of distances, not shape=\(3, 4\); .* metric='euclidean'"),
        (
            changed((7, 9, -2.0), size=20),
            {},
            "Negative values .* the distance in row 7, column 9 is -2 and should be >= 0",
        ),
        (changed((7, 9, np.nan), size=20), {}, "NaN or infinity .* in row 7"),
        (changed((11, 11, 1.0), size=20), {}, "the distance of row 11 to itself is 1 and should be 0"),
        (changed((2500, 1200, 5.0)), {}, "row 1200, column 2500 is 1300, but row 2500, column 1200 is 5; .* symmetric"),
        (changed(size=20), {"algorithm": "grid"}, "algorithm='grid' needs .* metric='precomputed'"),
        (np.zeros((5, 5)), {}, "dc=0"),
        (changed(size=20) * 1e-40, {}, "distance is 1.9e-39 and .* with dtype='float32'; .* or use dtype='float64'"),
        (changed(size=20) * 1e-50, {"density": "knn", "k": 2}, "distance is 1.9e-49 and .* or use dtype='float64'"),
        (changed(size=20) * 1e-310, {"dtype": "float64"}, "largest distance is 1.9e-309 and .*; rescale the data.$"),
        (np.zeros((5, 5)), {"density": "knn", "k": 2}, "k=2: each row is equal to 2 other rows"),
    ],
)
def test_what_is_refused(D, parameters, message):
    with pytest.raises(InputError, match=message):
        fit(D, **parameters)


def test_rounding_is_no_asymmetry():
    X = load_points("rings")[0].astype("float64")
    D = euclidean_distances(X)  # by products, which rounds both triangles its own way
    D *= 1 + 1e-6 * np.random.default_rng(0).random(D.shape)
    model = fit(D, n_clusters=15)
    np.testing.assert_array_equal(model.labels_, fit(X, metric="euclidean", n_clusters=15).labels_)


def test_distances_far_beyond_dc_count_nothing():
    D = changed(size=600) * 1e-3
    D[:300, 300:], D[300:, :300] = 3e37, 3e37
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fit(D, n_clusters=2, dc=0.02)
    np.testing.assert_allclose(model.rho_, np.exp(-((D / 0.02) ** 2)).sum(axis=1) - 1, rtol=1e-5)


def test_what_needs_rows_is_refused():
    model = fit(changed(size=20), n_clusters=2)
    with pytest.raises(AttributeError) as refusal:
        model.predict(np.zeros((1, 20)))
    assert "metric='precomputed': predict needs rows" in str(refusal.value.__cause__)


def test_memory_is_estimated_before_the_run():
    with pytest.raises(InsufficientMemoryError, match=r"rows .* What would fit"):
        fit(changed(), memory_limit="20 MB")


def test_on_the_command_line(tmp_path):
    D = changed(size=30)
    D[:15, 15:] += 100
    D[15:, :15] += 100
    np.save(tmp_path / "D.npy", D)
    arguments = ["run", "density-peaks", str(tmp_path / "D.npy"), "-o", str(tmp_path / "out"), "--cpu"]
    assert run_command([*arguments, "--metric", "precomputed", "--n-clusters", "2"]) == 0
    assert not (tmp_path / "out" / "scatter.png").exists()  # the rows are distances
    assert np.load(tmp_path / "out" / "labels.npy").tolist() in ([0] * 15 + [1] * 15, [1] * 15 + [0] * 15)
