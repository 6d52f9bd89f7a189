"""Other centres for a job that has succeeded: a preview, or a new job with the result for these centres.

The computation needs only the result of the method, and no pass over the data. It is available for methods that can
choose centres, and runs in `mgclust.service.confined.reader_process`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from sqlalchemy import Engine

from mgclust.algorithms import declarations
from mgclust.base.errors import InputError, printable
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined.child_messages import check_findings
from mgclust.service.confined.folders import remove, set_aside, size_of
from mgclust.service.confined.reader_pool import LimitExceeded, Readers
from mgclust.service.queue.access import Caller
from mgclust.service.queue.jobs.lists import JobLists
from mgclust.service.queue.jobs.submission import JobSubmission, job_id
from mgclust.service.queue.models import Job
from mgclust.service.queue.sources import files_of_job
from mgclust.service.settings import Settings

__all__ = [
    "CenterChoice",
    "DecisionGraph",
    "Preview",
    "PreviewRequest",
    "ProjectedPoints",
    "SaveRequest",
    "graph_of",
    "labels_file",
    "points_of",
    "preview",
    "save_as_job",
]

CHUNK_BYTES = 1 << 20

Value = bool | int | float | str | None


class CenterChoice(BaseModel):
    """Centres, chosen by the parameters in `centers` of the method in `/methods`; by default, the automatic centres."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Value | Annotated[list[int], Field(max_length=10_000)]]

    def given(self) -> dict[str, Any]:
        """Return the given parameters, for `select_centers` of the method, which checks them."""
        return {name: value for name, value in (self.model_extra or {}).items() if value is not None}


class PreviewRequest(CenterChoice):
    """Centres, and the parts that the answer should have."""

    answer: Literal["sizes", "points", "labels"] = Field(
        "sizes",
        description="sizes: only the sizes of clusters; points: also the labels of the rows of /points; "
        "labels: the labels of all rows, as a .npy file.",
    )


class SaveRequest(CenterChoice):
    """Centres whose result is to be stored."""

    key: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Chosen by the client: a request with the same key does not create a second job."
    )


class Preview(BaseModel):
    """Clusters for a choice of centres."""

    n_clusters: int
    centers: list[int]
    sizes: list[int]
    places: list[tuple[float, float]] = Field(
        description="Each centre in the decision graph, if there is one: right, up."
    )
    colors: list[str] = Field(description="Colour of each cluster, as in the pictures of the report.")
    warnings: list[Annotated[str, AfterValidator(printable)]] = Field(description="Reasons to doubt these centres.")
    labels: list[int] | None = Field(default=None, description="Labels of the rows of /points, if requested.")


class DecisionGraph(BaseModel):
    """Rows of a decision graph: those with the largest products of both quantities, and a sample of the others."""

    rows: list[int] = Field(description="Row numbers; the first `ranked` rows by decreasing product, then the sample.")
    right: list[float] = Field(description="The first quantity of these rows.")
    up: list[float] = Field(description="The second quantity of these rows.")
    ranked: int
    total: int = Field(description="Number of rows of the result.")


class ProjectedPoints(BaseModel):
    """A sample of rows for a picture, by their first two features."""

    index: list[int]
    x: list[float]
    y: list[float]
    names: list[Annotated[str, AfterValidator(printable)]] = Field(
        [], description="Names of the two features, if known."
    )
    why: Annotated[str, AfterValidator(printable)] | None = Field(None, description="The reason if there are no rows.")


def preview(readers: Readers, result: RootedFile, wanted: PreviewRequest) -> Preview:
    """Preview the clusters of other centres.

    Parameters
    ----------
    readers : Readers
        Processes that compute the preview.
    result : RootedFile
        The result directory of a job.
    wanted : PreviewRequest
        The centres.

    Raises
    ------
    InputError
        The result is of another method, or the densest row, or every row, is outside the limits.
    """
    order = {"do": "preview", "result": result.order(), "centers": wanted.given(), "labels": wanted.answer == "points"}
    return readers.serve(order, Preview.model_validate)


def graph_of(readers: Readers, result: RootedFile) -> DecisionGraph:
    """Read the decision graph of a result.

    Raises
    ------
    InputError
        The result is of another method.
    """
    return readers.serve({"do": "graph", "result": result.order()}, DecisionGraph.model_validate)


