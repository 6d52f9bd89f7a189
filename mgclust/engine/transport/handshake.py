"""Meeting of ranks: each connection is authenticated, inside TLS where the cluster has it.

::

    dial    ── both ranks, a number used once, proof of knowing the key ──>   accept
            <────────── another number used once, proof over both ──────────
            ── proof over both ──>
            <────────── ready ──────────

First all ranks dial rank 0 (`dial`, `accept`). The others are connected where a run first needs it (`meet`): each dials
those of lower numbers, and closes its port when all have come. The end that accepts says nothing before the first
proof, so that a connection without the key gets no answer. All handshakes of a rank share one thread and go side by
side, each with one deadline; of too many, the oldest that has proven nothing is dropped.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import select
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from mgclust.base.errors import CollectiveTimeout, RunFailed
from mgclust.engine.transport.wire import POLL_SECONDS, Link, PeerLost, Wire

__all__ = ["accept", "dial", "listen", "meet"]

HANDSHAKE_SECONDS = 5.0  # seconds for the whole of one
UNPROVEN_CONNECTIONS = 64  # handshakes at once, beside one for each rank
AT_ONCE = 16  # connections taken from the queue before those that are open get their turn
RANKS = struct.Struct("!II")  # who dials, and who accepts
NONCE = 32
PROOF = 32
READY = b"\x01"

# A handshake waits by yielding what for: selectors.EVENT_READ or EVENT_WRITE. It returns the rank and the socket.
Handshake = Generator[int, None, tuple[int, socket.socket]]


def listen(*hosts: str) -> socket.socket:
    """A listening socket on any free port of the first of some hosts that this machine has."""
    for host in hosts:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with contextlib.suppress(OSError):
            return socket.create_server((host, 0), family=family, backlog=socket.SOMAXCONN)
    raise RunFailed(
        f"a rank cannot listen on {' or '.join(hosts)}, the address of its worker; give the worker one of this machine "
        "(dask worker --host, or --listen-address)."
    )


def accept(server: socket.socket, wire: Wire, size: int) -> dict[int, Link]:
    """Rank 0's links to all other ranks, once they have connected; connections without the key are rejected."""
    with contextlib.closing(_Handshakes(server, wire, size)) as handshakes:
        return _collect(handshakes, wire, 0, set(range(1, size)))


def meet(rank: int, addresses: Sequence[tuple[str, int]], server: socket.socket, wire: Wire) -> dict[int, Link]:
    """A rank's links to all others but rank 0, with which all of them have a connection.

    Parameters
    ----------
    rank : int
        This one; not 0.
    addresses : sequence of (str, int)
        Where each rank listens, in rank order; that of rank 0 is ignored.
    server : socket.socket
        Where this one does.
    wire : Wire
        Of the links.
    """
    size = len(addresses)
    with contextlib.closing(_Handshakes(server, wire, size, rank)) as handshakes:
        for peer in range(1, rank):
            handshakes.call(peer, addresses[peer])
        return _collect(handshakes, wire, rank, set(range(1, size)) - {rank})


def _collect(handshakes: _Handshakes, wire: Wire, rank: int, expected: set[int]) -> dict[int, Link]:
    links: dict[int, Link] = {}
    end = time.monotonic() + wire.timeout
    try:
        while len(links) < len(expected):
            for peer, sock in handshakes.turn():
                if peer in links:
                    links[peer].close()  # it has connected again, and so given up the one before
                links[peer] = Link(sock, wire, peer)
            wire.abort.check()
            missing = expected - links.keys()
            if rank:  # it has a link to rank 0 that tells when a run ends
                wire.watch(missing)
            if time.monotonic() > end and missing:
                raise CollectiveTimeout(
                    f"rank(s) {sorted(missing)} did not connect to rank {rank} within timeout={wire.timeout:g} s; are "
                    "their workers busy, or is there a firewall between workers?"
                )
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
            return Link(_dial_once(address, wire, rank), wire, 0)
        except OSError as error:
            wire.abort.check()
            if time.monotonic() > end or _final(error):
                raise PeerLost(f"rank {rank} cannot reach rank 0 at {address[0]}:{address[1]}: {error}.") from error
            time.sleep(POLL_SECONDS)


def _final(error: Exception) -> bool:
    """Return whether an error comes again; an end that hangs up in the middle may have too many to talk to."""
    return isinstance(error, (ConnectionRefusedError, ssl.SSLError)) and not isinstance(error, ssl.SSLEOFError)


