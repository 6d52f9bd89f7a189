"""Endpoints for jobs: submit, list, watch, cancel, retry, delete."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from mgclust.base.errors import printable
from mgclust.service.audit import note
from mgclust.service.confined.inputs import named_sources
from mgclust.service.confined.results import read_logs
from mgclust.service.queue.jobs import NewJob, job_id
from mgclust.service.queue.sources import check_sources
from mgclust.service.states import State
from mgclust.service.web.dependencies import BackendDep, Before, Reader, Submitter, found, parse_cursor
from mgclust.service.web.requests import Submission, describe_methods
from mgclust.service.web.views import JobSummary, JobView, Receipt, job_summary, job_view, receipt

router = APIRouter()


@router.post("/jobs", status_code=201, response_model=JobView | Receipt)
async def submit(submission: Submission, caller: Submitter, backend: BackendDep) -> Response:
    """Submit a job to the queue."""
    settings = backend.settings
    submission.check()
    if submission.priority > 0 and not caller.is_admin:
        raise PermissionError(
            f"priority={submission.priority} should be <= 0: only administrators may put jobs before jobs of others."
        )
    settings.check_resources(dict(submission.resources))
    id_, record = job_id(caller, submission.key), submission.to_record()
    named = named_sources(record).values()
    for source in named:
        if "upload" in source:
            await backend.find_upload((caller, source["upload"]))
    if others := [source for source in named if "upload" not in source]:
        await run_in_threadpool(check_sources, settings, others)
    note(id=id_)
    job = await backend.submit(NewJob(id_, caller, submission.method, record, submission.priority))
    return receipt(caller, job, 201)


@router.get("/jobs")
def list_jobs(
    caller: Reader,
    backend: BackendDep,
    state: State | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    before: Before = None,
) -> list[JobSummary]:
    """List one's own jobs without their requests, the newest first; fewer than `limit` if the summaries are long."""
    return [job_summary(row) for row in backend.jobs.latest(caller, state, limit, parse_cursor(before))]


@router.get("/jobs/{id}")
def status(id: str, caller: Reader, backend: BackendDep) -> JobView:
    """Show one job."""
    return job_view(found(backend.jobs.get(caller, id)))


@router.post("/jobs/{id}/cancel", response_model=JobView | Receipt)
def cancel(id: str, caller: Submitter, backend: BackendDep) -> Response:
    """Cancel a job. A job that has ended stays unchanged."""
    return receipt(caller, found(backend.jobs.cancel(caller, id)))


@router.post("/jobs/{id}/retry", response_model=JobView | Receipt)
def retry(id: str, caller: Submitter, backend: BackendDep) -> Response:
    """Queue a failed or cancelled job again."""
    return receipt(caller, found(backend.jobs.retry(caller, id)))


@router.delete("/jobs/{id}", response_model=JobView | Receipt)
def delete(id: str, caller: Submitter, backend: BackendDep) -> Response:
    """Delete a job that has ended, with its files and log, and return it."""
    return receipt(caller, found(backend.jobs.delete(caller, id)))


@router.get("/jobs/{id}/events", response_class=StreamingResponse)
async def events(id: str, request: Request, caller: Reader, backend: BackendDep) -> StreamingResponse:
    """Send the job at each change, without its request, as server-sent events, until it has ended."""
    row = found(await run_in_threadpool(backend.jobs.summary, caller, id))
    return StreamingResponse(backend.streams.events(row, request.state.token), media_type="text/event-stream")


@router.get("/jobs/{id}/log", response_class=PlainTextResponse)
def log(id: str, caller: Reader, backend: BackendDep) -> StreamingResponse:
    """Show the logs of all attempts, but only the end of long logs, and only the last of many logs."""
    job = found(backend.jobs.summary(caller, id))
    parts = read_logs(backend.settings, job.id, job.attempt)
    return StreamingResponse((printable(part, "\n\t") for part in parts), media_type="text/plain")


@router.get("/methods")
def methods(caller: Reader) -> dict[str, Any]:
    """List the methods, with their parameters."""
    return describe_methods()
