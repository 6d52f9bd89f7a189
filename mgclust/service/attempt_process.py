"""The process of an attempt, as the runner sees it: start, order, answers, end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import psutil

from mgclust.errors import MgclustError
from mgclust.service.child_messages import read_answers
from mgclust.service.confine import environment
from mgclust.service.forkserver import ForkServer
from mgclust.service.liveness import kill_tree

__all__ = ["AttemptProcess"]

STOP_GRACE_SECONDS = 30.0  # for an attempt's orderly end
OUTPUT_GRACE_SECONDS = 5.0  # to read the rest of its output


class AttemptProcess:
    """A process of `mgclust.service.attempt`; it leads a session with all that it starts.

    Parameters
    ----------
    server : ForkServer or None
        By default the process loads for itself.
    """

    def __init__(self, server: ForkServer | None) -> None:
        self.progress: dict[str, Any] | None = None
        self.answer: dict[str, Any] | None = None
        self.violation: str | None = None  # of the protocol, by its answers
        self.signs = 0  # signs of life so far
        self._stop_requested: float | None = None
        self._closed = False
        self._code: int | None = None
        with contextlib.ExitStack() as of_child:
            stdin, orders = os.pipe()
            of_child.callback(os.close, stdin)
            self._orders = os.fdopen(orders, "w")
            answers, stdout = os.pipe()
            of_child.callback(os.close, stdout)
            self._answers = os.fdopen(answers, "rb")
            if server is not None and (pid := server.fork(stdin, stdout)):
                self._process = psutil.Process(pid)
            else:
                self._process = psutil.Popen(
                    [sys.executable, "-P", "-m", "mgclust.service.attempt"],
                    stdin=stdin,
                    stdout=stdout,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    env=environment(),
                )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its session."""
        return int(self._process.pid)

    def send(self, order: dict[str, Any]) -> None:
        """Send its order."""
        with contextlib.suppress(BrokenPipeError):  # it has died, as `ended` finds
            self._orders.write(json.dumps(order) + "\n")
            self._orders.flush()

    def ended(self) -> bool:
        """Return whether it has ended."""
        return self._wait(0)

    def drain(self) -> None:
        """Read the rest of its output, after the end of all its processes."""
        self._listener.join(OUTPUT_GRACE_SECONDS)

    @property
    def stopping(self) -> bool:
        """True if it was told to stop."""
        return self._stop_requested is not None

    def interrupt(self) -> None:
        """Tell it to stop."""
        if not self.stopping:
            self._signal(signal.SIGTERM, group=False)
        self.enforce_exit()

    def enforce_exit(self) -> None:
        """Kill it if it takes too long to stop."""
        now = time.monotonic()
        self._stop_requested = self._stop_requested or now
        if now - self._stop_requested > STOP_GRACE_SECONDS:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill it and all that it has started."""
        kill_tree(self.pid, 0.0)
        self._signal(signal.SIGKILL)

    def close_input(self) -> None:
        """End its input, by which it stops."""
        with contextlib.suppress(OSError):
            self._orders.close()

    def close(self, at_once: bool = False) -> None:
        """End its input, wait for its end, and kill what it has started."""
        if self._closed:
            return  # its pid may belong to another process by now
        self._closed = True
        self.close_input()
        if at_once:
            self._signal(signal.SIGKILL)
        self._wait(STOP_GRACE_SECONDS)
        self._signal(signal.SIGKILL)  # what it has started

    def exit_message(self) -> str:
        """The error message of a process that ended without an answer."""
        code = self._code
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"the attempt's process was ended by {name}; often the machine ran out of memory."
        return f"the attempt's process ended with code {code} and no answer; its log says more."

    def _listen(self) -> None:
        try:
            for message in read_answers(self._answers):
                self.signs += 1
                if "progress" in message:
                    self.progress = message["progress"]
                elif message:
                    self.answer = message
        except MgclustError as error:
            self.violation = str(error)

    def _signal(self, number: int, group: bool = True) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self.pid, number)
            elif not self._wait(0):
                os.kill(self.pid, number)

    def _wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it has ended."""
        try:
            self._code = self._process.wait(seconds)
        except psutil.TimeoutExpired:
            return False
        return True
