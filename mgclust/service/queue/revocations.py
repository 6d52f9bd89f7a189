"""Revocations of tokens and users and deletions of webhooks, kept apart from the database.

A backup of the database holds tokens and webhooks that were revoked or deleted after it was made. So each revocation is
also a line of the file ``revocations`` in the data folder, and each start applies the lines again. A restore has to
leave this file in place. A start also removes the lines whose tokens, sessions and links have expired, because no
backup needs them, and the lines of webhooks after a year.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, delete, update
from sqlalchemy.orm import Session

from mgclust.base.errors import RunFailed
from mgclust.outside.json_text import parse_json
from mgclust.service.queue.access import DAY_SECONDS, end_made_with, valid_tokens
from mgclust.service.queue.clock import is_trusted
from mgclust.service.queue.durable import append_durably, write_durably
from mgclust.service.queue.models import Token, User, Webhook, writing
from mgclust.service.queue.sessions import MAX_LINK_DAYS

__all__ = ["FILE", "disabled_users", "end_links", "keep", "reapply"]

FILE = "revocations"
LOCK = "revocations.lock"
LOCK_SECONDS = 10.0  # a process that is suspended could hold the lock for ever
POLL_SECONDS = 0.01
IDS_PER_QUERY = 500


@contextlib.contextmanager
def _locked(data: Path) -> Iterator[None]:
    """Hold the lock of the file: without it, one process could rewrite the file while another adds a line."""
    with open(data / LOCK, "w", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)) as file:
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise RunFailed(
                        f"another process of the service has locked the file {FILE!r} for {LOCK_SECONDS:.0f} s, so "
                        "nothing was changed there; try again later."
                    ) from None
                time.sleep(POLL_SECONDS)
        yield


def keep(data: Path, **what: Any) -> None:
    """Record what a restored database must not bring back.

    Parameters
    ----------
    data : Path
        The data folder.
    **what
        One of these. ``token=ID``: a revoked token; everything that was made with it also ends. ``session=ID``: a
        session, code or link that has ended, with which nothing was made. ``webhook=ID``: a deleted webhook.
        ``user=NAME``: a user, with ``disabled=True`` or ``False``. A token or session also needs ``expires=SECONDS``
        (since 1970), or None if it does not expire.
    """
    year = time.time() + DAY_SECONDS * MAX_LINK_DAYS
    if "webhook" in what:
        what["expires"] = year
    elif "token" in what and what["expires"] is not None:
        what["expires"] = max(what["expires"], year)  # links that were made with the token may expire later
    with _locked(data):
        append_durably(data / FILE, json.dumps(what))


def end_links(session: Session, data: Path, jobs: Sequence[str]) -> None:
    """End the links to the results of jobs that are being deleted: a backup may bring back the jobs.

    The rows of the links stay, so that they count towards the limit of one day; see `access.check_daily`.
    """
    links = update(Token).where(Token.job.in_(jobs), valid_tokens()).values(revoked=time.time())
    ended = session.execute(links.returning(Token.id, Token.expires)).all()
    if lines := [json.dumps({"session": id_, "expires": expires}) for id_, expires in ended]:
        with _locked(data):
            append_durably(data / FILE, "\n".join(lines))


def reapply(engine: Engine, data: Path) -> None:
    """Repeat the revocations that a restored database lacks, and remove the lines that have expired."""
    if not (data / FILE).exists():
        return
    with _locked(data):
        lines = (data / FILE).read_text().splitlines()
        kept = _needed(lines, time.time() - DAY_SECONDS if is_trusted(data) else 0.0)
        if len(kept) < len(lines):
            write_durably(data / FILE, "".join(json.dumps(what) + "\n" for what in kept))
    tokens = [str(what["token"]) for what in kept if "token" in what]
    ended = [str(what["session"]) for what in kept if "session" in what]
    now = time.time()
    with writing(engine) as session:
        for ids in _parts([*tokens, *ended]):
            session.execute(update(Token).where(Token.id.in_(ids), Token.revoked.is_(None)).values(revoked=now))
        for ids in _parts(tokens):
            end_made_with(session, ids, now)
        for ids in _parts([str(what["webhook"]) for what in kept if "webhook" in what]):
            session.execute(delete(Webhook).where(Webhook.id.in_(ids)))
        for names in _parts([str(what["user"]) for what in kept if "user" in what]):
            session.execute(update(User).where(User.name.in_(names), User.disabled.is_(None)).values(disabled=now))


def disabled_users(data: Path) -> set[str]:
    """Return the names of disabled users, also of users that a restored database does not have."""
    try:
        lines = (data / FILE).read_text().splitlines()
    except FileNotFoundError:
        return set()
    return {str(what["user"]) for what in _needed(lines, 0.0) if "user" in what}


def _needed(lines: Sequence[str], passed: float) -> list[dict[str, Any]]:
    """Return the last line of each token, session, webhook and disabled user, unless it expired before `passed`."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, KeyError):  # an incomplete line of a process that was killed
            what = parse_json(line)
            kind = next((kind for kind in ("token", "session", "webhook") if kind in what), "user")
            key = (kind, str(what[kind]))
            expires = what.get("expires")
            if what["disabled"] if kind == "user" else expires is None or expires >= passed:
                found[key] = what
            else:
                found.pop(key, None)
    return list(found.values())


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(ids), IDS_PER_QUERY):
        yield ids[first : first + IDS_PER_QUERY]
