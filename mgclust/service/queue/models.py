"""Tables of the service, in SQLite or PostgreSQL.

Times are seconds since 1970, UTC. SQLite runs in WAL mode, in which readers and one writer do not wait for each other.
A transaction that writes begins as a writing transaction, because a reading transaction cannot always be upgraded.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Connection,
    Engine,
    ForeignKey,
    Index,
    String,
    Text,
    create_engine,
    event,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from mgclust.base.errors import InputError
from mgclust.service.queue.durable import write_durably
from mgclust.service.queue.identity import DatabaseLost, Identity

__all__ = [
    "OUTAGES", "DatabaseLost", "Delivery", "Folder", "Job", "Removal", "RunnerSign", "Tally", "Token",
    "Upload", "User", "Webhook", "check_data_folder", "full", "migrate", "open_database", "read_only", "reading",
    "search_text", "summarize", "writing",
]  # fmt: skip


# Page size of a new SQLite database, in bytes. A search of 100,000 jobs reads an index of 26 MB page by page. With
# SQLite's default of 4,096 bytes, the first search after a start of the machine takes twice as long.
PAGE_BYTES = 8192
WAL_BYTES = 16 << 20  # size to which SQLite's log shrinks after it was larger
WRITE_TIMEOUT_SECONDS = 20.0  # wait limit of a transaction
MAX_SUMMARY_PARAMETERS, MAX_VALUE_CHARACTERS = 12, 60  # parameters of a job in lists
MAX_SEARCH_BYTES = 2000

_COPY_IS_DUE = text("copy_due IS NOT NULL")  # so that the index has no entries for other jobs
_WRITERS: weakref.WeakKeyDictionary[Engine, threading.Lock] = weakref.WeakKeyDictionary()


class Base(DeclarativeBase):
    """Base class of all tables."""


class User(Base):
    """A user."""

    __tablename__ = "users"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    role: Mapped[str] = mapped_column(String(16))  # "user" or "admin"
    # Slot time that the user's jobs have used, with a half-life of an hour; see `fair_share.add_usage`.
    used: Mapped[float] = mapped_column(default=0.0)
    disabled: Mapped[float | None]  # since when the user's tokens are rejected and jobs wait; None: not disabled
    # Limits of this user instead of the settings `disk_per_user` and `jobs_per_user`; None: the settings.
    disk_limit: Mapped[int | None] = mapped_column(BigInteger)
    jobs_limit: Mapped[int | None]
    # Totals of all attempts of the user, including attempts of deleted jobs.
    attempts: Mapped[int] = mapped_column(default=0)
    seconds: Mapped[float] = mapped_column(default=0.0)
    gpu_seconds: Mapped[float] = mapped_column(default=0.0)
    identity: Mapped[str | None] = mapped_column(String(64))  # SHA-256 of an OpenID provider's issuer and subject

    __table_args__ = (Index("users_by_identity", "identity", unique=True),)


class Token(Base):
    """A token, identified by its hash."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    user: Mapped[str] = mapped_column(ForeignKey("users.name"))
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created: Mapped[float]
    revoked: Mapped[float | None]
    expires: Mapped[float | None]  # None: it never expires
    scopes: Mapped[str] = mapped_column(String(64))  # separated by spaces
    used: Mapped[float | None]  # last use, to the hour
    # "token"; "session": of a browser; "code": begins one session; "link": reads the result of one job.
    kind: Mapped[str] = mapped_column(String(16), default="token")
    # Token with which a session began or a link was made; its revocation ends both, its expiry only the session.
    origin: Mapped[str | None] = mapped_column(String(32))
    job: Mapped[str | None] = mapped_column(String(32))  # job of a link

    __table_args__ = (
        Index("tokens_of_user", "user", "created"),
        Index("tokens_of_job", "job"),
        Index("tokens_of_origin", "origin"),
    )


class Webhook(Base):
    """An address that receives a message at the end of each job of its owner."""

    __tablename__ = "webhooks"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    owner: Mapped[str] = mapped_column(ForeignKey("users.name"))
    url: Mapped[str] = mapped_column(String(1024))
    secret: Mapped[str] = mapped_column(String(64))  # key of the signatures
    created: Mapped[float]
    since: Mapped[float]  # jobs that ended before this time have their messages
    last: Mapped[str | None] = mapped_column(Text)  # outcome of the last message
    origin: Mapped[str | None] = mapped_column(String(32))  # token that added it; its revocation deletes the webhook


