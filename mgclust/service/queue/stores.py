"""Objects of S3-compatible stores that the administrator names, as sources of jobs.

The setting `stores` is the path of a TOML file, which only the service's account may read::

    [lab]
    endpoint = "https://s3.example"
    bucket = "measurements"
    region = "eu-central-1"
    prefix = "{user}"
    key = "..."
    secret = "..."
    users = ["ann", "bob"]

The web process reads an object with one request, which is signed with these credentials. The object becomes an upload
of the user, with the limits of uploads. The credentials reach no job, no answer and no log. A user names an object
below the prefix; ``{user}`` in the prefix stands for the user's name. Messages do not quote the store's own messages,
which may contain addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import ssl
import stat
import tomllib
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import httpx
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from mgclust.base.errors import InputError, RunFailed
from mgclust.service.queue.access import Caller
from mgclust.service.queue.identities import is_of_provider
from mgclust.service.queue.jobs.submission import TooManyJobs
from mgclust.service.queue.sources import TooLarge, receive
from mgclust.service.settings import MAX_FILE_BYTES, Settings

__all__ = ["Store", "read_object", "read_stores"]

MAX_PATH = 1_024  # characters of an object's path
PART_BYTES = 8 * 2**20
CONNECT_SECONDS, READ_SECONDS = 5, 20
START_SECONDS = 30.0  # time limit until a store answers
MIN_BYTES_PER_SECOND = 2**20  # adds 1 s per MiB to the time limit for the whole object
MAX_READING = 4  # objects that are read at the same time

_reading: set[str] = set()  # users whose objects are being read by this process


class Store(NamedTuple):
    """A store, as the administrator's file describes it."""

    endpoint: str
    bucket: str
    key: str
    secret: str
    prefix: str = ""
    users: tuple[str, ...] | None = None  # None: all users
    region: str = "us-east-1"
    names_from_provider: bool = False  # whether `users` and {user} may match names from an OpenID provider

    def is_for(self, user: str, of_provider: bool) -> bool:
        """Return whether a user may use the store."""
        by_name = self.users is not None or "{user}" in self.prefix
        return (self.users is None or user in self.users) and not (
            by_name and of_provider and not self.names_from_provider
        )

    def __repr__(self) -> str:
        return f"Store({self.endpoint!r}, {self.bucket!r})"  # without credentials


def read_stores(settings: Settings) -> dict[str, Store]:
    """Read the file of stores.

    Raises
    ------
    InputError
        The file cannot be read, is open to other accounts, or is invalid; the message does not quote its content. Or
        botocore is not installed.
    """
    if not settings.stores:
        return {}
    shown = f"stores={settings.stores!r}"
    try:
        # Open without blocking: a FIFO without a writer would block the start.
        with open(settings.stores, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            # A secret of Kubernetes belongs to root; its group is the group of the service.
            closed_to = 0o037 if status.st_uid == 0 != os.geteuid() else 0o077
            if not stat.S_ISREG(status.st_mode) or status.st_mode & closed_to or status.st_uid not in (0, os.geteuid()):
                raise InputError(f"{shown} should be a file that only this account can read; set its mode to 0600.")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror}.") from None
    try:
        found = tomllib.loads(content.decode()) if len(content) <= MAX_FILE_BYTES else {}
        stores = {name: _store(given) for name, given in found.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        stores = {}
    if not stores:
        raise InputError(
            f"{shown} should be TOML with a table per store: endpoint, bucket, key, secret and, optionally, prefix, "
            "region, users and names_from_provider."
        )
    try:
        import botocore.auth  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed, and stores need it; run pip install 'mgclust[s3]'."
        ) from error
    return stores


def _store(given: dict[str, Any]) -> Store:
    users = given.pop("users", None)
    store = Store(**given, users=None if users is None else tuple(users))
    texts = [store.endpoint, store.bucket, store.key, store.secret, store.prefix, store.region, *(store.users or ())]
    if (
        isinstance(users, str)
        or not isinstance(store.names_from_provider, bool)
        or not all(isinstance(text, str) for text in texts)
        or not all(texts[:4])
    ):
        raise TypeError
    if urlsplit(store.endpoint).scheme not in ("http", "https") or not urlsplit(store.endpoint).hostname:
        raise ValueError
    if "/" in store.bucket or (store.prefix and not _is_plain(store.prefix.strip("/"))):
        raise ValueError
    return store


