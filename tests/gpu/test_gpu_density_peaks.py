"""Density peaks on GPUs: the CPU's labels, and the same bits on 1, 2, 4 and 8 of them.

The oracle's tests (tests/algorithms/density_peaks/test_density_peaks.py) have a GPU half of their own.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from mgclust import DensityPeaks
from mgclust.engine.memory import Residency
from oracles.density_peaks import METRICS
from support.points import TRUE_CLUSTERS, load_points

pytestmark = pytest.mark.gpu

ATTRIBUTES = ("rho_", "delta_", "nearest_higher_", "labels_", "cluster_centers_indices_", "halo_")


def fit(X, device="cuda", client=None, **parameters):
    return DensityPeaks(device=device, client=client, halo=True, **parameters).fit(X)


def assert_same_bits(model, other):
    assert model.dc_ == other.dc_
    for name in ATTRIBUTES:
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("algorithm", ["brute", "grid"])
@pytest.mark.parametrize("name", TRUE_CLUSTERS)
def test_labels_equal_the_cpus(name, algorithm):
    X, _ = load_points(name)
    X = X[::10] if name == "grid" else X
    if algorithm == "grid" and X.shape[1] > 3:
        pytest.skip("the grid is for three dimensions at most")
    k = TRUE_CLUSTERS[name]
    ours, theirs = (fit(X, device, n_clusters=k, algorithm=algorithm) for device in ("cpu", "cuda"))
    assert theirs.dc_ == pytest.approx(ours.dc_, rel=1e-6)
    np.testing.assert_allclose(theirs.rho_, ours.rho_, rtol=1e-5, atol=1e-12 * len(X))
    np.testing.assert_array_equal(theirs.cluster_centers_indices_, ours.cluster_centers_indices_)
    np.testing.assert_array_equal(theirs.labels_, ours.labels_)
    assert (theirs.nearest_higher_ != ours.nearest_higher_).mean() <= 0.002  # rho or distances equal to rounding
    assert (theirs.halo_ != ours.halo_).mean() <= 0.002


def test_float64_rows_of_the_device_that_begin_with_zeros():
    cp = importlib.import_module("cupy")
    X = np.random.default_rng(0).normal(size=(3000, 5)) + np.repeat([0.0, 20.0, 40.0], 1000)[:, None]
    X[0] = 0
    ours, theirs = fit(X, "cpu", n_clusters=3), fit(cp.asarray(X), n_clusters=3)
    np.testing.assert_array_equal(cp.asnumpy(theirs.labels_), ours.labels_)


@pytest.mark.parametrize("kernel", ["gaussian", "cutoff"])
@pytest.mark.parametrize("metric", METRICS)
def test_metrics_equal_the_cpus(metric, kernel):
    X, _ = load_points("pendigits")
    X = X[:3000]
    options = {"n_clusters": 10, "metric": metric, "density": kernel, "dtype": "float64"}
    ours, theirs = (fit(X, device, **options) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(theirs.rho_, ours.rho_, rtol=1e-10)
    np.testing.assert_array_equal(theirs.labels_, ours.labels_)


@pytest.mark.parametrize("name", ["overlap1", "wide064", "pendigits"])
def test_rows_on_the_device_and_on_the_host(name):
    import cupy

    X, _ = load_points(name)
    assert_same_bits(fit(cupy.asarray(X), n_clusters=10), fit(X, n_clusters=10))


@pytest.mark.parametrize("name", ["overlap1", "wide064", "pendigits"])
def test_streamed_rows_give_the_same_bits(name, monkeypatch):
    """One block of own rows at a time, as if they did not fit."""
    X, _ = load_points(name)
    resident = fit(X, n_clusters=10, algorithm="brute")
    monkeypatch.setattr(Residency, "resident", lambda self, rows: False)
    monkeypatch.setattr(Residency, "chunk_rows", property(lambda self: self.block_rows))
    assert_same_bits(fit(X, n_clusters=10, algorithm="brute"), resident)


def test_a_memory_limit_gives_the_same_bits(tmp_path):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40_000, 500)).astype("float32") + rng.normal(size=(40, 500))[np.arange(40_000) % 40].astype(
        "float32"
    )
    np.save(tmp_path / "rows.npy", X)  # 80 MB
    limited = fit(tmp_path / "rows.npy", n_clusters=40, memory_limit=120_000_000)
    assert_same_bits(limited, fit(X, n_clusters=40))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("density", ["gaussian", "cutoff"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
def test_weights_and_given_distances(metric, weighted, density, dtype, monkeypatch):
    """The CPU's figures; the same bits where rows are streamed."""
    import cupy

    X = load_points("wide064")[0].astype("float64")
    X = np.concatenate([X, X[:200], X + 1e-3 * X.std()])
    rows = cdist(X, X, "chebyshev") if metric == "precomputed" else X
    weights = np.random.default_rng(0).exponential(size=len(X)) if weighted else None
    options = {"n_clusters": 16, "metric": metric, "density": density, "dtype": dtype, "dc": 90.0}

    def run(device, rows):
        return DensityPeaks(device=device, client=None, halo=True, **options).fit(rows, sample_weight=weights)

    ours, theirs = run("cpu", rows), run("cuda", rows)
    np.testing.assert_allclose(theirs.rho_, ours.rho_, rtol=1e-5 if dtype == "float32" else 1e-12)
    np.testing.assert_array_equal(theirs.labels_, ours.labels_)
    np.testing.assert_array_equal(theirs.rho_[:200], theirs.rho_[1024:1224])
    assert_same_bits(run("cuda", cupy.asarray(rows)), theirs)
    monkeypatch.setattr(Residency, "resident", lambda self, rows: False)
    monkeypatch.setattr(Residency, "chunk_rows", property(lambda self: self.block_rows))
    assert_same_bits(run("cuda", rows), theirs)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_same_bits_on_several_gpus(size, tmp_path):
    import cupy

    for package in ("distributed", "dask_cuda"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if cupy.cuda.runtime.getDeviceCount() < size:
        pytest.skip(f"fewer than {size} GPUs here")
    from dask_cuda import LocalCUDACluster
    from distributed import Client

    rng = np.random.default_rng(0)
    sets = {
        "2-D": rng.normal(size=(60_000, 2)).astype("float32"),
        "128-D": (rng.normal(size=(20_000, 128)) + 3 * (np.arange(20_000) % 7)[:, None]).astype("float32"),
    }
    with (
        LocalCUDACluster(n_workers=size, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for name, X in sets.items():
            path = tmp_path / f"{name}.npy"
            np.save(path, X)
            for options in ({"algorithm": "brute"}, {"density": "cutoff"}, {"dtype": "float64"}):
                one = fit(X, n_clusters=7, **options)
                assert_same_bits(fit(path, client=client, n_workers=size, n_clusters=7, **options), one)
            weights = rng.exponential(size=len(X))
            one, many = (
                DensityPeaks(7, device="cuda", client=where, n_workers=ranks, halo=True).fit(X, sample_weight=weights)
                for where, ranks in ((None, None), (client, size))
            )
            assert_same_bits(many, one)
        X = sets["2-D"][:9000]
        D = cdist(X, X).astype("float32")
        assert_same_bits(*(fit(D, client=where, metric="precomputed", n_clusters=7) for where in (None, client)))
