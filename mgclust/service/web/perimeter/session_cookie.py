"""The cookie of a browser's session: read from requests, set and removed in answers."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Response

from mgclust.service.queue.access import DAY_SECONDS
from mgclust.service.queue.sessions import SESSION_DAYS, token_of
from mgclust.service.settings import Settings

__all__ = ["PROOF_HEADER", "session_token", "set_cookie"]

PROOF_HEADER = "X-Mgclust-Proof"


def _name(settings: Settings) -> str:
    return f"mgclust-session-{settings.port}"  # cookies do not distinguish the ports of a host


def session_token(settings: Settings, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the token of the session of a request; empty if the request lacks the cookie or the proof."""
    proof, cookie, start = "", "", f"{_name(settings)}="
    for name, value in headers:
        if name == b"x-mgclust-proof":
            proof = value.decode("latin-1")
        elif name == b"cookie":
            parts = (part.strip() for part in value.decode("latin-1").split(";"))
            cookie = next((part.removeprefix(start) for part in parts if part.startswith(start)), cookie)
    return token_of(cookie, proof) if cookie and proof else ""


def set_cookie(settings: Settings, answer: Response, cookie: str | None) -> None:
    """Set the cookie of a session, or remove it (None)."""
    answer.set_cookie(
        _name(settings), cookie or "", max_age=int(DAY_SECONDS * SESSION_DAYS) if cookie else 0, path="/api/",
        secure=settings.public_url.startswith("https://"), httponly=True, samesite="strict",
    )  # fmt: skip
