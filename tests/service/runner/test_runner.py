"""Web and runner in processes of their own, as in deploy/; on PostgreSQL where MGCLUST_TEST_POSTGRES names one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest

from mgclust import Service
from mgclust.base.errors import ClusterUnavailableError
from mgclust.engine.dask import cluster as cluster_module
from mgclust.service.queue.models import open_database
from mgclust.service.runner import attempt
from mgclust.service.settings import Settings
from support.kernel_caches import give_kernels
from support.service_process import free_port
from support.waiting import wait_for

POSTGRES = os.environ.get("MGCLUST_TEST_POSTGRES", "")  # URL of a database whose tables may be dropped

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request):
    if request.param == "sqlite":
        return {}
    if not POSTGRES:
        pytest.skip("needs PostgreSQL: MGCLUST_TEST_POSTGRES=postgresql+psycopg://...")
    engine = open_database(POSTGRES)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    return {"MGCLUST_SERVICE_DATABASE": POSTGRES}  # where a password may be


def test_an_attempt_waits_for_its_cluster(tmp_path, monkeypatch):
    """A scheduler that comes back in time costs no attempt; one that does not is the cluster's fault."""
    distributed = pytest.importorskip("distributed")
    connect_timeout = cluster_module.CONNECT_TIMEOUT
    monkeypatch.setattr(cluster_module, "CONNECT_TIMEOUT", 0.5)
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(300, 3)))
    port = free_port()
    order = {
        "request": {
            "method": "density-peaks",
            "sources": [{"path": "points.npy"}],
            "parameters": {"n_clusters": 3},
            "report": False,
        },
        "place": {"scheduler": f"tcp://127.0.0.1:{port}", "workers": 1, "cpu": True},
        "files": {"0": {"root": str(tmp_path), "name": "points.npy"}},
        "max_rows": 0,
        "checkpoint": str(tmp_path / "checkpoint"),
        "checkpoint_seconds": 60.0,
    }
    monkeypatch.setattr(attempt, "CLUSTER_WAIT_SECONDS", 0.0)
    with pytest.raises(ClusterUnavailableError, match="no Dask scheduler answered") as caught:
        attempt._compute(order, tmp_path, print)
    assert attempt.fault_of(caught.value) == "cluster"
    monkeypatch.setattr(attempt, "CLUSTER_WAIT_SECONDS", 60.0)
    with contextlib.ExitStack() as stack:

        def begin(event):
            if event == {"stage": "waiting for the cluster"}:
                monkeypatch.setattr(cluster_module, "CONNECT_TIMEOUT", connect_timeout)
                stack.enter_context(
                    distributed.LocalCluster(
                        n_workers=1, processes=False, scheduler_port=port, dashboard_address="127.0.0.1:0"
                    )
                )

        assert attempt._compute(order, tmp_path, begin)["scores"]["n_clusters"] == 3


def test_a_runner_loads_nothing_that_only_attempts_need():
    """It is started again after each fault, and should soon be there."""
    told = "import sys, mgclust.service.runner.runner\n"
    told += "print(*{'sklearn', 'numba', 'pandas', 'fastapi'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, check=True, text=True).stdout == "\n"


@pytest.mark.slow
def test_a_runner_beside_the_web_process(database, tmp_path):
    port = free_port()
    data, url = tmp_path / "data", f"http://127.0.0.1:{port}"
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(300, 3)))
    processes = []

    def start(command, *options):
        words = [sys.executable, "-m", "mgclust", command, "--data", str(data), *options]
        processes.append(subprocess.Popen(words, env=os.environ | database))
        return processes[-1]

    def answers():
        try:
            return httpx.get(f"{url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    try:
        start("serve", "--port", str(port), "--no-runner")
        wait_for(answers)
        give_kernels(Settings(data=data).cache_folder("admin") / "numba")
        service = Service(url, (data / "token").read_text().strip())
        job = service.submit("density-peaks", tmp_path / "points.npy", report=False, n_clusters=3)
        time.sleep(1)
        assert job.refresh().state == "PENDING"  # there is no runner to compute it
        first = start("runner", "--cpu")
        assert job.wait().info["scores"]["n_clusters"] == 3
        second = start("runner", "--cpu")  # waits for the first one's end
        first.terminate()
        assert first.wait(120) == 0
        job = service.submit("density-peaks", tmp_path / "points.npy", report=False, n_clusters=4)
        assert job.wait().info["scores"]["n_clusters"] == 4
        second.terminate()
        assert second.wait(120) == 0
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(120)