def _dial_once(address: tuple[str, int], wire: Wire, rank: int) -> socket.socket:
    end = time.monotonic() + HANDSHAKE_SECONDS
    sock = _prompt(socket.create_connection(address, timeout=HANDSHAKE_SECONDS))
    poll, number = select.poll(), sock.fileno()
    with contextlib.closing(_introduce(sock, wire, rank, 0)) as steps:
        while True:
            try:
                event = next(steps)
            except StopIteration as done:
                return done.value[1]
            wire.abort.check()
            if time.monotonic() > end:
                raise TimeoutError(f"no handshake within {HANDSHAKE_SECONDS:g} s")
            poll.register(number, select.POLLIN if event == selectors.EVENT_READ else select.POLLOUT)
            poll.poll(POLL_SECONDS * 1000)


@dataclass(eq=False)
class _Pending:
    """A connection that is not a link yet."""

    number: int  # of its file descriptor, which stays the same inside TLS
    end: float
    proven: bool = False  # whether its first message shows that it knows the key, or this rank has called
    called: int | None = None  # the rank that this one has called


class _Handshakes:
    """Handshakes of all connections that reach a rank, and of those by which it reaches others."""

    def __init__(self, server: socket.socket, wire: Wire, size: int, rank: int = 0) -> None:
        self._server, self._wire, self._size, self._rank = server, wire, size, rank
        self._addresses: dict[int, tuple[str, int]] = {}  # of ranks that this one calls
        self._again: dict[int, float] = {}  # when those are called again that hung up in the middle
        self._pending: dict[_Pending, Handshake] = {}  # the oldest first
        self._selector = selectors.DefaultSelector()
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ)

    def turn(self) -> list[tuple[int, socket.socket]]:
        """Continue where there is something to do, or wait for it a moment; ranks that have arrived."""
        arrived: list[tuple[int, socket.socket]] = []
        ready = [key.data for key, _ in self._selector.select(POLL_SECONDS)]
        for pending in ready:
            if pending in self._pending:
                self._advance(pending, arrived)
        if None in ready:
            self._accept(arrived)
        now = time.monotonic()
        for pending in [each for each in self._pending if each.end < now]:
            self._drop(pending)
        for peer in [each for each, when in self._again.items() if when < now]:
            del self._again[peer]
            self.call(peer, self._addresses[peer])
        return arrived

    def call(self, peer: int, address: tuple[str, int]) -> None:
        """Begin to connect to another rank."""
        self._addresses[peer] = address
        try:
            family, kind, protocol, _, end = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise self._unreachable(peer, error) from error
        sock = _prompt(socket.socket(family, kind, protocol))
        sock.connect_ex(end)  # what is wrong with it, `_reach` is told
        pending = _Pending(sock.fileno(), time.monotonic() + HANDSHAKE_SECONDS, proven=True, called=peer)
        self._pending[pending] = _reach(sock, self._wire, self._rank, peer)
        next(self._pending[pending])
        self._selector.register(pending.number, selectors.EVENT_WRITE, pending)

    def close(self) -> None:
        """Hang up on all that are no links yet."""
        for pending in list(self._pending):
            self._drop(pending)
        self._selector.close()

    def _accept(self, arrived: list[tuple[int, socket.socket]]) -> None:
        for _ in range(AT_ONCE):
            try:
                sock, _ = self._server.accept()
                sock = _prompt(sock)
            except BlockingIOError:
                return
            except OSError:  # it has gone, or this process has no file descriptor left
                if self._pending:
                    self._drop_oldest()
                else:
                    time.sleep(POLL_SECONDS)
                return
            pending = _Pending(sock.fileno(), time.monotonic() + HANDSHAKE_SECONDS)
            self._pending[pending] = _welcome(sock, self._wire, self._size, self._rank, pending)
            self._selector.register(pending.number, selectors.EVENT_READ, pending)
            self._advance(pending, arrived)  # what a rank has said already counts before it could be dropped
            if len(self._pending) > UNPROVEN_CONNECTIONS + self._size:
                self._drop_oldest()

    def _advance(self, pending: _Pending, arrived: list[tuple[int, socket.socket]]) -> None:
        try:
            events = next(self._pending[pending])
        except StopIteration as done:
            arrived.append(done.value)
            pending.called = None
            self._drop(pending)
        except (OSError, ValueError) as error:
            if pending.called is not None and _final(error):
                raise self._unreachable(pending.called, error) from error
            self._drop(pending)
        else:
            if self._selector.get_key(pending.number).events != events:
                self._selector.modify(pending.number, events, pending)

    def _unreachable(self, peer: int, error: Exception) -> PeerLost:
        host, port = self._addresses[peer]
        return PeerLost(
            f"rank {self._rank} cannot reach rank {peer} at {host}:{port}: {error}; is there a firewall between "
            "workers?"
        )

    def _drop_oldest(self) -> None:
        """Drop the oldest that has proven nothing, or the oldest of all."""
        self._drop(min(self._pending, key=lambda pending: pending.proven))

    def _drop(self, pending: _Pending) -> None:
        self._selector.unregister(pending.number)
        self._pending.pop(pending).close()
        if pending.called is not None:
            self._again[pending.called] = time.monotonic() + POLL_SECONDS


