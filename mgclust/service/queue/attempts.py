"""The queue for runners: claims, heartbeats and ends of attempts, each in one transaction.

A claim creates a new attempt. A report (of a heartbeat or an end) names its attempt, and is discarded if the job has a
newer attempt. So a job ends once, even if an attempt was declared lost by mistake. An attempt is lost if its heartbeat
stays unchanged for a long time. Only time during which the checking runner ran counts. The times in the table, which
may come from different clocks, are only displayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from mgclust.engine.heartbeat import HeartbeatMonitor, RunningTimeClock
from mgclust.service.queue.fair_share import charge, next_job
from mgclust.service.queue.jobs.changes import finish, queue, queue_copy
from mgclust.service.queue.log import JobLog
from mgclust.service.queue.metrics import observe
from mgclust.service.queue.models import Job, User, reading, writing
from mgclust.service.queue.quotas import size_of_job
from mgclust.service.settings import Settings
from mgclust.service.states import ENDED

__all__ = ["Attempts"]

FREE_ATTEMPTS_FACTOR = 3  # up to this multiple of `attempts`, attempts that a runner's fault ended do not count
MIN_CHARGE_SECONDS = 1.0  # smallest usage that is charged for an attempt


class Attempts:
    """Attempts of jobs, for a runner.

    Parameters
    ----------
    engine : Engine
        From `open_database`.
    settings : Settings
    runner : str, optional
        Name of the runner.
    """

    def __init__(self, engine: Engine, settings: Settings, runner: str | None = None) -> None:
        self._engine, self._settings = engine, settings
        self._log = JobLog(settings.log)
        self._runner, self.clock = runner, RunningTimeClock()
        self._heartbeats: HeartbeatMonitor[str] = HeartbeatMonitor(self.clock)
        self.blocked: str | None = None  # id of the next job, if `claim` found that it cannot start yet
        self._turn: str | None = None  # id of a blocked job whose turn has come; only urgent jobs overtake it

    def claim(self, can_start: Callable[[Job], bool] = lambda job: True) -> Job | None:
        """Start a new attempt of the next job, and set the job RUNNING.

        Returns None if no job waits, or if the next job cannot start yet: later jobs do not overtake it.
        """
        with reading(self._engine) as session:  # an idle runner polls often, and must not delay writers
            if session.scalars(select(Job.id).where(Job.state == "PENDING").limit(1)).first() is None:
                return None
        with writing(
            self._engine, alone=True
        ) as session:  # one claim at a time, because runners count each other's claims
            job = next_job(session, self._settings.slots, self._turn)
            self.blocked = None
            if job is None:
                return None
            startable = can_start(job)
            if job.priority <= 0:
                self._turn = None if startable else job.id
            if not startable:
                self.blocked, job.progress = job.id, {"stage": "waiting for GPUs"}
                return None
            job.state, job.attempt, job.cancel = "RUNNING", job.attempt + 1, False
            job.heartbeat = job.claimed = time.time()
            job.runner = self._runner
            job.started = job.started or job.heartbeat
            charge(session, job.owner, MIN_CHARGE_SECONDS, self._settings.slots)
            waited = max(0.0, job.claimed - job.queued)
            observe(session, "wait", job.method, "RUNNING", waited)
            job.before = job.error  # shown in the log of the new attempt
            job.progress = job.error = job.fault = None
        self._log("attempt.started", job, waited=round(waited, 3))
        return job

    def heartbeat(self, id_: str, attempt: int, progress: dict[str, Any] | None) -> bool | None:
        """Record that an attempt runs.

        An attempt that was declared lost by mistake continues unless a newer attempt has begun. If a newer attempt has
        begun, the older attempt does not count.

        Returns
        -------
        bool or None
            Whether the job is to be cancelled; None if the job has a newer attempt.
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

    def succeed(
        self,
        id_: str,
        attempt: int,
        scores: dict[str, Any],
        facts: Mapping[str, Any] | None = None,
        warnings: Sequence[str] = (),
    ) -> bool:
        """End a job whose attempt has left a complete result; return False if the job has a newer attempt.

        Parameters
        ----------
        id_ : str
            Id of the job.
        attempt : int
            Number of the attempt.
        scores : dict
            Scores of the result.
        facts : dict, optional
            Facts for the log of jobs.
        warnings : sequence of str
            Warnings of the result.
        """
        files = size_of_job(self._settings, id_)
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is None:
                return False
            self._account(session, job, "SUCCEEDED")
            job.scores, job.warnings, job.progress = (
                scores,
                list(warnings),
                None,
            )  # the last progress is older than the end
            finish(job, "SUCCEEDED", None, None, files)
            queue_copy(job)
        self._log_attempt(job, facts)
        return True

    def fail(self, id_: str, attempt: int, error: str, fault: str, facts: Mapping[str, Any] | None = None) -> None:
        """End a job whose attempt has failed, or queue it again if the cluster was the cause."""
        files = size_of_job(self._settings, id_)
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is None:
                return
            self._apply_failure(session, job, error, fault, files)
        self._log_attempt(job, facts)

    def requeue(self, id_: str, attempt: int) -> None:
        """Queue a job again after a stopping runner has ended its attempt; the attempt does not count."""
        with writing(self._engine) as session:
            job = self._current(session, id_, attempt)
            if job is None:
                return
            if job.cancel:
                self._account(session, job, "CANCELLED")
                finish(job, "CANCELLED", None, None, None)
            else:
                job.begun_before += 1
                self._account(session, job, "PENDING")
                queue(job)
        self._log_attempt(job)

    def requeue_all(self, runners: Sequence[str]) -> None:
        """Queue the jobs of runners again after these runners hung and were ended with all their attempts.

        These attempts do not count, except for jobs with many attempts: such a job may be the reason why runners hang.
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

    def requeue_lost(self, after: float) -> list[str]:
        """Queue running jobs again if their heartbeat is unchanged for `after` seconds of `clock`; return their ids."""
        running = select(Job.id, Job.attempt, Job.heartbeat).where(Job.state == "RUNNING")
        with reading(self._engine) as session:
            marks = {id_: (attempt, heartbeat) for id_, attempt, heartbeat in session.execute(running)}
        silent = [id_ for id_, seconds in self._heartbeats.of(marks).items() if seconds > after]
        lost = []
        for id_ in silent:  # one transaction per job: two processes that lock several users could deadlock
            files = size_of_job(self._settings, id_)
            with writing(self._engine) as session:
                wanted = select(Job).where(Job.id == id_, Job.state == "RUNNING").with_for_update(skip_locked=True)
                job = session.scalars(wanted).first()
                if job is None or (job.attempt, job.heartbeat) != marks[id_]:
                    continue  # the job has a new heartbeat, or another runner has queued it
                error = (
                    f"attempt {job.attempt} was lost: its runner, or its machine, sent no heartbeat for {after:g} s."
                )
                self._apply_failure(session, job, error, "cluster", files)
            self._log_attempt(job)
            lost.append(id_)
        return lost

    def _current(self, session: Session, id_: str, attempt: int) -> Job | None:
        wanted = select(Job).where(Job.id == id_, Job.attempt == attempt, Job.state == "RUNNING")
        return session.scalars(wanted.with_for_update()).first()

    def _is_uncounted(self, attempt: int) -> bool:
        """Return whether an attempt does not count if a runner's fault ended it."""
        return attempt <= FREE_ATTEMPTS_FACTOR * self._settings.attempts

    def _apply_failure(self, session: Session, job: Job, error: str, fault: str, files: int) -> None:
        if job.cancel:
            self._account(session, job, "CANCELLED")
            finish(job, "CANCELLED", None, None, files)
        elif fault == "cluster" and job.attempt - job.begun_before < self._settings.attempts:
            self._account(session, job, "PENDING")
            queue(job)
            job.error, job.fault = error, fault
        else:
            self._account(session, job, "FAILED")
            finish(job, "FAILED", error, fault, files)

    def _account(self, session: Session, job: Job, state: str) -> None:
        """Add the time of an attempt to its user's usage and to the metrics, before the job changes to `state`."""
        seconds = max(0.0, time.time() - (job.claimed or job.created))
        if seconds > MIN_CHARGE_SECONDS:  # the claim has charged the first part
            charge(session, job.owner, seconds - MIN_CHARGE_SECONDS, self._settings.slots)
        user = session.get_one(User, job.owner, with_for_update={"key_share": True})
        user.attempts, user.seconds = user.attempts + 1, user.seconds + seconds
        user.gpu_seconds += seconds * job.gpus
        observe(session, "attempt", job.method, state, seconds)

    def _log_attempt(self, job: Job, facts: Mapping[str, Any] | None = None) -> None:
        """Log the end of an attempt, after the transaction."""
        seconds = max(0.0, time.time() - (job.claimed or job.created))
        self._log("attempt.ended", job, seconds=round(seconds, 3), **(facts or {}))
        if job.state in ENDED:
            self._log.job_ended(job)
