"""Bodies of requests other than uploads, read whole and bounded before a request is looked at."""

from __future__ import annotations

import asyncio
import contextlib
import weakref

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgclust.service.errors import answer
from mgclust.service.rates import RateLimited
from mgclust.service.readers import Busy
from mgclust.service.sources import TooLarge

__all__ = ["ShortBodies"]

MAX_BODY_BYTES = 512 << 10  # twice what a job may take in the queue
SHORT_BODY_BYTES = 16 << 10  # such bodies do not wait for each other
LONG_BODIES_PER_USER, LONG_BODIES = 8, 32  # longer ones, of a user and together, in memory at once; others wait
WAIT_SECONDS = 30.0
# Twice what 10,000 numbers of rows have, the most of what any request lists. A body of the same length with many more
# swells to a hundred times its size when it is parsed, and keeps the process busy for seconds.
DELIMITERS, MAX_DELIMITERS = (b",", b":", b"[", b"{"), 20_000


class ShortBodies:
    """Ends requests, other than uploads, that say or send more than a request needs."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turns: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()
        self._turns_in_all = asyncio.Semaphore(LONG_BODIES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a request's body whole, or refuse it, before anybody else sees the request."""
        caller = scope.get("state", {}).get("caller")
        if scope["type"] != "http" or caller is None or scope["path"].startswith("/api/v1/uploads/"):
            await self._app(scope, receive, send)  # who is not known has no body: see `Gate`
            return
        async with contextlib.AsyncExitStack() as turn:
            try:
                body = await self._body(scope, receive, caller.name, turn)
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
        """The whole body; None if the client is gone."""
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        said = int(length) if length.isdigit() else 0
        body, more, waited = bytearray(), True, False
        while more:
            if max(len(body), said) > MAX_BODY_BYTES:
                raise TooLarge(f"a request should have at most {MAX_BODY_BYTES} bytes.")
            if max(len(body), said) > SHORT_BODY_BYTES and not waited:
                waited = True
                await self._wait(user, turn)  # meanwhile the connection is not read
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
                    f"the service has received {LONG_BODIES} requests of more than {SHORT_BODY_BYTES} bytes for "
                    f"{WAIT_SECONDS:g} s; ask again in a few seconds."
                ) from None
            raise RateLimited(
                f"{user} sends more than {LONG_BODIES_PER_USER} requests of more than {SHORT_BODY_BYTES} bytes at "
                "once; wait for an answer.",
                2,
            ) from None
