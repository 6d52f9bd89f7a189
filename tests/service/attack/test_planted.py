"""What an attempt that its data took over leaves behind, for others to follow, to load or to execute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest

from mgclust.base.errors import InputError
from mgclust.service.confined.fork_server import ForkServer
from mgclust.service.confined.reader_pool import Readers
from mgclust.service.queue.log import JobLog
from mgclust.service.queue.models import Job, migrate, open_database
from mgclust.service.runner import attempt
from mgclust.service.runner.runner import Runner
from mgclust.service.settings import Settings
from support.confinement import needs_landlock
from support.waiting import wait_for

A, B = "a" * 32, "b" * 32
CONFINED = """
import json, sys
from mgclust.service.runner import attempt
from mgclust.service.confined.confine import confine
from mgclust.service.confined.inputs import descriptors
order, target = json.loads(sys.argv[1])
writable = attempt._writable(order)
confine(order["hidden"], [], descriptors(writable))
open(target, "w").write("A's")
"""
SECRETS = ("MGCLUST_TOKEN", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "SOME_API_KEY")


@pytest.fixture
def settings(tmp_path):
    settings = Settings(data=tmp_path / "data", cpu=True, log=str(tmp_path / "log" / "jobs.log"))
    (tmp_path / "log").mkdir()
    settings.job_folder(A).mkdir(parents=True)
    (settings.checkpoint_folder(B) / "1").mkdir(parents=True)
    (settings.checkpoint_folder(B) / "1" / "labels.npy").write_text("B's")
    migrate(open_database(settings.database))
    return settings


def job_of(id_, attempt, **more):
    return Job(id=id_, owner="ann", method="m", state="RUNNING", attempt=attempt, created=1.0, **more)


def ended_attempt(job, *, cancelled):
    process = SimpleNamespace(ended=lambda: True, close=lambda: None)
    return SimpleNamespace(
        job=job, process=process, receive=lambda: None, violation="it lied.", answer=None, cancelled=cancelled,
        end_reason=None,
    )  # fmt: skip


@needs_landlock
@pytest.mark.parametrize("what", ["checkpoint", "checkpoint/1", "checkpoint/2", "attempt-2/tmp"])
def test_a_link_leads_no_attempt_to_another_job(settings, what):
    own, target = settings.job_folder(A), settings.checkpoint_folder(B)
    target = target if what == "checkpoint" else target / "1"
    (own / what).parent.mkdir(exist_ok=True)
    (own / what).symlink_to(target)
    runner = Runner(settings)
    try:
        runner._inherit_checkpoint(job_of(A, 2))
    except OSError:
        assert what == "checkpoint"
    assert os.listdir(settings.checkpoint_folder(B)) == ["1"]
    order = {
        "folder": str(settings.attempt_folder(A, 2)), "checkpoint": str(settings.checkpoint_folder(A) / "2"),
        "hidden": settings.concealed,
    }  # fmt: skip
    file = settings.checkpoint_folder(B) / "1" / "labels.npy"
    ran = subprocess.run(
        [sys.executable, "-c", CONFINED, json.dumps([order, str(file)])], capture_output=True, text=True
    )
    assert (ran.returncode, "PermissionError" in ran.stderr, file.read_text()) == (1, True, "B's"), ran.stderr


@pytest.mark.parametrize("what", ["checkpoint", "checkpoint/2", "attempt-2/tmp", "attempt-2/tmp as a FIFO"])
def test_the_runner_removes_a_link_and_not_what_it_leads_to(settings, what):
    name, fifo, _ = what.partition(" as a FIFO")
    planted = settings.job_folder(A) / name
    planted.parent.mkdir(exist_ok=True)
    (settings.checkpoint_folder(B) / "2").mkdir()  # empty, as a checkpoint folder without any
    os.mkfifo(planted) if fifo else planted.symlink_to(settings.checkpoint_folder(B))
    runner = Runner(settings)
    runner._check(ended_attempt(job_of(A, 2), cancelled=True))
    wait_for(lambda: not list(settings.data.glob("jobs/*.deleted")))
    assert sorted(os.listdir(settings.checkpoint_folder(B))) == ["1", "2"]
    assert not os.path.lexists(planted)


def test_an_empty_folder_of_checkpoints_is_removed(settings):
    runner, job = Runner(settings), job_of(A, 1)
    runner._inherit_checkpoint(job)
    runner._check(ended_attempt(job, cancelled=False))
    assert not settings.checkpoint_folder(A).exists()


@pytest.mark.parametrize("what", ["link", "fifo"])
def test_the_log_of_jobs_is_a_regular_file(settings, what):
    (settings.data / "token").write_text("secret")
    os.symlink(settings.data / "token", settings.log) if what == "link" else os.mkfifo(settings.log)
    writes = threading.Thread(target=JobLog(settings.log), args=("job.ended", job_of(A, 1)), daemon=True)
    writes.start()
    writes.join(60)
    assert not writes.is_alive() and (settings.data / "token").read_text() == "secret"


def test_logs_are_hidden_from_attempts(settings, tmp_path):
    """The log of jobs and the audit log, with earlier files of theirs."""
    settings = Settings(data=settings.data, log=settings.log, audit=str(tmp_path / "log" / "audit.log"))
    JobLog(settings.log)("job.ended", job_of(A, 1))
    (tmp_path / "log" / "audit.log.1").touch()
    wanted = {settings.log, settings.audit, f"{settings.audit}.1"}
    assert wanted <= set(settings.concealed)


def test_a_database_elsewhere_is_hidden_from_attempts(tmp_path):
    """Whatever the driver and the escapes of its URL."""
    url = f"sqlite+pysqlite:///{tmp_path}/my%20jobs.db"
    file = open_database(url).url.database
    assert {file, f"{file}-wal"} <= set(Settings(data=tmp_path / "data", database=url).concealed)
    with pytest.raises(InputError, match="should name the file directly"):
        open_database(f"sqlite:///file:{tmp_path}/jobs.db?uri=true")


@pytest.fixture(params=["fork server of attempts", "attempt", "fork server of readers"])
def child(request, tmp_path):
    """A function that starts a child process, and gives its pid."""
    ends = []

    def start():
        if request.param == "attempt":
            process = ForkServer("mgclust.service.runner.attempt", adopt=True).start()
            ends.append(lambda: process.close(at_once=True))
            while not process.exchange():
                assert not process.ended()
                time.sleep(0.02)
            return process.pid
        if request.param == "fork server of attempts":
            server = ForkServer("mgclust.service.runner.attempt", adopt=True)
        else:
            server = Readers(Settings(data=tmp_path))._server
        server.begin()
        ends.append(server.close)
        while not server.is_ready():
            assert server.is_alive()
            time.sleep(0.02)
        return server.pid

    yield start
    for end in ends:
        end()


@pytest.mark.slow
def test_no_code_comes_from_the_current_folder(child, monkeypatch, tmp_path):
    """Where a service was started, users may write, for example the first root."""
    for name in ("mgclust", "numpy", "psutil"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\nimport nothing")
    monkeypatch.chdir(tmp_path)
    assert child() and not (tmp_path / "executed").exists()


@pytest.mark.slow
def test_no_secret_of_the_environment_reaches_a_child(child, monkeypatch):
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = psutil.Process(child()).environ()
    assert not set(SECRETS) & set(found)
    assert {"PATH", "OMP_NUM_THREADS"} <= set(found)


def test_a_descriptor_is_held_until_the_rules_are_made(monkeypatch, settings):
    """A number that is free again could name any other file by then."""
    held = []
    monkeypatch.setattr(attempt, "confine", lambda _, __, writable, **___: held.extend(map(os.fstat, writable)))
    monkeypatch.setattr(attempt, "_start_threads", lambda answers: 1 / 0)
    order = {
        "folder": str(settings.attempt_folder(A, 1)), "checkpoint": str(settings.checkpoint_folder(B) / "1"),
        "hidden": [], "files": {}, "request": {"method": "canopy"}, "answers": 0,
        "place": {},
    }  # fmt: skip
    monkeypatch.setattr("tempfile.tempdir", None)  # all of these come back
    for name in ("TMPDIR", "DASK_TEMPORARY_DIRECTORY"):
        monkeypatch.setenv(name, "")
    with pytest.raises(ZeroDivisionError):
        attempt._compute(order, settings.attempt_folder(A, 1), None)
    assert len({status.st_ino for status in held}) == 3


@pytest.mark.parametrize(
    ("place", "several"),
    [({"workers": 1}, False), ({"gpus": 1}, False), ({"gpus": 2}, True), ({"gpus": 2, "scheduler": "tls://a"}, False)],
)
def test_only_an_attempt_that_starts_workers_on_gpus_may_write_to_proc(place, several, monkeypatch, settings):
    class Confined(Exception):
        pass

    def confine(*_, cuda_processes):
        raise Confined(cuda_processes)

    monkeypatch.setattr(attempt, "confine", confine)
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in ("TMPDIR", "DASK_TEMPORARY_DIRECTORY"):
        monkeypatch.setenv(name, "")
    order = {
        "folder": str(settings.attempt_folder(A, 1)), "checkpoint": str(settings.checkpoint_folder(B) / "1"),
        "hidden": [], "files": {}, "request": {"method": "canopy"}, "place": place, "devices": None,
    }  # fmt: skip
    with pytest.raises(Confined, match=str(several)):
        attempt._compute(order, settings.attempt_folder(A, 1), None)
