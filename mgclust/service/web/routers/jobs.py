"""Endpoints for jobs: submit, list, watch, rename, cancel, retry, delete, compare."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from mgclust.base.errors import printable
from mgclust.service.audit import note
from mgclust.service.confined.inputs import named_sources
from mgclust.service.confined.results import read_logs
from mgclust.service.queue import stores
from mgclust.service.queue.access import Caller
from mgclust.service.queue.administration import jobs_before
from mgclust.service.queue.jobs.lists import JobFilter
from mgclust.service.queue.jobs.submission import NewJob, job_id
from mgclust.service.queue.sources import check_sources, labels_of_job
from mgclust.service.states import State
from mgclust.service.web import comparison
from mgclust.service.web.dependencies import Backend, BackendDep, Before, Reader, Submitter, found, parse_cursor
from mgclust.service.web.patterns import ID_START, PRINTABLE, SORT
from mgclust.service.web.requests import Changes, Submission, describe_methods
from mgclust.service.web.views import JobSummary, JobView, QueuePosition, Receipt, job_summary, job_view, receipt

router = APIRouter()
_SUMMARIES = TypeAdapter(list[JobSummary])

Text = Annotated[str | None, Query(max_length=200, pattern=PRINTABLE)]


def check_request(submission: Submission, caller: Caller, backend: Backend) -> None:
    """Check everything in a request except its files.

    Raises
    ------
    InputError, PermissionError
    """
    submission.check()
    if submission.priority > 0 and not caller.is_admin:
        raise PermissionError(
            f"priority={submission.priority} should be <= 0: only administrators may put jobs before jobs of others."
        )
    backend.settings.check_resources(dict(submission.resources))


async def check_files(records: Iterable[dict[str, Any]], caller: Caller, backend: Backend) -> None:
    """Check the files in the records of requests, each file once.

    Raises
    ------
    InputError
        The caller may not read one of the files.
    """
    named = {  # keys of a dictionary keep their order, so the first wrong file is named
        (kind, source[kind]): None
        for record in records
        for source in named_sources(record).values()
        for kind in ("upload", "job", "path")
        if kind in source
    }
    paths = [{"path": name} for kind, name in named if kind == "path"]
    for kind, name in named:
        if kind == "upload":
            await backend.find_upload((caller, name))
        elif kind == "job":
            await run_in_threadpool(labels_of_job, backend.engine, backend.settings, caller, name)
    if paths:
        await run_in_threadpool(check_sources, backend.settings, paths)


async def check_results_to(submission: Submission, caller: Caller, backend: Backend) -> None:
    """Check that the caller may have results copied to the place that a request names.

    Raises
    ------
    InputError
    """
    if submission.results_to is not None:
        note(results_to=submission.results_to)
        await run_in_threadpool(
            stores.check_results_to, backend.engine, backend.stores, caller.name, submission.results_to
        )


@router.post("/jobs", status_code=201, response_model=JobView | Receipt)
async def submit(submission: Submission, caller: Submitter, backend: BackendDep) -> Response:
    """Submit a job to the queue."""
    check_request(submission, caller, backend)
    await check_results_to(submission, caller, backend)
    id_, record = job_id(caller, submission.key), submission.to_record()
    await check_files([record], caller, backend)
    note(id=id_)
    order = NewJob(id_, caller, submission.method, record, submission.priority, submission.name, submission.tags)
    return receipt(caller, await backend.submit(order), 201)


@router.post("/jobs/check", status_code=204)
async def check(submission: Submission, caller: Submitter, backend: BackendDep) -> None:
    """Check the request of a job without its files, so that a wrong request is found before files are sent."""
    check_request(submission, caller, backend)
    await check_results_to(submission, caller, backend)


@router.get("/jobs", response_model=list[JobSummary])
def list_jobs(
    request: Request,
    caller: Reader,
    backend: BackendDep,
    state: State | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    before: Before = None,
    search: Annotated[
        str | None,
        Query(
            max_length=200,
            pattern=PRINTABLE,
            description="Words that occur in names, #tags, ids, methods, files or parameters.",
        ),
    ] = None,
    method: Text = None,
    tag: Text = None,
    sweep: Text = None,
    owner: Annotated[str | None, Query(max_length=64, description="For administrators: a user's name.")] = None,
    sort: Annotated[
        str | None,
        Query(
            pattern=SORT,
            description="Another order, descending with '-', among the newest 1,000 jobs that match. Jobs without the "
            "value come last.",
        ),
    ] = None,
    skip: Annotated[int, Query(ge=0, le=1000, description="Jobs to skip, with `sort`.")] = 0,
) -> Response:
    """List one's own jobs without their requests, the newest first; fewer than `limit` if the summaries are long.

    The answer has an ETag: a request with this ETag in ``If-None-Match`` is answered with 304 if nothing has changed.
    """
    wanted = JobFilter(state, (search or "").split(), method, tag, sweep, owner)
    if sort is None:
        rows = backend.jobs.latest(caller, wanted, limit, parse_cursor(before))
    else:
        rows = backend.jobs.ranked(caller, wanted, sort.removeprefix("-"), sort.startswith("-"), limit, skip)
    content = _SUMMARIES.dump_json([job_summary(row) for row in rows])
    tag_of_content = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag_of_content:
        return Response(status_code=304, headers={"ETag": tag_of_content})
    return Response(content, media_type="application/json", headers={"ETag": tag_of_content})


@router.post("/jobs/compare")
def compare(wanted: comparison.Comparison, caller: Reader, backend: BackendDep) -> comparison.Agreement:
    """Compare the labels of 2 to 10 jobs: the adjusted Rand index of each pair."""
    jobs = [found(backend.jobs.get(caller, id_)) for id_ in wanted.ids]
    return comparison.agreement(backend.readers.of(caller.counted_as), backend.settings, jobs)


@router.get("/job-ids/{prefix}")
def ids(prefix: Annotated[str, Path(pattern=ID_START)], caller: Reader, backend: BackendDep) -> Sequence[str]:
    """List a few ids of jobs that begin with a prefix."""
    return backend.jobs.ids(caller, prefix)


@router.get("/sweep-ids/{prefix}")
def sweep_ids(prefix: Annotated[str, Path(pattern=ID_START)], caller: Reader, backend: BackendDep) -> Sequence[str]:
    """List a few ids that begin with a prefix, of sweeps that the caller may see."""
    return backend.jobs.sweep_ids(caller, prefix)


@router.get("/jobs/{id}")
def status(id: str, caller: Reader, backend: BackendDep) -> JobView:
    """Show one job."""
    return job_view(found(backend.jobs.get(caller, id)))


@router.patch("/jobs/{id}", response_model=JobView | Receipt)
def rename(id: str, changes: Changes, caller: Submitter, backend: BackendDep) -> Response:
    """Change the name and the tags of a job."""
    return receipt(caller, found(backend.changes.rename(caller, id, changes.name, changes.tags)))


@router.post("/jobs/{id}/cancel", response_model=JobView | Receipt)
def cancel(id: str, caller: Submitter, backend: BackendDep) -> Response:
    """Cancel a job. A job that has ended stays unchanged."""
    return receipt(caller, found(backend.changes.cancel(caller, id)))


@router.post("/jobs/{id}/retry", response_model=JobView | Receipt)
def retry(id: str, caller: Submitter, backend: BackendDep) -> Response:
    """Queue a failed or cancelled job again, or the copy of its result to a store if copying has failed."""
    return receipt(caller, found(backend.submission.retry(caller, id)))


@router.delete("/jobs/{id}", response_model=JobView | Receipt)
def delete(id: str, caller: Submitter, backend: BackendDep) -> Response:
    """Delete a job that has ended, with its files and log, and return it."""
    return receipt(caller, found(backend.changes.delete(caller, id)))


@router.get("/jobs/{id}/events", response_class=StreamingResponse)
async def events(id: str, request: Request, caller: Reader, backend: BackendDep) -> StreamingResponse:
    """Send the job at each change, without its request, as server-sent events, until it has ended."""
    row = found(await run_in_threadpool(backend.jobs.summary, caller, id))
    return StreamingResponse(backend.streams.events(row, request.state.token), media_type="text/event-stream")


@router.get("/jobs/{id}/position")
def position(id: str, caller: Reader, backend: BackendDep) -> QueuePosition:
    """Count the waiting jobs, of all users, that are expected to start before a waiting job."""
    found(backend.jobs.summary(caller, id))
    return QueuePosition(before=jobs_before(backend.engine, id))


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
