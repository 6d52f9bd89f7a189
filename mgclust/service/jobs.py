"""The queue: what a job may become, and every change of it as one transaction.

::

    PENDING ──claim──> RUNNING ──> SUCCEEDED
       ^                  │ ├────> FAILED      the data's, the parameters' or the memory's fault: at once;
       └── lost, or the ──┘ │                  the cluster's: after `attempts` beginnings
           cluster's fault  └────> CANCELLED
    FAILED, CANCELLED ──retry──> PENDING
    SUCCEEDED, FAILED, CANCELLED ──delete──> nothing

Which job is claimed: one of an administrator whose priority is above 0, if any waits, by priority and then age. Else
one of the user of whom the fewest jobs run; of those, of the one whose jobs took the least time of the slots, which
counts half after each hour (`add_usage`), so that no one waits behind others for what they used long ago, nor for more
than about an hour behind one who used nothing. Of that user's jobs: by priority, then age.

A claim makes a new attempt. Whoever reports on an attempt names it, and is not heard when the job has gone on to
another, so that a job ends once, whatever was thought dead and was not. An attempt is lost whose heartbeat has not
changed for long, in the time during which the judge ran; the times in the table, of whatever clock, are for people.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Engine, Row, Select, Text, case, cast, func, insert, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from mgclust.engine.silence import Awake, Silence
from mgclust.errors import InputError
from mgclust.service.access import ID_PATTERN, Caller
from mgclust.service.disk import InUse, NoRoom, clear, kept_by, lock_users, no_room, row_size, size_of_job, with_reserve
from mgclust.service.log import JobLog
from mgclust.service.metrics import observe
from mgclust.service.models import Job, Removal, User, reading, writing
from mgclust.service.settings import Settings

__all__ = ["STATES", "Jobs", "NewJob", "TooManyJobs", "add_usage", "job_id", "summary_of"]

STATES = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
USAGE_HALF_LIFE_SECONDS = 3600.0  # seconds after which what a user's jobs took counts half
FREE_ATTEMPTS_FACTOR = 3  # times `attempts`: beginnings of a job up to which the faults of runners do not count
MIN_CHARGE_SECONDS = 1.0  # seconds that a start counts, also of a job that fails at once
MAX_PAGE_BYTES = 1 << 20  # of one page of a list
MAX_FIELD_BYTES = 4096  # bytes of scores, of progress, or of an error, in lists


@dataclass(frozen=True)
class NewJob:
    """A job that somebody wants, whose id is from `job_id`."""

    id: str
    caller: Caller
    method: str
    request: dict[str, Any]
    priority: int


class TooManyJobs(Exception):
    """As many jobs wait as may."""


@dataclass
class _Quota:
    """How many jobs of a user wait or run, how many there are in all, and how many bytes the user keeps."""

    owner: str
    limits: Settings
    active: int
    jobs: int
    kept: int

    def refusal(self, size: int, new: bool = True, waits: bool = True) -> Exception | None:
        """Why a job of this size cannot be added, or, if it is not new, not be queued again."""
        if refusal := no_room(self.owner, self.limits.disk_per_user, self.kept, size):
            return refusal
        if new and self.jobs >= (most := self.limits.jobs_kept_per_user):
            return NoRoom(f"{self.owner} has jobs_kept_per_user={most} jobs; delete some that have ended.")
        if waits and self.active >= (most := self.limits.jobs_per_user):
            return TooManyJobs(f"{self.owner} has jobs_per_user={most} jobs waiting; wait, or cancel some.")
        return None

    def take(self, size: int) -> None:
        """Count a job that is added."""
        self.active, self.jobs, self.kept = self.active + 1, self.jobs + 1, self.kept + size


# What lists tell: neither the request, nor anything else that is long.
_SUMMARY_COLUMNS = (
    Job.id, Job.owner, Job.method, Job.state, Job.priority, Job.attempt, Job.created, Job.started, Job.finished,
    Job.fault, Job.size, Job.summary,
    case((func.length(cast(Job.progress, Text)) <= MAX_FIELD_BYTES, Job.progress)).label("progress"),
    case((func.length(cast(Job.scores, Text)) <= MAX_FIELD_BYTES, Job.scores)).label("scores"),
    func.substr(Job.error, 1, MAX_FIELD_BYTES).label("error"),
)  # fmt: skip


class Jobs:
    """All jobs of a service.

    Parameters
    ----------
    engine : Engine
        From `open_database`.
    settings : Settings
        Where jobs leave their files, and the limits of a user and of a job.
    runner : str, optional
        The name of the runner that claims them.
    """

    def __init__(self, engine: Engine, settings: Settings, runner: str | None = None) -> None:
        self._engine, self._settings = engine, settings
        self._log = JobLog(settings.log)
        self._counted, self._waiting = -math.inf, 0  # when all that wait were counted, and how many there were
        self._runner, self.clock = runner, Awake()
        self._silence: Silence[str] = Silence(self.clock)

    def submit(self, orders: Sequence[NewJob]) -> list[Job | Exception]:
        """Add jobs, in one transaction.

        Returns
        -------
        list
            A job, `TooManyJobs` or `NoRoom` for each order. An id that exists yields the existing job: a request that
            is sent again because its answer was lost does not make a second job.
        """
        try:
            return self._submit(orders)
        except IntegrityError:  # another web process was first with one of them, and now it is known
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
                    "summary": summary_of(order.request), "priority": order.priority, "created": now, "queued": now,
                    "state": "PENDING", "attempt": 0, "begun_before": 0, "cancel": False, "size": size,
                }  # fmt: skip
                new.append(values)
                jobs[order.id] = Job(**values)
            if new:
                # Without objects that are tracked, which cost more than all the rest of a submit.
                session.connection().execute(insert(Job), new)
        return [refused.get(order.id) or jobs[order.id] for order in orders]

    def _quota(self, session: Session, owner: str) -> _Quota:
        """What a user may still add, as long as the transaction has locked the user."""
        limits = self._settings
        active = select(Job.id).where(Job.owner == owner, Job.state.in_(("PENDING", "RUNNING")))
        all_ = select(Job.id).where(Job.owner == owner)
        return _Quota(
            owner,
            limits,
            _count(session, active, limits.jobs_per_user),
            _count(session, all_, limits.jobs_kept_per_user),
            kept_by(session, owner) if limits.disk_per_user else 0,
        )

    def _count_waiting(self, session: Session) -> None:
        """Count all jobs that wait, once a second, and whenever there seem to be too many."""
        most = self._settings.jobs_waiting
        if self._waiting >= most or time.monotonic() - self._counted > 1.0:
            self._waiting = _count(session, select(Job.id).where(Job.state == "PENDING"), most)
            self._counted = time.monotonic()

    def _too_many_wait(self) -> TooManyJobs | None:
        if self._waiting < self._settings.jobs_waiting:
            return None
        return TooManyJobs(f"jobs_waiting={self._settings.jobs_waiting} jobs of all users wait; submit again later.")

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
        now, size = time.time(), row_size(request, scores)
        job = Job(
            id=id_, owner=parent.owner, method=parent.method, request=request, summary=summary_of(request),
            priority=parent.priority, created=now, queued=now, claimed=now, started=now, finished=now,
            state="SUCCEEDED", attempt=1, begun_before=0, cancel=False, scores=scores,
        )  # fmt: skip
        try:
            with writing(self._engine) as session:
                lock_users(session, {parent.owner})
                if refusal := self._quota(session, parent.owner).refusal(size, waits=False):
                    raise refusal
                session.add(job)
                session.flush()
                place()
                job.size = size + size_of_job(self._settings, id_)
                return job
        except IntegrityError:
            with reading(self._engine) as session:
                return session.get_one(Job, id_)

    def get(self, caller: Caller, id_: str) -> Job | None:
        """A job that the caller may see."""
        if not ID_PATTERN.fullmatch(id_):
            return None
        with reading(self._engine) as session:
            job = session.get(Job, id_)
            return job if job is not None and caller.may_see(job.owner) else None

    def summary(self, caller: Caller, id_: str) -> Row[Any] | None:
        """What lists tell of a job that the caller may see."""
        if not ID_PATTERN.fullmatch(id_):
            return None
        with reading(self._engine) as session:
            row = session.execute(select(*_SUMMARY_COLUMNS).where(Job.id == id_)).first()
            return row if row is not None and caller.may_see(row.owner) else None

    def summaries(self, ids: Sequence[str]) -> dict[str, Row[Any]]:
        """What lists tell of these jobs, whosever they are; of those that are there."""
        with reading(self._engine) as session:
            return {row.id: row for row in session.execute(select(*_SUMMARY_COLUMNS).where(Job.id.in_(ids)))}

    def latest(
        self, caller: Caller, state: str | None, limit: int, before: tuple[float, str] | None = None
    ) -> list[Row[Any]]:
        """What lists tell of the caller's jobs (an admin's: all), newest first.

        Parameters
        ----------
        caller : Caller
        state : str or None
            Only jobs in this state.
        limit : int
            The most jobs; fewer where they would exceed `MAX_PAGE_BYTES`, but at least one.
        before : tuple, optional
            (created, id) of a job: only older ones.
        """
        wanted = select(*_SUMMARY_COLUMNS).order_by(Job.created.desc(), Job.id.desc()).limit(limit)
        if not caller.is_admin:
            wanted = wanted.where(Job.owner == caller.name)
        if state is not None:
            wanted = wanted.where(Job.state == state)
        if before is not None:
            wanted = wanted.where(tuple_(Job.created, Job.id) < before)  # one range of the index
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
        """How many jobs there are in each state."""
        with reading(self._engine) as session:
            rows = session.execute(select(Job.state, func.count()).group_by(Job.state)).all()
            found = {row[0]: row[1] for row in rows}
        return {state: found.get(state, 0) for state in STATES}

    def cancel(self, caller: Caller, id_: str) -> Job | None:
        """Ask for a job's end: at once if it waits, soon if it runs; nothing if it has ended."""
        with writing(self._engine) as session:
            job = self._visible(session, caller, id_)
            if job is not None and job.state == "PENDING":
                self._end(job, "CANCELLED", None, None)
            elif job is not None and job.state == "RUNNING":
                job.cancel = True
                return job
            else:
                return job
        self._log_end(job)
        return job

    def retry(self, caller: Caller, id_: str) -> Job | None:
        """Queue a job again that has failed or was cancelled.

        Raises
        ------
        InputError
            It waits, runs, or has succeeded.
        TooManyJobs, NoRoom
            Its owner has as many jobs waiting, or keeps as much, as they may.
        """
        with writing(self._engine) as session:
            job = self._visible(session, caller, id_)
            if job is None:
                return None
            if job.state not in ("FAILED", "CANCELLED"):
                raise InputError(f"job {id_} is {job.state}; only one that failed or was cancelled is run again.")
            lock_users(session, {job.owner})
            self._count_waiting(session)
            if refusal := self._quota(session, job.owner).refusal(1, new=False) or self._too_many_wait():
                raise refusal
            self._waiting += 1
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
        job = with_reserve(self._settings, lambda: self._delete(caller, id_))
        if job is not None:
            clear(self._engine, self._settings)
        return job

    def _delete(self, caller: Caller, id_: str) -> Job | None:
        with writing(self._engine) as session:
            job = self._visible(session, caller, id_)
            if job is None:
                return None
            if job.state not in ENDED:
                raise InUse(f"job {id_} is {job.state}; cancel it, and delete it once it has ended.")
            session.delete(job)
            session.merge(Removal(path=f"jobs/{id_}"))  # one of the same key may have been deleted before
            return job

    def claim(self) -> Job | None:
        """Take the next job, which is from now on RUNNING in a new attempt."""
        with reading(self._engine) as session:  # an idle runner asks often, and no writer should wait for it
            if session.scalars(select(Job.id).where(Job.state == "PENDING").limit(1)).first() is None:
                return None
        with writing(self._engine, alone=True) as session:  # another runner counts what this one takes
            job = self._next(session)
            if job is None:
                return None
            job.state, job.attempt, job.cancel = "RUNNING", job.attempt + 1, False
            job.heartbeat = job.claimed = time.time()
            job.runner = self._runner
            job.started = job.started or job.heartbeat
            _charge(session, job.owner, MIN_CHARGE_SECONDS)
            waited = max(0.0, job.claimed - (job.queued or job.created))
            observe(session, "wait", job.method, "RUNNING", waited)
            job.before = job.error  # for the log of the attempt that begins
            job.progress = job.error = job.fault = None
        self._log("attempt.started", job, waited=round(waited, 3))
        return job

    def _next(self, session: Session) -> Job | None:
        if (urgent := self._first(session, Job.priority > 0)) is not None:
            return urgent
        running = select(Job.owner, func.count().label("number")).where(Job.state == "RUNNING").group_by(Job.owner)
        slots = running.subquery()
        # One look into the index for each user, not one for each job that waits.
        waits = select(Job.id).where(Job.owner == User.name, Job.state == "PENDING").exists()
        shares = select(User.name).outerjoin(slots, slots.c.owner == User.name).where(waits)
        shares = shares.order_by(func.coalesce(slots.c.number, 0), User.used, User.name).limit(1)
        return self._first(session, Job.owner == session.scalar(shares))

    def _first(self, session: Session, condition: ColumnElement[bool]) -> Job | None:
        """Of the waiting jobs of which this is true, the oldest one of the highest priority."""
        highest = session.scalar(select(func.max(Job.priority)).where(Job.state == "PENDING", condition))
        if highest is None:
            return None
        wanted = select(Job).where(Job.state == "PENDING", condition, Job.priority == highest)
        wanted = wanted.order_by(Job.created, Job.id).limit(1)
        return session.scalars(wanted.with_for_update(skip_locked=True)).first()

    def heartbeat(self, id_: str, attempt: int, progress: dict[str, Any] | None) -> bool | None:
        """Say that an attempt goes on; whether its end was asked for, or None if the job has gone on without it.

        One that was taken for lost goes on if no other has begun; if one has, the mistake does not count against the
        job.
        """
        with writing(self._engine) as session:
            job = session.get(Job, id_, with_for_update=True)
            if job is None or job.state not in ("RUNNING", "PENDING") or job.attempt < attempt:
                return None
            if job.attempt > attempt:
                job.begun_before += self._is_uncounted(attempt)
                return None
            if job.state == "PENDING":
                job.state, job.error, job.fault, job.claimed = "RUNNING", None, None, time.time()
            job.heartbeat = time.time()
            job.progress = progress or job.progress
            return job.cancel

    def succeed(self, id_: str, attempt: int, scores: dict[str, Any], facts: Mapping[str, Any] | None = None) -> bool:
        """An attempt has left a whole result; whether it was still the job's. `facts` are for the log."""
        files = size_of_job(self._settings, id_)  # of many files this takes time: before others have to wait
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is None:
                return False
            self._account(session, job, "SUCCEEDED")
            job.scores, job.progress = scores, None  # the last report was from before the end
            self._end(job, "SUCCEEDED", None, None, files)
        self._log_attempt(job, facts)
        return True

    def fail(self, id_: str, attempt: int, error: str, fault: str, facts: Mapping[str, Any] | None = None) -> None:
        """An attempt has ended without a result: the job's end, or its next turn if the cluster was at fault."""
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is None:
                return
            self._apply_failure(session, job, error, fault)
        self._log_attempt(job, facts)

    def requeue(self, id_: str, attempt: int) -> None:
        """An attempt was ended in good order by a runner that ends: the job waits for another, and none the worse."""
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is None:
                return
            if job.cancel:
                self._account(session, job, "CANCELLED")
                self._end(job, "CANCELLED", None, None)
            else:
                job.begun_before += 1
                self._account(session, job, "PENDING")
                _queue(job)
                job.error = job.fault = None  # a job that an older version claimed may have those of an attempt before
        self._log_attempt(job)

    def requeue_all(self, runners: Sequence[str]) -> None:
        """Queue the jobs of runners that hung and were ended with all their attempts.

        These do not count, but for jobs that were begun often: one of them may be why its runners hang.
        """
        with reading(self._engine) as session:
            found = session.execute(
                select(Job.id, Job.attempt).where(Job.state == "RUNNING", Job.runner.in_(runners))
            ).all()
        for id_, attempt in found:
            if self._is_uncounted(attempt):
                self.requeue(id_, attempt)
            else:
                self.fail(id_, attempt, f"attempt {attempt} was ended with its runner, which hung.", "cluster")

    def _is_uncounted(self, attempt: int) -> bool:
        """Whether it does not count if the fault was a runner's."""
        return attempt <= FREE_ATTEMPTS_FACTOR * self._settings.attempts

    def requeue_lost(self, after: float) -> list[str]:
        """Queue running jobs again whose heartbeat has not changed for so many seconds of `clock`; their ids."""
        running = select(Job.id, Job.attempt, Job.heartbeat).where(Job.state == "RUNNING")
        with reading(self._engine) as session:
            marks = {id_: (attempt, heartbeat) for id_, attempt, heartbeat in session.execute(running)}
        silent = [id_ for id_, seconds in self._silence.of(marks).items() if seconds > after]
        lost = []
        for id_ in silent:  # each on its own: two processes that lock several users could wait for each other
            with writing(self._engine) as session:
                wanted = select(Job).where(Job.id == id_, Job.state == "RUNNING").with_for_update(skip_locked=True)
                job = session.scalars(wanted).first()
                if job is None or (job.attempt, job.heartbeat) != marks[id_]:
                    continue  # it has said something meanwhile, or another runner judged first
                error = (
                    f"attempt {job.attempt} was lost: its runner, or its machine, gave no sign of life for {after:g} s."
                )
                self._apply_failure(session, job, error, "cluster")
            self._log_attempt(job)
            lost.append(id_)
        return lost

    def _apply_failure(self, session: Session, job: Job, error: str, fault: str) -> None:
        if job.cancel:
            self._account(session, job, "CANCELLED")
            self._end(job, "CANCELLED", None, None)
        elif fault == "cluster" and job.attempt - job.begun_before < self._settings.attempts:
            self._account(session, job, "PENDING")
            _queue(job)
            job.error, job.fault = error, fault
        else:
            self._account(session, job, "FAILED")
            self._end(job, "FAILED", error, fault)

    def _account(self, session: Session, job: Job, state: str) -> None:
        """Count what an attempt took, after which the job is in another state."""
        seconds = max(0.0, time.time() - (job.claimed or job.created))
        if seconds > MIN_CHARGE_SECONDS:  # so much was counted when it began
            _charge(session, job.owner, seconds - MIN_CHARGE_SECONDS)
        observe(session, "attempt", job.method, state, seconds)

    def _end(self, job: Job, state: str, error: str | None, fault: str | None, files: int | None = None) -> None:
        job.state, job.error, job.fault, job.finished, job.heartbeat = state, error, fault, time.time(), None
        if files is None:
            files = size_of_job(self._settings, job.id)
        job.size = row_size(job.request, job.scores, job.error, job.progress) + files

    def _log_attempt(self, job: Job, facts: Mapping[str, Any] | None = None) -> None:
        """Log the end of an attempt, after what it was for the job is written."""
        seconds = max(0.0, time.time() - (job.claimed or job.created))
        self._log("attempt.ended", job, seconds=round(seconds, 3), **(facts or {}))
        if job.state in ENDED:
            self._log_end(job)

    def _log_end(self, job: Job) -> None:
        seconds = max(0.0, (job.finished or job.created) - job.created)
        self._log("job.ended", job, seconds=round(seconds, 3), size=job.size)

    def _visible(self, session: Session, caller: Caller, id_: str) -> Job | None:
        job = session.get(Job, id_, with_for_update=True) if ID_PATTERN.fullmatch(id_) else None
        return job if job is not None and caller.may_see(job.owner) else None

    def _current(self, session: Session, id_: str, attempt: int) -> Job | None:
        wanted = select(Job).where(Job.id == id_, Job.attempt == attempt, Job.state == "RUNNING")
        return session.scalars(wanted.with_for_update()).first()


