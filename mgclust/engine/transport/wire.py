"""Messages between two ranks over one authenticated socket; every wait has a limit.

A message is a header and the raw bytes of one array. The header repeats the name of the sender's collective. So ranks
that disagree about what comes next fail with an error message instead of exchanging garbage.

A rank sends and receives concurrently in one thread (`together`): each message is a generator that yields when it would
have to wait. So a full buffer of one link does not delay the others, and no two threads are ever inside one TLS
connection, which OpenSSL forbids.

`multiprocessing.connection` is not used, because it cannot give up a wait, and copies received data twice.
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

POLL_SECONDS = 0.1  # seconds between two checks of the abort flag
LENGTH = struct.Struct("!I")
LARGEST_HEADER = 1 << 16
READ_AHEAD = 1 << 12  # bytes to read if fewer are expected, because the array after the header usually fits in
CHUNK = 1 << 16  # bytes that a rank receives before it passes them on


class PeerLost(RunFailed):
    """Another rank closed its end: it died, or failed first and reports the reason itself."""


class SessionLost(PeerLost):
    """Connections of the session are closed, and no rank has begun with the run."""


class Wire:
    """State that all links of a rank share.

    Parameters
    ----------
    key : bytes
        Key that both ends must know.
    abort : Abort
        Ends every wait.
    timeout : float
        Seconds without a byte after which a wait ends with CollectiveTimeout.
    client_tls, server_tls : ssl.SSLContext, optional
        Contexts that encrypt the links, for the end that dials and for the end that accepts.

    Attributes
    ----------
    watch : callable
        Called at intervals while links wait, with the ranks for which they wait; it may raise an error.
    sent, received : int
        Bytes of the messages of all links, before encryption.
    messages_sent, messages_received : int
        Number of these messages.
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
        """Make the proof that this end knows the key."""
        return hmac.digest(self.key, step + ranks + nonces, "sha256")


class Link:
    """One end of the connection between two ranks.

    Parameters
    ----------
    sock : socket.socket
        A connected and authenticated socket.
    wire : Wire
        Shared state with the limits of waits.
    peer : int
        Rank of the other end.

    Attributes
    ----------
    host : str
        Address of this end.
    local : bool
        Whether both ends have the same address, and so are on one host.
    margin : float
        Fraction of the timeout by which waits for the other end are longer.
    """

    def __init__(self, sock: socket.socket, wire: Wire, peer: int) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._wire = wire
        self.peer = peer
        self.margin = 0.0
        self._ahead = b""  # received bytes that have not been requested yet
        self.host, self.local = "", False
        with contextlib.suppress(OSError):  # the socket may have been closed in the meantime
            self.host = sock.getsockname()[0]
            self.local = self.host == sock.getpeername()[0]

    def send(self, what: str, array: np.ndarray) -> None:
        """Send an array as part of the collective ``what``."""
        together(self._wire, what, self.sending(what, array))

    def receive(self, what: str) -> np.ndarray:
        """Receive the array that the other end sends as part of the collective ``what``."""
        array: np.ndarray = together(self._wire, what, self.receiving(what))[0]
        return array

    def sending(self, what: str, array: np.ndarray) -> Move:
        """Make a message that sends an array as `send` does, for `together`."""
        array = np.ascontiguousarray(array)
        header = _header(what, array.dtype.str, array.shape)
        self._wire.messages_sent += 1
        if array.nbytes <= CHUNK:
            yield from self._write(memoryview(header + array.tobytes()), what)
            return
        yield from self._write(memoryview(header), what)
        yield from self._write(_bytes(array), what)

    def receiving(self, what: str, out: np.ndarray | None = None, instead: str | None = None) -> Move:
        """Make a message that receives an array as `receive` does, for `together`.

        Parameters
        ----------
        what : str
            Name of the collective.
        out : array, optional
            C-contiguous array for the result, of the shape and type that the other end sends.
        instead : str, optional
            Another name that the other end may send. The result is then the pair of the received name and the array.
        """
        _, sent, array = yield from self._announced(what, out, instead)
        if array.nbytes:
            yield from self._fill(_bytes(array), what)
        return (sent, array) if instead is not None else array

    def fileno(self) -> int:
        """Return the file descriptor; -1 after this end is closed."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close this end; the other end notices at once."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _announced(self, what: str, out: np.ndarray | None, instead: str | None = None) -> Move:
        """Read the header; return it, the other end's collective, and an array into which to receive."""
        self._wire.messages_received += 1
        length = bytearray(LENGTH.size)
        yield from self._fill(memoryview(length), what)
        size = LENGTH.unpack(length)[0]
        if size > LARGEST_HEADER:
            raise RunFailed(f"rank {self.peer} sent a header of {size} bytes; use one version of mgclust everywhere.")
        header = bytearray(size)
        yield from self._fill(memoryview(header), what)
        if out is not None and length + header == _header(what, out.dtype.str, out.shape):
            return length + header, what, out
        sent, dtype, shape = self._read(bytes(header))
        if sent not in (what, instead):
            raise RunFailed(f"ranks disagree: this rank is in {what}, rank {self.peer} in {sent}.")
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
                raise ValueError("it should have numbers, and lengths >= 0")
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
            f"rank {self.peer} announced an array that cannot be received, {header[:200]!r} ({error}); use one version "
            "of mgclust everywhere."
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
    """Find a link of which one end is closed, without reading.

    Parameters
    ----------
    links : iterable of Link
        Links to check.
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


# A message under way: it yields the link for which it waits, and select.POLLIN or POLLOUT.
Move = Generator[tuple[Link, int], None, Any]


def relay(source: Link, to: Link, what: str, out: np.ndarray | None = None) -> Move:
    """Receive an array, and pass it on while it is still arriving; for `together`.

    Parameters
    ----------
    source, to : Link
        Links from which to receive and to which to send.
    what : str
        Name of the collective.
    out : array, optional
        As in `Link.receiving`.
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
    """Send or receive several messages over one link, one after the other, for `together`; return their results.

    Parameters
    ----------
    moves : iterable of generator
        Messages of one link.
    """
    results = []
    for move in moves:
        results.append((yield from move))
    return results


def together(wire: Wire, what: str, *moves: Move) -> list[Any]:
    """Send and receive messages concurrently; return the result of each.

    Parameters
    ----------
    wire : Wire
        State that the links share.
    what : str
        Name of the collective.
    *moves : generator
        Messages, made by links and `relay`.

    Raises
    ------
    CollectiveTimeout
        No byte has arrived for the timeout of the wire.
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
    """Return the collective in which a rank waited too long, and the ranks for which it waited.

    For other errors, both are empty. If ranks wait for each other in a ring, only one of them waits for the late rank
    itself.
    """
    return vars(error).get("mgclust_waited", ("", []))


def too_late(peer: int, timeout: float, what: str) -> str:
    """Return the message of a CollectiveTimeout."""
    return (
        f"rank {peer} did not answer within timeout={timeout:g} s in {what}; it hangs or is much slower than the "
        "others."
    )


def _ready(waiting: dict[int, tuple[Link, int]], what: str) -> list[int]:
    """Return the messages that can continue; if there are none after a short wait, return an empty list."""
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
    """Make length and header of a message; they are cached, because most are sent and expected several times."""
    header = json.dumps([what, dtype, shape]).encode()
    return LENGTH.pack(len(header)) + header


def _bytes(array: np.ndarray) -> memoryview:
    """Return the memory of a C-contiguous array."""
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)
