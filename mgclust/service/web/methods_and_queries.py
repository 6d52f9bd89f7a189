"""Requests with the method HEAD, and names of query parameters: what no endpoint checks by itself."""

from __future__ import annotations

import contextlib

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HeadRequests", "reject_unknown_parameters"]

PREFIX = "/api/v1"


class _HeadersSent(Exception):
    """The headers of an answer without a body have been sent."""


class HeadRequests:
    """Middleware that answers HEAD with the status and the headers of GET.

    Parameters
    ----------
    app : ASGIApp
        Wrapped application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
            else:  # stop here, because the body may be a file or an endless stream
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise _HeadersSent

        inner = {**scope, "method": "GET"}  # a copy, because the server looks at its own scope to send no body
        try:
            with contextlib.suppress(_HeadersSent):
                await self._app(inner, receive, send_headers)
        finally:
            for name in {"route", "path_params"}.intersection(inner):  # for the audit log
                scope[name] = inner[name]


async def reject_unknown_parameters(request: Request) -> None:
    """Reject a query with a name that the endpoint does not have, because a misspelt filter would find other jobs.

    Raises
    ------
    RequestValidationError
        The query has an unknown name.
    """
    if not request.scope["query_string"]:
        return
    # The path of a route contains the prefix of its router in some versions of FastAPI.
    path = f"{PREFIX}{request.scope['route'].path_format.removeprefix(PREFIX)}"
    described = request.app.openapi()["paths"].get(path, {}).get(request.method.lower(), {})
    known = sorted(each["name"] for each in described.get("parameters", ()) if each["in"] == "query")
    for name in request.query_params:
        if name not in known:
            remedy = f"use {', '.join(known)}" if known else "leave it out"
            message = f"this parameter is unknown; {remedy}"
            raise RequestValidationError([{"loc": ("query", name[:80]), "msg": message, "type": "unknown_query"}])
