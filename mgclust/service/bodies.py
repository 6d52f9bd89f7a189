"""Bodies of requests other than uploads, read whole and bounded before a request is looked at."""

from __future__ import annotations

import asyncio
import contextlib
import weakref

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgclust.service.problems import answer
from mgclust.service.rates import TooFast
from mgclust.service.sources import TooLarge

__all__ = ["ShortBodies"]

LONGEST = 1 << 20
SHORT = 64 << 10  # such bodies do not wait for each other
LONG_ONES = 8  # longer ones of a user that are in memory at once; others wait
WAIT = 30.0  # seconds


class ShortBodies:
    """Ends requests, other than uploads, that say or send more than a request needs."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turns: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a request's body whole, or refuse it, before anybody else sees the request."""
        caller = scope.get("state", {}).get("caller")
        if scope["type"] != "http" or caller is None or scope["path"].startswith("/api/v1/uploads/"):
            await self._app(scope, receive, send)  # who is not known has no body: see `Gate`
            return
        async with contextlib.AsyncExitStack() as turn:
            try:
                body = await self._body(scope, receive, caller.name, turn)
            except (TooFast, TooLarge) as error:
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
        said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        body, more, waited = bytearray(), True, False
        while more:
            if max(len(body), int(said) if said.isdigit() else 0) > LONGEST:
                raise TooLarge(f"a request should have at most {LONGEST} bytes.")
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > SHORT and not waited:
                waited = True
                await self._wait(user, turn)
        if len(body) > LONGEST:
            raise TooLarge(f"a request should have at most {LONGEST} bytes.")
        return bytes(body)

    async def _wait(self, user: str, turn: contextlib.AsyncExitStack) -> None:
        semaphore = self._turns.setdefault(user, asyncio.Semaphore(LONG_ONES))
        try:
            async with asyncio.timeout(WAIT):
                await turn.enter_async_context(semaphore)
        except TimeoutError:
            raise TooFast(
                f"{user} sends more than {LONG_ONES} requests of more than {SHORT} bytes at once; wait for an answer.",
                2,
            ) from None
