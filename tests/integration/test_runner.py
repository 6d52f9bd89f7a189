"""Web and runner in processes of their own, as in deploy/; on PostgreSQL where MGCLUST_TEST_POSTGRES names one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest

from mgclust import Service
from mgclust.service.records import open_database

POSTGRES = os.environ.get("MGCLUST_TEST_POSTGRES", "")  # URL of a database whose tables may be dropped

pytestmark = pytest.mark.timeout(150)


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request):
    if request.param == "sqlite":
        return ()
    if not POSTGRES:
        pytest.skip("needs PostgreSQL: MGCLUST_TEST_POSTGRES=postgresql+psycopg://...")
    engine = open_database(POSTGRES)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    return ("--database", POSTGRES)


def test_a_runner_beside_the_web_process(database, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data, url = tmp_path / "data", f"http://127.0.0.1:{port}"
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(300, 3)))
    processes = []

    def start(command, *options):
        common = ["--data", str(data), *database, *options]
        processes.append(subprocess.Popen([sys.executable, "-m", "mgclust", command, *common]))
        return processes[-1]

    def answers():
        try:
            return httpx.get(f"{url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    try:
        start("serve", "--port", str(port), "--no-runner")
        wait_for(answers)
        service = Service(url, (data / "token").read_text().strip())
        job = service.submit("density-peaks", tmp_path / "points.npy", report=False, n_clusters=3)
        time.sleep(1)
        assert job.info["state"] == "PENDING"  # nobody is there to compute it
        first = start("runner", "--cpu")
        assert job.wait().info["scores"]["n_clusters"] == 3
        second = start("runner", "--cpu")  # waits for the first one's end
        first.terminate()
        assert first.wait(40) == 0
        job = service.submit("density-peaks", tmp_path / "points.npy", report=False, n_clusters=4)
        assert job.wait().info["scores"]["n_clusters"] == 4
        second.terminate()
        assert second.wait(40) == 0
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(40)
