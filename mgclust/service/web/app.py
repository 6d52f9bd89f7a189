"""The web application: /api/v1, its description at /api/v1/openapi.json, /healthz and /metrics, and the pages.

A request sends a token (``Authorization: Bearer ...``), which `AuthenticationMiddleware` checks first. An error is
answered with a message, ``{"error": ..., "fault": ...}``. A job or upload of another user is "not found", as if it did
not exist.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Depends, FastAPI
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware

from mgclust import __version__
from mgclust.base.errors import InputError
from mgclust.service.audit import Audit
from mgclust.service.confined.reader_pool import Readers
from mgclust.service.queue import removal, revocations, sources
from mgclust.service.queue.jobs.changes import JobChanges
from mgclust.service.queue.jobs.lists import JobLists
from mgclust.service.queue.jobs.submission import JobSubmission
from mgclust.service.queue.metrics import Metrics
from mgclust.service.queue.models import check_data_folder, migrate, open_database
from mgclust.service.queue.stores import read_stores
from mgclust.service.settings import Settings
from mgclust.service.web.dependencies import Backend
from mgclust.service.web.errors import Problem, answer_problems
from mgclust.service.web.health import Health
from mgclust.service.web.methods_and_queries import HeadRequests, reject_unknown_parameters
from mgclust.service.web.pages import SecurityHeaders, add_pages
from mgclust.service.web.perimeter.authentication import AuthenticationMiddleware
from mgclust.service.web.perimeter.batches import Batched
from mgclust.service.web.perimeter.bodies import ShortBodies
from mgclust.service.web.perimeter.callers import Callers
from mgclust.service.web.routers import admin, jobs, links, monitoring, results, sessions, sweeps, uploads, webhooks
from mgclust.service.web.streams import Streams
from mgclust.service.web.views import job_summary

__all__ = ["create_app"]


def create_app(settings: Settings) -> FastAPI:
    """Make the web application, and migrate the database to this version."""
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    engine = open_database(settings.database)
    migrate(engine)
    check_data_folder(engine, settings.data)
    revocations.reapply(engine, settings.data)
    removal.sweep(engine, settings)
    audit = Audit(settings.audit_path)
    lists, submission, callers = JobLists(engine), JobSubmission(engine, settings), Callers(engine)
    backend = Backend(
        settings=settings, engine=engine, jobs=lists, submission=submission,
        changes=JobChanges(engine, settings), readers=Readers(settings), callers=callers,
        streams=Streams(lists, callers, lambda row: job_summary(row).model_dump_json()),
        health=Health(engine, settings.hung_after), metrics=Metrics(engine, settings, audit),
        stores=read_stores(settings), submit=Batched(submission.submit),
        find_upload=Batched(functools.partial(sources.find_uploads, engine, settings)),
    )  # fmt: skip

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(backend.health.watch())
        yield
        watching.cancel()
        backend.readers.close()
        audit.close()

    app = FastAPI(
        title="mgclust", version=__version__, openapi_url="/api/v1/openapi.json", docs_url=None, redoc_url=None,
        lifespan=lifespan, redirect_slashes=False,  # a redirect would repeat the host name of the request
    )  # fmt: skip
    app.state.backend = backend
    # Each middleware wraps the middleware that was added before it.
    app.add_middleware(HeadRequests)
    app.add_middleware(ShortBodies)
    # Results may be large, and are fetched in ranges: they are sent as they are.
    app.add_middleware(
        GZipMiddleware, compresslevel=6,
        exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream"),
    )  # fmt: skip
    app.add_middleware(AuthenticationMiddleware, settings=settings, callers=callers, log=audit)
    app.add_middleware(SecurityHeaders)
    answer_problems(app)
    refusals: dict[int | str, dict[str, Any]] = {
        code: {"model": Problem} for code in (400, 401, 403, 404, 409, 413, 422, 429, 502, 503, 507)
    }
    checks = [Depends(reject_unknown_parameters)]
    # Included one by one, because nested routers would be searched twice.
    for part in (jobs, sweeps, results, links, uploads, admin, sessions, webhooks):
        app.include_router(part.router, prefix="/api/v1", responses=refusals, dependencies=checks)
    app.include_router(monitoring.router)
    if settings.oidc_issuer:
        _add_openid(app, settings, audit)
    add_pages(app)
    return app


def _add_openid(app: FastAPI, settings: Settings, audit: Audit) -> None:
    try:
        from mgclust.service.web.sign_in.endpoints import openid_router
        from mgclust.service.web.sign_in.provider import Provider
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed, and oidc_issuer needs it; run pip install 'mgclust[sso]'."
        ) from error
    app.include_router(openid_router(settings, Provider(settings), audit))