def job_id(caller: Caller, key: str | None) -> str:
    """A number that no other job has, but for the one that the caller asked for by the same key."""
    if key is None:
        return secrets.token_hex(16)
    return hashlib.sha256(f"{caller.name}\0{key}".encode()).hexdigest()[:32]


def summary_of(record: dict[str, Any]) -> dict[str, Any]:
    """What lists tell of a record: the names of its first sources, how many there are, and the job it came from."""
    sources = record.get("sources") or []
    named = [s.get("name") or s.get("path") or s.get("url") or f"upload {s.get('upload')}" for s in sources[:3]]
    return {"sources": [name[:255] for name in named], "n_sources": len(sources), "parent": record.get("parent")}


def add_usage(used: float, seconds: float, now: float) -> float:
    """Add seconds, which end now, to the slot time that a user has used.

    The value is log2 of a sum in which a second weighs twice as much as one `USAGE_HALF_LIFE_SECONDS` earlier. Users
    compare by it at any time, and nothing has to be updated while time passes.
    """
    more = math.log2(seconds) + now / USAGE_HALF_LIFE_SECONDS
    low, high = sorted((used, more))
    return high + math.log2(1 + 2 ** (low - high))


def _charge(session: Session, owner: str, seconds: float) -> None:
    user = session.get_one(User, owner, with_for_update={"key_share": True})
    user.used = add_usage(user.used, seconds, time.time())


def _count(session: Session, wanted: Select[Any], most: int) -> int:
    """How many rows there are, up to some number."""
    return session.scalar(select(func.count()).select_from(wanted.limit(most).subquery())) or 0


def _queue(job: Job) -> None:
    job.state, job.heartbeat, job.cancel, job.progress = "PENDING", None, False, None
    job.queued = time.time()
