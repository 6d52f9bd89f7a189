"""Endpoints for read-only links to the result of a job: those of its owner, and those of whoever has the link.

The secret of a link is in the fragment of its address, which browsers send to no server and in no ``Referer``. The page
sends it as a bearer token, which reads the result of one job and nothing else.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from mgclust.algorithms import presentation_of
from mgclust.base.errors import InputError
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.audit import note
from mgclust.service.confined.results import list_files, open_result
from mgclust.service.queue import revocations, sessions
from mgclust.service.queue.models import Job, reading
from mgclust.service.web.archive import send_archive
from mgclust.service.web.dependencies import BackendDep, Guest, Reader, Submitter, found
from mgclust.service.web.errors import NotFound
from mgclust.service.web.requests import score_names
from mgclust.service.web.sent_file import SentFile
from mgclust.service.web.views import job_view

router = APIRouter()
SHOWN = ("method", "state", "created", "started", "finished", "scores", "warnings")


class NewLink(BaseModel):
    """A link to create."""

    model_config = ConfigDict(extra="forbid")

    days: float = Field(7.0, description="Days until the link expires, at most 365.")


@router.post("/jobs/{id}/links", status_code=201)
def make_link(id: str, wanted: NewLink, reader: Reader, caller: Submitter, backend: BackendDep) -> dict[str, Any]:
    """Create a link with which anybody can read this job's result. Only this answer has the address of the link."""
    job = found(backend.jobs.get(caller, id))
    link, secret, expires = sessions.new_link(backend.engine, caller, job.id, wanted.days)
    note(link=link)
    return {"id": link, "path": f"/shared#{secret}", "expires": expires}


@router.get("/jobs/{id}/links")
def list_links(id: str, caller: Reader, backend: BackendDep) -> list[dict[str, Any]]:
    """List the valid links to the result of this job, without their secrets."""
    return sessions.links_of(backend.engine, found(backend.jobs.get(caller, id)).id)


@router.delete("/jobs/{id}/links/{link}")
async def revoke_link(id: str, link: str, caller: Submitter, backend: BackendDep) -> dict[str, str]:
    """Revoke a link."""
    job = found(await run_in_threadpool(backend.jobs.get, caller, id))
    expires = await run_in_threadpool(sessions.revoke_link, backend.engine, job.id, link)
    if expires is None:
        raise NotFound("the job has no such link.")
    await run_in_threadpool(lambda: revocations.keep(backend.settings.data, session=link, expires=expires))
    backend.callers.forget(link)
    return {"id": link}


def _shared(caller: Guest, backend: BackendDep) -> Iterator[tuple[Job, RootedFile | None]]:
    with reading(backend.engine) as session:
        job = session.get(Job, caller.job)
    if job is None:
        raise NotFound("the job of this link was deleted.")
    try:
        yield job, open_result(backend.settings, job.id, job.attempt) if job.state == "SUCCEEDED" else None
    except (InputError, FileNotFoundError):
        raise NotFound("the job of this link was deleted.") from None


SharedDep = Annotated[tuple[Job, RootedFile | None], Depends(_shared)]


@router.get("/shared")
def shared(job: SharedDep, caller: Guest) -> dict[str, Any]:
    """Show the result to which the link leads: its method, scores with their names, warnings and files."""
    told = job_view(job[0]).model_dump(include=set(SHOWN))
    told["names"] = score_names(presentation_of(job[0].method))
    return told | {"files": list_files(job[1]) if job[1] is not None else [], "expires": caller.expires}


@router.get("/shared/files.zip", response_class=StreamingResponse)
def shared_archive(job: SharedDep) -> StreamingResponse:
    """Send all files of the result to which the link leads as one ZIP file, which does not compress them."""
    if job[1] is None:
        raise NotFound("the job of this link has no result.")
    return send_archive(job[1], job[0].method)


@router.get("/shared/files/{name:path}", response_class=FileResponse)
def shared_file(name: str, job: SharedDep) -> FileResponse:
    """Send one file of the result to which the link leads, or a range of it."""
    if job[1] is None:
        raise NotFound("the job of this link has no result.")
    try:
        return SentFile(job[1], name)
    except FileNotFoundError:
        raise NotFound("the result has no such file.") from None
