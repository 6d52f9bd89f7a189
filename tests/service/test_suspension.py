"""Parts of the service that are stopped, for a while or for good: nothing that lives is taken for dead, and no part
that hangs stays."""

from __future__ import annotations

import contextlib
import json
import time

import httpx
import numpy as np
import psutil
import pytest

from mgclust import AffinityPropagation
from mgclust.service.queue.models import Job, open_database, reading
from support.service_process import Running, command_line, has_ended
from support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
MESSAGES = {"max_iter": 12_000, "convergence_iter": 12_000}  # longer than a test needs the job, on a fast machine, too


HUNG_AFTER = 10  # seconds: what lives says so every second, also on a busy machine


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    path = tmp_path_factory.mktemp("points") / "points.npy"
    np.save(path, np.random.default_rng(1).normal(size=(600, 24)))
    return path


@pytest.fixture(scope="module")
def labels(points):
    return AffinityPropagation(client=None, device="cpu", **MESSAGES).fit(points).labels_


def resume(running):
    """Continue what a test has stopped."""
    for name in ("runner", "attempt"):
        for process in running.processes(f"mgclust.service.runner.{name}"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


@contextlib.contextmanager
def served(folder, hung_after):
    running = Running(folder, settings={"hung_after": hung_after})
    try:
        yield running
    finally:
        resume(running)
        running.stop()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with served(tmp_path_factory.mktemp("service"), HUNG_AFTER) as running:
        yield running


@pytest.fixture
def running(service):
    """The service of several tests, in which nothing is stopped at their beginning."""
    yield service
    resume(service)


def computing(running, job):
    """The process that computes a job; what it starts has its command line and its files until it has its own."""
    found = []

    def seen():
        found[:] = running.computing(job.id)
        return len(found) == 1

    wait_for(seen)
    return found[0]


def parent_of(process):
    """The number of its parent, and none of one that has ended."""
    with contextlib.suppress(psutil.Error):
        return process.ppid()
    return None


def begun(job):
    """It computes, and has left a checkpoint."""
    info = job.refresh().info
    assert info["state"] in ("PENDING", "RUNNING")
    return info["state"] == "RUNNING" and ((info["progress"] or {}).get("fraction") or 0) > 0.05


def check(job, labels, folder):
    ended = job.wait()
    assert ended.state == "SUCCEEDED"
    np.testing.assert_array_equal(ended.result(folder / "result").labels, labels)


def test_a_machine_that_is_suspended_three_times(tmp_path, points, labels):
    """Runner and attempt are stopped for longer than `lost_after`, which costs the job nothing."""
    with served(tmp_path, 30) as running:
        job = running.client().submit("affinity-propagation", points, report=False, **MESSAGES)
        wait_for(lambda: begun(job))
        for _ in range(3):
            stopped = [running.runner(), computing(running, job)]
            for process in stopped:
                process.suspend()
            time.sleep(6)
            for process in stopped:
                process.resume()
            time.sleep(0.5)
        check(job, labels, tmp_path)
        assert job.info["attempt"] == 1


def test_an_attempt_that_is_stopped(running, points, labels, tmp_path):
    job = running.client().submit("affinity-propagation", points, report=False, **MESSAGES)
    wait_for(lambda: begun(job))
    stopped = computing(running, job)
    stopped.suspend()
    wait_for(lambda: job.refresh().info["attempt"] == 2)
    check(job, labels, tmp_path)
    assert " the previous attempt ended: the attempt's process was stopped for " in job.log()
    assert " resume" in job.log()
    wait_for(lambda: has_ended(stopped))


def test_a_runner_that_is_stopped(running, points, labels, tmp_path):
    """Its keeper ends it with its attempts, and the next runner continues; this is not the job's failure."""
    job = running.client().submit("affinity-propagation", points, report=False, **MESSAGES)
    for attempt in range(1, 4):
        wait_for(lambda attempt=attempt: begun(job) and job.info["attempt"] == attempt)
        stopped = [running.runner(), computing(running, job)]
        for process in stopped:
            process.suspend()
        wait_for(lambda before=stopped: all(map(has_ended, before)))
    check(job, labels, tmp_path)
    assert job.info["attempt"] == 4
    engine = open_database(running.database)
    with reading(engine) as session:
        assert session.get(Job, job.id).begun_before == 3
    engine.dispose()


def test_a_stopped_runner_without_a_keeper_keeps_no_other_out(running):
    """The web process was killed while its runner was stopped, which holds the lock of the data folder."""
    lock = running.data / "runner.lock"
    wait_for(lambda: running.runner() is not None)
    stopped = running.runner()
    stopped.suspend()
    running.web.kill()
    running.web.wait()
    running.start()
    wait_for(lambda: has_ended(stopped))
    wait_for(lambda: json.loads(lock.read_text() or "{}").get("pid") != stopped.pid)


def test_a_worker_that_is_stopped(running, points, labels, tmp_path):
    job = running.client().submit("affinity-propagation", points, report=False, resources={"workers": 2}, **MESSAGES)
    wait_for(lambda: begun(job))
    attempt = computing(running, job)
    spawned = [each for each in attempt.children(recursive=True) if "spawn_main" in " ".join(command_line(each))]
    # What a worker starts has the worker's command line until it has its own.
    workers = [each for each in spawned if parent_of(each) not in {None, *(other.pid for other in spawned)}]
    workers[-1].suspend()
    wait_for(lambda: job.refresh().info["attempt"] == 2)
    check(job, labels, tmp_path)
    assert " the previous attempt ended: a process of the attempt was stopped for " in job.log()


def test_no_password_in_what_processes_inherit(tmp_path, points, monkeypatch):
    """Neither in an environment other than that in which the administrator put it, nor in a command line."""
    word = "not-for-everybody"
    # SQLite's URLs have no password: a word of the URL stands for it.
    monkeypatch.setenv("MGCLUST_SERVICE_DATABASE", f"sqlite:///{tmp_path}/{word}.db")
    with served(tmp_path, 30) as running:
        job = running.client().submit(
            "affinity-propagation", points, report=False, resources={"workers": 2}, **MESSAGES
        )
        wait_for(lambda: begun(job))
        family = psutil.Process(running.web.pid).children(recursive=True)
        modules = [each for process in family for each in command_line(process) if each.startswith("mgclust.service.")]
        expected = ["confined.reader_process", "runner.attempt", "runner.runner"]
        assert sorted(set(modules)) == [f"mgclust.service.{module}" for module in expected]
        assert len(family) > 4  # and workers
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):  # one that has ended meanwhile
                assert word not in "".join(process.cmdline() + list(process.environ().values()))
        assert word not in "".join(psutil.Process(running.web.pid).cmdline())
        job.cancel()
        assert httpx.get(f"{running.url}/healthz").status_code == 200
