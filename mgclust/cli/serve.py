"""``mgclust serve`` and ``mgclust runner``: the processes of a service."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import math
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mgclust.base.errors import InputError
from mgclust.cli.options import CONTEXT, not_installed

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

    from mgclust.service.settings import Settings

__all__ = ["commands"]

GC_FULL_THRESHOLD = 50  # young garbage collections before a full collection; Python's default is 10


def _check_place(settings: Settings) -> None:
    """Reject a folder or a database that cannot be used, before any process starts."""
    from sqlalchemy.exc import DBAPIError

    from mgclust.service.queue.models import DatabaseLost, open_database, reading

    _check_shared_memory(settings)
    try:
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(settings.data, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise InputError(
            f"data={str(settings.data)!r} should be a folder that can be written: {error.strerror}; give another."
        ) from error
    _check_access("data", settings.data)
    if settings.checkpoints and os.path.isdir(settings.checkpoints):
        _check_access("checkpoints", Path(settings.checkpoints))
    for name, log in (("log", settings.log), ("audit", settings.audit_path)):
        if log and (os.path.islink(log) or (os.path.exists(log) and not os.path.isfile(log))):
            raise InputError(f"{name}={str(log)!r} should be a regular file, not a link; give another.")
        if log:
            _check_file(name, Path(os.path.abspath(log)))
    if settings.database.startswith("sqlite:///"):
        _check_file("database", Path(settings.database.removeprefix("sqlite:///")).absolute())
    try:
        engine = open_database(settings.database)
        with reading(engine):
            engine.dispose()
    except DatabaseLost as error:
        raise InputError(str(error)) from error
    except DBAPIError as error:
        reason = str(error.orig).strip().split("\n")[0].rstrip(".")
        raise InputError(f"the database cannot be used: {reason}; start it, or change --database.") from error


def _check_address(settings: Settings) -> None:
    """Reject an address at which this process cannot listen, before any process starts."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.create_server((settings.host, settings.port), family=family):
            pass
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]
        raise InputError(
            f"--host {settings.host} --port {settings.port} cannot be used: {reason}; stop the program that listens "
            "there, or give an address of this machine and a free port (--port 0: any)."
        ) from error


def _check_shared_memory(settings: Settings) -> None:
    """Reject hidden paths below the folder in which processes create semaphores.

    Landlock takes a list of the folders that an attempt may reach. If one folder below /dev/shm is hidden, the list
    cannot contain /dev/shm itself, so an attempt could create nothing in /dev/shm.
    """
    from mgclust.service.confined.confine import landlock

    for path in settings.concealed if landlock() else ():
        if Path(os.path.realpath(path)).is_relative_to("/dev/shm"):
            raise InputError(
                f"{path} should not be below /dev/shm: Landlock hides it from jobs, which then cannot create "
                "semaphores there, so that no workers start; give a folder elsewhere."
            )


def _check_access(name: str, path: Path, mode: int = 0o700) -> None:
    """Close a path of the service to other accounts; reject a path that another account could change."""
    status = path.stat()
    open_to = stat.S_IMODE(status.st_mode)
    if status.st_uid == os.geteuid():
        if open_to & 0o077:
            try:
                path.chmod(mode)
            except OSError as error:
                raise InputError(
                    f"{name}={str(path)!r} is open to other accounts (mode {open_to:04o}), and its mode cannot be set: "
                    f"{error.strerror}; give another."
                ) from error
            click.echo(f"{path} was open to other accounts (mode {open_to:04o}); its mode is {mode:04o} now", err=True)
        return
    # A volume of Kubernetes with fsGroup belongs to root; its group is the group of the service.
    if status.st_uid != 0 or open_to & 0o002:
        whose = f"belongs to another account (uid {status.st_uid}, mode {open_to:04o})"
        raise InputError(f"{name}={str(path)!r} {whose}, which could change its content; give a path of your own.")


def _check_file(name: str, file: Path) -> None:
    """Close a file of the service to other accounts; reject a file that another account could change or replace."""
    if file.exists():
        _check_access(name, file, 0o600)
    elif not file.parent.exists():
        return
    folder = file.parent.stat()
    # In a folder such as /tmp (sticky bit), other accounts can neither remove nor replace a file.
    if folder.st_uid not in (0, os.geteuid()) or (folder.st_mode & 0o002 and not folder.st_mode & stat.S_ISVTX):
        raise InputError(
            f"{name}={str(file)!r} is in a folder that another account can change (uid {folder.st_uid}, mode "
            f"{stat.S_IMODE(folder.st_mode):04o}), and so could be replaced; give a path in a folder of your own."
        )


def _settings(roots: tuple[str, ...], given: dict[str, Any]) -> Settings:
    """Read the settings from the command line and the environment, and remove them from the environment.

    They are removed because child processes inherit the environment. A password on the command line is rejected,
    because every account of the machine can read command lines.
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
            f"--database should hold no password, because every account of this machine could read it; set "
            f"{PREFIX}DATABASE_FILE or {PREFIX}DATABASE instead."
        )
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    return settings


def _place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that `serve` and `runner` share."""
    for option in reversed(
        (
            click.option("--data", metavar="DIR", help="Folder for jobs and uploads."),
            click.option(
                "--database", metavar="URL", help="PostgreSQL database to use instead of SQLite in the data folder."
            ),
            click.option(
                "--scheduler", metavar="ADDRESS", help="Compute on this running Dask cluster instead of this machine."
            ),
            click.option("--cpu", is_flag=True, default=None, help="Use no GPU."),
            click.option(
                "--slots", type=click.IntRange(1), metavar="N", help="How many jobs run at once [default: 1]."
            ),
            click.option(
                "--root", "roots", multiple=True, metavar="DIR", help="A folder that jobs may read; may be repeated."
            ),
        )
    ):
        command = option(command)
    return command


