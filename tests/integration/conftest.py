"""One local Dask cluster for all tests of several ranks; its workers are processes of one thread each."""

from __future__ import annotations

import logging
import time

import pytest

RANKS = 4


@pytest.fixture(scope="session")
def dask_client():
    """A client of four CPU workers. Never the default client, so that client="auto" stays in-process."""
    dask = pytest.importorskip("dask")
    distributed = pytest.importorskip("distributed")
    with (
        dask.config.set(
            {
                # What a cluster finds out about itself, from 2 to 100 times a second, takes a fifth of a core all the
                # time the tests run; nothing here reads it.
                "distributed.worker.profile.enabled": False,
                "distributed.admin.tick.interval": "1s",
                "distributed.admin.system-monitor.interval": "5s",
                "distributed.worker.memory.monitor-interval": "1s",
            }
        ),
        distributed.LocalCluster(
            n_workers=RANKS,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def client(dask_client):
    """`dask_client` with all its workers there, also after a test that killed some.

    A worker is there once its nanny knows, too: one that is killed between its call to the scheduler and its nanny's
    notice of it would not be started again.
    """
    from distributed.core import Status

    end = time.monotonic() + 60
    dask_client.wait_for_workers(RANKS, timeout=60)
    while not all(nanny.process.status == Status.running for nanny in dask_client.cluster.workers.values()):
        assert time.monotonic() < end, "a nanny does not hear of its worker"
        time.sleep(0.02)
    return dask_client


@pytest.fixture
def ranks(request):
    """A function that opens the cluster of ``size`` CPU ranks: 1 is in-process, more are Dask workers."""
    from mgclust.engine.cluster import connect

    def open_ranks(size: int):
        if size == 1:
            return connect(None, "cpu")
        return connect(request.getfixturevalue("client"), "cpu", n_workers=size)

    return open_ranks
