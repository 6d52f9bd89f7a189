"""The web process under attack: its memory, and how long a look at its health takes meanwhile.

Allowed: 400 MiB resident at most, and 1 s for /healthz. The attacks are one connection with a header of 118 MiB, 300
connections whose bodies stop a byte short of 1 MiB, without a token and with one, 1,792 bodies of 14 users that stop a
byte short of 512 KiB, whole bodies of many keys from 8 connections again and again, 500 unfinished heads, 100,000
pipelined requests, and 800 event streams. Each is held for --hold seconds.

Three more with a token, each again and again from so many connections: 8 ask for the picture of a job whose data are a
CSV of 3 x 100,000, a Parquet file of 1,048,576 x 64 equal values, or a zarr array with a chunk of 16 KiB that grows to
2.9 GiB; 60 for that of a job whose data were replaced by a FIFO; 8 list all of 200 jobs, each of 600 sources with long
names. `answers` counts their answers by status.

    python -m benchmarks.service.attack --out benchmarks/results/service/attack.json
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import secrets
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pyarrow as pa
import zarr
from pyarrow import parquet

from benchmarks.service.load import Served, watchers
from benchmarks.support import record as bench
from mgclust import DensityPeaks
from mgclust.service.queue.models import Job, open_database, writing
from mgclust.service.settings import Settings

ALLOWED_MEMORY, ALLOWED_LOOK = 400.0, 1.0
MUCH = 118 << 20


@contextlib.contextmanager
def measured(served: Served, told: dict[str, float]) -> Iterator[None]:
    """Measure the largest memory of the web process in MiB and the longest check of its health, within the block.

    `look_processor` is the largest processor time of the web process during one check. If `look_processor` is far below
    the time of the longest check, this check waited for other programs.
    """
    process, ended = psutil.Process(served._process.pid), threading.Event()
    told |= {"peak": 0.0, "look": 0.0, "look_processor": 0.0, "looks": 0}

    def used() -> float:
        return float(sum(process.cpu_times()[:2]))

    def watch_memory() -> None:
        while not ended.wait(0.02):
            told["peak"] = max(told["peak"], process.memory_info().rss / 2**20)

    def look() -> None:
        while not ended.wait(0.1):
            start, before = time.perf_counter(), used()
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{served.url}/healthz", timeout=60)
            told["look"] = max(told["look"], time.perf_counter() - start)
            told["look_processor"] = max(told["look_processor"], used() - before)
            told["looks"] += 1

    threads = [threading.Thread(target=watch_memory), threading.Thread(target=look)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


def sent(opened: socket.socket, data: bytes) -> int:
    """How much of it the other end took within 5 s."""
    view, count = memoryview(data), 0
    with contextlib.suppress(OSError):
        while count < len(data):
            count += opened.send(view[count : count + (1 << 16)])
    return count


def is_open(opened: socket.socket) -> bool:
    opened.setblocking(False)
    try:
        while opened.recv(1 << 20):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def wide(root: Path) -> tuple[Path, list[int]]:
    """965 KiB of text, and its shape."""
    lines = (",".join([f"{row}"] * 100_000) for row in (1, 2, 3))
    (root / "wide.csv").write_text("\n".join(lines) + "\n")
    return root / "wide.csv", [3, 100_000]


def equal(root: Path) -> tuple[Path, list[int]]:
    """A small file of one row group that is large."""
    table = pa.table({f"c{j}": pa.array(np.zeros(2**20)) for j in range(64)})
    parquet.write_table(table, root / "equal.parquet", row_group_size=2**20)
    return root / "equal.parquet", [2**20, 64]


def growing(root: Path) -> tuple[Path, list[int]]:
    """A store whose one chunk should have 16 KiB."""
    gzipped = zarr.codecs.GzipCodec()
    array = zarr.create_array(
        str(root / "growing.zarr"), shape=(64, 32), chunks=(64, 32), dtype="f8", compressors=gzipped
    )
    array[:] = 1
    (chunk,) = (path for path in (root / "growing.zarr").rglob("*") if path.is_file() and path.suffix != ".json")
    with gzip.open(chunk, "wb") as file:
        for _ in range(2900):
            file.write(bytes(1 << 20))
    return root / "growing.zarr", [64, 32]


def computed(data: Path, path: Path, shape: list[int]) -> str:
    """A job that is said to have been computed from this file; its id."""
    settings, id_ = Settings(data=data), secrets.token_hex(16)
    rows = np.random.default_rng(0).normal(size=(20, 2))
    folder = settings.attempt_folder(id_, 1) / "result"
    folder.parent.mkdir(parents=True)
    DensityPeaks(n_clusters=2, client=None, device="cpu").fit(rows).result_.save(folder)
    said = json.loads((folder / "result.json").read_text())
    said["source"]["shape"] = shape
    (folder / "result.json").write_text(json.dumps(said))
    engine = open_database(settings.database)
    with writing(engine) as session:
        session.add(Job(id=id_, owner="admin", method="density-peaks", priority=0, attempt=1, state="SUCCEEDED",
                        created=time.time(), finished=time.time(), begun_before=0, cancel=False, size=0,
                        request={"sources": [{"path": str(path)}], "parameters": {}}))  # fmt: skip
    engine.dispose()
    return id_


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--hold", type=float, default=5.0)
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    os.environ.pop("MGCLUST_URL", None)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        points = data / "points.npy"
        np.save(points, np.zeros((10, 2)))

        root = data / "root"
        root.mkdir()
        answers: Counter[int] = Counter()
        unlimited = {"roots": root, "rate_per_token": 1e6, "rate_per_address": 1e6}

        def attack(name: str, act: Callable[[Served, Any], list[socket.socket]], **settings: Any) -> None:
            answers.clear()
            served = Served(data / name.replace(" ", "-"), "--no-runner", **settings)
            with served as service:
                begun = psutil.Process(served._process.pid).memory_info().rss / 2**20
                told: dict[str, float] = {}
                with measured(served, told):
                    opened = act(served, service)
                    time.sleep(options.hold)
                    left = sum(is_open(each) for each in opened)
                for each in opened:
                    each.close()
            met = told["peak"] <= ALLOWED_MEMORY and told["look"] <= ALLOWED_LOOK
            out.add(name, begun_mib=begun, peak_mib=told["peak"], longest_look=told["look"],
                    look_processor=told["look_processor"], looks=told["looks"], connections=len(opened),
                    open_at_the_end=left, answers=dict(answers), met=met)  # fmt: skip

        def ask(served: Served, paths: list[str], connections: int) -> None:
            """So many connections, each with one request after the other, for the time of an attack."""
            end, headers = time.monotonic() + options.hold, {"Authorization": f"Bearer {served.token()}"}

            def go_on(first: int) -> None:
                asked = 0
                while time.monotonic() < end:
                    http = HTTPConnection(served.url.removeprefix("http://"), timeout=120)
                    http.request("GET", f"/api/v1/{paths[(first + asked) % len(paths)]}", headers=headers)
                    answer = http.getresponse()
                    while answer.read(1 << 16):
                        pass
                    answers[answer.status] += 1
                    asked += 1
                    http.close()

            with ThreadPoolExecutor(connections) as pool:
                list(pool.map(go_on, range(connections)))

        def pictures(make: Callable[[Path], tuple[Path, list[int]]]) -> Callable[[Served, Any], list[socket.socket]]:
            path, shape = make(root)

            def act(served: Served, service: Any) -> list[socket.socket]:
                ask(served, [f"jobs/{computed(served.data, path, shape)}/points"], 8)
                return []

            return act

        def fifos(served: Served, service: Any) -> list[socket.socket]:
            os.mkfifo(root / "fifo.npy")
            ask(served, [f"jobs/{computed(served.data, root / 'fifo.npy', [20, 2])}/points"], 60)
            return []

        def lists(served: Served, service: Any) -> list[socket.socket]:
            np.save(root / "x.npy", np.zeros((10, 2)))
            source = {"path": str(root / "x.npy"), "name": "n" * 255}
            for _ in range(200):
                service.call("POST", "/jobs", json={"method": "density-peaks", "sources": [source] * 600})
            ask(served, ["jobs?limit=1000"], 8)
            return []

        def endless_header(served: Served, service: Any) -> list[socket.socket]:
            opened = connected(served.url)
            sent(opened, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Endless: " + b"a" * MUCH)
            return [opened]

        def bodies(shown: bool) -> Callable[[Served, Any], list[socket.socket]]:
            def act(served: Served, service: Any) -> list[socket.socket]:
                opened = [connected(served.url) for _ in range(300)]
                token = f"Authorization: Bearer {served.token()}\r\n" if shown else ""
                head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\n{token}Content-Length: 1048576\r\n\r\n".encode()
                for each in opened:
                    each.settimeout(0.2)
                    sent(each, head + b" " * 1_048_575)
                return opened

            return act

        def users(served: Served, service: Any) -> list[socket.socket]:
            names = [f"user{i}" for i in range(14)]
            for name in names:
                service.call("POST", "/users", json={"name": name, "role": "user"})
            tokens = [service.call("POST", "/tokens", json={"user": name, "days": 1})["token"] for name in names]
            opened: list[socket.socket] = []

            def flood(token: str) -> None:
                head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                own = [connected(served.url) for _ in range(128)]
                opened.extend(own)
                for each in own:
                    each.settimeout(0.2)
                    sent(each, head.encode() + b"Content-Length: 524288\r\n\r\n" + b" " * 524_287)

            with ThreadPoolExecutor(len(tokens)) as pool:
                list(pool.map(flood, tokens))
            return opened

        def keys(served: Served, service: Any) -> list[socket.socket]:
            body = b"{" + b",".join(b'"%040d":1' % i for i in range(9_900)) + b"}"
            head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.token()}\r\n"
            request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
            opened: list[socket.socket] = []
            end = time.monotonic() + options.hold
            while time.monotonic() < end:
                opened = [connected(served.url) for _ in range(8)]
                for each in opened:
                    sent(each, request)
                for each in opened:
                    assert each.recv(1 << 16).startswith(b"HTTP/1.1 4")
            return opened

        def heads(served: Served, service: Any) -> list[socket.socket]:
            opened = [connected(served.url) for _ in range(500)]
            for each in opened:
                sent(each, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 8000)
            return opened

        def pipelined(served: Served, service: Any) -> list[socket.socket]:
            opened = connected(served.url)
            sent(opened, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 100_000)
            return [opened]

        def streams(served: Served, service: Any) -> list[socket.socket]:
            request = {"method": "density-peaks", "sources": [{"upload": service.upload(points)}], "report": False}
            return watchers(served.url, served.token(), service.call("POST", "/jobs", json=request)["id"], 800)

        attack("a header of 118 MiB", endless_header)
        attack("300 bodies without a token", bodies(False))
        attack("300 bodies with a token", bodies(True))
        attack("1792 bodies of 14 users", users)
        attack("bodies of 9900 keys", keys)
        attack("500 unfinished heads", heads)
        attack("100000 pipelined requests", pipelined)
        attack("800 event streams", streams)
        for make in (wide, equal, growing):
            attack(f"pictures of a file, {make.__name__}", pictures(make), **unlimited)
        attack("60 pictures of a FIFO", fifos, **unlimited)
        attack("lists of long requests", lists, jobs_per_user=1000, **unlimited)


if __name__ == "__main__":
    main()
