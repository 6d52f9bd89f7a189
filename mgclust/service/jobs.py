"""The queue: what a job may become, and every change of it as one transaction.

::

    PENDING ──claim──> RUNNING ──> SUCCEEDED
       ^                  │ ├────> FAILED      the data's, the parameters' or the memory's fault: at once;
       └── lost, or the ──┘ │                  the cluster's: after `attempts` beginnings
           cluster's fault  └────> CANCELLED
    FAILED, CANCELLED ──retry──> PENDING

A claim makes a new attempt. Whoever reports on an attempt names it, and is not heard when the job has gone on to
another, so that a job ends once, whatever was thought dead and was not. An attempt whose heartbeat stopped is lost.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any

from sqlalchemy import Engine, func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from mgclust.errors import InputError
from mgclust.service.access import Caller
from mgclust.service.records import Job, reading, writing

__all__ = ["STATES", "Jobs", "TooMany", "new_id"]

STATES = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


class TooMany(Exception):
    """A user has as many jobs waiting as they may."""


class Jobs:
    """All jobs of a service.

    Parameters
    ----------
    engine : Engine
        From `open_database`.
    per_user : int
        Most jobs of one user that wait or run.
    attempts : int
        How often a job is begun before the cluster's fault is its end.
    """

    def __init__(self, engine: Engine, per_user: int, attempts: int) -> None:
        self._engine, self._per_user, self._attempts = engine, per_user, attempts

    def submit(self, caller: Caller, method: str, request: dict[str, Any], priority: int, key: str | None) -> Job:
        """Add a job; with a key that the caller has used before, the job that this made.

        Raises
        ------
        TooMany
        """
        # A request that is sent again, since its answer was lost, does not make a second job.
        id_ = new_id() if key is None else _id_of(caller, key)
        active = select(Job.id).where(Job.owner == caller.name, Job.state.in_(("PENDING", "RUNNING")))
        values = {
            "id": id_, "owner": caller.name, "method": method, "request": request, "priority": priority,
            "created": time.time(), "state": "PENDING", "attempt": 0, "cancel": False,
        }  # fmt: skip
        try:
            with writing(self._engine) as session:
                # Without objects that are tracked, which cost more than all the rest of a submit.
                connection = session.connection()
                waiting = connection.scalar(select(func.count()).select_from(active.limit(self._per_user).subquery()))
                full = (waiting or 0) >= self._per_user
                if full and connection.scalar(select(Job.id).where(Job.id == id_)) is None:
                    most = f"jobs_per_user={self._per_user}"
                    raise TooMany(f"{caller.name} has {most} jobs waiting; wait, or cancel some.")
                connection.execute(insert(Job), values)
        except IntegrityError:
            known = self.get(caller, id_)
            if known is None:
                raise
            return known
        return Job(**values)

    def enter(self, parent: Job, id_: str, request: dict[str, Any], scores: dict[str, Any]) -> Job:
        """Add a job of the parent's owner whose first attempt has left a whole result already."""
        now = time.time()
        with writing(self._engine) as session:
            job = Job(
                id=id_, owner=parent.owner, method=parent.method, request=request, priority=parent.priority,
                created=now, started=now, finished=now, state="SUCCEEDED", attempt=1, cancel=False, scores=scores,
            )  # fmt: skip
            session.add(job)
            return job

    def get(self, caller: Caller, id_: str) -> Job | None:
        """A job that the caller may see."""
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
            wanted = wanted.where((Job.created < before[0]) | ((Job.created == before[0]) & (Job.id < before[1])))
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
                _end(job, "CANCELLED", None, None)
            elif job is not None and job.state == "RUNNING":
                job.cancel = True
            return job

    def retry(self, caller: Caller, id_: str) -> Job | None:
        """Queue a job again that has failed or was cancelled.

        Raises
        ------
        InputError
            It waits, runs, or has succeeded.
        """
        with writing(self._engine) as session:
            job = self._theirs(session, caller, id_)
            if job is None:
                return None
            if job.state not in ("FAILED", "CANCELLED"):
                raise InputError(f"job {id_} is {job.state}; only one that failed or was cancelled is run again.")
            job.request = {**job.request, "begun_before": job.attempt}  # failures of the past do not count
            _queue(job)
            job.finished, job.error, job.fault = None, None, None
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
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is None:
                return False
            _end(job, "SUCCEEDED", None, None)
            job.scores = scores
            return True

    def fail(self, id_: str, attempt: int, error: str, fault: str) -> None:
        """An attempt has ended without a result: the job's end, or its next turn if the cluster was at fault."""
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is not None:
                self._failed(job, error, fault)

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
            _end(job, "CANCELLED", None, None)
        elif fault == "cluster" and job.attempt - job.request.get("begun_before", 0) < self._attempts:
            _queue(job)
            job.error, job.fault = error, fault
        else:
            _end(job, "FAILED", error, fault)

    def _theirs(self, session: Session, caller: Caller, id_: str) -> Job | None:
        job = session.get(Job, id_, with_for_update=True)
        return job if job is not None and caller.may_see(job.owner) else None

    def _current(self, session: Session, id_: str, attempt: int) -> Job | None:
        wanted = select(Job).where(Job.id == id_, Job.attempt == attempt, Job.state == "RUNNING")
        return session.scalars(wanted.with_for_update()).first()


def new_id() -> str:
    """A number that no other job has."""
    return secrets.token_hex(16)


def _id_of(caller: Caller, key: str) -> str:
    return hashlib.sha256(f"{caller.name}\0{key}".encode()).hexdigest()[:32]


def _end(job: Job, state: str, error: str | None, fault: str | None) -> None:
    job.state, job.error, job.fault, job.finished, job.heartbeat = state, error, fault, time.time(), None


def _queue(job: Job) -> None:
    job.state, job.heartbeat, job.cancel, job.progress = "PENDING", None, False, None
