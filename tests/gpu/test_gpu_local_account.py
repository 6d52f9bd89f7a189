"""Another account at every port of a run on several GPUs, those of NCCL included.

It hears nothing and changes no result. It may keep NCCL from connecting, which authenticates nothing before it waits:
then the run ends with a sentence within a minute and a half, and the next one, once the account has gone, succeeds.
"""

from __future__ import annotations

import os
import time

import numpy as np
import psutil
import pytest

from mgclust import DensityPeaks
from mgclust.base.errors import RunFailed
from mgclust.engine.dask.cluster import connect
from support.stranger import Stranger, family, listening

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
SIZE = 2


@pytest.fixture
def rows():
    cupy = pytest.importorskip("cupy")
    pytest.importorskip("dask_cuda")
    if cupy.cuda.runtime.getDeviceCount() < SIZE:
        pytest.skip(f"fewer than {SIZE} GPUs here")
    return np.random.default_rng(0).normal(size=(200_000, 8)).astype("float32")


def fit(client, rows):
    model = DensityPeaks(n_clusters=5, client=client, device="cuda", algorithm="brute").fit(rows)
    assert model.result_.hardware["ranks"] == (1 if client is None else SIZE)
    return model


def same(found, expected):
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert found.rho_.tobytes() == expected.rho_.tobytes()


def test_ports_of_a_run_on_gpus(rows):
    expected = fit(None, rows)
    with Stranger() as stranger:
        with connect("local", "cuda", n_workers=SIZE) as cluster:
            pids = cluster.client.run(os.getpid).values()
            workers = [process for pid in pids for process in family(psutil.Process(pid))]
            before = listening(workers)
            seen = set()

            def processes():
                seen.update(listening(workers))
                return workers

            begin = time.monotonic()
            with stranger.attacking(processes):
                try:
                    same(fit(cluster, rows), expected)
                except RunFailed as error:
                    assert "NCCL" in str(error)
            assert time.monotonic() - begin < 90
            assert len(before) == SIZE  # one port of Dask a worker
            assert len(seen) > len(before)  # those of NCCL, or of the ranks, were found
            assert {host for host, _ in seen} == {"127.0.0.1"}
            assert not {port for _, port in seen} & {28028}
        tries, heard = stranger.finish()
        assert tries
        assert not heard
        with connect("local", "cuda", n_workers=SIZE) as cluster:
            same(fit(cluster, rows), expected)
