"""A job that leaves many files: transactions, for which other writers wait, neither look at them nor remove them."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined.child_messages import Findings
from mgclust.service.queue import access, models
from mgclust.service.queue.access import Caller
from mgclust.service.queue.jobs.submission import NewJob
from mgclust.service.queue.models import Job, migrate, open_database, writing
from mgclust.service.queue.quotas import row_size
from mgclust.service.queue.removal import sweep
from mgclust.service.settings import Settings
from mgclust.service.web import recenter
from support.whole_queue import WholeQueue

ANN, FILES = Caller("ann", "user"), 20


@pytest.fixture(params=["in the job's folder", "elsewhere"])
def settings(request, tmp_path):
    settings = Settings(data=tmp_path / "data", cpu=True, attempts=1)
    (settings.data / "jobs").mkdir(parents=True)
    return settings if request.param != "elsewhere" else replace(settings, checkpoints=str(tmp_path / "checkpoints"))


@pytest.fixture
def jobs(settings):
    engine = open_database(settings.database)
    migrate(engine)
    access.add_user(engine, "ann", "user")
    jobs = WholeQueue(engine, settings)
    jobs.engine = engine
    return jobs


@pytest.fixture
def looks(jobs, monkeypatch):
    """Names of the calls that look at or remove a file, of those since the last assertion."""
    calls = []

    def watch(name):
        real = getattr(os, name)

        def call(*given, **named):
            assert not models._WRITERS[jobs.engine].locked(), f"{name} in a transaction"
            calls.append(name)
            return real(*given, **named)

        monkeypatch.setattr(os, name, call)

    for name in ("scandir", "unlink", "rmdir"):
        watch(name)
    return calls


def leave(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        (folder / str(number)).write_text("12345")


@pytest.fixture
def job(jobs, settings):
    """A job that runs, and has left files."""
    jobs.submit([NewJob("c" * 32, ANN, "density-peaks", {"sources": [], "parameters": {}}, 0)])
    job = jobs.claim()
    leave(settings.checkpoint_folder(job.id) / "1")
    return job


def size_of(jobs, job):
    found = jobs.get(ANN, job.id)
    return found.size - row_size(found.request, found.scores, found.warnings, found.error, found.progress)


ENDS = {
    "FAILED": lambda jobs, job: jobs.fail(job.id, 1, "x", "input"),
    "SUCCEEDED": lambda jobs, job: jobs.succeed(job.id, 1, {}),
    "lost": lambda jobs, job: jobs.requeue_lost(-1.0),
    "CANCELLED": lambda jobs, job: (jobs.requeue(job.id, 1), jobs.cancel(ANN, job.id)),
    "cancelled by its runner": lambda jobs, job: (jobs.cancel(ANN, job.id), jobs.requeue(job.id, 1)),
}


@pytest.mark.parametrize("end", ENDS)
def test_its_end_and_its_deletion(end, jobs, job, settings, looks):
    ENDS[end](jobs, job)
    if end == "cancelled by its runner":
        sweep(jobs.engine, settings)
    assert looks and size_of(jobs, job) == FILES * len("12345")
    looks.clear()
    jobs.delete(ANN, job.id)
    assert looks.count("unlink") >= FILES
    assert not settings.checkpoint_folder(job.id).exists() and not settings.job_folder(job.id).exists()


def test_its_deletion_after_some_days(jobs, job, settings, looks):
    jobs.fail(job.id, 1, "x", "input")
    with writing(jobs.engine) as session:
        session.get(Job, job.id).finished = time.time() - 10 * 86_400
    looks.clear()
    sweep(jobs.engine, replace(settings, keep_days=1.0))
    assert looks.count("unlink") >= FILES and jobs.get(ANN, job.id) is None


def test_a_choice_of_centres_after_one_that_was_killed(jobs, job, settings, looks):
    """What that one left is where the files of this one belong."""

    class Readers:
        def serve(self, order, check, writable):
            leave(writable[0] / "result")
            return Findings({}, [])

    jobs.succeed(job.id, 1, {})
    wanted = recenter.SaveRequest(key="x")
    id_ = recenter.job_id(ANN, f"{job.id} x")
    leave(settings.attempt_folder(id_, 1) / "left")
    parent, result = jobs.get(ANN, job.id), RootedFile(str(settings.attempt_folder(job.id, 1)), "result")
    saved = recenter.save_as_job(Readers(), jobs.engine, settings, jobs, ANN, parent, result, wanted)
    assert saved.id == id_ and (settings.attempt_folder(id_, 1) / "result" / "0").exists()
    log = settings.attempt_folder(id_, 1) / "log.txt"
    assert size_of(jobs, saved) == FILES * len("12345") + log.stat().st_size
    sweep(jobs.engine, settings)
    assert not list((settings.data / "jobs").glob("*.*"))
