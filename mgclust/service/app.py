"""The service over HTTP: /api/v1, its description at /api/v1/openapi.json, /healthz and /metrics, and its pages.

Who asks shows a token (``Authorization: Bearer ...``). What goes wrong is a sentence, ``{"error": ..., "fault": ...}``.
A job or upload of somebody else is "not found", like one that is not there.
"""

import asyncio
import functools
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool

from mgclust import __version__
from mgclust.beneath import Beneath
from mgclust.errors import InputError
from mgclust.service import access, decision, disk, sources
from mgclust.service.access import Caller, Refused
from mgclust.service.batches import Batched
from mgclust.service.inputs import named_sources
from mgclust.service.jobs import ENDED, Jobs, Order, job_id
from mgclust.service.metrics import Metrics
from mgclust.service.pages import SecurityHeaders, add_pages
from mgclust.service.problems import NotFound, Problem, ShortBodies, answer_problems
from mgclust.service.rates import Rates
from mgclust.service.readers import Readers
from mgclust.service.records import Job, belong_together, migrate, open_database, reading
from mgclust.service.requests import Submission, describe_methods
from mgclust.service.settings import Settings

__all__ = ["create_app"]

LOOK = 0.5  # seconds between two looks at a job that is watched
ASK = 3.0  # seconds after which whoever watches is asked for again: a token may have been revoked
KEEP_ALIVE = 15.0
LOG_BYTES = 1 << 20


class Progress(BaseModel):
    """How far an attempt is, with whatever figures its method adds."""

    model_config = ConfigDict(extra="allow")
    stage: str | None = None
    fraction: float | None = Field(None, description="Of the stage, from 0 to 1.")
    elapsed: float | None = Field(None, description="Seconds since the computation began.")
    stage_rate: float | None = Field(None, description="The share of the stage that is done in a second, smoothed.")
    stage_eta: float | None = Field(None, description="Seconds until the stage, not the job, has ended.")


class JobView(BaseModel):
    """A job as its owner sees it."""

    model_config = ConfigDict(extra="allow")
    id: str
    owner: str
    method: str
    state: Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
    priority: int
    attempt: int
    created: float
    started: float | None
    finished: float | None
    progress: Progress | None
    scores: dict[str, Any] | None
    error: str | None
    fault: str | None
    size: int | None = Field(description="Bytes that it keeps in the database, and kept on disk when it last ended.")
    request: dict[str, Any]


class JobSummary(BaseModel):
    """A job as lists and events tell of it: without its request."""

    id: str
    owner: str
    method: str
    state: Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]
    priority: int
    attempt: int
    created: float
    started: float | None
    finished: float | None
    progress: Progress | None
    scores: dict[str, Any] | None = Field(description="Null also where they are long; the job has them.")
    error: str | None = Field(description="Its beginning where it is long.")
    fault: str | None
    size: int | None = Field(description="Bytes that it keeps in the database, and kept on disk when it last ended.")
    sources: list[str] = Field(description="Names of the first ones.")
    n_sources: int
    parent: str | None = Field(description="The job of whose result this one keeps other centres.")


class NewUser(BaseModel):
    """A user to make."""

    name: str
    role: str = "user"


class NewToken(BaseModel):
    """Whom a token is for."""

    user: str


def view(job: Job) -> JobView:
    """What is told of a job."""
    return JobView(**{name: getattr(job, name) for name in JobView.model_fields})


def brief(row: Any) -> JobSummary:
    """What lists tell of a job."""
    told = {"sources": [], "n_sources": 0, "parent": None} | (row.summary or {})
    return JobSummary(**told, **{name: getattr(row, name) for name in JobSummary.model_fields if name not in told})


