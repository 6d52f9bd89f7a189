"""Endpoints for results: their files, and results for other centres."""

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import FileResponse, StreamingResponse

from mgclust.base.errors import InputError
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.audit import note
from mgclust.service.confined.results import list_files, open_result
from mgclust.service.queue.models import Job
from mgclust.service.web import recenter
from mgclust.service.web.archive import send_archive
from mgclust.service.web.dependencies import BackendDep, Reader, Submitter, found
from mgclust.service.web.errors import NotFound
from mgclust.service.web.sent_file import SentFile
from mgclust.service.web.views import JobView, job_view

router = APIRouter(prefix="/jobs/{id}")


def _result(id: str, caller: Reader, backend: BackendDep) -> Iterator[tuple[Job, RootedFile]]:
    job = found(backend.jobs.get(caller, id))
    opened = open_result(backend.settings, job.id, job.attempt) if job.state == "SUCCEEDED" else None
    if opened is None:
        raise NotFound(f"job {job.id} is {job.state} and has no result.")
    try:
        yield job, opened
    except (InputError, FileNotFoundError):
        if open_result(backend.settings, job.id, job.attempt) is not None:
            raise
        found(None)  # the job was deleted while it was being read


ResultDep = Annotated[tuple[Job, RootedFile], Depends(_result)]


@router.get("/files")
def files(result: ResultDep) -> list[dict[str, Any]]:
    """List the files of the result: names and sizes."""
    return list_files(result[1])


@router.get("/files/{name:path}", response_class=FileResponse)
def file(name: str, result: ResultDep) -> FileResponse:
    """Send one file of the result, or a range of it."""
    try:
        return SentFile(result[1], name)
    except FileNotFoundError:
        raise NotFound("the result has no such file.") from None


@router.get("/files.zip", response_class=StreamingResponse)
def archive(result: ResultDep) -> StreamingResponse:
    """Send all files of the result as one ZIP file, which does not compress them."""
    job, opened = result
    return send_archive(opened, f"{job.method}-{job.id[:8]}")


@router.get("/graph")
def graph(caller: Reader, result: ResultDep, backend: BackendDep) -> recenter.DecisionGraph:
    """Send the decision graph: rows with the largest products of its two quantities, and a sample of the others."""
    return recenter.graph_of(backend.readers.of(caller.counted_as), result[1])


@router.get("/points")
def points(caller: Reader, result: ResultDep, backend: BackendDep) -> recenter.ProjectedPoints:
    """Sample rows of a job, by their first two features, for a picture. The method must be able to choose centres."""
    return recenter.points_of(backend.readers.of(caller.counted_as), backend.engine, backend.settings, *result)


@router.post("/centers", responses={200: {"content": {"application/octet-stream": {}}}})
def centers(
    wanted: recenter.PreviewRequest, caller: Reader, result: ResultDep, backend: BackendDep
) -> recenter.Preview:
    """Preview the clusters of a job for other centres. Nothing is stored."""
    if wanted.answer != "labels":
        return recenter.preview(backend.readers.of(caller.counted_as), result[1], wanted)
    size, content = recenter.labels_file(backend.readers.of(caller.counted_as), backend.settings, result[1], wanted)
    headers = {"Content-Disposition": 'attachment; filename="labels.npy"', "Content-Length": str(size)}
    return StreamingResponse(content, media_type="application/octet-stream", headers=headers)  # type: ignore[return-value]


@router.post("/centers/save", status_code=201)
def save_centers(wanted: recenter.SaveRequest, caller: Submitter, result: ResultDep, backend: BackendDep) -> JobView:
    """Store the result of a job for other centres as a new job, whose parent is this job."""
    readers = backend.readers.of(caller.counted_as)
    saved = recenter.save_as_job(readers, backend.engine, backend.settings, backend.submission, caller, *result, wanted)
    note(saved=saved.id)
    return job_view(saved)
