"""Where the service keeps things, what it runs on, and its limits."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import ipaddress
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mgclust.engine.devices import cores
from mgclust.errors import InputError
from mgclust.service.addresses import Proxies

__all__ = ["Settings", "variable"]

PREFIX = "MGCLUST_SERVICE_"
MAX_FILE_BYTES = 64 * 2**10  # bytes of a variable's file
# Of the machine and of the service's user, where they may be read at all.
SECRETS = (
    "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/run/secrets/kubernetes.io", "~/.ssh", "~/.pgpass", "~/.aws",
    "~/.kube", "~/.gnupg", "~/.netrc",
)  # fmt: skip


def _data_folder() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "mgclust"


@dataclass(frozen=True)
class Settings:
    """Each may be given as an environment variable, ``MGCLUST_SERVICE_DATA`` and so on, or as a file.

    ``MGCLUST_SERVICE_DATABASE_FILE=/run/secrets/database`` takes the value from that file, which keeps secrets out of
    the environment. A trailing newline does not count.

    Attributes
    ----------
    data : Path
        Folder of uploads, jobs and, by default, the database.
    checkpoints : str
        Folder of checkpoints, which the workers of a cluster must reach and may write, at the same path; empty: in the
        folder of each job.
    database : str
        SQLAlchemy's URL; by default SQLite in `data`.
    host, port
        Where the web process listens.
    scheduler : str
        Address of a Dask cluster, ``tls://``; empty: each job uses this machine.
    allow_plain_scheduler : bool
        Take a scheduler of this machine without TLS. Every account of the machine may then run code as the cluster's
        workers do, and read what they read. Beyond this machine TLS is needed in any case.
    cpu : bool
        Use no GPU.
    slots : int
        Jobs that run at once.
    roots : str
        Folders whose files jobs may read, with `os.pathsep` between; none by default.
    urls : str
        Prefixes of the URLs that jobs may name as data, a JSON list: ``["https://data.example/public/"]``; none by
        default.
    upload_limit : int
        Bytes of one upload, or of one file that is fetched.
    fetch_seconds : float
        That all files which a job names by URL may take to be fetched.
    max_rows : int
        Rows that a job may have, or nodes or edges of its graph; 0: any number.
    jobs_per_user : int
        Waiting and running ones together.
    jobs_waiting : int
        Waiting ones of all users together.
    jobs_kept_per_user : int
        All jobs of one user, those that have ended, too.
    uploads_per_user : int
        Files that one user keeps on the service.
    disk_per_user : int
        Bytes of one user's uploads and jobs together, beyond which they send no file and submit no job; 0: any
        number. A job counts with what the database keeps of it and with its result, which may exceed the limit: its
        size is not known before.
    keep_days : float
        Days after which a job that has ended is deleted with its files; 0: never.
    log : str
        File to which a line of JSON is appended for each attempt and job that begins or ends; empty: the standard
        error.
    rate_per_token : float
        Requests a second of one token, on average; 20 seconds' worth may come at once.
    rate_per_address : float
        Likewise those from one address that show no valid token.
    requests_per_user : int
        Requests of one user that are answered at the same time.
    streams_per_user : int
        Jobs that one user watches at the same time.
    trusted_proxies : str
        Addresses and networks, with commas between, whose ``X-Forwarded-For`` or ``Forwarded`` says from where a
        request comes; none by default.
    connections : int
        To the web process at the same time. When there are as many, idle and unfinished ones without a token make room.
    connections_per_address : int
        Likewise from one address that is no trusted proxy, of those that have shown no valid token.
    header_bytes : int
        Of a request's first line and headers together.
    header_seconds : float
        Within which these have to arrive.
    body_seconds : float
        Within which the body of a request has to arrive that is no upload; of an upload, the longest silence.
    upload_rate : float
        Bytes a second that an upload has to have on average, after `body_seconds`.
    idle_seconds : float
        That a connection stays open without a request.
    write_seconds : float
        Within which a client has to take the next part of its answer.
    audit : str
        File of the audit log, or "-" for standard error; by default ``audit.log`` in `data`.
    audit_bytes : int
        After which a file of the audit log is put aside; the last four are kept.
    max_workers : int
        Processes on this machine's CPUs that one job may ask for; by default as many as there are cores. A cluster
        has its own number.
    max_seconds : float
        Seconds that an attempt of a job may run, without those during which it was suspended; 0: any number. A job may
        ask for less, and fails when it has taken as many.
    max_memory : int
        Bytes of memory that the processes of a job on this machine may take together; 0: any number. Memory is looked
        at twice a second. As for `max_seconds`, a job may ask for less.
    attempts : int
        How often a job is begun before infrastructure that fails makes it fail.
    lost_after : float
        Seconds without a heartbeat after which a running job is taken for lost. Only those count during which the
        runner that judges ran itself.
    hung_after : float
        Seconds without a sign of life after which a stopped process of a job, or a stopped runner, is ended and
        replaced. One that is not stopped, but neither says nor computes anything, has four times as long.
    checkpoint_seconds : float
        Between two checkpoints of a job, from which its next attempt goes on.
    hidden : str
        Files and folders, with `os.pathsep` between, that processes which read users' data must not reach, beside the
        data folder, the roots, and the files of ``MGCLUST_..._FILE``.
    readers : int
        Processes that read results and data for pictures and other centres, at once.
    reader_memory : int
        Bytes that one of them may take.
    reader_seconds : float
        Seconds that it may take for one request.
    """

    data: Path = dataclasses.field(default_factory=_data_folder)
    checkpoints: str = ""
    database: str = ""
    host: str = "127.0.0.1"
    port: int = 8700
    scheduler: str = ""
    allow_plain_scheduler: bool = False
    cpu: bool = False
    slots: int = 1
    roots: str = ""
    urls: str = ""
    upload_limit: int = 64 * 2**30
    fetch_seconds: float = 3600.0
    max_rows: int = 0
    jobs_per_user: int = 1_000
    jobs_waiting: int = 100_000
    jobs_kept_per_user: int = 100_000
    uploads_per_user: int = 10_000
    disk_per_user: int = 0
    keep_days: float = 0.0
    log: str = ""
    rate_per_token: float = 200.0
    rate_per_address: float = 10.0
    requests_per_user: int = 128
    streams_per_user: int = 64
    trusted_proxies: str = ""
    connections: int = 2000
    connections_per_address: int = 256
    header_bytes: int = 32 << 10
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    upload_rate: float = 1024.0
    idle_seconds: float = 30.0
    write_seconds: float = 60.0
    audit: str = ""
    audit_bytes: int = 16 << 20
    max_workers: int = dataclasses.field(default_factory=cores)
    max_seconds: float = 0.0
    max_memory: int = 0
    attempts: int = 3
    lost_after: float = 30.0
    hung_after: float = 30.0
    checkpoint_seconds: float = 60.0
    hidden: str = ""
    readers: int = 2
    reader_memory: int = 2**30
    reader_seconds: float = 60.0

    @classmethod
    def read(cls, **given: Any) -> Settings:
        """Settings of the environment, and those given, which come first; None is not given."""
        values: dict[str, Any] = {}
        known = {PREFIX + field.name.upper() for field in dataclasses.fields(cls)}
        for name in sorted(os.environ):
            if name.startswith(PREFIX) and name.removesuffix("_FILE") not in known:
                raise InputError(f"{name} is no setting of the service; there are {', '.join(sorted(known))}.")
        of_files = []
        secrets = [os.environ.get(name, "") for name in os.environ if re.fullmatch(r"MGCLUST_[A-Z_]+_FILE", name)]
        for field in dataclasses.fields(cls):
            name = PREFIX + field.name.upper()
            text = variable(name)
            if given.get(field.name) is not None:
                values[field.name] = given[field.name]
            elif text:
                if is_of_file := not os.environ.get(name):
                    of_files.append(field.name)
                values[field.name] = _parsed(name, str(field.type), text, shown=not is_of_file)
        values["hidden"] = os.pathsep.join(filter(None, [values.get("hidden", ""), *secrets]))
        try:
            return cls(**values)
        except InputError as error:
            # Each of these on its own: a message may quote a value, which what came from a file must not be.
            for name in of_files:
                try:
                    cls(**{name: values[name]})
                except InputError:
                    raise InputError(f"{_file_of(PREFIX + name.upper())} has no valid value of {name}.") from None
            raise error

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", Path(self.data).absolute())
        if not self.database:
            object.__setattr__(self, "database", f"sqlite:///{self.data / 'service.db'}")
        if self.scheduler and not self.scheduler.startswith("tls://"):
            elsewhere = _is_elsewhere(self.scheduler)
            if elsewhere or not self.allow_plain_scheduler:
                others, remedy = "others on the network", ""
                if not elsewhere:
                    others = "every account of this machine"
                    remedy = f", and {PREFIX}ALLOW_PLAIN_SCHEDULER=true does without them"
                raise InputError(
                    f"scheduler={self.scheduler!r} should begin with tls://: {others} could run code on it; "
                    f"mgclust certs makes certificates{remedy}."
                )
        for name in (
            "slots", "upload_limit", "jobs_per_user", "jobs_waiting", "jobs_kept_per_user", "uploads_per_user",
            "max_workers", "attempts", "readers", "reader_memory", "requests_per_user", "streams_per_user",
            "connections", "connections_per_address",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} should be >= 1.")
        for name in ("header_bytes", "audit_bytes"):
            if getattr(self, name) < 1024:
                raise InputError(f"{name}={getattr(self, name)} should be >= 1024.")
        for name in ("max_rows", "disk_per_user", "max_seconds", "max_memory", "keep_days"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name}={getattr(self, name)} should be >= 0; 0 is no limit.")
        _ = self.prefixes
        Proxies(self.trusted_proxies)
        if self.checkpoints and not os.path.isabs(self.checkpoints):
            raise InputError(f"checkpoints={self.checkpoints!r} should be a folder's whole path.")
        for root, folder in zip(filter(None, self.roots.split(os.pathsep)), self.folders, strict=True):
            if not os.path.isabs(root):
                raise InputError(f"root={root!r} should be a folder's whole path.")
            for name in ("data", "checkpoints"):
                own = Path(os.path.realpath(getattr(self, name) or self.data))
                if own.is_relative_to(folder) or folder.is_relative_to(own):
                    raise InputError(
                        f"root={root!r} should be apart from {name}={str(own)!r}, which holds others' files."
                    )
        for name in (
            "rate_per_token", "rate_per_address", "fetch_seconds", "lost_after", "hung_after", "checkpoint_seconds",
            "reader_seconds", "header_seconds", "body_seconds", "upload_rate", "idle_seconds", "write_seconds",
        ):  # fmt: skip
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name}={getattr(self, name)} should be > 0.")

    @property
    def audit_path(self) -> Path | None:
        """Where the audit log is; None: standard error."""
        return None if self.audit == "-" else Path(self.audit).absolute() if self.audit else self.data / "audit.log"

    @functools.cached_property
    def folders(self) -> list[Path]:
        """`roots`, resolved once: a part of their own paths that is replaced later leads nowhere else."""
        return [Path(os.path.realpath(root)) for root in self.roots.split(os.pathsep) if root]

    @property
    def concealed(self) -> list[str]:
        """What processes that read users' data must not reach, but for what a request names."""
        database = self.database.partition("sqlite:///")[2].partition("?")[0]
        files = [f"{database}{end}" for end in ("", "-wal", "-shm", "-journal")] if database else []
        mine = [os.path.expanduser(path) for path in (*SECRETS, *self.hidden.split(os.pathsep)) if path]
        kept = [self.checkpoints] if self.checkpoints else []
        kept += [str(self.audit_path)] if self.audit_path else []
        return [str(self.data), *kept, *map(str, self.folders), *files, *mine]

    @property
    def prefixes(self) -> list[str]:
        """`urls`, as a list."""
        try:
            found = json.loads(self.urls or "[]")
            good = isinstance(found, list) and all(re.fullmatch(r"https?://[^/@?#\s\\]+(/[^?#\s]*)?", p) for p in found)
        except (ValueError, TypeError):
            good = False
        if not good:
            raise InputError(
                f"{PREFIX}URLS={self.urls!r} should be a JSON list of prefixes, such as "
                '["https://data.example/public/"].'
            )
        return list(found)

    def check_resources(self, resources: Mapping[str, Any]) -> None:
        """Refuse a job that asks for more than one may have, or for GPUs where none are used."""
        if self.cpu and resources.get("gpus"):
            raise InputError(f"gpus={resources['gpus']} cannot be had of a service that uses no GPU; ask for workers.")
        workers = resources.get("workers") or 0
        if workers > self.max_workers and not self.scheduler:
            raise InputError(
                f"workers={workers} should be <= max_workers={self.max_workers}; ask for fewer, or the administrator "
                f"for a higher {PREFIX}MAX_WORKERS."
            )
        for name, limit in (("max_seconds", "max_seconds"), ("memory", "max_memory")):
            asked, most = resources.get(name) or 0, getattr(self, limit)
            if most and asked > most:
                raise InputError(
                    f"{name}={asked:.15g} should be <= {limit}={most:.15g} of the service; ask for less, or the "
                    f"administrator for a higher {PREFIX}{limit.upper()}."
                )

    def job_folder(self, id_: str) -> Path:
        """Where all of a job is."""
        return self.data / "jobs" / id_

    def attempt_folder(self, id_: str, attempt: int) -> Path:
        """Where an attempt leaves its result, and its log beside it."""
        return self.job_folder(id_) / f"attempt-{attempt}"

    def checkpoint_folder(self, id_: str) -> Path:
        """Where attempts leave what the next one resumes from, each in a folder of its own; gone at the end."""
        return Path(self.checkpoints, id_) if self.checkpoints else self.job_folder(id_) / "checkpoint"

    def to_json(self) -> str:
        """One line for another process's standard input, in place of its environment."""
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def from_json(cls, line: str) -> Settings:
        """Settings of `to_json`."""
        return cls(**json.loads(line))


