"""The connection of a client to a service: its URL and token, and requests that are sent again if necessary."""

from __future__ import annotations

import ipaddress
import json
import os
import random
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import httpx

from mgclust.base.errors import InputError, MgclustError, RunFailed
from mgclust.outside.json_text import parse_json
from mgclust.service.settings import Settings, variable

__all__ = ["CHUNK_BYTES", "Retries", "RetryAfter", "ServiceConnection", "check", "check_id", "list_of"]

CHUNK_BYTES = 1 << 20  # bytes of a file that are in memory at a time
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)  # pauses before a request is sent again to a service that does not answer
# Further pauses of a client that follows a job: a service or a machine that restarts may take minutes.
WATCH_PAUSES = (8.0, *[15.0] * 38)
TELL_SECONDS = 0.5  # time spent in these pauses after which a command reports that it still tries
MAX_SOCKET_PATH = 103 if sys.platform == "darwin" else 107  # longest path, in bytes
MAX_RETRY_SECONDS = 120.0  # limit for a request that is sent again because the service asks for it


class ServiceConnection:
    """A connection to a service.

    Parameters
    ----------
    url, token : str, optional
        URL and token; see `Service`.

    Attributes
    ----------
    on_wait : callable or None
        Called with a message if a request has not been answered for half a second and will be sent again.

    Raises
    ------
    InputError
        The URL or the token is invalid.
    """

    on_wait: Callable[[str], None] | None = None

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        settings = Settings.read()
        given = url or os.environ.get("MGCLUST_URL")
        self.url = _checked_url(given) if given else _own_url(settings)
        token = token or variable("MGCLUST_TOKEN")
        base, transport = self.url, None
        self.pages_url = self.url  # address for browsers; `url` may be a socket
        self._token_file: Path | None = None  # where the token was found, if not in the environment
        if not token and (not given or _is_own(httpx.URL(self.url), settings)):
            token = _token_left(settings.data)
            self._token_file = settings.data / "token"
            if token:  # use the socket: any account may listen at the port while the service is down
                if len(os.fsencode(settings.socket)) > MAX_SOCKET_PATH:
                    raise InputError(
                        f"data={str(settings.data)!r} is too long: a socket's path has <= {MAX_SOCKET_PATH} bytes; "
                        "set MGCLUST_URL and MGCLUST_TOKEN_FILE, or serve a folder with a shorter path."
                    )
                self.url, base = f"unix://{settings.socket}", "http://localhost"
                transport = httpx.HTTPTransport(uds=str(settings.socket))
        token = (token or "").strip()
        if not re.fullmatch("[!-~]*", token):
            raise InputError("the token (MGCLUST_TOKEN) should be ASCII without spaces, as the service showed it.")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=f"{base}/api/v1", headers=headers, timeout=60.0, transport=transport)
        self._close = weakref.finalize(self, self._http.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. The end of a ``with`` block or of the process also closes it."""
        self._close()

    def call(self, verb: str, path: str, *, parts: Callable[[], Iterator[bytes]] | None = None, **how: Any) -> Any:
        """Send a request, and send it again if nothing answers; return the JSON answer or raise the service's error.

        Parameters
        ----------
        verb : str
            HTTP method, such as "GET".
        path : str
            Path below ``/api/v1``, with a slash at the beginning.
        parts : callable, optional
            Function that returns an iterator over the parts of a body that is not JSON. It is called for each sending.
        **how : object
            The body as ``json``, and other arguments of ``httpx.Client.request``.
        """
        body: bytes | None = None
        if "json" in how:
            try:
                body = json.dumps(how.pop("json"), ensure_ascii=False, allow_nan=False).encode()
            except (TypeError, ValueError) as error:  # NaN, infinity, lone surrogates, objects
                raise InputError(
                    f"the request cannot be sent as JSON: {error}; give finite numbers and text."
                ) from None
            how["headers"] = {"Content-Type": "application/json", **how.get("headers", {})}
        retries = Retries(self)
        while True:
            try:
                content = body if parts is None else parts()
                answer = check(self._http.request(verb, path, content=content, **how))
            except (httpx.TransportError, RetryAfter) as error:
                retries.wait(error)
                continue
            return self.parse(answer.content)

    def parse(self, text: str | bytes) -> Any:
        """Parse the JSON of an answer.

        Parameters
        ----------
        text : str or bytes
            The answer.
        """
        try:
            return parse_json(text)
        except ValueError:
            raise RunFailed(f"the server at {self.url} is not a mgclust service; set MGCLUST_URL.") from None

    def stream(self, path: str, **headers: str) -> Any:
        """Send a request whose answer is read in parts.

        Parameters
        ----------
        path : str
            Path below ``/api/v1``, with a slash at the beginning.
        **headers : str
            Headers of the request.
        """
        return self._http.stream("GET", path, headers=headers, timeout=httpx.Timeout(60.0, read=60.0))

    def unreachable(self, error: Exception) -> RunFailed:
        """Make the error for a service that does not answer.

        Parameters
        ----------
        error : Exception
            Exception of the request.
        """
        return RunFailed(
            f"{self.no_answer(error)}; start one with 'mgclust serve', or set MGCLUST_URL and MGCLUST_TOKEN."
        )

    def no_answer(self, error: Exception) -> str:
        """Return the message that no service answers.

        Parameters
        ----------
        error : Exception
            Exception of the request.
        """
        # The error of an invalid request would quote the request, including the token.
        reason = "the request is not valid HTTP" if isinstance(error, httpx.LocalProtocolError) else error
        return f"no service answers at {self.url} ({reason})"


class RetryAfter(Exception):
    """The service asks the client to send the request again after some seconds."""

    def __init__(self, refusal: MgclustError, seconds: float) -> None:
        super().__init__(str(refusal))
        self.refusal, self.seconds = refusal, seconds


class Retries:
    """Rules for sending one request again.

    Parameters
    ----------
    connection : ServiceConnection
        The connection.
    job : str, optional
        Id of a job that the client follows. The client then tries for 10 minutes, because the job continues.
    """

    def __init__(self, connection: ServiceConnection, job: str | None = None) -> None:
        self._connection, self._failures, self._until = connection, 0, time.monotonic() + MAX_RETRY_SECONDS
        self._job, self._pauses = job, (*RETRY_SECONDS, *(WATCH_PAUSES if job else ()))

    def wait(self, error: httpx.TransportError | RetryAfter) -> None:
        """Wait until the request may be sent again, or raise the error if the time for retries is over."""
        if isinstance(error, RetryAfter):
            pause = error.seconds * random.uniform(1.0, 1.5)  # random, so that not all clients try at once
            if time.monotonic() + pause > self._until:
                raise error.refusal from None
        elif self._failures == len(self._pauses):
            quotable = not isinstance(error, httpx.LocalProtocolError)
            raise self._given_up(error) from (error if quotable else None)
        else:
            pause = self._pauses[self._failures]
            self._tell(error)
            self._failures += 1
        time.sleep(pause)

    def _given_up(self, error: httpx.TransportError) -> RunFailed:
        if self._job is None:
            return self._connection.unreachable(error)
        return RunFailed(
            f"{self._connection.no_answer(error)}; the service keeps job {self._job}: start the service, then follow "
            f"the job with 'mgclust watch {self._job}'."
        )

    def _tell(self, error: httpx.TransportError) -> None:
        """Report once that the request is sent again, and until when."""
        before, left = sum(self._pauses[: self._failures]), sum(self._pauses[self._failures :])
        if self._connection.on_wait and before <= TELL_SECONDS < before + self._pauses[self._failures]:
            until = time.strftime("%H:%M:%S", time.localtime(time.time() + left))
            kept = "" if self._job is None else "; the service keeps the job"
            self._connection.on_wait(
                f"{self._connection.no_answer(error)}; trying again until {until} ({left:.0f} s){kept}."
            )


def check(answer: httpx.Response) -> httpx.Response:
    """Return a successful answer; raise the error of any other answer."""
    if answer.is_success:
        return answer
    answer.read()
    try:
        sentence = str(parse_json(answer.content)["error"])
    except (ValueError, KeyError, TypeError):
        sentence = f"the service answered {answer.status_code} {answer.reason_phrase}"
    refusal = (InputError if answer.status_code < 500 else RunFailed)(sentence)
    after = answer.headers.get("Retry-After", "")
    raise RetryAfter(refusal, float(after)) if after.isdecimal() else refusal


def check_id(id_: str, lists: str, length: int = 32, or_part: str = "") -> str:
    """Return the id if it has `length` hexadecimal digits; else raise `InputError`, which names the command `lists`."""
    if not re.fullmatch(f"[0-9a-f]{{{length}}}", id_):
        raise InputError(f"id={id_[:80]!r} should be {length} characters of 0-9 and a-f{or_part}; '{lists}' lists ids.")
    return id_


def list_of(name: str, given: Any) -> list[Any]:
    """Return values as a list; reject a single value and a text, because each character would become a value."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InputError(f"{name}={given!r} should be a list; give {name}=[{given!r}].")
    return list(given)


def _own_url(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def _checked_url(text: str) -> str:
    """Check that a URL has http(s), a host, and at most a port and a path; remove slashes at its end."""
    text = text.strip().rstrip("/")
    try:
        url = httpx.URL(text)
        place = url.scheme in ("http", "https") and url.host and (url.port is None or 0 < url.port < 65536)
        good = place and not (url.userinfo or url.query or url.fragment)
    except httpx.InvalidURL:
        good = False
    if good:
        return text
    shown = "" if set("@?#") & set(text) else f"={text[:200]!r}"  # the URL may hold a password
    raise InputError(f"the service's URL (MGCLUST_URL){shown} should be like https://host:8700, without user or query.")


def _is_own(url: httpx.URL, settings: Settings) -> bool:
    """Return whether a URL belongs to the service on this machine with these settings."""
    try:
        here = url.host == "localhost" or ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        here = False
    return (url.port or {"http": 80, "https": 443}[url.scheme]) == settings.port and (here or url.host == settings.host)


def _token_left(data: Path) -> str:
    try:
        return (data / "token").read_text(errors="replace")
    except OSError:
        return ""
