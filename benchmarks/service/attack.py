"""The web process under attack: its memory, and how long a look at its health takes meanwhile.

Allowed: 400 MiB resident at most, and 1 s for /healthz. The attacks are one connection with a header of 118 MiB, 300
connections whose bodies stop a byte short of 1 MiB, without a token and with one, 1,792 bodies of 14 users that stop a
byte short of 512 KiB, whole bodies of many keys from 8 connections again and again, 500 unfinished heads, 100,000
pipelined requests, and 800 event streams. Each is held for --hold seconds.

    python -m benchmarks.service.attack --out benchmarks/results/service/attack.json
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.service.load import Served, watchers
from benchmarks.support import record as bench

ALLOWED_MEMORY, ALLOWED_LOOK = 400.0, 1.0
MUCH = 118 << 20


@contextlib.contextmanager
def measured(served: Served, told: dict[str, float]) -> Iterator[None]:
    """The most memory of the web process in MiB, and the longest look at its health, within the block."""
    process, ended = psutil.Process(served._process.pid), threading.Event()
    told |= {"peak": 0.0, "look": 0.0, "looks": 0}

    def watch_memory() -> None:
        while not ended.wait(0.02):
            told["peak"] = max(told["peak"], process.memory_info().rss / 2**20)

    def look() -> None:
        while not ended.wait(0.1):
            start = time.perf_counter()
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{served.url}/healthz", timeout=60)
            told["look"] = max(told["look"], time.perf_counter() - start)
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

        def attack(name: str, act: Callable[[Served, Any], list[socket.socket]]) -> None:
            served = Served(data / name.replace(" ", "-"), "--no-runner", streams_per_user=1000)
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
            out.add(name, begun_mib=begun, peak_mib=told["peak"], longest_look=told["look"], looks=told["looks"],
                    connections=len(opened), open_at_the_end=left, met=met)  # fmt: skip

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


if __name__ == "__main__":
    main()
