"""``mgclust serve`` and ``mgclust runner``, and the commands that use a service.

These are submit, jobs, status, watch, logs, result, cancel, retry, delete, uploads, user and token.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import functools
import gc
import json
import math
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mgclust.cli.options import CONTEXT
from mgclust.cli.run import job_command
from mgclust.errors import InputError, printable
from mgclust.progress import progress_text

if TYPE_CHECKING:
    from mgclust.service.client import RemoteJob
    from mgclust.service.settings import Settings

__all__ = ["commands"]

OLD_AGE = 50  # collections of young garbage of the web process before one of everything; Python has 10
RESOURCES = ("gpus", "workers", "max_seconds", "memory")


class _Finite(click.FloatRange):
    def convert(self, value: Any, parameter: Any, context: Any) -> float:
        """Take a finite number; NaN passes the range's comparisons, and JSON has neither."""
        number = float(super().convert(value, parameter, context))
        if not math.isfinite(number):
            self.fail(f"{value!r} should be a finite number", parameter, context)
        return number


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _service() -> Any:
    try:
        from mgclust.service.client import Service
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    return Service()


def _missing(error: ModuleNotFoundError) -> InputError:
    return InputError(f"{error.name} is not installed; the service needs pip install 'mgclust[service]'.")


def _show(job: RemoteJob, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(job.info))
        return
    info = job.info
    if "created" not in info:  # the token may not read jobs
        click.echo(printable("  ".join((job.id, info["method"], info["state"]))))
        return
    words = [job.id, _since(info["created"]), info["method"], info["state"]]
    if info["state"] == "RUNNING" and info["progress"]:
        words += [str(info["progress"].get("stage")), progress_text(info["progress"])]
    if info["error"]:
        words += [f"({info['fault']})", info["error"]]
    click.echo(printable("  ".join(words)))


def _since(created: float) -> str:
    return datetime.datetime.fromtimestamp(created).strftime("%Y-%m-%d %H:%M")


@contextlib.contextmanager
def _watching(id_: str) -> Iterator[None]:
    """Say on Ctrl-C that it ends the watching, not the job."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise click.Abort(f"no longer watching; the job goes on (mgclust watch {id_})") from interrupt


def _check_place(settings: Settings) -> None:
    """Refuse a folder or a database that cannot be used, before anything starts."""
    from sqlalchemy.exc import DBAPIError

    from mgclust.service.models import DatabaseLost, open_database, reading

    _check_shared_memory(settings)
    try:
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(settings.data, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise InputError(
            f"data={str(settings.data)!r} should be a folder that can be written: {error.strerror}; give another."
        ) from error
    _check_access(settings.data)
    try:
        engine = open_database(settings.database)
        with reading(engine):
            engine.dispose()
    except DatabaseLost as error:
        raise InputError(str(error)) from error
    except DBAPIError as error:
        reason = str(error.orig).strip().split("\n")[0].rstrip(".")
        raise InputError(f"the database cannot be used: {reason}; start it, or give another by --database.") from error


def _check_shared_memory(settings: Settings) -> None:
    """Refuse to hide anything in the folder where processes make semaphores.

    Landlock knows only what may be reached: an attempt that must not see one folder there can make nothing there.
    """
    from mgclust.service.confine import landlock

    for path in settings.concealed if landlock() else ():
        if Path(os.path.realpath(path)).is_relative_to("/dev/shm"):
            raise InputError(
                f"{path} should not be below /dev/shm: jobs are kept from it by Landlock, and could then make no "
                "semaphores there, without which no workers start; give a folder elsewhere."
            )


def _check_access(data: Path) -> None:
    """Close the data folder to other accounts; refuse one that another account could change."""
    found = data.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == os.geteuid():
        if mode & 0o077:
            try:
                data.chmod(0o700)
            except OSError as error:
                raise InputError(
                    f"data={str(data)!r} is open to other accounts (mode {mode:04o}), and its mode cannot be set: "
                    f"{error.strerror}; give another."
                ) from error
            click.echo(f"{data} was open to other accounts (mode {mode:04o}); its mode is 0700 now", err=True)
        return
    # A volume of Kubernetes with fsGroup belongs to root, and its group is that of the service.
    if found.st_uid != 0 or mode & 0o002:
        whose = f"belongs to another account (uid {found.st_uid}, mode {mode:04o})"
        raise InputError(f"data={str(data)!r} {whose}, which could change what is in it; give a folder of your own.")


def _settings(roots: tuple[str, ...], given: dict[str, Any]) -> Settings:
    """Those of the command line and the environment, which the processes that this one starts do not inherit.

    Of a command line every account of the machine can read what is in it.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    from mgclust.service.settings import PREFIX, Settings

    settings = Settings.read(roots=os.pathsep.join(roots) or None, **given)
    try:
        url = make_url(given["database"] or "sqlite://")
    except ArgumentError as error:
        raise InputError(f"--database should be a URL: {error}.") from error
    if url.password or "password" in url.query:
        raise InputError(
            f"--database should hold no password, which every account of this machine could read; set "
            f"{PREFIX}DATABASE_FILE, or {PREFIX}DATABASE."
        )
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    return settings


