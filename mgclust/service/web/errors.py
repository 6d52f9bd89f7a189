"""Errors of the API: a status code, a message, and the kind of fault."""

from __future__ import annotations

import errno
import html
import os
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.exceptions import HTTPException

from mgclust.base.errors import InputError, RunFailed, printable
from mgclust.service.confined.reader_pool import Busy
from mgclust.service.queue.access import LastToken, Unauthorized
from mgclust.service.queue.jobs.submission import TooManyJobs
from mgclust.service.queue.models import DatabaseLost, full, read_only
from mgclust.service.queue.quotas import QuotaExceeded
from mgclust.service.queue.removal import InUse
from mgclust.service.queue.sources import TooLarge
from mgclust.service.web.patterns import SAYS
from mgclust.service.web.perimeter.rates import RateLimited

__all__ = ["NotFound", "Problem", "answer", "answer_problems"]

RETRY_AFTER_SECONDS = 2  # how long clients wait if the database does not answer, or too many requests are open
READ_ONLY = "the service's database cannot be written at present, so nothing was changed; try again later."
NO_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT)
NO_SPACE = "there is no space left where the service keeps its jobs; free some space, then try again."

# The answer to a browser that opens an unknown address. Its policy lets it load nothing, so it has no style.
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Not found - mgclust</title></head>
<body><main><h1>Not found</h1><p>At this address, {sentence}</p><p><a href="/">All jobs</a></p></main></body></html>
"""


class Problem(BaseModel):
    """An error, as the API reports it."""

    error: str
    fault: str | None = None


class NotFound(Exception):
    """The requested object does not exist, or the caller may not see it."""


CODES: dict[type[Exception], int] = {
    InputError: 400, Unauthorized: 401, PermissionError: 403, NotFound: 404, LastToken: 409, InUse: 409, TooLarge: 413,
    TooManyJobs: 429, RateLimited: 429, QuotaExceeded: 507, OSError: 507, DataError: 400, DBAPIError: 503,
    RunFailed: 502, NoConnection: 503, Busy: 503, DatabaseLost: 503,
}  # fmt: skip


def answer(error: Exception, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the response to an error in `CODES`; raise an internal error again."""
    if isinstance(error, OSError) and error.errno not in (None, *NO_SPACE_ERRORS):
        raise error  # an internal error: errors of requests, such as "only an administrator ...", have no number
    code = next(code for kind, code in CODES.items() if isinstance(error, kind))
    headers, sentence = dict(headers or {}), str(error)
    if isinstance(error, (RateLimited, Busy)):
        headers["Retry-After"] = str(error.after)
    elif isinstance(error, DatabaseLost):
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    elif isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(error, OSError) and error.errno is not None:
        sentence = NO_SPACE
    elif isinstance(error, DataError):
        sentence = "the request holds characters that the database rejects, such as a NUL; leave them out."
    elif isinstance(error, DBAPIError) and full(error):
        code, sentence = 507, NO_SPACE
    elif isinstance(error, DBAPIError) and read_only(error):
        headers["Retry-After"], sentence = str(RETRY_AFTER_SECONDS), READ_ONLY
    elif isinstance(error, (DBAPIError, NoConnection)):
        if isinstance(error, DBAPIError) and not (isinstance(error, OperationalError) or error.connection_invalidated):
            raise error  # an internal error
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
        sentence = "the service's database does not answer; try again soon."
    of_request = code in (400, 413) or isinstance(error, QuotaExceeded)
    fault = "input" if of_request else "cluster" if code in (503, 507) else None
    return _problem(sentence, fault, code, headers)


def _problem(sentence: str, fault: str | None, code: int, headers: Mapping[str, str] | None = None) -> JSONResponse:
    # A message may quote names and values from files and requests: no control characters may reach a terminal.
    return JSONResponse({"error": printable(sentence), "fault": fault}, code, headers)


def answer_problems(app: FastAPI) -> None:
    """Add handlers that answer every error with a message of one sentence."""

    def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        context = first.get("ctx", {})
        says = SAYS.get(context.get("pattern"), first["msg"])
        if first["type"] in ("too_short", "too_long"):  # the value is a list
            bound = (
                f"at least {context['min_length']}" if "min_length" in context else f"at most {context['max_length']}"
            )
            says = f"give {bound}"
        elif first["type"] == "extra_forbidden":
            says = "this name is unknown; leave it out"
        sentence = f"{where or 'the request'}: {says}."
        return _problem(sentence, "input", 422)

    def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        sentences = {
            404: "there is nothing at this path.",
            405: f"{request.method} is not possible here.",
            400: "the request cannot be read; send UTF-8 JSON that is not deeply nested, and has no number of "
            "thousands of digits.",
        }
        sentence = sentences.get(error.status_code, f"{error.detail}.")
        if not request.url.path.startswith("/api/") and "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(PAGE.format(sentence=html.escape(sentence)), error.status_code, error.headers)
        fault = "input" if error.status_code in (400, 416) else None
        return _problem(sentence, fault, error.status_code, error.headers)

    async def known(request: Request, error: Exception) -> JSONResponse:
        return answer(error)

    async def internal(request: Request, error: Exception) -> JSONResponse:
        # The server also prints the traceback. The message of the error stays there: it may name paths of the service.
        reason = f" ({os.strerror(error.errno)})" if isinstance(error, OSError) and error.errno else ""
        sentence = f"the service failed{reason}; try again, or ask the administrator to look at the service's log."
        return _problem(sentence, "mgclust", 500)

    app.add_exception_handler(Exception, internal)
    for kind in CODES:
        app.add_exception_handler(kind, known)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)
