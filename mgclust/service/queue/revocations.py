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
    """Record a revoked token, ``token=ID``, or a user, ``user=NAME`` with ``disabled=True`` or ``False``."""
    append_durably(data / FILE, json.dumps(what))


def reapply(engine: Engine, data: Path) -> None:
    """Revoke again what a restored database has forgotten."""
    if not (data / FILE).exists():
        return
    tokens, disabled = [], {}
    for line in (data / FILE).read_text().splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a torn line of a process that was killed
            what = parse_json(line)
            if "token" in what:
                tokens.append(str(what["token"]))
            else:
                disabled[str(what["user"])] = bool(what["disabled"])
    now = time.time()
    with writing(engine) as session:
        for token in tokens:
            session.execute(update(Token).where(Token.id == token, Token.revoked.is_(None)).values(revoked=now))
            end_made_with(session, [token], now)
        for name in [name for name, is_disabled in disabled.items() if is_disabled]:
            session.execute(update(User).where(User.name == name, User.disabled.is_(None)).values(disabled=now))
