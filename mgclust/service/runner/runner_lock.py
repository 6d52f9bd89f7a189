"""The lock of a data folder: one runner at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from mgclust.outside.json_text import parse_json
from mgclust.service.confined.child_process import HangWatch, kill_tree
from mgclust.service.settings import Settings

__all__ = ["runner_lock"]

POLL_SECONDS = 0.1
REPORT_SECONDS = 5.0  # a runner that ends is waited for in silence


@contextlib.contextmanager
def runner_lock(settings: Settings, sign: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of the data folder; first wait until the runner that has it releases it.

    The previous runner may still run, or wait until its attempts have ended. If it is stopped and its supervisor has
    ended, it would hold the lock forever, so it is killed.

    Parameters
    ----------
    settings : Settings
        Settings of the service.
    sign : callable
        Called while this process waits, to send a heartbeat.
    """
    with open(settings.data / "runner.lock", "a+") as lock:
        watch: tuple[int, HangWatch] | None = None
        report_at = time.monotonic() + REPORT_SECONDS
        while True:
            sign()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pid = _lock_holder(lock)
                if pid is None:
                    watch = None
                else:
                    watch = watch if watch and watch[0] == pid else (pid, HangWatch(pid, settings.hung_after))
                    if watch[1].hangs(0) and psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                        kill_tree(pid)
                if time.monotonic() > report_at:
                    report_at = math.inf
                    text = "another runner computes the jobs of this folder; this one starts when that one has ended"
                    print(f"{text}, and until then its settings, such as --slots, have no effect", file=sys.stderr)
                time.sleep(POLL_SECONDS)
        lock.truncate(0)
        lock.write(json.dumps(_process_identity()))
        lock.flush()
        yield


def _process_identity() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "since": psutil.Process().create_time()}


def _lock_holder(lock: Any) -> int | None:
    """Return the id of the process that holds the lock, if that process runs on this machine."""
    lock.seek(0)
    with contextlib.suppress(ValueError, KeyError, TypeError, psutil.Error):
        holder = parse_json(lock.read())
        if holder["host"] == socket.gethostname() and psutil.Process(holder["pid"]).create_time() == holder["since"]:
            return int(holder["pid"])
    return None
