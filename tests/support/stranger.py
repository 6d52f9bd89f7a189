"""Another account of this machine, which tries ports: Dask, HTTP and garbage, with TLS and without."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import psutil
import pytest

UID = 65534

# Reads lists of addresses, one a line; prints what it has heard in the end, but for alerts of TLS, which say nothing.
SOURCE = r"""
import asyncio, concurrent.futures, json, os, socket, ssl, sys, time
UID = int(sys.argv[1])
from distributed.comm import connect
from distributed.security import Security

PATHS = ("/", "/status", "/info/main/workers.html", "/json/counts.json", "/json/identity.json", "/metrics", "/health",
         "/sysmon", "/individual-plots.json", "/api/v1/get_workers")
HTTP = [f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode() for path in PATHS]
GARBAGE = [os.urandom(4096), b"\0" * 4096, b"", b"\x16\x03\x01", (b"\x02" + bytes(7)) * 3]
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE
OWN = Security.temporary().get_connection_args("client")

def heard(address, data, tls):
    got, end = b"", time.monotonic() + 2
    try:
        with socket.create_connection(address, timeout=1) as sock:
            sock = TLS.wrap_socket(sock) if tls else sock
            with sock:
                sock.sendall(data)
                while time.monotonic() < end and len(got) < 4096 and (more := sock.recv(4096)):
                    got += more
    except OSError:
        pass
    return "" if not tls and got[:2] == b"\x15\x03" and len(got) <= 7 else got[:200].decode("latin-1")

async def dask(address, protocol):
    host, port = address
    host = f"[{host}]" if ":" in host else host
    try:
        comm = await connect(f"{protocol}://{host}:{port}", timeout=1, **(OWN if protocol == "tls" else {}))
        await comm.write({"op": "identity", "reply": True})
        return str(await asyncio.wait_for(comm.read(), 1))[:200]
    except Exception:
        return ""

def try_all(address):
    found = {}
    for tls in (False, True):
        for data in HTTP + GARBAGE:
            found[f"{address} {'tls' if tls else 'plain'} {data[:40]!r}"] = heard(address, data, tls)
    for protocol in ("tcp", "tls"):
        found[f"{address} dask {protocol}"] = asyncio.run(dask(address, protocol))
    return found

try_all(("127.0.0.1", 1))  # loads what may not be readable later
os.setgroups([])
os.setresgid(UID, UID, UID)
os.setresuid(UID, UID, UID)
assert os.getresuid() == (UID, UID, UID)
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print("ready", flush=True)
    tries = [pool.submit(try_all, tuple(address)) for line in sys.stdin for address in json.loads(line)]
    found = {what: words for each in tries for what, words in each.result().items()}
print(json.dumps({"tries": len(found), "heard": {what: words for what, words in found.items() if words}}))
"""


def listening(processes: list[psutil.Process]) -> set[tuple[str, int]]:
    """Addresses on which processes wait for connections."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {
                (each.laddr.ip, each.laddr.port)
                for each in process.net_connections("tcp")
                if each.status == psutil.CONN_LISTEN
            }
    return found


def keys_shown(processes: list[psutil.Process]) -> set[str]:
    """Processes that have a key in their environment or command line."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            words = [*process.cmdline(), *process.environ().values()]
            if any("PRIVATE KEY" in word for word in words):
                found.add(str(process))
    return found


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


class Stranger:
    """The other account, for a block."""

    def __init__(self) -> None:
        self.addresses: set[tuple[str, int]] = set()
        self.keys_shown: set[str] = set()

    def __enter__(self) -> Stranger:
        if os.geteuid() != 0:
            pytest.skip("changing accounts takes root")
        self._process = subprocess.Popen(
            [sys.executable, "-c", SOURCE, str(UID)],  # it changes its account after it has loaded its modules
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()

    def finish(self) -> tuple[int, dict[str, str]]:
        """How many tries there were, and what each port answered."""
        out, _ = self._process.communicate(timeout=200)
        said = json.loads(out)
        return said["tries"], said["heard"]

    def attack(self, addresses: set[tuple[str, int]]) -> None:
        """Try addresses, each once."""
        new = sorted(addresses - self.addresses)
        self.addresses |= addresses
        if new:
            self._process.stdin.write(json.dumps(new) + "\n")
            self._process.stdin.flush()

    @contextlib.contextmanager
    def attacking(self, processes) -> Iterator[None]:
        """Try whatever processes open, for as long as the block; `processes` is a function that returns them."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.01):
                found = processes()
                self.attack(listening(found))
                self.keys_shown |= keys_shown(found)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
