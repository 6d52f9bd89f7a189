"""Messages between two ranks over one authenticated socket, never waiting without a limit.

A message is a header and the raw bytes of one array. The header repeats which collective the sender is in, so
that ranks that disagree about what comes next fail with a sentence instead of exchanging garbage.

What a rank sends and receives at the same time it does in one thread (`together`): each message is a generator that
yields where it would have to wait. So a full buffer on one link keeps no other waiting, and no two threads are ever
inside one TLS connection, which OpenSSL forbids.

Not `multiprocessing.connection`: it cannot give up a wait, and copies what it receives twice.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import json
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Collection, Generator, Iterable
from typing import Any

import numpy as np

from mgclust.base.errors import CollectiveTimeout, RunFailed
from mgclust.engine.abort import Abort
from mgclust.outside.json_text import parse_json

__all__ = [
    "Link", "Move", "PeerLost", "SessionLost", "Wire",
    "hung_up", "in_turn", "relay", "together", "too_late", "waited_for",
]  # fmt: skip

POLL_SECONDS = 0.1  # seconds between two looks at the abort flag
LENGTH = struct.Struct("!I")
LARGEST_HEADER = 1 << 16
READ_AHEAD = 1 << 12  # bytes that are asked for where fewer are expected: mostly the header and the array behind it
CHUNK = 1 << 16  # bytes that a rank which passes an array on receives before it sends them


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
        Called now and then while links wait, with the ranks they wait for; may raise.
    sent, received : int
        Bytes of messages that have passed the links, before encryption.
    messages_sent, messages_received : int
        How many these were.
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
        self.watch: Callable[[Collection[int]], None] = lambda waiting_for: None
        self.sent = self.received = self.messages_sent = self.messages_received = 0

    def proof(self, step: bytes, ranks: bytes, nonces: bytes) -> bytes:
        """Proof that this end knows the key."""
        return hmac.digest(self.key, step + ranks + nonces, "sha256")


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

    Attributes
    ----------
    host : str
        The address of this end.
    local : bool
        Whether both ends have one address, and so are on one host.
    margin : float
        Share of the timeout by which waits for the other end last longer.
    """

    def __init__(self, sock: socket.socket, wire: Wire, peer: int) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._wire = wire
        self.peer = peer
        self.margin = 0.0
        self._ahead = b""  # received, and not yet asked for
        self.host, self.local = "", False
        with contextlib.suppress(OSError):  # closed meanwhile
            self.host = sock.getsockname()[0]
            self.local = self.host == sock.getpeername()[0]

    def send(self, what: str, array: np.ndarray) -> None:
        """Send an array as part of the collective ``what``."""
        together(self._wire, what, self.sending(what, array))

    def receive(self, what: str) -> np.ndarray:
        """The array that the other end sends as part of the collective ``what``."""
        array: np.ndarray = together(self._wire, what, self.receiving(what))[0]
        return array

    def sending(self, what: str, array: np.ndarray) -> Move:
        """Send as `send` does, for `together`."""
        array = np.ascontiguousarray(array)
        header = _header(what, array.dtype.str, array.shape)
        self._wire.messages_sent += 1
        if array.nbytes <= CHUNK:
            yield from self._write(memoryview(header + array.tobytes()), what)
            return
        yield from self._write(memoryview(header), what)
        yield from self._write(_bytes(array), what)

    def receiving(self, what: str, out: np.ndarray | None = None, instead: str | None = None) -> Move:
        """Receive as `receive` does, for `together`.

        Parameters
        ----------
        what : str
            The collective.
        out : array, optional
            C-contiguous, where to; of the shape and type that the other end sends.
        instead : str, optional
            What the other end may be in, too: then the answer is the pair of this name and the array.
        """
        _, sent, array = yield from self._announced(what, out, instead)
        if array.nbytes:
            yield from self._fill(_bytes(array), what)
        return (sent, array) if instead is not None else array

    def fileno(self) -> int:
        """Its file descriptor; -1 once this end is closed."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close this end; the other one notices at once."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _announced(self, what: str, out: np.ndarray | None, instead: str | None = None) -> Move:
        """The header, which collective the other end is in, and room for the array that it sends."""
        self._wire.messages_received += 1
        length = bytearray(LENGTH.size)
        yield from self._fill(memoryview(length), what)
        size = LENGTH.unpack(length)[0]
        if size > LARGEST_HEADER:
            raise RunFailed(f"rank {self.peer} sent a header of {size} bytes; is it the same version of mgclust?")
        header = bytearray(size)
        yield from self._fill(memoryview(header), what)
        if out is not None and length + header == _header(what, out.dtype.str, out.shape):
            return length + header, what, out
        sent, dtype, shape = self._read(bytes(header))
        if sent not in (what, instead):
            raise RunFailed(f"ranks disagree: this one is in {what}, rank {self.peer} in {sent}.")
        if out is None:
            out = self._room(bytes(header), dtype, shape)
        elif (out.dtype, out.shape) != (dtype, shape):
            raise RunFailed(
                f"ranks disagree in {what}: rank {self.peer} has {dtype} {shape}, not {out.dtype} {out.shape}."
            )
        return length + header, sent, out

    def _read(self, header: bytes) -> tuple[str, np.dtype, tuple[int, ...]]:
        try:
            sent, name, shape = parse_json(header)
            dtype = np.dtype(name)
            if dtype.hasobject or not all(isinstance(length, int) and length >= 0 for length in shape):
                raise ValueError("it should be numbers, in lengths >= 0")
            return sent, dtype, tuple(shape)
        except (ValueError, TypeError, OverflowError) as error:
            raise self._refused(header, error) from None

    def _room(self, header: bytes, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        try:
            return np.empty(shape, dtype)
        except (ValueError, TypeError, OverflowError, MemoryError) as error:
            raise self._refused(header, error) from None

    def _refused(self, header: bytes, error: Exception) -> RunFailed:
        return RunFailed(
            f"rank {self.peer} announced an array that cannot be received, {header[:200]!r} ({error}); is it the "
            "same version of mgclust?"
        )

    def _fill(self, buffer: memoryview, what: str) -> Move:
        left = len(buffer)
        while left:
            if self._ahead:
                some, self._ahead = self._ahead[:left], self._ahead[left:]
                buffer[-left : len(some) - left or None] = some
                left -= len(some)
                self._wire.received += len(some)
                continue
            try:
                if left < READ_AHEAD:
                    self._ahead = self._sock.recv(READ_AHEAD)
                    if not self._ahead:
                        raise self._lost(what)
                    continue
                got = self._sock.recv_into(buffer[-left:])
            except (BlockingIOError, ssl.SSLWantReadError):
                yield self, select.POLLIN
            except ssl.SSLWantWriteError:
                yield self, select.POLLOUT
            except OSError as error:
                raise self._lost(what) from error
            else:
                if not got:
                    raise self._lost(what)
                left -= got
                self._wire.received += got

    def _write(self, buffer: memoryview, what: str) -> Move:
        done = 0
        while done < len(buffer):
            try:
                moved = self._sock.send(buffer[done:])
            except (BlockingIOError, ssl.SSLWantWriteError):
                yield self, select.POLLOUT
            except ssl.SSLWantReadError:
                yield self, select.POLLIN
            except OSError as error:
                raise self._lost(what) from error
            else:
                done += moved
                self._wire.sent += moved

    def _lost(self, what: str) -> PeerLost:
        return PeerLost(f"rank {self.peer} closed its connection in {what}.")


def hung_up(links: Iterable[Link]) -> Link | None:
    """Find a link of which an end is closed, without reading.

    Parameters
    ----------
    links : iterable of Link
        Those to look at.
    """
    poll, by_number = select.poll(), {}
    for link in links:
        number = link.fileno()
        if number < 0:
            return link
        by_number[number] = link
        poll.register(number, select.POLLRDHUP)
    found = poll.poll(0)
    return by_number[found[0][0]] if found else None


# A message under way: it yields the link that it waits for, and select.POLLIN or POLLOUT.
Move = Generator[tuple[Link, int], None, Any]


def relay(source: Link, to: Link, what: str, out: np.ndarray | None = None) -> Move:
    """Receive an array and pass it on while it still arrives; for `together`.

    Parameters
    ----------
    source, to : Link
        Two links.
    what : str
        The collective.
    out : array, optional
        As of `Link.receiving`.
    """
    header, _, array = yield from source._announced(what, out)
    to._wire.messages_sent += 1
    yield from to._write(memoryview(header), what)
    rest = _bytes(array)
    while rest:
        chunk, rest = rest[:CHUNK], rest[CHUNK:]
        yield from source._fill(chunk, what)
        yield from to._write(chunk, what)
    return array


def in_turn(moves: Iterable[Move]) -> Move:
    """Do several messages over one link in one direction, and list what each returns; for `together`.

    Parameters
    ----------
    moves : iterable of generator
        Made by one link.
    """
    results = []
    for move in moves:
        results.append((yield from move))
    return results


def together(wire: Wire, what: str, *moves: Move) -> list[Any]:
    """Send and receive messages at the same time; what each returns.

    Parameters
    ----------
    wire : Wire
        Of their links.
    what : str
        The collective.
    *moves : generator
        Made by links and `relay`.

    Raises
    ------
    CollectiveTimeout
        No byte for the wire's timeout.
    PeerLost
        A rank closed its end.
    """
    results: list[Any] = [None] * len(moves)
    waiting: dict[int, tuple[Link, int]] = {}
    ready: Collection[int] = range(len(moves))
    last, moved = time.monotonic(), wire.sent + wire.received
    next_check = last + POLL_SECONDS
    try:
        while True:
            for place in ready:
                try:
                    waiting[place] = next(moves[place])
                except StopIteration as done:
                    results[place] = done.value
                    waiting.pop(place, None)
            if not waiting:
                return results
            ready = _ready(waiting, what)
            now = time.monotonic()
            if wire.sent + wire.received != moved:
                last, moved = now, wire.sent + wire.received
            if now >= next_check:
                wire.abort.check()
                next_check = now + POLL_SECONDS
            if not ready:
                peers = {link.peer for link, _ in waiting.values()}
                wire.watch(peers)
                if now - last > wire.timeout * (1 + min(link.margin for link, _ in waiting.values())):
                    raise CollectiveTimeout(too_late(min(peers, default=0), wire.timeout, what))
    except Exception as error:
        if waiting and time.monotonic() - last > wire.timeout / 2:
            vars(error)["mgclust_waited"] = what, sorted({link.peer for link, _ in waiting.values()})
        raise


def waited_for(error: BaseException) -> tuple[str, list[int]]:
    """The collective in which a rank waited for long before it had this error, and for which ranks; of others none.

    Where ranks wait for each other in a ring, only one of those that wait is next to the one that is late.
    """
    return vars(error).get("mgclust_waited", ("", []))


def too_late(peer: int, timeout: float, what: str) -> str:
    """The sentence of a CollectiveTimeout."""
    return (
        f"rank {peer} did not answer within timeout={timeout:g} s in {what}; it hangs or is much slower than the "
        "others."
    )


def _ready(waiting: dict[int, tuple[Link, int]], what: str) -> list[int]:
    """Find those that can go on, or none after a moment."""
    events: dict[int, int] = {}
    numbers: dict[int, int] = {}
    for place, (link, event) in waiting.items():
        numbers[place] = number = link.fileno()
        if number < 0:
            raise PeerLost(f"the connection to rank {link.peer} was closed in {what}.")
        events[number] = events.get(number, 0) | event
    poll = select.poll()
    for number, event in events.items():
        poll.register(number, event)
    found = dict(poll.poll(POLL_SECONDS * 1000))
    closed = select.POLLERR | select.POLLHUP | select.POLLNVAL
    return [place for place, (_, event) in waiting.items() if found.get(numbers[place], 0) & (event | closed)]


@functools.lru_cache(maxsize=256)
def _header(what: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    """Length and header of a message; ranks send and expect most of them several times."""
    header = json.dumps([what, dtype, shape]).encode()
    return LENGTH.pack(len(header)) + header


def _bytes(array: np.ndarray) -> memoryview:
    """The memory of a C-contiguous array."""
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)
