"""Commands for the jobs of a service: jobs, status, watch, logs, result, sweep, cancel, delete and others."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from mgclust.base.errors import printable
from mgclust.base.progress import progress_text
from mgclust.cli.options import CONTEXT, FiniteRange, as_json_option, connect_service, date

if TYPE_CHECKING:
    from mgclust.service.client.remote_job import RemoteJob

__all__ = ["check_mlflow", "commands", "warn", "watching"]

MIN_SHOWN = 8  # characters of an id in lists, unless more are needed
SHOWN_SCORES = 3
COPIES = {"COPYING": "copying to", "COPIED": "copied to", "FAILED": "not copied to"}  # words for the state of a copy


def _show(job: RemoteJob, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(job.info))
        return
    info = job.info
    if "created" not in info:  # the token may not read jobs
        click.echo(printable("  ".join((job.id, info["method"], info["state"]))))
        return
    words = [job.id, date(info["created"]), info["method"], info["state"]]
    words += [repr(info["name"])] if info.get("name") else []
    words += [f"#{tag}" for tag in info.get("tags") or ()]
    if info["state"] in ("PENDING", "RUNNING") and info["progress"]:
        words += [str(info["progress"].get("stage")), progress_text(info["progress"])]
    if info["error"]:
        words += [f"({info['fault']})", info["error"]]
    if copy := info.get("result_copy"):
        words.append(f"{COPIES[copy['state']]} {copy['to']}")
        words += [f"(failures: {copy['failures']}; the last: {copy['error']})"] if copy["error"] else []
    click.echo(printable("  ".join(words)))


def _show_changed(job: RemoteJob, as_json: bool) -> None:
    """Show a job after a request to cancel it; a running job ends a little later."""
    if as_json or job.state != "RUNNING":
        _show(job, as_json)
        return
    click.echo(f"{job.id}  is being cancelled; 'mgclust watch {job.id[:MIN_SHOWN]}' reports its end")


def _table(rows: list[list[str]]) -> str:
    """Align the columns of a table; the last column stays as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    padded = ([*map(str.ljust, row, widths), row[-1]] for row in rows)
    return "\n".join("  ".join(row).rstrip() for row in padded)


def _listed(jobs: list[RemoteJob]) -> str:
    """Format a list of jobs: short ids, files, names, changed parameters, and the progress, scores or error."""
    shown = next(n for n in range(MIN_SHOWN, 33) if n == 32 or len({job.id[:n] for job in jobs}) == len(jobs))
    rows = [["ID", "CREATED", "STATE", "METHOD", "FILE", "NAME", "PARAMETERS", "OUTCOME"]]
    for job in jobs:
        info = job.info
        files = list(info.get("sources") or ())
        more = (info.get("n_sources") or len(files)) - 1
        file = f"{files[0]}{f' and {more} more' if more > 0 else ''}" if files else ""
        changed = ", ".join(f"{name}={value}" for name, value in (info.get("parameters") or {}).items())
        row = [job.id[:shown], date(info["created"]), info["state"], info["method"], file, info.get("name") or ""]
        rows.append([printable(cell) for cell in (*row, changed, _outcome(info))])
    kept = [k for k, cells in enumerate(zip(*rows[1:], strict=True)) if any(cells) or k == len(rows[0]) - 1]
    return _table([[row[k] for k in kept] for row in rows])


def _outcome(info: dict[str, Any]) -> str:
    """Return the progress of a job that has not ended, the error of one that failed, else its first scores."""
    if info["state"] in ("PENDING", "RUNNING"):
        progress = info["progress"] or {}
        return f"{progress.get('stage') or ''} {progress_text(progress) if progress else ''}".strip()
    if info["error"]:
        return f"({info['fault']}) {info['error']}"
    numbers = ((name, each) for name, each in (info["scores"] or {}).items() if isinstance(each, (int, float)))
    return ", ".join(f"{name} {each:.4g}" for name, each in itertools.islice(numbers, SHOWN_SCORES))


def warn(job: RemoteJob) -> None:
    """Print the warnings of the job's result, if it has a result."""
    for text in job.info.get("warnings") or ():
        click.echo(printable(f"warning: {text}"), err=True)


