"""Endpoints for administrators: users and tokens, the queue, the audit log, health and pins."""

import functools
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from mgclust.base.errors import InputError
from mgclust.service.audit import latest_lines, note
from mgclust.service.queue import access, administration, revocations
from mgclust.service.queue.access import Caller
from mgclust.service.queue.models import Job, Upload
from mgclust.service.web.dependencies import Administrator, AnyCaller, BackendDep, Reader, Submitter
from mgclust.service.web.errors import NotFound

router = APIRouter()


class NewUser(BaseModel):
    """A user to create."""

    model_config = ConfigDict(extra="forbid")

    name: str
    role: str = "user"


class NewToken(BaseModel):
    """A token to create."""

    model_config = ConfigDict(extra="forbid")

    user: str | None = Field(
        None, description="User of the new token; by default the user of the token that sends the request."
    )
    scopes: list[str] | None = Field(
        None, max_length=8, description="Some of read, submit and admin; by default all scopes of the user's role."
    )
    days: float | None = Field(
        access.DEFAULT_DAYS, description="Days until the token expires; null (administrators only): it never expires."
    )


@router.post("/users", status_code=201)
def make_user(user: NewUser, caller: Administrator, backend: BackendDep) -> NewUser:
    """Create a user."""
    access.add_user(backend.engine, user.name, user.role)
    # If a restored database had lost the user, the file of revocations may still list this name as disabled.
    revocations.keep(backend.settings.data, user=user.name, disabled=False)
    note(name=user.name, role=user.role)
    return user


@router.get("/users")
def list_users(caller: Administrator, backend: BackendDep) -> list[dict[str, Any]]:
    """List all users with their limits, files, and the totals of their attempts."""
    return administration.describe_users(backend.engine)


class UserChange(BaseModel):
    """Changes of a user. Names that are left out stay unchanged."""

    model_config = ConfigDict(extra="forbid")
    disabled: bool = Field(False, description="Whether the user's tokens are rejected, and waiting jobs do not start.")
    disk_limit: Annotated[int, Field(ge=0, lt=2**63)] | None = Field(
        None, description="Bytes that the user may keep; 0: no limit; null: the limit of the service."
    )
    jobs_limit: Annotated[int, Field(ge=1, lt=2**31)] | None = Field(
        None, description="Waiting and running jobs that the user may have; null: the limit of the service."
    )


@router.patch("/users/{name}")
async def change_user(name: str, change: UserChange, caller: Administrator, backend: BackendDep) -> dict[str, Any]:
    """Disable or enable a user, or set limits of the user."""
    changes = change.model_dump(exclude_unset=True)
    found = await run_in_threadpool(administration.change_user, backend.engine, backend.settings.data, name, changes)
    if not found:
        raise NotFound("there is no such user.")
    backend.callers.forget_user(name)
    note(**changes)
    users = await run_in_threadpool(administration.describe_users, backend.engine)
    return next(user for user in users if user["name"] == name)


@router.get("/admin/queue")
def show_queue(caller: Administrator, backend: BackendDep) -> list[dict[str, Any]]:
    """List the waiting jobs of all users in the order in which they are expected to start."""
    return administration.waiting_jobs(backend.engine)


@router.get("/admin/audit")
def show_audit(
    caller: Administrator,
    backend: BackendDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    user: Annotated[str | None, Query(max_length=64, description="Only lines of this user.")] = None,
    action: Annotated[str | None, Query(max_length=64, description="Only lines of this action.")] = None,
) -> list[dict[str, Any]]:
    """List the latest lines of the audit log, the newest first."""
    if backend.settings.audit_path is None:
        raise InputError("the audit log of this service goes to standard error; read it there.")
    return latest_lines(backend.settings.audit_path, limit, user, action)


@router.get("/admin/health")
async def show_health(caller: Administrator, backend: BackendDep) -> dict[str, Any]:
    """Show the runner, the numbers of jobs, jobs that wait for the cluster, and the disk."""
    report = await backend.health.report()
    return report | await run_in_threadpool(administration.describe_load, backend.engine, backend.settings)


class Pin(BaseModel):
    """The pin of a job or an upload, which is then kept after the retention time."""

    model_config = ConfigDict(extra="forbid")

    pinned: bool = True


@router.put("/jobs/{id}/pin")
def pin_job(id: str, wanted: Pin, caller: Submitter, backend: BackendDep) -> Pin:
    """Keep a job after the service's retention time, or no longer."""
    if not administration.pin(backend.engine, caller, Job, id, wanted.pinned):
        raise NotFound("there is no such job.")
    note(pinned=wanted.pinned)
    return wanted


@router.put("/uploads/{id}/pin")
def pin_upload(id: str, wanted: Pin, caller: Submitter, backend: BackendDep) -> Pin:
    """Keep an upload after the service's retention time, or no longer."""
    if not administration.pin(backend.engine, caller, Upload, id, wanted.pinned):
        raise NotFound("there is no such upload.")
    note(pinned=wanted.pinned)
    return wanted


def _check_may_manage(caller: Caller, user: str) -> None:
    if not caller.may_manage(user):
        raise PermissionError(
            "this needs a token with all scopes of your role; only an administrator may manage tokens of others."
        )


@router.post("/tokens", status_code=201)
def make_token(wanted: NewToken, caller: AnyCaller, backend: BackendDep) -> dict[str, str | float | None]:
    """Create a token for oneself or, as an administrator, for others. Only this answer holds its secret.

    The new token has at most the scopes and the lifetime of the token that sends the request.
    """
    engine = backend.engine
    user = wanted.user or caller.name
    _check_may_manage(caller, user)
    role = caller.role if user == caller.name else access.role_of(engine, user)
    days = wanted.days if role is None else caller.check_new_token(user, role, wanted.scopes, wanted.days)
    id_, token = access.new_token(engine, user, wanted.scopes, days)
    expires = access.expiry_of(engine, id_)
    note(name=user, id=id_)
    return {"id": id_, "user": user, "token": token, "expires": expires}


@router.get("/tokens")
def list_own_tokens(caller: Reader, backend: BackendDep) -> list[dict[str, Any]]:
    """List one's own tokens, without their secrets."""
    return access.tokens_of(backend.engine, caller.name)


@router.get("/tokens/{user}")
def list_tokens(user: str, caller: Reader, backend: BackendDep) -> list[dict[str, Any]]:
    """List a user's tokens, without their secrets."""
    _check_may_manage(caller, user)
    return access.tokens_of(backend.engine, user)


@router.delete("/tokens/{id}")
async def revoke(id: str, caller: AnyCaller, backend: BackendDep) -> dict[str, str]:
    """Revoke a token."""
    owner = await run_in_threadpool(access.owner_of_token, backend.engine, id)
    may = owner is not None and caller.may_manage(owner)
    token = await run_in_threadpool(access.revoke, backend.engine, id) if may else None
    if token is None:
        raise NotFound("there is no such token.")
    kept = functools.partial(revocations.keep, backend.settings.data, token=id, expires=token.expires)
    await run_in_threadpool(kept)
    backend.callers.forget(id)
    await run_in_threadpool(access.remove_stale_token, backend.engine, backend.settings.data)
    note(name=owner)
    return {"id": id}
