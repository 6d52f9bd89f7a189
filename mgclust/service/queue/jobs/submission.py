"""Jobs enter the queue, within the limits of their owners: new jobs, sweeps, new results, and retries."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, Select, func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from mgclust.base.errors import InputError
from mgclust.service.queue.access import Caller
from mgclust.service.queue.jobs.changes import queue, queue_copy
from mgclust.service.queue.jobs.lists import lock_job
from mgclust.service.queue.models import Job, reading, writing
from mgclust.service.queue.quotas import (
    QuotaExceeded,
    UserLimits,
    bytes_kept,
    limits_of,
    lock_users,
    quota_error,
    row_size,
)
from mgclust.service.queue.sources import lock_sources, missing_source
from mgclust.service.queue.webhooks import keep_messages
from mgclust.service.settings import Settings

__all__ = ["JobSubmission", "NewJob", "TooManyJobs", "job_id"]

MAX_JOBS_WAITING = 100_000  # waiting jobs of all users together
MAX_JOBS_KEPT = 100_000  # jobs of one user, including ended jobs


@dataclass(frozen=True)
class NewJob:
    """A job to be queued, with an id from `job_id`."""

    id: str
    caller: Caller
    method: str
    request: dict[str, Any]
    priority: int
    name: str | None = None
    tags: Sequence[str] = ()
    sweep: str | None = None


class TooManyJobs(Exception):
    """The limit of waiting jobs is reached."""


@dataclass
class _Quota:
    """Usage of a user: active jobs, all jobs, and bytes."""

    owner: str
    limits: UserLimits
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


class JobSubmission:
    """Additions of jobs to the queue, each in one transaction.

    Parameters
    ----------
    engine : Engine
        From `open_database`.
    settings : Settings
        Limits of users.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self._counted, self._waiting = -math.inf, 0  # time of the last count of all waiting jobs, and their number

    def submit(self, orders: Sequence[NewJob]) -> list[Job | Exception]:
        """Add jobs in one transaction.

        Returns
        -------
        list
            For each order, the job or an error: `TooManyJobs`, `QuotaExceeded`, or `InputError` if an upload of the
            request, or a job whose labels it needs, does not exist. If a job with the same id exists, this job is
            returned. So a request that is sent again because its answer was lost does not create a second job. If this
            job has another method or other parameters, the error is an `InputError`.
        """
        return self._retried(orders, together=False)

    def submit_sweep(self, orders: Sequence[NewJob]) -> list[Job]:
        """Add all jobs of a sweep, or none.

        Raises
        ------
        TooManyJobs, QuotaExceeded
            The owner has reached a limit.
        InputError
            An upload, or a job whose labels are needed, does not exist.
        """
        return [job for job in self._retried(orders, together=True) if isinstance(job, Job)]

    def _retried(self, orders: Sequence[NewJob], together: bool) -> list[Job | Exception]:
        try:
            return self._submit(orders, together)
        except IntegrityError:  # another web process has added one of the jobs, which is now found
            return self._submit(orders, together)

    def _submit(self, orders: Sequence[NewJob], together: bool) -> list[Job | Exception]:
        """Add jobs. If they belong `together`, the first rejection is raised, and no job is added."""
        wanted = select(Job).where(Job.id.in_({order.id for order in orders}))
        names = {order.caller.name for order in orders}
        with writing(self._engine) as session:
            lock_users(session, names)
            jobs: dict[str, Job] = {job.id: job for job in session.scalars(wanted)}
            new: list[dict[str, Any]] = []
            answers: list[Job | Exception] = []
            room = {name: self._quota(session, name) for name in names}
            self._count_waiting(session)
            now = 0.0
            owners = lock_sources(session, [order.request for order in orders])
            for order in orders:
                owner, known, size = order.caller.name, jobs.get(order.id), row_size(order.request)
                answer = (
                    room[owner].refusal(size) or self._too_many_wait() or missing_source(order.request, owner, owners)
                    if known is None
                    else _other_request(known, order) or known
                )
                if together and isinstance(answer, Exception):
                    raise answer
                if answer is not None:
                    answers.append(answer)
                    continue
                room[owner].take(size)
                self._waiting += 1
                now = max(time.time(), now + 1e-6)  # lists and sweeps keep the order
                values = {
                    "id": order.id, "owner": owner, "method": order.method, "request": order.request,
                    "priority": order.priority, "created": now, "name": order.name or None, "tags": list(order.tags),
                    "sweep": order.sweep,
                    "state": "PENDING", "attempt": 0, "begun_before": 0, "cancel": False, "size": size,
                }  # fmt: skip
                new.append(values)
                jobs[order.id] = Job(**values)
                answers.append(jobs[order.id])
            if new:
                # Insert without tracked objects, which would cost more than all other steps.
                session.connection().execute(insert(Job), new)
        return answers

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

    def retry(self, caller: Caller, id_: str) -> Job | None:
        """Queue a failed or cancelled job again, or the copy of its result if copying has failed.

        Raises
        ------
        InputError
            The job waits or runs, has succeeded with no failed copy, or one of its sources was deleted.
        TooManyJobs, QuotaExceeded
            The owner has reached a limit.
        """
        with writing(self._engine) as session:
            job = lock_job(session, caller, id_)
            if job is None:
                return None
            if job.result_copy is not None and job.result_copy["state"] == "FAILED":
                queue_copy(job)
                return job
            if job.state not in ("FAILED", "CANCELLED"):
                raise InputError(f"job {id_} is {job.state}; only a failed or cancelled job can be retried.")
            lock_users(session, {job.owner})
            self._count_waiting(session)
            owners = lock_sources(session, [job.request])
            if refusal := self._quota(session, job.owner).refusal(1, new=False) or self._too_many_wait():
                raise refusal
            if refusal := missing_source(job.request, job.owner, owners):
                raise refusal
            self._waiting += 1
            keep_messages(session, job)
            job.begun_before = job.attempt  # so that earlier failures do not count
            queue(job)
            job.finished, job.error, job.fault = None, None, None
            return job

    def _quota(self, session: Session, owner: str) -> _Quota:
        """Return the usage of a user, which is valid while the transaction locks the user."""
        limits = limits_of(session, self._settings, owner)
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


def _other_request(job: Job, order: NewJob) -> InputError | None:
    """Return the error for a key of a job that has another method or other parameters, else None.

    The sources may differ, because a client that sends its request again may have sent its files again as well.
    """
    first, second = (
        json.dumps([method, {name: value for name, value in request.items() if name != "sources"}], sort_keys=True)
        for method, request in ((job.method, job.request), (order.method, order.request))
    )
    if first == second:
        return None
    return InputError(
        f"the key belongs to job {job.id}, which has another method or other parameters; give each request its own key."
    )


def job_id(caller: Caller, key: str | None) -> str:
    """Return a new id; with a key, always the same id for this caller and key."""
    if key is None:
        return secrets.token_hex(16)
    return hashlib.sha256(f"{caller.name}\0{key}".encode()).hexdigest()[:32]


def _count(session: Session, wanted: Select[Any], most: int) -> int:
    """Count rows, up to `most`."""
    return session.scalar(select(func.count()).select_from(wanted.limit(most).subquery())) or 0
