"""What the service answers to what it refuses: one sentence, and whose fault it is."""

from __future__ import annotations

import errno
import json

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgclust.errors import InputError
from mgclust.service.access import LastToken, Refused
from mgclust.service.disk import InUse, NoRoom
from mgclust.service.jobs import TooMany
from mgclust.service.rates import TooFast
from mgclust.service.readers import Busy
from mgclust.service.records import full
from mgclust.service.sources import TooLarge

__all__ = ["NotFound", "Problem", "ShortBodies", "answer_problems"]

LONGEST_BODY = 1 << 20  # of what is not an upload
AGAIN = 2  # seconds after which a database that does not answer is asked again
NO_SPACE = "there is no space left where the service keeps its jobs; free some, then ask again."


class Problem(BaseModel):
    """What went wrong."""

    error: str
    fault: str | None = None


class NotFound(Exception):
    """There is none, or none for this caller."""


def answer_problems(app: FastAPI) -> None:
    """One sentence for everything that is refused."""
    codes: dict[type[Exception], int] = {
        InputError: 400, Refused: 401, PermissionError: 403, NotFound: 404, LastToken: 409, InUse: 409,
        TooLarge: 413, TooMany: 429, TooFast: 429, NoRoom: 507, OSError: 507, DataError: 400, DBAPIError: 503,
        NoConnection: 503, Busy: 503,
    }  # fmt: skip

    def answer(request: Request, error: Exception) -> JSONResponse:
        code = next(code for kind, code in codes.items() if isinstance(error, kind))
        headers, sentence = {}, str(error)
        if isinstance(error, (TooFast, Busy)):
            headers["Retry-After"] = str(error.after)
        elif isinstance(error, Refused):
            headers["WWW-Authenticate"] = "Bearer"
        elif isinstance(error, OSError) and code == 507:
            if error.errno != errno.ENOSPC:
                raise error  # nothing that whoever asks could mend
            sentence = NO_SPACE
        elif isinstance(error, DataError):
            sentence = "the request holds what the database does not take, such as a NUL in a text; leave it out."
        elif isinstance(error, DBAPIError) and full(error):
            code, sentence = 507, NO_SPACE
        elif isinstance(error, (DBAPIError, NoConnection)):
            if isinstance(error, DBAPIError) and not (
                isinstance(error, OperationalError) or error.connection_invalidated
            ):
                raise error  # ours
            headers["Retry-After"], sentence = str(AGAIN), "the service's database does not answer; ask again soon."
        theirs = code in (400, 413) or isinstance(error, NoRoom)
        fault = "input" if theirs else "cluster" if code in (503, 507) else None
        return JSONResponse({"error": sentence, "fault": fault}, code, headers)

    def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        sentence = f"{where or 'the request'}: {first['msg']}."
        return JSONResponse({"error": sentence, "fault": "input"}, 422)

    def unheard(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        sentences = {
            404: "there is nothing at this path.",
            405: f"{request.method} is not possible here.",
            400: "the request cannot be read; send JSON in UTF-8, not nested deeply, no number of thousands of digits.",
        }
        sentence = sentences.get(error.status_code, f"{error.detail}.")
        fault = "input" if error.status_code == 400 else None
        return JSONResponse({"error": sentence, "fault": fault}, error.status_code, error.headers)

    for kind in codes:
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, unheard)


class ShortBodies:
    """Ends requests, other than uploads, that say or send more than a request needs."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a request's body whole, or refuse it, before anybody else sees the request."""
        if scope["type"] != "http" or scope["path"].startswith("/api/v1/uploads/"):
            await self._app(scope, receive, send)
            return
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > LONGEST_BODY:
                body = json.dumps({"error": f"a request should have at most {LONGEST_BODY} bytes.", "fault": "input"})
                await send({"type": "http.response.start", "status": 413,
                            "headers": [(b"content-type", b"application/json")]})  # fmt: skip
                await send({"type": "http.response.body", "body": body.encode()})
                return
        body_given = False

        async def replay() -> Message:
            nonlocal body_given
            if body_given:
                return await receive()
            body_given = True
            return {"type": "http.request", "body": b"".join(parts), "more_body": False}

        await self._app(scope, replay, send)
