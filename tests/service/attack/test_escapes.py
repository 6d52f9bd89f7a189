"""What an attempt has started ends with it, in whatever sessions; what it has left keeps nothing waiting."""

from __future__ import annotations

import sys
import threading
import time

import psutil
import pytest
from test_answers import Served, served  # noqa: F401

from mgclust.service.confined.child_process import process_tree
from mgclust.service.confined.confine import become_subreaper
from mgclust.service.confined.fork_server import ForkServer
from mgclust.service.runner import runner
from support.service_process import has_ended

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans are adopted on Linux")

# It starts a process in a session of its own, whose parent ends at once, and which keeps all that it was given open.
DAEMON = """
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    taken = bytearray(64 << 20)
    open({0!r} + ".new", "w").write(str(os.getpid()))
    os.rename({0!r} + ".new", {0!r})
    time.sleep(600)
"""


class NoForkServer(ForkServer):
    """In place of a fork server: each attempt loads for itself."""

    pid = -1

    def __init__(self):
        super().__init__("mgclust.service.runner.attempt", adopt=True)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["say({'scores': {'n': 1}}); sys.exit()", "say(b'hello\\n')"])
def test_a_daemon_ends_with_its_attempt(served: Served, tmp_path, end):  # noqa: F811
    """Whether the attempt succeeds or is ended."""
    become_subreaper()
    served.runner._server = NoForkServer()
    served.runner._next_check = float("inf")  # no check before the daemon has said its number
    daemon = tmp_path / "daemon"
    wait = f"\nwhile not os.path.exists({str(daemon)!r}): time.sleep(0.01)\n"
    job = served.submit(DAEMON.format(str(daemon)) + wait + end)
    served.wait(daemon.exists)
    served.runner._next_check = 0
    served.wait(lambda: served.http.get(job).json()["state"] != "RUNNING")
    served.wait(lambda: not psutil.pid_exists(int(daemon.read_text())))


def ended(pid):
    return not psutil.pid_exists(pid) or has_ended(psutil.Process(pid))


@pytest.mark.slow
@pytest.mark.parametrize("when", ["as its job ends", "while its job runs"])
def test_a_daemon_is_killed(served: Served, tmp_path, when):  # noqa: F811
    """Before its job has ended, or, where the attempt does not own its orphans, at the next check."""
    become_subreaper()
    served.runner._server = NoForkServer()
    ends = when == "as its job ends"
    served.runner._next_check = float("inf")  # no check before the daemon has said its number
    daemon = tmp_path / "daemon"
    wait = f"\nwhile not os.path.exists({str(daemon)!r}): time.sleep(0.01)\n"
    job = served.submit(DAEMON.format(str(daemon)) + wait + ("say({'scores': {'n': 1}}); sys.exit()" if ends else ""))
    served.wait(daemon.exists)
    if ends:
        served.wait(lambda: served.http.get(job).json()["state"] != "RUNNING")
    else:
        served.runner._next_check = 0
    served.wait(lambda: ended(int(daemon.read_text())))
    assert served.http.get(job).json()["state"] == ("SUCCEEDED" if ends else "RUNNING")


def test_a_daemon_counts_while_its_attempt_runs(tmp_path):
    daemon = tmp_path / "daemon"
    begin = "from mgclust.service.confined.confine import become_subreaper; become_subreaper()\n"
    code = f"import os, time\n{begin}{DAEMON.format(str(daemon))}\ntime.sleep(600)"
    with psutil.Popen([sys.executable, "-c", code]) as attempt:
        while not daemon.exists():
            time.sleep(0.01)
        try:
            found = {each.pid: each.memory for each in process_tree(attempt.pid)}
            assert found[int(daemon.read_text())] > 64 << 20
        finally:
            for pid in (attempt.pid, int(daemon.read_text())):
                psutil.Process(pid).kill()


def test_nothing_waits_for_a_removal(served: Served, monkeypatch):  # noqa: F811
    """A cancelled job's checkpoint may hold very many files."""
    goes_on, began = threading.Event(), threading.Event()

    def endless(folder):
        began.set()
        goes_on.wait(150)

    monkeypatch.setattr(runner, "remove", endless)
    job = served.submit("time.sleep(600)")
    served.wait(lambda: served.runner._running)
    id_ = job.rpartition("/")[2]
    checkpoint = served.runner._settings.checkpoint_folder(id_)
    (checkpoint / "x").mkdir(parents=True)
    served.http.post(f"{job}/cancel")
    served.wait(lambda: served.http.get(job).json()["state"] == "CANCELLED")
    assert began.wait(60) and not checkpoint.exists()
    goes_on.set()
