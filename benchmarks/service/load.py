"""The job service under load: many clients submit small jobs at once; a table of 100,000 finished jobs is listed.

Allowed, on 2 cores: 1,000 jobs from 50 clients without an error, 99 of 100 submits within 200 ms; with 100,000 finished
jobs a page of 50 within 100 ms. Submitting is one HTTP request, answered when the job is on disk (SQLite, WAL,
synchronous=FULL). Each of --starts times the service has just been started; its first requests count. Clients send
their next job when the last one is answered; they are threads of two processes beside the service, each with one
connection kept open and Python's http.client, and share the two cores with the service and, unless --idle, with the
runner, which computes meanwhile. What the clients and the web process spend is told beside. Then all of it once more
with --streams event streams open, of a job that waits, and pages are listed beside them.

    python -m benchmarks.service.load --out benchmarks/results/service/load.json
    python -m benchmarks.service.load --idle --streams 0
"""

from __future__ import annotations

import json
import multiprocessing
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from sqlalchemy import insert

from benchmarks.support import record as bench
from mgclust import Service
from mgclust.service.queue.access import add_user, first_token, new_token
from mgclust.service.queue.models import Job, migrate, open_database, writing

ALLOWED_SUBMIT, ALLOWED_LIST = 0.2, 0.1
PROCESSES = 2  # of clients
BEFORE = 60  # jobs that the runner takes before the one that is watched, which still waits at the end
LONGEST = 90.0  # seconds to wait for the jobs themselves


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


# A user of the service has at most 64 streams.
MANY_STREAMS = """
from mgclust.cli import main
from mgclust.service.web.perimeter import authentication

authentication.MAX_OPEN["streams"] = 1000
main()
"""