def labels_file(
    readers: Readers, settings: Settings, result: RootedFile, wanted: CenterChoice
) -> tuple[int, Iterator[bytes]]:
    """Compute the labels of all rows for these centres; return the size of a .npy file and its bytes in parts."""
    folder = _scratch(settings, secrets.token_hex(16))
    try:
        readers.serve(
            {"do": "labels", "result": result.order(), "centers": wanted.given(), "folder": str(folder)},
            lambda answer: None,
            writable=[folder],
        )
        file = RootedFile(str(folder), "labels.npy").open()  # the process may have written anything
    finally:
        remove(folder)  # the open file stays readable
    size = file.seek(0, os.SEEK_END)
    file.seek(0)

    def parts() -> Iterator[bytes]:
        with file:
            while part := file.read(CHUNK_BYTES):
                yield part

    return size, parts()


def points_of(readers: Readers, engine: Engine, settings: Settings, job: Job, result: RootedFile) -> ProjectedPoints:
    """Sample rows for the picture of the page. The sample is empty if the source has vanished or is too large.

    Raises
    ------
    InputError
        The result is of another method.
    """
    try:
        order = {"do": "points", "result": result.order(), **_read_by(engine, settings, job)}
        return readers.serve(order, ProjectedPoints.model_validate)
    except LimitExceeded as error:
        return ProjectedPoints(index=[], x=[], y=[], names=[], why=str(error))


def save_as_job(
    readers: Readers,
    engine: Engine,
    settings: Settings,
    submission: JobSubmission,
    caller: Caller,
    parent: Job,
    result: RootedFile,
    centers: SaveRequest,
) -> Job:
    """Store the result for other centres as a new job that has succeeded and names its parent.

    If the caller has used the same key before for this parent, the existing job is returned.

    Raises
    ------
    InputError
        The choice is invalid, as in `preview`; the key belongs to a job with other centres; or the source, which labels
        and pictures need, has vanished or changed.
    QuotaExceeded
        The owner of the parent has reached a limit.
    """
    id_ = job_id(caller, centers.key and f"{parent.id} {centers.key}")
    given = centers.given()
    if (known := JobLists(engine).get(caller, id_)) is not None:
        if known.request["centers"] != given:
            raise InputError(f"the key belongs to job {id_}, which has other centres; give each request its own key.")
        return known
    method = declarations()[parent.method]
    before = {*method.center_parameters, *method.discarded_by_centers}
    parameters = {name: v for name, v in parent.request["parameters"].items() if name not in before}
    # The result of the new job is not copied to a store.
    kept = {name: value for name, value in parent.request.items() if name != "results_to"}
    request = kept | {"parameters": parameters, "parent": parent.id, "centers": given}
    folder = _scratch(settings, id_)

    def place() -> None:
        attempt = settings.attempt_folder(id_, 1)
        set_aside(attempt, settings.data / "jobs")  # a process that died here may have left it; a sweep removes it
        attempt.parent.mkdir(exist_ok=True)
        folder.rename(attempt)

    choice = ", ".join(f"{name}={value}" for name, value in given.items()) or "chosen automatically"
    # Write the log before the process may write to the folder, because the process could replace the log by a link.
    (folder / "log.txt").write_text(f"other centres for the result of job {parent.id}: {choice}\n")
    try:
        order = {"do": "save", "result": result.order(), "centers": given, "folder": str(folder)}
        found = readers.serve(order | _read_by(engine, settings, parent), check_findings, writable=[folder])
        return submission.add_finished(parent, id_, request, found.scores, size_of(folder), place, found.warnings)
    finally:
        remove(folder)


def _scratch(settings: Settings, id_: str) -> Path:
    """Make a temporary folder. If this process does not remove it, a later start does."""
    folder = settings.data / "jobs" / f"{id_}.{secrets.token_hex(4)}"  # another process may be writing the same job
    folder.mkdir(parents=True, mode=0o700)
    return folder


def _read_by(engine: Engine, settings: Settings, job: Job) -> dict[str, Any]:
    """Return the request and the files of a job, or the reason why the files may not be read any more."""
    request = {"method": job.method, **job.request}
    try:
        files = {name: file.order() for name, file in files_of_job(engine, settings, job).items()}
    except InputError as error:
        return {"request": request, "files": {}, "refused": str(error)}
    return {"request": request, "files": files, "refused": None}