class Delivery(Base):
    """A message about the end of a job that waits to be sent, or was sent (no `due`)."""

    __tablename__ = "deliveries"
    webhook: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"), primary_key=True)
    job: Mapped[str] = mapped_column(String(32), primary_key=True)
    finished: Mapped[float] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(Text)
    failures: Mapped[int] = mapped_column(default=0)
    due: Mapped[float | None]

    __table_args__ = (Index("deliveries_due", "webhook", "due"),)


class Upload(Base):
    """A file that a user has uploaded."""

    __tablename__ = "uploads"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    owner: Mapped[str] = mapped_column(ForeignKey("users.name"))
    name: Mapped[str] = mapped_column(String(255))
    size: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(String(64))
    created: Mapped[float]
    pinned: Mapped[bool] = mapped_column(default=False)  # whether it is kept after `keep_days`

    __table_args__ = (
        Index("uploads_of_owner", "owner", "created", "id", "size"),
        Index("uploads_by_content", "owner", "sha256", "name"),
    )


class Folder(Base):
    """The data folder of the database, identified by the id in its file `folder-id`."""

    __tablename__ = "folders"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)


class Tally(Base):
    """Number and sum of the durations in a bucket of a histogram; see `metrics`."""

    __tablename__ = "tallies"
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    method: Mapped[str] = mapped_column(String(64), primary_key=True)
    state: Mapped[str] = mapped_column(String(16), primary_key=True)
    bucket: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float]


class RunnerSign(Base):
    """Heartbeat of a runner: a counter that increases while the runner works."""

    __tablename__ = "signs"
    runner: Mapped[str] = mapped_column(String(16), primary_key=True)
    count: Mapped[int]


class Removal(Base):
    """A folder below the data folder that is still to be removed."""

    __tablename__ = "removals"
    path: Mapped[str] = mapped_column(String(64), primary_key=True)


def _given(row: Any, column: str) -> Any:
    """Return a value of the row whose defaults are being computed."""
    return row.get_current_parameters()[column]


def summarize(record: dict[str, Any]) -> dict[str, Any]:
    """Summarize a request for lists: its first sources and parameters, the number of sources, and the parent job."""
    sources, given = record.get("sources") or [], (record.get("parameters") or {}) | (record.get("centers") or {})
    named = [source.get("name") or source.get("path") or f"upload {source.get('upload')}" for source in sources[:3]]
    return {
        "sources": [name[:255] for name in named],
        "n_sources": len(sources),
        "parent": record.get("parent"),
        "parameters": {name[:64]: _short(value) for name, value in list(given.items())[:MAX_SUMMARY_PARAMETERS]},
    }


def _short(value: Any) -> str:
    """Return the value of a parameter as a short text."""
    if isinstance(value, dict):
        value = value.get("name") or value.get("path") or value.get("job") or value.get("upload")
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 3] + "..."


def search_text(
    id_: str, name: str | None, tags: Sequence[str], method: str, summary: Mapping[str, Any], sweep: str | None
) -> str:
    """Return the text in which a search looks for words: one fact per line, in lower case.

    The text is part of an index, and an entry of an index has at most 2,704 bytes in PostgreSQL. So it is cut.
    """
    facts = [
        name or "", *(f"#{tag}" for tag in tags), id_, f"method={method}", *([f"sweep={sweep}"] if sweep else []),
        *summary["sources"], *(f"{name}={value}" for name, value in summary["parameters"].items()),
    ]  # fmt: skip
    text = "\n".join(["", *facts, ""]).lower().replace("\0", " ")
    return text.encode()[:MAX_SEARCH_BYTES].decode(errors="ignore")


def _search_text(job: Any) -> str:
    given = job.get_current_parameters()
    summary = summarize(given["request"])
    return search_text(
        given["id"], given.get("name"), given.get("tags") or [], given["method"], summary, given.get("sweep")
    )


