"""Equal rows have equal densities on GPUs, bit for bit, wherever they are."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from mgclust import DensityPeaks
from mgclust.algorithms.density_peaks.passes import duplicate_rows, near_linear
from support import duplicate_cases

pytestmark = pytest.mark.gpu


def fit(X, client=None, **parameters):
    options = {"n_clusters": 10, "algorithm": "brute", "device": "cuda", "client": client, **parameters}
    return DensityPeaks(**options).fit(X)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("features", "metric", "parameters"), duplicate_cases.cases())
def test_equal_rows_have_equal_densities(features, metric, parameters, dtype):
    X = duplicate_cases.rows(features)
    model = fit(X, metric=metric, dtype=dtype, **parameters)
    assert model.exactness_["norm"] == ("l2-dot" if parameters else "l1" if metric == "manhattan" else "l2")
    duplicate_cases.assert_ties_follow_the_rule(model, X)


def test_rows_that_the_grid_leaves_to_direct_sums(monkeypatch):
    monkeypatch.setattr(near_linear, "RHO_TOLERANCE", 1e-16)
    X = duplicate_cases.rows("few")
    model = fit(X, algorithm="grid")
    assert model.exactness_["rho_recomputed_rows"] == len(X)
    duplicate_cases.assert_ties_follow_the_rule(model, X)


def test_streamed_rows(tmp_path):
    """More rows than may stay on the device."""
    X = np.tile(duplicate_cases.rows("many"), (4, 20))[:40_000]  # 77 MB
    np.save(tmp_path / "rows.npy", X.astype("float32"))
    resident = fit(X)
    streamed = fit(tmp_path / "rows.npy", memory_limit=120_000_000)
    duplicate_cases.assert_ties_follow_the_rule(resident, X)
    assert streamed.rho_.tobytes() == resident.rho_.tobytes()


def test_hashes_are_the_hosts():
    import cupy

    for dtype in ("float32", "float64"):
        x = duplicate_cases.rows("all").astype(dtype)
        hashes = duplicate_rows.row_hashes(cupy.asarray(x), cupy)
        np.testing.assert_array_equal(hashes.get(), duplicate_rows.row_hashes(x, np))
        first = duplicate_rows.first_with_hash(hashes, cupy)
        np.testing.assert_array_equal(first.get(), duplicate_rows.first_with_hash(hashes.get(), np))


def test_two_gpus():
    import cupy

    for package in ("distributed", "dask_cuda"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("fewer than 2 GPUs here")
    from dask_cuda import LocalCUDACluster
    from distributed import Client

    with (
        LocalCUDACluster(n_workers=2, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for features in duplicate_cases.FEATURES:
            X = duplicate_cases.rows(features)
            model = fit(X, client, n_workers=2)
            duplicate_cases.assert_ties_follow_the_rule(model, X)
            assert model.rho_.tobytes() == fit(X).rho_.tobytes()
