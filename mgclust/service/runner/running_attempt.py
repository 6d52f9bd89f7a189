"""An attempt as the runner sees it: its job, its process, what the process tells, and the limits that it has."""

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

PROCESS_CHECK_SECONDS = 0.5  # between two measurements of the attempt's processes
REMEDY = "submit less work or, within what the service allows, ask for more"


class RunningAttempt:
    """An attempt that runs.

    Parameters
    ----------
    job : Job
    process : ChildProcess
    settings : Settings
    devices : sequence of str
        The GPUs that it has.
    """

    def __init__(self, job: Job, process: ChildProcess, settings: Settings, devices: Sequence[str]) -> None:
        self.job, self.process, self.devices = job, process, devices
        self.progress: dict[str, Any] | None = None
        self.answer: dict[str, Any] | None = None
        self.violation: str | None = None  # of the protocol, by its messages
        self.heartbeats = 0
        self.next_heartbeat = self._next_check = 0.0  # the first is that of its job in the database
        self.cancelled = False
        self.end_reason: tuple[str, str] | None = None  # why it was killed, and the fault
        resources = job.request.get("resources") or {}
        self._seconds = resources.get("max_seconds") or settings.max_seconds
        self._memory = resources.get("memory") or settings.max_memory
        self._hung_after = settings.hung_after
        self._watch = HangWatch(process.pid, settings.hung_after)
        self._messages = AttemptMessages()
        self._clock = RunningTimeClock()
        self._stopped: HeartbeatMonitor[int] = HeartbeatMonitor(self._clock)

    def receive(self) -> None:
        """Take what its process has written since the last call, at most what fits into a pipe."""
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
        """Reason why it has to be killed, and the fault; None if it may continue."""
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
            return f"a process of the attempt was stopped for {longest:.0f} s, and all of them were ended.", "cluster"
        taken = sum(each.memory for each in family)
        if self._memory and taken > self._memory:
            return f"the job took {taken} bytes, more than memory={self._memory}; {REMEDY} memory.", "memory"
        return None
