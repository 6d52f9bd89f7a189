"""The queue: what a job may become, and every change of it as one transaction.

::

    PENDING ──claim──> RUNNING ──> SUCCEEDED
       ^                  │ ├────> FAILED      the data's, the parameters' or the memory's fault: at once;
       └── lost, or the ──┘ │                  the cluster's: after `attempts` beginnings
           cluster's fault  └────> CANCELLED
    FAILED, CANCELLED ──retry──> PENDING
    SUCCEEDED, FAILED, CANCELLED ──delete──> nothing

A claim makes a new attempt. Whoever reports on an attempt names it, and is not heard when the job has gone on to
another, so that a job ends once, whatever was thought dead and was not. An attempt whose heartbeat stopped is lost.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, func, insert, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from mgclust.errors import InputError
from mgclust.service.access import ID, Caller
from mgclust.service.disk import InUse, NoRoom, clear, lock_users, no_room, size_of_job
from mgclust.service.records import Job, Removal, reading, writing
from mgclust.service.settings import Settings

__all__ = ["STATES", "Jobs", "Order", "TooMany", "job_id"]

STATES = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


@dataclass(frozen=True)
class Order:
    """A job that somebody wants, whose id is from `job_id`."""

    id: str
    caller: Caller
    method: str
    request: dict[str, Any]
    priority: int


class TooMany(Exception):
    """A user has as many jobs waiting as they may."""


class Jobs:
    """All jobs of a service.

    Parameters
    ----------
    engine : Engine
        From `open_database`.
    settings : Settings
        Where jobs leave their files, and the limits of a user and of a job.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._settings, self._per_user = engine, settings, settings.jobs_per_user

    def submit(self, orders: Sequence[Order]) -> list[Job | Exception]:
        """Add jobs, in one transaction.

        Returns
        -------
        list
            Of each order its job, `TooMany` or `NoRoom`. One whose id there is already gets that job: a request that
            is sent again, since its answer was lost, does not make a second one.
        """
        try:
            return self._submit(orders)
        except IntegrityError:  # another web process was first with one of them, and now it is known
            return self._submit(orders)

    def _submit(self, orders: Sequence[Order]) -> list[Job | Exception]:
        wanted = select(Job).where(Job.id.in_({order.id for order in orders}))
        names = {order.caller.name for order in orders}
        with writing(self._engine) as session:
            lock_users(session, names)
            jobs: dict[str, Job] = {job.id: job for job in session.scalars(wanted)}
            new: list[dict[str, Any]] = []
            refused: dict[str, Exception] = {}
            left = {name: self._left(session, name) for name in names}
            full = {name: self._no_room(session, name) for name in names}
            for order in orders:
                name = order.caller.name
                if order.id in jobs:
                    continue
                if refusal := full[name] or (None if left[name] else self._too_many(name)):
                    refused[order.id] = refusal
                    continue
                left[name] -= 1
                values = {
                    "id": order.id, "owner": name, "method": order.method, "request": order.request,
                    "priority": order.priority, "created": time.time(), "state": "PENDING", "attempt": 0,
                    "begun_before": 0, "cancel": False, "size": None,
                }  # fmt: skip
                new.append(values)
                jobs[order.id] = Job(**values)
            if new:
                # Without objects that are tracked, which cost more than all the rest of a submit.
                session.connection().execute(insert(Job), new)
        return [refused.get(order.id) or jobs[order.id] for order in orders]

    def _left(self, session: Session, owner: str) -> int:
        """How many more jobs may wait or run."""
        active = select(Job.id).where(Job.owner == owner, Job.state.in_(("PENDING", "RUNNING"))).limit(self._per_user)
        return self._per_user - (session.scalar(select(func.count()).select_from(active.subquery())) or 0)

    def _no_room(self, session: Session, owner: str) -> NoRoom | None:
        """Why no job may leave anything more on disk; nobody knows yet how much it would be."""
        return no_room(session, owner, self._settings.disk_per_user, 1)

    def _too_many(self, owner: str) -> TooMany:
        return TooMany(f"{owner} has jobs_per_user={self._per_user} jobs waiting; wait, or cancel some.")

    def enter(
        self, parent: Job, id_: str, request: dict[str, Any], scores: dict[str, Any], place: Callable[[], None]
    ) -> Job:
        """Add a job of the parent's owner whose first attempt has succeeded, or find it there.

        `place` moves its whole result to where it belongs; it is called by the one that adds the job, before anybody
        else can see this.

        Raises
        ------
        NoRoom
            Its owner keeps as much as they may.
        """
        now = time.time()
        job = Job(
            id=id_, owner=parent.owner, method=parent.method, request=request, priority=parent.priority, created=now,
            started=now, finished=now, state="SUCCEEDED", attempt=1, begun_before=0, cancel=False, scores=scores,
        )  # fmt: skip
        try:
            with writing(self._engine) as session:
                if refusal := self._no_room(session, parent.owner):
                    raise refusal
                session.add(job)
                session.flush()
                place()
                job.size = size_of_job(self._settings, id_)
                return job
        except IntegrityError:
            with reading(self._engine) as session:
                return session.get_one(Job, id_)

    def get(self, caller: Caller, id_: str) -> Job | None:
        """A job that the caller may see."""
        if not ID.fullmatch(id_):
            return None
        with reading(self._engine) as session:
            job = session.get(Job, id_)
            return job if job is not None and caller.may_see(job.owner) else None

    def latest(
        self, caller: Caller, state: str | None, limit: int, before: tuple[float, str] | None = None
    ) -> list[Job]:
        """The caller's jobs (an admin's: all), newest first, those older than ``before`` = (created, id)."""
        wanted = select(Job).order_by(Job.created.desc(), Job.id.desc()).limit(limit)
        if not caller.is_admin:
            wanted = wanted.where(Job.owner == caller.name)
        if state is not None:
            wanted = wanted.where(Job.state == state)
        if before is not None:
            wanted = wanted.where(tuple_(Job.created, Job.id) < before)  # one range of the index
        with reading(self._engine) as session:
            return list(session.scalars(wanted))

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each state."""
        with reading(self._engine) as session:
            rows = session.execute(select(Job.state, func.count()).group_by(Job.state)).all()
            found = {row[0]: row[1] for row in rows}
        return {state: found.get(state, 0) for state in STATES}

    def cancel(self, caller: Caller, id_: str) -> Job | None:
        """Ask for a job's end: at once if it waits, soon if it runs; nothing if it has ended."""
        with writing(self._engine) as session:
            job = self._theirs(session, caller, id_)
            if job is not None and job.state == "PENDING":
                self._end(job, "CANCELLED", None, None)
            elif job is not None and job.state == "RUNNING":
                job.cancel = True
            return job

    def retry(self, caller: Caller, id_: str) -> Job | None:
        """Queue a job again that has failed or was cancelled.

        Raises
        ------
        InputError
            It waits, runs, or has succeeded.
        TooMany, NoRoom
            Its owner has as many jobs waiting, or keeps as much, as they may.
        """
        with writing(self._engine) as session:
            job = self._theirs(session, caller, id_)
            if job is None:
                return None
            if job.state not in ("FAILED", "CANCELLED"):
                raise InputError(f"job {id_} is {job.state}; only one that failed or was cancelled is run again.")
            lock_users(session, {job.owner})
            if not self._left(session, job.owner):
                raise self._too_many(job.owner)
            if refusal := self._no_room(session, job.owner):
                raise refusal
            job.begun_before = job.attempt  # failures of the past do not count
            _queue(job)
            job.finished, job.error, job.fault = None, None, None
            return job

    def delete(self, caller: Caller, id_: str) -> Job | None:
        """Remove a job that has ended, and its folder; the job as it last was.

        Raises
        ------
        InUse
            It waits or runs.
        """
        with writing(self._engine) as session:
            job = self._theirs(session, caller, id_)
            if job is None:
                return None
            if job.state not in ENDED:
                raise InUse(f"job {id_} is {job.state}; cancel it, and delete it once it has ended.")
            session.delete(job)
            session.merge(Removal(path=f"jobs/{id_}"))  # one of the same key may have been deleted before
        clear(self._engine, self._settings)
        return job

    def claim(self) -> Job | None:
        """Take the next job, which is from now on RUNNING in a new attempt."""
        first = (Job.priority.desc(), Job.created, Job.id)
        with writing(self._engine) as session:
            wanted = select(Job).where(Job.state == "PENDING").order_by(*first).limit(1)
            job = session.scalars(wanted.with_for_update(skip_locked=True)).first()
            if job is None:
                return None
            job.state, job.attempt, job.cancel = "RUNNING", job.attempt + 1, False
            job.heartbeat = time.time()
            job.started = job.started or job.heartbeat
            job.progress = None
            return job

    def beat(self, id_: str, attempt: int, progress: dict[str, Any] | None) -> bool | None:
        """Say that an attempt goes on; whether its end was asked for, or None if the job has gone on without it."""
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is None:
                return None
            job.heartbeat = time.time()
            job.progress = progress or job.progress
            return job.cancel

    def succeed(self, id_: str, attempt: int, scores: dict[str, Any]) -> bool:
        """An attempt has left a whole result; whether it was still the job's."""
        size = size_of_job(self._settings, id_)  # of many files this takes time: before others have to wait
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is None:
                return False
            self._end(job, "SUCCEEDED", None, None, size)
            job.scores, job.progress = scores, None  # the last report was from before the end
            return True

    def fail(self, id_: str, attempt: int, error: str, fault: str) -> None:
        """An attempt has ended without a result: the job's end, or its next turn if the cluster was at fault."""
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is not None:
                self._failed(job, error, fault)

    def give_back(self, id_: str, attempt: int) -> None:
        """An attempt was ended in good order by a runner that ends: the job waits for another, and none the worse."""
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is None:
                return
            if job.cancel:
                self._end(job, "CANCELLED", None, None)
                return
            job.begun_before += 1
            _queue(job)

    def find_lost(self, after: float) -> list[str]:
        """Queue running jobs again whose heartbeat stopped more than so many seconds ago; their ids."""
        silent = (Job.state == "RUNNING", Job.heartbeat < time.time() - after)
        with reading(self._engine) as session:
            if session.scalars(select(Job.id).where(*silent).limit(1)).first() is None:
                return []
        with writing(self._engine) as session:
            lost = list(session.scalars(select(Job).where(*silent).with_for_update(skip_locked=True)))
            for job in lost:
                self._failed(job, f"attempt {job.attempt} was lost: its process or its machine ended.", "cluster")
        return [job.id for job in lost]

    def _failed(self, job: Job, error: str, fault: str) -> None:
        if job.cancel:
            self._end(job, "CANCELLED", None, None)
        elif fault == "cluster" and job.attempt - job.begun_before < self._settings.attempts:
            _queue(job)
            job.error, job.fault = error, fault
        else:
            self._end(job, "FAILED", error, fault)

    def _end(self, job: Job, state: str, error: str | None, fault: str | None, size: int | None = None) -> None:
        job.state, job.error, job.fault, job.finished, job.heartbeat = state, error, fault, time.time(), None
        job.size = size_of_job(self._settings, job.id) if size is None else size

    def _theirs(self, session: Session, caller: Caller, id_: str) -> Job | None:
        job = session.get(Job, id_, with_for_update=True) if ID.fullmatch(id_) else None
        return job if job is not None and caller.may_see(job.owner) else None

    def _current(self, session: Session, id_: str, attempt: int) -> Job | None:
        wanted = select(Job).where(Job.id == id_, Job.attempt == attempt, Job.state == "RUNNING")
        return session.scalars(wanted.with_for_update()).first()


def job_id(caller: Caller, key: str | None) -> str:
    """A number that no other job has, but for the one that the caller asked for by the same key."""
    if key is None:
        return secrets.token_hex(16)
    return hashlib.sha256(f"{caller.name}\0{key}".encode()).hexdigest()[:32]


def _queue(job: Job) -> None:
    job.state, job.heartbeat, job.cancel, job.progress = "PENDING", None, False, None
