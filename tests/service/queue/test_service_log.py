"""The log of attempts and jobs, as lines of JSON."""

from __future__ import annotations

import json
import os

import pytest

from mgclust.service.queue import access
from mgclust.service.queue.access import Caller
from mgclust.service.queue.jobs.submission import NewJob, job_id
from mgclust.service.queue.models import migrate, open_database
from mgclust.service.settings import Settings
from support.whole_queue import WholeQueue

ANN = Caller("ann", "user")


@pytest.fixture(params=["file", "stderr"])
def events(request, tmp_path, capfd):
    """What was said until now, each line read as JSON."""
    said = []

    def read():
        text = (tmp_path / "log").read_text() if request.param == "file" else capfd.readouterr().err
        if request.param == "file":
            (tmp_path / "log").unlink()
        said[:] = [json.loads(line) for line in text.splitlines()]
        return said

    read.path = str(tmp_path / "log") if request.param == "file" else ""
    return read


@pytest.fixture
def jobs(events, tmp_path):
    settings = Settings(data=tmp_path, cpu=True, attempts=2, log=events.path)
    engine = open_database(settings.database)
    migrate(engine)
    access.add_user(engine, "ann", "user")
    yield WholeQueue(engine, settings)
    engine.dispose()


def submit(jobs, method="density-peaks"):
    return jobs.submit([NewJob(job_id(ANN, None), ANN, method, {"sources": []}, 0)])[0]


def test_each_attempt_and_each_end(jobs, events):
    job = submit(jobs)
    claimed = jobs.claim()
    jobs.fail(job.id, claimed.attempt, "a worker died.", "cluster", {"peak_bytes": 7})
    claimed = jobs.claim()
    jobs.succeed(job.id, claimed.attempt, {"n_clusters": 3}, {"shape": [40, 3], "peak_bytes": None})
    assert not jobs.succeed(job.id, 1, {})  # of an attempt that is not heard, nothing is told
    first, lost, again, ended, end = events()
    own = {"job": job.id, "owner": "ann", "method": "density-peaks"}
    assert all(each.items() >= own.items() for each in (first, lost, again, ended, end))
    told = [(each["event"], each["attempt"], each["state"]) for each in (first, lost, again, ended, end)]
    assert told == [
        ("attempt.started", 1, "RUNNING"), ("attempt.ended", 1, "PENDING"), ("attempt.started", 2, "RUNNING"),
        ("attempt.ended", 2, "SUCCEEDED"), ("job.ended", 2, "SUCCEEDED"),
    ]  # fmt: skip
    assert first["waited"] >= 0 and ended["seconds"] >= 0 and end["seconds"] >= ended["seconds"]
    assert (lost["fault"], lost["error"], lost["peak_bytes"]) == ("cluster", "a worker died.", 7)
    assert ended["shape"] == [40, 3] and "peak_bytes" not in ended and "error" not in ended
    assert first["time"].endswith("Z")


def test_an_attempt_has_no_other_attempts_error(jobs, events):
    """Neither while it runs, nor when it is given back."""
    job, hung = submit(jobs), WholeQueue(jobs.engine, jobs.settings, "hung")
    jobs.fail(job.id, hung.claim().attempt, "a worker died.", "cluster")
    assert (jobs.get(ANN, job.id).error, jobs.get(ANN, job.id).fault) == ("a worker died.", "cluster")
    hung.claim()
    assert (jobs.get(ANN, job.id).error, jobs.get(ANN, job.id).fault) == (None, None)
    jobs.requeue_all(["hung"])
    job = jobs.get(ANN, job.id)
    assert (job.state, job.error, job.fault) == ("PENDING", None, None)
    _, lost, again, ended = events()
    assert (lost["attempt"], lost["error"]) == (1, "a worker died.")
    assert (ended["attempt"], ended["state"]) == (2, "PENDING")
    assert not {"error", "fault"} & (set(again) | set(ended))


def test_ends_without_an_attempt(jobs, events):
    job = submit(jobs)
    jobs.cancel(ANN, job.id)
    jobs.cancel(ANN, job.id)  # once more changes nothing
    (end,) = events()
    assert (end["event"], end["state"], end["attempt"]) == ("job.ended", "CANCELLED", 0)


def test_a_line_whatever_is_said(jobs, events):
    text = 'a\n{"event": "job.ended"}\r\x1b[2J\u2028\x00"\\' + "x" * 10_000
    job = submit(jobs)
    jobs.fail(job.id, jobs.claim().attempt, text, "input")
    _, ended, end = events()
    assert ended["error"] == end["error"] == text[:2000]


def test_a_log_that_cannot_be_written_stops_nothing(jobs, events, tmp_path):
    if events.path:
        os.mkdir(events.path)
    job = submit(jobs)
    assert jobs.claim().id == job.id
