"""Liveness of processes, judged as in `mgclust.engine.silence`, and process trees."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import psutil

from mgclust.engine.silence import Awake, Silence

__all__ = ["Member", "Watch", "kill_tree", "process_tree"]

RUNNING_FACTOR = 4  # a silent process that is not stopped, but idle, has so many times the limit


class Watch:
    """Watches a process that should give signs of life.

    Parameters
    ----------
    pid : int
        Of a child of this process.
    after : float
        Seconds of silence after which a stopped process hangs. One that is not stopped hangs if it is silent and uses
        no CPU for four times as long: many computations hold Python's interpreter lock.
    """

    def __init__(self, pid: int, after: float) -> None:
        self._pid, self._after = pid, after
        clock = Awake()
        self._signs: Silence[str] = Silence(clock)
        self._work: Silence[str] = Silence(clock)

    def hangs(self, signs: int) -> str | None:
        """Describe how the process hangs, or return None; `signs` counts its signs of life so far."""
        silent = self._signs.of({"signs": signs})["signs"]
        if silent < self._after:
            self._work.of({})
            return None
        try:
            process = psutil.Process(self._pid)
            if process.status() == psutil.STATUS_STOPPED:
                return f"was stopped for {silent:.0f} s"
            idle = self._work.of({"cpu": sum(process.cpu_times()[:2])})["cpu"]
        except psutil.Error:
            return None  # it has ended, as its parent finds
        return f"gave no sign of life for {silent:.0f} s" if idle > (RUNNING_FACTOR - 1) * self._after else None


@dataclass(frozen=True)
class Member:
    """The state of a process."""

    pid: int
    stopped: bool
    memory: int  # private bytes: without pages of mapped files, which the system can reclaim


def process_tree(leader: int) -> list[Member]:
    """A process and all its descendants, from ``/proc``.

    An attempt is a subreaper: orphans among its descendants, also in sessions of their own, are included.
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
    """Kill a process and all its descendants, in any process groups, and wait for the end of the latter."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return
    for each in family:
        with contextlib.suppress(psutil.Error):
            each.kill()
    psutil.wait_procs(family[1:], wait)  # the caller waits for the process itself
