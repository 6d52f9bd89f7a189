"""Users, roles, tokens and scopes.

A token is 32 random bytes, shown once. The database holds its SHA-256, which is enough for a random number of this
length. A user sees their own jobs and uploads; an administrator sees the jobs and uploads of all users, and creates
users and tokens. A token may expire. It has some of these scopes, at most the scopes of its user's role:

read
    Read jobs, their results and logs, and lists of jobs.
submit
    Upload, submit, cancel, retry and delete. Without ``read``, answers hold only the id, the method and the state.
admin
    Manage users, tokens and all jobs (only for administrators).
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import math
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Engine, and_, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from mgclust.base.errors import InputError
from mgclust.service.audit import Audit
from mgclust.service.queue.durable import write_durably
from mgclust.service.queue.models import Token, User, Webhook, reading, writing

__all__ = [
    "DEFAULT_DAYS",
    "ROLES",
    "SCOPES",
    "Caller",
    "LastToken",
    "Unauthorized",
    "add_user",
    "check_daily",
    "end_made_with",
    "expiry_of",
    "find_callers",
    "first_admin",
    "first_token",
    "hash_of",
    "lasting_admin_tokens",
    "new_token",
    "owner_of_token",
    "record_use",
    "remove_stale_token",
    "revoke",
    "role_of",
    "tokens_of",
    "valid_admin_tokens",
    "valid_tokens",
]  # fmt: skip

ROLES = {"user": ("read", "submit"), "admin": ("read", "submit", "admin")}  # scopes of the tokens of each role
SCOPES = ROLES["admin"]
DEFAULT_DAYS = 365.0  # lifetime of a new token
MAX_DAYS = 36_500.0
DAY_SECONDS = 86_400.0
MAX_PER_DAY = 1000  # tokens, sessions, codes and links that are made with one token in 24 hours
MAX_TOKENS = 100  # limit per user for valid tokens, and for invalid tokens that are kept
USE_RESOLUTION_SECONDS = 3600.0
TOKEN_PATTERN = re.compile("mgc_[A-Za-z0-9_-]{43}")  # any other text is rejected without a lookup
ID_PATTERN = re.compile("[0-9a-f]{1,32}")  # id of a token, an upload or a job; other text is rejected without a lookup
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")


class Unauthorized(Exception):
    """The request has no valid token."""


class LastToken(Exception):
    """The request would revoke the last token of an administrator, so that no other token could be created."""


@dataclass(frozen=True)
class Caller:
    """The user of a request, and the scopes of its token."""

    name: str
    role: str
    scopes: frozenset[str] = frozenset(SCOPES)
    token: str = field(default="", compare=False)  # id of the token
    expires: float | None = field(default=None, compare=False)
    kind: str = field(default="token", compare=False)  # see `Token.kind`
    origin: str | None = field(default=None, compare=False)
    job: str | None = field(default=None, compare=False)  # the only job that the caller of a link may read
    maker_name: str | None = field(default=None, compare=False)  # user who made the link that the caller shows

    @property
    def is_admin(self) -> bool:
        """True if the caller sees all jobs and uploads."""
        return self.role == "admin" and "admin" in self.scopes

    def check(self, scope: str) -> None:
        """Check that both the role and the token have a scope.

        Raises
        ------
        PermissionError
        """
        if self.kind == "link":
            raise PermissionError("this link shows the result of one job and nothing else; sign in for more.")
        if self.kind == "code":
            raise PermissionError("this code begins a session and does nothing else; use a token.")
        if scope not in ROLES.get(self.role, ()):
            raise PermissionError("only an administrator may do this.")
        if scope not in self.scopes:
            has = ", ".join(name for name in SCOPES if name in self.scopes)
            raise PermissionError(
                f"this token has the scopes {has}, but this request needs {scope}; use a token with this scope."
            )

    @property
    def counted_as(self) -> str:
        """Name under which limits count the requests: a user, or all links that a user has made.

        A guest who uses up these limits does not keep the user out.
        """
        return f"links of {self.maker_name}" if self.maker_name else self.name

    @property
    def maker(self) -> str | None:
        """Token that answers for what the caller makes: if it is revoked, what was made with it ends."""
        return self.origin or self.token or None

    def may_manage(self, user: str) -> bool:
        """Return whether the caller may manage a user's tokens: an administrator, or the same user with all scopes."""
        return self.is_admin or (self.name == user and self.scopes.issuperset(ROLES.get(self.role, SCOPES)))

    def may_see(self, owner: str) -> bool:
        """Return whether the caller sees the jobs and uploads of an owner."""
        return self.is_admin or self.name == owner

    def check_new_token(self, user: str, role: str, scopes: Iterable[str] | None, days: float | None) -> float | None:
        """Check that a new token has at most the rights of this token; return its lifetime in days.

        A token for oneself, or for another administrator, has at most the scopes of this token. A token for another
        user needs the scope ``admin``, and has at most the scopes of that user's role. The new token does not outlive
        this token (its lifetime is cut), so that a stolen token cannot be renewed forever. Only a token that never
        expires can create another token that never expires.

        Raises
        ------
        PermissionError
        """
        wanted = set(ROLES[role] if scopes is None else scopes)
        if (user == self.name or role == "admin") and (more := wanted & set(ROLES[role]) - self.scopes):
            names = ", ".join(name for name in SCOPES if name in more)
            raise PermissionError(
                f"a new token has at most the scopes of this token, which lacks {names}; request scopes that it has."
            )
        if days is None and not self.is_admin:
            raise PermissionError("only an administrator may create a token that never expires; give days.")
        if self.expires is None:
            return days
        if days is None:
            raise PermissionError("this token expires, so it cannot create a token that never expires; give days.")
        return min(days, max(0.0, self.expires - time.time()) / DAY_SECONDS)


