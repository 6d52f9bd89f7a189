"""Removal of deleted jobs and uploads, and of files that killed processes left.

A deletion first removes the row, in a transaction that records the folder; then the folder is renamed and removed. If a
process is killed in between, the next process finds the folder by the record.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine, Text, cast, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from mgclust.base.errors import RunFailed
from mgclust.service.audit import Audit
from mgclust.service.confined.folders import DELETED_SUFFIX, remove, set_aside, size_of
from mgclust.service.queue import revocations
from mgclust.service.queue.clock import is_trusted
from mgclust.service.queue.log import JobLog
from mgclust.service.queue.models import OUTAGES, Job, Removal, Upload, full, reading, writing
from mgclust.service.queue.orphans import RECEIVED_NAME, remove_orphans
from mgclust.service.queue.quotas import row_size, size_of_job
from mgclust.service.settings import Settings
from mgclust.service.states import ENDED

__all__ = ["DAY_SECONDS", "InUse", "remove_deleted", "sweep", "sweep_until", "with_reserve"]

DAY_SECONDS = 86_400.0
RECEIVING_GRACE_SECONDS = 300.0  # time after which an unlocked partial upload is removed
SWEEP_SECONDS = 600.0
MAX_CACHE_BYTES = 2 << 30  # limit for the kernels that the jobs of a user have compiled
RESERVE_FILE = "reserve"  # a file in the data folder, deleted to make room if the disk is full
UPLOAD_PATTERN, LABELS_PATTERN = (  # in the JSON of a request
    re.compile(rf'"{kind}": ?"([0-9a-f]{{1,32}})"') for kind in ("upload", "job")
)
RESERVE_BYTES = 4 << 20  # size of this file: more than the database writes for a deletion

Answer = TypeVar("Answer")


class InUse(Exception):
    """A job or an upload is in use, and cannot be deleted now."""


def with_reserve(settings: Settings, change: Callable[[], Answer]) -> Answer:
    """Call a function that writes to the database; if the disk is full, call it again with the space of the reserve.

    Deletions must be possible on a full disk.
    """
    try:
        return change()
    except DBAPIError as error:
        if not full(error):
            raise
    except OSError as error:  # from the file of revocations
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
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
    except OSError:  # there is no space now; the next start, or the next deletion on a full disk, tries again
        path.unlink(missing_ok=True)


def remove_deleted(engine: Engine, settings: Settings) -> None:
    """Remove the folders of everything that was deleted."""
    try:
        with_reserve(settings, lambda: _remove_deleted(engine, settings))
    except DBAPIError as error:
        if not full(error):  # on a full disk, the records remain for the next time
            raise


def _remove_deleted(engine: Engine, settings: Settings) -> None:
    gone: list[Path] = []
    try:
        _set_aside(engine, settings, gone)
    finally:
        for folder in gone:
            remove(folder)


def _set_aside(engine: Engine, settings: Settings, gone: list[Path]) -> None:
    with writing(engine, alone=True) as session:  # alone, so that no job with the same id starts meanwhile
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
    """Return whether a job with this id and key exists again; its first attempt then removes the folder."""
    return session.scalar(select(Job.id).where(Job.id == id_)) is not None


def sweep(engine: Engine, settings: Settings) -> None:
    """Delete what has expired, and remove files of deletions, uploads and results that killed processes left."""
    if is_trusted(settings.data):
        _delete_expired(engine, settings)
        remove_orphans(engine, settings)
    remove_deleted(engine, settings)
    _keep_reserve(settings)
    _empty_caches(engine, settings)
    elsewhere = Path(settings.checkpoints).glob(f"*{DELETED_SUFFIX}") if settings.checkpoints else ()
    for folder in (*settings.data.glob("jobs/*.*"), *settings.data.glob("uploads/*.*"), *elsewhere):
        with contextlib.suppress(OSError):  # another web process may also sweep
            if folder.name.endswith(DELETED_SUFFIX) or time.time() - folder.stat().st_mtime > DAY_SECONDS:
                remove(folder)
    for partial in settings.data.glob(f"uploads/*/{RECEIVED_NAME}"):
        with contextlib.suppress(OSError), open(partial, "rb") as file:
            if time.time() - os.fstat(file.fileno()).st_mtime > RECEIVING_GRACE_SECONDS:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a process that receives it holds the lock
                partial.unlink()
                partial.parent.rmdir()
    _fill_in_sizes(engine, settings)


def sweep_until(stopping: threading.Event, engine: Engine, settings: Settings) -> None:
    """Sweep every few minutes."""
    while not stopping.wait(SWEEP_SECONDS):
        try:
            sweep(engine, settings)
        except (OSError, RunFailed, *OUTAGES) as error:
            print(f"the cleanup failed; trying again: {error}", file=sys.stderr)


def _empty_caches(engine: Engine, settings: Settings) -> None:
    """Remove the compiled kernels of a user's jobs if they are large, because no quota limits them.

    The next job compiles again. A job that starts meanwhile keeps none of its compiled kernels.
    """
    for folder in settings.cache_folder("").glob("*"):
        if size_of(folder) > MAX_CACHE_BYTES:
            running = select(Job.id).where(Job.owner == folder.name, Job.state == "RUNNING").limit(1)
            with reading(engine) as session:
                busy = session.scalar(running) is not None
            if not busy and (aside := set_aside(folder, settings.data / "jobs")) is not None:
                remove(aside)


def _delete_expired(engine: Engine, settings: Settings) -> None:
    """Delete jobs that ended more than `keep_days` ago, and uploads of that age, except what is pinned or needed."""
    if not settings.keep_days:
        return
    log, first = JobLog(settings.log), time.time() - DAY_SECONDS * settings.keep_days
    ended = select(Job).where(Job.state.in_(ENDED), Job.finished < first, Job.pinned.is_(False))
    found: Sequence[Job] = []
    while True:
        with writing(engine) as session:
            after = ended.where(Job.id > found[-1].id) if found else ended
            found = session.scalars(after.order_by(Job.id).limit(100).with_for_update(skip_locked=True)).all()
            needed = _needed_labels(session, {job.owner for job in found})
            gone = [job for job in found if job.id not in needed]
            revocations.end_links(session, settings.data, [job.id for job in gone])
            for job in gone:
                session.delete(job)
                session.merge(Removal(path=f"jobs/{job.id}"))
        for job in gone:
            log("job.expired", job)
        _audit_expired(settings, gone)
        remove_deleted(engine, settings)
        if len(found) < 100:
            break
    _delete_expired_uploads(engine, settings, first)


def _needed_labels(session: Session, owners: set[str]) -> set[str]:
    """Return the ids of jobs whose labels waiting and running jobs of these users read."""
    request = cast(Job.request, Text)
    waits = (Job.state.in_(("PENDING", "RUNNING")), Job.owner.in_(owners), request.like('%"job": %'))
    requests = session.scalars(select(request).where(*waits).execution_options(yield_per=1000))
    return {id_ for text in requests for id_ in LABELS_PATTERN.findall(text)}


def _delete_expired_uploads(engine: Engine, settings: Settings, first: float) -> None:
    """Delete uploads that are older than `first`, unless they are pinned, or a job that is kept names them."""
    old = select(Upload).where(Upload.created < first, Upload.pinned.is_(False))
    with reading(engine) as session:
        if session.scalars(old.limit(1)).first() is None:
            return
    with writing(engine) as session:
        # Lock the uploads first, so that no job that needs one is submitted meanwhile; see `sources.lock_sources`.
        found = session.scalars(old.order_by(Upload.id).with_for_update(skip_locked=True)).all()
        owners = {upload.owner for upload in found}
        requests = select(cast(Job.request, Text)).where(Job.owner.in_(owners)).execution_options(yield_per=1000)
        named = {id_ for request in session.scalars(requests) for id_ in UPLOAD_PATTERN.findall(request)}
        gone = [upload for upload in found if upload.id not in named]
        for upload in gone:
            session.delete(upload)
            session.merge(Removal(path=f"uploads/{upload.id}"))
    _audit_expired(settings, gone)
    remove_deleted(engine, settings)


def _audit_expired(settings: Settings, gone: Sequence[Job | Upload]) -> None:
    if gone:
        audit = Audit(settings.audit_path)
        for each in gone:
            audit.write(action="expire", id=each.id, name=each.owner)
        audit.close()


def _fill_in_sizes(engine: Engine, settings: Settings) -> None:
    """Measure jobs that were cancelled while they waited, because they may have files of earlier attempts."""
    wanted = select(Job.id).where(Job.finished.is_not(None), Job.size.is_(None))
    with reading(engine) as session:
        ids = session.scalars(wanted).all()
    for id_ in ids:
        files = size_of_job(settings, id_)
        with writing(engine) as session:
            job = session.get(Job, id_)
            if job is not None and job.size is None:
                job.size = row_size(job.request, job.scores, job.warnings, job.error, job.progress) + files
