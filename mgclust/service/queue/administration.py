"""Administration: users with their usage and limits, the order of the queue, and pins."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from mgclust.base.errors import InputError
from mgclust.service.queue import revocations
from mgclust.service.queue.access import ID_PATTERN, NAME_PATTERN, Caller, LastToken, lasting_admin_tokens, valid_tokens
from mgclust.service.queue.models import Job, Token, Upload, User, reading, writing
from mgclust.service.settings import Settings
from mgclust.service.states import STATES

__all__ = ["change_user", "describe_load", "describe_users", "jobs_before", "pin", "waiting_jobs"]

MAX_WAITING_LISTED = 1000
CHANGES = ("disabled", "disk_limit", "jobs_limit")


def describe_users(engine: Engine) -> list[dict[str, Any]]:
    """List all users with their tokens, limits, files and the totals of their attempts."""
    with reading(engine) as session:
        tokens = _by_owner(session, Token.user, func.count(), (Token.kind == "token") & valid_tokens())
        jobs = _by_owner(session, Job.owner, func.count(), True)
        job_bytes = _by_owner(session, Job.owner, func.coalesce(func.sum(Job.size), 0), True)
        uploads = _by_owner(session, Upload.owner, func.count(), True)
        upload_bytes = _by_owner(session, Upload.owner, func.coalesce(func.sum(Upload.size), 0), True)
        return [
            {
                "name": user.name, "role": user.role, "tokens": tokens.get(user.name, 0),
                "disabled": user.disabled is not None, "disk_limit": user.disk_limit, "jobs_limit": user.jobs_limit,
                "jobs": jobs.get(user.name, 0), "uploads": uploads.get(user.name, 0),
                "bytes": int(job_bytes.get(user.name, 0)) + int(upload_bytes.get(user.name, 0)),
                "attempts": user.attempts, "seconds": round(user.seconds, 3),
                "gpu_seconds": round(user.gpu_seconds, 3),
            }
            for user in session.scalars(select(User).order_by(User.name))
        ]  # fmt: skip


def _by_owner(session: Session, owner: Any, value: Any, condition: Any) -> dict[str, Any]:
    wanted = select(owner, value).group_by(owner)
    return {name: found for name, found in session.execute(wanted if condition is True else wanted.where(condition))}


def change_user(engine: Engine, data: Path, name: str, changes: dict[str, Any]) -> bool:
    """Disable or enable a user, or set limits; return whether the user exists.

    Parameters
    ----------
    engine : Engine
        Database, from `open_database`.
    data : Path
        The data folder, which also records who is disabled; see `revocations`.
    name : str
        Name of the user.
    changes : dict
        Some of ``disabled`` (bool), ``disk_limit`` and ``jobs_limit`` (numbers, or None for the settings' limits).

    Raises
    ------
    LastToken
        No administrator would have a valid token.
    InputError
        There is nothing to change.
    """
    if not changes:
        raise InputError(f"nothing is to change; give some of {', '.join(CHANGES)}.")
    with writing(engine, alone=True) as session:
        user = session.get(User, name, with_for_update=True) if NAME_PATTERN.fullmatch(name) else None
        if user is None:
            return False
        for limit in ("disk_limit", "jobs_limit"):
            if limit in changes:
                setattr(user, limit, changes[limit])
        if "disabled" in changes:
            mine = select(Token.expires).where(Token.user == name, Token.kind == "token", valid_tokens())
            own = session.scalars(mine).all()
            longest = None if None in own else max((each for each in own if each is not None), default=0.0)
            user.disabled = (user.disabled or time.time()) if changes["disabled"] else None
            session.flush()
            if (
                changes["disabled"]
                and user.role == "admin"
                and session.scalars(lasting_admin_tokens(longest).limit(1)).first() is None
            ):
                raise LastToken(f"{name} has the last token of an administrator; create another, then disable {name}.")
            revocations.keep(data, user=name, disabled=bool(changes["disabled"]))
    return True


def waiting_jobs(engine: Engine) -> list[dict[str, Any]]:
    """List the waiting jobs in the order in which they are expected to start, at most `MAX_WAITING_LISTED`.

    The order is that of `fair_share.next_job` if no job is added meanwhile and all jobs take equally long. Jobs of
    disabled users come last, without a position.
    """
    columns = (Job.id, Job.owner, Job.method, Job.priority, Job.queued)
    wanted = select(*columns).where(Job.state == "PENDING").order_by(Job.priority.desc(), Job.created, Job.id)
    with reading(engine) as session:
        rows = session.execute(wanted.limit(MAX_WAITING_LISTED)).all()
        active = select(Job.owner, func.count()).where(Job.state == "RUNNING").group_by(Job.owner)
        running = {owner: count for owner, count in session.execute(active)}
        users = {user.name: user for user in session.scalars(select(User))}
    able = [row for row in rows if users[row.owner].disabled is None]
    ordered = [row for row in able if row.priority > 0]
    queues: defaultdict[str, deque[Any]] = defaultdict(deque)
    for row in able:
        if row.priority <= 0:
            queues[row.owner].append(row)
    while queues:
        owner = min(queues, key=lambda name: (running.get(name, 0), users[name].used, name))
        ordered.append(queues[owner].popleft())
        running[owner] = running.get(owner, 0) + 1
        if not queues[owner]:
            del queues[owner]
    positions: list[tuple[int | None, Any]] = list(enumerate(ordered))
    positions += [(None, row) for row in rows if users[row.owner].disabled is not None]
    names = [column.key for column in columns]
    return [{"position": place, **dict(zip(names, row, strict=True))} for place, row in positions]


def jobs_before(engine: Engine, id: str) -> int | None:
    """Return how many waiting jobs are expected to start before a job, or None if the job has no position."""
    return next((job["position"] for job in waiting_jobs(engine) if job["id"] == id), None)


def describe_load(engine: Engine, settings: Settings) -> dict[str, Any]:
    """Return the numbers of jobs, how many of them wait for the cluster, and the free space of the data folder."""
    with reading(engine) as session:
        jobs = {state: count for state, count in session.execute(select(Job.state, func.count()).group_by(Job.state))}
        progress = session.scalars(select(Job.progress).where(Job.state == "RUNNING")).all()
        oldest = session.scalar(select(func.min(Job.queued)).where(Job.state == "PENDING"))
    disk = shutil.disk_usage(settings.data)
    return {
        "jobs": {state: jobs.get(state, 0) for state in STATES},
        "oldest_wait_seconds": max(0.0, time.time() - oldest) if oldest is not None else 0.0,
        "scheduler": settings.scheduler or None,
        "waiting_for_cluster": sum((each or {}).get("stage") == "waiting for the cluster" for each in progress),
        "slots": settings.slots, "disk_free_bytes": disk.free, "disk_bytes": disk.total,
    }  # fmt: skip


def pin(engine: Engine, caller: Caller, table: type[Job] | type[Upload], id_: str, pinned: bool) -> bool:
    """Pin a job or an upload, which then does not expire, or remove the pin; return whether the caller has it."""
    with writing(engine) as session:
        row: Any = session.get(table, id_, with_for_update=True) if ID_PATTERN.fullmatch(id_) else None
        if row is None or not caller.may_see(row.owner):
            return False
        row.pinned = pinned
        return True
