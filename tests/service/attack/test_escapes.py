"""What an attempt has started ends with it, in whatever sessions; what it has left keeps nothing waiting."""

from __future__ import annotations

import sys
import threading
import time

import psutil
import pytest
from test_answers import Served, served  # noqa: F401

from mgclust.service import runner
from mgclust.service.confine import become_subreaper
from mgclust.service.liveness import process_tree

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans are adopted on Linux")

# It starts a process in a session of its own, whose parent ends at once, and which keeps all that it was given open.
DAEMON = """
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    taken = bytearray(64 << 20)
    open({!r}, "w").write(str(os.getpid()))
    time.sleep(600)
"""


class NoForkServer:
    """In place of a fork server: each attempt loads for itself."""

    pid, closed = -1, False

    def is_loading(self):
        return False

    def has_failed(self):
        return False

    def fork(self, orders, answers):
        return None


def written(path):
    return path.exists() and path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["say({'scores': {'n': 1}}); sys.exit()", "say(b'hello\\n')"])
def test_a_daemon_ends_with_its_attempt(served: Served, tmp_path, end):  # noqa: F811
    """Whether the attempt succeeds or is ended."""
    become_subreaper()
    served.runner._server = NoForkServer()
    daemon = tmp_path / "daemon"
    wait = f"\nwhile not os.path.exists({str(daemon)!r}): time.sleep(0.01)\n"
    job = served.submit(DAEMON.format(str(daemon)) + wait + end)
    served.wait(lambda: written(daemon))
    served.wait(lambda: served.http.get(job).json()["state"] != "RUNNING")
    served.wait(lambda: not psutil.pid_exists(int(daemon.read_text())))


def ended(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


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
    served.wait(lambda: written(daemon))
    if ends:
        served.wait(lambda: served.http.get(job).json()["state"] != "RUNNING")
    else:
        served.runner._next_check = 0
    served.wait(lambda: ended(int(daemon.read_text())), 20)
    assert served.http.get(job).json()["state"] == ("SUCCEEDED" if ends else "RUNNING")


def test_a_daemon_counts_while_its_attempt_runs(tmp_path):
    daemon = tmp_path / "daemon"
    begin = "from mgclust.service.confine import become_subreaper; become_subreaper()\n"
    code = f"import os, time\n{begin}{DAEMON.format(str(daemon))}\ntime.sleep(600)"
    with psutil.Popen([sys.executable, "-c", code]) as attempt:
        while not written(daemon):
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
        goes_on.wait(60)

    monkeypatch.setattr(runner, "remove", endless)
    job = served.submit("time.sleep(600)")
    served.wait(lambda: served.runner._running)
    id_ = job.rpartition("/")[2]
    checkpoint = served.runner._settings.checkpoint_folder(id_)
    (checkpoint / "x").mkdir(parents=True)
    served.http.post(f"{job}/cancel")
    served.wait(lambda: served.http.get(job).json()["state"] == "CANCELLED")
    assert began.wait(10) and not checkpoint.exists()
    goes_on.set()
