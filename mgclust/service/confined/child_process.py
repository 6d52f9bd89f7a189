"""A confined child process as its parent sees it, and how the parent decides whether a process is alive.

The data that a child reads may have taken it over. So the parent never waits for it: bytes that the child does not read
or write now are exchanged later, and the child is killed together with all processes that it has started. The child
counts as alive only while its state changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import psutil

from mgclust.engine.heartbeat import HeartbeatMonitor, RunningTimeClock

__all__ = ["ChildProcess", "HangWatch", "Member", "kill_tree", "process_tree"]

STOP_GRACE_SECONDS = 30.0  # time for a child to end by itself
KILL_SECONDS = 5.0  # time for a killed child to end
PIPE_BYTES = 64 << 10  # capacity of a pipe: one exchange reads all output that an ended child has left
IDLE_FACTOR = 4  # factor of the time limit for a process that is idle, but not stopped


class ChildProcess:
    """A child process that leads a session with all processes that it starts.

    Parameters
    ----------
    process : psutil.Process
        A child of this process, or of its fork server.
    orders, answers : FileIO
        The parent's ends of the pipes to the child's standard input and output.
    """

    def __init__(self, process: psutil.Process, orders: FileIO, answers: FileIO) -> None:
        self._process, self._orders, self._answers = process, orders, answers
        self._unsent = b""
        self._stop_requested: float | None = None
        self._closed = False
        self._code: int | None = None
        self.silenced = False  # whether the child has closed its standard output
        for pipe in (orders, answers):
            os.set_blocking(pipe.fileno(), False)

    @property
    def pid(self) -> int:
        """Process id of the child, which is also the id of its session."""
        return int(self._process.pid)

    def send(self, order: dict[str, Any]) -> None:
        """Send an order to the child. Bytes that do not fit into the pipe now are sent by later exchanges."""
        self._unsent = json.dumps(order).encode() + b"\n"
        self._write()

    def exchange(self, seconds: float = 0.0) -> bytes:
        """Send the rest of the order, and return at most `PIPE_BYTES` of the child's output; wait up to `seconds`."""
        poll, found = select.poll(), b""
        if self._unsent:
            poll.register(self._orders, select.POLLOUT)
        if not self.silenced:
            poll.register(self._answers, select.POLLIN)
        for number, _ in poll.poll(1000 * seconds):
            if number == self._answers.fileno():
                found = os.read(number, PIPE_BYTES)
                self.silenced = not found
            else:
                self._write()
        return found

    def ended(self) -> bool:
        """Return whether the child has ended."""
        return self._wait(0)

    def interrupt(self) -> None:
        """Tell the child to stop."""
        if self._stop_requested is None:
            self._signal(signal.SIGTERM, group=False)
        self.enforce_exit()

    def enforce_exit(self) -> None:
        """Kill the child if it takes too long to stop."""
        now = time.monotonic()
        self._stop_requested = self._stop_requested or now
        if now - self._stop_requested > STOP_GRACE_SECONDS:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill the child and all processes that it has started."""
        kill_tree(self.pid, 0.0)
        self._signal(signal.SIGKILL)

    def close_input(self) -> None:
        """Close the child's input, which makes it stop."""
        self._unsent = b""
        self._orders.close()

    def close(self, at_once: bool = False) -> None:
        """Close the child's input, wait for its end, and kill its children; with `at_once`, kill the child first."""
        if self._closed:
            return  # its pid may belong to another process by now
        self._closed = True
        self.close_input()
        if at_once:
            self._signal(signal.SIGKILL)
            self._answers.close()
            self.silenced = True
        self._wait(KILL_SECONDS if at_once else STOP_GRACE_SECONDS)
        self._signal(signal.SIGKILL)  # processes that it has started

    def exit_message(self) -> str:
        """Return the error message for a child that ended without an answer."""
        code = self._code
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"the attempt's process was ended by {name}; the usual reason is that the machine ran out of memory."
        return f"the attempt's process ended with code {code} and without an answer; see the log of the attempt."

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._orders.fileno(), self._unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # the child has ended, which `ended` will report
            self._unsent = b""

    def _signal(self, number: int, group: bool = True) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self.pid, number)
            elif not self._wait(0):
                os.kill(self.pid, number)

    def _wait(self, seconds: float) -> bool:
        """Wait for the end of the child; return whether it has ended."""
        try:
            self._code = self._process.wait(seconds)
        except psutil.TimeoutExpired:
            return False
        return True


class HangWatch:
    """Monitor of a process that should send heartbeats; see `mgclust.engine.heartbeat`.

    Parameters
    ----------
    pid : int
        Process id of a child of this process.
    after : float
        Seconds without a heartbeat after which a stopped process counts as hanging. A process that is not stopped hangs
        if it sends no heartbeat and uses no CPU for four times as long. A missing heartbeat is not enough, because many
        computations hold Python's interpreter lock.
    """

    def __init__(self, pid: int, after: float) -> None:
        self._pid, self._after = pid, after
        clock = RunningTimeClock()
        self._heartbeats: HeartbeatMonitor[str] = HeartbeatMonitor(clock)
        self._work: HeartbeatMonitor[str] = HeartbeatMonitor(clock)

    def hangs(self, heartbeats: int) -> str | None:
        """Describe how the process hangs, or return None; `heartbeats` counts its heartbeats so far."""
        silent = self._heartbeats.of({"count": heartbeats})["count"]
        if silent < self._after:
            self._work.of({})
            return None
        try:
            process = psutil.Process(self._pid)
            if process.status() == psutil.STATUS_STOPPED:
                return f"was stopped for {silent:.0f} s"
            idle = self._work.of({"cpu": sum(process.cpu_times()[:2])})["cpu"]
        except psutil.Error:
            return None  # it has ended, which its parent will notice
        return f"sent no heartbeat for {silent:.0f} s" if idle > (IDLE_FACTOR - 1) * self._after else None


@dataclass(frozen=True)
class Member:
    """The state of a process."""

    pid: int
    stopped: bool
    memory: int  # private bytes, without pages of mapped files, which the system can reclaim


def process_tree(leader: int) -> list[Member]:
    """List a process and all its descendants, from ``/proc``.

    An attempt is a subreaper, so orphans among its descendants are included, even if they have their own sessions.
    """
    found = []
    with contextlib.suppress(psutil.Error, ValueError):
        process = psutil.Process(leader)
        for pid in (leader, *(each.pid for each in process.children(recursive=True))):
            with contextlib.suppress(OSError, ValueError):
                status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
                kib = sum(int(status.get(name, "0").split()[0]) for name in ("RssAnon", "RssShmem", "VmSwap"))
                found.append(Member(pid, status["State"].split()[0] == "T", kib << 10))
    return found


def kill_tree(pid: int, wait: float = 10.0) -> None:
    """Kill a process and all its descendants in any process group, and wait until the descendants have ended."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return
    for each in family:
        with contextlib.suppress(psutil.Error):
            each.kill()
    psutil.wait_procs(family[1:], wait)  # the caller waits for the process itself
