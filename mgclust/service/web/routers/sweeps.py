"""Endpoints for sweeps: jobs that differ in some parameters, and are submitted, cancelled and deleted as one."""

import json
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from mgclust.base.errors import InputError
from mgclust.service.audit import note
from mgclust.service.queue.access import Caller
from mgclust.service.queue.jobs.submission import NewJob, job_id
from mgclust.service.queue.models import Job
from mgclust.service.web.dependencies import Backend, BackendDep, Reader, Submitter
from mgclust.service.web.errors import NotFound
from mgclust.service.web.requests import MAX_RECORD_BYTES, SweepSubmission
from mgclust.service.web.routers.jobs import check_files, check_request, check_results_to
from mgclust.service.web.views import JobView, Receipt, job_view

router = APIRouter(prefix="/sweeps")


class SweepView(BaseModel):
    """A sweep with its jobs."""

    id: str
    vary: dict[str, list[Any]] = Field(description="The values of each parameter that differs between the jobs.")
    jobs: list[JobView | Receipt] = Field(description="The jobs, in the order of their combinations of values.")


def _view(caller: Caller, id_: str, jobs: list[Job]) -> SweepView:
    if not jobs:
        raise NotFound("there is no such sweep.")
    if "read" not in caller.scopes:
        return SweepView(
            id=id_,
            vary={},
            jobs=[Receipt(**{name: getattr(job, name) for name in Receipt.model_fields}) for job in jobs],
        )
    varied: dict[str, list[Any]] = {name: [] for job in jobs for name in job.request["vary"]}
    for job in jobs:
        for name in varied:
            if (value := job.request["parameters"].get(name)) not in varied[name]:
                varied[name].append(value)
    return SweepView(id=id_, vary=varied, jobs=[job_view(job) for job in jobs])


def _records(sweep: SweepSubmission, caller: Caller, backend: Backend) -> list[dict[str, Any]]:
    """Check the request of each job, and return the records that the queue stores."""
    records: list[dict[str, Any]] = []
    submissions = sweep.combinations()
    for submission in submissions:
        check_request(submission, caller, backend)
        record = submission.to_record() | {"vary": list(sweep.vary)}
        # All records are about as long as the first one, so a sweep that is too large is rejected after one record.
        if not records and (size := len(json.dumps(record)) * len(submissions)) > MAX_RECORD_BYTES * 8:
            raise InputError(
                f"the {len(submissions)} jobs of the sweep take {size:,} bytes in the queue, and the maximum is "
                f"{MAX_RECORD_BYTES * 8:,}; give fewer values, fewer sources or shorter names."
            )
        records.append(record)
    return records


@router.post("", status_code=201)
async def submit_sweep(sweep: SweepSubmission, caller: Submitter, backend: BackendDep) -> SweepView:
    """Submit a job for each combination of values: all jobs, or none."""
    await check_results_to(sweep, caller, backend)
    records = await run_in_threadpool(_records, sweep, caller, backend)  # so that other requests need not wait
    parameters = [{"sources": [], "parameters": record["parameters"]} for record in records]
    await check_files([records[0], *parameters], caller, backend)  # the jobs differ only in parameters
    id_ = job_id(caller, sweep.key and f"sweep {sweep.key}")
    note(id=id_)
    orders = [
        NewJob(job_id(caller, f"sweep {id_} {k}"), caller, sweep.method, record, sweep.priority, sweep.name, sweep.tags,
               id_)
        for k, record in enumerate(records)
    ]  # fmt: skip
    return _view(caller, id_, await run_in_threadpool(backend.submission.submit_sweep, orders))


@router.get("/{id}")
def show_sweep(id: str, caller: Reader, backend: BackendDep) -> SweepView:
    """Show a sweep with its jobs."""
    return _view(caller, id, backend.jobs.members(caller, id))


@router.post("/{id}/cancel")
def cancel_sweep(id: str, caller: Submitter, backend: BackendDep) -> SweepView:
    """Cancel all jobs of a sweep. Jobs that have ended stay unchanged."""
    jobs = backend.jobs.members(caller, id)
    # The jobs that wait longest come last.
    cancelled = [backend.changes.cancel(caller, job.id) for job in reversed(jobs)]
    return _view(caller, id, [job for job in reversed(cancelled) if job is not None])


@router.delete("/{id}")
def delete_sweep(id: str, caller: Submitter, backend: BackendDep) -> SweepView:
    """Delete all jobs of a sweep, which must have ended, with their files and logs, and return them."""
    return _view(caller, id, backend.changes.delete_sweep(caller, id))
