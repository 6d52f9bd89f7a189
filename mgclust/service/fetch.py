"""Files that jobs name by URL: only below prefixes that the service's owner allows, and never from internal addresses.

A name is resolved once, every address of it is looked at, and the connection goes to one that was: a name that means
something else a moment later gains nothing. Each hop of a redirection is treated like the first. Neither proxies nor
credentials are taken from anywhere.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from mgclust.errors import InputError, RunFailed

__all__ = ["NAME", "check_url", "fetch", "file_name", "is_public"]

HOPS = 5
STALL = 60.0  # seconds without a byte
LONGEST = 6 * 3600.0  # seconds for one file
PART = 1 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an address is one of the public Internet's, however it is written."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return is_public(str(ip.ipv4_mapped))
        if ip.sixtofour is not None or ip.teredo is not None or ip in _NAT64:
            return False  # lead to an IPv4 address that they contain
    return ip.is_global and not (ip.is_multicast or ip.is_reserved)


def check_url(url: str, prefixes: Sequence[str], public: Callable[[str], bool] = is_public) -> SplitResult:
    """Refuse a URL that this service does not fetch, as far as can be told without asking anybody.

    Raises
    ------
    InputError
        No http(s), a name or password in it, a path that goes up, a literal internal address, or not allowed.
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
        raise InputError(f"url={shown} should have a plain path, without . or .. and what stands for them.")
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
    """The name of the file that a URL leads to; its end says what the file is."""
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if not NAME.fullmatch(name):
        raise InputError(
            f"url={url.partition('?')[0][:200]!r} should end with a file's name (letters, digits and . _ -) that says "
            "what it is: .npy, .csv, .nii.gz, ..."
        )
    return name


def fetch(
    url: str,
    path: Path,
    prefixes: Sequence[str],
    limit: int,
    progress: Callable[[dict[str, Any]], None],
    *,
    resolve: Callable[..., Any] = socket.getaddrinfo,
    public: Callable[[str], bool] = is_public,
    context: ssl.SSLContext | None = None,
) -> dict[str, Any]:
    """Fetch a file, unless it is there; it appears under its name when it is whole.

    Parameters
    ----------
    url : str
    path : Path
        Of the file to make. What is returned is kept beside it.
    prefixes : sequence of str
        As for `check_url`.
    limit : int
        Bytes.
    progress : callable
        Hears how far it is.
    resolve : callable
        As `socket.getaddrinfo`.
    public : callable
        Tells whether an address may be asked.
    context : ssl.SSLContext, optional
        By default the machine's authorities are trusted.

    Returns
    -------
    dict
        ``url`` without its query, ``size`` and ``sha256``.

    Raises
    ------
    InputError
        Refused, not there, or too large.
    RunFailed
        The server or the way to it failed.
    """
    record = path.with_name("fetched.json")
    if path.exists():
        return dict(json.loads(record.read_text()))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name("partial")
    shown = url.partition("?")[0]
    try:
        with contextlib.ExitStack() as stack:
            response = _opened(url, prefixes, stack, resolve, public, context)
            with open(partial, "wb") as file:
                size, digest = _copy(response, file, shown, limit, progress)
        told = {"url": shown, "size": size, "sha256": digest}
        record.write_text(json.dumps(told))
        partial.rename(path)
        return told
    except (http.client.HTTPException, OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        raise RunFailed(f"{shown} could not be fetched: {error or type(error).__name__}.") from error
    finally:
        partial.unlink(missing_ok=True)


def _opened(
    url: str, prefixes: Sequence[str], stack: contextlib.ExitStack, resolve: Any, public: Any, context: Any
) -> http.client.HTTPResponse:
    """The answer at the end of all redirections."""
    for _ in range(HOPS + 1):
        parts, shown = check_url(url, prefixes, public), url.partition("?")[0]
        host, port = parts.hostname or "", _port(parts)
        addresses = [found[4][0] for found in resolve(host, port, type=socket.SOCK_STREAM)]
        if not addresses or not all(map(public, addresses)):
            raise InputError(f"{shown} leads to an internal address, which is never fetched; upload the file.")
        connected = stack.enter_context(socket.create_connection((addresses[0], port), STALL))
        if parts.scheme == "https":
            trusted = context or ssl.create_default_context()
            connected = stack.enter_context(trusted.wrap_socket(connected, server_hostname=host))
        # However slowly it sends: a read that waits ends, too.
        watch = threading.Timer(LONGEST, connected.shutdown, [socket.SHUT_RDWR])
        watch.daemon = True
        watch.start()
        stack.callback(watch.cancel)
        connection = http.client.HTTPConnection(host, port)
        connection.sock = connected
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Host": parts.netloc, "Accept-Encoding": "identity", "User-Agent": "mgclust", "Connection": "close"}
        connection.request("GET", target, headers=headers)
        response = stack.enter_context(connection.getresponse())
        if response.status == 200:
            return response
        if response.status not in (301, 302, 303, 307, 308):
            kind = RunFailed if response.status >= 500 else InputError
            raise kind(f"{shown} was answered by {response.status} {response.reason[:100]}; check the URL.")
        try:
            url = urljoin(url, response.getheader("Location", ""))
        except ValueError:
            raise InputError(f"{shown} was redirected to what is no URL; check it.") from None
    raise InputError(f"{shown} was redirected more than {HOPS} times; check the URL.")


def _copy(
    response: http.client.HTTPResponse, file: IO[bytes], shown: str, limit: int, progress: Any
) -> tuple[int, str]:
    total, digest, size = response.length, hashlib.sha256(), 0
    if total is None and not response.chunked:
        raise InputError(f"{shown}: its server does not say how long the file is, so that nobody knows a part from it.")
    while part := response.read1(PART) if size <= limit >= (total or 0) else b"":
        size += len(part)
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
    """Whether a URL has the scheme, host and port of another one, and a path below its."""
    folder = prefix.path.rstrip("/") + "/"
    same = all(
        getattr(parts, name) == getattr(prefix, name) for name in ("scheme", "hostname")
    ) and _port(parts) == _port(prefix)  # fmt: skip
    return same and (parts.path.startswith(folder) or parts.path == prefix.path != "")


def _literal(host: str) -> str | None:
    """The address that a host is, if it is one: also 2130706433, 0x7f.1 and 0177.0.0.1."""
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None
