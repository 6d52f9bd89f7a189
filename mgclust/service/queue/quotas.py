"""Limits of what a user may keep: uploads, jobs, and their rows in the database."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from mgclust.service.confined.folders import size_of
from mgclust.service.queue.models import Job, Upload, User
from mgclust.service.settings import Settings

__all__ = [
    "BLOCK_BYTES",
    "QuotaExceeded",
    "UserLimits",
    "bytes_kept",
    "limits_of",
    "lock_users",
    "quota_error",
    "row_size",
    "size_of_job",
]  # fmt: skip

BLOCK_BYTES = 4096  # minimum charge for a file, and for a row of the database with its indexes


class QuotaExceeded(Exception):
    """A limit of what a user may keep is reached."""


class UserLimits(NamedTuple):
    """Limits of one user; see the settings of the same names."""

    disk_per_user: int
    jobs_per_user: int


def limits_of(session: Session, settings: Settings, owner: str) -> UserLimits:
    """Return the limits of a user: limits that an administrator has set for this user, else the settings."""
    row = session.execute(select(User.disk_limit, User.jobs_limit).where(User.name == owner)).first()
    disk, jobs = (None, None) if row is None else row
    return UserLimits(
        settings.disk_per_user if disk is None else disk, settings.jobs_per_user if jobs is None else jobs
    )


def size_of_job(settings: Settings, id_: str) -> int:
    """Return the bytes of all files of a job, including its checkpoints."""
    elsewhere = size_of(settings.checkpoint_folder(id_)) if settings.checkpoints else 0
    return size_of(settings.job_folder(id_)) + elsewhere


def lock_users(session: Session, names: set[str]) -> None:
    """Lock these users until the transaction ends, so that limits hold; SQLite has only one writer anyway."""
    # Lock users always in the same order, so that there is no deadlock.
    wanted = select(User.name).where(User.name.in_(names)).order_by(User.name)
    session.execute(wanted.with_for_update(key_share=True))


def row_size(request: dict[str, Any], *more: Any) -> int:
    """Return the bytes of a job in the database: a constant for its row, and its long values as JSON."""
    return BLOCK_BYTES + sum(len(json.dumps(each)) for each in (request, *more) if each is not None)


def quota_error(owner: str, most: int, kept: int, more: int) -> QuotaExceeded | None:
    """Return the error if adding `more` bytes exceeds the limit of `most` bytes, else None. 0 means no limit."""
    if not most or kept + more <= most:
        return None
    return QuotaExceeded(
        f"{owner} keeps {kept} bytes of uploads and jobs, and this would exceed disk_per_user={most}; delete some jobs "
        "or uploads."
    )


def bytes_kept(session: Session, owner: str) -> int:
    """Return the bytes of a user's uploads (at least a block per upload) and jobs."""
    uploads = func.sum(case((Upload.size < BLOCK_BYTES, BLOCK_BYTES), else_=Upload.size))
    sums = (select(uploads).where(Upload.owner == owner), select(func.sum(Job.size)).where(Job.owner == owner))
    return sum(int(session.scalar(each) or 0) for each in sums)
