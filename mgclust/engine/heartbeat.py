"""Time for which marks have not changed, of the time during which the observer ran itself.

Clocks are set, machines are suspended, processes and containers are stopped and continued. Two clocks are therefore
never compared, and an observer that was stopped does not count that time.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

__all__ = ["HeartbeatMonitor", "RunningTimeClock"]

LONGEST_STEP_SECONDS = 2.0  # between two readings of the clock that count as time during which this process ran

Key = TypeVar("Key", bound=Hashable)


class RunningTimeClock:
    """A clock that stands still while this process is stopped; to be read every second or so."""

    def __init__(self) -> None:
        self._last, self._ran = time.monotonic(), 0.0

    def __call__(self) -> float:
        """Seconds during which this process ran, as far as readings tell."""
        now = time.monotonic()
        self._ran += min(now - self._last, LONGEST_STEP_SECONDS)
        self._last = now
        return self._ran


class HeartbeatMonitor(Generic[Key]):
    """Time for which marks have not changed.

    Parameters
    ----------
    clock : callable
        Seconds, see `RunningTimeClock`.
    """

    def __init__(self, clock: RunningTimeClock) -> None:
        self._clock = clock
        self._seen: dict[Key, tuple[Any, float]] = {}

    def of(self, marks: Mapping[Key, Any]) -> dict[Key, float]:
        """Seconds since each mark was first seen as it is; what is not named is forgotten."""
        now = self._clock()
        self._seen = {
            key: seen if (seen := self._seen.get(key)) and seen[0] == mark else (mark, now)
            for key, mark in marks.items()
        }
        return {key: now - since for key, (_, since) in self._seen.items()}
