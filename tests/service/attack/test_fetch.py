"""Servers that would hold the fetcher, and addresses that only look public."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from mgclust.errors import InputError, RunFailed
from mgclust.service import fetch as fetch_module
from mgclust.service.fetch import fetch, is_public

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: 1000000\r\n\r\n"


class Server:
    """Sends what it is given, part after part, to whatever connects, until it is hung up on."""

    def __init__(self, first: bytes, again: bytes, pause: float) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._parts, self._pause, self.stopped = (first, again), pause, threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self.stopped.is_set():
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            first, again = self._parts
            with connected:
                try:
                    connected.sendall(first)
                    while again and not self.stopped.wait(self._pause):
                        connected.sendall(again)
                    self.stopped.wait(0 if again else 60)
                except OSError:
                    pass

    def close(self) -> None:
        self.stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def get(server, folder, seconds=60.0, **how):
    base = f"http://data.example:{server.port}"
    given = {
        "resolve": lambda host, port, **_: [(0, 0, 0, "", ("127.0.0.1", port))], "public": lambda address: True,
    } | how  # fmt: skip
    return fetch(f"{base}/x.csv", folder / "x.csv", [f"{base}/"], 1 << 20, lambda event: None, seconds=seconds, **given)


FLOODS = {
    "100-Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "headers of informational answers": (b"", b"HTTP/1.1 100 Continue\r\n" + b"A: " + b"b" * 1000 + b"\r\n\r\n"),
    "one header": (OK + b"A: ", b"b" * 1000),
    "long headers": (OK, b"A: " + b"b" * 1000 + b"\r\n"),
    "folded header": (OK + b"A: b\r\n", b" " * 1000 + b"b\r\n"),
    "status line": (b"HTTP/1.1 200 ", b"x" * 1000),
}


@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.timeout(120)
def test_endless_heads(tmp_path, name):
    server = Server(*FLOODS[name], 0.0)
    try:
        with pytest.raises(
            (InputError, RunFailed), match=r"more than 65536 bytes of headers|more than 65536 bytes when"
        ):
            get(server, tmp_path)
    finally:
        server.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.timeout(120)
def test_heads_that_come_in_drips(tmp_path, name, monkeypatch):
    monkeypatch.setattr(fetch_module, "STALL_SECONDS", 1.0)
    first, again = FLOODS[name]
    server = Server(first, again[:30], 0.2)
    begun = time.monotonic()
    try:
        with pytest.raises(RunFailed, match="its answer was not over after 1 s"):
            get(server, tmp_path)
    finally:
        server.close()
    assert time.monotonic() - begun < 60
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "again"),
    [
        (OK + LENGTH, b"x"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n"),
    ],
    ids=["file", "chunks", "length of a chunk", "extension of a chunk", "trailers"],
)
@pytest.mark.parametrize("bound", ["rate", "deadline"])
@pytest.mark.timeout(120)
def test_files_that_come_in_drips(tmp_path, first, again, bound, monkeypatch):
    monkeypatch.setattr(fetch_module, "STALL_SECONDS", 1.0 if bound == "rate" else 60.0)
    server = Server(first, again, 0.1)
    says, kind = {
        "rate": ("could not be fetched: it came with less than 1024 bytes a second", RunFailed),
        "deadline": ("did not arrive in time: the files of a job should take at most fetch_seconds", InputError),
    }[bound]
    begun = time.monotonic()
    try:
        with pytest.raises(kind, match=says):
            get(server, tmp_path, seconds=60.0 if bound == "rate" else 1.0)
    finally:
        server.close()
    assert time.monotonic() - begun < 60
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(120)
def test_a_resolver_that_does_not_answer(tmp_path):
    asked = threading.Event()
    server = Server(b"", b"", 0.0)
    try:
        with pytest.raises(InputError, match="did not arrive in time"):
            get(server, tmp_path, seconds=0.5, resolve=lambda *_, **__: [asked.wait(30)][:0])
        with pytest.raises(InputError, match="did not arrive in time"):
            get(server, tmp_path, seconds=-1.0)  # the files before took all of it
    finally:
        asked.set()
        server.close()


SPECIAL = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "169.254.169.254", "172.16.0.1",
    "172.31.255.255", "192.0.0.1", "192.0.0.8", "192.0.0.9", "192.0.0.10", "192.0.0.170", "192.0.0.171", "192.0.2.1",
    "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.168.0.1", "192.175.48.1", "198.18.0.1", "198.19.255.255",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1",
    "::ffff:8.8.8.8", "::ffff:127.0.0.1", "::8.8.8.8", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "100:0:0:1::1",
    "2001::1", "2001:1::1", "2001:1::2", "2001:1::3", "2001:2::1", "2001:3::1", "2001:4:112::1", "2001:10::1",
    "2001:20::1", "2001:30::1", "2001:1ff:ffff::1", "2001:db8::1", "2002:808:808::1", "2620:4f:8000::1", "3fff::1",
    "3fff:fff:ffff::1", "5f00::1", "fc00::1", "fd00::1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "feff::1",
    "ff02::1", "ffff::1", "4000::1", "8000::1", "1::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.215.14", "100.63.255.255", "100.128.0.0",
    "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.88.98.255", "192.88.100.0", "198.17.255.255", "198.20.0.0",
    "203.0.112.255", "223.255.255.255", "2001:200::1", "2001:4860:4860::8888", "2003::1",
    "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "2620:4f:8001::1", "3ffe:ffff::1", "2a00:1450:4001:81b::200e",
]  # fmt: skip


@pytest.mark.parametrize("address", SPECIAL)
def test_special_addresses(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address):
    assert is_public(address)
