"""A copy of a running service: its SQLite database and the files that belong to it.

The database is copied first, by SQLite's own backup, which sees one snapshot. Then the files are copied. A job or an
upload that is deleted meanwhile may be in the copied database without its files, so its row is removed from the copy.
Files of running attempts are not copied: a restored service computes these jobs again. The copy is a data folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any

from sqlalchemy import make_url, select

from mgclust.base.errors import InputError
from mgclust.service.confined.folders import remove
from mgclust.service.queue import revocations
from mgclust.service.queue.models import Job, Upload, open_database, writing
from mgclust.service.settings import Settings

__all__ = ["back_up"]

MAX_DEPTH = 32  # levels of folders of a result that are copied
SMALL_FILES = ("folder-id", "token", revocations.FILE)


def back_up(settings: Settings, target: Path) -> dict[str, Any]:
    """Copy a service to a new folder, and return the numbers of jobs, uploads and bytes in the copy.

    Raises
    ------
    InputError
        The folder exists or cannot be written, there is no SQLite database, or the copy is damaged.
    """
    url = make_url(settings.database)
    if url.get_backend_name() != "sqlite" or not url.database or not os.path.exists(url.database):
        raise InputError(
            f"data={str(settings.data)!r} has no SQLite database; give the data folder of the service. For PostgreSQL, "
            "run pg_dump first, and copy the data folder then."
        )
    if target.resolve().is_relative_to(settings.data.resolve()):
        raise InputError(f"DIR={str(target)!r} lies in the data folder {str(settings.data)!r}; give another.")
    partial = target.with_name(f"{target.name}.partial")
    try:
        if target.exists() or partial.exists():
            raise InputError(f"DIR={str(target)!r} or {partial.name} exists; give a new folder, or remove these.")
        partial.mkdir(mode=0o700, parents=True)
        try:
            report = _copy_all(settings, url.database, partial)
            partial.rename(target)
            report["folder"] = str(target)
        except BaseException:
            remove(partial)
            raise
    except OSError as error:
        raise InputError(f"DIR={str(target)!r} cannot be written: {error.strerror}; give another.") from error
    return report


def _copy_all(settings: Settings, database: str, target: Path) -> dict[str, Any]:
    copied = target / "service.db"
    os.close(os.open(copied, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    source = sqlite3.connect(f"{Path(os.path.realpath(database)).as_uri()}?mode=ro", uri=True, timeout=20.0)
    with contextlib.closing(source), contextlib.closing(sqlite3.connect(copied)) as copy:
        source.backup(copy)
        if (found := copy.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
            raise InputError(f"the database is damaged ({found}); restart the service, and try again.")
    for name in SMALL_FILES:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(settings.data / name, target / name, follow_symlinks=False)
    engine = open_database(f"sqlite:///{copied}")
    size = jobs = uploads = 0
    try:
        with writing(engine) as session:
            for upload in session.scalars(select(Upload)).all():
                size += (more := _copy_tree(settings.data / "uploads" / upload.id, target / "uploads" / upload.id)) or 0
                if more is None or not (target / "uploads" / upload.id / upload.name).is_file():
                    session.delete(upload)
                else:
                    uploads += 1
            for job in session.scalars(select(Job)).all():
                # Attempts that run now still write: the attempt of a running job, and later attempts.
                done = range(1, job.attempt + (job.state != "RUNNING"))
                found = [
                    _copy_tree(
                        settings.attempt_folder(job.id, attempt), target / "jobs" / job.id / f"attempt-{attempt}"
                    )
                    for attempt in done
                ]
                size += sum(filter(None, found))
                if job.state == "SUCCEEDED" and found[-1] is None:
                    session.delete(job)
                else:
                    jobs += 1
    finally:
        engine.dispose()
    # Without its log, the database is one file, which can be copied.
    with contextlib.closing(sqlite3.connect(copied)) as copy:
        copy.execute("PRAGMA journal_mode=DELETE")
    return {"folder": str(target), "jobs": jobs, "uploads": uploads, "bytes": size + copied.stat().st_size}


def _copy_tree(source: Path, target: Path) -> int | None:
    """Copy regular files and folders, and no links; return their bytes, or None if the folder does not exist."""
    if not os.path.isdir(source) or os.path.islink(source):
        return None
    size, folders = 0, [(source, target, 0)]
    while folders:
        here, there, depth = folders.pop()
        there.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError), os.scandir(here) as entries:  # it may be deleted meanwhile
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH:
                        folders.append((here / entry.name, there / entry.name, depth + 1))
                elif entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        size += _copy_file(here / entry.name, there / entry.name)
    return size


def _copy_file(source: Path, target: Path) -> int:
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return 0
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
            shutil.copyfileobj(file, copy)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    return status.st_size