def variable(name: str) -> str | None:
    """Value of an environment variable, or of the file that the variable with ``_FILE`` behind its name says.

    Raises
    ------
    InputError
        Both are set, or the file cannot be read. The content is not quoted.
    """
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return os.environ.get(name)
    if os.environ.get(name):
        raise InputError(f"{name} and {name}_FILE are both set; unset one of them.")
    try:
        # Not blocking: a FIFO without a writer would hang the start.
        with open(path, "rb", opener=lambda file, flags: os.open(file, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"{_file_of(name)} is not a regular file.")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"{_file_of(name)} cannot be read: {error.strerror}.") from None
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"{_file_of(name)} should have at most {MAX_FILE_BYTES} bytes.")
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise InputError(f"{_file_of(name)} is not UTF-8 text.") from None


def _file_of(name: str) -> str:
    return f"{name}_FILE={os.environ[f'{name}_FILE']!r}"


def _is_elsewhere(scheduler: str) -> bool:
    host = urlsplit(scheduler if "//" in scheduler else f"//{scheduler}").hostname or "localhost"
    with contextlib.suppress(ValueError):
        return not ipaddress.ip_address(host).is_loopback
    return host != "localhost"


def _parsed(name: str, kind: str, text: str, *, shown: bool) -> Any:
    try:
        if kind == "bool":
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
        return {"Path": Path, "int": int, "float": float}.get(kind, str)(text)
    except (ValueError, KeyError):
        value = f"{name}={text!r}" if shown else _file_of(name)
        raise InputError(f"{value} should be of type {kind}.") from None
