"""Endpoints for the session of a browser, and for who sends a request."""

from typing import Any

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from mgclust.service.audit import note
from mgclust.service.queue import revocations, sessions
from mgclust.service.queue.access import ROLES, SCOPES, Caller
from mgclust.service.web.dependencies import AnyCaller, Backend, BackendDep
from mgclust.service.web.perimeter.session_cookie import set_cookie

router = APIRouter(prefix="/session")


def _described(caller: Caller) -> dict[str, Any]:
    scopes = [scope for scope in SCOPES if scope in caller.scopes]
    return {
        "user": caller.name, "role": caller.role, "scopes": scopes, "token": caller.token, "expires": caller.expires,
        "kind": caller.kind,
    }  # fmt: skip


async def _keep(caller: Caller, backend: Backend) -> None:
    data, ended = backend.settings.data, {"session": caller.token, "expires": caller.expires}
    await run_in_threadpool(lambda: revocations.keep(data, **ended))


@router.get("")
def whoami(caller: AnyCaller) -> dict[str, Any]:
    """Show the user, the role and the scopes of the token that sends the request."""
    return _described(caller)


@router.post("", status_code=201)
async def sign_in(caller: AnyCaller, backend: BackendDep, answer: Response) -> dict[str, Any]:
    """Begin a session of a browser with a token or a one-time code.

    The answer sets a cookie. Requests with the cookie also need the ``proof`` of the answer, in ``X-Mgclust-Proof``.
    """
    cookie, proof, session = await run_in_threadpool(sessions.begin, backend.engine, caller)
    if caller.kind == "code":
        # A restored backup would have the unused code again.
        await _keep(caller, backend)
        backend.callers.forget(caller.token)
    set_cookie(backend.settings, answer, cookie)
    note(id=session.token, kind=caller.kind)
    return _described(session) | {"proof": proof}


@router.delete("")
async def sign_out(caller: AnyCaller, backend: BackendDep, answer: Response) -> dict[str, Any]:
    """End the session that sends the request."""
    await run_in_threadpool(sessions.end, backend.engine, caller)
    # A restored backup would have the session again.
    await _keep(caller, backend)
    backend.callers.forget(caller.token)
    set_cookie(backend.settings, answer, None)
    return _described(caller)


@router.post("/codes", status_code=201)
def make_code(caller: AnyCaller, backend: BackendDep) -> dict[str, str]:
    """Create a code that begins one session of the caller within 10 minutes. The token needs all scopes of the role."""
    if caller.kind != "token" or not caller.scopes.issuperset(ROLES[caller.role]):
        raise PermissionError("a code to sign in needs a token with all scopes of your role.")
    code = sessions.new_code(backend.engine, caller.name, caller.token)
    return {"path": f"/sign-in#code={code}"}
