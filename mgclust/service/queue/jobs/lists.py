"""Jobs that a caller may see: one job, the latest jobs, searches, other orders, and the jobs of a sweep."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, Row, Select, Text, case, cast, false, func, select, tuple_
from sqlalchemy.orm import Session

from mgclust.service.queue.access import ID_PATTERN, Caller
from mgclust.service.queue.models import Job, reading

__all__ = ["JobFilter", "JobLists", "lock_job"]

MAX_IDS = 8  # ids that a prefix may find
MAX_PAGE_BYTES = 1 << 20  # size of a page of a list
MAX_RANKED = 1000  # newest jobs among which a list in another order is made
JOBS_PER_QUERY = 100
MAX_FIELD_BYTES = 4096  # size of scores, warnings, progress or an error in a list


@dataclass(frozen=True)
class JobFilter:
    """Jobs to list: jobs for which every condition holds that is given.

    Parameters
    ----------
    state, method, tag, sweep, owner : str, optional
        Values that the jobs must have. Only administrators see jobs of other owners.
    words : sequence of str
        Texts that must occur in a job's name, tags, id, method, files or parameters, in any order and case.
    """

    state: str | None = None
    words: Sequence[str] = ()
    method: str | None = None
    tag: str | None = None
    sweep: str | None = None
    owner: str | None = None

    def apply(self, caller: Caller, wanted: Select[Any]) -> Select[Any]:
        """Add the conditions to a query, and the condition that the caller may see the jobs."""
        lines = (("#", self.tag), ("method=", self.method))
        texts = [*self.words, *(f"\n{start}{value}\n" for start, value in lines if value)]
        owner = self.owner if caller.is_admin else caller.name
        # An expression instead of a column keeps SQLite from an index that is worse than the index of the sweep or the
        # texts: it would read each row of the owner or the state.
        narrow = self.sweep is not None
        if owner is not None:
            wanted = wanted.where((Job.owner + "" if narrow else Job.owner) == owner)
        if not caller.is_admin and self.owner not in (None, caller.name):
            wanted = wanted.where(false())
        if self.sweep is not None:
            wanted = wanted.where(Job.sweep == self.sweep)
        for text in texts:
            wanted = wanted.where(Job.search.contains(text.lower(), autoescape=True))
        if self.state is not None:
            wanted = wanted.where((Job.state + "" if texts or narrow else Job.state) == self.state)
        return wanted


# Columns of lists: all except the request and other long values.
_SUMMARY_COLUMNS = (
    Job.id, Job.owner, Job.method, Job.state, Job.priority, Job.attempt, Job.created, Job.started, Job.finished,
    Job.fault, Job.size, Job.summary, Job.name, Job.tags, Job.sweep, Job.result_copy,
    case((func.length(cast(Job.progress, Text)) <= MAX_FIELD_BYTES, Job.progress)).label("progress"),
    case((func.length(cast(Job.scores, Text)) <= MAX_FIELD_BYTES, Job.scores)).label("scores"),
    case((func.length(cast(Job.warnings, Text)) <= MAX_FIELD_BYTES, Job.warnings)).label("warnings"),
    func.substr(Job.error, 1, MAX_FIELD_BYTES).label("error"),
)  # fmt: skip


class JobLists:
    """The jobs of a service, as callers see them.

    Parameters
    ----------
    engine : Engine
        From `open_database`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, caller: Caller, id_: str) -> Job | None:
        """Return a job, if the caller may see it."""
        if not ID_PATTERN.fullmatch(id_):
            return None
        with reading(self._engine) as session:
            job = session.get(Job, id_)
            return job if job is not None and caller.may_see(job.owner) else None

    def ids(self, caller: Caller, prefix: str) -> Sequence[str]:
        """Return a few ids that begin with a prefix, of jobs that the caller may see."""
        return self._ids(caller, prefix, Job.id)

    def sweep_ids(self, caller: Caller, prefix: str) -> Sequence[str]:
        """Return a few ids that begin with a prefix, of sweeps that the caller may see."""
        return self._ids(caller, prefix, Job.sweep)

    def _ids(self, caller: Caller, prefix: str, column: Any) -> Sequence[str]:
        wanted = select(column).distinct().where(column >= prefix, column < f"{prefix}g")  # ids are hexadecimal
        if not caller.is_admin:
            wanted = wanted.where(Job.owner == caller.name)
        with reading(self._engine) as session:
            return session.scalars(wanted.order_by(column).limit(MAX_IDS)).all()

    def summary(self, caller: Caller, id_: str) -> Row[Any] | None:
        """Return the summary of a job, if the caller may see it."""
        if not ID_PATTERN.fullmatch(id_):
            return None
        with reading(self._engine) as session:
            row = session.execute(select(*_SUMMARY_COLUMNS).where(Job.id == id_)).first()
            return row if row is not None and caller.may_see(row.owner) else None

    def summaries(self, ids: Sequence[str]) -> dict[str, Row[Any]]:
        """Return the summaries of these jobs, whoever owns them; ids that do not exist are left out."""
        with reading(self._engine) as session:
            return {row.id: row for row in session.execute(select(*_SUMMARY_COLUMNS).where(Job.id.in_(ids)))}

    def latest(
        self, caller: Caller, wanted: JobFilter, limit: int, before: tuple[float, str] | None = None
    ) -> list[Row[Any]]:
        """Return summaries of the caller's jobs, the newest first; for an administrator, of all jobs.

        Parameters
        ----------
        caller : Caller
            User of the request.
        wanted : JobFilter
            Conditions for the jobs.
        limit : int
            Maximum number of jobs. Fewer are listed, but at least one, if their summaries exceed `MAX_PAGE_BYTES`.
        before : tuple, optional
            Time of creation and id of a job. Only older jobs are listed.
        """
        ids = wanted.apply(caller, select(Job.id)).order_by(Job.created.desc(), Job.id.desc()).limit(limit)
        if before is not None:
            ids = ids.where(tuple_(Job.created, Job.id) < before)  # a single range of the index
        with reading(self._engine) as session:
            return _page(session, session.scalars(ids).all())

    def ranked(self, caller: Caller, wanted: JobFilter, by: str, down: bool, limit: int, skip: int) -> list[Row[Any]]:
        """Return summaries of the caller's jobs in another order, among the newest `MAX_RANKED` jobs that match.

        Jobs without the value come last.

        Parameters
        ----------
        caller, wanted
            As in `latest`.
        by : str
            "name", "method", "state", "owner", "seconds", or "score:" and the name of a score.
        down : bool
            Whether the order is descending.
        limit, skip : int
            Number of jobs to return, and to skip.
        """
        newest = wanted.apply(caller, select(Job.id)).order_by(Job.created.desc(), Job.id.desc()).limit(MAX_RANKED)
        score = by.removeprefix("score:") if by.startswith("score:") else None
        columns = [Job.scores] if score else [getattr(Job, each) for each in _RANK_COLUMNS[by]]
        with reading(self._engine) as session:
            ids = session.scalars(newest).all()
            rows = session.execute(select(Job.id, *columns).where(Job.id.in_(ids)))
            values = {row[0]: _rank_value(score, row[1:]) for row in rows}
            with_value = [id_ for id_ in ids if values.get(id_) is not None]
            with_value.sort(key=lambda id_: values[id_], reverse=down)
            order = [*with_value, *(id_ for id_ in ids if values.get(id_) is None)]
            return _page(session, order[skip : skip + limit])

    def members(self, caller: Caller, sweep: str) -> list[Job]:
        """Return the jobs of a sweep in the order of its combinations; none if the caller may not see them."""
        if not ID_PATTERN.fullmatch(sweep):
            return []
        wanted = JobFilter(sweep=sweep).apply(caller, select(Job)).order_by(Job.created, Job.id)
        with reading(self._engine) as session:
            return list(session.scalars(wanted))


