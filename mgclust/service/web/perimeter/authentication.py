"""Authentication and limits of requests, from their headers only.

Everything below ``/api/`` and ``/metrics`` needs a token. A request without a valid token is rejected before its body
is read. The audit log records requests that change something, fetch a result or a log, or are rejected. The route that
answered decides whether a request is recorded, and not its path: so the log and the router cannot read a path
differently. Paths with control characters are rejected.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import time
from collections import Counter
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgclust.base.errors import printable
from mgclust.service import audit
from mgclust.service.addresses import Proxies
from mgclust.service.audit import Audit
from mgclust.service.confined.turns import Busy
from mgclust.service.queue.access import TOKEN_PATTERN, Caller, Unauthorized, hash_of
from mgclust.service.settings import Settings
from mgclust.service.web.errors import CODES, RETRY_AFTER_SECONDS, NotFound, answer
from mgclust.service.web.perimeter.bodies import is_upload
from mgclust.service.web.perimeter.callers import Callers
from mgclust.service.web.perimeter.rates import RateLimited, Rates
from mgclust.service.web.perimeter.session_cookie import session_token

__all__ = ["AuthenticationMiddleware"]

STREAM_PATH = re.compile("/api/v1/jobs/[^/]+/events")
# Endpoints whose reads the audit log leaves out, because they return only descriptions. The reads of a new endpoint are
# recorded unless it is named here, and requests that may change something are always recorded.
UNRECORDED_READS = {
    "list_jobs", "status", "events", "files", "methods", "list_uploads", "list_users", "list_tokens", "list_own_tokens",
    "metrics", "openapi", "show_sweep", "show_queue", "show_health", "ids", "whoami",
    "list_links", "list_webhooks", "position",
}  # fmt: skip
CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
MAX_OPEN = {"requests": 128, "streams": 64}  # requests and streams that are open at once, per user
BEARER_PATTERN = re.compile(rb"\s*bearer\s+(\S+)\s*", re.IGNORECASE)

ENDING = "the service ends or restarts, and this request takes longer than it can wait; send the request again."


class ClientGone(Exception):
    """The client has disconnected before the end of the answer."""


class AuthenticationMiddleware:
    """Middleware that admits or rejects requests.

    Parameters
    ----------
    app : ASGIApp
        Wrapped application. It finds the ``caller``, the ``token`` (its hash) and the ``address`` of a request in
        ``scope["state"]``.
    settings : Settings
        Settings of the service.
    callers : Callers
        Finds the caller of a token.
    log : Audit
        The audit log.
    """

    def __init__(self, app: ASGIApp, settings: Settings, callers: Callers, log: Audit) -> None:
        self._app, self._settings, self._callers, self._log = app, settings, callers, log
        self._rates = Rates(settings.rate_per_token, settings.rate_per_address)
        self._proxies = Proxies(settings.trusted_proxies)
        self._open: Counter[tuple[str, str]] = Counter()  # open requests by user and kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request, or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["address"] = self._proxies.client_of(scope)
        if CONTROL_CHARACTERS.search(scope["path"]):
            await self._refuse(scope, receive, send, NotFound("no path has control characters."))
            return
        if not (scope["path"].startswith("/api/") or scope["path"] == "/metrics"):
            await self._public(scope, receive, send)
            return
        try:
            caller = await self._caller(scope)
        except Exception as error:
            if not isinstance(error, tuple(CODES)):
                raise
            await self._refuse(scope, receive, send, error)
            return
        if (connection := state.get("connection")) is not None:
            connection.admit(caller.counted_as, upload=is_upload(scope))
        await self._for_caller(caller, scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, error: Exception) -> None:
        """Reject a request, with a line in the audit log."""
        refusal = answer(error, _closing(scope))
        self._log.refused(
            source=scope["state"]["address"], action="refused", method=scope["method"], path=printable(scope["path"]),
            status=refusal.status_code,
        )  # fmt: skip
        await refusal(scope, receive, send)

    async def _public(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["path"] != "/healthz":  # not limited: a probe that restarts services must not be rejected
                self._rates.count_page(scope["state"]["address"])
        except RateLimited as error:
            await answer(error, _closing(scope))(scope, receive, send)
            return
        given = False

        async def nothing() -> Message:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": b"", "more_body": False}
            while (message := await receive())["type"] == "http.request":
                pass
            return message

        await self._app(scope, nothing, send)

    async def _caller(self, scope: Scope) -> Caller:
        """Find the caller of a request; count the request for its token or, without a valid token, for its address."""
        shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        match = BEARER_PATTERN.fullmatch(shown)
        token = (
            match[1].decode("latin-1") if match else "" if shown else session_token(self._settings, scope["headers"])
        )
        address = scope["state"]["address"]
        if not token:
            self._rates.count(None, address)
            raise Unauthorized(
                "a token is needed: set MGCLUST_TOKEN for commands and Python, send 'Authorization: Bearer TOKEN' "
                "by HTTP; 'mgclust serve' prints the path of the first token."
            )
        hash_ = hash_of(token) if TOKEN_PATTERN.fullmatch(token) else ""
        try:
            caller = await self._callers(token)
        except Unauthorized:
            self._rates.remove_token(hash_)
            self._rates.count(None, address)
            raise
        # The links of a user share one limit, because a user may make many of them.
        counted = caller.counted_as if caller.kind == "link" else hash_
        self._rates.add_token(counted)
        self._rates.count(counted, address)
        scope["state"] |= {"caller": caller, "token": hash_}
        return caller

    async def _for_caller(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        kind = "streams" if STREAM_PATH.fullmatch(scope["path"]) else "requests"
        facts: dict[str, Any] = {}
        status, begun = None, time.monotonic()

        async def send_checked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif connection is not None and connection.is_closing():
                raise ClientGone  # stop, because otherwise a file would be read to its end
            await send(message)

        connection = scope["state"].get("connection")
        key = (caller.counted_as, kind)
        if self._open[key] >= MAX_OPEN[kind]:
            refusal = RateLimited(
                f"{MAX_OPEN[kind]} {kind} of one user are open, the maximum; end one, or try again later.",
                RETRY_AFTER_SECONDS,
            )
            await answer(refusal, _closing(scope))(scope, receive, send_checked)
        else:
            self._open[key] += 1
            token = audit.noted.set(facts)
            try:
                await self._app(scope, receive, send_checked)
            except (ClientGone, ClientDisconnect):
                pass
            except asyncio.CancelledError:  # the process ends, and has waited long enough for this request
                if status is not None:
                    raise
                with contextlib.suppress(ClientGone):
                    await answer(Busy(ENDING))(scope, receive, send_checked)
            except BaseException:  # the server answers 500; the log still records changes that were made before
                status = status or 500
                raise
            finally:
                audit.noted.reset(token)
                self._open[key] -= 1
                if not self._open[key]:
                    del self._open[key]
                self._note(caller, scope, facts, status, begun)
            return
        self._note(caller, scope, facts, status, begun)

    def _note(self, caller: Caller, scope: Scope, facts: dict[str, Any], status: int | None, begun: float) -> None:
        """Write the audit line of a request, if it needs one.

        Facts from the path never replace facts that the service knows.
        """
        action = getattr(scope.get("route"), "name", None)
        if scope["method"] in ("GET", "HEAD", "OPTIONS") and (action is None or action in UNRECORDED_READS):
            return
        given = {name: printable(str(value)) for name, value in scope.get("path_params", {}).items()}
        self._log.write(
            **given | facts | {
                "user": caller.name, "token": caller.token, "source": scope["state"]["address"],
                "action": action or "none", "method": scope["method"],
                "status": status, "seconds": math.ceil(1000 * (time.monotonic() - begun)) / 1000,
            }
        )  # fmt: skip


def _closing(scope: Scope) -> dict[str, str]:
    """Return headers of a rejection; they close the connection if the client waits for permission to send a body."""
    return {"Connection": "close"} if any(name == b"expect" for name, _ in scope["headers"]) else {}
