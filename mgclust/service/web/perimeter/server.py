"""The server of the web process, with limits of connections: number, bytes and deadlines.

uvicorn's parser does not limit headers, and uvicorn does not limit the time in which a request arrives. If all
connections are in use, the oldest idle or incomplete connection without a valid token is closed for a new one. So a
client that opens many connections does not keep others out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import json
import math
import os
import resource
import socket
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from mgclust.service.addresses import Proxies, network
from mgclust.service.settings import Settings
from mgclust.service.web.perimeter import authentication

__all__ = ["Connections", "LimitedConnection", "Server"]

CHUNK_BYTES, UPLOAD_CHUNK_BYTES = 16 << 10, 64 << 10  # bytes that are read and parsed at once
MAX_UNREAD_BYTES = 4 << 10  # unread bytes of a body beyond which reading pauses until the application has taken them
MAX_HEADERS = 128
MAX_PIPELINED = 8  # waiting requests per connection
LINGER_SECONDS = 1.0  # time for a client that still sends a rejected request to read the rejection
DEADLINE_CHECK_SECONDS = 0.25
MAX_CONNECTIONS = 2000  # beyond this number, idle and incomplete connections without a token are closed
MAX_CONNECTIONS_OF_ADDRESS = 256  # connections of one address without a valid token; no limit for trusted proxies
MAX_HEADER_BYTES = 32 << 10  # size of the first line and all headers
HEADER_SECONDS = 10.0  # time for headers to arrive
BODY_SECONDS = 30.0  # time for a body to arrive; for an upload, the longest pause
UPLOAD_BYTES_PER_SECOND = 1024.0  # average rate that an upload needs after `BODY_SECONDS`
IDLE_SECONDS = 30.0  # time until a connection without a request is closed
WRITE_SECONDS = 60.0  # time for a client to receive the next part of its answer
OTHER_DESCRIPTORS = 512  # open files for everything except connections
TICKS = 10  # ticks of 0.1 s between two attempts to listen at the path of another process

Place = dict["LimitedConnection", None]  # in order of arrival


class Server(uvicorn.Server):
    """Server at an address, and at a socket in the data folder, where no other account can replace the socket.

    Parameters
    ----------
    config : uvicorn.Config
    path : Path
        Path of the socket, to which clients send the token of the data folder.
    stopping : threading.Event
        If set, the server ends, even before it listens.
    """

    def __init__(self, config: uvicorn.Config, path: Path, stopping: threading.Event) -> None:
        super().__init__(config)
        self._path, self._waiting, self._stopping = path, False, stopping
        self._inode: int | None = None  # inode of the socket that this process has made

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at the address and at the socket in the data folder."""
        await super().startup(sockets)
        await self._listen_at_path()

    async def on_tick(self, counter: int) -> bool:
        """Listen at the socket once another web process has left it, e.g. after the update of a deployment."""
        if self._waiting and counter % TICKS == 0:
            await self._listen_at_path()
        return await super().on_tick(counter) or self._stopping.is_set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Remove the socket in the data folder, and end all connections."""
        with contextlib.suppress(OSError):  # another web process may have made a new socket, which must stay
            if self._inode == os.lstat(self._path).st_ino:
                os.unlink(self._path)
        await super().shutdown(sockets)

    async def _listen_at_path(self) -> None:
        kind: Any = self.config.http_protocol_class
        given = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        protocol = functools.partial(kind, **given)
        try:
            bound = _bound(self._path)
        except OSError as error:  # another web process listens there, the path is too long, ...
            if not self._waiting:
                reason = error.strerror or error
                print(
                    f"no socket at {self._path} ({reason}): set MGCLUST_URL and MGCLUST_TOKEN_FILE for commands on "
                    "this machine",
                    file=sys.stderr,
                )
            self._waiting = error.errno == errno.EADDRINUSE
        else:
            self._waiting, self._inode = False, os.lstat(self._path).st_ino
            self.servers.append(await asyncio.get_running_loop().create_unix_server(protocol, sock=bound))


def _bound(path: Path) -> socket.socket:
    """Make a socket at a path; first remove the sockets of this folder at which no process listens any more.

    A process that was killed leaves its socket, and the name of this socket may contain another port.
    """
    for left in path.parent.glob(f"*{path.suffix}"):
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.setblocking(False)
            if probe.connect_ex(str(left)) == errno.ECONNREFUSED and stat.S_ISSOCK(os.lstat(left).st_mode):
                os.unlink(left)
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(str(path))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


class Connections:
    """All connections of a web process; a factory of protocols for uvicorn.

    Parameters
    ----------
    settings : Settings
        Settings of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self.most = MAX_CONNECTIONS
        self._proxies = Proxies(settings.trusted_proxies)
        self._per_user = sum(authentication.MAX_OPEN.values())
        self._unknown: Place = {}
        self._of_address: dict[str, Place] = {}  # connections without a token, except from trusted proxies
        self._of_user: dict[str, Place] = {}
        self._known: Place = {}
        self._checked = math.nan
        # All connections can share one buffer, because each read is parsed before the next read.
        self.buffer = memoryview(bytearray(UPLOAD_CHUNK_BYTES))

    def __call__(self, **given: Any) -> asyncio.BufferedProtocol:
        """Make the protocol of a connection."""
        return _Reads(LimitedConnection(self, **given))

    def raise_limit(self) -> None:
        """Raise the limit of open files to the limit of connections, or lower the limit of connections."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self.most + OTHER_DESCRIPTORS
        allowed = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        if soft != resource.RLIM_INFINITY and soft < allowed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        self.most = min(self.most, max(1, allowed - OTHER_DESCRIPTORS))

    def add(self, connection: LimitedConnection) -> bool:
        """Add a new connection; return False if there is no room for it."""
        if math.isnan(self._checked):
            self._checked = connection.loop.time()
            connection.loop.call_later(DEADLINE_CHECK_SECONDS, self._check_deadlines, connection.loop)
        if len(self._unknown) + len(self._known) >= self.most and not (
            _drop_oldest(self._unknown) or _drop_oldest(self._known, known=True)
        ):
            return False
        connection.address = network(connection.client[0] if connection.client else "")
        if not self._proxies.trusts(connection.address):
            those = self._of_address.setdefault(connection.address, {})
            if len(those) >= MAX_CONNECTIONS_OF_ADDRESS and not _drop_oldest(those):
                return False
            those[connection] = None
        self._unknown[connection] = None
        return True

    def authenticate(self, connection: LimitedConnection, user: str) -> None:
        """Count a connection with a valid token for the user of the token."""
        if connection.user == user:
            return
        self.remove(connection)
        connection.user = user
        self._known[connection] = None
        if self._proxies.trusts(connection.address):
            return
        those = self._of_user.setdefault(user, {})
        if len(those) >= self._per_user:
            _drop_oldest(those, known=True)
        those[connection] = None

    def remove(self, connection: LimitedConnection) -> None:
        """Remove a connection."""
        self._unknown.pop(connection, None)
        self._known.pop(connection, None)
        for key, places in ((connection.address, self._of_address), (connection.user or "", self._of_user)):
            if (those := places.get(key)) is not None:
                those.pop(connection, None)
                if not those:
                    del places[key]

    def _check_deadlines(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        late, self._checked = now - self._checked - DEADLINE_CHECK_SECONDS, now
        for connection in (*self._unknown, *self._known):
            # Time during which this process was stopped or busy is not the client's delay.
            connection.check_deadline(now, late if late > 1.0 else 0.0)
        loop.call_later(DEADLINE_CHECK_SECONDS, self._check_deadlines, loop)


def _drop_oldest(those: Place, known: bool = False) -> bool:
    """Close the oldest connection without a complete request; return whether a connection was closed.

    If the connections have a valid token (`known`), no connection is closed while a body arrives.
    """
    found = next((each for each in those if not (each.is_sending() if known else each.is_answered())), None)
    if found is not None:
        found.drop()
    return found is not None


class _Reads(asyncio.BufferedProtocol):
    """The protocol of a connection for the event loop, with a buffer of limited size.

    uvicorn's class is an `asyncio.Protocol`, for which event loops read 256 KiB at once.
    """

    def __init__(self, connection: LimitedConnection) -> None:
        for name in ("connection_made", "connection_lost", "get_buffer", "buffer_updated", "eof_received",
                     "pause_writing", "resume_writing"):  # fmt: skip
            setattr(self, name, getattr(connection, name))


class _Refused(Exception):
    """Raised in callbacks to stop the parser."""


class LimitedConnection(HttpToolsProtocol):
    """A connection with limits of bytes and deadlines."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all = connections
        self.address, self.user = "", None  # type: str, str | None
        self._unprocessed = 0  # bytes since the start of the request, or since the last part of its body
        self._headers_size = self._headers_count = 0
        self._in_head, self._complete = False, True
        self._upload_began, self._received = math.nan, 0
        self._deadline = self._write_deadline = math.inf
        self._refusal = (400, "this is not an HTTP request.")
        self._ended = False

    # Called by uvicorn and `AuthenticationMiddleware`.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, or close it."""
        super().connection_made(transport)
        self._deadline = self.loop.time() + HEADER_SECONDS
        if not self._all.add(self):
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._ended = True
        self._all.remove(self)
        super().connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes; it is small except for uploads: each connection may keep its bytes."""
        return self._all.buffer[: CHUNK_BYTES if math.isnan(self._upload_began) else UPLOAD_CHUNK_BYTES]

    def buffer_updated(self, size: int) -> None:
        """Parse new bytes, within the limit."""
        if self._ended or self.transport.is_closing():
            return
        self._unprocessed += size
        self.data_received(self._all.buffer[:size])  # type: ignore[arg-type]  # the parser accepts any buffer
        if self._unprocessed > MAX_HEADER_BYTES + CHUNK_BYTES:
            self._refuse(*self._too_large())

    def pause_writing(self) -> None:
        """Start the deadline by which the client has to read."""
        self._write_deadline = self.loop.time() + WRITE_SECONDS
        super().pause_writing()

    def resume_writing(self) -> None:
        """Stop the deadline."""
        self._write_deadline = math.inf
        super().resume_writing()

    def admit(self, user: str, upload: bool) -> None:
        """Accept the current request, which has a valid token and may be an upload."""
        self._all.authenticate(self, user)
        if upload and not self._complete:
            self._upload_began, self._received = self.loop.time(), 0
            self._extend_deadline()

    def is_closing(self) -> bool:
        """Return whether the client has disconnected, or gets no answer."""
        return self._ended

    def is_answered(self) -> bool:
        """Return whether a complete request is being answered."""
        return self._complete and self.cycle is not None and not self.cycle.response_complete

    def is_sending(self) -> bool:
        """Return whether a request is being answered, or its body is arriving."""
        return self.is_answered() or not (self._complete or self._in_head)

    def drop(self) -> None:
        """Abort the connection."""
        self._end()
        self._all.remove(self)
        self.transport.abort()

    def check_deadline(self, now: float, late: float) -> None:
        """Close the connection if a deadline has passed."""
        if self.flow.read_paused and not (self._complete or self._ended):
            late = max(late, DEADLINE_CHECK_SECONDS)  # the service itself has paused the reading
        if late:
            self._deadline += late
            self._write_deadline += late
            self._upload_began += late
        if now >= self._write_deadline:
            self.drop()
        elif now >= self._deadline:
            if self._ended or self._is_idle() or (self.cycle is not None and self.cycle.response_complete):
                self.drop()
            else:
                self._refuse(408, "the request takes too long to arrive; send it again, faster.")

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Start to count a request."""
        super().on_message_begin()
        self.scope["state"]["connection"] = self  # for `AuthenticationMiddleware`
        self._in_head, self._complete, self._unprocessed = True, False, 0
        self._headers_size = self._headers_count = 0
        self._upload_began = math.nan
        self._deadline = self.loop.time() + HEADER_SECONDS

    def on_url(self, url: bytes) -> None:
        """Count the first line."""
        self._count(len(url), 0)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header or a trailer."""
        self._count(len(name) + len(value) + 4, 1)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Wait for the body, if there is one."""
        self._in_head, self._unprocessed = False, 0
        self._deadline = self.loop.time() + BODY_SECONDS
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            self._refusal = (400, f"more than {MAX_PIPELINED} requests wait for their answers on one connection.")
            raise _Refused

    def on_body(self, body: bytes) -> None:
        """Count a part of the body."""
        self._unprocessed = 0
        self._received += len(body)
        if not math.isnan(self._upload_began):
            self._extend_deadline()
        super().on_body(body)
        if not self.cycle.response_complete and len(self.cycle.body) > MAX_UNREAD_BYTES:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """Stop the deadline while the request is answered."""
        self._complete = True
        self._set_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the deadline of the next request, or of the rest of a request that was answered early."""
        super().on_response_complete()
        if not self._in_head:
            self._set_deadline()

    def send_400_response(self, msg: str) -> None:
        """Reject a request that is invalid or exceeds a limit."""
        self._refuse(*self._refusal)

    # Internal methods.

    def _count(self, size: int, headers: int) -> None:
        self._headers_size += size
        self._headers_count += headers
        if self._headers_size > MAX_HEADER_BYTES or self._headers_count > MAX_HEADERS:
            self._refusal = self._too_large()
            raise _Refused

    def _too_large(self) -> tuple[int, str]:
        return 431, f"a request should have at most {MAX_HEADER_BYTES} bytes of headers, and {MAX_HEADERS} headers."

    def _extend_deadline(self) -> None:
        """Extend the deadline of an upload, which has limits for pauses and for its average rate."""
        rate = self._upload_began + BODY_SECONDS + self._received / UPLOAD_BYTES_PER_SECOND
        self._deadline = min(self.loop.time() + BODY_SECONDS, rate)

    def _set_deadline(self) -> None:
        now = self.loop.time()
        answered = self.cycle is None or self.cycle.response_complete
        if answered:
            self._deadline = now + (IDLE_SECONDS if self._complete else LINGER_SECONDS)
        else:
            self._deadline = math.inf if self._complete else now + BODY_SECONDS

    def _is_idle(self) -> bool:
        return self._complete and not self._in_head

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer an incomplete request, unless an answer has begun, and close the connection."""
        if self._ended:
            return
        begun = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if begun or self.transport.is_closing() or self.pipeline:
            self.drop()
            return
        body = json.dumps({"error": sentence, "fault": None}).encode()
        headers = [*self.server_state.default_headers, (b"content-type", b"application/json")]
        headers += [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self.transport.write(STATUS_LINE[status] + lines + b"\r\n" + body)
        self._end()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.pause_reading()
        self._deadline = self.loop.time() + LINGER_SECONDS

    def _end(self) -> None:
        """Tell the application that the client has disconnected."""
        self._ended = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
