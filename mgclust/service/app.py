"""The service over HTTP: /api/v1, its description at /api/v1/openapi.json, /healthz and /metrics, and its pages.

Who asks shows a token (``Authorization: Bearer ...``), which `Gate` looks at before anything else. What goes wrong is a
sentence, ``{"error": ..., "fault": ...}``. A job or upload of somebody else is "not found", like one that is not there.
"""

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from mgclust import __version__
from mgclust.beneath import Beneath
from mgclust.errors import InputError, printable
from mgclust.service import access, decision, disk, sources
from mgclust.service.access import Caller, Refused
from mgclust.service.audit import Audit, note
from mgclust.service.batches import Batched
from mgclust.service.bodies import ShortBodies
from mgclust.service.callers import Callers
from mgclust.service.errors import NotFound, Problem, answer_problems
from mgclust.service.gate import Gate
from mgclust.service.health import Health
from mgclust.service.inputs import named_sources
from mgclust.service.jobs import Jobs, Order, job_id
from mgclust.service.metrics import Metrics
from mgclust.service.models import Job, belong_together, migrate, open_database, reading
from mgclust.service.pages import SecurityHeaders, add_pages
from mgclust.service.readers import Readers
from mgclust.service.requests import Submission, describe_methods
from mgclust.service.results import end_of_log, listed, result_of
from mgclust.service.sent_file import SentFile
from mgclust.service.settings import Settings
from mgclust.service.streams import Streams

__all__ = ["create_app"]


class Progress(BaseModel):
    """How far an attempt is, with whatever figures its method adds."""

    model_config = ConfigDict(extra="allow")
    stage: str | None = None
    fraction: float | None = Field(None, description="Of the stage, from 0 to 1.")
    elapsed: float | None = Field(None, description="Seconds since the computation began.")
    stage_rate: float | None = Field(None, description="The share of the stage that is done in a second, smoothed.")
    stage_eta: float | None = Field(None, description="Seconds until the stage, not the job, has ended.")


# Names and values that a sentence quotes are of files: a terminal that shows it should not obey them.
Sentence = Annotated[str, AfterValidator(printable)]


Before = Annotated[
    str | None,
    Query(
        max_length=64,
        description="The last one of the page before: its id, or created,id, which also holds once it was deleted.",
    ),
]


def place_of(before: str | None) -> tuple[float, str] | None:
    """Time and id, where both are told."""
    place = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?),([0-9a-f]{32})", before or "")
    return (float(place[1]), place[2]) if place else None


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
    error: Sentence | None
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
    error: Sentence | None = Field(description="Its beginning where it is long.")
    fault: str | None
    size: int | None = Field(description="Bytes that it keeps in the database, and kept on disk when it last ended.")
    sources: list[str] = Field(description="Names of the first ones.")
    n_sources: int
    parent: str | None = Field(description="The job of whose result this one keeps other centres.")


class Receipt(BaseModel):
    """What became of a job, for a token without the scope read."""

    id: str
    method: str
    state: Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]


class NewUser(BaseModel):
    """A user to make."""

    name: str
    role: str = "user"


class NewToken(BaseModel):
    """A token to make."""

    user: str | None = Field(None, description="Whose it is; by default that of who asks.")
    scopes: list[str] | None = Field(
        None, max_length=8, description="Some of read, submit and admin; by default all that the user's role has."
    )
    days: float | None = Field(access.DAYS, description="Until it expires; null: never, for administrators only.")


def view(job: Job) -> JobView:
    """What is told of a job."""
    return JobView(**{name: getattr(job, name) for name in JobView.model_fields})


def receipt(who: Caller, job: Job) -> JobView | Receipt:
    """What is told of a job to one who has changed it: all of it only to those who may read it."""
    if "read" in who.scopes:
        return view(job)
    return Receipt(**{name: getattr(job, name) for name in Receipt.model_fields})


def brief(row: Any) -> JobSummary:
    """What lists tell of a job."""
    told = {"sources": [], "n_sources": 0, "parent": None} | (row.summary or {})
    return JobSummary(**told, **{name: getattr(row, name) for name in JobSummary.model_fields if name not in told})