def _is_plain(path: str) -> bool:
    """Return whether a path has only names: no empty part, no ``.`` or ``..``, no backslash or control character."""
    return path.isprintable() and "\\" not in path and not {"", ".", ".."} & set(path.split("/"))


async def read_object(
    engine: Engine, settings: Settings, stores: dict[str, Store], caller: Caller, name: str, path: str
) -> dict[str, Any]:
    """Read an object of a store, and return it as an upload of the caller, as `receive` does.

    Raises
    ------
    InputError
        The caller may not use the store, or the object does not exist or may not be read.
    TooLarge
        The object has more bytes than `upload_limit`.
    QuotaExceeded
        The upload exceeds a limit of the caller.
    TooManyJobs
        Another object is being read.
    RunFailed
        The store does not answer.
    """
    of_provider = await run_in_threadpool(is_of_provider, engine, caller.name)
    mine = {each: store for each, store in stores.items() if store.is_for(caller.name, of_provider)}
    if name not in mine:
        known = f"use one of {', '.join(sorted(mine))}" if mine else "the administrator has given you none"
        raise InputError(f"store={name[:80]!r} is not one of your stores; {known}.")
    if len(path) > MAX_PATH or not _is_plain(path):
        raise InputError(f"path={path[:200]!r} should be an object's path, without '..', empty parts and backslashes.")
    if caller.name in _reading or len(_reading) >= MAX_READING:
        raise TooManyJobs("another object of a store is being read; try again when it is complete.")
    _reading.add(caller.name)
    try:
        async with contextlib.aclosing(_parts(mine[name], caller.name, name, path, settings.upload_limit)) as parts:
            return await receive(engine, settings, caller, path.rpartition("/")[2], parts)
    finally:
        _reading.discard(caller.name)


async def _parts(store: Store, user: str, name: str, path: str, limit: int) -> AsyncGenerator[bytes]:
    """Yield the parts of an object, within a time that depends on its size. Redirects are not followed."""
    shown = f"store:{name}/{path}"
    clock, times = asyncio.get_running_loop().time, httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    end = clock() + START_SECONDS
    try:
        async with httpx.AsyncClient(timeout=times, verify=_tls()) as client:
            url, headers = _signed(store, user, path)
            async with asyncio.timeout_at(end):
                answer = await client.send(client.build_request("GET", url, headers=headers), stream=True)
            try:
                if answer.status_code in (403, 404):
                    raise InputError(f"{shown} does not exist, or the service may not read it; check the path.")
                if answer.status_code != 200:  # the body of this answer is not read
                    raise RunFailed(
                        f"store={name!r} did not send the object (status {answer.status_code}); try again later."
                    )
                left = int(answer.headers["content-length"])
                if left > limit:
                    raise TooLarge(f"{shown} should have at most upload_limit={limit} bytes.")
                end += left / MIN_BYTES_PER_SECOND
                parts = answer.aiter_raw(PART_BYTES)
                while left > 0:
                    async with asyncio.timeout_at(end):
                        part = await anext(parts)
                    left -= len(part)
                    if left < 0:
                        raise ConnectionError
                    yield part
            finally:
                await answer.aclose()
    except (InputError, TooLarge, RunFailed):
        raise
    except Exception as error:  # its message may contain addresses
        raise RunFailed(f"store={name!r} did not send the object ({type(error).__name__}); try again later.") from None


@functools.cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _signed(store: Store, user: str, path: str) -> tuple[str, dict[str, str]]:
    """Return the address of an object, and the headers that sign a request for it."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    prefix = store.prefix.strip("/").replace("{user}", user)
    key = "/".join(filter(None, (store.bucket, prefix, path)))
    request = AWSRequest("GET", f"{store.endpoint.rstrip('/')}/{quote(key, safe='/~')}")
    S3SigV4Auth(Credentials(store.key, store.secret), "s3", store.region).add_auth(request)
    return request.url, {"Accept-Encoding": "identity", **request.headers}
