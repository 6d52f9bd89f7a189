"""The queue for users: states of jobs, and all changes by users, each in one transaction. Runners use `attempts`.

::

    PENDING ──claim──> RUNNING ──> SUCCEEDED
       ^                  │ ├────> FAILED      fault of the data, the parameters or the memory: at once;
       └── lost, or the ──┘ │                  fault of the cluster: after `attempts` attempts
           cluster's fault  └────> CANCELLED
    FAILED, CANCELLED ──retry──> PENDING
    SUCCEEDED, FAILED, CANCELLED ──delete──> nothing
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, Row, Select, Text, case, cast, func, insert, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from mgclust.base.errors import InputError
from mgclust.service.queue.access import ID_PATTERN, Caller
from mgclust.service.queue.log import JobLog
from mgclust.service.queue.models import Job, Removal, reading, writing
from mgclust.service.queue.quotas import QuotaExceeded, bytes_kept, lock_users, quota_error, row_size, size_of_job
from mgclust.service.queue.removal import InUse, remove_deleted, with_reserve
from mgclust.service.settings import Settings
from mgclust.service.states import ENDED, STATES

__all__ = ["Jobs", "NewJob", "TooManyJobs", "finish", "job_id", "queue"]

MAX_JOBS_WAITING = 100_000  # waiting jobs of all users together
MAX_JOBS_KEPT = 100_000  # jobs of one user, including ended jobs
MAX_PAGE_BYTES = 1 << 20  # size of a page of a list
MAX_FIELD_BYTES = 4096  # size of scores, warnings, progress or an error in a list


@dataclass(frozen=True)
class NewJob:
    """A job to be queued, with an id from `job_id`."""

    id: str
    caller: Caller
    method: str
    request: dict[str, Any]
    priority: int


class TooManyJobs(Exception):
    """The limit of waiting jobs is reached."""


@dataclass
class _Quota:
    """Usage of a user: active jobs, all jobs, and bytes."""

    owner: str
    limits: Settings
    active: int
    jobs: int
    kept: int

    def refusal(self, size: int, new: bool = True, waits: bool = True) -> Exception | None:
        """Return the reason to reject a job of this size, or None. The job may be new, or be queued again."""
        if refusal := quota_error(self.owner, self.limits.disk_per_user, self.kept, size):
            return refusal
        if new and self.jobs >= MAX_JOBS_KEPT:
            return QuotaExceeded(f"{self.owner} has {MAX_JOBS_KEPT} jobs, the maximum per user; delete some.")
        if waits and self.active >= (most := self.limits.jobs_per_user):
            return TooManyJobs(
                f"{self.owner} has jobs_per_user={most} jobs waiting, the maximum; wait, or cancel some."
            )
        return None

    def take(self, size: int) -> None:
        """Count a job that is being added."""
        self.active, self.jobs, self.kept = self.active + 1, self.jobs + 1, self.kept + size


# Columns of lists: all except the request and other long values.
_SUMMARY_COLUMNS = (
    Job.id, Job.owner, Job.method, Job.state, Job.priority, Job.attempt, Job.created, Job.started, Job.finished,
    Job.fault, Job.size, Job.summary,
    case((func.length(cast(Job.progress, Text)) <= MAX_FIELD_BYTES, Job.progress)).label("progress"),
    case((func.length(cast(Job.scores, Text)) <= MAX_FIELD_BYTES, Job.scores)).label("scores"),
    case((func.length(cast(Job.warnings, Text)) <= MAX_FIELD_BYTES, Job.warnings)).label("warnings"),
    func.substr(Job.error, 1, MAX_FIELD_BYTES).label("error"),
)  # fmt: skip


class Jobs:
    """All jobs of a service.

    Parameters
    ----------
    engine : Engine
        From `open_database`.
    settings : Settings
        Folders of jobs, and the limits of users.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self._log = JobLog(settings.log)
        self._counted, self._waiting = -math.inf, 0  # time of the last count of all waiting jobs, and their number

    def submit(self, orders: Sequence[NewJob]) -> list[Job | Exception]:
        """Add jobs in one transaction.

        Returns
        -------
        list
            For each order a job, `TooManyJobs` or `QuotaExceeded`. If a job with the same id exists, it is returned: a
            request that is sent again because its answer was lost does not create a second job.
        """
        try:
            return self._submit(orders)
        except IntegrityError:  # another web process has added one of the jobs, which is now found
            return self._submit(orders)

    def _submit(self, orders: Sequence[NewJob]) -> list[Job | Exception]:
        wanted = select(Job).where(Job.id.in_({order.id for order in orders}))
        names = {order.caller.name for order in orders}
        with writing(self._engine) as session:
            lock_users(session, names)
            jobs: dict[str, Job] = {job.id: job for job in session.scalars(wanted)}
            new: list[dict[str, Any]] = []
            refused: dict[str, Exception] = {}
            room = {name: self._quota(session, name) for name in names}
            self._count_waiting(session)
            for order in orders:
                name = order.caller.name
                if order.id in jobs:
                    continue
                size = row_size(order.request)
                if refusal := room[name].refusal(size) or self._too_many_wait():
                    refused[order.id] = refusal
                    continue
                room[name].take(size)
                self._waiting += 1
                now = time.time()
                values = {
                    "id": order.id, "owner": name, "method": order.method, "request": order.request,
                    "priority": order.priority, "created": now,
                    "state": "PENDING", "attempt": 0, "begun_before": 0, "cancel": False, "size": size,
                }  # fmt: skip
                new.append(values)
                jobs[order.id] = Job(**values)
            if new:
                # Insert without tracked objects, which would cost more than all other steps.
                session.connection().execute(insert(Job), new)
        return [refused.get(order.id) or jobs[order.id] for order in orders]

    def _quota(self, session: Session, owner: str) -> _Quota:
        """Return the usage of a user, which is valid while the transaction locks the user."""
        limits = self._settings
        active = select(Job.id).where(Job.owner == owner, Job.state.in_(("PENDING", "RUNNING")))
        all_ = select(Job.id).where(Job.owner == owner)
        return _Quota(
            owner,
            limits,
            _count(session, active, limits.jobs_per_user),
            _count(session, all_, MAX_JOBS_KEPT),
            bytes_kept(session, owner) if limits.disk_per_user else 0,
        )

    def _count_waiting(self, session: Session) -> None:
        """Count the waiting jobs of all users if the last count is a second old, or if there seem to be too many."""
        if self._waiting >= MAX_JOBS_WAITING or time.monotonic() - self._counted > 1.0:
            self._waiting = _count(session, select(Job.id).where(Job.state == "PENDING"), MAX_JOBS_WAITING)
            self._counted = time.monotonic()

    def _too_many_wait(self) -> TooManyJobs | None:
        if self._waiting < MAX_JOBS_WAITING:
            return None
        return TooManyJobs(f"{MAX_JOBS_WAITING} jobs of all users wait, the maximum; submit again later.")

    def add_finished(
        self,
        parent: Job,
        id_: str,
        request: dict[str, Any],
        scores: dict[str, Any],
        files: int,
        place: Callable[[], None],
        warnings: Sequence[str] = (),
    ) -> Job:
        """Add a job of the parent's owner whose first attempt has succeeded; return it, or an existing job of this id.

        Parameters
        ----------
        parent : Job
            The job from whose result the new result was computed, for other centres.
        id_ : str
            Id of the new job.
        request, scores : dict
            Request and scores of the new job.
        files : int
            Bytes of the result.
        place : callable
            Function that moves the complete result into the job's folder. It is called if the job is added, before the
            job is visible.
        warnings : sequence of str
            Warnings of the result.

        Raises
        ------
        QuotaExceeded
            The owner has reached a limit.
        """
        now, size = time.time(), row_size(request, scores, list(warnings)) + files
        job = Job(
            id=id_, owner=parent.owner, method=parent.method, request=request,
            priority=parent.priority, created=now, claimed=now, started=now, finished=now,
            state="SUCCEEDED", attempt=1, begun_before=0, cancel=False, scores=scores, size=size,
            warnings=list(warnings),
        )  # fmt: skip
        try:
            with writing(self._engine) as session:
                lock_users(session, {parent.owner})
                if refusal := self._quota(session, parent.owner).refusal(size, waits=False):
                    raise refusal
                session.add(job)
                session.flush()
                place()
                return job
        except IntegrityError:
            with reading(self._engine) as session:
                return session.get_one(Job, id_)

    def get(self, caller: Caller, id_: str) -> Job | None:
        """Return a job, if the caller may see it."""
        if not ID_PATTERN.fullmatch(id_):
            return None
        with reading(self._engine) as session:
            job = session.get(Job, id_)
            return job if job is not None and caller.may_see(job.owner) else None

    def summary(self, caller: Caller, id_: str) -> Row[Any] | None:
        """Return the summary of a job, if the caller may see it."""
        if not ID_PATTERN.fullmatch(id_):
            return None
        with reading(self._engine) as session:
            row = session.execute(select(*_SUMMARY_COLUMNS).where(Job.id == id_)).first()
            return row if row is not None and caller.may_see(row.owner) else None

    def summaries(self, ids: Sequence[str]) -> dict[str, Row[Any]]:
        """Return the summaries of these jobs, whoever owns them; ids that do not exist are left out."""
        with reading(self._engine) as session:
            return {row.id: row for row in session.execute(select(*_SUMMARY_COLUMNS).where(Job.id.in_(ids)))}

    def latest(
        self, caller: Caller, state: str | None, limit: int, before: tuple[float, str] | None = None
    ) -> list[Row[Any]]:
        """Return summaries of the caller's jobs, the newest first; for an administrator, of all jobs.

        Parameters
        ----------
        caller : Caller
            User of the request.
        state : str or None
            List only jobs in this state.
        limit : int
            Maximum number of jobs. Fewer are listed, but at least one, if their summaries exceed `MAX_PAGE_BYTES`.
        before : tuple, optional
            Time of creation and id of a job. Only older jobs are listed.
        """
        wanted = select(*_SUMMARY_COLUMNS).order_by(Job.created.desc(), Job.id.desc()).limit(limit)
        if not caller.is_admin:
            wanted = wanted.where(Job.owner == caller.name)
        if state is not None:
            wanted = wanted.where(Job.state == state)
        if before is not None:
            wanted = wanted.where(tuple_(Job.created, Job.id) < before)  # a single range of the index
        found: list[Row[Any]] = []
        size = 0
        with reading(self._engine) as session:
            for row in session.execute(wanted.execution_options(yield_per=100)):
                size += len(json.dumps(tuple(row)))
                if found and size > MAX_PAGE_BYTES:
                    break
                found.append(row)
        return found

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        with reading(self._engine) as session:
            rows = session.execute(select(Job.state, func.count()).group_by(Job.state)).all()
            found = {row[0]: row[1] for row in rows}
        return {state: found.get(state, 0) for state in STATES}

    def cancel(self, caller: Caller, id_: str) -> Job | None:
        """Cancel a job: at once if it waits, soon if it runs. A job that has ended stays unchanged."""
        known = self.summary(caller, id_)
        files = size_of_job(self._settings, id_) if known is not None and known.state == "PENDING" else None
        with writing(self._engine) as session:
            job = self._visible(session, caller, id_)
            if job is not None and job.state == "PENDING":
                finish(job, "CANCELLED", None, None, files)
            elif job is not None and job.state == "RUNNING":
                job.cancel = True
                return job
            else:
                return job
        self._log_end(job)
        return job

    def retry(self, caller: Caller, id_: str) -> Job | None:
        """Queue a failed or cancelled job again.

        Raises
        ------
        InputError
            The job waits, runs, or has succeeded.
        TooManyJobs, QuotaExceeded
            The owner has reached a limit.
        """
        with writing(self._engine) as session:
            job = self._visible(session, caller, id_)
            if job is None:
                return None
            if job.state not in ("FAILED", "CANCELLED"):
                raise InputError(f"job {id_} is {job.state}; only a failed or cancelled job can be retried.")
            lock_users(session, {job.owner})
            self._count_waiting(session)
            if refusal := self._quota(session, job.owner).refusal(1, new=False) or self._too_many_wait():
                raise refusal
            self._waiting += 1
            job.begun_before = job.attempt  # so that earlier failures do not count
            queue(job)
            job.finished, job.error, job.fault = None, None, None
            return job

    def delete(self, caller: Caller, id_: str) -> Job | None:
        """Delete a job that has ended, with its folder, and return it.

        Raises
        ------
        InUse
            The job waits or runs.
        """
        job = with_reserve(self._settings, lambda: self._delete(caller, id_))
        if job is not None:
            remove_deleted(self._engine, self._settings)
        return job

    def _delete(self, caller: Caller, id_: str) -> Job | None:
        with writing(self._engine) as session:
            job = self._visible(session, caller, id_)
            if job is None:
                return None
            if job.state not in ENDED:
                raise InUse(f"job {id_} is {job.state}; cancel it, and delete it once it has ended.")
            session.delete(job)
            session.merge(Removal(path=f"jobs/{id_}"))  # a deleted job with the same key may have left a record
            return job

    def _visible(self, session: Session, caller: Caller, id_: str) -> Job | None:
        """Lock a job that the caller may see, and return it."""
        job = session.get(Job, id_, with_for_update=True) if ID_PATTERN.fullmatch(id_) else None
        return job if job is not None and caller.may_see(job.owner) else None

    def _log_end(self, job: Job) -> None:
        seconds = max(0.0, (job.finished or job.created) - job.created)
        self._log("job.ended", job, seconds=round(seconds, 3), size=job.size)


def queue(job: Job) -> None:
    """Let a job wait for its next attempt."""
    job.state, job.heartbeat, job.cancel, job.progress = "PENDING", None, False, None
    job.queued = time.time()


def finish(job: Job, state: str, error: str | None, fault: str | None, files: int | None) -> None:
    """Set the final state of a job.

    `files` is the number of bytes of its files; if it is None, the next sweep measures them. A transaction excludes
    other writers, so it does not measure or remove the files of a job, which may be many.
    """
    job.state, job.error, job.fault, job.finished, job.heartbeat = state, error, fault, time.time(), None
    job.size = (
        None if files is None else row_size(job.request, job.scores, job.warnings, job.error, job.progress) + files
    )


def job_id(caller: Caller, key: str | None) -> str:
    """Return a new id; with a key, always the same id for this caller and key."""
    if key is None:
        return secrets.token_hex(16)
    return hashlib.sha256(f"{caller.name}\0{key}".encode()).hexdigest()[:32]


def _count(session: Session, wanted: Select[Any], most: int) -> int:
    """Count rows, up to `most`."""
    return session.scalar(select(func.count()).select_from(wanted.limit(most).subquery())) or 0
