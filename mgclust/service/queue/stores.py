"""Objects of S3-compatible stores that the administrator names: sources of jobs, and copies of results.

The setting `stores` is the path of a TOML file, which only the service's account may read::

    [lab]
    endpoint = "https://s3.example"
    bucket = "measurements"
    region = "eu-central-1"
    prefix = "{user}"
    key = "..."
    secret = "..."
    users = ["ann", "bob"]
    write = true

The web process reads an object with one request, which is signed with these credentials. The object becomes an upload
of the user, with the limits of uploads. The credentials reach no job, no answer and no log. A user names an object
below the prefix; ``{user}`` in the prefix stands for the user's name. Messages do not quote the store's own messages,
which may contain addresses. `StoreWriter` writes objects, below the same prefix, if the administrator permits it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import html
import os
import re
import ssl
import stat
import tomllib
from collections.abc import AsyncGenerator
from typing import IO, Any, NamedTuple
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

__all__ = [
    "MIN_BYTES_PER_SECOND", "START_SECONDS", "Store", "StoreWriter", "check_results_to", "is_plain", "parse_place",
    "read_object", "read_stores", "store_of", "writing_client",
]  # fmt: skip

MAX_PATH = 1_024  # characters of an object's path
MAX_PREFIX = 400  # bytes of the prefix of results in UTF-8; a store limits a whole path to 1,024 bytes
PART_BYTES = 8 * 2**20
MAX_PARTS = 10_000  # parts of an object; a limit of S3
MAX_ANSWER_BYTES = 2**16  # bytes of an answer to a request that writes
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
# Patterns of the values that are needed from answers; an answer may contain anything.
UPLOAD_ID, COMPLETE = rb"<UploadId>([^<>&\s]{1,1024})</UploadId>", rb"<(CompleteMultipartUploadResult)\b"
ETAG = rb'\A("?[\w.+/=-]{1,200}"?)\Z'
ABORT_SECONDS = 5.0  # time limit to discard the parts of an object that is not complete
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
    write: bool = False  # whether results may be copied to the store

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
            "region, users, names_from_provider and write."
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
        or not all(isinstance(flag, bool) for flag in (store.names_from_provider, store.write))
        or not all(isinstance(text, str) for text in texts)
        or not all(texts[:4])
    ):
        raise TypeError
    if urlsplit(store.endpoint).scheme not in ("http", "https") or not urlsplit(store.endpoint).hostname:
        raise ValueError
    if "/" in store.bucket or (store.prefix and not is_plain(store.prefix.strip("/"))):
        raise ValueError
    return store


def is_plain(path: str) -> bool:
    """Return whether a path has only names: no empty part, no ``.`` or ``..``, no backslash or control character."""
    return path.isprintable() and "\\" not in path and not {"", ".", ".."} & set(path.split("/"))


def store_of(engine: Engine, stores: dict[str, Store], user: str, name: str, write: bool = False) -> Store:
    """Return a store that a user may read or, with `write`, to which results of the user may be copied.

    Raises
    ------
    InputError
        The user may not use this store.
    """
    of_provider = is_of_provider(engine, user)
    mine = [each for each, store in stores.items() if store.is_for(user, of_provider) and (store.write or not write)]
    if name not in mine:
        what = "stores for results" if write else "stores"
        known = f"use one of {', '.join(sorted(mine))}" if mine else "the administrator has given you none"
        raise InputError(f"store={name[:80]!r} is not one of your {what}; {known}.")
    return stores[name]


def parse_place(results_to: str) -> tuple[str, str]:
    """Split ``store:NAME/PREFIX`` into the name of a store and a prefix.

    Raises
    ------
    InputError
        The text does not have this form.
    """
    name, _, prefix = results_to.removeprefix("store:").partition("/")
    if not results_to.startswith("store:") or not name or not is_plain(prefix) or len(prefix.encode()) > MAX_PREFIX:
        raise InputError(
            f"results_to={results_to[:200]!r} should be store:NAME/PREFIX, such as store:lab/results, whose PREFIX has "
            f"at most {MAX_PREFIX} bytes and no '..', empty parts or backslashes."
        )
    return name, prefix


def check_results_to(engine: Engine, stores: dict[str, Store], user: str, results_to: str) -> None:
    """Check that the results of a user may be copied to a place.

    Raises
    ------
    InputError
        The place does not have the form ``store:NAME/PREFIX``, or the user may not use the store for results.
    """
    store_of(engine, stores, user, parse_place(results_to)[0], write=True)


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
    store = await run_in_threadpool(store_of, engine, stores, caller.name, name)
    if len(path) > MAX_PATH or not is_plain(path):
        raise InputError(f"path={path[:200]!r} should be an object's path, without '..', empty parts and backslashes.")
    if caller.name in _reading or len(_reading) >= MAX_READING:
        raise TooManyJobs("another object of a store is being read; try again when it is complete.")
    _reading.add(caller.name)
    try:
        async with contextlib.aclosing(_parts(store, caller.name, name, path, settings.upload_limit)) as parts:
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


def _signed(
    store: Store, user: str, path: str, method: str = "GET", query: str = "", body: bytes = b""
) -> tuple[str, dict[str, str]]:
    """Return the address of an object, and the headers that sign a request for it."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    prefix = store.prefix.strip("/").replace("{user}", user)
    key = "/".join(filter(None, (store.bucket, prefix, path)))
    url = f"{store.endpoint.rstrip('/')}/{quote(key, safe='/~')}{query and f'?{query}'}"
    request = AWSRequest(method, url, data=body)
    S3SigV4Auth(Credentials(store.key, store.secret), "s3", store.region).add_auth(request)
    return request.url, {"Accept-Encoding": "identity", **request.headers}


