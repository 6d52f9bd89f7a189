"""Jobs as the API shows them: completely, in lists and events, and to tokens without the scope read."""

from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mgclust.base.errors import printable
from mgclust.service.queue.access import Caller
from mgclust.service.queue.models import Job
from mgclust.service.states import State

__all__ = ["JobSummary", "JobView", "Progress", "QueuePosition", "Receipt", "job_summary", "job_view", "receipt"]

# A message may quote names and values from files: no control characters may reach a terminal that prints it.
Sentence = Annotated[str, AfterValidator(printable)]


class Progress(BaseModel):
    """Progress of an attempt, with the values that its method adds."""

    model_config = ConfigDict(extra="allow")
    stage: str | None = None
    fraction: float | None = Field(None, description="Fraction of the stage that is done, from 0 to 1.")
    elapsed: float | None = Field(None, description="Seconds since the computation began.")
    stage_rate: float | None = Field(None, description="Fraction of the stage that is done per second, smoothed.")
    stage_eta: float | None = Field(None, description="Seconds until the end of the stage (not of the job).")


class ResultCopy(BaseModel):
    """The copy of a result in a store."""

    state: Literal["COPYING", "COPIED", "FAILED"] = Field(description="COPYING includes waiting to be copied.")
    to: str = Field(description="Place of the files, store:NAME/PREFIX/ID. manifest.json is written last.")
    failures: int = Field(description="Number of attempts to copy that have failed.")
    error: Sentence | None = Field(description="Why the last of these attempts failed.")


class JobView(BaseModel):
    """A job with all its facts, as its owner sees it."""

    model_config = ConfigDict(extra="allow")
    id: str
    owner: str
    method: str
    state: State
    priority: int
    attempt: int
    created: float
    started: float | None
    finished: float | None
    progress: Progress | None
    scores: dict[str, Any] | None
    warnings: list[Sentence] | None = Field(description="Warnings of the result. Read them before you use the result.")
    error: Sentence | None
    fault: str | None
    size: int | None = Field(description="Bytes in the database, and on disk when the job last ended.")
    name: str | None = Field(description="Name that the user has chosen.")
    tags: list[str]
    sweep: str | None = Field(description="The sweep that the job is a member of.")
    request: dict[str, Any]
    result_copy: ResultCopy | None = Field(description="Null if the request has no results_to, or there is no result.")


class JobSummary(BaseModel):
    """A job in lists and events, without its request."""

    id: str
    owner: str
    method: str
    state: State
    priority: int
    attempt: int
    created: float
    started: float | None
    finished: float | None
    progress: Progress | None
    scores: dict[str, Any] | None = Field(description="Null if the scores are long; the job itself has them.")
    warnings: list[Sentence] | None = Field(
        description="Warnings of the result. Null if the warnings are long; the job itself has them."
    )
    error: Sentence | None = Field(description="Truncated if it is long.")
    fault: str | None
    size: int | None = Field(description="Bytes in the database, and on disk when the job last ended.")
    name: str | None = Field(description="Name that the user has chosen.")
    tags: list[str]
    sweep: str | None = Field(description="The sweep that the job is a member of.")
    sources: list[str] = Field(description="Names of the first sources.")
    n_sources: int
    parameters: dict[str, str] = Field(description="The first parameters that the request gives, as short texts.")
    result_copy: ResultCopy | None = Field(description="Null if the request has no results_to, or there is no result.")
    parent: str | None = Field(description="The job whose result was the basis for this job with other centres.")


class QueuePosition(BaseModel):
    """The place of a job in the queue."""

    before: int | None = Field(
        description="Jobs that are expected to start first. Null if the job does not wait, if its user is disabled, "
        "or if very many jobs wait."
    )


class Receipt(BaseModel):
    """The state of a job, for a token without the scope read."""

    id: str
    method: str
    state: State


def job_view(job: Job) -> JobView:
    """Return all facts about a job."""
    return JobView(**{name: getattr(job, name) for name in JobView.model_fields})


def receipt(caller: Caller, job: Job, status: int = 200) -> Response:
    """Answer with a job that the caller has changed: with all its facts if the token has the scope read.

    The answer is encoded here, because FastAPI would check the model a second time.
    """
    kind = JobView if "read" in caller.scopes else Receipt
    view = kind(**{name: getattr(job, name) for name in kind.model_fields})
    return Response(view.model_dump_json(), status, media_type="application/json")


def job_summary(row: Any) -> JobSummary:
    """Return the facts about a job for lists and events."""
    summary = row.summary
    return JobSummary(
        **summary, **{name: getattr(row, name) for name in JobSummary.model_fields if name not in summary}
    )
