"""Other centres for a density-peaks job that has succeeded: what they would give, and keeping it as a job of its own.

Labels follow from rho, delta and nearest_higher, which the result holds, so this takes no other pass over the data.
"""

from __future__ import annotations

import io
import json
import secrets
import shutil
import threading
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlalchemy import Engine

from mgclust.algorithms import METHODS
from mgclust.algorithms.density_peaks import DensityPeaks
from mgclust.errors import InputError
from mgclust.file_run import compared, open_sources, save
from mgclust.result import load_result
from mgclust.service.access import Caller
from mgclust.service.disk import size_of
from mgclust.service.jobs import Jobs, job_id
from mgclust.service.records import Job
from mgclust.service.settings import Settings
from mgclust.service.sources import named_sources, sources_of

__all__ = ["Centers", "Kept", "Points", "Preview", "Wanted", "labels_file", "points_of", "preview", "save_as_job"]

POINTS = 4_000  # rows of the picture on the page
# What has to be read as a whole to get at some of its rows is not, beyond this: a picture is not worth the wait.
MOST_READ = 256 << 20
READ_IN_PARTS = (".npy", ".zarr")

Limit = Annotated[float, Field(allow_inf_nan=False)]

# One at a time: each takes some tens of bytes of memory a row, and a page asks as fast as it is answered.
_turn = threading.Lock()


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


class Wanted(Centers):
    """Centres, and what to tell of them."""

    answer: Literal["sizes", "points", "labels"] = Field(
        "sizes", description="Sizes only; also the labels of the rows that /points shows; or all labels, as a .npy."
    )


class Kept(Centers):
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


def preview(result: Path, wanted: Wanted) -> Preview:
    """What the centres would give.

    Parameters
    ----------
    result : Path
        The result directory of a density-peaks job.
    wanted : Wanted

    Returns
    -------
    Preview

    Raises
    ------
    InputError
        Another method's result; no row, or not the densest one, is within the limits.
    """
    with _turn:
        model = _chosen(result, wanted)
        told = Preview(
            n_clusters=model.n_clusters_,
            centers=model.cluster_centers_indices_.tolist(),
            sizes=model.result_.cluster_sizes.tolist(),
        )
        if wanted.answer == "points":
            told.labels = model.labels_[_shown(model.result_.source["shape"])].tolist()
        return told


def labels_file(result: Path, wanted: Centers) -> bytes:
    """Each row's label under these centres, as a .npy."""
    with _turn:
        file = io.BytesIO()
        np.save(file, _chosen(result, wanted).labels_, allow_pickle=False)
        return file.getvalue()


def points_of(engine: Engine, settings: Settings, job: Job, result: Path) -> Points:
    """Rows for the page's picture; none where their source is gone, or would have to be read as a whole and is large.

    Raises
    ------
    InputError
        Another method's result.
    """
    from mgclust.report import sample_rows

    with _turn:
        known = DensityPeaks.from_result(load_result(result)).result_
        try:
            paths, options = sources_of(engine, settings, job)
            large = [path for path in paths if not path.endswith(READ_IN_PARTS) and size_of(Path(path)) > MOST_READ]
            if large:
                raise InputError("the file is too large to be read for a picture.")
            dataset = open_sources(DensityPeaks, paths, **options)
            if dataset.shape != tuple(known.source["shape"]):
                raise InputError("the source has changed since the job read it.")
            sample: Any = sample_rows(dataset, known, POINTS)
        except InputError as error:
            return Points(index=[], x=[], y=[], why=str(error))
        y = sample.rows[:, 1] if dataset.shape[1] > 1 else np.zeros(len(sample.index))
        return Points(index=sample.index.tolist(), x=sample.rows[:, 0].tolist(), y=y.tolist())


def save_as_job(
    engine: Engine, settings: Settings, jobs: Jobs, caller: Caller, parent: Job, result: Path, centers: Kept
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
    with _turn:
        if (known := jobs.get(caller, id_)) is not None:
            return known
        model = _chosen(result, centers)
        paths, options = sources_of(engine, settings, parent)
        dataset = open_sources(METHODS[parent.method], paths, **options)
        if dataset.shape != tuple(model.result_.source["shape"]):
            raise InputError("the source has changed since the job read it; run the job again.")
        found = compared(model.result_, dataset)
        given = centers.given()
        chosen_before = {"n_clusters", "rho_min", "delta_min", "halo"}
        parameters = {name: v for name, v in parent.request["parameters"].items() if name not in chosen_before}
        request = parent.request | {"parameters": parameters, "parent": parent.id, "centers": given}
        if any("url" in source for source in named_sources(request).values()):
            request.setdefault("fetched_by", parent.id)
        folder = settings.data / "jobs" / f"{id_}.{secrets.token_hex(4)}"  # another process may be at the same job
        folder.mkdir(parents=True)

        def place() -> None:
            attempt = settings.attempt_folder(id_, 1)
            shutil.rmtree(attempt, ignore_errors=True)  # of a process that died here and entered nothing
            attempt.parent.mkdir(exist_ok=True)
            folder.rename(attempt)

        try:
            save(found, dataset, folder / "result", False, request.get("report", True), [], lambda event: None)
            said = ", ".join(f"{name}={value}" for name, value in given.items()) or "the automatic ones"
            (folder / "log.txt").write_text(f"centres chosen on the decision graph of job {parent.id}: {said}\n")
            scores = json.loads(json.dumps(found.to_dict()["scores"]))
            return jobs.enter(parent, id_, request, scores, place)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _chosen(result: Path, centers: Centers) -> DensityPeaks:
    return DensityPeaks.from_result(load_result(result)).select_centers(**centers.given())


def _shown(shape: Any) -> np.ndarray:
    from mgclust.report import sample_index  # matplotlib takes a second to load

    return sample_index((shape[0], shape[1]), POINTS)
