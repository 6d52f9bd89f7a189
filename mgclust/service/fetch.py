"""Files that jobs name by URL: only below allowed prefixes, and never from internal addresses.

A name is resolved once, all its addresses are checked, and the connection goes to a checked one: DNS rebinding gains
nothing. Each redirection is treated like the first URL. No proxies and no credentials are used.

A server cannot block the fetcher: name resolution, connection, TLS, headers and the file share one deadline; headers
have a limit in bytes and seconds, and a file has a minimum rate.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import io
import ipaddress
import json
import os
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from mgclust.errors import InputError, RunFailed
from mgclust.json_text import parse_json

__all__ = ["NAME_PATTERN", "check_url", "fetch", "file_name", "is_public"]

MAX_HOPS = 5
STALL_SECONDS = 60.0  # without a byte, for the headers, and after which a file has a minimum rate
MIN_BYTES_PER_SECOND = 1024.0  # of a file, on average
MAX_HEAD_BYTES = 64 << 10  # of an answer before the file
CHUNK_BYTES = 1 << 20
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
PORTS = {"http": 80, "https": 443}
# IANA's registries of special-purpose addresses, in full: even the reachable entries serve other purposes than files.
# Addresses that are neither there nor unicast are rejected as well.
SPECIAL_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
            "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
            "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
            "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
        ),
    )
)  # fmt: skip
# All others, such as ::1, ::ffff:0:0/96, 64:ff9b::/96, 64:ff9b:1::/48, 100::/64, 5f00::/16, fc00::/7, fe80::/10,
# fec0::/10 and ff00::/8, are special or unassigned.
UNICAST_NETWORK = ipaddress.ip_network("2000::/3")


def is_public(address: str) -> bool:
    """Return whether an address, in any notation, belongs to the public Internet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if ip.version == 6 and ip not in UNICAST_NETWORK:
        return False
    return not any(ip in network for network in SPECIAL_NETWORKS)


def check_url(url: str, prefixes: Sequence[str], public: Callable[[str], bool] = is_public) -> SplitResult:
    """Check that this service may fetch a URL, without any request.

    Raises
    ------
    InputError
        Not http(s), with a user or password, with ``..`` in its path, with an internal address, or not allowed.
    """
    shown = repr(url.partition("?")[0][:200])
    try:
        parts = urlsplit(url)
        host, path = parts.hostname or "", unquote(parts.path)
        plain = re.fullmatch(r"[\x21-\x7e]+", url) and not set('\\"<>^`{|}') & set(url)
        if not plain or parts.scheme not in PORTS or not host or _port(parts) == 0:
            raise ValueError
    except ValueError:
        raise InputError(f"url={shown} should be http:// or https://, a host and a path, in ASCII.") from None
    if "@" in parts.netloc or parts.fragment:
        raise InputError(f"url={shown} should hold no user, password or fragment; leave it out.")
    if {".", ".."} & set(path.split("/")) or set("%\\\0") & set(path) or "%2f" in parts.path.lower():
        raise InputError(f"url={shown} should have a plain path, without . or .. and their encodings.")
    literal = _literal(host)
    if host == "localhost" or host.endswith(".localhost") or (literal is not None and not public(literal)):
        raise InputError(f"url={shown} is an internal address, which is never fetched; upload the file.")
    if not any(_below(parts, urlsplit(prefix)) for prefix in prefixes):
        raise InputError(
            f"url={shown} is not below what this service may fetch ({', '.join(prefixes) or 'nothing'}); upload the "
            "file, or ask the administrator for a prefix in MGCLUST_SERVICE_URLS."
        )
    return parts


def file_name(url: str) -> str:
    """The file name of a URL, whose suffix is the format."""
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if not NAME_PATTERN.fullmatch(name):
        raise InputError(
            f"url={url.partition('?')[0][:200]!r} should end with a file's name (letters, digits and . _ -) and a "
            "suffix: .npy, .csv, .nii.gz, ..."
        )
    return name


