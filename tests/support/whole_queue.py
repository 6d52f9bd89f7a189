"""The queue as users and a runner see it together, for tests of both."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, func, select

from mgclust.service.queue.attempts import Attempts
from mgclust.service.queue.jobs.changes import JobChanges
from mgclust.service.queue.jobs.lists import JobLists
from mgclust.service.queue.jobs.submission import JobSubmission
from mgclust.service.queue.models import Job, reading
from mgclust.service.settings import Settings
from mgclust.service.states import STATES

__all__ = ["WholeQueue"]


class WholeQueue:
    """Has the methods of submission, lists, changes and attempts."""

    def __init__(self, engine: Engine, settings: Settings, runner: str | None = None) -> None:
        self.engine, self.settings = engine, settings
        users = JobLists(engine), JobSubmission(engine, settings), JobChanges(engine, settings)
        self._parts = *users, Attempts(engine, settings, runner)

    def __getattr__(self, name: str) -> Any:
        return next(getattr(part, name) for part in self._parts if hasattr(part, name))

    def counts(self) -> dict[str, int]:
        """The number of jobs in each state."""
        with reading(self.engine) as session:
            found = dict(session.execute(select(Job.state, func.count()).group_by(Job.state)).all())
        return {state: found.get(state, 0) for state in STATES}
