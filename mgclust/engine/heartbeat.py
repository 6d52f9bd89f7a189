"""Measure for how long heartbeats have not changed, counting only time during which the observer itself ran.

Clocks are adjusted, machines are suspended, processes and containers are stopped and continued. Therefore, two clocks
are never compared, and time during which the observer was stopped does not count.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

__all__ = ["HeartbeatMonitor", "RunningTimeClock"]

LONGEST_STEP_SECONDS = 2.0  # longest time between two readings that counts as time during which this process ran

Key = TypeVar("Key", bound=Hashable)


class RunningTimeClock:
    """A clock that stands still while this process is stopped. It has to be read about every second."""

    def __init__(self) -> None:
        self._last, self._ran = time.monotonic(), 0.0

    def __call__(self) -> float:
        """Return the seconds during which this process ran, as far as the readings show."""
        now = time.monotonic()
        self._ran += min(now - self._last, LONGEST_STEP_SECONDS)
        self._last = now
        return self._ran


class HeartbeatMonitor(Generic[Key]):
    """Monitor of the times for which heartbeats have not changed.

    Parameters
    ----------
    clock : callable
        Clock in seconds; see `RunningTimeClock`.
    """

    def __init__(self, clock: RunningTimeClock) -> None:
        self._clock = clock
        self._seen: dict[Key, tuple[Any, float]] = {}

    def of(self, marks: Mapping[Key, Any]) -> dict[Key, float]:
        """Return the seconds since each heartbeat was first seen with its present value; forget other heartbeats."""
        now = self._clock()
        self._seen = {
            key: seen if (seen := self._seen.get(key)) and seen[0] == mark else (mark, now)
            for key, mark in marks.items()
        }
        return {key: now - since for key, (_, since) in self._seen.items()}
