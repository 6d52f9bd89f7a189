"""What `/healthz` tells beside the database: whether a runner lives."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from sqlalchemy import Engine, select
from starlette.concurrency import run_in_threadpool

from mgclust.engine.silence import Awake, Silence
from mgclust.service.models import OUTAGES, Sign, reading

__all__ = ["Health"]

LOOK = 1.0


class Health:
    """Looks at the runners' signs of life, once a second while the application runs.

    Parameters
    ----------
    engine : Engine
    after : float
        Seconds without a sign after which no runner is taken to live.
    """

    def __init__(self, engine: Engine, after: float) -> None:
        self._engine, self._after = engine, after
        self._silence: Silence[str] = Silence(Awake())
        self._age: float | None = None

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            with contextlib.suppress(*OUTAGES):  # which `/healthz` finds itself
                await run_in_threadpool(self.look)
            await asyncio.sleep(LOOK)

    def look(self) -> None:
        """Look once."""
        with reading(self._engine) as session:
            marks = {sign.runner: sign.count for sign in session.scalars(select(Sign))}
        self._age = min(self._silence.of(marks).values(), default=None)

    @property
    def runner(self) -> dict[str, Any]:
        """How many seconds ago the last sign was seen to be new, and what that means."""
        state = "none" if self._age is None else "ok" if self._age <= self._after else "silent"
        return {"state": state, "age": None if self._age is None else round(self._age, 1)}
