"""The report of `/healthz`: whether the database answers, and whether a runner works."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from sqlalchemy import Engine, select
from starlette.concurrency import run_in_threadpool

from mgclust import __version__
from mgclust.engine.heartbeat import HeartbeatMonitor, RunningTimeClock
from mgclust.service.queue.models import OUTAGES, RunnerSign, reading
from mgclust.service.web.perimeter.batches import Batched

__all__ = ["Health"]

POLL_SECONDS = 1.0


class Health:
    """Monitor that reads the heartbeats of runners once a second while the application runs.

    Parameters
    ----------
    engine : Engine
        Database, from `open_database`.
    after : float
        Seconds without a heartbeat after which the runner counts as silent.
    """

    def __init__(self, engine: Engine, after: float) -> None:
        self._engine, self._after = engine, after
        self._heartbeats: HeartbeatMonitor[str] = HeartbeatMonitor(RunningTimeClock())
        self._age: float | None = None
        # Batched, so that any number of requests costs one query at a time, in a thread that is always available.
        self._batched = Batched[None, dict[str, Any]](lambda requests: [self._report()] * len(requests))

    async def report(self) -> dict[str, Any]:
        """Return the state of the service and of its runner; raise an error if the database does not answer."""
        return await self._batched(None)

    def _report(self) -> dict[str, Any]:
        with reading(self._engine) as session:
            session.connection().exec_driver_sql("SELECT 1")
        runner = self.runner
        status = "ok" if runner["state"] == "ok" else "degraded"
        return {"status": status, "version": __version__, "runner": runner}

    async def watch(self) -> None:
        """Poll forever."""
        while True:
            with contextlib.suppress(*OUTAGES):  # `/healthz` itself reports them
                await run_in_threadpool(self.poll)
            await asyncio.sleep(POLL_SECONDS)

    def poll(self) -> None:
        """Read the heartbeats once."""
        with reading(self._engine) as session:
            marks = {sign.runner: sign.count for sign in session.scalars(select(RunnerSign))}
        self._age = min(self._heartbeats.of(marks).values(), default=None)

    @property
    def runner(self) -> dict[str, Any]:
        """State of the runner, and the age of its last heartbeat in seconds."""
        state = "none" if self._age is None else "ok" if self._age <= self._after else "silent"
        return {"state": state, "age": None if self._age is None else round(self._age, 1)}
