"""Addresses for browsers that sign in at an OpenID provider."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from mgclust.base.errors import printable
from mgclust.service.addresses import network
from mgclust.service.audit import Audit
from mgclust.service.queue import sessions
from mgclust.service.queue.identities import NoAccess, caller_of
from mgclust.service.web.dependencies import BackendDep
from mgclust.service.web.pages import sign_in_problem
from mgclust.service.web.perimeter.rates import RateLimited
from mgclust.service.web.perimeter.session_cookie import set_cookie
from mgclust.service.web.sign_in.provider import Attempt, Provider, SignInFailed

__all__ = ["openid_router"]

ATTEMPT_SECONDS = 600
SESSION_DAYS = 0.5  # the groups of a user are checked again after this time
MAX_EXCHANGES = 8  # sign-ins of which the service asks the provider at the same time, one per address


class _Exchanges:
    """The sign-ins of which the service asks the provider now."""

    def __init__(self) -> None:
        self._addresses: set[str] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def of(self, address: str) -> Iterator[None]:
        """Count a sign-in of an address. One address has one, so that it does not keep others from signing in.

        Raises
        ------
        RateLimited
        """
        key = network(address)
        with self._lock:
            if key in self._addresses or len(self._addresses) >= MAX_EXCHANGES:
                raise RateLimited("several users sign in at this moment; try again soon.", 2)
            self._addresses.add(key)
        try:
            yield
        finally:
            with self._lock:
                self._addresses.remove(key)


def openid_router(provider: Provider, audit: Audit, port: int, secure: bool) -> APIRouter:
    """Make the endpoints.

    Parameters
    ----------
    provider : Provider
        The provider.
    audit : Audit
        The audit log.
    port : int
        Port of the service, which is a part of the name of the cookie.
    secure : bool
        Whether browsers send the cookie only over TLS.
    """
    router = APIRouter(prefix="/sign-in/openid", include_in_schema=False)
    name, exchanges = f"mgclust-sign-in-{port}", _Exchanges()

    def failed(request: Request, error: Exception) -> Response:
        sentence = printable(str(error))
        audit.write(action="openid_refused", source=request.state.address, error=sentence)
        return sign_in_problem(sentence)

    @router.get("")
    def leave(request: Request) -> Response:
        """Send the browser to the provider."""
        attempt = Attempt.new()
        try:
            # Without a question to the provider, there is nothing to wait for.
            with contextlib.nullcontext() if provider.is_described else exchanges.of(request.state.address):
                answer = RedirectResponse(provider.address(attempt), 303)
        except SignInFailed as error:
            return failed(request, error)
        # Lax, because the provider's page leads back to the service.
        answer.set_cookie(
            name, ".".join(attempt), max_age=ATTEMPT_SECONDS, path="/sign-in/", secure=secure, httponly=True,
            samesite="lax",
        )  # fmt: skip
        return answer

    @router.get("/callback")
    def come_back(
        request: Request,
        backend: BackendDep,
        code: Annotated[str, Query(max_length=2048)] = "",
        state: Annotated[str, Query(max_length=256)] = "",
    ) -> Response:
        """Begin a session for a user whom the provider sends back."""
        kept = request.cookies.get(name, "").split(".")
        answer: Response
        try:
            if len(kept) != 3 or not secrets.compare_digest(state.encode(), kept[0].encode()):
                raise SignInFailed("this sign-in did not begin in this browser, or took too long; sign in again.")
            if not code:
                raise SignInFailed("the provider did not sign you in.")
            with exchanges.of(request.state.address):
                claims = provider.claims(code, Attempt(*kept))
            caller = caller_of(backend.engine, backend.settings, claims)
            cookie, proof, session = sessions.begin(backend.engine, caller, SESSION_DAYS)
        except (SignInFailed, NoAccess) as error:
            answer = failed(request, error)
        else:
            audit.write(
                action="openid_sign_in", user=caller.name, role=caller.role, id=session.token,
                source=request.state.address,
            )  # fmt: skip
            answer = RedirectResponse(f"/sign-in#proof={proof}", 303)
            set_cookie(backend.settings, answer, cookie)
        answer.delete_cookie(name, path="/sign-in/", secure=secure, httponly=True, samesite="lax")
        return answer

    return router