def _welcome(sock: socket.socket, wire: Wire, size: int, here: int, pending: _Pending) -> Handshake:
    try:
        if wire.server_tls is not None:
            sock = wire.server_tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            yield from _encrypt(sock)
        first = yield from _read(sock, RANKS.size + NONCE + PROOF)
        ranks, nonce, proof = first[: RANKS.size], first[RANKS.size : -PROOF], first[-PROOF:]
        peer, called = RANKS.unpack(ranks)
        known = hmac.compare_digest(proof, wire.proof(b"dial", ranks, nonce))
        if not known or called != here or not here < peer < size:
            raise ValueError("not a rank of this run")
        pending.proven = True
        nonces = nonce + secrets.token_bytes(NONCE)
        yield from _write(sock, nonces[NONCE:] + wire.proof(b"accept", ranks, nonces))
        if not hmac.compare_digest((yield from _read(sock, PROOF)), wire.proof(b"confirm", ranks, nonces)):
            raise ValueError("a message of earlier, sent again")
        yield from _write(sock, READY)
    except BaseException:
        sock.close()
        raise
    return peer, sock


def _introduce(sock: socket.socket, wire: Wire, rank: int, peer: int) -> Handshake:
    try:
        if wire.client_tls is not None:
            sock = wire.client_tls.wrap_socket(sock, do_handshake_on_connect=False)
            yield from _encrypt(sock)
        ranks, nonce = RANKS.pack(rank, peer), secrets.token_bytes(NONCE)
        yield from _write(sock, ranks + nonce + wire.proof(b"dial", ranks, nonce))
        answer = yield from _read(sock, NONCE + PROOF)
        nonces = nonce + answer[:NONCE]
        if not hmac.compare_digest(answer[NONCE:], wire.proof(b"accept", ranks, nonces)):
            raise OSError("it does not know the key of this run")
        yield from _write(sock, wire.proof(b"confirm", ranks, nonces))
        yield from _read(sock, len(READY))
    except BaseException:
        sock.close()
        raise
    return peer, sock


def _reach(sock: socket.socket, wire: Wire, rank: int, peer: int) -> Handshake:
    try:
        yield selectors.EVENT_WRITE
        if problem := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(problem, os.strerror(problem))  # of the class that this number has
    except BaseException:
        sock.close()
        raise
    return (yield from _introduce(sock, wire, rank, peer))


def _prompt(sock: socket.socket) -> socket.socket:
    """Neither blocking nor held back: a handshake is small messages to and fro, which otherwise wait 40 ms."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _encrypt(sock: Any) -> Generator[int, None, None]:
    while True:
        try:
            sock.do_handshake()
            return
        except ssl.SSLWantReadError:
            yield selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            yield selectors.EVENT_WRITE


def _read(sock: socket.socket, size: int) -> Generator[int, None, bytes]:
    data = b""
    while len(data) < size:
        try:
            got = sock.recv(size - len(data))
        except (BlockingIOError, ssl.SSLWantReadError):
            yield selectors.EVENT_READ
            continue
        if not got:
            raise ConnectionResetError("closed during the handshake")
        data += got
    return data


def _write(sock: socket.socket, data: bytes) -> Generator[int, None, None]:
    while data:
        try:
            data = data[sock.send(data) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            yield selectors.EVENT_WRITE
