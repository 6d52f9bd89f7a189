"""The cookie of a browser's session: read from requests, set and removed in answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import Response

from mgclust.service.queue.access import DAY_SECONDS
from mgclust.service.queue.sessions import SESSION_DAYS, token_of
from mgclust.service.settings import Settings

__all__ = ["PROOF_HEADER", "cookie_of", "session_token", "set_cookie"]

PROOF_HEADER = "X-Mgclust-Proof"


def cookie_of(settings: Settings, what: str, path: str) -> dict[str, Any]:
    """Return the name and the attributes of a cookie.

    Over TLS, the prefix ``__Host-``, which requires the path ``/``, keeps other hosts of the same domain from setting
    the cookie. Without TLS, these hosts can set it, so the sign-in page asks the user before a session begins.

    Parameters
    ----------
    settings : Settings
        Settings of the service.
    what : str
        Use of the cookie, a part of its name.
    path : str
        Path below which browsers send the cookie, if TLS is not used.
    """
    secure, name = settings.is_secure, f"mgclust-{what}-{settings.port}"  # cookies do not distinguish ports of a host
    own = {"key": f"__Host-{name}", "path": "/"} if secure else {"key": name, "path": path}
    return {**own, "secure": secure, "httponly": True}


def _of_session(settings: Settings) -> dict[str, Any]:
    return cookie_of(settings, "session", "/api/") | {"samesite": "strict"}


def session_token(settings: Settings, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the token of the session of a request; empty if the request lacks the cookie or the proof."""
    proof, cookie, start = "", "", f"{_of_session(settings)['key']}="
    for name, value in headers:
        if name == b"x-mgclust-proof":
            proof = value.decode("latin-1")
        elif name == b"cookie":
            parts = (part.strip() for part in value.decode("latin-1").split(";"))
            cookie = next((part.removeprefix(start) for part in parts if part.startswith(start)), cookie)
    return token_of(cookie, proof) if cookie and proof else ""


def set_cookie(settings: Settings, answer: Response, cookie: str | None) -> None:
    """Set the cookie of a session, or remove it (None)."""
    seconds = int(DAY_SECONDS * SESSION_DAYS) if cookie else 0
    answer.set_cookie(value=cookie or "", max_age=seconds, **_of_session(settings))
