"""A job service from Python: ``mgclust.Service(url, token)``.

service = Service("https://cluster.example:8700", token)
job = service.submit("density-peaks", "points.npy", n_clusters=15)
job.wait()
result = job.result("out")
"""

from __future__ import annotations

import io
import ipaddress
import json
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from mgclust.errors import InputError, InsufficientMemoryError, MgclustError, RunCancelled, RunFailed
from mgclust.result import Result, atomic_directory, check_target, load_result
from mgclust.service.settings import Settings, variable

__all__ = ["RemoteJob", "Service"]

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
RETRY_SECONDS = (
    0.2,
    0.5,
    1.0,
    2.0,
    4.0,
)  # seconds before a request is sent once more to a service that does not answer
MAX_RETRY_SECONDS = 120.0  # seconds that a request waits for a service which asks for patience
CHUNK_BYTES = 1 << 20


class Service:
    """A job service.

    Parameters
    ----------
    url : str, optional
        By default that of ``MGCLUST_URL``, else of a service on this machine.
    token : str, optional
        By default that of ``MGCLUST_TOKEN``, or of the file that ``MGCLUST_TOKEN_FILE`` names, else what a service of
        this account on this machine left for it, which no other service is shown.

    Raises
    ------
    InputError
        An URL or a token that is none.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        settings = Settings.read()
        given = url or os.environ.get("MGCLUST_URL")
        self.url = _checked_url(given) if given else _own_url(settings)
        token = token or variable("MGCLUST_TOKEN")
        if not token and (not given or _is_own(httpx.URL(self.url), settings)):
            token = _token_left(settings.data)
        token = (token or "").strip()
        if not re.fullmatch("[!-~]*", token):
            raise InputError("the token (MGCLUST_TOKEN) should be ASCII without spaces, as the service showed it.")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=60.0)

    def submit(
        self,
        method: str,
        sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        mask: str | os.PathLike[str] | None = None,
        options: dict[str, Any] | None = None,
        resources: dict[str, float] | None = None,
        priority: int = 0,
        report: bool = True,
        remote: bool = False,
        **parameters: Any,
    ) -> RemoteJob:
        """Queue a job.

        Parameters
        ----------
        method : str
            As on the command line.
        sources : path or sequence of paths
            Files here, which are uploaded; or ``https://`` URLs that the service may fetch.
        mask : path, optional
            Of a volume.
        options : dict, optional
            How files are read: ``columns``, ``standardize``, ``detrend``, ``n_nodes``, ...
        resources : dict, optional
            ``gpus`` or ``workers``: how many of the service's machine or cluster; by default all of a cluster.
            ``max_seconds``: after which an attempt ends and the job fails; ``memory``: bytes that its processes on the
            service's machine may take together.
        priority : int
            From -100 to 100; of one's own jobs, a higher one comes first. Above 0, which is for administrators, a job
            comes before those of all others.
        report : bool
            Whether the result has pictures and ``report.html``.
        remote : bool
            The paths are the service's own, below a folder that it may read.
        parameters
            Of the method. An array, or the `Path` of a file that holds one, is uploaded.

        Returns
        -------
        RemoteJob
        """
        paths = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)

        def source(path: str | os.PathLike[str]) -> dict[str, str]:
            if os.fspath(path).startswith(("http://", "https://")) and not remote:
                return {"url": os.fspath(path)}
            read = {"path": os.fspath(path)} if remote else {"upload": self.upload(path)}
            return read | {"name": "".join(c if c.isprintable() else "_" for c in Path(path).name)[:255]}

        def plain(name: str, value: Any) -> Any:
            if isinstance(value, os.PathLike):
                return source(value)
            if not hasattr(value, "__array__") or np.ndim(value) == 0:
                return value
            file = io.BytesIO()
            np.save(file, np.asarray(value), allow_pickle=False)
            answer = self.call("PUT", f"/uploads/{_safe_name(f'{name}.npy')}", parts=lambda: iter([file.getvalue()]))
            return {"upload": str(answer["id"]), "name": f"{name}.npy"}

        request: dict[str, Any] = {
            "method": method, "sources": [source(path) for path in paths],
            "parameters": {name: plain(name, value) for name, value in parameters.items()},
            "options": options or {}, "resources": resources or {}, "priority": priority, "report": report,
            "key": secrets.token_hex(16),
        }  # fmt: skip
        if mask is not None:
            request["mask"] = source(mask)
        return RemoteJob(self, self.call("POST", "/jobs", json=request))

    def upload(self, path: str | os.PathLike[str]) -> str:
        """Send a file; its id on the service."""
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path} is not a file; a folder (zarr) is read from where the service may read it.")

        def parts() -> Iterator[bytes]:
            with open(path, "rb") as file:
                while part := file.read(CHUNK_BYTES):
                    yield part

        answer = self.call("PUT", f"/uploads/{_safe_name(path.name)}", parts=parts)
        return str(answer["id"])

    def uploads(self, limit: int = 50) -> list[dict[str, Any]]:
        """The latest files that were sent: ``id``, ``owner``, ``name``, ``size`` in bytes, ``sha256``, ``created``."""
        return list(self.call("GET", "/uploads", params={"limit": limit}))

    def delete_upload(self, id_: str) -> dict[str, Any]:
        """Remove a file that was sent; what it was.

        Raises
        ------
        InputError
            There is no such upload, or jobs that wait or run need it.
        """
        return dict(self.call("DELETE", f"/uploads/{_checked_id(id_, 'mgclust uploads')}"))

    def users(self) -> list[dict[str, Any]]:
        """All users: ``name``, ``role``, and how many valid ``tokens`` they have; for administrators."""
        return list(self.call("GET", "/users"))

    def create_user(self, name: str, role: str = "user") -> dict[str, Any]:
        """Make a user; for administrators."""
        return dict(self.call("POST", "/users", json={"name": name, "role": role}))

    def tokens(self, user: str | None = None) -> list[dict[str, Any]]:
        """A user's tokens, by default one's own, without their secrets."""
        if user is not None and not re.fullmatch("[a-z0-9._@-]+", user):
            raise InputError(f"user={user[:80]!r} should be a user's name; 'mgclust user list' lists those there are.")
        return list(self.call("GET", "/tokens" if user is None else f"/tokens/{user}"))

    def create_token(
        self, user: str | None = None, scopes: Sequence[str] | None = None, days: float | None = 365.0
    ) -> dict[str, Any]:
        """Make a token: its ``id``, its ``user`` and, this once, the ``token``.

        Parameters
        ----------
        user : str, optional
            By default oneself; others' are for administrators.
        scopes : sequence of str, optional
            Some of ``read``, ``submit`` and ``admin``; by default all that the user's role has.
        days : float or None
            Until it expires; None, for administrators: never.
        """
        given = {"user": user, "days": days} | ({} if scopes is None else {"scopes": list(scopes)})
        return dict(self.call("POST", "/tokens", json=given))

    def revoke_token(self, id_: str) -> None:
        """Let a token be worth nothing from now on."""
        if not re.fullmatch("[0-9a-f]{16}", id_):
            raise InputError(
                f"id={id_[:80]!r} should be 16 of 0-9 and a-f; 'mgclust token list' lists those there are."
            )
        self.call("DELETE", f"/tokens/{id_}")

    def job(self, id_: str) -> RemoteJob:
        """A job that was submitted before.

        Raises
        ------
        InputError
            There is no such job, or `id_` is not what names one.
        """
        return RemoteJob(self, self.call("GET", f"/jobs/{_checked_id(id_, 'mgclust jobs')}"))

    def jobs(self, state: str | None = None, limit: int = 50) -> list[RemoteJob]:
        """The latest jobs, without their requests, which `RemoteJob.refresh` asks for."""
        wanted: dict[str, Any] = {"state": state} if state else {}
        found: list[dict[str, Any]] = []
        while len(found) < limit:  # a page may end early
            last = {"before": f"{found[-1]['created']!r},{found[-1]['id']}"} if found else {}
            page = self.call("GET", "/jobs", params=wanted | last | {"limit": min(limit - len(found), 1000)})
            if not page:
                break
            found += page
        return [RemoteJob(self, job) for job in found]

    def call(self, verb: str, path: str, *, parts: Callable[[], Iterator[bytes]] | None = None, **how: Any) -> Any:
        """Send a request, again where nothing answers; the answer, or the service's sentence as an exception."""
        body: bytes | None = None
        if "json" in how:
            try:
                body = json.dumps(how.pop("json"), ensure_ascii=False, allow_nan=False).encode()
            except (TypeError, ValueError) as error:  # NaN, infinity, lone surrogates, objects
                raise InputError(
                    f"the request cannot be sent as JSON: {error}; give finite numbers and text."
                ) from None
            how["headers"] = {"Content-Type": "application/json", **how.get("headers", {})}
        patience = _Patience(self)
        while True:
            try:
                content = body if parts is None else parts()
                answer = checked(self._http.request(verb, path, content=content, **how))
            except (httpx.TransportError, _Later) as error:
                patience.wait(error)
                continue
            try:
                return answer.json()
            except ValueError:
                raise RunFailed(f"what answers at {self.url} is no mgclust service; set MGCLUST_URL to one.") from None

    def stream(self, path: str, **headers: str) -> Any:
        """A request whose answer is read as it comes."""
        return self._http.stream("GET", path, headers=headers, timeout=httpx.Timeout(60.0, read=60.0))

    def unreachable(self, error: Exception) -> RunFailed:
        """The sentence for a service that does not answer."""
        # A request that breaks HTTP is quoted by its error, with the token.
        reason = "the request breaks HTTP" if isinstance(error, httpx.LocalProtocolError) else error
        return RunFailed(
            f"no service answers at {self.url} ({reason}); start one by 'mgclust serve', or set MGCLUST_URL."
        )


