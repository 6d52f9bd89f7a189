"""The job service under load: many clients submit small jobs at once; a table of 100,000 finished jobs is listed.

Allowed, on 2 cores: 1,000 jobs from 50 clients without an error, 99 of 100 submits within 200 ms; with 100,000 finished
jobs a page of 50 within 100 ms. Submitting is one HTTP request and one transaction that is on disk (SQLite, WAL,
synchronous=FULL) before the answer; clients are threads of this process and share the two cores with the service and,
unless --idle, with the runner.

    python benchmarks/service_load.py --out benchmarks/results/service_load.json
"""

from __future__ import annotations

import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import record as bench

from mgclust import Service
from mgclust.service.access import first_token
from mgclust.service.records import Job, migrate, open_database, writing

ALLOWED_SUBMIT, ALLOWED_LIST = 0.2, 0.1


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


class Served:
    """A service of its own, ended with the block."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-m", "mgclust", "serve", "--cpu", "--data", str(folder), "--port", str(port)]
        self._process = subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL)
        self._token = folder / "token"

    def __enter__(self) -> Service:
        while True:
            try:
                httpx.get(f"{self.url}/healthz").raise_for_status()
                return Service(self.url, self._token.read_text().strip())
            except httpx.TransportError:
                time.sleep(0.1)

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        self._process.wait()


def submits(out: bench.Record, options: Any, folder: Path) -> None:
    points = folder / "points.npy"
    np.save(points, np.random.default_rng(0).normal(size=(200, 2)))
    with Served(folder / "load", *(["--no-runner"] if options.idle else [])) as service:
        upload = service.upload(points)
        request = {"method": "density-peaks", "sources": [{"upload": upload}], "report": False}
        seconds: list[float] = []
        errors: list[str] = []
        gate = threading.Barrier(options.clients)

        def client() -> None:
            headers = {"Authorization": service._http.headers["Authorization"]}
            with httpx.Client(base_url=f"{service.url}/api/v1", headers=headers, timeout=60) as http:
                gate.wait()
                for _ in range(options.jobs // options.clients):
                    start = time.perf_counter()
                    answer = http.post("/jobs", json=request | {"key": secrets.token_hex(8)})
                    seconds.append(time.perf_counter() - start)
                    if answer.status_code != 201:
                        errors.append(answer.text)

        threads = [threading.Thread(target=client) for _ in range(options.clients)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - start
        p99 = float(np.quantile(seconds, 0.99))
        out.add(
            f"{len(seconds)} jobs from {options.clients} clients",
            runner=not options.idle,
            errors=len(errors),
            submits_per_second=len(seconds) / took,
            median=statistics.median(seconds),
            p99=p99,
            slowest=max(seconds),
            allowed_p99=ALLOWED_SUBMIT,
            met=not errors and p99 <= ALLOWED_SUBMIT,
        )
        if options.idle:
            return
        while len(service.jobs("PENDING", 1)) or len(service.jobs("RUNNING", 1)):
            time.sleep(0.5)
        out.add(
            "all of them computed",
            seconds=time.perf_counter() - start,
            succeeded=len(service.jobs("SUCCEEDED", 1000)),
            failed=len(service.jobs("FAILED", 1000)),
        )


def listing(out: bench.Record, options: Any, folder: Path) -> None:
    data = folder / "listing"
    data.mkdir()
    engine = open_database(f"sqlite:///{data / 'service.db'}")
    migrate(engine)
    first_token(engine, data)
    now = time.time()
    with writing(engine) as session:
        session.add_all(
            Job(id=f"{i:032x}", owner="admin", method="density-peaks", request={"sources": [{"upload": "x"}]},
                state="SUCCEEDED" if i % 10 else "FAILED", created=now - i, started=now - i, finished=now - i + 1,
                attempt=1, cancel=False, scores={"n_clusters": 15})
            for i in range(options.finished)
        )  # fmt: skip
    engine.dispose()
    with Served(data, "--no-runner") as service:
        middle = service.jobs(limit=1000)[-1].id
        pages = {
            "newest": {},
            "failed": {"state": "FAILED"},
            "waiting": {"state": "PENDING"},
            "older": {"before": middle},
        }
        for name, wanted in pages.items():
            seconds = []
            for _ in range(50):
                start = time.perf_counter()
                service.call("GET", "/jobs", params={"limit": 50} | wanted)
                seconds.append(time.perf_counter() - start)
            p99 = float(np.quantile(seconds, 0.99))
            out.add(
                f"a page of 50 among {options.finished}: {name}",
                median=statistics.median(seconds),
                p99=p99,
                allowed=ALLOWED_LIST,
                met=p99 <= ALLOWED_LIST,
            )


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--finished", type=int, default=100_000)
    parser.add_argument("--idle", action="store_true", help="without a runner: nothing is computed meanwhile")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    os.environ.pop("MGCLUST_URL", None)
    with tempfile.TemporaryDirectory() as folder:
        listing(out, options, Path(folder))
        submits(out, options, Path(folder))


if __name__ == "__main__":
    main()
