"""Bodies of requests, except uploads: they are read completely, within limits, before the request is handled."""

from __future__ import annotations

import asyncio
import contextlib
import re
import weakref

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgclust.service.confined.reader_pool import Busy
from mgclust.service.queue.sources import TooLarge
from mgclust.service.web.errors import answer
from mgclust.service.web.perimeter.rates import RateLimited

__all__ = ["ShortBodies", "is_upload"]

MAX_BODY_BYTES = 512 << 10  # twice the limit of a job in the queue
SHORT_BODY_BYTES = 16 << 10  # bodies up to this size do not wait
LONG_BODIES_PER_USER, LONG_BODIES = 8, 32  # longer bodies in memory at once, per user and in total; others wait
WAIT_SECONDS = 30.0
# At most twice as many delimiters as in a list of 10,000 row numbers, the longest list in a request. A body of the same
# length with many more delimiters takes a hundred times its size in memory, and seconds to parse.
DELIMITERS, MAX_DELIMITERS = (b",", b":", b"[", b"{"), 20_000
UPLOAD_PATH = re.compile("/api/v1/uploads/[^/]+")


def is_upload(scope: Scope) -> bool:
    """Return whether the route of uploads answers a request. This route alone bounds and reads its body itself."""
    return scope["method"] == "PUT" and UPLOAD_PATH.fullmatch(scope["path"]) is not None


class ShortBodies:
    """Middleware that reads the bodies of requests, except uploads, and rejects requests with too long bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turns: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()
        self._turns_in_all = asyncio.Semaphore(LONG_BODIES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body of a request, or reject it, before the request is handled."""
        caller = scope.get("state", {}).get("caller")
        if scope["type"] != "http" or caller is None or is_upload(scope):
            # Requests without a caller have no body here: `AuthenticationMiddleware` passes on an empty body.
            await self._app(scope, receive, send)
            return
        async with contextlib.AsyncExitStack() as turn:
            try:
                body = await self._body(scope, receive, caller.counted_as, turn)
            except (Busy, RateLimited, TooLarge) as error:
                await answer(error)(scope, receive, send)
                return
            if body is None:
                return
            given = False

            async def replay() -> Message:
                nonlocal given
                if given:
                    return await receive()
                given = True
                return {"type": "http.request", "body": body, "more_body": False}

            await self._app(scope, replay, send)

    async def _body(self, scope: Scope, receive: Receive, user: str, turn: contextlib.AsyncExitStack) -> bytes | None:
        """Read the body; return None if the client has disconnected."""
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        announced = int(length) if length.isdigit() else 0
        body, more, waited = bytearray(), True, False
        while more:
            if max(len(body), announced) > MAX_BODY_BYTES:
                raise TooLarge(f"a request should have at most {MAX_BODY_BYTES} bytes.")
            if max(len(body), announced) > SHORT_BODY_BYTES and not waited:
                waited = True
                await self._wait(user, turn)  # nothing is read from the connection meanwhile
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if len(body) > MAX_BODY_BYTES:
            raise TooLarge(f"a request should have at most {MAX_BODY_BYTES} bytes.")
        if len(body) > MAX_DELIMITERS and sum(map(body.count, DELIMITERS)) > MAX_DELIMITERS:
            raise TooLarge(f"a request should have at most {MAX_DELIMITERS} commas, colons and opening brackets.")
        return bytes(body)

    async def _wait(self, user: str, turn: contextlib.AsyncExitStack) -> None:
        semaphore, of_user = self._turns.setdefault(user, asyncio.Semaphore(LONG_BODIES_PER_USER)), True
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await turn.enter_async_context(semaphore)
                of_user = False
                await turn.enter_async_context(self._turns_in_all)
        except TimeoutError:
            if not of_user:
                raise Busy(
                    f"the service has been receiving {LONG_BODIES} requests of more than {SHORT_BODY_BYTES} bytes for "
                    f"{WAIT_SECONDS:g} s; try again in a few seconds."
                ) from None
            raise RateLimited(
                f"one user sends more than {LONG_BODIES_PER_USER} requests of more than {SHORT_BODY_BYTES} bytes at "
                "once; wait for an answer.",
                2,
            ) from None