class RemoteJob:
    """A job of a service.

    Attributes
    ----------
    id : str
    state : {"PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"}
        When it was last asked for; `refresh` asks.
    info : dict
        All that the service tells.
    """

    def __init__(self, service: Service, info: dict[str, Any]) -> None:
        self._service, self.info = service, info

    def __repr__(self) -> str:
        return f"<RemoteJob {self.id} {self.info['method']} {self.state}>"

    @property
    def id(self) -> str:
        """Its number."""
        return str(self.info["id"])

    @property
    def state(self) -> str:
        """What was last heard of it."""
        return str(self.info["state"])

    def refresh(self) -> RemoteJob:
        """Ask how it is."""
        self.info = self._service.call("GET", f"/jobs/{self.id}")
        return self

    def watch(self) -> Iterator[dict[str, Any]]:
        """What the service tells whenever something changes, until the job has ended; connects again when cut off."""
        patience = _Patience(self._service)
        while True:
            try:
                with self._service.stream(f"/jobs/{self.id}/events") as answer:
                    checked(answer)
                    for line in answer.iter_lines():
                        if line.startswith("data: "):
                            patience = _Patience(self._service)
                            self.info = self.info | json.loads(line[6:])  # the request stays as it was
                            yield self.info
                if self.state in ENDED:
                    return
            except (httpx.TransportError, _Later) as error:
                patience.wait(error)

    def wait(self) -> RemoteJob:
        """Wait until it has ended.

        Raises
        ------
        InputError, InsufficientMemoryError, RunCancelled, RunFailed
            What ended it, in its sentence.
        """
        for _ in self.watch():
            pass
        if self.state == "SUCCEEDED":
            return self
        if self.state == "CANCELLED":
            raise RunCancelled(f"job {self.id} was cancelled.")
        kinds: dict[str, type[MgclustError]] = {"input": InputError, "memory": InsufficientMemoryError}
        raise kinds.get(self.info["fault"] or "", RunFailed)(self.info["error"])

    def cancel(self) -> RemoteJob:
        """Ask for its end."""
        self.info = self._service.call("POST", f"/jobs/{self.id}/cancel")
        return self

    def retry(self) -> RemoteJob:
        """Queue it again."""
        self.info = self._service.call("POST", f"/jobs/{self.id}/retry")
        return self

    def delete(self) -> RemoteJob:
        """Remove it from the service, with its result and log; it has to have ended.

        Raises
        ------
        InputError
            It waits or runs, or is gone.
        """
        self.info = self._service.call("DELETE", f"/jobs/{self.id}")
        return self

    def log(self) -> str:
        """What its attempts wrote."""
        patience = _Patience(self._service)
        while True:
            try:
                with self._service.stream(f"/jobs/{self.id}/log") as answer:
                    return str(checked(answer).read().decode("utf-8", "replace"))
            except (httpx.TransportError, _Later) as error:
                patience.wait(error)

    def download(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Fetch the result directory, which appears when it is whole."""
        target = Path(path)
        check_target(target, overwrite)
        with atomic_directory(target, overwrite) as directory:
            for entry in self._service.call("GET", f"/jobs/{self.id}/files"):
                self._fetch(entry["name"], entry["size"], directory)
        return target

    def result(self, path: str | os.PathLike[str]) -> Result:
        """`download`, then `mgclust.load_result`."""
        return load_result(self.download(path))

    def _fetch(self, name: str, size: int, directory: Path) -> None:
        path = directory / name
        if not path.resolve().is_relative_to(directory.resolve()):
            raise RunFailed(f"the service names a file outside the result: {name!r}.")
        path.parent.mkdir(parents=True, exist_ok=True)
        patience = _Patience(self._service)
        with open(path, "wb") as file:
            while file.tell() < size or not size:
                try:
                    left = f"bytes={file.tell()}-"  # goes on where it was cut off
                    with self._service.stream(f"/jobs/{self.id}/files/{name}", Range=left) as answer:
                        if size:
                            for part in checked(answer).iter_bytes(CHUNK_BYTES):
                                file.write(part)
                    if not size:
                        return
                except (httpx.TransportError, _Later) as error:
                    patience.wait(error)


class _Later(Exception):
    """The service asks to be asked again after some seconds."""

    def __init__(self, refusal: MgclustError, seconds: float) -> None:
        super().__init__(str(refusal))
        self.refusal, self.seconds = refusal, seconds


class _Patience:
    """How often and how long one request is sent again."""

    def __init__(self, service: Service) -> None:
        self._service, self._failures, self._until = service, 0, time.monotonic() + MAX_RETRY_SECONDS

    def wait(self, error: httpx.TransportError | _Later) -> None:
        """Wait until it may be sent again, or raise what it ends with."""
        if isinstance(error, _Later):
            pause = error.seconds * random.uniform(1.0, 1.5)  # not all of those who were told the same at once
            if time.monotonic() + pause > self._until:
                raise error.refusal from None
        elif self._failures == len(RETRY_SECONDS):
            quotable = not isinstance(error, httpx.LocalProtocolError)
            raise self._service.unreachable(error) from (error if quotable else None)
        else:
            pause = RETRY_SECONDS[self._failures]
            self._failures += 1
        time.sleep(pause)


def checked(answer: httpx.Response) -> httpx.Response:
    """An answer that is none of a refusal, which is raised."""
    if answer.is_success:
        return answer
    answer.read()
    try:
        sentence = str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        sentence = f"the service answered {answer.status_code} {answer.reason_phrase}"
    refusal = (InputError if answer.status_code < 500 else RunFailed)(sentence)
    after = answer.headers.get("Retry-After", "")
    raise _Later(refusal, float(after)) if after.isdecimal() else refusal


def _checked_id(id_: str, lists: str) -> str:
    if not re.fullmatch("[0-9a-f]{32}", id_):
        raise InputError(f"id={id_[:80]!r} should be 32 of 0-9 and a-f; '{lists}' lists those there are.")
    return id_


def _own_url(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def _checked_url(text: str) -> str:
    """An URL without its last slashes, of http, and with nothing but a host, a port and a path."""
    text = text.strip().rstrip("/")
    try:
        url = httpx.URL(text)
        place = url.scheme in ("http", "https") and url.host and (url.port is None or 0 < url.port < 65536)
        good = place and not (url.userinfo or url.query or url.fragment)
    except httpx.InvalidURL:
        good = False
    if good:
        return text
    shown = "" if set("@?#") & set(text) else f"={text[:200]!r}"  # there may be a password in it
    raise InputError(f"the service's URL (MGCLUST_URL){shown} should be like https://host:8700, without user or query.")


def _is_own(url: httpx.URL, settings: Settings) -> bool:
    """Whether it is where these settings let a service of this machine listen."""
    try:
        here = url.host == "localhost" or ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        here = False
    return (url.port or {"http": 80, "https": 443}[url.scheme]) == settings.port and (here or url.host == settings.host)


def _safe_name(name: str) -> str:
    """A file's name of the letters that the service takes, with the same end, which says what the file is."""
    safe = re.sub("[^A-Za-z0-9._-]+", "_", name)[-190:]
    return safe if safe[:1].isalnum() else f"data{safe}"


def _token_left(data: Path) -> str:
    try:
        return (data / "token").read_text(errors="replace")
    except OSError:
        return ""
