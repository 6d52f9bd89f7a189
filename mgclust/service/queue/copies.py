"""Copies of results in stores: the files of a result, below ``PREFIX/ID`` of the store that the request of a job names.

The transaction that ends a successful job also queues the copy, so no restart loses the copy. Until the copy ends, the
column `copy_due` of the job has the time at which copying begins or, while a process copies, the time at which the
claim of this process expires. The process renews its claim, and stops if the job was deleted, the user was disabled, or
another process has taken over.

``manifest.json`` states whether the copy is complete. Before the first file, it is written with ``"complete": false``;
after the last file, it is written with ``"complete": true`` and the sizes and digests of all files. If a result is
copied again, the same objects are written.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from typing import IO, Any

from sqlalchemy import ColumnElement, Engine, select, update

from mgclust.base.errors import InputError, MgclustError, RunFailed
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined.results import list_files, open_result
from mgclust.service.queue.log import JobLog
from mgclust.service.queue.models import OUTAGES, Job, User, reading, writing
from mgclust.service.queue.stores import (
    MIN_BYTES_PER_SECOND,
    START_SECONDS,
    Store,
    StoreWriter,
    is_plain,
    parse_place,
    read_stores,
    store_of,
    writing_client,
)
from mgclust.service.settings import Settings

__all__ = ["Copier", "copy_until"]

MANIFEST = "manifest.json"
POLL_SECONDS = 2.0
CHECK_SECONDS = 0.5  # time between two checks of whether to stop
RENEW_SECONDS, CLAIM_SECONDS = 5.0, 60.0  # a process renews its claim this often; a claim is valid this long
RETRY_SECONDS = (10.0, 60.0, 600.0, 3600.0)  # pauses between the attempts to copy a result
FILE_SECONDS = 1.0  # each file adds this to the time limit of a copy
MAX_PROBLEM = 500  # characters of the reason why copying failed; the reason may contain the name of a file
AT_ONCE = 4  # results that a process copies at the same time, at most one of each user


class Copier:
    """Copies results to stores. Users take turns.

    Parameters
    ----------
    engine : Engine
        Database, from `open_database`.
    settings : Settings
        Settings of the service.
    stores : dict
        Stores, from `read_stores`.
    """

    def __init__(self, engine: Engine, settings: Settings, stores: dict[str, Store]) -> None:
        self._engine, self._settings, self._stores = engine, settings, stores
        self._log = JobLog(settings.log)
        self._lock = threading.Lock()
        self._open: set[str] = set()  # users whose results are being copied
        self._turns: dict[str, float] = {}  # time of the last turn of each user

    def step(self, stopping: threading.Event) -> bool:
        """Copy one result that is due; return False if there is none, or if the service stops."""
        job = self._claim()
        if job is None:
            return False
        try:
            problem: str | None = None
            try:
                asyncio.run(self._copy_while_claimed(job, stopping))
            except asyncio.CancelledError:  # if the job still has this claim, another attempt may begin at once
                self._change(job, copy_due=time.time())
                return not stopping.is_set()
            except OUTAGES:
                raise
            except MgclustError as error:
                problem = str(error)
            except Exception as error:  # its message may contain addresses
                problem = f"the files could not be sent to the store ({type(error).__name__})."
            self._end(job, problem)
        finally:
            with self._lock:
                self._open.discard(job.owner)
        return True

    def _claim(self) -> Job | None:
        now = time.time()
        due = select(Job.owner).where(Job.copy_due <= now)
        enabled = select(User.name).where(User.disabled.is_(None), User.name.in_(due))
        with self._lock:
            with reading(self._engine) as session:  # an idle process polls often, and must not delay writers
                owners = session.scalars(enabled).all()
            able = [owner for owner in owners if owner not in self._open]
            if not able:
                return None
            owner = min(able, key=lambda each: self._turns.get(each, 0.0))
            with writing(self._engine, alone=True) as session:
                # With an expression instead of a column, SQLite reads the index of copies, not all jobs of the owner.
                first = select(Job).where(Job.owner + "" == owner, Job.copy_due <= now).order_by(Job.copy_due).limit(1)
                job = session.scalars(first.with_for_update()).first()
                if job is None:  # another process has claimed it
                    return None
                job.copy_due = time.time() + CLAIM_SECONDS
            self._open.add(owner)
            self._turns[owner] = time.monotonic()
        return job

    def _change(self, job: Job, *if_: ColumnElement[bool], **values: Any) -> bool:
        """Change the row of a job; return False if the job was deleted, or the claim has passed to another process."""
        claimed = update(Job).where(Job.id == job.id, Job.copy_due == job.copy_due, *if_)
        with writing(self._engine) as session:
            changed = session.connection().execute(claimed.values(values)).rowcount > 0
        if changed and "copy_due" in values:
            job.copy_due = values["copy_due"]
        return changed

    def _end(self, job: Job, problem: str | None) -> None:
        copy = dict(job.result_copy or {}, error=problem and problem[:MAX_PROBLEM])
        due = None
        if problem is None:
            copy["state"] = "COPIED"
        else:
            copy["failures"] += 1
            if copy["failures"] > len(RETRY_SECONDS):
                copy["state"] = "FAILED"
            else:
                due = time.time() + RETRY_SECONDS[copy["failures"] - 1]
        if self._change(job, copy_due=due, result_copy=copy):
            self._log("result.copy", job, to=copy["to"], copy=copy["state"], problem=problem)

    async def _copy_while_claimed(self, job: Job, stopping: threading.Event) -> None:
        """Copy a result. Stop copying if the service stops or the claim is lost."""
        copying = asyncio.create_task(self._copy(job))
        renewed = time.monotonic()
        try:
            while not (await asyncio.wait([copying], timeout=CHECK_SECONDS))[0]:
                renew = time.monotonic() - renewed > RENEW_SECONDS
                if stopping.is_set() or (renew and not self._renew(job)):
                    break
                renewed = time.monotonic() if renew else renewed
        finally:
            copying.cancel()
            await asyncio.wait([copying])
        await copying

    def _renew(self, job: Job) -> bool:
        """Renew the claim; return False if it is lost, or if the user was disabled."""
        disabled = select(User.name).where(User.name == job.owner, User.disabled.is_not(None)).exists()
        return self._change(job, ~disabled, copy_due=time.time() + CLAIM_SECONDS)

    async def _copy(self, job: Job) -> None:
        name, prefix = parse_place(job.request["results_to"])
        store = store_of(self._engine, self._stores, job.owner, name, write=True)  # the rights may have changed
        result = open_result(self._settings, job.id, job.attempt)
        if result is None:
            raise RunFailed("the result is missing.")
        files = list_files(result)
        wrong = [each["name"] for each in files if not is_plain(each["name"]) or each["name"] == MANIFEST]
        if wrong:
            raise InputError(f"the result has a file {wrong[0][:80]!r}, whose name is not allowed in a store.")
        seconds = START_SECONDS + FILE_SECONDS * len(files) + sum(each["size"] for each in files) / MIN_BYTES_PER_SECOND
        folder, told = f"{prefix}/{job.id}", {"job": job.id, "method": job.method}
        async with asyncio.timeout(seconds), writing_client() as client:
            writer = StoreWriter(client, name, store, job.owner)
            # A job that was deleted and submitted again with its key has the id of the earlier job, which was copied.
            await writer.put(f"{folder}/{MANIFEST}", json.dumps(told | {"complete": False}).encode())
            for each in files:
                with _opened(result, each["name"]) as file:
                    each |= {"sha256": await writer.copy(f"{folder}/{each['name']}", file), "size": file.tell()}
            if not self._renew(job):
                raise asyncio.CancelledError
            manifest = json.dumps(told | {"complete": True, "files": files}, indent=1)
            await writer.put(f"{folder}/{MANIFEST}", manifest.encode())


def _opened(result: RootedFile, name: str) -> IO[bytes]:
    try:
        return result.open_inside(name)
    except (OSError, InputError):  # its message may contain the path of the data folder
        raise RunFailed(f"{name} of the result cannot be read.") from None


def copy_until(stopping: threading.Event, engine: Engine, settings: Settings) -> None:
    """Copy the results of jobs to stores until the service stops."""
    copier = Copier(engine, settings, read_stores(settings))

    def work() -> None:
        while not stopping.is_set():
            worked = False
            try:
                worked = copier.step(stopping)
            except OUTAGES as error:  # the claim expires, and the result is copied again
                print(f"copies of results wait: {type(error).__name__}", file=sys.stderr)
            if not worked:
                stopping.wait(POLL_SECONDS)

    threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
