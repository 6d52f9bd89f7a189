"""The supervisor, which starts a runner, reads its heartbeats, and replaces it if it ends or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

from mgclust.service.confined.child_process import HangWatch, kill_tree
from mgclust.service.settings import PREFIX, Settings

__all__ = ["supervise_runner"]

POLL_SECONDS = 0.2
RESTART_SECONDS = 1.0  # pause before a runner that has ended is replaced
STOP_GRACE_SECONDS = 75.0  # time for a runner to end by itself; its attempts have 30 s


def supervise_runner(settings: Settings, stopping: threading.Event, report: Callable[[str], None]) -> None:
    """Keep a runner running, and replace it if it ends or hangs, until `stopping` is set.

    Parameters
    ----------
    settings : Settings
        Settings of the runner, which are sent through a pipe.
    stopping : threading.Event
        If set, stops the runner and this function.
    report : callable
        Receives messages about replaced runners.
    """
    hung: list[str] = []
    failure = ""
    while not stopping.is_set():
        name = secrets.token_hex(8)
        # Ctrl-C reaches all processes of a terminal. The runner inherits the mask, so that Ctrl-C does not interrupt
        # its imports with a traceback.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            runner = subprocess.Popen(
                [sys.executable, "-P", "-m", "mgclust.service.runner.runner"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={name: value for name, value in os.environ.items() if not name.startswith(PREFIX)},
            )
        except OSError as error:  # there are too many processes, or too little memory
            if failure != (failure := f"no runner can be started: {error.strerror}; trying again"):
                report(failure)
            stopping.wait(RESTART_SECONDS)
            continue
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        failure = ""
        assert runner.stdin is not None and runner.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the runner has ended, which `poll` will report
            runner.stdin.write(
                json.dumps({"settings": settings.to_json(), "name": name, "hung": hung}).encode() + b"\n"
            )
            runner.stdin.flush()
        watch, heartbeats, problem = HangWatch(runner.pid, settings.hung_after), 0, None
        os.set_blocking(runner.stdout.fileno(), False)
        while runner.poll() is None and problem is None and not stopping.wait(POLL_SECONDS):
            heartbeats += _read_heartbeats(runner.stdout)
            problem = watch.hangs(heartbeats)
        if problem is not None:
            report(f"the runner {problem}; ending it and starting another")
            kill_tree(runner.pid)
            runner.wait()
            hung = [*hung, name][-20:]
        elif runner.poll() is None:
            _stop(runner)
        elif not stopping.wait(RESTART_SECONDS):
            report(f"the runner ended with code {runner.returncode}; starting another")
        runner.stdin.close()
        runner.stdout.close()


def _read_heartbeats(pipe: IO[bytes]) -> int:
    with contextlib.suppress(BlockingIOError):
        return len(os.read(pipe.fileno(), 1 << 16))
    return 0


def _stop(runner: subprocess.Popen[bytes]) -> None:
    """Let a runner stop by itself, or kill it if it takes too long; a suspended runner is continued."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        runner.send_signal(number)
    try:
        runner.wait(STOP_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        kill_tree(runner.pid)
        runner.wait()
