"""Order of the queue, which gives every user a fair share of the slots.

Jobs of administrators with a priority above 0 run first, by priority and then by age. Otherwise, the user with the
fewest running jobs is next. If several users have the fewest, the user whose jobs have used the least slot time is
next. Slot time decays with a half-life of an hour: old usage does not make a user wait, and no user waits more than
about an hour behind a user without usage. Jobs of one user run by priority, then by age.

A clock may have been wrong when a job ran. So a stored usage is never more than a user can have used until now. A user
whose jobs ran on a clock that was days ahead waits for hours, and not for days.
"""

from __future__ import annotations

import math
import time

from sqlalchemy import ColumnElement, and_, func, select, update
from sqlalchemy.orm import Session

from mgclust.service.queue.models import Job, User

__all__ = ["add_usage", "charge", "greatest_usage", "next_job"]

USAGE_HALF_LIFE_SECONDS = 3600.0
LONGEST_ATTEMPT_SECONDS = 7 * 86_400.0  # the whole time of an attempt is charged at its end


def next_job(session: Session, slots: int, begun: str | None = None) -> Job | None:
    """Lock and return the job that runs next on one of `slots` slots; return None if no job waits.

    Jobs of disabled users wait.

    A job whose turn has come, but which waits for GPUs, keeps its turn: only urgent jobs overtake it.
    """
    able = Job.owner.not_in(select(User.name).where(User.disabled.is_not(None)))
    for condition in (and_(Job.priority > 0, able), and_(Job.id == begun, able)):
        if (job := _first(session, condition)) is not None:
            return job
    running = select(Job.owner, func.count().label("number")).where(Job.state == "RUNNING").group_by(Job.owner)
    busy = running.subquery()
    # One index lookup per user instead of one per waiting job.
    waits = select(Job.id).where(Job.owner == User.name, Job.state == "PENDING").exists()
    shares = select(User.name).outerjoin(busy, busy.c.owner == User.name).where(waits, User.disabled.is_(None))
    most = greatest_usage(slots, time.time())
    session.execute(update(User).where(User.used > most).values(used=most))
    shares = shares.order_by(func.coalesce(busy.c.number, 0), User.used, User.name).limit(1)
    return _first(session, Job.owner == session.scalar(shares))


def _first(session: Session, condition: ColumnElement[bool]) -> Job | None:
    """Return the oldest job of the highest priority among the waiting jobs that meet the condition."""
    highest = session.scalar(select(func.max(Job.priority)).where(Job.state == "PENDING", condition))
    if highest is None:
        return None
    wanted = select(Job).where(Job.state == "PENDING", condition, Job.priority == highest)
    wanted = wanted.order_by(Job.created, Job.id).limit(1)
    return session.scalars(wanted.with_for_update(skip_locked=True)).first()


def charge(session: Session, owner: str, seconds: float, slots: int) -> None:
    """Add slot time to a user's usage."""
    user = session.get_one(User, owner, with_for_update={"key_share": True})
    now = time.time()
    user.used = min(add_usage(user.used, seconds, now), greatest_usage(slots, now))


def greatest_usage(slots: int, now: float) -> float:
    """Return the usage of a user who has had all slots until now, with attempts of a week that are charged now."""
    most = slots * (USAGE_HALF_LIFE_SECONDS / math.log(2) + LONGEST_ATTEMPT_SECONDS)
    return math.log2(most) + now / USAGE_HALF_LIFE_SECONDS


def add_usage(used: float, seconds: float, now: float) -> float:
    """Add seconds that end now to the slot time that a user has used.

    The returned value is log2 of a sum in which a second weighs twice as much as a second that is
    `USAGE_HALF_LIFE_SECONDS` older. Users can be compared by this value at any time, without updates as time passes.
    """
    more = math.log2(seconds) + now / USAGE_HALF_LIFE_SECONDS
    low, high = sorted((used, more))
    return high + math.log2(1 + 2 ** (low - high))
