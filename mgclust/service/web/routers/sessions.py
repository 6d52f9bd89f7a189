"""Endpoints for the session of a browser, and for who sends a request."""

from typing import Any

from fastapi import APIRouter

from mgclust.service.queue.access import SCOPES
from mgclust.service.web.dependencies import AnyCaller

router = APIRouter(prefix="/session")


@router.get("")
def whoami(caller: AnyCaller) -> dict[str, Any]:
    """Show the user, the role and the scopes of the token that sends the request."""
    scopes = [scope for scope in SCOPES if scope in caller.scopes]
    return {
        "user": caller.name, "role": caller.role, "scopes": scopes, "token": caller.token, "expires": caller.expires,
    }  # fmt: skip
