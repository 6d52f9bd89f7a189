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

from sqlalchemy import Engine, Row, Select, Text, case, cast, delete, false, func, insert, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from mgclust.base.errors import InputError
from mgclust.service.queue.access import ID_PATTERN, Caller
from mgclust.service.queue.log import JobLog
from mgclust.service.queue.models import Job, Removal, Token, reading, search_text, writing
from mgclust.service.queue.quotas import (
    QuotaExceeded,
    UserLimits,
    bytes_kept,
    limits_of,
    lock_users,
    quota_error,
    row_size,
    size_of_job,
)
from mgclust.service.queue.removal import InUse, remove_deleted, with_reserve
from mgclust.service.queue.sources import lock_uploads, missing_upload
from mgclust.service.queue.webhooks import keep_messages
from mgclust.service.settings import Settings
from mgclust.service.states import ENDED, STATES

__all__ = ["JobFilter", "Jobs", "NewJob", "TooManyJobs", "finish", "job_id", "queue"]

MAX_IDS = 8  # ids that a prefix may find
MAX_JOBS_WAITING = 100_000  # waiting jobs of all users together
MAX_JOBS_KEPT = 100_000  # jobs of one user, including ended jobs
MAX_PAGE_BYTES = 1 << 20  # size of a page of a list
MAX_RANKED = 1000  # newest jobs among which a list in another order is made
JOBS_PER_QUERY = 100
MAX_FIELD_BYTES = 4096  # size of scores, warnings, progress or an error in a list


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


@dataclass(frozen=True)
class JobFilter:
    """Jobs to list: jobs for which every condition holds that is given.

    Parameters
    ----------
    state, method, tag, sweep, owner : str, optional
        Values that the jobs must have. Only administrators see jobs of other owners.
    words : sequence of str
        Texts that must occur in a job's name, tags, id, method, files or parameters, in any order and case.
    """

    state: str | None = None
    words: Sequence[str] = ()
    method: str | None = None
    tag: str | None = None
    sweep: str | None = None
    owner: str | None = None

    def apply(self, caller: Caller, wanted: Select[Any]) -> Select[Any]:
        """Add the conditions to a query, and the condition that the caller may see the jobs."""
        lines = (("#", self.tag), ("method=", self.method))
        texts = [*self.words, *(f"\n{start}{value}\n" for start, value in lines if value)]
        owner = self.owner if caller.is_admin else caller.name
        # An expression instead of a column keeps SQLite from an index that is worse than the index of the sweep or the
        # texts: it would read each row of the owner or the state.
        narrow = self.sweep is not None
        if owner is not None:
            wanted = wanted.where((Job.owner + "" if narrow else Job.owner) == owner)
        if not caller.is_admin and self.owner not in (None, caller.name):
            wanted = wanted.where(false())
        if self.sweep is not None:
            wanted = wanted.where(Job.sweep == self.sweep)
        for text in texts:
            wanted = wanted.where(Job.search.contains(text.lower(), autoescape=True))
        if self.state is not None:
            wanted = wanted.where((Job.state + "" if texts or narrow else Job.state) == self.state)
        return wanted


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


