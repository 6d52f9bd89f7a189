"""Changes of jobs by users (names, cancellation and deletion), and functions that queue or finish a job or a copy."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from sqlalchemy import Engine, Text, cast, select
from sqlalchemy.orm import Session

from mgclust.service.queue import revocations
from mgclust.service.queue.access import Caller
from mgclust.service.queue.jobs.lists import JobFilter, JobLists, lock_job
from mgclust.service.queue.log import JobLog
from mgclust.service.queue.models import Job, Removal, search_text, writing
from mgclust.service.queue.quotas import row_size, size_of_job
from mgclust.service.queue.removal import InUse, remove_deleted, with_reserve
from mgclust.service.queue.webhooks import keep_messages
from mgclust.service.settings import Settings
from mgclust.service.states import ENDED

__all__ = ["JobChanges", "finish", "queue", "queue_copy"]


class JobChanges:
    """Changes of jobs by users, each in one transaction.

    Parameters
    ----------
    engine : Engine
        From `open_database`.
    settings : Settings
        Folders of jobs.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self._log = JobLog(settings.log)

    def rename(self, caller: Caller, id_: str, name: str | None, tags: Sequence[str] | None) -> Job | None:
        """Change the name of a job (if it is not None; "" removes the name) and its tags (if they are not None)."""
        with writing(self._engine) as session:
            job = lock_job(session, caller, id_)
            if job is not None:
                job.name = job.name if name is None else (name or None)
                job.tags = job.tags if tags is None else list(tags)
                job.search = search_text(job.id, job.name, job.tags, job.method, job.summary, job.sweep)
            return job

    def cancel(self, caller: Caller, id_: str) -> Job | None:
        """Cancel a job: at once if it waits, soon if it runs. A job that has ended stays unchanged."""
        known = JobLists(self._engine).summary(caller, id_)
        files = size_of_job(self._settings, id_) if known is not None and known.state == "PENDING" else None
        with writing(self._engine) as session:
            job = lock_job(session, caller, id_)
            if job is not None and job.state == "PENDING":
                finish(job, "CANCELLED", None, None, files)
            elif job is not None and job.state == "RUNNING":
                job.cancel = True
                return job
            else:
                return job
        self._log.job_ended(job)
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
            job = lock_job(session, caller, id_)
            if job is None:
                return None
            if job.state not in ENDED:
                raise InUse(f"job {id_} is {job.state}; cancel it, and delete it once it has ended.")
            _check_unneeded(session, [job])
            self._remove(session, [job])
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
            self._remove(session, jobs)
            return jobs

    def _remove(self, session: Session, jobs: Sequence[Job]) -> None:
        revocations.end_links(session, self._settings.data, [job.id for job in jobs])
        for job in jobs:
            keep_messages(session, job)
            session.delete(job)
            session.merge(Removal(path=f"jobs/{job.id}"))  # a deleted job with the same key may have left a record


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


def queue_copy(job: Job) -> None:
    """Queue the copy of a job's result to a store, if the request of the job names a place."""
    if to := job.request.get("results_to"):
        job.result_copy = {"state": "COPYING", "to": f"{to}/{job.id}", "failures": 0, "error": None}
        job.copy_due = time.time()


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
