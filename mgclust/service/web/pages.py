"""The pages: static files of the package, with security headers.

The pages hold no secret: without a session, they show a form that asks for a token. A session has a cookie that no
script can read, and a proof that the page sends in a header, which no other site can make a browser send.
"""

from __future__ import annotations

import html
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import mgclust

__all__ = ["SecurityHeaders", "add_pages", "sign_in_problem"]

FOLDER = Path(__file__).parent / "pages"
# The pages look as the report does.
PALETTE = Path(mgclust.__file__).parent / "output" / "report" / "templates" / "palette.css"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'{styles}; img-src 'self' blob: data:; connect-src 'self'; "
    "frame-src {frames}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Policy of answers that are not pages: if they are opened as a page, they may load and run nothing.
CLOSED_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
]


class SecurityHeaders:
    """Middleware that adds security headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = scope["path"]
                message["headers"] = [
                    *message["headers"],
                    *HEADERS,
                    (b"content-security-policy", policy(path).encode()),
                    (b"cache-control", b"no-store" if path.startswith("/api/") else b"no-cache"),
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def policy(path: str) -> str:
    """Return the content security policy of a path.

    The page of a job shows the report as a document in memory, in a frame without scripts. Such a document
    has the policy of the page that creates it, so the page of a job has to allow everything that the report needs:
    styles, and nothing else.
    """
    if path.startswith("/jobs/") or path == "/shared":
        return PAGE_POLICY.format(styles=" 'unsafe-inline'", frames="blob:")
    if path in ("/", "/admin", "/api", "/compare", "/sign-in") or path.startswith(("/pages/", "/sign-in/")):
        return PAGE_POLICY.format(styles="", frames="'none'")
    return CLOSED_POLICY


def sign_in_problem(sentence: str) -> HTMLResponse:
    """Return the page that says why a sign-in failed. Its address holds no text, so that no other site can write one.

    Parameters
    ----------
    sentence : str
        What the page says.
    """
    empty = '<p id="problem" class="problem" role="alert" hidden></p>'
    page = (FOLDER / "sign-in.html").read_text()
    return HTMLResponse(page.replace(empty, empty.replace(" hidden></p>", f">{html.escape(sentence)}</p>")), 403)


def add_pages(app: FastAPI) -> None:
    """Serve the list of jobs at ``/``, other pages, and their files below ``/pages``.

    The page of a job is at ``/jobs/ID``, the page that compares jobs at ``/compare``, and the page of administrators at
    ``/admin``.
    """
    files = {path.name: path for path in (*FOLDER.iterdir(), PALETTE) if path.suffix in TYPES}

    def page(request: Request, name: str) -> Response:
        path = files[name]
        file = FileResponse(path, media_type=TYPES[path.suffix], stat_result=path.stat())
        tag = file.headers["etag"]
        if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return file

    @app.get("/", include_in_schema=False)
    def jobs(request: Request) -> Response:
        return page(request, "jobs.html")

    @app.get("/compare", include_in_schema=False)
    def compare(request: Request) -> Response:
        return page(request, "compare.html")

    @app.get("/admin", include_in_schema=False)
    def administration(request: Request) -> Response:
        return page(request, "admin.html")

    @app.get("/jobs/{id}", include_in_schema=False)
    def job(request: Request, id: str) -> Response:
        return page(request, "job.html")

    @app.get("/api", include_in_schema=False)
    def api(request: Request) -> Response:
        return page(request, "api.html")

    @app.get("/shared", include_in_schema=False)
    def shared(request: Request) -> Response:
        return page(request, "shared.html")

    @app.get("/sign-in", include_in_schema=False)
    def sign_in(request: Request) -> Response:
        return page(request, "sign-in.html")

    @app.get("/pages/{name}", include_in_schema=False)
    def part(request: Request, name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return page(request, name)