def add_user(engine: Engine, name: str, role: str) -> None:
    """Create a user.

    Raises
    ------
    InputError
        The name is taken or invalid, or the role is unknown.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise InputError(
            f"name={name!r} should be up to 64 characters of a-z, 0-9 and . _ @ -, beginning with a letter or digit."
        )
    if role not in ROLES:
        raise InputError(f"role={role!r} should be one of {', '.join(map(repr, ROLES))}.")
    try:
        with writing(engine) as session:
            session.add(User(name=name, role=role))
    except IntegrityError:
        raise InputError(f"name={name!r} is taken; choose another.") from None


def new_token(
    engine: Engine, user: str, scopes: Iterable[str] | None = None, days: float | None = DEFAULT_DAYS
) -> tuple[str, str]:
    """Create a token for a user; return its id and the token, which cannot be shown again.

    Parameters
    ----------
    engine : Engine
        Database, from `open_database`.
    user : str
        Name of the user.
    scopes : iterable of str, optional
        Scopes of the token. By default all scopes of the user's role.
    days : float, optional
        Days until the token expires; None: it never expires.

    Raises
    ------
    InputError
        The user is unknown, the role lacks a scope, the number of days is invalid, or there are too many tokens.
    """
    if days is not None and not 0 < days <= MAX_DAYS:
        raise InputError(f"days={days} should be > 0 and <= {MAX_DAYS:g}.")
    with writing(engine) as session:
        found = session.get(User, user, with_for_update=True) if NAME_PATTERN.fullmatch(user) else None
        if found is None:
            raise InputError(f"user={user!r} does not exist; create the user first.")
        known = ROLES[found.role]
        wanted = set(known if scopes is None else scopes)
        if not wanted or not wanted.issubset(known):
            raise InputError(
                f"scopes={sorted(wanted)} should be some of {', '.join(map(repr, known))}, which a token of role "
                f"{found.role!r} may have."
            )
        token, row = _token(user, [scope for scope in known if scope in wanted], days)
        alive = select(func.count()).where(Token.user == user, Token.kind == "token", valid_tokens())
        if (session.scalar(alive) or 0) >= MAX_TOKENS:
            raise InputError(f"{user} has {MAX_TOKENS} valid tokens, the maximum; revoke some first.")
        check_daily(session, user, None)
        ended = (Token.user == user, ~valid_tokens(), Token.created < time.time() - DAY_SECONDS)
        kept = select(Token.id).where(*ended).order_by(Token.created.desc()).limit(MAX_TOKENS)
        session.execute(delete(Token).where(*ended, Token.id.not_in(kept)))
        session.add(row)
    return row.id, token


def revoke(engine: Engine, id_: str) -> Token | None:
    """Revoke a token, and end what was made with it; return the token, or None if it does not exist.

    Raises
    ------
    LastToken
        It is the last token of all administrators that is valid for a day.
    """
    if not ID_PATTERN.fullmatch(id_):
        return None
    # One transaction at a time: otherwise two requests could revoke the last two tokens.
    with writing(engine, alone=True) as session:
        found = session.get(Token, id_)
        if found is None:
            return None
        if session.scalars(lasting_admin_tokens(found.expires).limit(2)).all() == [id_]:
            raise LastToken(
                f"token {id_} is the last token of an administrator that is valid for a day; create another, then "
                "revoke this one."
            )
        found.revoked = found.revoked or time.time()
        end_made_with(session, [id_], found.revoked)
        return found


def end_made_with(session: Session, ids: Sequence[str], when: float) -> None:
    """End the sessions, codes, links and webhooks that were made with these tokens, which are revoked."""
    made = update(Token).where(Token.origin.in_(ids), Token.revoked.is_(None))
    session.execute(made.values(revoked=when))
    session.execute(delete(Webhook).where(Webhook.origin.in_(ids)))


def check_daily(session: Session, user: str, origin: str | None) -> None:
    """Check that a user may create one more token, session, code or link with the token `origin` within 24 hours.

    Each of them may add a line to the file of revocations, so this limit also bounds the number of lines.

    Raises
    ------
    InputError
        The user has created `MAX_PER_DAY` of them.
    """
    made = select(func.count()).where(
        Token.user == user, Token.origin == origin, Token.created > time.time() - DAY_SECONDS
    )
    if (session.scalar(made) or 0) >= MAX_PER_DAY:
        raise InputError(
            f"user={user!r} has created {MAX_PER_DAY} tokens, sessions or links with one token within 24 hours, the "
            "maximum; use those that are still valid, or try again later."
        )


def owner_of_token(engine: Engine, id_: str) -> str | None:
    """Return the owner of a token; None if there is no such token."""
    if not ID_PATTERN.fullmatch(id_):
        return None
    with reading(engine) as session:
        return session.scalar(select(Token.user).where(Token.id == id_))


def tokens_of(engine: Engine, user: str) -> list[dict[str, object]]:
    """List the tokens of a user without their secrets, except sessions and codes that have ended."""
    if not NAME_PATTERN.fullmatch(user):
        return []
    listed = or_(Token.kind.in_(("token", "link")), valid_tokens())
    wanted = select(Token, User.role).join(User, Token.user == User.name).where(Token.user == user, listed)
    with reading(engine) as session:
        return [
            {
                "id": token.id, "user": token.user, "created": token.created, "expires": token.expires,
                "revoked": token.revoked, "used": token.used, "kind": token.kind, "job": token.job,
                "scopes": token.scopes.split(),
            }
            for token, role in session.execute(wanted.order_by(Token.created)).all()
        ]  # fmt: skip


def role_of(engine: Engine, user: str) -> str | None:
    """Return the role of a user; None if there is no such user."""
    with reading(engine) as session:
        found = session.get(User, user) if NAME_PATTERN.fullmatch(user) else None
        return found.role if found else None


def expiry_of(engine: Engine, id_: str) -> float | None:
    """Return the time at which a token expires; None if it never expires."""
    with reading(engine) as session:
        return session.get_one(Token, id_).expires


def find_callers(engine: Engine, hashes: Sequence[str]) -> list[Caller | Exception]:
    """Return the caller for each hash of a token; `Unauthorized` for unknown, revoked and expired tokens."""
    wanted = select(
        Token.sha256, Token.id, Token.scopes, Token.expires, User.name, User.role, User.disabled, Token.kind,
        Token.origin, Token.job,
    )  # fmt: skip
    wanted = wanted.join(User, Token.user == User.name)
    with reading(engine) as session:
        rows = session.connection().execute(wanted.where(Token.sha256.in_(set(hashes)), Token.revoked.is_(None))).all()
    now = time.time()
    known: dict[str, Caller | Exception] = {}
    for sha256, id_, scopes, expires, name, role, disabled, kind, origin, job in rows:
        if disabled is not None:
            known[sha256] = Unauthorized(f"user {name} is disabled; ask the service's administrator.")
        elif expires is not None and expires <= now:
            day = datetime.datetime.fromtimestamp(expires, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
            known[sha256] = Unauthorized(f"this token expired on {day}; ask the service's administrator for another.")
        else:
            allowed = frozenset(scopes.split())
            # The caller of a link is not the owner of its job, and has no role.
            who = (f"link {id_}", "link") if kind == "link" else (name, role)
            known[sha256] = Caller(*who, allowed, id_, expires, kind, origin, job, name if kind == "link" else None)
    refused = Unauthorized("this token is unknown or revoked; ask the service's administrator for one.")
    return [known.get(sha256, refused) for sha256 in hashes]


def record_use(engine: Engine, ids: Iterable[str]) -> None:
    """Record that these tokens have been used, if their last record is older than an hour."""
    now = time.time()
    old = or_(Token.used.is_(None), Token.used < now - USE_RESOLUTION_SECONDS)
    with reading(engine) as session:
        due = session.scalars(select(Token.id).where(Token.id.in_(set(ids)), old)).all()
    if due:
        with writing(engine) as session:
            session.execute(update(Token).where(Token.id.in_(due)).values(used=now))


def first_token(engine: Engine, data: Path, audit: Audit | None = None) -> Path:
    """Create a token, in a file that only this account may read, if no administrator has a valid token.

    Programs of the account find the token there, so that a local service needs no settings. The token does not expire,
    because an account that can read the file can read the database as well. If the service has no users, an
    administrator is created.
    """
    path = data / "token"
    remove_stale_token(engine, data)
    with reading(engine) as session:
        if session.scalars(valid_admin_tokens().limit(1)).first() is not None:
            return path
    made: Token | None = None
    with writing(engine, alone=True) as session:  # several processes may start at once
        if session.scalars(valid_admin_tokens().limit(1)).first() is None:
            admin = session.scalars(
                select(User.name).where(User.role == "admin", User.disabled.is_(None)).order_by(User.name).limit(1)
            ).first()
            if admin is None:
                admin = "admin" if session.get(User, "admin") is None else f"admin-{secrets.token_hex(4)}"
                session.add(User(name=admin, role="admin"))
                session.flush()
            token, made = _token(admin, SCOPES, None)
            session.add(made)
            # Write the file before the commit: without the file, no other token could ever be created.
            write_durably(path, token + "\n")
    if made is not None and audit is not None:
        audit.write(action="first_token", id=made.id, name=made.user)
    return path


def first_admin(engine: Engine) -> str | None:
    """Return the name of the first administrator who is not disabled."""
    wanted = select(User.name).where(User.role == "admin", User.disabled.is_(None)).order_by(User.name).limit(1)
    with reading(engine) as session:
        return session.scalar(wanted)


def remove_stale_token(engine: Engine, data: Path) -> None:
    """Remove the token in the data folder if it is revoked or expired, so that no program uses it."""
    path = data / "token"
    with contextlib.suppress(OSError):
        held = path.read_text(errors="replace").strip()
        with reading(engine) as session:
            valid = session.scalar(select(Token.id).where(Token.sha256 == hash_of(held), valid_tokens()))
        if valid is None and path.read_text(errors="replace").strip() == held:
            path.unlink()


def _token(user: str, scopes: Iterable[str], days: float | None) -> tuple[str, Token]:
    token, now = f"mgc_{secrets.token_urlsafe(32)}", time.time()
    row = Token(
        id=secrets.token_hex(8), user=user, sha256=hash_of(token), created=now, scopes=" ".join(scopes),
        expires=None if days is None else now + DAY_SECONDS * days,
    )  # fmt: skip
    return token, row


def valid_tokens() -> ColumnElement[bool]:
    """Return the condition that a token is neither revoked nor expired."""
    return and_(Token.revoked.is_(None), or_(Token.expires.is_(None), Token.expires > time.time()))


def valid_admin_tokens() -> Any:
    """Return a query for the ids of the tokens that can create tokens."""
    admin = Token.scopes.like("%admin%")
    able = (User.role == "admin", User.disabled.is_(None))
    return (
        select(Token.id).join(User, Token.user == User.name).where(*able, Token.kind == "token", valid_tokens(), admin)
    )


def lasting_admin_tokens(replaced: float | None) -> Any:
    """Return a query for the ids of administrators' tokens that may replace one that expires at `replaced`.

    A token that is about to expire is no replacement: a day is enough to create another.
    """
    until = min(time.time() + DAY_SECONDS, math.inf if replaced is None else replaced)
    return valid_admin_tokens().where(or_(Token.expires.is_(None), Token.expires >= until))


def hash_of(token: str) -> str:
    """Return the hash of a token, as the database holds it."""
    return hashlib.sha256(token.encode()).hexdigest()