class Job(Base):
    """A job: its request, its state, and its outcome."""

    __tablename__ = "jobs"
    __allow_unmapped__ = True
    before: str | None = None  # error of the previous attempt, set by a claim; not a column
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    owner: Mapped[str] = mapped_column(ForeignKey("users.name"))
    method: Mapped[str] = mapped_column(String(64))
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    # Summary of the request, for lists.
    summary: Mapped[dict[str, Any]] = mapped_column(JSON, default=lambda job: summarize(_given(job, "request")))
    name: Mapped[str | None] = mapped_column(String(100))  # chosen by the user
    tags: Mapped[list[str]] = mapped_column(JSON, default=list)
    sweep: Mapped[str | None] = mapped_column(String(32))  # the sweep that the job is a member of
    search: Mapped[str] = mapped_column(Text, default=_search_text)  # see `search_text`
    priority: Mapped[int] = mapped_column(default=0)
    state: Mapped[str] = mapped_column(String(16), default="PENDING")
    created: Mapped[float]
    started: Mapped[float | None]
    finished: Mapped[float | None]
    queued: Mapped[float] = mapped_column(default=lambda job: _given(job, "created"))  # start of its last wait
    claimed: Mapped[float | None]  # start of its current or last attempt
    attempt: Mapped[int] = mapped_column(default=0)  # number of the current or last attempt
    begun_before: Mapped[int] = mapped_column(
        default=0
    )  # attempts that do not count: attempts before a retry, and attempts that a runner's fault or stop ended
    heartbeat: Mapped[float | None]
    runner: Mapped[str | None] = mapped_column(String(16))  # runner of the current or last attempt
    gpus: Mapped[int] = mapped_column(default=0)  # GPUs of the current or last attempt
    pinned: Mapped[bool] = mapped_column(default=False)  # whether it is kept after `keep_days`
    cancel: Mapped[bool] = mapped_column(default=False)  # whether cancelling was requested
    progress: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    scores: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    warnings: Mapped[list[str] | None] = mapped_column(JSON)  # warnings of the result
    error: Mapped[str | None] = mapped_column(Text)
    fault: Mapped[str | None] = mapped_column(String(16))  # "input", "memory", "cluster" or "mgclust"
    size: Mapped[int | None] = mapped_column(BigInteger)  # bytes of the job's row, and of its files when it last ended
    result_copy: Mapped[dict[str, Any] | None] = mapped_column(JSON)  # state of the copy in a store; see `copies`
    copy_due: Mapped[float | None]  # when to copy the result, or when a claim expires; None: nothing to copy

    __table_args__ = (
        Index("jobs_queue", "state", "priority", "created", "id"),
        Index("jobs_queue_of_owner", "owner", "state", "priority", "created", "id"),
        Index("jobs_of_owner", "owner", "created", "id"),
        Index("jobs_of_owner_by_state", "owner", "state", "created", "id"),
        Index("jobs_by_state", "state", "created", "id"),
        Index("jobs_by_age", "created", "id"),
        Index("jobs_by_end", "finished", "id"),
        Index("jobs_sizes_of_owner", "owner", "size"),
        Index("jobs_to_copy", "copy_due", sqlite_where=_COPY_IS_DUE, postgresql_where=_COPY_IS_DUE),
        Index("jobs_of_sweep", "sweep", "created", "id"),
        # A search reads these indexes, and only the rows that it finds.
        Index("jobs_search", "created", "id", "state", "search"),
        Index("jobs_search_of_owner", "owner", "created", "id", "state", "search"),
    )


OUTAGES = (DBAPIError, NoConnection, DatabaseLost)


def open_database(url: str) -> Engine:
    """Connect to the database; `migrate` creates its tables."""
    try:
        # Detect a server that has disappeared without closing its connections.
        timeouts = {"connect_timeout": 10, "tcp_user_timeout": 30_000, "keepalives_idle": 15, "keepalives_interval": 5}
        connect_args = timeouts if make_url(url).get_backend_name() == "postgresql" else {}
        engine = create_engine(url, pool_pre_ping=True, connect_args=connect_args)
    except Exception as error:
        raise InputError(f"database={url.split('@')[-1]!r} cannot be used: {error}.") from error
    if engine.dialect.name == "sqlite" and (engine.url.database or "").startswith("file:"):
        raise InputError(f"database={url!r} should name the file directly: sqlite:////folder/service.db.")
    identity = Identity(engine.url.database if engine.dialect.name == "sqlite" else None)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "do_connect", lambda *_: identity.check_place())
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", functools.partial(_begin_sqlite, identity))
        event.listen(engine, "handle_error", lambda context: identity.damaged(context.original_exception))
    else:
        event.listen(engine, "connect", lambda connection, record: identity.compare(connection))
    return engine


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """Begin a reading transaction, which sees one snapshot."""
    with engine.connect() as connection, Session(connection) as session:
        yield session


