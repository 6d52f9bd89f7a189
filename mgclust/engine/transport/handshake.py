"""Connect ranks by authenticated connections, inside TLS if the cluster uses TLS.

::

    dial    ── both rank numbers, a nonce, proof of knowing the key ──>   accept
            <────────── another nonce, proof over both ──────────
            ── proof over both ──>
            <────────── ready ──────────

The rank with the higher number dials the other rank (`meet`). A session begins with the links of the tree; other links
are made when a run first needs them (`mgclust.engine.transport.topology`). Ports are closed when all ranks have
connected. The accepting end sends nothing before the first proof, so a connection without the key gets no answer. All
handshakes of a rank run concurrently in one thread, each with one deadline for all steps. If there are too many
handshakes, the oldest handshake without a proof is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import math
import os
import random
import resource
import secrets
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from mgclust.base.errors import CollectiveTimeout, RunFailed
from mgclust.engine.transport.wire import POLL_SECONDS, Link, PeerLost, Wire

__all__ = ["PORTS", "listen", "meet"]

PORTS = "MGCLUST_RANK_PORTS"

HANDSHAKE_SECONDS = 5.0  # time limit of a whole handshake
UNPROVEN_CONNECTIONS = 64  # concurrent handshakes in addition to one per rank
SPARE_FILES = 32  # open files that a run may need in addition to links
AT_ONCE = 16  # connections that are accepted before the open ones continue
RANKS = struct.Struct("!II")  # rank that dials, rank that accepts
NONCE = 32
PROOF = 32
READY = b"\x01"

# A handshake waits by yielding selectors.EVENT_READ or EVENT_WRITE. It returns the rank and the socket.
Handshake = Generator[int, None, tuple[int, socket.socket]]


def listen(*hosts: str) -> socket.socket:
    """Listen on the first of these addresses that belongs to this machine, at a free port that `PORTS` permits."""
    ports = _ports()
    for host in hosts:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        for port in ports:
            try:
                return socket.create_server((host, port), family=family, backlog=socket.SOMAXCONN)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise _too_few_files(error) from error
                if error.errno == errno.EACCES:
                    raise RunFailed(f"a rank may not listen on port {port} of {PORTS}: {error.strerror}.") from error
                if error.errno != errno.EADDRINUSE:
                    break
        else:
            raise RunFailed(
                f"all ports of {PORTS}={os.environ.get(PORTS, '0')} are in use on {host}; give its workers a longer "
                "range, with one port for each rank that connects there at the same time."
            )
    raise RunFailed(
        f"a rank cannot listen on {' or '.join(hosts)}, the address of its worker; give the worker an address of this "
        "machine (dask worker --host, or --listen-address)."
    )


def _ports() -> list[int]:
    """Return the ports to try, in a random order, so that ranks of one host begin at different ports."""
    given = os.environ.get(PORTS, "").strip() or "0"
    try:
        first, dash, last = given.partition("-")
        low, high = int(first), int(last if dash else first)
        if not (0 < low <= high < 1 << 16 or low == high == 0):
            raise ValueError(given)
    except ValueError:
        raise RunFailed(
            f"{PORTS}={given!r} must be a range of ports from 1 to 65535, such as 41000-41099, or 0 for any."
        ) from None
    return random.sample(range(low, high + 1), high - low + 1)


def _reserve(count: int) -> None:
    """Let this process open `count` more files, by raising its own limit as far as permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    here = psutil.Process().num_fds()
    needed = here + count + SPARE_FILES
    if _within(needed + UNPROVEN_CONNECTIONS, soft):
        return
    if not _within(hard, soft):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    if not _within(needed, soft):
        raise RunFailed(
            f"a rank needs {count} more open files for its connections ({needed} in its process), but may have {soft} "
            f"(ulimit -n); raise the hard limit of the workers to {needed + UNPROVEN_CONNECTIONS} (ulimit -Hn, "
            "LimitNOFILE of systemd, ulimits of Compose), or request fewer workers (n_workers=, --workers)."
        )


def _within(number: int, limit: int) -> bool:
    return limit == resource.RLIM_INFINITY or (number != resource.RLIM_INFINITY and number <= limit)


def _too_few_files(error: OSError) -> RunFailed:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return RunFailed(
        f"a rank cannot open another connection: {error.strerror} (ulimit -n is {soft}, -Hn {hard}); raise the limit "
        "of the workers, or request fewer workers (n_workers=, --workers)."
    )