def create_app(settings: Settings, adopt: bool = False) -> FastAPI:
    """Make the web application; the database is brought up to date. `adopt` is for `belong_together`."""
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    engine = open_database(settings.database)
    migrate(engine)
    belong_together(engine, settings.data, adopt)
    disk.sweep(engine, settings)
    jobs, figures = Jobs(engine, settings), Metrics(engine, settings)
    readers = Readers(settings)
    audit_log = Audit(settings.audit_path, settings.audit_bytes)
    callers = Callers(engine)
    streams = Streams(jobs, callers, lambda row: brief(row).model_dump_json())
    health = Health(engine, settings.hung_after)
    uploads = Batched[tuple[Caller, str], Beneath](functools.partial(sources.find_uploads, engine, settings))
    submits = Batched[Order, Job](jobs.submit)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(health.watch())
        yield
        watching.cancel()
        audit_log.close()

    app = FastAPI(
        title="mgclust", version=__version__, openapi_url="/api/v1/openapi.json", docs_url=None, redoc_url=None,
        lifespan=lifespan, redirect_slashes=False,  # a redirect would name the host that the request named
    )  # fmt: skip
    # Each around those before it.
    app.add_middleware(ShortBodies)
    app.add_middleware(Gate, settings=settings, callers=callers, log=audit_log)
    app.add_middleware(SecurityHeaders)
    answer_problems(app)
    bearer = HTTPBearer(auto_error=False, description="A token of the service.")

    async def caller(request: Request, shown: Annotated[object, Depends(bearer)]) -> Caller:
        if (who := getattr(request.state, "caller", None)) is None:
            raise Refused("a token is needed.")
        return who

    def needs(scope: str) -> list[Any]:
        async def check(who: Annotated[Caller, Depends(caller)]) -> None:
            who.check(scope)

        return [Depends(check)]

    reads, submitting, administers = needs("read"), needs("submit"), needs("admin")
    Who = Annotated[Caller, Depends(caller)]
    answers: dict[int | str, dict[str, Any]] = {
        code: {"model": Problem} for code in (400, 401, 403, 404, 409, 413, 422, 429, 503, 507)
    }
    api = APIRouter(prefix="/api/v1", responses=answers)

    def found(job: Any) -> Any:
        if job is None:
            raise NotFound("there is no such job.")
        return job

    def result(id: str, who: Who) -> Iterator[tuple[Job, Beneath]]:
        job = found(jobs.get(who, id))
        opened = result_of(settings, job.id, job.attempt) if job.state == "SUCCEEDED" else None
        if opened is None:
            raise NotFound(f"job {job.id} is {job.state} and has no result.")
        try:
            yield job, opened
        except (InputError, FileNotFoundError):
            if result_of(settings, job.id, job.attempt) is not None:
                raise
            found(None)  # it was deleted while it was being read

    Result = Annotated[tuple[Job, Beneath], Depends(result)]

    @api.get("/methods", dependencies=reads)
    def methods(who: Who) -> dict[str, Any]:
        """What can be asked for."""
        return describe_methods()

    @api.post("/jobs", status_code=201, dependencies=submitting)
    async def submit(submission: Submission, who: Who) -> JobView | Receipt:
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
        note(id=id_)
        return receipt(who, await submits(Order(id_, who, submission.method, record, submission.priority)))

    @api.get("/jobs", dependencies=reads)
    def list_jobs(
        who: Who,
        state: Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"] | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        before: Before = None,
    ) -> list[JobSummary]:
        """One's own jobs, newest first, without their requests; fewer than `limit` where they are long."""
        last = place_of(before)
        if before is not None and last is None:
            row = found(jobs.brief(who, before))
            last = (row.created, row.id)
        return [brief(row) for row in jobs.latest(who, state, limit, last)]

    @api.get("/jobs/{id}", dependencies=reads)
    def status(id: str, who: Who) -> JobView:
        """One job."""
        return view(found(jobs.get(who, id)))

    @api.post("/jobs/{id}/cancel", dependencies=submitting)
    def cancel(id: str, who: Who) -> JobView | Receipt:
        """Ask for a job's end; nothing changes if it has ended."""
        return receipt(who, found(jobs.cancel(who, id)))

    @api.post("/jobs/{id}/retry", dependencies=submitting)
    def retry(id: str, who: Who) -> JobView | Receipt:
        """Queue a job again that failed or was cancelled."""
        return receipt(who, found(jobs.retry(who, id)))

    @api.delete("/jobs/{id}", dependencies=submitting)
    def delete(id: str, who: Who) -> JobView | Receipt:
        """Remove a job that has ended, with its files and log; what it was."""
        return receipt(who, found(jobs.delete(who, id)))

    @api.get("/jobs/{id}/events", response_class=StreamingResponse, dependencies=reads)
    async def events(id: str, request: Request, who: Who) -> StreamingResponse:
        """The job whenever it changes, without its request, as server-sent events, until it has ended."""
        row = found(await run_in_threadpool(jobs.brief, who, id))
        return StreamingResponse(streams.events(row, request.state.token), media_type="text/event-stream")

    @api.get("/jobs/{id}/log", response_class=PlainTextResponse, dependencies=reads)
    def log(id: str, who: Who) -> PlainTextResponse:
        """The logs of all attempts, the end of each where it is long."""
        job = found(jobs.get(who, id))
        parts = []
        for attempt in range(1, job.attempt + 1):
            text = end_of_log(settings, job.id, attempt)
            parts.append(f"attempt {attempt}\n{text}" if job.attempt > 1 else text)
        return PlainTextResponse(printable("".join(parts), "\n\t"))

    @api.get("/jobs/{id}/files", dependencies=reads)
    def files(result: Result) -> list[dict[str, Any]]:
        """What the result consists of: names and sizes."""
        return listed(result[1])

    @api.get("/jobs/{id}/files/{name:path}", response_class=FileResponse, dependencies=reads)
    def file(name: str, result: Result) -> FileResponse:
        """One file of the result, or a range of it."""
        try:
            return SentFile(result[1], name)
        except FileNotFoundError:
            raise NotFound("the result has no such file.") from None

    @api.get("/jobs/{id}/points", dependencies=reads)
    def points(result: Result) -> decision.Points:
        """Of a density-peaks job: rows that stand for all in a picture, by their first two features."""
        return decision.points_of(readers, engine, settings, *result)

    @api.post("/jobs/{id}/centers", responses={200: {"content": {"application/octet-stream": {}}}}, dependencies=reads)
    def centers(wanted: decision.Wanted, result: Result) -> decision.Preview:
        """Of a density-peaks job: what other centres would give; nothing is kept."""
        if wanted.answer != "labels":
            return decision.preview(readers, result[1], wanted)
        size, content = decision.labels_file(readers, settings, result[1], wanted)
        named = {"Content-Disposition": 'attachment; filename="labels.npy"', "Content-Length": str(size)}
        return StreamingResponse(content, media_type="application/octet-stream", headers=named)  # type: ignore[return-value]

    @api.post("/jobs/{id}/centers/save", status_code=201, dependencies=[*submitting, *reads])
    def save_centers(wanted: decision.Kept, who: Who, result: Result) -> JobView:
        """Of a density-peaks job: keep the result of other centres, as a job that names this one as its parent."""
        saved = decision.save_as_job(readers, engine, settings, jobs, who, *result, wanted)
        note(saved=saved.id)
        return view(saved)

    @api.put("/uploads/{name}", status_code=201, dependencies=submitting)
    async def upload(
        name: str,
        request: Request,
        who: Who,
        sha256: Annotated[
            str | None, Query(pattern="^[0-9a-f]{64}$", description="What the bytes should have.")
        ] = None,
    ) -> dict[str, Any]:
        """Send a file; its id is a source for jobs."""
        received = await sources.receive(engine, settings, who, name, request.stream(), sha256)
        note(id=received["id"], size=received["size"])
        return received

    @api.get("/uploads", dependencies=reads)
    def list_uploads(
        who: Who,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        before: Before = None,
    ) -> list[dict[str, Any]]:
        """One's own uploads, newest first."""
        latest = sources.latest_uploads(engine, who, limit, place_of(before) or before)
        if latest is None:
            raise NotFound("there is no such upload.")
        return latest

    @api.delete("/uploads/{id}", dependencies=submitting)
    def delete_upload(id: str, who: Who) -> dict[str, Any]:
        """Remove an upload that no job waits for or reads; what it was."""
        deleted = sources.delete_upload(engine, settings, who, id)
        if deleted is None:
            raise NotFound("there is no such upload.")
        return deleted

    @api.post("/users", status_code=201, dependencies=administers)
    def make_user(user: NewUser) -> NewUser:
        """Make a user."""
        access.add_user(engine, user.name, user.role)
        note(name=user.name, role=user.role)
        return user

    @api.get("/users", dependencies=administers)
    def list_users() -> list[dict[str, Any]]:
        """All users."""
        return access.users(engine)

    def may_manage(who: Caller, user: str) -> None:
        if not who.may_manage(user):
            raise PermissionError(
                "only an administrator may do this for others; for yourself, a token with all scopes of your role."
            )

    @api.post("/tokens", status_code=201)
    def make_token(wanted: NewToken, who: Who) -> dict[str, str | float | None]:
        """Make a token, for oneself or, as an administrator, for others; this is the only time that it is shown.

        It can do no more than the one that is shown, and does not outlive it.
        """
        user = wanted.user or who.name
        may_manage(who, user)
        role = who.role if user == who.name else access.role_of(engine, user)
        days = wanted.days if role is None else who.check_new_token(user, role, wanted.scopes, wanted.days)
        id_, token = access.new_token(engine, user, wanted.scopes, days)
        expires = access.expiry_of(engine, id_)
        note(name=user, id=id_)
        return {"id": id_, "user": user, "token": token, "expires": expires}

    @api.get("/tokens", dependencies=reads)
    def list_own_tokens(who: Who) -> list[dict[str, Any]]:
        """One's own tokens, without their secrets."""
        return access.tokens_of(engine, who.name)

    @api.get("/tokens/{user}", dependencies=reads)
    def list_tokens(user: str, who: Who) -> list[dict[str, Any]]:
        """A user's tokens, without their secrets."""
        may_manage(who, user)
        return access.tokens_of(engine, user)

    @api.delete("/tokens/{id}")
    async def revoke(id: str, who: Who) -> dict[str, str]:
        """Revoke a token."""
        owner = await run_in_threadpool(access.owner_of_token, engine, id)
        if owner is None or not who.may_manage(owner) or not await run_in_threadpool(access.revoke, engine, id):
            raise NotFound("there is no such token.")
        callers.forget(id)
        note(name=owner)
        return {"id": id}

    app.include_router(api)
    add_pages(app)

    def look() -> dict[str, Any]:
        with reading(engine) as session:
            session.connection().exec_driver_sql("SELECT 1")
        runner = health.runner
        status = "ok" if runner["state"] == "ok" else "degraded"
        return {"status": status, "version": __version__, "runner": runner}

    # However many ask, the database is asked by one thread, which no other request keeps busy.
    asked = Batched[None, dict[str, Any]](lambda those: [look()] * len(those))

    @app.get("/healthz", include_in_schema=False)
    async def healthy(strict: bool = False) -> JSONResponse:
        """200 if this process can answer requests, whether or not a runner lives; `strict`: only if one does."""
        told = await asked(None)
        return JSONResponse(told, 503 if strict and told["status"] != "ok" else 200)

    own = CollectorRegistry()  # of this process, not of the database
    lost = Gauge("mgclust_audit_lost", "Lines of the audit log that could not be written", registry=own)
    lost.set_function(lambda: audit_log.lost)

    @app.get("/metrics", include_in_schema=False, dependencies=reads)
    def metrics(who: Who) -> PlainTextResponse:
        if who.role != "admin":  # one of an administrator's that can only read is enough
            raise PermissionError("only a token of an administrator, with the scope read, may see the metrics.")
        return PlainTextResponse(figures.text() + generate_latest(own), media_type="text/plain; version=0.0.4")

    return app
