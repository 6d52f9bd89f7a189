"""Connections that send what no client library would send."""

from __future__ import annotations

import contextlib
import socket
import time

import httpx
import psutil


class Raw:
    """A connection to a service of `service_process`, closed with the block."""

    def __init__(self, running, receive_buffer=0):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", running.port))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.socket.close()

    def send(self, data):
        """Send all of it, or as much as the other end takes; how much that was."""
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < len(data):
                sent += self.socket.send(data[sent : sent + (1 << 16)])
        return sent

    def head(self, method, path, *headers):
        return self.send("\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode())

    def answer(self):
        """What comes until the other end closes."""
        parts = b""
        with contextlib.suppress(ConnectionError):
            while part := self.socket.recv(1 << 16):
                parts += part
        return parts

    def first(self):
        """What comes first, and nothing if the other end closes."""
        try:
            return self.socket.recv(1 << 16)
        except ConnectionError:
            return b""

    def is_waiting(self):
        """Whether the other end has neither answered nor closed."""
        self.socket.setblocking(False)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        finally:
            self.socket.settimeout(60)
        return False


def bearer(token):
    return f"Authorization: Bearer {token}"


def memory_of(running):
    """Megabytes that the web process has resident."""
    return psutil.Process(running.web.pid).memory_info().rss / 2**20


def seconds_of_a_look(running):
    """Of the quickest of several, until one is quick: a machine that does much else delays any one of them."""
    took = []
    while not took or (min(took) >= 1 and len(took) < 10):
        start = time.monotonic()
        assert httpx.get(f"{running.url}/healthz", timeout=60).status_code == 200
        took.append(time.monotonic() - start)
    return min(took)
