"""Who may do what: users, their roles, and the tokens they show.

A token is 32 random bytes, shown once; the database holds its SHA-256: enough for numbers that nobody can guess.
A user sees their own jobs and uploads; an admin sees all, and makes users and tokens.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, select
from sqlalchemy.exc import IntegrityError

from mgclust.errors import InputError
from mgclust.service.records import Token, User, reading, writing

__all__ = [
    "ROLES", "Caller", "LastToken", "Refused", "add_user", "callers_of", "first_token", "hash_of", "new_token",
    "revoke", "tokens_of",
]  # fmt: skip

ROLES = ("user", "admin")
ID = re.compile("[0-9a-f]{1,32}")  # of a token, an upload or a job; nothing else goes to the database as one
NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")


class Refused(Exception):
    """Nobody that the service knows, or somebody who may not."""


class LastToken(Exception):
    """Without this token nobody could make users and tokens any more."""


@dataclass(frozen=True)
class Caller:
    """Who asks."""

    name: str
    role: str

    @property
    def is_admin(self) -> bool:
        """Whether they may see everything."""
        return self.role == "admin"

    def may_see(self, owner: str) -> bool:
        """Whether somebody's jobs and uploads are theirs to see."""
        return self.is_admin or self.name == owner


def add_user(engine: Engine, name: str, role: str) -> None:
    """Make a user.

    Raises
    ------
    InputError
        A name that is taken or no name, a role that is none.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"name={name!r} should be up to 64 of a-z, 0-9 and . _ @ -, a letter or digit first.")
    if role not in ROLES:
        raise InputError(f"role={role!r} should be one of {', '.join(map(repr, ROLES))}.")
    try:
        with writing(engine) as session:
            session.add(User(name=name, role=role))
    except IntegrityError:
        raise InputError(f"name={name!r} is taken; choose another.") from None


def new_token(engine: Engine, user: str) -> tuple[str, str]:
    """Make a token for a user; its id and, this once, the token."""
    token, row = _token(user)
    with writing(engine) as session:
        if not NAME.fullmatch(user) or session.get(User, user) is None:
            raise InputError(f"user={user!r} does not exist; make it first.")
        session.add(row)
    return row.id, token


def revoke(engine: Engine, id_: str) -> bool:
    """Let a token be worth nothing from now on; whether there was one.

    Raises
    ------
    LastToken
        It is the last one of all administrators.
    """
    of_admins = select(Token.id).join(User, Token.user == User.name)
    of_admins = of_admins.where(User.role == "admin", Token.revoked.is_(None))
    if not ID.fullmatch(id_):
        return False
    with writing(engine, alone=True) as session:  # of two that revoke the last two, one comes second
        found = session.get(Token, id_)
        if found is None:
            return False
        if session.scalars(of_admins.limit(2)).all() == [id_]:
            raise LastToken(f"token {id_} is the last one of an administrator; make another, then revoke this one.")
        found.revoked = found.revoked or time.time()
        return True


def tokens_of(engine: Engine, user: str) -> list[dict[str, object]]:
    """A user's tokens, without what would let anybody use them."""
    if not NAME.fullmatch(user):
        return []
    with reading(engine) as session:
        found = session.scalars(select(Token).where(Token.user == user).order_by(Token.created))
        return [{"id": t.id, "user": t.user, "created": t.created, "revoked": t.revoked} for t in found]


def callers_of(engine: Engine, hashes: Sequence[str]) -> list[Caller | Exception]:
    """Whose tokens have these hashes; `Refused` in place of a caller for one that is nobody's, or revoked."""
    wanted = select(Token.sha256, User.name, User.role).join(User, Token.user == User.name)
    with reading(engine) as session:
        rows = session.connection().execute(wanted.where(Token.sha256.in_(set(hashes)), Token.revoked.is_(None))).all()
    known = {sha256: Caller(name, role) for sha256, name, role in rows}
    refused = Refused("this token is unknown or revoked; ask the service's administrator for one.")
    return [known.get(sha256, refused) for sha256 in hashes]


def first_token(engine: Engine, data: Path) -> Path:
    """On a service without users, make an admin whose token lies in a file that only the caller's account may read.

    Programs of that account find it there, so that a service on one's own machine needs no settings.
    """
    path = data / "token"
    with reading(engine) as session:
        if session.scalars(select(User.name).limit(1)).first() is not None:
            return path
    with writing(engine, alone=True) as session:  # of several that start at once, one
        if session.scalars(select(User.name).limit(1)).first() is None:
            token, row = _token("admin")
            session.add(User(name="admin", role="admin"))
            session.flush()
            session.add(row)
            # Before the admin is there for good: nobody else could ever make another token.
            partial = path.with_suffix(".partial")
            partial.unlink(missing_ok=True)
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(token + "\n")
                file.flush()
                os.fsync(file.fileno())
            partial.rename(path)
    return path


def _token(user: str) -> tuple[str, Token]:
    token = f"mgc_{secrets.token_urlsafe(32)}"
    row = Token(id=secrets.token_hex(8), user=user, sha256=hash_of(token), created=time.time(), revoked=None)
    return token, row


def hash_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()