def fetch(
    url: str,
    path: Path,
    prefixes: Sequence[str],
    limit: int,
    progress: Callable[[dict[str, Any]], None],
    *,
    seconds: float = 3600.0,
    resolve: Callable[..., Any] = socket.getaddrinfo,
    public: Callable[[str], bool] = is_public,
    context: ssl.SSLContext | None = None,
) -> dict[str, Any]:
    """Fetch a file, unless it exists; it appears under its name when it is complete.

    Parameters
    ----------
    url : str
    path : Path
        Of the file to make. The returned record is stored beside it.
    prefixes : sequence of str
        As for `check_url`.
    limit : int
        Bytes.
    progress : callable
        Receives progress events.
    seconds : float
        Time limit.
    resolve : callable
        As `socket.getaddrinfo`.
    public : callable
        Whether an address may be connected to.
    context : ssl.SSLContext, optional
        By default with the certificate authorities of the machine.

    Returns
    -------
    dict
        ``url`` without its query, ``size`` and ``sha256``.

    Raises
    ------
    InputError
        Unauthorized, not there, too large, or too late.
    RunFailed
        The server or the network failed.
    """
    record = path.with_name("fetched.json")
    if path.exists():
        return dict(parse_json(record.read_text()))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name("partial")
    shown, deadline = url.partition("?")[0], time.monotonic() + seconds
    try:
        with contextlib.ExitStack() as stack:
            response, answer = _opened(url, prefixes, stack, deadline, resolve, public, context)
            with open(partial, "wb") as file:
                size, digest = _copy(response, answer, file, shown, limit, progress)
        fetched = {"url": shown, "size": size, "sha256": digest}
        record.write_text(json.dumps(fetched))
        partial.rename(path)
        return fetched
    except (http.client.HTTPException, OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        if time.monotonic() >= deadline:
            raise InputError(
                f"{shown} did not arrive in time: the files of a job should take at most fetch_seconds; send less, or "
                "ask the administrator for a higher MGCLUST_SERVICE_FETCH_SECONDS."
            ) from error
        raise RunFailed(f"{shown} could not be fetched: {error or type(error).__name__}.") from error
    finally:
        partial.unlink(missing_ok=True)


class _Answer(io.RawIOBase):
    """The answer of a server, as a limited stream."""

    def __init__(self, connected: socket.socket, shown: str) -> None:
        self._socket, self._shown, self._head = connected, shown, MAX_HEAD_BYTES
        self._begun: float | None = None  # end of the headers
        self.arrived = 0  # bytes of the file so far

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive some bytes, unless the headers are too long or the file too slow."""
        if self._begun is not None:
            took = time.monotonic() - self._begun
            if took > STALL_SECONDS and self.arrived < MIN_BYTES_PER_SECOND * took:
                raise TimeoutError(f"it came with less than {MIN_BYTES_PER_SECOND:.0f} bytes a second")
            return self._socket.recv_into(buffer)
        count = self._socket.recv_into(memoryview(buffer)[: self._head + 1])
        self._head -= count
        if self._head < 0:
            raise InputError(
                f"{self._shown} was answered with more than {MAX_HEAD_BYTES} bytes of headers; check the URL."
            )
        return count

    def end_head(self) -> None:
        """Start to measure the file."""
        self._begun = time.monotonic()


@contextlib.contextmanager
def _ending(connected: socket.socket, seconds: float) -> Iterator[None]:
    """Shut a connection down after some time; this ends a pending read, too."""
    cut_off = False
    with connected.dup() as same:  # TLS takes over the socket itself

        def cut() -> None:
            nonlocal cut_off
            cut_off = True
            with contextlib.suppress(OSError):
                same.shutdown(socket.SHUT_RDWR)

        watch = threading.Timer(max(0.0, seconds), cut)
        watch.daemon = True
        watch.start()
        try:
            yield
        except (http.client.HTTPException, OSError, InputError) as error:
            if cut_off:
                raise TimeoutError(f"its answer was not over after {seconds:.0f} s") from error
            raise
        finally:
            watch.cancel()
            watch.join()  # it may use the socket, which is closed next
    if cut_off:  # the shutdown may look like a regular end of headers or chunks
        raise TimeoutError(f"its answer was not over after {seconds:.0f} s")


def _addresses(resolve: Callable[..., Any], host: str, port: int, deadline: float) -> list[str]:
    """Resolve a name within a deadline, which resolvers do not have."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put([found[4][0] for found in resolve(host, port, type=socket.SOCK_STREAM)])
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        found = answers.get(timeout=max(0.0, min(STALL_SECONDS, deadline - time.monotonic())))
    except queue.Empty:
        raise TimeoutError(f"{host} could not be resolved in time") from None
    if isinstance(found, Exception):
        raise found
    return list(found)


def _opened(
    url: str,
    prefixes: Sequence[str],
    stack: contextlib.ExitStack,
    deadline: float,
    resolve: Any,
    public: Any,
    context: Any,
) -> tuple[http.client.HTTPResponse, _Answer]:
    """Follow redirections to the final answer."""
    for _ in range(MAX_HOPS + 1):
        parts, shown = check_url(url, prefixes, public), url.partition("?")[0]
        host, port = parts.hostname or "", _port(parts)
        addresses = _addresses(resolve, host, port, deadline)
        if not addresses or not all(map(public, addresses)):
            raise InputError(f"{shown} leads to an internal address, which is never fetched; upload the file.")
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is over")
        connected = stack.enter_context(socket.create_connection((addresses[0], port), min(STALL_SECONDS, left)))
        connected.settimeout(STALL_SECONDS)
        stack.enter_context(_ending(connected, left))
        with _ending(connected, min(STALL_SECONDS, left)):
            if parts.scheme == "https":
                trusted = context or ssl.create_default_context()
                connected = stack.enter_context(trusted.wrap_socket(connected, server_hostname=host))
            connection, answer = http.client.HTTPConnection(host, port), _Answer(connected, shown)
            # The methods of a socket that are needed here; `stack` closes the connection.
            connection.sock = SimpleNamespace(
                makefile=lambda mode, answer=answer: io.BufferedReader(answer),
                sendall=connected.sendall,
                close=lambda: None,
            )
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            headers = {
                "Host": parts.netloc, "Accept-Encoding": "identity", "User-Agent": "mgclust", "Connection": "close",
            }  # fmt: skip
            connection.request("GET", target, headers=headers)
            response = stack.enter_context(connection.getresponse())
        answer.end_head()
        if response.status == 200:
            return response, answer
        if response.status not in (301, 302, 303, 307, 308):
            kind = RunFailed if response.status >= 500 else InputError
            raise kind(f"{shown} was answered by {response.status} {response.reason[:100]}; check the URL.")
        try:
            url = urljoin(url, response.getheader("Location", ""))
        except ValueError:
            raise InputError(f"{shown} was redirected to an invalid URL; check it.") from None
    raise InputError(f"{shown} was redirected more than {MAX_HOPS} times; check the URL.")


def _copy(
    response: http.client.HTTPResponse, answer: _Answer, file: IO[bytes], shown: str, limit: int, progress: Any
) -> tuple[int, str]:
    total, digest, size = response.length, hashlib.sha256(), 0
    if total is None and not response.chunked:
        raise InputError(f"{shown}: its server does not send the length, so a truncated file could not be detected.")
    while part := response.read1(CHUNK_BYTES) if size <= limit >= (total or 0) else b"":
        size += len(part)
        answer.arrived = size
        digest.update(part)
        file.write(part)
        progress({"stage": "fetch", "fraction": size / total if total else None})
    if size > limit or (total or 0) > limit:
        raise InputError(f"{shown} should have at most upload_limit={limit} bytes.")
    if total is not None and size < total:
        raise http.client.IncompleteRead(b"", total - size)
    file.flush()
    os.fsync(file.fileno())
    return size, digest.hexdigest()


def _port(parts: SplitResult) -> int:
    return PORTS[parts.scheme] if parts.port is None else parts.port


def _below(parts: SplitResult, prefix: SplitResult) -> bool:
    """Return whether a URL has the scheme, host and port of a prefix, and a path below it."""
    folder = prefix.path.rstrip("/") + "/"
    same = all(
        getattr(parts, name) == getattr(prefix, name) for name in ("scheme", "hostname")
    ) and _port(parts) == _port(prefix)  # fmt: skip
    return same and (parts.path.startswith(folder) or parts.path == prefix.path != "")


def _literal(host: str) -> str | None:
    """The address in a host name, if it is one, also in notations like 2130706433, 0x7f.1 and 0177.0.0.1."""
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None
