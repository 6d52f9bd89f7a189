"""Endpoints for uploads: files that users send as sources of jobs."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from mgclust.service.audit import note
from mgclust.service.queue import sources
from mgclust.service.queue.stores import read_object
from mgclust.service.web.dependencies import BackendDep, Before, Reader, Submitter, parse_cursor
from mgclust.service.web.errors import NotFound
from mgclust.service.web.patterns import DIGEST

router = APIRouter(prefix="/uploads")


@router.put("/{name}", status_code=201)
async def upload(
    name: str,
    request: Request,
    caller: Submitter,
    backend: BackendDep,
    sha256: Annotated[str | None, Query(pattern=DIGEST, description="The expected digest.")] = None,
) -> dict[str, Any]:
    """Send a file. The id in the answer is a source for jobs.

    If one has sent a file with the same name and content before, the answer describes that upload, and ``new`` is
    false.
    """
    received = await sources.receive(backend.engine, backend.settings, caller, name, request.stream(), sha256)
    note(id=received["id"], size=received["size"])
    return received


class StoredObject(BaseModel):
    """An object of a store that the administrator has named."""

    model_config = ConfigDict(extra="forbid")

    store: str = Field(max_length=80)
    path: str = Field(max_length=1024)


@router.post("", status_code=201)
async def read_stored(given: StoredObject, caller: Submitter, backend: BackendDep) -> dict[str, Any]:
    """Make an upload from an object of a store. The id in the answer is a source for jobs."""
    note(store=given.store)
    received = await read_object(backend.engine, backend.settings, backend.stores, caller, given.store, given.path)
    note(id=received["id"], size=received["size"])
    return received


@router.get("")
def list_uploads(
    caller: Reader,
    backend: BackendDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    before: Before = None,
    sha256: Annotated[
        str | None, Query(pattern=DIGEST, description="With `name`: only the upload with this content.")
    ] = None,
    name: Annotated[str | None, Query(max_length=200)] = None,
) -> list[dict[str, Any]]:
    """List one's own uploads, the newest first.

    With `sha256` and `name`, the list holds at most one upload: a client need not send this file again.
    """
    if sha256 is not None:
        known = sources.known_upload(backend.engine, backend.settings, caller, sha256, name or "")
        return [] if known is None else [known]
    return sources.latest_uploads(backend.engine, caller, limit, parse_cursor(before))


@router.delete("/{id}")
def delete_upload(id: str, caller: Submitter, backend: BackendDep) -> dict[str, Any]:
    """Delete an upload that no waiting or running job needs, and return its description."""
    deleted = sources.delete_upload(backend.engine, backend.settings, caller, id)
    if deleted is None:
        raise NotFound("there is no such upload.")
    return deleted