@contextlib.contextmanager
def watching(id_: str) -> Iterator[None]:
    """Report on Ctrl-C that the job continues."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise click.Abort(f"no longer watching; the job continues (mgclust watch {id_})") from interrupt


def check_mlflow(uri: str) -> None:
    """Reject an address of a tracking server that cannot be used, before the command does anything else."""
    from mgclust.output.mlflow_log import check_mlflow

    check_mlflow(uri)


@click.command("jobs", context_settings=CONTEXT)
@click.option(
    "--state",
    type=click.Choice(["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]),
    help="List only jobs in this state.",
)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many to list at most.")
@click.option("--search", metavar="WORDS", help="Words in names, #tags, ids, methods, files or parameters.")
@click.option("--method", metavar="METHOD", help="List only jobs of this method.")
@click.option("--tag", metavar="TAG", help="List only jobs with this tag.")
@click.option(
    "--sort",
    metavar="KEY",
    help="Order by name, method, state, seconds or score:NAME; with - before it, in descending order.",
)
@as_json_option
def jobs(
    state: str | None,
    limit: int,
    search: str | None,
    method: str | None,
    tag: str | None,
    sort: str | None,
    as_json: bool,
) -> None:
    """List the latest jobs, the latest first."""
    listed = connect_service().jobs(state, limit, search=search, method=method, tag=tag, sort=sort)
    if as_json:
        click.echo(json.dumps([job.info for job in listed]))
    elif listed:
        click.echo(_listed(listed))
    else:
        filtered = any((state, search, method, tag))
        says = (
            "no job matches; 'mgclust jobs' lists all" if filtered else "there are no jobs; 'mgclust submit' sends one"
        )
        click.echo(says, err=True)


@click.command("status", context_settings=CONTEXT)
@click.argument("id")
@as_json_option
def status(id: str, as_json: bool) -> None:
    """Show one job."""
    job = connect_service().job(id)
    _show(job, as_json)
    warn(job)


@click.command("watch", context_settings=CONTEXT)
@click.argument("id")
@as_json_option
def watch(id: str, as_json: bool) -> None:
    """Follow a job until it ends; exit with an error if the job fails."""
    with watching(id):
        job = connect_service().job(id)
        for _ in job.watch():
            _show(job, as_json)
        job.wait()
    warn(job)


@click.command("logs", context_settings=CONTEXT)
@click.argument("id")
@as_json_option
def logs(id: str, as_json: bool) -> None:
    """Print the logs of all attempts of a job."""
    job = connect_service().job(id)
    log = job.log()
    click.echo(json.dumps({"id": job.id, "log": log}) if as_json else printable(log, "\n\t"), nl=as_json)


@click.command("result", context_settings=CONTEXT)
@click.argument("id")
@click.option("-o", "--output", metavar="DIR", help="Directory to create.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier result.")
@click.option("--mlflow", metavar="URI", help="Log the result to this tracking server of MLflow, from this machine.")
@as_json_option
def result(id: str, output: str | None, overwrite: bool, mlflow: str | None, as_json: bool) -> None:
    """Fetch a job's result directory, or log the result to MLflow, or both."""
    if output is None and mlflow is None:
        raise click.UsageError("give -o DIR to fetch the result, or --mlflow URI to log it, or both")
    if mlflow is not None:
        check_mlflow(mlflow)
    job = connect_service().job(id)
    path = None if output is None else job.download(output, overwrite)
    if as_json:
        click.echo(json.dumps({"id": job.id, "path": None if path is None else str(path)}))
    elif path is not None:
        click.echo(path)
    if mlflow is not None:
        job.log_to_mlflow(mlflow)


@click.command("cancel", context_settings=CONTEXT)
@click.argument("id")
@as_json_option
def cancel(id: str, as_json: bool) -> None:
    """Cancel a job. A job that has ended stays as it is."""
    _show_changed(connect_service().job(id).cancel(), as_json)


@click.command("retry", context_settings=CONTEXT)
@click.argument("id")
@as_json_option
def retry(id: str, as_json: bool) -> None:
    """Queue a failed or cancelled job again, or the copy of its result to a store if copying has failed."""
    _show(connect_service().job(id).retry(), as_json)


@click.command("delete", context_settings=CONTEXT)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@as_json_option
def delete(ids: tuple[str, ...], as_json: bool) -> None:
    """Delete ended jobs with their results and logs, and print a line about each job."""
    service = connect_service()
    for job in [service.job(id_) for id_ in ids]:  # a wrong id is found before a job is deleted
        _show(job.delete(), as_json)


