"""Disk usage of users: limits, and removal of what was deleted.

A deletion first removes the row, in a transaction that records the folder; then the folder is renamed and removed. If a
process is killed meanwhile, the next one finds the folder by its record.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine, case, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from mgclust.service.audit import Audit
from mgclust.service.log import JobLog
from mgclust.service.models import OUTAGES, Job, Removal, Upload, User, full, reading, writing
from mgclust.service.settings import Settings

__all__ = [
    "BLOCK_BYTES",
    "InUse",
    "QuotaExceeded",
    "bytes_kept",
    "lock_users",
    "quota_error",
    "remove",
    "remove_deleted",
    "row_size",
    "set_aside",
    "size_of",
    "size_of_job",
    "sweep",
    "sweep_until",
    "with_reserve",
]  # fmt: skip

DAY_SECONDS = 86_400.0
BLOCK_BYTES = 4096  # charged at least for a file, and for a row of the database with its indexes
RECEIVING_GRACE_SECONDS = 300.0  # before an unlocked partial upload is removed
SWEEP_SECONDS = 600.0
DELETED_SUFFIX = ".deleted"
MAX_CACHE_BYTES = 2 << 30  # of what jobs of a user have compiled
RESERVE_FILE = "reserve"  # a file in the data folder
RESERVE_BYTES = 4 << 20  # of this file: more than the database writes for a deletion
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Answer = TypeVar("Answer")


class InUse(Exception):
    """It is in use and cannot be deleted now."""


class QuotaExceeded(Exception):
    """A limit of what a user keeps is reached."""


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 if it does not exist. No link is followed.

    An attempt may nest folders deeper than the limits of recursion, descriptors and paths: one folder is open at a
    time, and ``..`` leads back.
    """
    try:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        number = _enter(path)
    except OSError:
        return 0
    above: list[tuple[tuple[int, int], list[str]]] = []  # parent folders, each with the names still to visit
    try:
        total, names = _content(number)
        while names or above:
            if names:
                with contextlib.suppress(OSError):  # it was removed
                    below = _enter(names.pop(), number)
                    above.append((_identity(number), names))
                    os.close(number)
                    number = below
                    size, names = _content(number)
                    total += size
            else:
                identity, names = above.pop()
                parent = os.open("..", _FOLDER, dir_fd=number)
                os.close(number)
                number = parent
                if _identity(number) != identity:  # it was moved meanwhile
                    break
    except OSError:
        pass
    finally:
        os.close(number)
    return total


def _content(number: int) -> tuple[int, list[str]]:
    """Bytes of the files in an open folder, and the names of its folders."""
    total, folders = 0, []
    with os.scandir(number) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_size
    return total, folders


