"""An attempt from the runner's point of view: its job, its process, its messages, and its limits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mgclust.base.errors import InputError
from mgclust.engine.heartbeat import HeartbeatMonitor, RunningTimeClock
from mgclust.service.confined.child_messages import AttemptMessages
from mgclust.service.confined.child_process import ChildProcess, HangWatch, process_tree
from mgclust.service.queue.models import Job
from mgclust.service.settings import Settings

__all__ = ["RunningAttempt"]

PROCESS_CHECK_SECONDS = 0.5  # time between two measurements of the attempt's processes
REMEDY = "submit less work or, within the limits of the service, request a higher"


class RunningAttempt:
    """A running attempt.

    Parameters
    ----------
    job : Job
        The job.
    process : ChildProcess
        The process of the attempt.
    settings : Settings
        Settings of the service.
    devices : sequence of str
        The GPUs of the attempt.
    """

    def __init__(self, job: Job, process: ChildProcess, settings: Settings, devices: Sequence[str]) -> None:
        self.job, self.process, self.devices = job, process, devices
        self.progress: dict[str, Any] | None = None
        self.answer: dict[str, Any] | None = None
        self.violation: str | None = None  # how a message violated the protocol
        self.heartbeats = 0
        self.next_heartbeat = self._next_check = 0.0  # the claim has written the first heartbeat
        self.cancelled = False
        self.end_reason: tuple[str, str] | None = None  # reason to kill the attempt, and the kind of fault
        resources = job.request.get("resources") or {}
        self._seconds = resources.get("max_seconds") or settings.max_seconds
        self._memory = resources.get("memory") or settings.max_memory
        self._hung_after = settings.hung_after
        self._watch = HangWatch(process.pid, settings.hung_after)
        self._messages = AttemptMessages()
        self._clock = RunningTimeClock()
        self._stopped: HeartbeatMonitor[int] = HeartbeatMonitor(self._clock)

    def receive(self) -> None:
        """Read what the process has written since the last call, at most the capacity of a pipe."""
        if self.violation:
            return
        try:
            for message in self._messages.parse(self.process.exchange()):
                self.heartbeats += 1
                if "progress" in message:
                    self.progress = message["progress"]
                elif message:
                    self.answer = message
        except InputError as error:
            self.violation = str(error)

    def reason_to_kill(self) -> tuple[str, str] | None:
        """Return the reason to kill the attempt, and the kind of fault; None if it may continue."""
        ran = self._clock()
        if self.violation:
            return self.violation, "mgclust"
        if self._seconds and ran > self._seconds:
            return (
                f"the job ran for max_seconds={self._seconds:.15g}; {REMEDY} max_seconds, and retry the job.",
                "input",
            )
        if problem := self._watch.hangs(self.heartbeats):
            return f"the attempt's process {problem} and was ended.", "cluster"
        if time.monotonic() < self._next_check:
            return None
        self._next_check = time.monotonic() + PROCESS_CHECK_SECONDS
        family = process_tree(self.process.pid)
        stopped = self._stopped.of({each.pid: True for each in family if each.stopped})
        if stopped and (longest := max(stopped.values())) > self._hung_after:
            return (
                f"a process of the attempt was stopped for {longest:.0f} s, and all its processes were ended.",
                "cluster",
            )
        taken = sum(each.memory for each in family)
        if self._memory and taken > self._memory:
            return f"the job used {taken} bytes, more than memory={self._memory}; {REMEDY} memory.", "memory"
        return None
