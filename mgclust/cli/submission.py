"""The command that sends a job, or a sweep of jobs, to a service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from mgclust.base.errors import InputError, MgclustError, printable
from mgclust.cli.jobs import check_mlflow, warn, watching
from mgclust.cli.options import FiniteRange, connect_service, mlflow_option
from mgclust.cli.output import ShownProgress
from mgclust.cli.run import job_command

if TYPE_CHECKING:
    from mgclust.service.client.remote_job import RemoteJob

__all__ = ["submit"]

RESOURCES = ("gpus", "workers", "max_seconds", "memory")


def _tables(confounds: str, sources: Any, remote: bool) -> list[str]:
    """Return the paths of the tables of confounds, one per source."""
    if remote and confounds.strip().lower() != "auto":
        return _paths("confounds", confounds)
    if remote:
        raise InputError("confounds='auto' does not work with --remote; give the paths of the tables.")
    from mgclust.data.location import Location
    from mgclust.data.readers.confounds import find_tables

    return [table.path for table in find_tables(confounds, [Location.of(source) for source in sources])]


def _atlas_files(atlas: str, remote: bool) -> list[str]:
    """Return the paths of the files of an atlas, with the table of names next to a local volume."""
    if remote:
        return _paths("atlas", atlas)
    from mgclust.data.readers.atlas import with_table

    return [each.path for each in with_table(_paths("atlas", atlas))]


def _paths(option: str, given: str) -> list[str]:
    from mgclust.data.location import check_not_empty

    check_not_empty(option, given, "give the paths of files, separated by commas")
    return [part.strip() for part in given.split(",")]


def _submit(method: Any, parameters: dict[str, Any], command: list[str], **given: Any) -> None:
    sources, priority = given.pop("sources"), given.pop("priority")
    remote, wait, as_json, report = (given.pop(name) for name in ("remote", "wait", "as_json", "report"))
    if (mlflow := given.pop("mlflow")) is not None:
        if not wait:
            raise InputError("--mlflow needs --wait; add it, or log the job later with 'mgclust result ID --mlflow'.")
        check_mlflow(mlflow)
    resources = {name: value for name in RESOURCES if (value := given.pop(name)) is not None}
    name, tags, varied, results_to = (given.pop(each) for each in ("name", "tags", "varied", "results_to"))
    mask, confounds, surfaces, atlas = (given.pop(each, None) for each in ("mask", "confounds", "surfaces", "atlas"))
    if confounds is not None:
        confounds = _tables(confounds, sources, remote)
    if surfaces is not None:
        surfaces = _paths("surfaces", surfaces)
    if atlas is not None:
        atlas = _atlas_files(atlas, remote)
    # A flag that is not set is None or, if it has no opposite, False. So False is a choice of the user only for the
    # flags with an opposite, --no-header and --no-index.
    options: dict[str, Any] = {
        name: value for name, value in given.items() if value or (value is False and name in ("header", "index"))
    }
    if "n_nodes" in options:
        nodes = options["n_nodes"]
        options["n_nodes"] = int(nodes) if nodes.isdecimal() and len(nodes) < 19 else nodes
    service = connect_service()
    for option in method.options():
        if option.constraint.type == "file" and str(parameters.get(option.name)).startswith("job:"):
            parameters[option.name] = service.job(parameters[option.name].removeprefix("job:"))
    how = {
        "mask": mask, "confounds": confounds, "surfaces": surfaces, "atlas": atlas, "options": options,
        "resources": resources, "priority": priority, "report": report, "remote": remote,
        "results_to": results_to, "name": name, "tags": list(tags), **parameters,
    }  # fmt: skip
    if varied:
        failed: list[MgclustError] = []
        made = service.sweep(method.method, sources, _values(method, varied), **how)
        if wait:
            click.echo(f"'mgclust sweep {made.id}' shows all jobs of the sweep", err=True)  # also if one of them fails
            for job in made.jobs:
                try:
                    _wait(job)
                except MgclustError as error:
                    if job.state not in ("FAILED", "CANCELLED"):  # the service does not answer
                        raise
                    failed.append(error)  # the other jobs of the sweep continue
            made.refresh()
        click.echo(json.dumps(made.info) if as_json else printable(made.id))
        for job in made.jobs if mlflow else ():
            if job.state == "SUCCEEDED":
                job.log_to_mlflow(mlflow)
        if failed:
            raise type(failed[0])(f"{len(failed)} of {len(made.jobs)} jobs did not succeed; the first: {failed[0]}")
        return
    job = service.submit(method.method, sources, **how)
    if wait:
        _wait(job)
    click.echo(json.dumps(job.info) if as_json else printable(job.id))
    warn(job)
    if mlflow is not None:
        job.log_to_mlflow(mlflow)


def _values(method: Any, varied: tuple[str, ...]) -> dict[str, list[Any]]:
    """Parse the options ``--sweep NAME=VALUE,...``."""
    constraints = {option.name: option.constraint for option in method.options()}
    found: dict[str, list[Any]] = {}
    for each in varied:
        given, equals, text = each.partition("=")
        name = given.strip().replace("-", "_")
        if not equals or not text.strip():
            raise InputError(f"sweep={each[:80]!r} should be NAME=VALUE,..., such as dc_fraction=0.01,0.02.")
        if name not in constraints:
            raise InputError(f"sweep={name[:80]!r} is not a parameter of {method.method}; use some of "
                             f"{', '.join(constraints)}.")  # fmt: skip
        if name in found:
            raise InputError(f"sweep names {name} twice; give all its values in one option.")
        kind = constraints[name].type
        parsed = [part.strip() for part in text.split(",")]
        found[name] = [_flag(name, part) if kind == "flag" else constraints[name].parse(part, name) for part in parsed]
    return found


def _flag(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InputError(f"{name}={text[:80]!r} should be true or false.")
    return text == "true"


def _wait(job: RemoteJob) -> None:
    """Wait for a job, and show its progress on standard error."""
    click.echo(f"job {job.id} waits in the queue; it continues if this command ends", err=True)
    with watching(job.id), ShownProgress() as shown:
        job.wait(lambda info: shown(info["progress"]) if info["state"] == "RUNNING" and info["progress"] else None)


submit = job_command(
    "submit",
    "METHOD INPUT... [OPTIONS]",
    """Send a job to a service and print its id.

    METHOD, INPUT and the options of the method are the same as for 'mgclust run'. MGCLUST_URL and MGCLUST_TOKEN select
    the service; by default, it is the service on this machine. store:NAME/PATH as INPUT names an object in a store of
    the service.
    """,
    [
        click.Option(
            ["--priority"],
            type=click.IntRange(-100, 100),
            default=0,
            help="Jobs of higher priority run first among your own jobs; jobs above 0 (administrators only) run before "
            "all other jobs.",
        ),
        click.Option(["--remote"], is_flag=True, help="INPUT names files on the machine of the service."),
        click.Option(["--gpus"], type=click.IntRange(1), metavar="N", help="How many GPUs of the service to use."),
        click.Option(
            ["--workers"], type=click.IntRange(1), metavar="N", help="How many CPU processes or Dask workers to use."
        ),
        click.Option(
            ["--max-seconds"],
            type=FiniteRange(0, min_open=True),
            metavar="S",
            help="Time limit of an attempt, in seconds.",
        ),
        click.Option(
            ["--memory"],
            type=click.IntRange(1 << 20),
            metavar="BYTES",
            help="Memory limit of all processes of the job, in bytes.",
        ),
        click.Option(
            ["--results-to"],
            metavar="store:NAME/PREFIX",
            help="When the job has succeeded, copy the files of the result to this place in a store of the service.",
        ),
        click.Option(["--name"], metavar="TEXT", help="Name of the job in lists."),
        click.Option(["--tag", "tags"], metavar="TAG", multiple=True, help="Tag of the job in lists; may be repeated."),
        click.Option(
            ["--sweep", "varied"],
            metavar="NAME=V,...",
            multiple=True,
            help="Submit a job for each of these values of a parameter, and print the id of the sweep. If repeated, "
            "the sweep has each combination of values, at most 100.",
        ),
        click.Option(["--wait"], is_flag=True, help="Wait until the job has ended."),
        mlflow_option(),
        click.Option(
            ["--no-report", "report"],
            is_flag=True,
            flag_value=False,
            default=True,
            help="Write no report.html and no pictures.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the job as JSON."),
    ],
    _submit,
)
