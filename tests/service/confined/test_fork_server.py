"""Processes of attempts are copies of one that has loaded everything, and have nothing else in common."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from mgclust.results.result import load_result
from mgclust.service.confined import fork_server
from mgclust.service.confined.child_messages import AttemptMessages
from mgclust.service.confined.fork_server import ForkServer
from mgclust.service.runner.attempt import NICE
from mgclust.service.runner.runner import Runner
from mgclust.service.settings import Settings
from support.waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a fork server needs Linux"),
]


@pytest.fixture(scope="module", autouse=True)
def wait_limits():
    """A fork takes far less time than the fork server is given, but for a machine that does much else."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mgclust.service.confined.fork_server.ANSWER_TIMEOUT_SECONDS", 60.0)
        patched.setattr("mgclust.service.confined.fork_server.LOAD_TIMEOUT_SECONDS", 120.0)
        yield


@pytest.fixture(scope="module")
def server():
    server = begun()
    wait_for(server.is_ready)
    yield server
    server.close()


def begun():
    server = ForkServer("mgclust.service.runner.attempt", adopt=True)
    server.begin()
    return server


def answer_of(process):
    """The answer of an attempt that has ended."""
    (answer,) = (each for each in AttemptMessages().parse(process.exchange()) if "scores" in each)
    return answer


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
    processes = [server.start() for _ in range(2)]
    for process in processes:
        assert executable_at(process.pid) == executable_at(server.pid)
        found = psutil.Process(process.pid)
        assert found.ppid() == os.getpid()  # its end is the runner's to hear
        assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
        assert found.environ() == psutil.Process(server.pid).environ()
        assert found.cwd() == os.getcwd()
    for process in processes:
        wait_for(process.exchange)
    assert {psutil.Process(process.pid).nice() for process in processes} == {min(os.nice(0) + NICE, 19)}
    first, second = (opened(process.pid) for process in processes)
    assert first & second <= {"/dev/null"}
    assert not (first | second) & (opened(server.pid) - {"/dev/null"})
    assert all(name == "/dev/null" or name.startswith("pipe:") for name in first | second)
    assert len(first) == len(second) == 3
    cold = ForkServer("mgclust.service.runner.attempt", adopt=True).start()
    assert executable_at(cold.pid) != executable_at(server.pid)
    for process, name in zip([*processes, cold], ("first", "second", "cold"), strict=True):
        process.send(order_of(tmp_path, name))
    wait_for(lambda: all(process.ended() for process in [*processes, cold]))
    results = [load_result(tmp_path / name / "attempt-1" / "result") for name in ("first", "second", "cold")]
    answers = [answer_of(process) for process in (*processes, cold)]
    for process, answer, result in zip([*processes, cold], answers, results, strict=True):
        process.close()
        assert answer["scores"] == answers[2]["scores"]
        np.testing.assert_array_equal(result.labels, results[2].labels)
    assert len(psutil.Process(server.pid).threads()) == 1


def test_a_copy_ends_with_its_input_and_tells_how_it_ended(server):
    process = server.start()
    wait_for(process.exchange)
    process.close_input()
    wait_for(process.ended)
    assert b"scores" not in process.exchange()
    process.close()
    process = server.start()
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
    server = begun()
    try:
        wait_for(server.is_ready)
        made = set(tmp_path.glob("tmp/matplotlib-*"))
        assert made
        process = server.start()
        wait_for(process.exchange)
        process.close()
        assert set(tmp_path.glob("tmp/matplotlib-*")) == made
    finally:
        server.close()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_fork_server_that_is_stopped_or_killed_is_replaced(number):
    """The attempt that continues is not touched, and the next one loads for itself."""
    server = begun()
    try:
        wait_for(server.is_ready)
        before = server.pid
        goes_on = server.start()
        os.kill(before, number)
        wait_for(lambda: not server.is_alive())
        other = server.start()
        assert not psutil.pid_exists(before)
        assert executable_at(other.pid) != executable_at(goes_on.pid)
        assert server.pid != before and server.is_alive()
        goes_on.exchange()
        wait_for(goes_on.exchange)
        wait_for(other.exchange)
        for process in (goes_on, other):
            process.close()
    finally:
        server.close()


def test_a_fork_server_that_never_loads_keeps_no_job_waiting():
    server = begun()
    try:
        os.kill(server.pid, signal.SIGSTOP)
        wait_for(lambda: not server.is_alive())
        assert not server.is_loading()
        process = server.start()
        wait_for(process.exchange)
        process.close()
    finally:
        server.close()


def test_a_fork_server_that_loads_slowly_is_not_begun_again(monkeypatch):
    """If each job began a new fork server, no fork server would finish loading, and every job would wait."""
    monkeypatch.setattr("mgclust.service.confined.fork_server.LOAD_TIMEOUT_SECONDS", 0.0)
    server = begun()
    try:
        before = server.pid
        cold = server.start()
        assert not server.is_loading()  # the next job is not kept waiting either
        assert server.pid == before
        wait_for(server.is_ready)
        copy = server.start()
        assert server.pid == before
        assert executable_at(copy.pid) == executable_at(before) != executable_at(cold.pid)
        for process in (cold, copy):
            process.close()
    finally:
        server.close()


def test_a_fork_server_that_has_not_loaded_for_long_is_replaced(monkeypatch):
    monkeypatch.setattr("mgclust.service.confined.fork_server.MAX_LOAD_SECONDS", 0.0)
    server = begun()
    try:
        before = server.pid
        cold = server.start()
        assert server.pid != before and server.is_alive()
        cold.close()
    finally:
        server.close()


def test_what_attempts_leave_is_buried(server, tmp_path):
    """A process of an attempt's session whose parent has ended is a child of the runner, which notices its end."""
    process = server.start()
    runner = Runner(Settings(data=tmp_path))
    runner._server = server
    wait_for(process.exchange)  # it has a session of its own by now
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    # While its threads are still ending, it cannot be waited for: the runner looks every few seconds.
    wait_for(lambda: runner._kill_descendants() or not psutil.pid_exists(process.pid))
    assert psutil.Process(server.pid).is_running()


def test_a_stop_before_the_first_fork_prints_nothing(capfd, monkeypatch):
    server = begun()
    wait_for(lambda: server._readable(0))
    kill = server._process.kill
    monkeypatch.setattr(server._process, "kill", lambda: (time.sleep(1), kill()))
    server.close()
    assert capfd.readouterr().err == ""


def test_a_fork_server_whose_answer_is_not_read_ends_without_a_traceback():
    control, end = socket.socketpair()
    command = [sys.executable, "-m", "mgclust.service.runner.attempt", fork_server.OPTION, fork_server.OWN]
    with end, subprocess.Popen(command, stdin=end.fileno(), stderr=subprocess.PIPE, text=True) as process:
        assert select.select([control], [], [], 120)[0]
        control.close()
        assert process.stderr.read() == "" and process.wait(60) == 0