# Columns of lists: all except the request and other long values.
_SUMMARY_COLUMNS = (
    Job.id, Job.owner, Job.method, Job.state, Job.priority, Job.attempt, Job.created, Job.started, Job.finished,
    Job.fault, Job.size, Job.summary, Job.name, Job.tags, Job.sweep,
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
            For each order a job, `TooManyJobs`, `QuotaExceeded`, or `InputError` if an upload of the request does not
            exist. If a job with the same id exists, it is returned: a
            request that is sent again because its answer was lost does not create a second job.
        """
        return self._retried(orders, together=False)

    def submit_sweep(self, orders: Sequence[NewJob]) -> list[Job]:
        """Add all jobs of a sweep, or none.

        Raises
        ------
        TooManyJobs, QuotaExceeded
            The owner has reached a limit.
        InputError
            An upload was deleted.
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
            refused: dict[str, Exception] = {}
            room = {name: self._quota(session, name) for name in names}
            self._count_waiting(session)
            now = 0.0
            owners = lock_uploads(session, [order.request for order in orders])
            for order in orders:
                owner = order.caller.name
                if order.id in jobs:
                    continue
                size = row_size(order.request)
                if refusal := (
                    room[owner].refusal(size) or self._too_many_wait() or missing_upload(order.request, owner, owners)
                ):
                    if together:
                        raise refusal
                    refused[order.id] = refusal
                    continue
                room[owner].take(size)
                self._waiting += 1
                now = max(time.time(), now + 1e-6)  # lists and sweeps keep the order
                values = {
                    "id": order.id, "owner": owner, "method": order.method, "request": order.request,
                    "priority": order.priority, "created": now, "name": order.name, "tags": list(order.tags),
                    "sweep": order.sweep,
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

    def ids(self, caller: Caller, prefix: str) -> Sequence[str]:
        """Return a few ids that begin with a prefix, of jobs that the caller may see."""
        wanted = select(Job.id).where(Job.id >= prefix, Job.id < f"{prefix}g")  # ids are hexadecimal
        if not caller.is_admin:
            wanted = wanted.where(Job.owner == caller.name)
        with reading(self._engine) as session:
            return session.scalars(wanted.order_by(Job.id).limit(MAX_IDS)).all()

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
        self, caller: Caller, wanted: JobFilter, limit: int, before: tuple[float, str] | None = None
    ) -> list[Row[Any]]:
        """Return summaries of the caller's jobs, the newest first; for an administrator, of all jobs.

        Parameters
        ----------
        caller : Caller
            User of the request.
        wanted : JobFilter
            Conditions for the jobs.
        limit : int
            Maximum number of jobs. Fewer are listed, but at least one, if their summaries exceed `MAX_PAGE_BYTES`.
        before : tuple, optional
            Time of creation and id of a job. Only older jobs are listed.
        """
        ids = wanted.apply(caller, select(Job.id)).order_by(Job.created.desc(), Job.id.desc()).limit(limit)
        if before is not None:
            ids = ids.where(tuple_(Job.created, Job.id) < before)  # a single range of the index
        with reading(self._engine) as session:
            return _page(session, session.scalars(ids).all())

    def ranked(self, caller: Caller, wanted: JobFilter, by: str, down: bool, limit: int, skip: int) -> list[Row[Any]]:
        """Return summaries of the caller's jobs in another order, among the newest `MAX_RANKED` jobs that match.

        Jobs without the value come last.

        Parameters
        ----------
        caller, wanted
            As in `latest`.
        by : str
            "name", "method", "state", "owner", "seconds", or "score:" and the name of a score.
        down : bool
            Whether the order is descending.
        limit, skip : int
            Number of jobs to return, and to skip.
        """
        newest = wanted.apply(caller, select(Job.id)).order_by(Job.created.desc(), Job.id.desc()).limit(MAX_RANKED)
        score = by.removeprefix("score:") if by.startswith("score:") else None
        columns = [Job.scores] if score else [getattr(Job, each) for each in _RANK_COLUMNS[by]]
        with reading(self._engine) as session:
            ids = session.scalars(newest).all()
            rows = session.execute(select(Job.id, *columns).where(Job.id.in_(ids)))
            values = {row[0]: _rank_value(score, row[1:]) for row in rows}
            with_value = [id_ for id_ in ids if values.get(id_) is not None]
            with_value.sort(key=lambda id_: values[id_], reverse=down)
            order = [*with_value, *(id_ for id_ in ids if values.get(id_) is None)]
            return _page(session, order[skip : skip + limit])

    def members(self, caller: Caller, sweep: str) -> list[Job]:
        """Return the jobs of a sweep in the order of its combinations; none if the caller may not see them."""
        if not ID_PATTERN.fullmatch(sweep):
            return []
        wanted = JobFilter(sweep=sweep).apply(caller, select(Job)).order_by(Job.created, Job.id)
        with reading(self._engine) as session:
            return list(session.scalars(wanted))

    def rename(self, caller: Caller, id_: str, name: str | None, tags: Sequence[str] | None) -> Job | None:
        """Change the name of a job (if it is not None; "" removes the name) and its tags (if they are not None)."""
        with writing(self._engine) as session:
            job = self._visible(session, caller, id_)
            if job is not None:
                job.name = job.name if name is None else (name or None)
                job.tags = job.tags if tags is None else list(tags)
                job.search = search_text(job.id, job.name, job.tags, job.method, job.summary, job.sweep)
            return job

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
            The job waits, runs, or has succeeded, or one of its uploads was deleted.
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
            owners = lock_uploads(session, [job.request])
            if refusal := self._quota(session, job.owner).refusal(1, new=False) or self._too_many_wait():
                raise refusal
            if refusal := missing_upload(job.request, job.owner, owners):
                raise refusal
            self._waiting += 1
            keep_messages(session, job)
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
            _check_unneeded(session, [job])
            _remove(session, job)
            return job

    def delete_sweep(self, caller: Caller, sweep: str) -> list[Job]:
        """Delete all jobs of a sweep, or none, and return them.

        Raises
        ------
        InUse
            A job of the sweep waits or runs, or another job needs the labels of one.
        """
        jobs = with_reserve(self._settings, lambda: self._delete_sweep(caller, sweep))
        if jobs:
            remove_deleted(self._engine, self._settings)
        return jobs

    def _delete_sweep(self, caller: Caller, sweep: str) -> list[Job]:
        wanted = JobFilter(sweep=sweep).apply(caller, select(Job)).order_by(Job.created, Job.id)
        with writing(self._engine) as session:
            jobs = list(session.scalars(wanted.with_for_update()))
            active = [job for job in jobs if job.state not in ENDED]
            if active:
                raise InUse(f"{len(active)} jobs of sweep {sweep} wait or run; cancel the sweep, and delete it then.")
            _check_unneeded(session, jobs)
            for job in jobs:
                _remove(session, job)
            return jobs

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


def _remove(session: Session, job: Job) -> None:
    keep_messages(session, job)
    session.execute(delete(Token).where(Token.job == job.id))  # its links
    session.delete(job)
    session.merge(Removal(path=f"jobs/{job.id}"))  # a deleted job with the same key may have left a record


def _check_unneeded(session: Session, jobs: Sequence[Job]) -> None:
    """Check that no waiting or running job of the same owner reads the labels of these jobs.

    Raises
    ------
    InUse
        A job needs them.
    """
    waits = Job.state.in_(("PENDING", "RUNNING"))
    active = select(Job.id, Job.request).where(waits, Job.owner.in_({job.owner for job in jobs}), _READS_LABELS)
    named = {f'"job": "{job.id}"' for job in jobs}
    for id_, request in session.execute(active):
        text = json.dumps(request)
        if any(each in text for each in named):
            raise InUse(f"job {id_} waits or runs, and needs the labels; cancel it, or wait until it ends.")


_READS_LABELS = cast(Job.request, Text).like('%"job": "%')


def _page(session: Session, ids: Sequence[str]) -> list[Row[Any]]:
    """Return the summaries of jobs in this order, up to `MAX_PAGE_BYTES`; jobs that do not exist are left out."""
    place = {id_: k for k, id_ in enumerate(ids)}
    found: list[Row[Any]] = []
    size = 0
    for start in range(0, len(ids), JOBS_PER_QUERY):
        part = ids[start : start + JOBS_PER_QUERY]
        rows = session.execute(select(*_SUMMARY_COLUMNS).where(Job.id.in_(part))).all()
        for row in sorted(rows, key=lambda row: place[row.id]):
            size += len(json.dumps(tuple(row)))
            if found and size > MAX_PAGE_BYTES:
                return found
            found.append(row)
    return found


_RANK_COLUMNS = {
    "name": ("name",), "method": ("method",), "state": ("state",), "owner": ("owner",),
    "seconds": ("started", "finished"),
}  # fmt: skip


def _rank_value(score: str | None, values: Sequence[Any]) -> Any:
    """Return the value by which a job is ranked, or None."""
    if score is not None:
        value = (values[0] or {}).get(score)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return value if number else None
    if len(values) == 2:
        return None if None in values else values[1] - values[0]
    return values[0]


def _count(session: Session, wanted: Select[Any], most: int) -> int:
    """Count rows, up to `most`."""
    return session.scalar(select(func.count()).select_from(wanted.limit(most).subquery())) or 0
