"""Endpoints for health and metrics, outside of /api/v1."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse

from mgclust.service.web.dependencies import BackendDep, Reader

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
async def healthy(backend: BackendDep, strict: bool = False) -> JSONResponse:
    """Answer 200 if this process and the database work; with `strict`, only if a runner works as well."""
    report = await backend.health.report()
    return JSONResponse(report, 503 if strict and report["status"] != "ok" else 200)


@router.get("/metrics")
def metrics(caller: Reader, backend: BackendDep) -> PlainTextResponse:
    """Answer with the metrics in the text format of Prometheus."""
    if caller.role != "admin":  # the scope read is enough, so that a scraper's token cannot administrate
        raise PermissionError("only a token of an administrator, with the scope read, may see the metrics.")
    return PlainTextResponse(backend.metrics.text(), media_type="text/plain; version=0.0.4")


@router.get("/sign-in/ways")
def ways_to_sign_in(backend: BackendDep) -> JSONResponse:
    """Answer whether users may sign in at an OpenID provider, and whether the page asks before a session begins."""
    settings = backend.settings
    return JSONResponse({"openid": bool(settings.oidc_issuer), "asks": not settings.is_secure})
