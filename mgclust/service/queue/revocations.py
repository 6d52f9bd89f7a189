"""Revocations of tokens and users, kept apart from the database.

A backup of the database holds tokens that were revoked after it was made. So each revocation is also a line of the file
``revocations`` in the data folder, and each start applies the lines again. A restore has to leave this file in place.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, update

from mgclust.outside.json_text import parse_json
from mgclust.service.queue.access import end_made_with
from mgclust.service.queue.durable import append_durably
from mgclust.service.queue.models import Token, User, writing

__all__ = ["FILE", "keep", "reapply"]

FILE = "revocations"


def keep(data: Path, **what: Any) -> None:
    """Record what a restored database must not bring back.

    Parameters
    ----------
    data : Path
        The data folder.
    **what
        ``token=ID`` of a revoked token, which also ends what was made with it; ``session=ID`` of a session or code that
        has ended, but not what was made with it; or ``user=NAME`` with ``disabled=True`` or ``False``.
    """
    append_durably(data / FILE, json.dumps(what))


def reapply(engine: Engine, data: Path) -> None:
    """Revoke again what a restored database has forgotten."""
    if not (data / FILE).exists():
        return
    tokens, ended, disabled = [], [], {}
    for line in (data / FILE).read_text().splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a torn line of a process that was killed
            what = parse_json(line)
            if "token" in what:
                tokens.append(str(what["token"]))
            elif "session" in what:
                ended.append(str(what["session"]))
            else:
                disabled[str(what["user"])] = bool(what["disabled"])
    now = time.time()
    with writing(engine) as session:
        for token in (*tokens, *ended):
            session.execute(update(Token).where(Token.id == token, Token.revoked.is_(None)).values(revoked=now))
        for token in tokens:
            end_made_with(session, [token], now)
        for name in [name for name, is_disabled in disabled.items() if is_disabled]:
            session.execute(update(User).where(User.name == name, User.disabled.is_(None)).values(disabled=now))
