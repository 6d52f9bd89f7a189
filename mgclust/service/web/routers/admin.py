"""Endpoints for users and tokens."""

import functools
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from mgclust.service.audit import note
from mgclust.service.queue import access, revocations
from mgclust.service.queue.access import Caller
from mgclust.service.web.dependencies import Administrator, AnyCaller, BackendDep, Reader
from mgclust.service.web.errors import NotFound

router = APIRouter()


class NewUser(BaseModel):
    """A user to create."""

    name: str
    role: str = "user"


class NewToken(BaseModel):
    """A token to create."""

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
    note(name=user.name, role=user.role)
    return user


@router.get("/users")
def list_users(caller: Administrator, backend: BackendDep) -> list[dict[str, Any]]:
    """List all users."""
    return access.users(backend.engine)


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
    if owner is None or not caller.may_manage(owner) or not await run_in_threadpool(access.revoke, backend.engine, id):
        raise NotFound("there is no such token.")
    await run_in_threadpool(functools.partial(revocations.keep, backend.settings.data, token=id))
    backend.callers.forget(id)
    await run_in_threadpool(access.remove_stale_token, backend.engine, backend.settings.data)
    note(name=owner)
    return {"id": id}
