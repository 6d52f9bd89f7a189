"""Commands of administrators: users, usage, the queue, the audit log, health, pins and backups."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from mgclust.base.errors import InputError, printable
from mgclust.cli.accounts import user
from mgclust.cli.options import CONTEXT, as_json_option, connect_service, date, not_installed

__all__ = ["commands"]


def _change(name: str, as_json: bool, **changes: Any) -> None:
    changed = connect_service().call("PATCH", f"/users/{quote(name, safe='')}", json=changes)
    if as_json:
        click.echo(json.dumps(changed))
        return
    limits = [f"{limit}={changed[limit]}" for limit in ("disk_limit", "jobs_limit") if changed[limit] is not None]
    click.echo(printable("  ".join([changed["name"], "disabled" if changed["disabled"] else "enabled", *limits])))


@user.command("disable")
@click.argument("name")
@as_json_option
def disable_user(name: str, as_json: bool) -> None:
    """Reject a user's tokens, and start none of the user's waiting jobs. Running jobs end as usual."""
    _change(name, as_json, disabled=True)


@user.command("enable")
@click.argument("name")
@as_json_option
def enable_user(name: str, as_json: bool) -> None:
    """Accept the tokens of a disabled user again."""
    _change(name, as_json, disabled=False)


class _Limit(click.ParamType):
    name = "number"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, parameter: Any, context: Any) -> int | str:
        """Parse an integer, or the word "default"."""
        if value == "default" or isinstance(value, int):
            return value
        return int(click.IntRange(self._least, 2**63 - 1).convert(value, parameter, context))


@user.command("quota")
@click.argument("name")
@click.option("--disk", type=_Limit(0), metavar="BYTES", help="Bytes of uploads and jobs; 0: no limit; 'default'.")
@click.option("--jobs", type=_Limit(1), metavar="N", help="Waiting and running jobs; 'default'.")
@as_json_option
def quota_user(name: str, disk: int | str | None, jobs: int | str | None, as_json: bool) -> None:
    """Set limits of a user; 'default' is the limit of the service."""
    given = {"disk_limit": disk, "jobs_limit": jobs}
    changes = {key: None if value == "default" else value for key, value in given.items() if value is not None}
    if not changes:
        raise InputError("nothing is to change; give --disk, --jobs or both.")
    _change(name, as_json, **changes)


@click.command("usage", context_settings=CONTEXT)
@as_json_option
def usage(as_json: bool) -> None:
    """Show what each user keeps and has used: jobs, bytes, attempts, seconds and GPU-seconds."""
    users = connect_service().call("GET", "/users")
    if as_json:
        click.echo(json.dumps(users))
        return
    columns = ("name", "jobs", "uploads", "bytes", "attempts", "seconds", "gpu_seconds", "tokens")
    _table(columns, [[_short(each[column]) for column in columns] for each in users])


@click.command("queue", context_settings=CONTEXT)
@as_json_option
def queue(as_json: bool) -> None:
    """List the waiting jobs of all users, in the order in which they are expected to start."""
    jobs = connect_service().call("GET", "/admin/queue")
    if as_json:
        click.echo(json.dumps(jobs))
        return
    rows = [
        ["-" if job["position"] is None else str(job["position"]), job["id"], job["owner"], job["method"],
         str(job["priority"]), date(job["queued"])]
        for job in jobs
    ]  # fmt: skip
    _table(("position", "id", "owner", "method", "priority", "since"), rows)


@click.command("audit", context_settings=CONTEXT)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, metavar="N", help="How many.")
@click.option("--user", "of_user", metavar="NAME", help="Only lines of this user.")
@click.option("--action", metavar="NAME", help="Only lines of this action, such as 'submit'.")
@as_json_option
def audit(limit: int, of_user: str | None, action: str | None, as_json: bool) -> None:
    """Show the latest lines of the audit log, the newest first."""
    given = {"limit": limit, "user": of_user, "action": action}
    wanted = {name: value for name, value in given.items() if value is not None}
    lines = connect_service().call("GET", "/admin/audit", params=wanted)
    if as_json:
        click.echo(json.dumps(lines))
        return
    columns = ("time", "user", "action", "status", "object", "source")
    objects = ({"object": line.get("id", line.get("name", "-"))} | line for line in lines)
    _table(columns, [[str(line.get(column, "-")) for column in columns] for line in objects])


@click.command("health", context_settings=CONTEXT)
@as_json_option
def health(as_json: bool) -> None:
    """Show whether a runner works, how many jobs wait, for how long, and the space of the disk."""
    report = connect_service().call("GET", "/admin/health")
    if as_json:
        click.echo(json.dumps(report))
        return
    jobs, runner = report["jobs"], report["runner"]
    click.echo(f"service: {report['status']}, mgclust {report['version']}")
    age = "" if runner["age"] is None else f", last heartbeat {runner['age']:g} s ago"
    click.echo(f"runner: {runner['state']}{age}; {report['slots']} slots")
    place = report["scheduler"] or "this machine"
    click.echo(printable(f"jobs run on {place}; {report['waiting_for_cluster']} wait for the cluster"))
    click.echo(", ".join(f"{jobs[state]} {state}" for state in jobs))
    click.echo(f"longest wait: {report['oldest_wait_seconds']:.0f} s")
    click.echo(f"disk: {report['disk_free_bytes']} of {report['disk_bytes']} bytes are free")


def _pin(kind: str, id_: str, pinned: bool, as_json: bool) -> None:
    service = connect_service()
    if kind == "job":
        id_ = service.job(id_).id  # the first characters suffice
    path = f"/{'uploads' if kind == 'upload' else 'jobs'}/{quote(id_, safe='')}/pin"
    answer = service.call("PUT", path, json={"pinned": pinned})
    click.echo(
        json.dumps({"id": id_} | answer) if as_json else printable(f"{id_} {'stays' if pinned else 'may expire'}")
    )


_kind = click.option("--upload", "kind", flag_value="upload", default="job", help="ID is the id of an upload.")


@click.command("pin", context_settings=CONTEXT)
@click.argument("id")
@_kind
@as_json_option
def pin(id: str, kind: str, as_json: bool) -> None:
    """Keep a job or an upload after the retention time of the service."""
    _pin(kind, id, True, as_json)


@click.command("unpin", context_settings=CONTEXT)
@click.argument("id")
@_kind
@as_json_option
def unpin(id: str, kind: str, as_json: bool) -> None:
    """Let a pinned job or upload expire after the retention time of the service."""
    _pin(kind, id, False, as_json)


@click.command("backup", context_settings=CONTEXT)
@click.argument("folder", metavar="DIR")
@click.option("--data", metavar="DIR", help="Data folder of the service [default: as for 'mgclust serve'].")
@as_json_option
def backup(folder: str, data: str | None, as_json: bool) -> None:
    """Copy the database and the files of a service of this machine to a new folder DIR, while the service runs.

    DIR is a complete data folder: copy it to the place of the data folder, and start the service there to restore it.
    """
    try:
        from mgclust.service.queue.backup import back_up
        from mgclust.service.settings import Settings
    except ModuleNotFoundError as error:
        raise not_installed(error) from error
    os.umask(0o077)  # only this account may read the copy
    report = back_up(Settings.read(data=data and Path(data)), Path(folder))
    text = f"backup in {folder}: {report['jobs']} jobs, {report['uploads']} uploads, {report['bytes']} bytes"
    click.echo(json.dumps(report) if as_json else printable(text))


def _short(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _table(columns: tuple[str, ...], rows: list[list[str]]) -> None:
    widths = [max(map(len, each)) for each in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        click.echo(printable("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()))


commands = (usage, queue, audit, health, pin, unpin, backup)