def _place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what a runner must know, whoever starts it."""
    for option in reversed(
        (
            click.option("--data", metavar="DIR", help="Folder of jobs and uploads."),
            click.option("--database", metavar="URL", help="PostgreSQL in place of SQLite in the folder."),
            click.option("--scheduler", metavar="ADDRESS", help="A running Dask cluster in place of this machine."),
            click.option("--cpu", is_flag=True, default=None, help="Use no GPU."),
            click.option("--slots", type=click.IntRange(1), metavar="N", help="Jobs at once [default: 1]."),
            click.option(
                "--root", "roots", multiple=True, metavar="DIR", help="A folder that jobs may read; may be repeated."
            ),
        )
    ):
        command = option(command)
    return command


@click.command("serve", context_settings=CONTEXT)
@_place_options
@click.option("--host", metavar="ADDRESS", help="Where to listen [default: 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="[default: 8700]")
@click.option("--no-runner", is_flag=True, help="Only the web process; 'mgclust runner' is started elsewhere.")
@click.option("--adopt", is_flag=True, help="Begin anew with a data folder whose database is lost.")
def serve(roots: tuple[str, ...], no_runner: bool, adopt: bool, **given: Any) -> None:
    """Serve jobs: a web process, and beside it a runner that computes them."""
    try:
        import uvicorn

        from mgclust.service.access import first_token
        from mgclust.service.app import create_app
        from mgclust.service.audit import Audit
        from mgclust.service.caches import set_cache_folders
        from mgclust.service.disk import sweep_until
        from mgclust.service.models import open_database
        from mgclust.service.server import Connections
        from mgclust.service.supervisor import supervise_runner
    except ModuleNotFoundError as error:
        raise _missing(error) from error

    os.umask(0o077)  # what users send, and their results, is nobody else's
    settings = _settings(roots, given)
    _check_place(settings)
    set_cache_folders(settings)
    app = create_app(settings, adopt)
    audit = Audit(settings.audit_path, settings.audit_bytes)
    token = first_token(open_database(settings.database), settings.data, audit)
    audit.close()
    click.echo(f"mgclust serves {settings.data} at http://{settings.host}:{settings.port}; token in {token}", err=True)
    stopping = threading.Event()
    supervisor = threading.Thread(
        target=supervise_runner, args=(settings, stopping, functools.partial(click.echo, err=True))
    )
    sweeper = threading.Thread(target=sweep_until, args=(stopping, open_database(settings.database), settings))
    sweeper.start()
    if not no_runner:
        supervisor.start()
    # What has been imported stays: looking through all of it for garbage again and again would stop every request for
    # 0.15 s, most of what the slowest submits waited for.
    gc.collect()
    gc.freeze()
    # Of each open event stream some 200 objects stay, too: through those of 800 a look takes 0.09 s.
    gc.set_threshold(*gc.get_threshold()[:2], OLD_AGE)
    connections = Connections(settings)
    connections.raise_limit()
    try:
        uvicorn.run(
            app, host=settings.host, port=settings.port, timeout_graceful_shutdown=5,
            http=connections,  # type: ignore[arg-type]  # called as a class is
            ws="none", timeout_keep_alive=math.ceil(settings.idle_seconds),
            log_level="error",  # not a line for each request that breaks HTTP
            proxy_headers=False,  # `Gate` believes trusted proxies; all others could name another address each time
        )  # fmt: skip
    finally:
        stopping.set()
        sweeper.join()
        if not no_runner:
            supervisor.join()


@click.command("runner", context_settings=CONTEXT)
@_place_options
def runner(roots: tuple[str, ...], **given: Any) -> None:
    """Compute the jobs of a service whose web process was started with --no-runner."""
    try:
        from mgclust.service.caches import set_cache_folders
        from mgclust.service.supervisor import supervise_runner
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    os.umask(0o077)
    settings = _settings(roots, given)
    _check_place(settings)
    set_cache_folders(settings)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    supervise_runner(settings, stopping, functools.partial(click.echo, err=True))


def _submit(method: Any, parameters: dict[str, Any], command: list[str], **given: Any) -> None:
    sources, priority = given.pop("sources"), given.pop("priority")
    remote, wait, as_json, report = (given.pop(name) for name in ("remote", "wait", "as_json", "report"))
    resources = {name: value for name in RESOURCES if (value := given.pop(name)) is not None}
    mask = given.pop("mask", None)
    options = {name: value for name, value in given.items() if value}
    if "n_nodes" in options:
        options["n_nodes"] = int(options["n_nodes"]) if options["n_nodes"].isdigit() else options["n_nodes"]
    for option in method.options():
        if option.constraint.type == "file" and isinstance(path := parameters.get(option.name), str):
            parameters[option.name] = Path(path, "labels.npy") if os.path.isdir(path) else Path(path)
    job = _service().submit(
        method.method, sources, mask=mask, options=options, resources=resources, priority=priority,
        report=report, remote=remote, **parameters,
    )  # fmt: skip
    if wait:
        with _watching(job.id):
            job.wait()
    click.echo(json.dumps(job.info) if as_json else printable(job.id))


submit = job_command(
    "submit",
    "METHOD INPUT... [OPTIONS]",
    """Send a job to a service and print its number.

    Takes what 'mgclust run' takes. The service is that of MGCLUST_URL and MGCLUST_TOKEN, or the one on this machine.
    """,
    [
        click.Option(
            ["--priority"],
            type=click.IntRange(-100, 100),
            default=0,
            help="Of your own jobs, a higher one comes first; above 0 is for administrators and comes before all.",
        ),
        click.Option(["--remote"], is_flag=True, help="INPUT names files of the service, which are not sent."),
        click.Option(["--gpus"], type=click.IntRange(1), metavar="N", help="GPUs of the service to use."),
        click.Option(["--workers"], type=click.IntRange(1), metavar="N", help="CPU processes or Dask workers to use."),
        click.Option(["--max-seconds"], type=_Finite(0, min_open=True), metavar="S", help="Seconds that it may run."),
        click.Option(
            ["--memory"], type=click.IntRange(1 << 20), metavar="BYTES", help="Memory that its processes may take."
        ),
        click.Option(["--wait"], is_flag=True, help="Wait until it has ended."),
        click.Option(["--no-report", "report"], is_flag=True, flag_value=False, default=True, help="No pictures."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print what the service tells of it."),
    ],
    _submit,
)


@click.command("jobs", context_settings=CONTEXT)
@click.option("--state", type=click.Choice(["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"]))
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@as_json_option
def jobs(state: str | None, limit: int, as_json: bool) -> None:
    """List the latest jobs."""
    found = _service().jobs(state, limit)
    if as_json:
        click.echo(json.dumps([job.info for job in found]))
        return
    for job in found:
        _show(job, False)


@click.command("status", context_settings=CONTEXT)
@click.argument("id")
@as_json_option
def status(id: str, as_json: bool) -> None:
    """Show one job."""
    _show(_service().job(id), as_json)


@click.command("watch", context_settings=CONTEXT)
@click.argument("id")
@as_json_option
def watch(id: str, as_json: bool) -> None:
    """Follow a job until it has ended; fails if the job does."""
    with _watching(id):
        job = _service().job(id)
        for _ in job.watch():
            _show(job, as_json)
        job.wait()


@click.command("logs", context_settings=CONTEXT)
@click.argument("id")
def logs(id: str) -> None:
    """Print the logs of all attempts of a job."""
    click.echo(printable(_service().job(id).log(), "\n\t"), nl=False)


@click.command("result", context_settings=CONTEXT)
@click.argument("id")
@click.option("-o", "--output", required=True, metavar="DIR", help="Directory to make.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier result.")
def result(id: str, output: str, overwrite: bool) -> None:
    """Fetch a job's result directory."""
    click.echo(_service().job(id).download(output, overwrite))


