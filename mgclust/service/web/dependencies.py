"""Dependencies of endpoints: parts of the service, the caller and the scopes of its token, and cursors of lists."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.security import HTTPBearer
from sqlalchemy import Engine

from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined.reader_pool import Readers
from mgclust.service.queue.access import Caller, Unauthorized
from mgclust.service.queue.jobs.changes import JobChanges
from mgclust.service.queue.jobs.lists import JobLists
from mgclust.service.queue.jobs.submission import JobSubmission, NewJob
from mgclust.service.queue.metrics import Metrics
from mgclust.service.queue.models import Job
from mgclust.service.queue.stores import Store
from mgclust.service.settings import Settings
from mgclust.service.web.errors import NotFound
from mgclust.service.web.health import Health
from mgclust.service.web.patterns import POSITION
from mgclust.service.web.perimeter.batches import Batched
from mgclust.service.web.perimeter.callers import Callers
from mgclust.service.web.streams import Streams

__all__ = [
    "Administrator",
    "AnyCaller",
    "Backend",
    "BackendDep",
    "Before",
    "Guest",
    "Reader",
    "Submitter",
    "found",
    "parse_cursor",
]


@dataclass(frozen=True)
class Backend:
    """The parts of the service that endpoints use, made once by `create_app`."""

    settings: Settings
    engine: Engine
    jobs: JobLists
    submission: JobSubmission
    changes: JobChanges
    readers: Readers
    callers: Callers
    streams: Streams
    health: Health
    metrics: Metrics
    stores: dict[str, Store]
    find_upload: Batched[tuple[Caller, str], RootedFile]
    submit: Batched[NewJob, Job]


async def _backend(request: Request) -> Backend:
    backend: Backend = request.app.state.backend
    return backend


class _Scoped(HTTPBearer):
    """Dependency on a caller with a scope. It is not split, because each dependency costs time per request."""

    def __init__(self, scope: str | None) -> None:
        super().__init__(scheme_name="HTTPBearer", description="A token of the service.")
        self._scope = scope

    async def __call__(self, request: Request) -> Caller:  # type: ignore[override]
        if (caller := getattr(request.state, "caller", None)) is None:
            raise Unauthorized("a token is needed.")
        assert isinstance(caller, Caller)
        if self._scope == "link":
            if caller.job is None:
                raise PermissionError("only a link to a result reads this; use the job itself.")
        elif self._scope is not None or caller.job is not None:
            caller.check(self._scope or "read")
        return caller


BackendDep = Annotated[Backend, Depends(_backend)]
# The callers of endpoints, by the scope that their tokens need. Endpoints with `AnyCaller` check scopes themselves.
AnyCaller = Annotated[Caller, Depends(_Scoped(None))]
Reader = Annotated[Caller, Depends(_Scoped("read"))]
Submitter = Annotated[Caller, Depends(_Scoped("submit"))]
Administrator = Annotated[Caller, Depends(_Scoped("admin"))]
Guest = Annotated[Caller, Depends(_Scoped("link"))]  # the caller of a link


def found(job: Any) -> Any:
    """Return the job; raise an error if it is None, because it does not exist or the caller may not see it.

    Raises
    ------
    NotFound
        The job is None.
    """
    if job is None:
        raise NotFound("there is no such job.")
    return job


Before = Annotated[
    str | None,
    Query(
        pattern=POSITION,
        description="created,id of the last item of the previous page.",
    ),
]


def parse_cursor(before: str | None) -> tuple[float, str] | None:
    """Parse a cursor into a creation time and an id."""
    if before is None:
        return None
    created, _, id_ = before.partition(",")
    return float(created), id_