def _identity(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino


def _enter(path: str | Path, parent: int | None = None) -> int:
    """Open a folder, through no link, and make it readable and writable for its owner."""
    try:
        number = os.open(path, _FOLDER, dir_fd=parent)
    except PermissionError:
        _make_accessible(path, parent)
        return os.open(path, _FOLDER, dir_fd=parent)
    mode = stat.S_IMODE(os.fstat(number).st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        with contextlib.suppress(OSError):  # of another owner
            os.fchmod(number, mode | stat.S_IRWXU)
    return number


def _make_accessible(path: str | Path, parent: int | None) -> None:
    """Set the mode of a folder that cannot be opened for reading, by descriptor: safe against replacement."""
    if not hasattr(os, "O_PATH"):  # not Linux
        os.chmod(path, stat.S_IRWXU, dir_fd=parent, follow_symlinks=False)
        return
    number = os.open(path, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{number}", stat.S_IRWXU)  # fchmod does not accept O_PATH descriptors
    finally:
        os.close(number)


def set_aside(folder: Path, beside: Path) -> Path | None:
    """Rename a folder to a name that `sweep` removes, in the folder `beside`; None if it does not exist."""
    target = beside / f"{secrets.token_hex(8)}{DELETED_SUFFIX}"
    try:
        try:
            os.rename(folder, target)
        except PermissionError:  # a folder that changes its parent must be writable, as both parents
            for each in (folder.parent, folder):
                os.close(_enter(each))
            os.rename(folder, target)
    except OSError:
        return None
    return target


def remove(folder: Path) -> None:
    """Remove a folder with its content, as far as possible; no link is followed.

    An attempt may nest folders deeper than the limits of recursion, descriptors and paths. So only folders of the first
    level are entered, and their own folders are moved up to this level.
    """
    try:
        top = _enter(folder)
    except OSError:
        if folder.name.endswith(DELETED_SUFFIX):  # an attempt may have left anything in place of a folder
            with contextlib.suppress(OSError):  # it does not exist
                os.unlink(folder)
        return
    try:
        while _thin_out(top):
            pass
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _thin_out(top: int) -> bool:
    """Remove files and folders of the first level, lifting the content of the latter; whether anything changed."""
    done = False
    with contextlib.suppress(OSError), os.scandir(top) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=top)
                else:
                    done |= _lift(entry.name, top)
                    os.rmdir(entry.name, dir_fd=top)
                done = True
    return done


def _lift(name: str, top: int) -> bool:
    """Remove the files of a folder, and move its folders one level up; whether anything changed."""
    done = False
    number = _enter(name, top)
    try:
        with os.scandir(number) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        os.close(_enter(entry.name, number))  # a folder that changes its parent must be writable
                        os.rename(entry.name, secrets.token_hex(16), src_dir_fd=number, dst_dir_fd=top)
                    else:
                        os.unlink(entry.name, dir_fd=number)
                    done = True
    finally:
        os.close(number)
    return done


def size_of_job(settings: Settings, id_: str) -> int:
    """Bytes of all files of a job, with its checkpoints."""
    elsewhere = size_of(settings.checkpoint_folder(id_)) if settings.checkpoints else 0
    return size_of(settings.job_folder(id_)) + elsewhere


def lock_users(session: Session, names: set[str]) -> None:
    """Lock these users until the transaction ends, so that limits hold; SQLite has one writer anyway."""
    wanted = select(User.name).where(User.name.in_(names)).order_by(User.name)  # in one order: no deadlock
    session.execute(wanted.with_for_update(key_share=True))


def row_size(request: dict[str, Any], *more: Any) -> int:
    """Bytes of a job in the database: a constant for its row, and its long values as JSON."""
    return BLOCK_BYTES + sum(len(json.dumps(each)) for each in (request, *more) if each is not None)


def quota_error(owner: str, most: int, kept: int, more: int) -> QuotaExceeded | None:
    """The error of exceeding a user's limit of `most` bytes by adding `more`; None within it. 0 is no limit."""
    if not most or kept + more <= most:
        return None
    return QuotaExceeded(
        f"{owner} keeps {kept} bytes of uploads and jobs, and this would exceed disk_per_user={most}; delete some jobs "
        "or uploads."
    )


def bytes_kept(session: Session, owner: str) -> int:
    """Bytes of a user's uploads, at least a block each, and of their jobs."""
    uploads = func.sum(case((Upload.size < BLOCK_BYTES, BLOCK_BYTES), else_=Upload.size))
    sums = (select(uploads).where(Upload.owner == owner), select(func.sum(Job.size)).where(Job.owner == owner))
    return sum(int(session.scalar(each) or 0) for each in sums)


def with_reserve(settings: Settings, change: Callable[[], Answer]) -> Answer:
    """Call a function that writes to the database; if its disk is full, again with the space of the reserve.

    Deletions must be possible on a full disk.
    """
    try:
        return change()
    except DBAPIError as error:
        if not full(error):
            raise
    (settings.data / RESERVE_FILE).unlink(missing_ok=True)
    try:
        return change()
    finally:
        _keep_reserve(settings)


def _keep_reserve(settings: Settings) -> None:
    path = settings.data / RESERVE_FILE
    if path.exists():
        return
    try:
        with open(path, "xb") as file:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
    except FileExistsError:
        pass
    except OSError:  # no space now; the next start, or the next deletion on a full disk, tries again
        path.unlink(missing_ok=True)


def remove_deleted(engine: Engine, settings: Settings) -> None:
    """Remove the folders of all that was deleted."""
    try:
        with_reserve(settings, lambda: _remove_deleted(engine, settings))
    except DBAPIError as error:
        if not full(error):  # otherwise the records remain for the next time
            raise


def _remove_deleted(engine: Engine, settings: Settings) -> None:
    gone: list[Path] = []
    try:
        _set_aside(engine, settings, gone)
    finally:
        for folder in gone:
            remove(folder)


def _set_aside(engine: Engine, settings: Settings, gone: list[Path]) -> None:
    with writing(engine, alone=True) as session:  # no attempt of the same id starts meanwhile
        for removal in session.scalars(select(Removal).with_for_update(skip_locked=True)):
            folder = settings.data / removal.path
            again = _exists_again(session, folder.name)
            if settings.checkpoints and folder.parent.name == "jobs" and not again:
                elsewhere = set_aside(settings.checkpoint_folder(folder.name), Path(settings.checkpoints))
                gone += [elsewhere] if elsewhere else []
            if folder.exists() and not again:
                target = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}{DELETED_SUFFIX}")
                try:
                    folder.rename(target)
                except OSError as error:
                    print(f"{folder} cannot be removed yet: {error}", file=sys.stderr)
                    continue
                gone.append(target)
            session.delete(removal)


def _exists_again(session: Session, id_: str) -> bool:
    """Return whether a job with this id, of the same key, exists again; its first attempt removes the folder."""
    return session.scalar(select(Job.id).where(Job.id == id_)) is not None


def sweep(engine: Engine, settings: Settings) -> None:
    """Delete expired jobs, and remove what killed processes left of deletions, uploads and results."""
    _delete_expired(engine, settings)
    remove_deleted(engine, settings)
    _keep_reserve(settings)
    _empty_caches(engine, settings)
    elsewhere = Path(settings.checkpoints).glob(f"*{DELETED_SUFFIX}") if settings.checkpoints else ()
    for folder in (*settings.data.glob("jobs/*.*"), *settings.data.glob("uploads/*.*"), *elsewhere):
        with contextlib.suppress(OSError):  # another web process may sweep, too
            if folder.name.endswith(DELETED_SUFFIX) or time.time() - folder.stat().st_mtime > DAY_SECONDS:
                remove(folder)
    for partial in settings.data.glob("uploads/*/partial"):
        with contextlib.suppress(OSError), open(partial, "rb") as file:
            if time.time() - os.fstat(file.fileno()).st_mtime > RECEIVING_GRACE_SECONDS:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the process that receives it holds the lock
                partial.unlink()
                partial.parent.rmdir()
    _fill_in_sizes(engine, settings)


def sweep_until(stopping: threading.Event, engine: Engine, settings: Settings) -> None:
    """Sweep every few minutes."""
    while not stopping.wait(SWEEP_SECONDS):
        try:
            sweep(engine, settings)
        except (OSError, *OUTAGES) as error:
            print(f"the cleanup failed; trying again: {error}", file=sys.stderr)


def _empty_caches(engine: Engine, settings: Settings) -> None:
    """Remove what jobs of a user have compiled where it is large; what a job writes there counts for no quota.

    The next job compiles again. One that begins meanwhile keeps nothing of what it compiles.
    """
    for folder in settings.cache_folder("").glob("*"):
        if size_of(folder) > MAX_CACHE_BYTES:
            running = select(Job.id).where(Job.owner == folder.name, Job.state == "RUNNING").limit(1)
            with reading(engine) as session:
                busy = session.scalar(running) is not None
            if not busy and (aside := set_aside(folder, settings.data / "jobs")) is not None:
                remove(aside)


def _delete_expired(engine: Engine, settings: Settings) -> None:
    """Delete jobs that ended more than `keep_days` ago."""
    if not settings.keep_days:
        return
    log, first = JobLog(settings.log), time.time() - DAY_SECONDS * settings.keep_days
    ended = select(Job).where(Job.state.in_(("SUCCEEDED", "FAILED", "CANCELLED")), Job.finished < first).limit(100)
    while True:
        with writing(engine) as session:
            gone = session.scalars(ended.with_for_update(skip_locked=True)).all()
            for job in gone:
                session.delete(job)
                session.merge(Removal(path=f"jobs/{job.id}"))
        if gone:
            audit = Audit(settings.audit_path, settings.audit_bytes)
            for job in gone:
                log("job.expired", job)
                audit.write(action="expire", id=job.id, name=job.owner)
            audit.close()
        remove_deleted(engine, settings)
        if len(gone) < 100:
            return


def _fill_in_sizes(engine: Engine, settings: Settings) -> None:
    """Fill in sizes of jobs that ended before sizes were recorded."""
    wanted = select(Job.id).where(Job.finished.is_not(None), Job.size.is_(None))
    with reading(engine) as session:
        ids = session.scalars(wanted).all()
    for id_ in ids:
        files = size_of_job(settings, id_)
        with writing(engine) as session:
            job = session.get(Job, id_)
            if job is not None and job.size is None:
                job.size = row_size(job.request, job.scores, job.error, job.progress) + files
