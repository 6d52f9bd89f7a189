"""Arrays of fewer blocks than there are GPUs: what one GPU finds, by every method."""

from __future__ import annotations

import importlib.util

import pytest

from support import tiny_cases

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def client():
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
        yield client


@pytest.mark.parametrize("method", tiny_cases.METHODS)
def test_gpus_without_rows(method, client):
    for n in tiny_cases.SIZES:
        alone = tiny_cases.outcome(method, n, device="cuda", client=None)
        assert tiny_cases.outcome(method, n, device="cuda", client=client, n_workers=2) == alone, f"{n} rows"
