"""A socket between two ranks: authenticated, never waiting without a limit.

A message is a header and the raw bytes of one array. The header repeats which collective the sender is in, so
that ranks that disagree about what comes next fail with a sentence instead of exchanging garbage.

How two ranks meet, inside TLS where the cluster has it::

    dial    ── rank, its number used once, proof that it knows the key ──>   accept
            <────────── another number used once, proof over both ──────────
            ── proof over both ──>
            <────────── ready ──────────

The end that accepts says nothing before the first proof, so that a connection without the key gets no answer. All
handshakes share one thread and go side by side, each with one deadline; of too many, the oldest that has proven nothing
is dropped.

Not `multiprocessing.connection`: it cannot give up a wait, and copies what it receives twice.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import select
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.engine.abort import Abort
from mgclust.errors import CollectiveTimeout, RunFailed
from mgclust.json_text import parse_json

__all__ = ["Link", "PeerLost", "SessionLost", "Wire", "accept", "dial", "listen"]

POLL_SECONDS = 0.1  # seconds between two looks at the abort flag
HANDSHAKE_SECONDS = 5.0  # seconds for the whole of one
UNPROVEN_CONNECTIONS = 64  # handshakes at once, beside one for each rank
AT_ONCE = 16  # connections taken from the queue before those that are open get their turn
LENGTH = struct.Struct("!I")
LARGEST_HEADER = 1 << 16
NUMBER = struct.Struct("!I")
NONCE = 32
PROOF = 32
READY = b"\x01"

# A handshake waits by yielding what for: selectors.EVENT_READ or EVENT_WRITE. It returns the rank and the socket.
Handshake = Generator[int, None, tuple[int, socket.socket]]


class PeerLost(RunFailed):
    """Another rank closed its end: it died, or failed first and says why itself."""


class SessionLost(PeerLost):
    """Connections that were kept are closed, and no rank has begun with the run."""


class Wire:
    """State that all links of a rank share.

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
    sent, received : int
        Bytes of messages that have passed the links, before encryption.
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
        self.sent = self.received = 0

    def proof(self, step: bytes, rank: bytes, nonces: bytes) -> bytes:
        """Proof that this end knows the key."""
        return hmac.digest(self.key, step + rank + nonces, "sha256")


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
        sock.settimeout(POLL_SECONDS)
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
        sent, array = self._announced(bytes(self._receive(size, what)))
        if sent != what:
            raise RunFailed(f"ranks disagree: this one is in {what}, rank {self.peer} in {sent}.")
        if array.nbytes:
            self._fill(_bytes(array), what)
        return array

    def hung_up(self) -> bool:
        """Return whether an end is closed, found without reading."""
        if self._sock.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close this end; the other one notices at once."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _announced(self, header: bytes) -> tuple[str, np.ndarray]:
        """Read which collective the other end is in, and make room for the array that it sends."""
        try:
            sent, name, shape = parse_json(header)
            dtype = np.dtype(name)
            if dtype.hasobject or not all(isinstance(length, int) and length >= 0 for length in shape):
                raise ValueError("it should be numbers, in lengths >= 0")
            return sent, np.empty(shape, dtype)
        except (ValueError, TypeError, OverflowError, MemoryError) as error:
            raise RunFailed(
                f"rank {self.peer} announced an array that cannot be received, {header[:200]!r} ({error}); is it the "
                "same version of mgclust?"
            ) from None

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
        self._wire.received += done

    def _send(self, buffer: memoryview, what: str) -> None:
        done, last = 0, time.monotonic()
        while done < len(buffer):
            rest = buffer[done:]
            moved = self._attempt(lambda rest=rest: self._sock.send(rest), what, last)
            done, last = done + moved, time.monotonic() if moved else last
        self._wire.sent += done

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


def listen(*hosts: str) -> socket.socket:
    """A listening socket on any free port of the first of some hosts that this machine has."""
    for host in hosts:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with contextlib.suppress(OSError):
            return socket.create_server((host, 0), family=family, backlog=socket.SOMAXCONN)
    raise RunFailed(
        f"rank 0 cannot listen on {' or '.join(hosts)}, the address of its worker; give the worker one of this machine "
        "(dask worker --host, or --listen-address)."
    )


