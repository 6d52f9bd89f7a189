"""A GPU worker that dies, a run that is cancelled: the others are freed, and the next run works."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from mgclust import DensityPeaks, open_dataset
from mgclust.base.errors import RunCancelled, WorkerLost

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(150)]


@pytest.fixture
def client():
    cupy = pytest.importorskip("cupy")
    dask_cuda = pytest.importorskip("dask_cuda")
    from distributed import Client

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("fewer than 2 GPUs here")
    with (
        dask_cuda.LocalCUDACluster(n_workers=2, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def model(client):
    return DensityPeaks(n_clusters=3, client=client, n_workers=2, device="cuda", algorithm="brute", retries=0)


def rows(n):
    return np.random.default_rng(0).normal(size=(n, 2)).astype("float32")


def test_a_killed_worker_ends_the_run(client):
    before = model(client).fit(rows(20_000)).labels_
    pids = client.run(os.getpid)
    address, pid = sorted(pids.items())[1]
    killed = []

    def kill():
        time.sleep(2)
        killed.append(time.monotonic())
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(WorkerLost, match=address):
        model(client).fit(rows(8_000_000))  # about 25 s on two GPUs
    assert killed and time.monotonic() - killed[0] < 30
    thread.join()
    client.wait_for_workers(2, timeout=60)
    np.testing.assert_array_equal(model(client).fit(rows(20_000)).labels_, before)


def test_a_cancelled_run_stops_all_ranks(client):
    told = []

    def cancel(event):
        if event["stage"] == "rho" and not told:
            told.append(time.monotonic())
            raise RunCancelled("enough")

    with pytest.raises(RunCancelled):
        model(client).fit_dataset(open_dataset(rows(8_000_000)), cancel, provenance=False)
    assert time.monotonic() - told[0] < 5
    assert model(client).fit(rows(20_000)).n_clusters_ == 3
