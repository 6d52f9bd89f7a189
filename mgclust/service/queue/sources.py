"""Sources of jobs: uploads, and files below the roots of the service.

A path is resolved before it is compared, so neither ``..`` nor a link leads out of a root. The functions return objects
of type `RootedFile` instead of paths: even if a file is replaced before it is opened, nothing outside the root is
opened.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Engine, Text, cast, func, select, tuple_
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from mgclust.base.errors import InputError
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined.inputs import named_sources
from mgclust.service.confined.results import open_result
from mgclust.service.queue.access import ID_PATTERN, Caller
from mgclust.service.queue.models import Job, Removal, Upload, reading, writing
from mgclust.service.queue.orphans import RECEIVED_NAME
from mgclust.service.queue.quotas import BLOCK_BYTES, QuotaExceeded, bytes_kept, limits_of, lock_users, quota_error
from mgclust.service.queue.removal import DAY_SECONDS, InUse, remove_deleted, with_reserve
from mgclust.service.settings import Settings

__all__ = [
    "TooLarge", "check_sources", "delete_upload", "files_of_job", "find_uploads", "known_upload", "labels_of_job",
    "latest_uploads", "lock_sources", "missing_source", "receive",
]  # fmt: skip

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")  # name of an upload
MAX_UPLOADS_KEPT = 10_000  # uploads of one user
CHECK_SECONDS = 10.0  # time limit for checking all paths of a job that is submitted

SOURCES_PER_QUERY = 500
NO_UPLOAD = (
    "upload={!r} is not one of your uploads; upload the file first. In the form, remove the file and choose it again."
)
NO_JOB = "job={!r} is not one of your jobs; name a job that has succeeded."

_receiving: Counter[str] = Counter()  # bytes that each user is uploading to this process now


class TooLarge(Exception):
    """An upload exceeds the size limit."""


async def receive(
    engine: Engine,
    settings: Settings,
    caller: Caller,
    name: str,
    parts: AsyncIterator[bytes],
    sha256: str | None = None,
) -> dict[str, Any]:
    """Write an upload to disk as it arrives. It is listed when it is complete.

    If the caller has an upload with the same name and content, that upload is returned, and ``new`` is False.

    Raises
    ------
    InputError
        The name is invalid, or the digest is not `sha256`.
    TooLarge
        The upload has more bytes than `upload_limit`.
    QuotaExceeded
        Together with other current uploads, the upload exceeds a limit of the caller.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise InputError(
            f"name={name!r} should be a file's name without a folder: up to 200 letters, digits and . _ -, with a "
            "suffix (.npy, .csv, .nii.gz, ...)."
        )
    id_ = secrets.token_hex(16)
    folder = settings.data / "uploads" / id_
    folder.mkdir(parents=True)
    partial, digest, size, counted = folder / RECEIVED_NAME, hashlib.sha256(), 0, BLOCK_BYTES
    _receiving[caller.name] += counted
    try:
        kept, most = await run_in_threadpool(_kept_now, engine, settings, caller.name)
        with open(partial, "xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # locked while it is being received, so that `sweep` keeps it
            async for part in parts:
                size += len(part)
                _receiving[caller.name] += max(size, counted) - counted
                counted = max(size, counted)
                if size > settings.upload_limit:
                    raise TooLarge(f"{name} should have at most upload_limit={settings.upload_limit} bytes.")
                others = kept + _receiving[caller.name] - counted
                if refusal := quota_error(caller.name, most, others, counted):
                    raise refusal
                # Write in threads: a slow disk must not block other requests.
                await run_in_threadpool(_append, part, file, digest)
            await run_in_threadpool(_flush, file)
        if sha256 not in (None, digest.hexdigest()):
            raise InputError(f"{name} should have sha256={sha256}, but has {digest.hexdigest()}; send it again.")
        partial.rename(folder / name)
        upload = Upload(id=id_, owner=caller.name, name=name, size=size, sha256=digest.hexdigest(), created=time.time())
        known = await run_in_threadpool(_record, engine, settings, upload)
        if known is not None:
            shutil.rmtree(folder)
    except BaseException:
        shutil.rmtree(folder)
        raise
    finally:
        _receiving[caller.name] -= counted
    return _described(upload) | {"new": True} if known is None else _described(known) | {"new": False}


def _append(part: bytes, file: BinaryIO, digest: Any) -> None:
    digest.update(part)
    file.write(part)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _kept(session: Session, settings: Settings, owner: str) -> tuple[int, int]:
    """Return the bytes that a user keeps (0 if there is no limit), and the limit.

    Raises
    ------
    QuotaExceeded
        The user has the maximum number of uploads.
    """
    wanted = select(Upload.id).where(Upload.owner == owner).limit(MAX_UPLOADS_KEPT).subquery()
    if (session.scalar(select(func.count()).select_from(wanted)) or 0) >= MAX_UPLOADS_KEPT:
        raise QuotaExceeded(f"{owner} keeps {MAX_UPLOADS_KEPT} uploads, the maximum per user; delete some.")
    most = limits_of(session, settings, owner).disk_per_user
    return (bytes_kept(session, owner) if most else 0), most


def _kept_now(engine: Engine, settings: Settings, owner: str) -> tuple[int, int]:
    with reading(engine) as session:
        return _kept(session, settings, owner)


def _record(engine: Engine, settings: Settings, upload: Upload) -> Upload | None:
    """Add an upload, or return the upload with the same name and content."""
    with writing(engine) as session:
        lock_users(session, {upload.owner})
        if (known := _same(session, upload.owner, upload.sha256, upload.name)) is not None:
            known.created = upload.created  # it begins to expire again
            return known
        kept, most = _kept(session, settings, upload.owner)  # other uploads may have been added meanwhile
        if refusal := quota_error(upload.owner, most, kept, max(upload.size, BLOCK_BYTES)):
            raise refusal
        session.add(upload)
        return None


def _same(session: Session, owner: str, sha256: str, name: str) -> Upload | None:
    wanted = select(Upload).where(Upload.owner == owner, Upload.sha256 == sha256, Upload.name == name)
    return session.scalars(wanted.limit(1)).first()


def known_upload(engine: Engine, settings: Settings, caller: Caller, sha256: str, name: str) -> dict[str, Any] | None:
    """Describe the caller's upload with this name and content, so that the file need not be sent again.

    An upload that soon expires is left out: the client sends it again, and so it begins to expire again.
    """
    with reading(engine) as session:
        upload = _same(session, caller.name, sha256, name)
    if upload is None:
        return None
    kept_seconds = DAY_SECONDS * settings.keep_days
    soon = kept_seconds and upload.created + kept_seconds < time.time() + min(DAY_SECONDS, kept_seconds / 2)
    return None if soon and not upload.pinned else _described(upload)


def latest_uploads(
    engine: Engine, caller: Caller, limit: int, before: tuple[float, str] | None
) -> list[dict[str, Any]]:
    """List the caller's uploads, the newest first; for an administrator, uploads of all users.

    Parameters
    ----------
    engine : Engine
        Database, from `open_database`.
    caller : Caller
        User of the request.
    limit : int
        Largest number of uploads to list.
    before : tuple, optional
        Time of creation and id of an upload. Only older uploads are listed.
    """
    wanted = select(Upload).order_by(Upload.created.desc(), Upload.id.desc()).limit(limit)
    if not caller.is_admin:
        wanted = wanted.where(Upload.owner == caller.name)
    with reading(engine) as session:
        if before is not None:
            wanted = wanted.where(tuple_(Upload.created, Upload.id) < before)
        return [_described(upload) for upload in session.scalars(wanted)]


def delete_upload(engine: Engine, settings: Settings, caller: Caller, id_: str) -> dict[str, Any] | None:
    """Delete an upload and its file, and describe it; return None if the caller has no such upload.

    Raises
    ------
    InUse
        A waiting or running job needs the upload.
    """
    upload = with_reserve(settings, lambda: _delete(engine, caller, id_))
    if upload is None:
        return None
    remove_deleted(engine, settings)
    return _described(upload)


def _delete(engine: Engine, caller: Caller, id_: str) -> Upload | None:
    named = cast(Job.request, Text).like(f'%"upload": "{id_}"%')
    readers = select(Job.id).where(Job.state.in_(("PENDING", "RUNNING")), named).order_by(Job.created).limit(4)
    with writing(engine) as session:
        upload = _visible(session, caller, id_)
        if upload is None:
            return None
        needed = session.scalars(readers).all()
        if needed:
            jobs = ", ".join(needed[:3]) + (", ..." if needed[3:] else "")
            raise InUse(
                f"upload {id_} is needed by waiting or running jobs ({jobs}); cancel them, or wait until they end."
            )
        session.delete(upload)
        session.merge(Removal(path=f"uploads/{id_}"))
    return upload


def _visible(session: Session, caller: Caller, id_: str) -> Upload | None:
    upload = session.get(Upload, id_, with_for_update=True) if ID_PATTERN.fullmatch(id_) else None
    return upload if upload is not None and caller.may_see(upload.owner) else None


def _described(upload: Upload) -> dict[str, Any]:
    return {name: getattr(upload, name) for name in ("id", "owner", "name", "size", "sha256", "created")}


def find_uploads(
    engine: Engine, settings: Settings, asked: Sequence[tuple[Caller, str]]
) -> list[RootedFile | Exception]:
    """Return the file of each upload, by caller and id, or an `InputError` if the caller does not have the upload."""
    ids = {id_ for _, id_ in asked if ID_PATTERN.fullmatch(id_)}
    wanted = select(Upload.id, Upload.owner, Upload.name).where(Upload.id.in_(ids))
    with reading(engine) as session:
        known = {row.id: row for row in session.connection().execute(wanted)}
    return [
        RootedFile(str(settings.data / "uploads" / id_), known[id_].name, called=known[id_].name)
        if id_ in known and caller.name == known[id_].owner  # the caller is the owner of the job
        else InputError(NO_UPLOAD.format(id_))
        for caller, id_ in asked
    ]


def lock_sources(session: Session, requests: Iterable[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Lock the uploads of requests, and the jobs whose labels they need, until the transaction ends.

    Returns the owners of these sources, without sources that do not exist. A concurrent deletion of a source waits for
    the lock, and then finds the job that needs the source. So a job is never queued without its source.
    """
    named = sorted({each for request in requests for each in _kept_sources(request) if ID_PATTERN.fullmatch(each[1])})
    found: dict[tuple[str, str], str] = {}
    tables: tuple[tuple[str, type[Upload | Job]], ...] = (("upload", Upload), ("job", Job))
    for kind, table in tables:
        ids = [id_ for other, id_ in named if other == kind]
        for first in range(0, len(ids), SOURCES_PER_QUERY):
            wanted = select(table.id, table.owner).where(table.id.in_(ids[first : first + SOURCES_PER_QUERY]))
            rows = session.execute(wanted.order_by(table.id).with_for_update(read=True))
            found |= {(kind, id_): owner for id_, owner in rows}
    return found


def missing_source(request: dict[str, Any], owner: str, owners: dict[tuple[str, str], str]) -> InputError | None:
    """Return the error for the first source that `owner` does not own; `owners` comes from `lock_sources`."""
    missing = next((each for each in _kept_sources(request) if owners.get(each) != owner), None)
    return None if missing is None else InputError((NO_UPLOAD if missing[0] == "upload" else NO_JOB).format(missing[1]))


def _kept_sources(request: dict[str, Any]) -> list[tuple[str, str]]:
    named = named_sources({"sources": [], **request}).values()
    return [(kind, source[kind]) for source in named for kind in ("upload", "job") if kind in source]


def check_sources(settings: Settings, sources: Iterable[dict[str, str]]) -> None:
    """Check the paths of a request.

    Raises
    ------
    InputError
        The caller may not read one of the files, or finding them takes too long.
    """
    end = time.monotonic() + CHECK_SECONDS
    for source in sources:
        if time.monotonic() > end:
            raise InputError(
                f"the files of this job take more than {CHECK_SECONDS:g} s to find; name fewer files per job."
            )
        _under_root(source["path"], settings.folders)


def _resolve(engine: Engine, settings: Settings, caller: Caller, source: dict[str, str]) -> RootedFile:
    """Find the file of a source, ``{"upload": id}``, ``{"path": path}`` or ``{"job": id}``, without opening it.

    Messages and results call an upload by its name in the request, or else by the name of the upload.

    Raises
    ------
    InputError
        The file does not exist, or the caller may not read it; the message is the same in both cases.
    """
    if "job" in source:
        return labels_of_job(engine, settings, caller, source["job"])
    if "upload" in source:
        (file,) = find_uploads(engine, settings, [(caller, source["upload"])])
        if isinstance(file, Exception):
            raise file
        return RootedFile(**file.order() | {"called": source.get("name") or file.called})
    return _under_root(source["path"], settings.folders)


def labels_of_job(engine: Engine, settings: Settings, caller: Caller, id_: str) -> RootedFile:
    """Find the labels in the result of one of the caller's jobs.

    Raises
    ------
    InputError
        The caller does not have this job, or it has no labels.
    """
    with reading(engine) as session:
        job = session.get(Job, id_) if ID_PATTERN.fullmatch(id_) else None
    if job is None or job.owner != caller.name:  # the caller is the owner of the job that reads the labels
        raise InputError(NO_JOB.format(id_))
    result = open_result(settings, job.id, job.attempt) if job.state == "SUCCEEDED" else None
    try:
        labels = result.inside("labels.npy") if result is not None else None
        if labels is not None and not labels.is_directory():
            return RootedFile(**labels.order() | {"called": f"labels of job {id_[:8]}", "quotable": True})
    except (OSError, InputError):
        pass
    raise InputError(f"job={id_!r} is {job.state} and has no labels; name a job whose result has labels.")


def files_of_job(engine: Engine, settings: Settings, job: Job) -> dict[str, RootedFile]:
    """Find the files of a job, and return them by their names in `named_sources`.

    This function is called whenever the files are opened, because the rights of the owner may have changed since the
    job was submitted.

    Raises
    ------
    InputError
        A file does not exist, or the owner may not read it.
    """
    owner = Caller(job.owner, "user")
    return {name: _resolve(engine, settings, owner, source) for name, source in named_sources(job.request).items()}


def _under_root(name: str, folders: list[Path]) -> RootedFile:
    """Resolve a path to a file or folder below one of the folders, without links.

    The file may be replaced before it is opened. That is safe, because `RootedFile` opens nothing outside the folder.
    """
    refusal = InputError(
        f"path={name!r} is not a file or folder below the folders that this service may read "
        f"({', '.join(map(str, folders)) or 'no folders'}); upload it, or ask the administrator to add a root."
    )
    if "\0" in name or "://" in name or not os.path.isabs(name):
        raise refusal
    try:
        path = Path(os.path.realpath(name))
        root = next((folder for folder in folders if path.is_relative_to(folder)), None)
        if root is None or not (path.is_file() or path.is_dir()):
            raise refusal
    except OSError:  # a part of the name is too long, or a folder cannot be searched
        raise refusal from None
    relative = os.path.relpath(path, root)
    return RootedFile(str(root), "" if relative == "." else relative, quotable=False)
