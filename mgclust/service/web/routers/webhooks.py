"""Endpoints for webhooks: addresses that receive a message at the end of each job of their user."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from mgclust.service.audit import note
from mgclust.service.queue import webhooks
from mgclust.service.web.dependencies import BackendDep, Reader, Submitter
from mgclust.service.web.errors import NotFound

router = APIRouter(prefix="/webhooks")


class NewWebhook(BaseModel):
    """A webhook to add."""

    model_config = ConfigDict(extra="forbid")

    url: str


@router.post("", status_code=201)
def add_webhook(wanted: NewWebhook, reader: Reader, caller: Submitter, backend: BackendDep) -> dict[str, Any]:
    """Add a webhook. Only this answer has the secret, with which the messages are signed."""
    made = webhooks.add(backend.engine, backend.settings, caller, wanted.url)
    note(id=made["id"])
    return made


@router.get("")
def list_webhooks(caller: Reader, backend: BackendDep) -> list[dict[str, Any]]:
    """List one's own webhooks and the outcomes of their last messages."""
    return webhooks.webhooks_of(backend.engine, caller.name)


@router.delete("/{id}")
def delete_webhook(id: str, caller: Submitter, backend: BackendDep) -> dict[str, str]:
    """Delete a webhook."""
    if not webhooks.remove(backend.engine, backend.settings.data, caller.name, id):
        raise NotFound("there is no such webhook.")
    return {"id": id}