def create_app(settings: Settings) -> FastAPI:
    """Make the web application; the database is brought up to date."""
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    engine = open_database(settings.database)
    migrate(engine)
    belong_together(engine, settings.data)
    disk.sweep(engine, settings)
    jobs, figures = Jobs(engine, settings), Metrics(engine, settings)
    readers = Readers(settings)
    app = FastAPI(
        title="mgclust", version=__version__, openapi_url="/api/v1/openapi.json", docs_url=None, redoc_url=None
    )
    app.add_middleware(ShortBodies)
    app.add_middleware(SecurityHeaders)  # around all others, whose answers have them as well
    answer_problems(app)
    bearer = HTTPBearer(auto_error=False, description="A token of the service.")

    rates = Rates(settings.rate_per_token, settings.rate_per_address)
    callers = Batched[str, Caller](functools.partial(access.callers_of, engine))
    uploads = Batched[tuple[Caller, str], Beneath](functools.partial(sources.find_uploads, engine, settings))
    submits = Batched[Order, Job](jobs.submit)

    async def caller(
        request: Request, shown: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
    ) -> Caller:
        token = None if shown is None else access.hash_of(shown.credentials)
        rates.ask(token, request.client.host if request.client else "")
        if token is None:
            raise Refused(
                "a token is needed: commands and Python take MGCLUST_TOKEN, HTTP 'Authorization: Bearer TOKEN'; "
                "'mgclust serve' says where its first one is."
            )
        try:
            who = await callers(token)
        except Refused:
            rates.forget(token)
            raise
        rates.know(token)
        return who

    async def admin(who: Annotated[Caller, Depends(caller)]) -> Caller:
        if not who.is_admin:
            raise PermissionError("only an administrator may do this.")
        return who

    Who = Annotated[Caller, Depends(caller)]
    Admin = Annotated[Caller, Depends(admin)]
    answers: dict[int | str, dict[str, Any]] = {
        code: {"model": Problem} for code in (400, 401, 403, 404, 409, 413, 422, 429, 503, 507)
    }
    api = APIRouter(prefix="/api/v1", responses=answers)

    def found(job: Any) -> Any:
        if job is None:
            raise NotFound("there is no such job.")
        return job

    def result(id: str, who: Who) -> Iterator[tuple[Job, Path]]:
        job = found(jobs.get(who, id))
        folder = _result(settings, job)
        try:
            yield job, folder
        except (InputError, FileNotFoundError):
            if folder.is_dir():
                raise
            found(None)  # it was deleted while it was being read

    Result = Annotated[tuple[Job, Path], Depends(result)]

    @api.get("/methods")
    def methods(who: Who) -> dict[str, Any]:
        """What can be asked for."""
        return describe_methods()

    @api.post("/jobs", status_code=201)
    async def submit(submission: Submission, who: Who) -> JobView:
        """Queue a job."""
        submission.check()
        if submission.priority > 0 and not who.is_admin:
            raise PermissionError(
                f"priority={submission.priority} should be <= 0: only administrators put jobs before those of others."
            )
        settings.check_resources(submission.resources.model_dump())
        id_, record = job_id(who, submission.key), submission.to_record()
        for source in named_sources(record).values():
            if "upload" in source:
                await uploads((who, source["upload"]))
            else:
                await run_in_threadpool(sources.resolve, engine, settings, who, source, settings.data)
        return view(await submits(Order(id_, who, submission.method, record, submission.priority)))

    @api.get("/jobs")
    def list_jobs(
        who: Who,
        state: Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"] | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        before: Annotated[str | None, Query(max_length=64, description="id of the last job of the page before")] = None,
    ) -> list[JobSummary]:
        """One's own jobs, newest first, without their requests; fewer than `limit` where they are long."""
        last = None
        if before is not None:
            row = found(jobs.brief(who, before))
            last = (row.created, row.id)
        return [brief(row) for row in jobs.latest(who, state, limit, last)]

    @api.get("/jobs/{id}")
    def status(id: str, who: Who) -> JobView:
        """One job."""
        return view(found(jobs.get(who, id)))

    @api.post("/jobs/{id}/cancel")
    def cancel(id: str, who: Who) -> JobView:
        """Ask for a job's end; nothing changes if it has ended."""
        return view(found(jobs.cancel(who, id)))

    @api.post("/jobs/{id}/retry")
    def retry(id: str, who: Who) -> JobView:
        """Queue a job again that failed or was cancelled."""
        return view(found(jobs.retry(who, id)))

    @api.delete("/jobs/{id}")
    def delete(id: str, who: Who) -> JobView:
        """Remove a job that has ended, with its files and log; what it was."""
        return view(found(jobs.delete(who, id)))

    @api.get("/jobs/{id}/events", response_class=StreamingResponse)
    async def events(
        id: str, who: Who, shown: Annotated[HTTPAuthorizationCredentials, Depends(bearer)]
    ) -> StreamingResponse:
        """The job whenever it changes, without its request, as server-sent events, until it has ended."""
        found(await run_in_threadpool(jobs.brief, who, id))
        return StreamingResponse(
            _changes(jobs, lambda: callers(access.hash_of(shown.credentials)), id), media_type="text/event-stream"
        )

    @api.get("/jobs/{id}/log", response_class=PlainTextResponse)
    def log(id: str, who: Who) -> PlainTextResponse:
        """The logs of all attempts, the end of each where it is long."""
        job = found(jobs.get(who, id))
        parts = []
        for attempt in range(1, job.attempt + 1):
            text = _end_of(settings.attempt_folder(job.id, attempt) / "log.txt")
            parts.append(f"attempt {attempt}\n{text}" if job.attempt > 1 else text)
        return PlainTextResponse("".join(parts))

    @api.get("/jobs/{id}/files")
    def files(result: Result) -> list[dict[str, Any]]:
        """What the result consists of: names and sizes."""
        _, folder = result
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return [{"name": str(path.relative_to(folder)), "size": path.stat().st_size} for path in paths]

    @api.get("/jobs/{id}/files/{name:path}", response_class=FileResponse)
    def file(name: str, result: Result) -> FileResponse:
        """One file of the result, or a range of it."""
        _, folder = result
        path = Path(os.path.realpath(folder / name)) if "\0" not in name else folder
        if not path.is_relative_to(os.path.realpath(folder)) or not path.is_file():
            raise NotFound("the result has no such file.")
        return FileResponse(path, stat_result=path.stat())

    @api.get("/jobs/{id}/points")
    def points(result: Result) -> decision.Points:
        """Of a density-peaks job: rows that stand for all in a picture, by their first two features."""
        return decision.points_of(readers, engine, settings, *result)

    @api.post("/jobs/{id}/centers", responses={200: {"content": {"application/octet-stream": {}}}})
    def centers(wanted: decision.Wanted, result: Result) -> decision.Preview:
        """Of a density-peaks job: what other centres would give; nothing is kept."""
        _, folder = result
        if wanted.answer != "labels":
            return decision.preview(readers, folder, wanted)
        size, content = decision.labels_file(readers, settings, folder, wanted)
        named = {"Content-Disposition": 'attachment; filename="labels.npy"', "Content-Length": str(size)}
        return StreamingResponse(content, media_type="application/octet-stream", headers=named)  # type: ignore[return-value]

    @api.post("/jobs/{id}/centers/save", status_code=201)
    def save_centers(wanted: decision.Kept, who: Who, result: Result) -> JobView:
        """Of a density-peaks job: keep the result of other centres, as a job that names this one as its parent."""
        return view(decision.save_as_job(readers, engine, settings, jobs, who, *result, wanted))

    @api.put("/uploads/{name}", status_code=201)
    async def upload(
        name: str,
        request: Request,
        who: Who,
        sha256: Annotated[
            str | None, Query(pattern="^[0-9a-f]{64}$", description="What the bytes should have.")
        ] = None,
    ) -> dict[str, Any]:
        """Send a file; its id is a source for jobs."""
        return await sources.receive(engine, settings, who, name, request.stream(), sha256)

    @api.get("/uploads")
    def list_uploads(
        who: Who,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        before: Annotated[
            str | None, Query(max_length=64, description="id of the last upload of the page before")
        ] = None,
    ) -> list[dict[str, Any]]:
        """One's own uploads, newest first."""
        latest = sources.latest_uploads(engine, who, limit, before)
        if latest is None:
            raise NotFound("there is no such upload.")
        return latest

    @api.delete("/uploads/{id}")
    def delete_upload(id: str, who: Who) -> dict[str, Any]:
        """Remove an upload that no job waits for or reads; what it was."""
        deleted = sources.delete_upload(engine, settings, who, id)
        if deleted is None:
            raise NotFound("there is no such upload.")
        return deleted

    @api.post("/users", status_code=201)
    def make_user(user: NewUser, who: Admin) -> NewUser:
        """Make a user."""
        access.add_user(engine, user.name, user.role)
        return user

    @api.post("/tokens", status_code=201)
    def make_token(wanted: NewToken, who: Admin) -> dict[str, str]:
        """Make a token; this is the only time that it is shown."""
        id_, token = access.new_token(engine, wanted.user)
        return {"id": id_, "user": wanted.user, "token": token}

    @api.get("/tokens/{user}")
    def list_tokens(user: str, who: Admin) -> list[dict[str, Any]]:
        """A user's tokens, without their secrets."""
        return access.tokens_of(engine, user)

    @api.delete("/tokens/{id}")
    def revoke(id: str, who: Admin) -> dict[str, str]:
        """Revoke a token."""
        if not access.revoke(engine, id):
            raise NotFound("there is no such token.")
        return {"id": id}

    app.include_router(api)
    add_pages(app)

    @app.get("/healthz", include_in_schema=False)
    def healthy() -> dict[str, str]:
        with reading(engine) as session:
            session.connection().exec_driver_sql("SELECT 1")
        return {"status": "ok", "version": __version__}

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> PlainTextResponse:
        return PlainTextResponse(figures.text(), media_type="text/plain; version=0.0.4")

    return app


async def _changes(jobs: Jobs, ask: Callable[[], Awaitable[Caller]], id_: str) -> AsyncIterator[str]:
    told, silent, known = None, 0.0, math.inf  # seconds since something was said, and since it was asked who watches
    while True:
        try:
            if known >= ASK:
                who, known = await ask(), 0.0
            job = await run_in_threadpool(jobs.brief, who, id_)
        except (DBAPIError, Refused):
            return  # whoever watches asks again, and is told why
        if job is None:
            return
        news = brief(job).model_dump_json()
        if news != told:
            told, silent = news, 0.0
            yield f"event: job\ndata: {news}\n\n"
        elif silent > KEEP_ALIVE:
            silent = 0.0
            yield ": still there\n\n"
        if job.state in ENDED:
            return
        await asyncio.sleep(LOOK)
        silent, known = silent + LOOK, known + LOOK


def _result(settings: Settings, job: Job) -> Path:
    folder = settings.attempt_folder(job.id, job.attempt) / "result"
    if job.state != "SUCCEEDED" or not folder.is_dir():
        raise NotFound(f"job {job.id} is {job.state} and has no result.")
    return folder


def _end_of(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