@contextlib.contextmanager
def writing(engine: Engine, alone: bool = False) -> Iterator[Session]:
    """Begin a writing transaction. It is committed at the end of the block, and rolled back by an exception.

    Transactions with `alone` exclude each other across processes. In SQLite, all writing transactions do so.
    """
    with _writer_lock(engine), engine.connect() as connection:
        connection = connection.execution_options(writes=True)
        with Session(connection, expire_on_commit=False) as session, session.begin():
            if alone and engine.dialect.name == "postgresql":
                session.connection().exec_driver_sql("SELECT pg_advisory_xact_lock(7300241)")
            yield session


@contextlib.contextmanager
def _writer_lock(engine: Engine) -> Iterator[None]:
    """Queue the threads that write to SQLite, because SQLite itself polls every 0.1 s, in no particular order."""
    if engine.dialect.name != "sqlite":
        yield
        return
    lock = _WRITERS.setdefault(engine, threading.Lock())
    if not lock.acquire(timeout=WRITE_TIMEOUT_SECONDS):  # the wait for the lock of the file has the same limit
        raise NoConnection(f"other requests have been writing to the database for {WRITE_TIMEOUT_SECONDS:g} s.")
    try:
        yield
    finally:
        lock.release()


def full(error: DBAPIError) -> bool:
    """Return whether an error means that the database's disk is full."""
    if isinstance(error.orig, sqlite3.Error):
        # While the log is created or grows, SQLite reports a full disk as an I/O error; exclude other I/O errors.
        code = error.orig.sqlite_errorcode
        other = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)
        return code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) and code not in other
    return getattr(error.orig, "sqlstate", None) == "53100"


def read_only(error: DBAPIError) -> bool:
    """Return whether an error means that the database can be read but not written."""
    if isinstance(error.orig, sqlite3.Error):
        return error.orig.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY
    return getattr(error.orig, "sqlstate", None) == "25006"


def migrate(engine: Engine) -> None:
    """Migrate the tables to this version. Several processes may do so at the same time.

    Raises
    ------
    InputError
        The database has the schema of a newer version.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    known = {each.revision for each in ScriptDirectory.from_config(config).walk_revisions()}
    with writing(engine, alone=True) as session:
        connection = session.connection()
        found = MigrationContext.configure(connection).get_current_revision()
        if found is not None and found not in known:
            raise InputError(
                f"the database was made by a newer mgclust: its schema {found} is unknown to this version; upgrade "
                "mgclust, or restore the backup from before the upgrade."
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def check_data_folder(engine: Engine, data: Path, adopt: bool = False) -> None:
    """Check that the data folder belongs to the database; for a new database, record the folder.

    Parameters
    ----------
    engine : Engine
        Database, from `open_database`.
    data : Path
        The data folder.
    adopt : bool
        Whether a new database may take over a folder with jobs or uploads. These then belong to no user.

    Raises
    ------
    InputError
        The folder belongs to another database, or the database of its jobs is lost.
    """
    path = data / "folder-id"
    with writing(engine, alone=True) as session:
        known = session.scalars(select(Folder.id)).first()
        # An empty file is the remains of a file that was written when the power failed.
        here = (path.read_text().strip() or None) if path.exists() else None
        torn = here is None and path.exists()
        if known is None:
            kept = [name for name in ("jobs", "uploads") if (data / name).is_dir() and any(os.scandir(data / name))]
            if kept and not adopt and session.scalars(select(User.name).limit(1)).first() is None:
                raise InputError(
                    f"data={str(data)!r} holds {' and '.join(kept)}, but the database has none of them; restore "
                    "its last backup, give the right database, or give up the old jobs and uploads with --adopt."
                )
            if here is None:
                here = secrets.token_hex(16)
                write_durably(path, here + "\n")
            session.add(Folder(id=here))
        elif torn:
            write_durably(path, known + "\n")
        elif here != known:
            raise InputError(
                f"data={str(data)!r} is not the data folder of this database; give the folder whose file folder-id "
                f"holds {known}, or another database."
            )


def _prepare_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # `_begin_sqlite`, not the driver, begins transactions
    cursor = connection.cursor()
    wait = f"busy_timeout={WRITE_TIMEOUT_SECONDS * 1000:.0f}"
    size = f"journal_size_limit={WAL_BYTES}"
    for pragma in (wait, f"page_size={PAGE_BYTES}", "journal_mode=WAL", size, "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(identity: Identity, connection: Connection) -> None:
    identity.check()
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
