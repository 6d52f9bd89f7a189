"""Addresses for browsers that sign in at an OpenID provider."""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from mgclust.base.errors import printable
from mgclust.service.addresses import network
from mgclust.service.audit import Audit
from mgclust.service.queue import sessions
from mgclust.service.queue.identities import NoAccess, caller_of
from mgclust.service.settings import Settings
from mgclust.service.web.dependencies import BackendDep
from mgclust.service.web.pages import sign_in_problem
from mgclust.service.web.perimeter.rates import RateLimited
from mgclust.service.web.perimeter.session_cookie import cookie_of, set_cookie
from mgclust.service.web.sign_in.provider import Attempt, Provider, SignInFailed

__all__ = ["openid_router"]

ATTEMPT_SECONDS = 600
SESSION_DAYS = 0.5  # the groups of a user are checked again after this time
MAX_EXCHANGES = 8  # sign-ins that wait for the provider at the same time, at most one per network
NETWORK_BITS = 48  # prefix length of an IPv6 network, whose addresses count as one
MAX_PAUSE_SECONDS = 10.0  # longest pause after failed sign-ins of a network; the first pause is 1 s, and each doubles
MAX_FAILURES = 10_000  # networks whose failures are remembered


class _Exchanges:
    """The sign-ins that wait for the provider now, and the networks whose last sign-ins failed."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()  # number of failures, end of the pause
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def of(self, address: str) -> Iterator[None]:
        """Allow one sign-in of a network at a time, and none during the pause after a failure.

        So a person with many addresses cannot keep others from signing in.

        Raises
        ------
        RateLimited
            Another sign-in of the network waits for the provider, too many sign-ins wait, or the pause has not ended.
        """
        key = network(address, NETWORK_BITS)
        with self._lock:
            failures, begin = self._failures.get(key, (0, 0.0))
            if (rest := math.ceil(begin - time.monotonic())) > 0:
                raise RateLimited(f"the last sign-in from your network failed; try again in {rest} s.", rest)
            if key in self._open or len(self._open) >= MAX_EXCHANGES:
                raise RateLimited("several users sign in at this moment; try again soon.", 2)
            self._open.add(key)
        try:
            yield
            with self._lock:
                self._failures.pop(key, None)
        except SignInFailed:
            with self._lock:
                pause = min(2.0**failures, MAX_PAUSE_SECONDS)
                self._failures[key] = (failures + 1, time.monotonic() + pause)
                self._failures.move_to_end(key)
                if len(self._failures) > MAX_FAILURES:
                    self._failures.popitem(last=False)
            raise
        finally:
            with self._lock:
                self._open.remove(key)


def openid_router(settings: Settings, provider: Provider, audit: Audit) -> APIRouter:
    """Make the endpoints.

    Parameters
    ----------
    settings : Settings
        Settings of the service.
    provider : Provider
        The provider.
    audit : Audit
        The audit log.
    """
    router = APIRouter(prefix="/sign-in/openid", include_in_schema=False)
    # Lax, because the provider's page leads back to the service.
    kept_in, exchanges = cookie_of(settings, "sign-in", "/sign-in/") | {"samesite": "lax"}, _Exchanges()

    def failed(request: Request, error: Exception) -> Response:
        sentence = printable(str(error))
        audit.refused(action="openid_refused", source=request.state.address, error=sentence)
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
        answer.set_cookie(value=".".join(attempt), max_age=ATTEMPT_SECONDS, **kept_in)
        return answer

    @router.get("/callback")
    def come_back(
        request: Request,
        backend: BackendDep,
        code: Annotated[str, Query(max_length=2048)] = "",
        state: Annotated[str, Query(max_length=256)] = "",
    ) -> Response:
        """Begin a session for a user whom the provider sends back."""
        kept = request.cookies.get(kept_in["key"], "").split(".")
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
        answer.delete_cookie(**kept_in)
        return answer

    return router
