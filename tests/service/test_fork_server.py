"""Processes of attempts are copies of one that has loaded everything, and have nothing else in common."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import psutil
import pytest

from mgclust.result import load_result
from mgclust.service.attempt import NICE
from mgclust.service.attempt_process import AttemptProcess
from mgclust.service.forkserver import ForkServer
from mgclust.service.models import migrate, open_database
from mgclust.service.runner import Runner
from mgclust.service.settings import Settings
from support.waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a fork server needs Linux"),
]


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A fork takes far less time than the fork server is given, but for a machine that does much else."""
    monkeypatch.setattr("mgclust.service.forkserver.ANSWER_TIMEOUT_SECONDS", 60.0)
    monkeypatch.setattr("mgclust.service.forkserver.LOAD_TIMEOUT_SECONDS", 120.0)


@pytest.fixture
def server():
    server = ForkServer()
    wait_for(server.is_ready)
    yield server
    server.close()


def order_of(folder, name):
    own = folder / name
    (own / "checkpoint").mkdir(parents=True)
    np.save(own / "x.npy", np.random.default_rng(0).normal(size=(3000, 3)))
    return {
        "folder": str(own / "attempt-1"), "max_rows": 0, "place": {"cpu": True},
        "hidden": [str(folder)], "files": {"0": {"root": str(own), "name": "x.npy", "quotable": True}},
        "request": {
            "method": "density-peaks", "parameters": {"n_clusters": 3}, "report": True,
            "sources": [{"path": "x.npy"}],
        },
        "checkpoint": str(own / "checkpoint"), "checkpoint_seconds": 60.0,
    }  # fmt: skip


def executable_at(pid):
    """Where the program lies in memory, which is random for each one that is started."""
    with open(f"/proc/{pid}/maps") as maps:
        return next(line for line in maps if "[stack]" in line).split("-")[1].split()[0]


def opened(pid):
    return {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}


def test_attempts_are_copies_that_share_nothing(server, tmp_path, monkeypatch):
    assert len(psutil.Process(server.pid).threads()) == 1
    monkeypatch.setenv("MGCLUST_TEST_LATER", "is not the fork server's")
    processes = [AttemptProcess(server) for _ in range(2)]
    for process in processes:
        assert executable_at(process.pid) == executable_at(server.pid)
        found = psutil.Process(process.pid)
        assert found.ppid() == os.getpid()  # its end is the runner's to hear
        assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
        assert found.environ() == psutil.Process(server.pid).environ()
        assert found.cwd() == os.getcwd()
    wait_for(lambda: all(process.signs for process in processes))
    assert {psutil.Process(process.pid).nice() for process in processes} == {min(os.nice(0) + NICE, 19)}
    first, second = (opened(process.pid) for process in processes)
    assert first & second <= {"/dev/null"}
    assert not (first | second) & (opened(server.pid) - {"/dev/null"})
    assert all(name == "/dev/null" or name.startswith("pipe:") for name in first | second)
    assert len(first) == len(second) == 3
    cold = AttemptProcess(None)
    assert executable_at(cold.pid) != executable_at(server.pid)
    for process, name in zip([*processes, cold], ("first", "second", "cold"), strict=True):
        process.send(order_of(tmp_path, name))
    wait_for(lambda: all(process.ended() for process in [*processes, cold]))
    results = [load_result(tmp_path / name / "attempt-1" / "result") for name in ("first", "second", "cold")]
    for process, result in zip([*processes, cold], results, strict=True):
        process.close()
        assert process.answer["scores"] == cold.answer["scores"]
        np.testing.assert_array_equal(result.labels, results[2].labels)
    assert len(psutil.Process(server.pid).threads()) == 1


def test_a_copy_ends_with_its_input_and_tells_how_it_ended(server):
    process = AttemptProcess(server)
    wait_for(lambda: process.signs)
    process.close_input()
    wait_for(process.ended)
    assert process.answer is None
    process.close()
    process = AttemptProcess(server)
    os.kill(process.pid, signal.SIGSEGV)
    wait_for(process.ended)
    assert "was ended by SIGSEGV" in process.exit_message()
    process.close()


def test_a_copy_leaves_what_the_fork_server_needs(tmp_path, monkeypatch):
    """Such as the temporary folder of matplotlib, where home cannot be written, which is removed at the end."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    for name in ("MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    server = ForkServer()
    try:
        wait_for(server.is_ready)
        made = set(tmp_path.glob("tmp/matplotlib-*"))
        assert made
        process = AttemptProcess(server)
        wait_for(lambda: process.signs)
        process.close()
        assert set(tmp_path.glob("tmp/matplotlib-*")) == made
    finally:
        server.close()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_fork_server_that_is_stopped_or_killed_is_replaced(number, tmp_path):
    """The attempt that continues is not touched, and the next one loads for itself."""
    runner = Runner(Settings(data=tmp_path, database=f"sqlite:///{tmp_path / 'service.db'}"))
    runner._server = before = ForkServer()
    try:
        wait_for(before.is_ready)
        goes_on = runner._new_process()
        os.kill(before.pid, number)
        wait_for(lambda: not before.is_alive())
        other = runner._new_process()
        assert not psutil.pid_exists(before.pid)
        assert executable_at(other.pid) != executable_at(goes_on.pid)
        assert runner._server is not before and runner._server.is_alive()
        signs = goes_on.signs
        wait_for(lambda: goes_on.signs > signs + 1 and other.signs)
        for process in (goes_on, other):
            process.close()
    finally:
        runner._server.close()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_fork_server_is_replaced_while_no_job_comes(number, tmp_path, monkeypatch):
    """So that the next job need not load for itself."""
    monkeypatch.setattr("mgclust.service.runner.HEARTBEAT_SECONDS", 0.0)
    settings = Settings(data=tmp_path, database=f"sqlite:///{tmp_path / 'service.db'}")
    migrate(open_database(settings.database))
    runner = Runner(settings)
    runner._server = before = ForkServer()
    try:
        wait_for(before.is_ready)
        runner.step()
        assert runner._server is before
        os.kill(before.pid, number)
        wait_for(lambda: runner.step() or runner._server is not before)
        assert not psutil.pid_exists(before.pid)
        runner._server.close()
        runner._server = another = ForkServer()
        os.kill(another.pid, number)  # at once, before it could have loaded
        wait_for(lambda: not another.is_alive())
        runner.step()
        assert runner._server is another  # it has not had its time to load
    finally:
        runner._server.close()


def test_what_attempts_leave_is_buried(server, tmp_path):
    """A process of an attempt's session whose parent has ended is a child of the runner, which notices its end."""
    process = AttemptProcess(server)
    runner = Runner(Settings(data=tmp_path))
    runner._server = server
    wait_for(lambda: process.signs)  # it has a session of its own by now
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    # While its threads are still ending, it cannot be waited for: the runner looks every few seconds.
    wait_for(lambda: runner._kill_descendants() or not psutil.pid_exists(process.pid))
    assert psutil.Process(server.pid).is_running()