def lock_job(session: Session, caller: Caller, id_: str) -> Job | None:
    """Lock a job that the caller may see, and return it; return None if there is no such job."""
    job = session.get(Job, id_, with_for_update=True) if ID_PATTERN.fullmatch(id_) else None
    return job if job is not None and caller.may_see(job.owner) else None


def _page(session: Session, ids: Sequence[str]) -> list[Row[Any]]:
    """Return the summaries of jobs in this order, up to `MAX_PAGE_BYTES`; jobs that do not exist are left out."""
    place = {id_: k for k, id_ in enumerate(ids)}
    found: list[Row[Any]] = []
    size = 0
    for start in range(0, len(ids), JOBS_PER_QUERY):
        part = ids[start : start + JOBS_PER_QUERY]
        rows = session.execute(select(*_SUMMARY_COLUMNS).where(Job.id.in_(part))).all()
        for row in sorted(rows, key=lambda row: place[row.id]):
            size += len(json.dumps(tuple(row)))
            if found and size > MAX_PAGE_BYTES:
                return found
            found.append(row)
    return found


_RANK_COLUMNS = {
    "name": ("name",), "method": ("method",), "state": ("state",), "owner": ("owner",),
    "seconds": ("started", "finished"),
}  # fmt: skip


def _rank_value(score: str | None, values: Sequence[Any]) -> Any:
    """Return the value by which a job is ranked, or None."""
    if score is not None:
        value = (values[0] or {}).get(score)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return value if number else None
    if len(values) == 2:
        return None if None in values else values[1] - values[0]
    return values[0]
