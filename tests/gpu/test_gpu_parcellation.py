"""Parcels on GPUs: the parcels of the CPU, and the same parcels on one and two GPUs."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from mgclust import Parcellation
from mgclust.data.neighbors import volume_neighbors
from mgclust.datasets import make_bold

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

ALGORITHMS = ("ward", "communities", "affinity-propagation")
NUMBERS = [10, 20, 40]


@pytest.fixture(scope="module")
def series():
    """Series of 2,500 voxels, some of them equal or constant, and the graph of neighbours."""
    bold, mask, _ = make_bold(shape=(16, 18, 14), n_parcels=20)
    rows = bold[mask].astype(np.float32)
    rows[100:140] = rows[100]
    rows[300:310] = 5.0
    return rows, volume_neighbors(mask, mask.shape)


def fit(series, algorithm, **where):
    rows, graph = series
    return Parcellation(NUMBERS, algorithm=algorithm, **where).fit(rows, neighbors=graph)


@pytest.fixture(scope="module")
def on_cpu(series):
    return {each: fit(series, each, client=None, device="cpu") for each in ALGORITHMS}


def assert_same(model, expected):
    for k in NUMBERS:
        np.testing.assert_array_equal(np.asarray(model.labels_for(k)), expected.labels_for(k))
    assert model.n_clusters_ == expected.n_clusters_ and model.homogeneity_ == expected.homogeneity_
    for name, column in expected.evaluation_.items():
        np.testing.assert_array_equal(model.evaluation_[name], column)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_gpu_finds_the_parcels_of_the_cpu(series, on_cpu, algorithm):
    assert_same(fit(series, algorithm, client=None, device="cuda"), on_cpu[algorithm])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_gpus_find_the_parcels_of_the_cpu(series, on_cpu, algorithm):
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
        assert_same(fit(series, algorithm, client=client, device="cuda", n_workers=2), on_cpu[algorithm])
