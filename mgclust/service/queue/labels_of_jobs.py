"""Doubts about jobs that read the labels of another job: the labels may belong to other rows.

The user may intend this: for example, another file may have the same rows with more columns. So a doubt is only a
warning.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from mgclust.service.queue.models import Job, Upload, reading

__all__ = ["doubts_about_labels"]

MAX_NAME_CHARACTERS = 36  # characters of a file's name in a message


def doubts_about_labels(engine: Engine, request: dict[str, Any]) -> list[str]:
    """Return a warning for each job whose labels a request reads, if that job has read other data than the request.

    Uploads are compared by their contents, and files below a root by their paths. If the comparison cannot decide
    whether the data differ, there is no warning.
    """
    named = {
        name: value["job"]
        for name, value in (request.get("parameters") or {}).items()
        if isinstance(value, dict) and "job" in value
    }
    found = []
    with reading(engine) as session:
        own = _data(session, request) if named else None
        for name, id_ in named.items():
            job = session.get(Job, id_)
            other = None if job is None else _data(session, job.request)
            if job is None or not own or not other or own == other:
                continue
            if {kind for kind, _ in own} == {kind for kind, _ in other}:
                found.append(
                    f"{name}=job:{id_[:8]}: that job read other data ({_first(job.request)}) than "
                    f"this job ({_first(request)}); check that the rows are the same."
                )
    return found


def _data(session: Session, request: dict[str, Any]) -> list[tuple[str, str]] | None:
    """Return what identifies the sources of a request; None if an upload was deleted."""
    sources = request.get("sources") or []
    ids = [source["upload"] for source in sources if "upload" in source]
    digests = {
        id_: sha256 for id_, sha256 in session.execute(select(Upload.id, Upload.sha256).where(Upload.id.in_(ids)))
    }
    if not digests.keys() >= set(ids):
        return None
    return [
        ("upload", digests[source["upload"]]) if "upload" in source else ("path", str(source.get("path")))
        for source in sources
    ]


def _first(request: dict[str, Any]) -> str:
    source = request["sources"][0]
    name = str(source.get("name") or source.get("path") or source.get("upload"))
    shown = repr(name)[1:-1]  # escapes are longer than the characters
    return f"'{shown if len(shown) <= MAX_NAME_CHARACTERS else f'...{shown[3 - MAX_NAME_CHARACTERS :]}'}'"