@click.command("cancel", context_settings=CONTEXT)
@click.argument("id")
def cancel(id: str) -> None:
    """Ask for a job's end."""
    _show(_service().job(id).cancel(), False)


@click.command("retry", context_settings=CONTEXT)
@click.argument("id")
def retry(id: str) -> None:
    """Queue a job again that failed or was cancelled."""
    _show(_service().job(id).retry(), False)


@click.command("delete", context_settings=CONTEXT)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def delete(ids: tuple[str, ...]) -> None:
    """Remove jobs that have ended, with their results and logs; what was removed is printed."""
    service = _service()
    for id_ in ids:
        _show(service.job(id_).delete(), False)


@click.command("uploads", context_settings=CONTEXT)
@click.option("--delete", "ids", multiple=True, metavar="ID", help="Remove this one and print it; may be repeated.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@as_json_option
def uploads(ids: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List the latest files that were sent, or remove some that no job needs."""
    service = _service()
    found = [service.delete_upload(id_) for id_ in ids] if ids else service.uploads(limit)
    if as_json:
        click.echo(json.dumps(found))
        return
    for upload in found:
        words = [upload["id"], _since(upload["created"]), f"{upload['size']} bytes", upload["name"]]
        click.echo(printable("  ".join(words)))


@click.group("user", context_settings=CONTEXT)
def user() -> None:
    """Make and list users, as an administrator."""


@user.command("create")
@click.argument("name")
@click.option("--role", type=click.Choice(["user", "admin"]), default="user", show_default=True)
def create_user(name: str, role: str) -> None:
    """Make a user, who needs a token then."""
    _service().create_user(name, role)
    click.echo(f"made {name}; 'mgclust token create {name}' makes a token", err=True)


@user.command("list")
@as_json_option
def list_users(as_json: bool) -> None:
    """List all users: names, roles, and how many valid tokens they have."""
    found = _service().users()
    if as_json:
        click.echo(json.dumps(found))
        return
    for each in found:
        click.echo(printable(f"{each['name']}  {each['role']}  {each['tokens']} tokens"))


@click.group("token", context_settings=CONTEXT)
def token() -> None:
    """Make, list and revoke tokens: one's own or, as an administrator, others'."""


class _Days(click.ParamType):
    name = "days"

    def convert(self, value: Any, parameter: Any, context: Any) -> float | None:
        """Take a number > 0, or the word never."""
        if value == "never":
            return None
        return _Finite(0, min_open=True).convert(value, parameter, context)


@token.command("create")
@click.argument("user", required=False)
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(["read", "submit", "admin"]),
    help="What it may be used for; may be repeated [default: all that the user's role allows].",
)  # fmt: skip
@click.option("--days", type=_Days(), default="365", show_default=True, help="Until it expires, or: never.")
def create_token(user: str | None, scopes: tuple[str, ...], days: float | None) -> None:
    """Make a token and print it, this once."""
    made = _service().create_token(user, scopes or None, days)
    ends = "does not expire" if days is None else f"expires in at most {days:g} days"
    click.echo(printable(f"token {made['id']} of {made['user']}, which {ends}:"), err=True)
    click.echo(printable(made["token"]))


@token.command("list")
@click.argument("user", required=False)
@as_json_option
def list_tokens(user: str | None, as_json: bool) -> None:
    """List a user's tokens, without their secrets."""
    found = _service().tokens(user)
    if as_json:
        click.echo(json.dumps(found))
        return
    for each in found:
        words = [each["id"], _since(each["created"]), ",".join(each["scopes"])]
        if each["revoked"]:
            words.append(f"revoked {_since(each['revoked'])}")
        words.append(f"expires {_since(each['expires'])}" if each["expires"] else "does not expire")
        words.append(f"used {_since(each['used'])}" if each["used"] else "not used")
        click.echo(printable("  ".join(words)))


@token.command("revoke")
@click.argument("id")
def revoke_token(id: str) -> None:
    """Let a token be worth nothing from now on."""
    _service().revoke_token(id)


commands = (user, token, serve, runner, submit, jobs, status, watch, logs, result, cancel, retry, delete, uploads)
