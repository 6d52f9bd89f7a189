"""A socket between two ranks: authenticated, never waiting without a limit.

A message is a header and the raw bytes of one array. The header repeats which collective the sender is in, so
that ranks that disagree about what comes next fail with a sentence instead of exchanging garbage.

Not `multiprocessing.connection`: it cannot give up a wait, and copies what it receives twice.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.engine.abort import Abort
from mgclust.errors import CollectiveTimeout, RunFailed

__all__ = ["Link", "PeerLost", "Wire", "accept", "dial", "listen"]

TICK = 0.1  # seconds between two looks at the abort flag
HANDSHAKE = 5.0
LENGTH = struct.Struct("!I")
LARGEST_HEADER = 1 << 16


class PeerLost(RunFailed):
    """Another rank closed its end: it died, or failed first and says why itself."""


class Wire:
    """What all links of a rank share.

    Parameters
    ----------
    key : bytes
        Both ends must know it.
    abort : Abort
        Ends every wait.
    timeout : float
        Seconds without a byte until a wait ends with CollectiveTimeout.
    client_tls, server_tls : ssl.SSLContext, optional
        Encrypt the links, for the end that dials and the one that accepts.

    Attributes
    ----------
    watch : callable
        Called now and then while a link waits, with the rank it waits for; may raise.
    """

    def __init__(
        self,
        key: bytes,
        abort: Abort,
        timeout: float,
        client_tls: ssl.SSLContext | None = None,
        server_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.key = key
        self.abort = abort
        self.timeout = timeout
        self.client_tls = client_tls
        self.server_tls = server_tls
        self.watch: Callable[[int], None] = lambda waiting_for: None

    def proof(self, role: bytes, challenge: bytes, rank: bytes) -> bytes:
        """What shows that one knows the key."""
        return hmac.digest(self.key, role + challenge + rank, "sha256")


class Link:
    """One end of the connection between two ranks.

    Parameters
    ----------
    sock : socket.socket
        Connected and authenticated.
    wire : Wire
        Limits of its waits.
    peer : int
        The other end's rank.
    """

    def __init__(self, sock: socket.socket, wire: Wire, peer: int) -> None:
        sock.settimeout(TICK)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._wire = wire
        self.peer = peer

    def send(self, what: str, array: np.ndarray) -> None:
        """Send an array as part of the collective ``what``."""
        array = np.ascontiguousarray(array)
        header = json.dumps([what, array.dtype.str, list(array.shape)]).encode()
        self._send(memoryview(LENGTH.pack(len(header)) + header), what)
        if array.nbytes:
            self._send(_bytes(array), what)

    def receive(self, what: str) -> np.ndarray:
        """The array that the other end sends as part of the collective ``what``."""
        size = LENGTH.unpack(self._receive(LENGTH.size, what))[0]
        if size > LARGEST_HEADER:
            raise RunFailed(f"rank {self.peer} sent a header of {size} bytes; is it the same version of mgclust?")
        sent, dtype, shape = json.loads(bytes(self._receive(size, what)))
        if sent != what:
            raise RunFailed(f"ranks disagree: this one is in {what}, rank {self.peer} in {sent}.")
        array = np.empty(shape, np.dtype(dtype))
        if array.nbytes:
            self._fill(_bytes(array), what)
        return array

    def hung_up(self) -> bool:
        """Whether the other end is closed, found without reading."""
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close this end; the other one notices at once."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _receive(self, size: int, what: str) -> memoryview:
        buffer = memoryview(bytearray(size))
        self._fill(buffer, what)
        return buffer

    def _fill(self, buffer: memoryview, what: str) -> None:
        def step() -> int:
            got = self._sock.recv_into(buffer[done:])
            if got == 0:
                raise ConnectionResetError
            return got

        done, last = 0, time.monotonic()
        while done < len(buffer):
            moved = self._attempt(step, what, last)
            done, last = done + moved, time.monotonic() if moved else last

    def _send(self, buffer: memoryview, what: str) -> None:
        done, last = 0, time.monotonic()
        while done < len(buffer):
            rest = buffer[done:]
            moved = self._attempt(lambda rest=rest: self._sock.send(rest), what, last)
            done, last = done + moved, time.monotonic() if moved else last

    def _attempt(self, step: Any, what: str, last: float) -> int:
        try:
            return step()
        except TimeoutError:
            self._wire.abort.check()
            self._wire.watch(self.peer)
            # Rank 0 waits for each rank and knows which one is late: it must be the first to give up.
            limit = self._wire.timeout if self.peer else self._wire.timeout * 1.25
            if time.monotonic() - last > limit:
                raise CollectiveTimeout(
                    f"rank {self.peer} did not answer within timeout={self._wire.timeout:g} s in {what}; it "
                    "hangs or is much slower than the others."
                ) from None
            return 0
        except OSError as error:
            raise PeerLost(f"rank {self.peer} closed its connection in {what}.") from error


def _bytes(array: np.ndarray) -> memoryview:
    """The memory of a C-contiguous array."""
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)


def listen(host: str) -> socket.socket:
    """A listening socket on any free port of ``host``, or of all interfaces where that cannot be bound.

    A worker behind address translation is known by an address that it does not have itself.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, 0), family=family)
    except OSError:
        return socket.create_server(("", 0))


