"""Semaphores that killed attempts leave in shared memory."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from mgclust.service.runner import semaphores
from mgclust.service.runner.semaphores import FOLDER, PATTERN, remove_semaphores

HOLDER = """
import multiprocessing, sys, time
from multiprocessing import resource_tracker
resource_tracker.register = lambda *given: None  # as if it had been killed with its process
lock = multiprocessing.get_context("spawn").Lock()
print(lock._semlock.name, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not FOLDER.is_dir(), reason="there is no shared memory in a folder")
def test_those_of_killed_processes_go(monkeypatch):
    before = time.time() - 1
    holders = [subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        dead, alive = (FOLDER / f"sem.{holder.stdout.readline().strip().lstrip('/')}" for holder in holders)
        assert dead in FOLDER.glob(PATTERN) and alive.exists()
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait()
        remove_semaphores(time.time() + 60)
        assert dead.exists()  # older than the attempt
        monkeypatch.setattr(semaphores, "PATTERN", dead.name)  # of this test alone
        remove_semaphores(before)
        assert not dead.exists()
        monkeypatch.setattr(semaphores, "PATTERN", alive.name)
        remove_semaphores(before)
        assert alive.exists()
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()
        for path in (dead, alive):
            path.unlink(missing_ok=True)
