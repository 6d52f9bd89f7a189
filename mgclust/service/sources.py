"""What a job may read: files that were uploaded, and files below the folders that the service's owner named.

A path is followed to its end before it is compared, so that neither ``..`` nor a link leads out; a folder that holds a
link to somewhere else (a zarr store, say) is refused as a whole. From the network comes only what `fetch` allows.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Engine, select
from starlette.concurrency import run_in_threadpool

from mgclust.errors import InputError
from mgclust.service.access import ID, Caller
from mgclust.service.fetch import NAME, check_url, file_name
from mgclust.service.records import Job, Upload, reading, writing
from mgclust.service.requests import named_sources
from mgclust.service.settings import Settings

__all__ = ["TooLarge", "find_uploads", "paths_of", "receive", "resolve", "sources_of", "sweep"]


DAY = 86_400.0


class TooLarge(Exception):
    """An upload beyond the limit."""


async def receive(
    engine: Engine,
    settings: Settings,
    caller: Caller,
    name: str,
    parts: AsyncIterator[bytes],
    sha256: str | None = None,
) -> dict[str, Any]:
    """Write an upload to disk as it arrives; it exists once it is whole.

    Raises
    ------
    InputError
        A name that is none, or bytes that have not the `sha256` that was said.
    TooLarge
        More bytes than the service takes.
    """
    if not NAME.fullmatch(name):
        raise InputError(
            f"name={name!r} should be a file's name: letters, digits and . _ -, up to 200, no folder; its end says "
            "what the file is (.npy, .csv, .nii.gz, ...)."
        )
    id_ = secrets.token_hex(16)
    folder = settings.data / "uploads" / id_
    folder.mkdir(parents=True)
    partial, digest, size = folder / "partial", hashlib.sha256(), 0
    try:
        with open(partial, "xb") as file:
            async for part in parts:
                size += len(part)
                if size > settings.upload_limit:
                    raise TooLarge(f"{name} should have at most upload_limit={settings.upload_limit} bytes.")
                # In threads: a disk that is slow for one must not keep all others waiting.
                await run_in_threadpool(_add, part, file, digest)
            await run_in_threadpool(_flush, file)
        if sha256 not in (None, digest.hexdigest()):
            raise InputError(f"sha256={sha256} was said of {name}, its bytes have {digest.hexdigest()}; send it again.")
        partial.rename(folder / name)
        upload = {"id": id_, "name": name, "size": size, "sha256": digest.hexdigest(), "created": time.time()}
        await run_in_threadpool(_record, engine, Upload(owner=caller.name, **upload))
    except BaseException:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        raise
    return upload


def _add(part: bytes, file: BinaryIO, digest: Any) -> None:
    digest.update(part)
    file.write(part)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _record(engine: Engine, upload: Upload) -> None:
    with writing(engine) as session:
        session.add(upload)


def sweep(settings: Settings) -> None:
    """Remove what is left of uploads that a web process was receiving when it was killed, more than a day ago."""
    for partial in (settings.data / "uploads").glob("*/partial"):
        with contextlib.suppress(OSError):  # another web process sweeps, too
            if time.time() - partial.stat().st_mtime > DAY:
                partial.unlink()
                partial.parent.rmdir()


def find_uploads(engine: Engine, settings: Settings, asked: Sequence[tuple[Caller, str]]) -> list[str | Exception]:
    """The paths of uploads by who asks and their id; `InputError` in place of one that is not there or another's."""
    ids = {id_ for _, id_ in asked if ID.fullmatch(id_)}
    wanted = select(Upload.id, Upload.owner, Upload.name).where(Upload.id.in_(ids))
    with reading(engine) as session:
        known = {row.id: row for row in session.connection().execute(wanted)}
    return [
        str(settings.data / "uploads" / id_ / known[id_].name)
        if id_ in known and caller.may_see(known[id_].owner)
        else InputError(f"upload={id_!r} is not one of your uploads; upload the file first.")
        for caller, id_ in asked
    ]


def resolve(engine: Engine, settings: Settings, caller: Caller, source: dict[str, str], folder: Path) -> str:
    """The path of one source of a job, for whoever may read it.

    Parameters
    ----------
    source : dict
        ``{"upload": id}``, ``{"path": path}`` or ``{"url": url}``.
    folder : Path
        Where a file that has to be fetched will be.

    Raises
    ------
    InputError
        Not there, or not this caller's to read; the sentence is the same for both.
    """
    if "upload" in source:
        (path,) = find_uploads(engine, settings, [(caller, source["upload"])])
        if isinstance(path, Exception):
            raise path
        return path
    if "url" in source:
        check_url(source["url"], settings.prefixes)
        return str(folder / file_name(source["url"]))
    return _inside(source["path"], settings.folders)


def paths_of(engine: Engine, settings: Settings, job: Job) -> dict[str, str]:
    """The paths of all that a job reads, named as `named_sources` names it.

    Looked up whenever they are opened: what its owner may read may have changed since the job was submitted.
    """
    owner = Caller(job.owner, "user")
    fetched = settings.job_folder(job.request.get("fetched_by", job.id)) / "sources"
    return {
        name: resolve(engine, settings, owner, source, fetched / name)
        for name, source in named_sources(job.request).items()
    }


def sources_of(engine: Engine, settings: Settings, job: Job) -> tuple[list[str], dict[str, Any]]:
    """The paths of the data of a job, and how they are read."""
    paths = paths_of(engine, settings, job)
    options = dict(job.request.get("options") or {})
    if "mask" in paths:
        options["mask"] = paths["mask"]
    return [path for name, path in paths.items() if name.isdigit()], options


def _inside(name: str, folders: list[Path]) -> str:
    refusal = InputError(
        f"path={name!r} is not a file or folder below what this service may read "
        f"({', '.join(map(str, folders)) or 'no folders'}); upload it, or ask the administrator for a root."
    )
    if "\0" in name or "://" in name or not os.path.isabs(name):
        raise refusal
    path = Path(os.path.realpath(name))
    if not any(path.is_relative_to(folder) for folder in folders) or not path.exists():
        raise refusal
    if path.is_dir():
        for parent, below, files in os.walk(path):
            for entry in (*below, *files):
                target = os.path.realpath(os.path.join(parent, entry))
                if not Path(target).is_relative_to(path):
                    raise InputError(f"path={name!r} holds a link that leads out of it: {entry}; copy the data.")
    return str(path)
