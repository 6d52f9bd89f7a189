"""Other centres for a density-peaks job that has succeeded: what they would give, and keeping it as a job of its own.

Labels follow from rho, delta and nearest_higher, which the result holds, so this takes no other pass over the data. All
of it is computed in a process of `mgclust.service.reader`; here is what is asked and answered.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlalchemy import Engine

from mgclust.beneath import Beneath
from mgclust.errors import InputError
from mgclust.service.access import Caller
from mgclust.service.disk import remove
from mgclust.service.inputs import named_sources
from mgclust.service.jobs import Jobs, job_id
from mgclust.service.models import Job
from mgclust.service.readers import LimitExceeded, Readers
from mgclust.service.settings import Settings
from mgclust.service.sources import files_of

__all__ = [
    "Centers",
    "Points",
    "Preview",
    "PreviewRequest",
    "SaveRequest",
    "labels_file",
    "points_of",
    "preview",
    "save_as_job",
]

CHUNK_BYTES = 1 << 20

Limit = Annotated[float, Field(allow_inf_nan=False)]


class Centers(BaseModel):
    """Which rows are centres: a box of the decision graph, or their numbers, or how many; nothing is automatic."""

    model_config = ConfigDict(extra="forbid")
    n_clusters: int | None = None
    rho_min: Limit | None = None
    delta_min: Limit | None = None
    rho_max: Limit | None = None
    delta_max: Limit | None = None
    indices: Annotated[list[int], Field(max_length=10_000)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.indices is not None and len(self.given()) > 1:
            raise ValueError("indices go with nothing else")
        return self

    def given(self) -> dict[str, Any]:
        """What was said, as `DensityPeaks.select_centers` takes it."""
        names = ("n_clusters", "rho_min", "delta_min", "rho_max", "delta_max", "indices")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class PreviewRequest(Centers):
    """Centres, and what to tell of them."""

    answer: Literal["sizes", "points", "labels"] = Field(
        "sizes", description="Sizes only; also the labels of the rows that /points shows; or all labels, as a .npy."
    )


class SaveRequest(Centers):
    """Centres whose result is kept."""

    key: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Of the sender's choice: the same key again is the same job, not another."
    )


class Preview(BaseModel):
    """What a choice of centres gives."""

    n_clusters: int
    centers: list[int]
    sizes: list[int]
    labels: list[int] | None = Field(default=None, description="Of the rows that /points shows, if asked for.")


class Points(BaseModel):
    """Rows that stand for all in a picture, by their first two features."""

    index: list[int]
    x: list[float]
    y: list[float]
    why: str | None = Field(default=None, description="There are none, and this is the reason.")


def preview(readers: Readers, result: Beneath, wanted: PreviewRequest) -> Preview:
    """What the centres would give.

    Parameters
    ----------
    readers : Readers
    result : Beneath
        The result directory of a density-peaks job.
    wanted : PreviewRequest

    Raises
    ------
    InputError
        Another method's result; no row, or not the densest one, is within the limits.
    """
    order = {"do": "preview", "result": result.order(), "centers": wanted.given(), "labels": wanted.answer == "points"}
    return Preview(**readers.serve(order))


def labels_file(readers: Readers, settings: Settings, result: Beneath, wanted: Centers) -> tuple[int, Iterator[bytes]]:
    """Each row's label under these centres, as the bytes of a .npy, and how many they are."""
    folder = _scratch(settings, secrets.token_hex(16))
    try:
        readers.serve(
            {"do": "labels", "result": result.order(), "centers": wanted.given(), "folder": str(folder)},
            writable=[folder],
        )
        file = Beneath(str(folder), "labels.npy").open()  # what the process has left may be anything
    finally:
        remove(folder)  # what is open stays
    size = file.seek(0, os.SEEK_END)
    file.seek(0)

    def parts() -> Iterator[bytes]:
        with file:
            while part := file.read(CHUNK_BYTES):
                yield part

    return size, parts()


def points_of(readers: Readers, engine: Engine, settings: Settings, job: Job, result: Beneath) -> Points:
    """Rows for the page's picture; none where their source is gone, or takes too much to be read for a picture.

    Raises
    ------
    InputError
        Another method's result.
    """
    try:
        return Points(**readers.serve({"do": "points", "result": result.order(), **_read_by(engine, settings, job)}))
    except LimitExceeded as error:
        return Points(index=[], x=[], y=[], why=str(error))


def save_as_job(
    readers: Readers,
    engine: Engine,
    settings: Settings,
    jobs: Jobs,
    caller: Caller,
    parent: Job,
    result: Beneath,
    centers: SaveRequest,
) -> Job:
    """Keep a choice of centres as a whole result: that of a new job, which has succeeded and names its parent.

    With a key that the caller has used before for this parent: the job that this made.

    Raises
    ------
    InputError
        As `preview`; or the source, which labels and pictures are written after, is gone or has changed.
    NoRoom
        The parent's owner keeps as much as they may.
    """
    id_ = job_id(caller, centers.key and f"{parent.id} {centers.key}")
    if (known := jobs.get(caller, id_)) is not None:
        return known
    given = centers.given()
    chosen_before = {"n_clusters", "rho_min", "delta_min", "halo"}
    parameters = {name: v for name, v in parent.request["parameters"].items() if name not in chosen_before}
    request = parent.request | {"parameters": parameters, "parent": parent.id, "centers": given}
    if any("url" in source for source in named_sources(request).values()):
        request.setdefault("fetched_by", parent.id)
    folder = _scratch(settings, id_)

    def place() -> None:
        attempt = settings.attempt_folder(id_, 1)
        remove(attempt)  # of a process that died here and entered nothing
        attempt.parent.mkdir(exist_ok=True)
        folder.rename(attempt)

    said = ", ".join(f"{name}={value}" for name, value in given.items()) or "the automatic ones"
    # Before the process may write there: a file that it has left may be a link.
    (folder / "log.txt").write_text(f"centres chosen on the decision graph of job {parent.id}: {said}\n")
    try:
        order = {"do": "save", "result": result.order(), "centers": given, "folder": str(folder)}
        scores = readers.serve(order | _read_by(engine, settings, parent), writable=[folder])
        return jobs.add_finished(parent, id_, request, scores, place)
    finally:
        remove(folder)


def _scratch(settings: Settings, id_: str) -> Path:
    """A folder to write in, which a later start removes if this process does not come to it."""
    folder = settings.data / "jobs" / f"{id_}.{secrets.token_hex(4)}"  # another process may be at the same job
    folder.mkdir(parents=True, mode=0o700)
    return folder


def _read_by(engine: Engine, settings: Settings, job: Job) -> dict[str, Any]:
    """What a job reads; or, where that is refused by now, why."""
    request = {"method": job.method, **job.request}
    try:
        files = {name: file.order() for name, file in files_of(engine, settings, job).items()}
    except InputError as error:
        return {"request": request, "files": {}, "refused": str(error)}
    return {"request": request, "files": files, "refused": None}