def meet(
    rank: int,
    calls: Mapping[int, tuple[str, int]],
    callers: Collection[int],
    server: socket.socket | None,
    wire: Wire,
) -> dict[int, Link]:
    """Make a rank's links to some other ranks, which call this function at the same time.

    Parameters
    ----------
    rank : int
        Number of this rank.
    calls : mapping of int to (str, int)
        Addresses of ranks with lower numbers, which this rank dials.
    callers : collection of int
        Ranks with higher numbers, which dial this rank.
    server : socket.socket or None
        Socket at which this rank listens; None without callers.
    wire : Wire
        State that the links share.

    Raises
    ------
    CollectiveTimeout
        Some callers did not connect.
    PeerLost
        A rank that this rank dials cannot be reached.
    RunFailed
        This process may not open enough files.
    """
    _reserve(len(calls) + len(callers))
    with contextlib.closing(_Handshakes(server, wire, callers, rank)) as handshakes:
        for peer, address in calls.items():
            handshakes.call(peer, address)
        return _collect(handshakes, wire, rank, {*calls, *callers})


def _collect(handshakes: _Handshakes, wire: Wire, rank: int, expected: set[int]) -> dict[int, Link]:
    links: dict[int, Link] = {}
    end = time.monotonic() + wire.timeout
    try:
        while len(links) < len(expected):
            for peer, sock in handshakes.turn():
                if peer in links:
                    links[peer].close()  # the peer has connected again, so it has given up the previous link
                links[peer] = Link(sock, wire, peer)
            wire.abort.check()
            missing = expected - links.keys()
            wire.watch(missing)
            if time.monotonic() > end and missing:
                if max(missing) < rank:
                    raise handshakes.unreachable(min(missing))
                raise CollectiveTimeout(
                    f"rank(s) {sorted(missing)} did not connect to rank {rank} within timeout={wire.timeout:g} s; "
                    "check whether their workers are busy, or a firewall separates workers."
                )
    except BaseException:
        for link in links.values():
            link.close()
        raise
    return links


def _final(error: Exception) -> bool:
    """Return whether an error would occur again; a peer that closes during the handshake may only be too busy."""
    return isinstance(error, (ConnectionRefusedError, ssl.SSLError)) and not isinstance(error, ssl.SSLEOFError)


@dataclass(eq=False)
class _Pending:
    """A connection that is not a link yet."""

    number: int  # its file descriptor, which stays the same inside TLS
    end: float
    proven: bool = False  # whether its first message has proven the key, or this rank has dialled
    called: int | None = None  # the rank that this rank has dialled