def accept(server: socket.socket, wire: Wire, size: int) -> dict[int, Link]:
    """Rank 0's links to all other ranks, once they have dialled; strangers are turned away."""
    links: dict[int, Link] = {}
    server.settimeout(TICK)
    end = time.monotonic() + wire.timeout
    try:
        while len(links) < size - 1:
            try:
                sock, _ = server.accept()
            except TimeoutError:
                wire.abort.check()
                missing = sorted(set(range(1, size)) - set(links))
                if time.monotonic() > end:
                    raise CollectiveTimeout(
                        f"rank(s) {missing} did not connect to rank 0 within timeout={wire.timeout:g} s; are "
                        "their workers busy, or is there a firewall between workers?"
                    ) from None
                continue
            with contextlib.suppress(OSError, ValueError, struct.error):
                link = _welcome(sock, wire, size)
                links[link.peer] = link
    except BaseException:
        for link in links.values():
            link.close()
        raise
    return links


def dial(address: tuple[str, int], wire: Wire, rank: int) -> Link:
    """A rank's link to rank 0."""
    end = time.monotonic() + wire.timeout
    while True:
        try:
            return _introduce(socket.create_connection(address, timeout=HANDSHAKE), wire, rank)
        except OSError as error:
            wire.abort.check()
            if time.monotonic() > end or isinstance(error, (ConnectionRefusedError, ssl.SSLError)):
                raise PeerLost(f"rank {rank} cannot reach rank 0 at {address[0]}:{address[1]}: {error}.") from error
            time.sleep(TICK)


def _welcome(sock: socket.socket, wire: Wire, size: int) -> Link:
    try:
        sock.settimeout(HANDSHAKE)
        if wire.server_tls is not None:
            sock = wire.server_tls.wrap_socket(sock, server_side=True)
        challenge = secrets.token_bytes(32)
        sock.sendall(challenge)
        answer = _exactly(sock, 4 + 32 + 32)
        rank, proof, theirs = answer[:4], answer[4:36], answer[36:]
        peer = int.from_bytes(rank, "big")
        if not hmac.compare_digest(proof, wire.proof(b"dial", challenge, rank)) or not 0 < peer < size:
            raise ValueError("a stranger")
        sock.sendall(wire.proof(b"accept", theirs, rank))
    except BaseException:
        sock.close()
        raise
    return Link(sock, wire, peer)


def _introduce(sock: socket.socket, wire: Wire, rank: int) -> Link:
    try:
        if wire.client_tls is not None:
            sock = wire.client_tls.wrap_socket(sock)
        challenge = _exactly(sock, 32)
        mine, number = os.urandom(32), rank.to_bytes(4, "big")
        sock.sendall(number + wire.proof(b"dial", challenge, number) + mine)
        if not hmac.compare_digest(_exactly(sock, 32), wire.proof(b"accept", mine, number)):
            raise OSError("it does not know the key of this run")
    except BaseException:
        sock.close()
        raise
    return Link(sock, wire, 0)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        got = sock.recv(size - len(data))
        if not got:
            raise ConnectionResetError("closed during the handshake")
        data += got
    return data