class StoreWriter:
    """Writer of a user's objects to a store. An object appears when it is complete. Redirects are not followed.

    Parameters
    ----------
    client : httpx.AsyncClient
        From `writing_client`.
    name : str
        Name of the store, for messages.
    store : Store
        The store.
    user : str
        Name of the user, for the prefix of the store.
    """

    def __init__(self, client: httpx.AsyncClient, name: str, store: Store, user: str) -> None:
        self._client, self._name, self._store, self._user = client, name, store, user

    async def put(self, path: str, content: bytes) -> None:
        """Write a small object.

        Raises
        ------
        RunFailed
            The store does not accept the object.
        """
        await self._send("PUT", path, body=content)

    async def copy(self, path: str, file: IO[bytes]) -> str:
        """Write the content of a file as an object, and return its SHA-256. A large file is sent in parts.

        Raises
        ------
        RunFailed
            The store does not accept the object, or the file has too many parts.
        """
        part = file.read(PART_BYTES)
        digest = hashlib.sha256(part)
        if len(part) < PART_BYTES:
            await self.put(path, part)
            return digest.hexdigest()
        _, begun = await self._send("POST", path, "uploads=")
        upload = f"uploadId={quote(self._found(UPLOAD_ID, begun), safe='~')}"
        tags: list[str] = []
        try:
            while part:
                if len(tags) == MAX_PARTS:
                    raise RunFailed(f"{path} has more than {MAX_PARTS * PART_BYTES} bytes, the maximum of an object.")
                headers, _ = await self._send("PUT", path, f"partNumber={len(tags) + 1}&{upload}", part)
                tags.append(self._found(ETAG, headers.get("etag", "").encode()))
                part = file.read(PART_BYTES)
                digest.update(part)
            listed = enumerate(map(html.escape, tags), 1)
            parts = "".join(f"<Part><PartNumber>{k}</PartNumber><ETag>{tag}</ETag></Part>" for k, tag in listed)
            order = f'<CompleteMultipartUpload xmlns="{NAMESPACE}">{parts}</CompleteMultipartUpload>'
            _, ended = await self._send("POST", path, upload, order.encode())
            self._found(COMPLETE, ended)  # an error may also have status 200
        except BaseException:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(ABORT_SECONDS):
                    await self._send("DELETE", path, upload)
            raise
        return digest.hexdigest()

    async def _send(self, method: str, path: str, query: str = "", body: bytes = b"") -> tuple[httpx.Headers, bytes]:
        url, headers = _signed(self._store, self._user, path, method, query, body)
        headers["Content-Length"] = str(len(body))
        # A request of httpx with bytes is in a cycle, which would keep the bytes until the next garbage collection.
        async with self._client.stream(method, url, content=_once(body), headers=headers) as answer:
            if not answer.is_success:  # the body of this answer is not read
                raise RunFailed(f"store={self._name!r} did not accept {path} (status {answer.status_code}).")
            content = b""
            async for part in answer.aiter_raw():
                content += part
                if len(content) > MAX_ANSWER_BYTES:
                    raise ConnectionError
        return answer.headers, content

    def _found(self, pattern: bytes, answer: bytes) -> str:
        if (match := re.search(pattern, answer)) is None:
            raise RunFailed(f"store={self._name!r} sent an answer that is not an answer of S3.")
        return match[1].decode("ascii")


async def _once(body: bytes) -> AsyncGenerator[bytes]:
    yield body


def writing_client() -> httpx.AsyncClient:
    """Return a client for `StoreWriter`; the caller limits the total time."""
    return httpx.AsyncClient(timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS), verify=_tls())