class _Handshakes:
    """Handshakes of all connections from and to other ranks."""

    def __init__(self, server: socket.socket | None, wire: Wire, callers: Collection[int], rank: int) -> None:
        self._server, self._wire, self._callers, self._rank = server, wire, frozenset(callers), rank
        self._addresses: dict[int, tuple[str, int]] = {}  # addresses of the ranks that this rank dials
        self._problems: dict[int, Exception] = {}  # why the last call to each rank failed
        self._again: dict[int, float] = {}  # when to call a rank again that closed its connection
        self._pending: dict[_Pending, Handshake] = {}  # handshakes that are not finished, the oldest first
        self._selector = selectors.DefaultSelector()
        if server is not None:
            server.setblocking(False)
            self._selector.register(server, selectors.EVENT_READ)

    def turn(self) -> list[tuple[int, socket.socket]]:
        """Continue handshakes that are ready, or wait a moment for one; return ranks that have connected."""
        arrived: list[tuple[int, socket.socket]] = []
        ready = [key.data for key, _ in self._selector.select(POLL_SECONDS)]
        for pending in ready:
            if pending in self._pending:
                self._advance(pending, arrived)
        if None in ready:
            self._accept(arrived)
        now = time.monotonic()
        for pending in [each for each in self._pending if each.end < now]:
            self._drop(pending, TimeoutError(f"no handshake within {HANDSHAKE_SECONDS:g} s"))
        for peer in [each for each, when in self._again.items() if when < now]:
            del self._again[peer]
            self.call(peer, self._addresses[peer])
        return arrived

    def call(self, peer: int, address: tuple[str, int]) -> None:
        """Start to connect to another rank."""
        self._addresses[peer] = address
        try:
            family, kind, protocol, _, end = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
            sock = _prompt(socket.socket(family, kind, protocol))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise _too_few_files(error) from error
            self._problems[peer] = error
            raise self.unreachable(peer) from error
        sock.connect_ex(end)  # `_reach` gets the error
        pending = _Pending(sock.fileno(), time.monotonic() + HANDSHAKE_SECONDS, proven=True, called=peer)
        self._pending[pending] = _reach(sock, self._wire, self._rank, peer, pending)
        next(self._pending[pending])
        self._selector.register(pending.number, selectors.EVENT_WRITE, pending)

    def close(self) -> None:
        """Close all connections that are not links yet."""
        for pending in list(self._pending):
            self._drop(pending)
        self._selector.close()

    def _accept(self, arrived: list[tuple[int, socket.socket]]) -> None:
        assert self._server is not None
        for _ in range(AT_ONCE):
            try:
                sock, _ = self._server.accept()
                sock = _prompt(sock)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    if all(pending.proven for pending in self._pending):
                        raise _too_few_files(error) from error
                    self._drop_oldest()
                return  # the connection was closed by its other end
            pending = _Pending(sock.fileno(), time.monotonic() + HANDSHAKE_SECONDS)
            self._pending[pending] = _welcome(sock, self._wire, self._callers, self._rank, pending)
            self._selector.register(pending.number, selectors.EVENT_READ, pending)
            self._advance(pending, arrived)  # read a message that has arrived before the connection may be dropped
            if len(self._pending) > UNPROVEN_CONNECTIONS + len(self._callers) + len(self._addresses):
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
                self._problems[pending.called] = error
                raise self.unreachable(pending.called) from error
            self._drop(pending, error)
        else:
            if self._selector.get_key(pending.number).events != events:
                self._selector.modify(pending.number, events, pending)

    def unreachable(self, peer: int) -> PeerLost:
        """Make the error for a rank that this rank cannot reach.

        Parameters
        ----------
        peer : int
            The rank that this rank has dialled.
        """
        host, port = self._addresses[peer]
        return PeerLost(
            f"rank {self._rank} cannot reach rank {peer} at {host}:{port}: {self._problems.get(peer, 'no answer')}; "
            "check whether a firewall separates workers."
        )

    def _drop_oldest(self) -> None:
        """Drop the oldest connection without a proof, or the oldest connection if all have a proof."""
        self._drop(min(self._pending, key=lambda pending: pending.proven))

    def _drop(self, pending: _Pending, problem: Exception | None = None) -> None:
        self._selector.unregister(pending.number)
        self._pending.pop(pending).close()
        if pending.called is not None:
            if problem is not None:
                self._problems[pending.called] = problem
            self._again[pending.called] = time.monotonic() + POLL_SECONDS


def _welcome(sock: socket.socket, wire: Wire, callers: Collection[int], here: int, pending: _Pending) -> Handshake:
    try:
        if wire.server_tls is not None:
            sock = wire.server_tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            yield from _encrypt(sock)
        first = yield from _read(sock, RANKS.size + NONCE + PROOF)
        ranks, nonce, proof = first[: RANKS.size], first[RANKS.size : -PROOF], first[-PROOF:]
        peer, called = RANKS.unpack(ranks)
        known = hmac.compare_digest(proof, wire.proof(b"dial", ranks, nonce))
        if not known or called != here or peer not in callers:
            raise ValueError("not a rank of this run")
        pending.proven = True
        nonces = nonce + secrets.token_bytes(NONCE)
        yield from _write(sock, nonces[NONCE:] + wire.proof(b"accept", ranks, nonces))
        if not hmac.compare_digest((yield from _read(sock, PROOF)), wire.proof(b"confirm", ranks, nonces)):
            raise ValueError("a repeated earlier message")
        yield from _write(sock, READY)
    except BaseException:
        sock.close()
        raise
    return peer, sock


def _introduce(sock: socket.socket, wire: Wire, rank: int, peer: int, pending: _Pending) -> Handshake:
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
        # From now on, the other end may have this link and close its port: a second call would be rejected.
        pending.end = math.inf
        yield from _read(sock, len(READY))
    except BaseException:
        sock.close()
        raise
    return peer, sock


def _reach(sock: socket.socket, wire: Wire, rank: int, peer: int, pending: _Pending) -> Handshake:
    try:
        yield selectors.EVENT_WRITE
        if problem := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(problem, os.strerror(problem))  # the subclass of OSError for this number
    except BaseException:
        sock.close()
        raise
    return (yield from _introduce(sock, wire, rank, peer, pending))


def _prompt(sock: socket.socket) -> socket.socket:
    """Make a socket non-blocking, and let it send at once: small messages of a handshake would each wait 40 ms."""
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
