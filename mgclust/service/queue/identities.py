"""Users of an OpenID provider: who a person is, and the role that the person's groups give."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine, select

from mgclust.service.queue import revocations
from mgclust.service.queue.access import NAME_PATTERN, ROLES, Caller
from mgclust.service.queue.models import User, reading, writing
from mgclust.service.settings import Settings

__all__ = ["NoAccess", "caller_of", "is_of_provider"]


class NoAccess(Exception):
    """The provider knows the person, but the service does not admit the person; the message says why."""


def caller_of(engine: Engine, settings: Settings, claims: Mapping[str, Any]) -> Caller:
    """Return the caller for verified claims; create the user at the first sign-in, and update the role at each.

    A person is identified by issuer and subject, because names may change and be given to others.

    Parameters
    ----------
    engine : Engine
        Database, from `open_database`.
    settings : Settings
        Settings of the service.
    claims : mapping
        Claims of an ID token that has been verified.

    Raises
    ------
    NoAccess
        No group of the person is admitted, the user is disabled, or the name belongs to another user.
    """
    role = _role(settings, claims)
    identity = hashlib.sha256(f"{claims['iss']}\n{claims['sub']}".encode()).hexdigest()
    with writing(engine, alone=True) as session:
        found = session.scalar(select(User).where(User.identity == identity))
        if found is None:
            name = _name(claims)
            if session.get(User, name) is not None:
                raise NoAccess(f"the name {name} belongs to another user of this service; ask its administrator.")
            # A restored database may not have a user who was disabled after the backup.
            disabled = time.time() if name in revocations.disabled_users(settings.data) else None
            found = User(name=name, role=role, identity=identity, disabled=disabled)
            session.add(found)
        if found.disabled is None:
            found.role = role
        session.flush()
        name, is_disabled = found.name, found.disabled is not None
    if is_disabled:
        raise NoAccess("this user is disabled; ask the administrator of the service.")
    return Caller(name, role, frozenset(ROLES[role]), kind="openid")


def is_of_provider(engine: Engine, name: str) -> bool:
    """Return whether a sign-in at the provider has created a user, whose name then comes from the provider."""
    with reading(engine) as session:
        return session.scalar(select(User.identity).where(User.name == name)) is not None


def _role(settings: Settings, claims: Mapping[str, Any]) -> str:
    given = claims.get(settings.oidc_groups_claim, [])
    groups = {each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str)}
    if groups & _listed(settings.oidc_admin_groups):
        return "admin"
    admitted = _listed(settings.oidc_user_groups)
    if admitted and not groups & admitted:
        raise NoAccess("none of your groups may use this service; ask its administrator.")
    return "user"


def _listed(text: str) -> set[str]:
    return {part.strip() for part in text.split(",") if part.strip()}


def _name(claims: Mapping[str, Any]) -> str:
    """Return a name that the service accepts, from the claims that name a person.

    An address that the provider has not verified may belong to somebody else.
    """
    verified = ("email",) if claims.get("email_verified") is True else ()
    for claim in ("preferred_username", *verified, "sub"):
        name = re.sub("[^a-z0-9._@-]+", "-", str(claims.get(claim, "")).lower()).lstrip("._@-")[:64]
        if NAME_PATTERN.fullmatch(name):
            return name
    raise NoAccess("the provider gives you no name that this service accepts; ask its administrator.")
