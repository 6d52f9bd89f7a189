"""Agreement between the labels of several jobs, computed in `mgclust.service.confined.reader_process`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mgclust.base.errors import InputError, printable
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined.reader_pool import Readers
from mgclust.service.confined.results import open_result
from mgclust.service.queue.models import Job
from mgclust.service.settings import Settings

__all__ = ["Agreement", "Comparison", "agreement"]

MAX_JOBS = 10


class Comparison(BaseModel):
    """The jobs to compare."""

    model_config = ConfigDict(extra="forbid")
    ids: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=2, max_length=MAX_JOBS)]


class Agreement(BaseModel):
    """Agreement of the labels of jobs."""

    ari: list[list[float | None]] = Field(
        description="Adjusted Rand index of each pair of jobs, in their order: 1 for equal clusters, about 0 for "
        "independent ones. Rows in no cluster count as one more cluster. Null: a job has no labels, or the jobs have "
        "different numbers of rows."
    )
    notes: list[Annotated[str, AfterValidator(printable)]] = Field(
        description="Reasons why values are null, and doubts that the rows are the same."
    )


def agreement(readers: Readers, settings: Settings, jobs: Sequence[Job]) -> Agreement:
    """Compare the labels of jobs.

    Parameters
    ----------
    readers : Readers
        Processes that read the labels.
    settings : Settings
        Settings of the service.
    jobs : sequence of Job
        The jobs, which the caller may see.

    Raises
    ------
    InputError
        Fewer than two jobs have a result, or the labels are too large to be read.
    """
    results: list[RootedFile | None] = [
        open_result(settings, job.id, job.attempt) if job.state == "SUCCEEDED" else None for job in jobs
    ]
    places = [k for k, result in enumerate(results) if result is not None]
    notes = [
        f"job {job.id[:8]} is {job.state} and has no result."
        for job, result in zip(jobs, results, strict=True)
        if result is None
    ]
    opened = [result for result in results if result is not None]
    n = len(jobs)
    matrix: list[list[float | None]] = [[None] * n for _ in range(n)]
    if len(opened) < 2:
        return Agreement(ari=matrix, notes=notes)
    order = {
        "do": "agreement", "result": opened[0].order(), "others": [each.order() for each in opened[1:]],
        "names": [f"job {jobs[k].id[:8]}" for k in places],
    }  # fmt: skip
    told = readers.serve(order, lambda answer: _checked(answer, len(opened)))
    for row, k in zip(told["ari"], places, strict=True):
        for value, other in zip(row, places, strict=True):
            matrix[k][other] = value
    return Agreement(ari=matrix, notes=notes + told["notes"])


def _checked(answer: Any, n: int) -> dict[str, Any]:
    """Check the answer of the process, which its data may have taken over."""
    rows, notes = answer["ari"], answer["notes"]
    valid = isinstance(rows, list) and len(rows) == n and all(isinstance(row, list) and len(row) == n for row in rows)
    if not valid or not isinstance(notes, list) or not all(isinstance(each, str) for each in notes):
        raise InputError("the labels cannot be compared: reading them gave no valid answer.")
    for value in (value for row in rows for value in row):
        if value is not None and not (isinstance(value, (int, float)) and math.isfinite(value)):
            raise InputError("the labels cannot be compared: reading them gave no valid answer.")
    return {"ari": rows, "notes": [each[:300] for each in notes[: 3 * MAX_JOBS]]}