class Served:
    """A service of its own, ended with the block."""

    def __init__(self, folder: Path, *options: str, **settings: object) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-c", MANY_STREAMS, "serve", "--cpu", "--data", str(folder), "--port", str(port)]
        given = {f"MGCLUST_SERVICE_{name.upper()}": str(value) for name, value in settings.items()}
        self._process = subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL, env=os.environ | given)
        self.data, self._token = folder, folder / "token"

    def token(self) -> str:
        """What the service left for its account."""
        return self._token.read_text().strip()

    def spent(self) -> float:
        """Processor time of the web process so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def __enter__(self) -> Service:
        while True:
            try:
                httpx.get(f"{self.url}/healthz").raise_for_status()
                return Service(self.url, self.token())
            except httpx.TransportError:
                time.sleep(0.1)

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        self._process.wait()


def client_process(
    url: str, token: str, request: dict[str, Any], clients: int, each: int, gate: Any, told: Any
) -> None:
    """So many clients, a thread each; what became of their submits, and the processor time that all of them took."""
    answers: list[tuple[float, int]] = []

    def client() -> None:
        http = HTTPConnection(url.removeprefix("http://"))
        http.connect()
        http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        gate.wait()
        for _ in range(each):
            body = json.dumps(request | {"key": secrets.token_hex(8)})
            start = time.perf_counter()
            http.request("POST", "/api/v1/jobs", body, headers)
            answer = http.getresponse()
            answer.read()
            answers.append((time.perf_counter() - start, answer.status))

    spent = time.process_time()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told.put((answers, time.process_time() - spent))


def watchers(url: str, token: str, id_: str, count: int) -> list[socket.socket]:
    """So many connections that watch a job and read nothing but the beginning."""
    host, port = url.removeprefix("http://").split(":")
    opened = []
    for _ in range(count):
        opened.append(watching := socket.create_connection((host, int(port))))
        lines = (f"GET /api/v1/jobs/{id_}/events HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", "", "")
        watching.sendall("\r\n".join(lines).encode())
        assert watching.recv(12) == b"HTTP/1.1 200"
    return opened


def submits(out: bench.Record, options: Any, folder: Path, streams: int, last: bool) -> None:
    """A service of its own, its first jobs; of the last one also their end is waited for."""
    folder.mkdir()
    points = folder / "points.npy"
    np.save(points, np.random.default_rng(0).normal(size=(200, 2)))
    served = Served(
        folder / "load",
        *(["--no-runner"] if options.idle else []),
        jobs_per_user=options.jobs + 1 + BEFORE,
    )
    with served as service:
        request = {"method": "density-peaks", "sources": [{"upload": service.upload(points)}], "report": False}
        if streams and not options.idle:
            for _ in range(BEFORE):
                service.call("POST", "/jobs", json=request)
        watched = service.call("POST", "/jobs", json=request | {"priority": -100})["id"] if streams else ""
        opened = watchers(service.url, served.token(), watched, streams)
        spawn = multiprocessing.get_context("spawn")
        gate, told = spawn.Barrier(options.clients + 1), spawn.Queue()
        share, each = options.clients // PROCESSES, options.jobs // options.clients
        given = (service.url, served.token(), request, share, each, gate, told)
        processes = [spawn.Process(target=client_process, args=given) for _ in range(PROCESSES)]
        for process in processes:
            process.start()
        spent = served.spent()
        gate.wait()
        start = time.perf_counter()
        found = [told.get() for _ in processes]
        took, spent = time.perf_counter() - start, served.spent() - spent
        for process in processes:
            process.join()
        seconds = [second for answers, _ in found for second, _ in answers]
        errors = sum(status != 201 for answers, _ in found for _, status in answers)
        p99 = float(np.quantile(seconds, 0.99))
        out.add(
            f"{len(seconds)} jobs from {options.clients} clients",
            runner=not options.idle,
            streams=streams,
            submits=len(seconds),
            clients=options.clients,
            errors=errors,
            submits_per_second=len(seconds) / took,
            median=statistics.median(seconds),
            p99=p99,
            slowest=max(seconds),
            web_cpu_seconds_per_submit=spent / len(seconds),
            client_cpu_seconds_per_submit=sum(cpu for _, cpu in found) / len(seconds),
            allowed_p99=ALLOWED_SUBMIT,
            met=not errors and p99 <= ALLOWED_SUBMIT,
        )
        if streams:
            assert service.job(watched).state == "PENDING", "the streams were not idle"
            pages = []
            for _ in range(50):
                start = time.perf_counter()
                service.call("GET", "/jobs", params={"limit": 50})
                pages.append(time.perf_counter() - start)
            p99 = float(np.quantile(pages, 0.99))
            name = f"a page of 50 beside {streams} event streams"
            out.add(name, median=statistics.median(pages), p99=p99, allowed=ALLOWED_LIST, met=p99 <= ALLOWED_LIST)
        for each in opened:
            each.close()
        if options.idle or not last:
            return
        end = start + LONGEST
        while time.perf_counter() < end and (service.jobs("PENDING", 1) or service.jobs("RUNNING", 1)):
            time.sleep(0.5)
        out.add(
            f"all of them computed, or {LONGEST:g} s",
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
    add_user(engine, "ann", "user")
    _, token = new_token(engine, "ann")
    now = time.time()
    rows = [
        {"id": f"{i:032x}", "owner": "ann" if i % 2 else "admin", "method": "density-peaks",
         "request": {"sources": [{"upload": "x"}]}, "priority": 0, "state": "FAILED" if i % 10 < 2 else "SUCCEEDED",
         "created": now - i, "started": now - i, "finished": now - i + 1, "attempt": 1, "begun_before": 0,
         "cancel": False, "scores": {"n_clusters": 15}}
        for i in range(options.finished)
    ]  # fmt: skip
    with writing(engine) as session:
        session.connection().execute(insert(Job), rows)
    engine.dispose()
    middle, last = (f"{now - i:.6f},{i:032x}" for i in (options.finished // 2 - 1, options.finished - 51))
    with Served(data, "--no-runner") as admin:
        for who, service in (("all of them", admin), ("a user's half", Service(admin.url, token))):
            pages = {
                "first": {},
                "middle": {"before": middle},
                "last": {"before": last},
                "failed": {"state": "FAILED"},
                "failed, from the middle": {"state": "FAILED", "before": middle},
                "waiting": {"state": "PENDING"},
            }
            for name, wanted in pages.items():
                seconds = []
                for _ in range(50):
                    start = time.perf_counter()
                    found = service.call("GET", "/jobs", params={"limit": 50} | wanted)
                    seconds.append(time.perf_counter() - start)
                p99 = float(np.quantile(seconds, 0.99))
                out.add(
                    f"a page of 50 among {options.finished}, {who}: {name}",
                    jobs=len(found),
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
    parser.add_argument("--starts", type=int, default=7, help="services that are started for the submits")
    parser.add_argument("--streams", type=int, default=800, help="event streams open the second time")
    parser.add_argument("--idle", action="store_true", help="without a runner: nothing is computed meanwhile")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    os.environ.pop("MGCLUST_URL", None)
    with tempfile.TemporaryDirectory() as folder:
        listing(out, options, Path(folder))
        for streams in sorted({0, options.streams}):
            for start in range(options.starts):
                submits(out, options, Path(folder) / f"{streams}-{start}", streams, start == options.starts - 1)


if __name__ == "__main__":
    main()
