"""Sessions of browsers, the one-time codes that begin them, and read-only links to results. All of them are tokens.

A session has two secrets: a cookie, which no script can read, and a proof, which the script of the page keeps and sends
in a header. Its token is computed from both. So another site cannot use the cookie, because it does not have the proof,
and neither can a server at another port of the same host, to which browsers also send the cookie.

A code begins one session. A link reads the result of one job, without the rights of the user who created it.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Engine, delete, func, select, update

from mgclust.base.errors import InputError
from mgclust.service.queue.access import (
    DAY_SECONDS,
    ROLES,
    Caller,
    Unauthorized,
    check_daily,
    hash_of,
    valid_tokens,
)
from mgclust.service.queue.models import Token, User, reading, writing

__all__ = ["SESSION_DAYS", "begin", "end", "links_of", "new_code", "new_link", "revoke_link", "token_of"]

SESSION_DAYS = 7.0
CODE_SECONDS = 600.0
MAX_SESSIONS = 20  # valid sessions and codes that one token has begun; a new session ends the oldest
MAX_LINK_DAYS = 365.0
MAX_LINKS = 20  # valid links of a job


def token_of(cookie: str, proof: str) -> str:
    """Compute the token of a session from its cookie and its proof."""
    digest = hashlib.sha256(f"{cookie}.{proof}".encode()).digest()
    return f"mgc_{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def _row(token: str, user: str, kind: str, seconds: float, scopes: Iterable[str] = (), **more: Any) -> Token:
    now = time.time()
    return Token(
        id=secrets.token_hex(8), user=user, sha256=hash_of(token), created=now, expires=now + seconds, kind=kind,
        scopes=" ".join(scopes), **more,
    )  # fmt: skip


def new_code(engine: Engine, user: str, origin: str | None = None) -> str:
    """Create a code that begins one session of a user with all scopes of the user's role.

    The session ends with the token `origin`, which has asked for the code.
    """
    code = f"mgc_{secrets.token_urlsafe(32)}"
    with writing(engine) as session:
        _make_room(session, user, origin)
        session.add(_row(code, user, "code", CODE_SECONDS, origin=origin))
    return code


def begin(engine: Engine, caller: Caller, days: float = SESSION_DAYS) -> tuple[str, str, Caller]:
    """Begin a session; return its cookie, its proof and its caller.

    Parameters
    ----------
    engine : Engine
        Database, from `open_database`.
    caller : Caller
        Caller of a code, which this call uses up, of a token, whose scopes the session gets and with which it ends, or
        of a person whom an OpenID provider has identified.
    days : float
        Longest lifetime of the session.

    Raises
    ------
    Unauthorized
        The code has been used.
    PermissionError
        The caller has a link.
    """
    if caller.kind == "link":
        raise PermissionError("a link begins no session.")
    cookie, proof, seconds = secrets.token_urlsafe(32), secrets.token_urlsafe(32), DAY_SECONDS * days
    scopes = [scope for scope in ROLES[caller.role] if scope in caller.scopes]
    origin = caller.maker
    with writing(engine) as session:
        if caller.kind == "code":
            used = update(Token).where(Token.id == caller.token, Token.revoked.is_(None)).values(revoked=time.time())
            if session.scalar(used.returning(Token.id)) is None:
                raise Unauthorized("this link to sign in has been used; request another with 'mgclust sign-in'.")
            scopes, origin = list(ROLES[caller.role]), caller.origin
            maker = session.get(Token, origin) if origin else None
            if maker is not None and maker.expires is not None:
                seconds = min(seconds, maker.expires - time.time())
        elif caller.expires is not None:
            seconds = min(seconds, caller.expires - time.time())
        _make_room(session, caller.name, origin)
        row = _row(token_of(cookie, proof), caller.name, "session", seconds, scopes, origin=origin)
        session.add(row)
    return cookie, proof, Caller(caller.name, caller.role, frozenset(scopes), row.id, row.expires, "session")


def _make_room(session: Any, user: str, origin: str | None) -> None:
    """Delete ended sessions and codes of a user, and end the oldest ones of the token `origin` if they are too many.

    Only ended ones that are older than a day are deleted. Sessions that another token has begun are not ended, because
    `origin` may have fewer scopes than that token.
    """
    check_daily(session, user, origin)
    own, now = (Token.user == user, Token.kind.in_(("session", "code"))), time.time()
    session.execute(delete(Token).where(*own, ~valid_tokens(), Token.created < now - DAY_SECONDS))
    same = (*own, Token.origin == origin, valid_tokens())
    kept = select(Token.id).where(*same).order_by(Token.created.desc()).limit(MAX_SESSIONS - 1)
    session.execute(update(Token).where(*same, Token.id.not_in(session.scalars(kept).all())).values(revoked=now))


def end(engine: Engine, caller: Caller) -> None:
    """End the session of a caller.

    Raises
    ------
    InputError
        The caller has a token instead of a session.
    """
    if caller.kind != "session":
        raise InputError("this request has no session; revoke a token with 'mgclust token revoke'.")
    with writing(engine) as session:
        session.execute(update(Token).where(Token.id == caller.token).values(revoked=time.time()))


def new_link(engine: Engine, caller: Caller, job: str, days: float) -> tuple[str, str, float]:
    """Create a link to the result of a job; return its id, its secret and when it expires.

    The link ends if the token of the caller is revoked, but not when that token expires.

    Raises
    ------
    InputError
        The number of days is invalid, or the job has too many links.
    """
    if not 0 < days <= MAX_LINK_DAYS:
        raise InputError(f"days={days} should be > 0 and <= {MAX_LINK_DAYS:g}.")
    secret = f"mgc_{secrets.token_urlsafe(32)}"
    row = _row(secret, caller.name, "link", DAY_SECONDS * days, job=job, origin=caller.maker)
    with writing(engine) as session:
        session.get(User, caller.name, with_for_update=True)
        check_daily(session, caller.name, caller.maker)
        old = (Token.user == caller.name, Token.kind == "link", Token.created < time.time() - DAY_SECONDS)
        session.execute(delete(Token).where(*old, ~valid_tokens()))
        alive = (Token.job == job, Token.revoked.is_(None), Token.expires > time.time())
        if (session.scalar(select(func.count()).where(*alive)) or 0) >= MAX_LINKS:
            raise InputError(f"job {job} has {MAX_LINKS} valid links, the maximum; revoke one first.")
        session.add(row)
    assert row.expires is not None
    return row.id, secret, row.expires


def links_of(engine: Engine, job: str) -> list[dict[str, Any]]:
    """List the links of a job that are valid, without their secrets."""
    wanted = select(Token).where(Token.job == job, Token.revoked.is_(None), Token.expires > time.time())
    with reading(engine) as session:
        return [
            {"id": link.id, "user": link.user, "created": link.created, "expires": link.expires, "used": link.used}
            for link in session.scalars(wanted.order_by(Token.created))
        ]


def revoke_link(engine: Engine, job: str, id_: str) -> float | None:
    """Revoke a link of a job; return when it would have expired, or None if there is no such link."""
    wanted = update(Token).where(Token.id == id_, Token.job == job, Token.kind == "link")
    with writing(engine) as session:
        return session.scalar(wanted.values(revoked=time.time()).returning(Token.expires))