@click.command("share", context_settings=CONTEXT)
@click.argument("id")
@click.option(
    "--days", type=FiniteRange(0, 365, min_open=True), default=7.0, show_default=True, help="Lifetime of the link."
)
@click.option("--list", "lists", is_flag=True, help="List the valid links of the job instead.")
@click.option("--revoke", "link", metavar="LINK", help="Revoke the link with this id instead.")
@as_json_option
def share(id: str, days: float, lists: bool, link: str | None, as_json: bool) -> None:
    """Print a link with which anybody can read a job's result, but nothing else.

    Whoever opens the link sees the method, scores, warnings, report and files, with the parameters and the names of the
    data files. The name, tags, user and log of the job stay private.
    """
    job = connect_service().job(id)
    if link is not None:
        job.revoke_link(link)
        answer: Any = {"id": link, "revoked": True}
        text = f"link {link} does not work any more"
    elif lists:
        answer = job.links()
        text = "\n".join(
            f"{each['id']}  by {each['user']}  until {date(each['expires'])}" for each in answer
        ) or "the job has no valid links"  # fmt: skip
    else:
        answer = job.share(days)
        click.echo(f"link {answer['id']} works until {date(answer['expires'])}; it is shown only now:", err=True)
        text = answer["url"]
    click.echo(json.dumps(answer) if as_json else printable(text, "\n"))


@click.command("uploads", context_settings=CONTEXT)
@click.option("--delete", "ids", multiple=True, metavar="ID", help="Delete this upload and print it; may be repeated.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many to list at most.")
@as_json_option
def uploads(ids: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List the latest uploads, or delete uploads that no job needs."""
    service = connect_service()
    listed = [service.delete_upload(id_) for id_ in ids] if ids else service.uploads(limit)
    if as_json:
        click.echo(json.dumps(listed))
        return
    for upload in listed:
        words = [upload["id"], date(upload["created"]), f"{upload['size']} bytes", upload["name"]]
        click.echo(printable("  ".join(words)))


@click.command("rename", context_settings=CONTEXT)
@click.argument("id")
@click.option("--name", metavar="TEXT", help="New name; an empty text removes the name.")
@click.option(
    "--tag", "tags", metavar="TAG", multiple=True,
    help="New tags, instead of all others; may be repeated. An empty text removes all tags.",
)  # fmt: skip
@as_json_option
def rename(id: str, name: str | None, tags: tuple[str, ...], as_json: bool) -> None:
    """Change the name and the tags of a job."""
    if name is None and not tags:
        raise click.UsageError("give --name, --tag or both; --name '' removes the name, and --tag '' removes all tags")
    _show(connect_service().rename(id, name, [] if tags == ("",) else list(tags) or None), as_json)


@click.command("sweep", context_settings=CONTEXT)
@click.argument("id")
@click.option("--cancel", "act", flag_value="cancel", help="Cancel all its jobs.")
@click.option("--delete", "act", flag_value="delete", help="Delete all its jobs, which must have ended.")
@as_json_option
def sweep(id: str, act: str | None, as_json: bool) -> None:
    """Show the jobs of a sweep, or cancel or delete them."""
    found = connect_service().find_sweep(id)
    if act is not None:
        getattr(found, act)()
    if as_json:
        click.echo(json.dumps(found.info))
        return
    names = list(found.vary)
    rows = [["ID", "STATE", *names, "OUTCOME"]]
    for job in found.jobs:
        given = job.info.get("request", {}).get("parameters", {})
        outcome = _outcome(job.info) if "created" in job.info else ""
        rows.append(
            [printable(str(cell)) for cell in (job.id, job.state, *(given.get(name) for name in names), outcome)]
        )
    click.echo(_table(rows))


@click.command("compare-jobs", context_settings=CONTEXT)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@as_json_option
def compare_jobs(ids: tuple[str, ...], as_json: bool) -> None:
    """Compare the labels of 2 to 10 jobs: the adjusted Rand index of each pair."""
    told = connect_service().compare(ids)
    if as_json:
        click.echo(json.dumps({"ids": ids, **told}))
        return
    for note in told["notes"]:
        click.echo(printable(f"note: {note}"), err=True)
    rows = [["", *ids], *([id_, *("-" if value is None else f"{value:.4f}" for value in row)]
                          for id_, row in zip(ids, told["ari"], strict=True))]  # fmt: skip
    click.echo(_table(rows))


commands = (
    jobs, status, watch, logs, result, rename, sweep, compare_jobs, cancel, retry, delete, share,
    uploads,
)  # fmt: skip