def accept(server: socket.socket, wire: Wire, size: int) -> dict[int, Link]:
    """Rank 0's links to all other ranks, once they have connected; connections without the key are rejected."""
    links: dict[int, Link] = {}
    end = time.monotonic() + wire.timeout
    with contextlib.closing(_Handshakes(server, wire, size)) as handshakes:
        try:
            while len(links) < size - 1:
                for peer, sock in handshakes.turn():
                    if peer in links:
                        links[peer].close()  # it has connected again, and so given up the one before
                    links[peer] = Link(sock, wire, peer)
                wire.abort.check()
                if time.monotonic() > end and len(links) < size - 1:
                    missing = sorted(set(range(1, size)) - set(links))
                    raise CollectiveTimeout(
                        f"rank(s) {missing} did not connect to rank 0 within timeout={wire.timeout:g} s; are "
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
            # One that hangs up in the middle may do so to many; one that refuses will do so again.
            final = isinstance(error, (ConnectionRefusedError, ssl.SSLError)) and not isinstance(error, ssl.SSLEOFError)
            if time.monotonic() > end or final:
                raise PeerLost(f"rank {rank} cannot reach rank 0 at {address[0]}:{address[1]}: {error}.") from error
            time.sleep(POLL_SECONDS)


def _dial_once(address: tuple[str, int], wire: Wire, rank: int) -> socket.socket:
    end = time.monotonic() + HANDSHAKE_SECONDS
    sock = _prompt(socket.create_connection(address, timeout=HANDSHAKE_SECONDS))
    poll, number = select.poll(), sock.fileno()
    with contextlib.closing(_introduce(sock, wire, rank)) as steps:
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
    proven: bool = False  # whether its first message shows that it knows the key


class _Handshakes:
    """Handshakes of all connections that reach rank 0."""

    def __init__(self, server: socket.socket, wire: Wire, size: int) -> None:
        self._server, self._wire, self._size = server, wire, size
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
        return arrived

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
            self._pending[pending] = _welcome(sock, self._wire, self._size, pending)
            self._selector.register(pending.number, selectors.EVENT_READ, pending)
            self._advance(pending, arrived)  # what a rank has said already counts before it could be dropped
            if len(self._pending) > UNPROVEN_CONNECTIONS + self._size:
                self._drop_oldest()

    def _advance(self, pending: _Pending, arrived: list[tuple[int, socket.socket]]) -> None:
        try:
            events = next(self._pending[pending])
        except StopIteration as done:
            arrived.append(done.value)
            self._drop(pending)
        except (OSError, ValueError):
            self._drop(pending)
        else:
            if self._selector.get_key(pending.number).events != events:
                self._selector.modify(pending.number, events, pending)

    def _drop_oldest(self) -> None:
        """Drop the oldest that has proven nothing, or the oldest of all."""
        self._drop(min(self._pending, key=lambda pending: pending.proven))

    def _drop(self, pending: _Pending) -> None:
        self._selector.unregister(pending.number)
        self._pending.pop(pending).close()


def _welcome(sock: socket.socket, wire: Wire, size: int, pending: _Pending) -> Handshake:
    try:
        if wire.server_tls is not None:
            sock = wire.server_tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            yield from _encrypt(sock)
        first = yield from _read(sock, NUMBER.size + NONCE + PROOF)
        rank, nonce, proof = first[: NUMBER.size], first[NUMBER.size : -PROOF], first[-PROOF:]
        peer = NUMBER.unpack(rank)[0]
        if not hmac.compare_digest(proof, wire.proof(b"dial", rank, nonce)) or not 0 < peer < size:
            raise ValueError("not a rank of this run")
        pending.proven = True
        nonces = nonce + secrets.token_bytes(NONCE)
        yield from _write(sock, nonces[NONCE:] + wire.proof(b"accept", rank, nonces))
        if not hmac.compare_digest((yield from _read(sock, PROOF)), wire.proof(b"confirm", rank, nonces)):
            raise ValueError("a message of earlier, sent again")
        yield from _write(sock, READY)
    except BaseException:
        sock.close()
        raise
    return peer, sock


def _introduce(sock: socket.socket, wire: Wire, rank: int) -> Handshake:
    try:
        if wire.client_tls is not None:
            sock = wire.client_tls.wrap_socket(sock, do_handshake_on_connect=False)
            yield from _encrypt(sock)
        number, nonce = NUMBER.pack(rank), secrets.token_bytes(NONCE)
        yield from _write(sock, number + nonce + wire.proof(b"dial", number, nonce))
        answer = yield from _read(sock, NONCE + PROOF)
        nonces = nonce + answer[:NONCE]
        if not hmac.compare_digest(answer[NONCE:], wire.proof(b"accept", number, nonces)):
            raise OSError("it does not know the key of this run")
        yield from _write(sock, wire.proof(b"confirm", number, nonces))
        yield from _read(sock, len(READY))
    except BaseException:
        sock.close()
        raise
    return 0, sock


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