@click.command("serve", context_settings=CONTEXT)
@_place_options
@click.option("--host", metavar="ADDRESS", help="Address to listen on [default: 127.0.0.1].")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", help="Port to listen on; 0: any free port [default: 8700]."
)
@click.option("--no-runner", is_flag=True, help="Start only the web process; start 'mgclust runner' elsewhere.")
@click.option("--adopt", is_flag=True, help="Start a new database for a data folder whose database is lost.")
def serve(roots: tuple[str, ...], no_runner: bool, adopt: bool, **given: Any) -> None:
    """Serve jobs: start a web process, and a runner that computes the jobs."""
    try:
        from mgclust.service.confined.caches import set_cache_folders
        from mgclust.service.queue.models import check_data_folder, migrate, open_database
        from mgclust.service.runner.supervisor import supervise_runner
    except ModuleNotFoundError as error:
        raise not_installed(error) from error
    os.umask(0o077)  # only this account may read the files of users
    settings = _settings(roots, given)
    _check_place(settings)
    _check_address(settings)
    set_cache_folders(settings)
    engine = open_database(settings.database)
    migrate(engine)
    check_data_folder(engine, settings.data, adopt)
    with _stopped_by_signals() as stopping, _threads(stopping) as start:
        if not no_runner:  # first, so that its imports and those of the web process overlap: both take seconds
            start(supervise_runner, settings, stopping, functools.partial(click.echo, err=True))
        _serve_pages(settings, engine, stopping, start)


def _serve_pages(settings: Settings, engine: Engine, stopping: threading.Event, start: Callable[..., None]) -> None:
    """Answer requests until `stopping` is set."""
    try:
        import uvicorn

        from mgclust.service.audit import Audit
        from mgclust.service.queue.access import first_admin, first_token
        from mgclust.service.queue.copies import copy_until
        from mgclust.service.queue.models import open_database
        from mgclust.service.queue.removal import sweep_until
        from mgclust.service.queue.sessions import new_code
        from mgclust.service.queue.webhooks import send_until
        from mgclust.service.web.app import create_app
        from mgclust.service.web.perimeter.server import IDLE_SECONDS, Connections, Server
    except ModuleNotFoundError as error:
        raise not_installed(error) from error

    app = create_app(settings)
    app.state.backend.readers.begin()
    audit = Audit(settings.audit_path)
    token = first_token(engine, settings.data, audit)
    audit.close()
    place = f"token in {token}" if token.exists() else "the token in the data folder was revoked; use another"
    url = f"http://{settings.host}:{settings.port}"
    click.echo(f"mgclust serves {settings.data} at {url}; {place}", err=True)
    if sys.stderr.isatty() and (admin := first_admin(engine)) is not None:  # a code belongs in no log
        code = new_code(engine, admin)
        click.echo(f"open {settings.public_url or url}/sign-in#code={code} (once, within 10 minutes)", err=True)
    # Exclude the imported modules from garbage collection. Otherwise, each full collection would stop all requests for
    # 0.15 s, which was most of the time that the slowest submissions waited.
    gc.collect()
    gc.freeze()
    # Each open event stream keeps about 200 objects: a full collection with 800 streams takes 0.09 s.
    gc.set_threshold(*gc.get_threshold()[:2], GC_FULL_THRESHOLD)
    connections = Connections(settings)
    connections.raise_limit()
    config = uvicorn.Config(
        app, host=settings.host, port=settings.port, timeout_graceful_shutdown=5,
        http=connections,  # type: ignore[arg-type]  # uvicorn calls it like a class
        ws="none", timeout_keep_alive=math.ceil(IDLE_SECONDS),
        log_level="error",  # log no line for each request that is not valid HTTP
        proxy_headers=False,  # `AuthenticationMiddleware` reads forwarding headers of trusted proxies only
    )  # fmt: skip
    for work in (sweep_until, send_until, copy_until):
        start(work, stopping, open_database(settings.database), settings)
    Server(config, settings.socket, stopping).run()


@click.command("runner", context_settings=CONTEXT)
@_place_options
def runner(roots: tuple[str, ...], **given: Any) -> None:
    """Compute the jobs of a service whose web process was started with --no-runner."""
    try:
        from mgclust.service.confined.caches import set_cache_folders
        from mgclust.service.runner.supervisor import supervise_runner
    except ModuleNotFoundError as error:
        raise not_installed(error) from error
    os.umask(0o077)
    settings = _settings(roots, given)
    _check_place(settings)
    set_cache_folders(settings)
    with _stopped_by_signals() as stopping:
        supervise_runner(settings, stopping, functools.partial(click.echo, err=True))


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set; an exception instead would be lost if a destructor was running."""
    stopping = threading.Event()
    handled = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopping
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _threads(stopping: threading.Event) -> Iterator[Callable[..., None]]:
    """Yield a function that starts a thread; on exit, set `stopping` and wait for all threads."""
    started = []

    def start(work: Callable[..., None], *arguments: Any) -> None:
        started.append(threading.Thread(target=work, args=arguments))
        started[-1].start()

    try:
        yield start
    finally:
        stopping.set()
        for thread in started:
            thread.join()


commands = (serve, runner)
