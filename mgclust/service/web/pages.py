"""The pages: templates of the package, the static files that they name, and security headers.

The pages hold no secret: without a session, they show a form that asks for a token. A session has a cookie that no
script can read, and a proof that the page sends in a header, which no other site can make a browser send.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import mgclust

__all__ = ["SecurityHeaders", "add_pages", "sign_in_problem"]

# Template of the page at each address.
PAGES = {
    "/": "jobs.html",
    "/jobs/{id}": "job.html",
    "/compare": "compare.html",
    "/admin": "admin.html",
    "/api": "api.html",
    "/shared": "shared.html",
    "/sign-in": "sign-in.html",
}
FOLDER = Path(__file__).parent / "pages"
# The pages look as the report does.
PALETTE = Path(mgclust.__file__).parent / "output" / "report" / "templates" / "palette.css"
TEMPLATES = Environment(
    loader=PackageLoader("mgclust.service.web"),
    autoescape=True,
    trim_blocks=True,
    undefined=StrictUndefined,
)
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

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
                    (b"cache-control", b"no-store" if path.startswith(("/api/", "/sign-in/")) else b"no-cache"),
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
    if path in PAGES or path.startswith(("/pages/", "/sign-in/")):
        return PAGE_POLICY.format(styles="", frames="'none'")
    return CLOSED_POLICY


def sign_in_problem(sentence: str) -> HTMLResponse:
    """Return the page that says why a sign-in failed. Its address holds no text, so that no other site can write one.

    Parameters
    ----------
    sentence : str
        What the page says.
    """
    return HTMLResponse(TEMPLATES.get_template(PAGES["/sign-in"]).render(problem=sentence), 403)


def add_pages(app: FastAPI) -> None:
    """Serve each page at its address, and the static files below ``/pages``."""
    files = {path.name: path for path in (*FOLDER.iterdir(), PALETTE) if path.suffix in TYPES}

    def add_page(address: str, content: str) -> None:
        tag = f'"{hashlib.sha256(content.encode()).hexdigest()[:32]}"'

        @app.get(address, include_in_schema=False)
        def page(request: Request) -> Response:
            return unless_known(request, HTMLResponse(content, headers={"ETag": tag}))

    for address, template in PAGES.items():
        add_page(address, TEMPLATES.get_template(template).render(problem=""))

    @app.get("/pages/{name}", include_in_schema=False)
    def part(request: Request, name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        path = files[name]
        return unless_known(request, FileResponse(path, media_type=TYPES[path.suffix], stat_result=path.stat()))


def unless_known(request: Request, answer: Response) -> Response:
    """Return the answer, or only its ETag if the browser already has this version."""
    tag = answer.headers["etag"]
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return answer
