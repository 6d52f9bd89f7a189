"""Settings of the service: folders, resources and limits."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import ipaddress
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil

from mgclust.base.errors import InputError
from mgclust.engine.devices import cores
from mgclust.outside.json_text import parse_json
from mgclust.service.addresses import Proxies

__all__ = ["Settings", "variable"]

PREFIX = "MGCLUST_SERVICE_"
MAX_FILE_BYTES = 64 * 2**10  # largest file that may hold the value of a setting
# Files with secrets of the machine and of the service's user.
SECRETS = (
    "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/run/secrets/kubernetes.io", "~/.ssh", "~/.pgpass", "~/.aws",
    "~/.kube", "~/.gnupg", "~/.netrc",
)  # fmt: skip


class _Bound(NamedTuple):
    words: str
    holds: Callable[[Any], bool]


AT_LEAST_ONE = _Bound(">= 1", lambda value: value >= 1)
POSITIVE = _Bound("> 0", lambda value: 0 < value < float("inf"))
OR_NO_LIMIT = _Bound(">= 0; 0 means no limit", lambda value: 0 <= value < float("inf"))


def _bounded(bound: _Bound, default: Any = dataclasses.MISSING, **given: Any) -> Any:
    return dataclasses.field(default=default, metadata={"bound": bound}, **given)


@functools.cache
def _memory_of_a_job() -> int:
    """Return three quarters of the memory of the machine or, if it is less, of the container."""
    total = int(psutil.virtual_memory().total)
    with contextlib.suppress(OSError, ValueError):  # there is no cgroup, or its limit is "max"
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total // 4 * 3


def _data_folder() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "mgclust"


@dataclass(frozen=True)
class Settings:
    """Settings of the service.

    Each setting is an environment variable, ``MGCLUST_SERVICE_DATA`` and so on, or a file. For example,
    ``MGCLUST_SERVICE_DATABASE_FILE=/run/secrets/database`` reads the value of `database` from that file, which keeps
    secrets out of the environment. A newline at the end of the file is ignored.

    Attributes
    ----------
    data : Path
        Folder of uploads, jobs and, by default, the database. Default: ``~/.local/share/mgclust``.
    checkpoints : str
        Folder of checkpoints, which workers of a cluster must be able to write at the same path. Empty: in the folder
        of each job.
    database : str
        URL of the database for SQLAlchemy. Default: SQLite in `data`.
    host : str
        Address at which the web process listens.
    port : int
        Port at which the web process listens.
    public_url : str
        Address at which browsers reach the service, such as ``https://cluster.example``. If it begins with https,
        browsers send cookies only over TLS. Sign-in by OpenID Connect needs this setting.
    webhook_networks : str
        Addresses and networks, separated by commas, that may receive webhooks although they are not public. If this
        setting is not empty, addresses of webhooks may also begin with http. Default: none.
    oidc_issuer : str
        Address of an OpenID Connect provider (its issuer) at which users may sign in, such as
        ``https://login.example``. At the provider, register the redirect address ``/sign-in/openid/callback`` below
        `public_url`. Empty: users sign in only with tokens.
    oidc_client_id : str
        Name under which the service is registered at the provider (client ID).
    oidc_client_secret : str
        Secret with which the service is registered at the provider. Write the secret to a file, and name this file in
        ``MGCLUST_SERVICE_OIDC_CLIENT_SECRET_FILE``.
    oidc_groups_claim : str
        Claim of the ID token that lists the groups of a user.
    oidc_admin_groups : str
        Groups, separated by commas, whose members are administrators. Each sign-in updates the role of the user.
    oidc_user_groups : str
        Groups, separated by commas, whose members may use the service. Empty: all users of the provider.
    scheduler : str
        Address of a Dask cluster, ``tls://``. Empty: jobs run on this machine.
    allow_plain_scheduler : bool
        Accept a scheduler of this machine without TLS. Every account of the machine can then run code with the rights
        of the cluster's workers. A scheduler on another machine always needs TLS.
    cpu : bool
        Use no GPU.
    slots : int
        Number of jobs that run at the same time. A job has one of the machine's GPUs unless it requests several.
    roots : str
        Folders with files that jobs may read, separated by `os.pathsep`. Default: none.
    stores : str
        Path of a TOML file that lists S3-compatible stores and the credentials of these stores. Users may name objects
        of the stores as sources, and results can be copied to stores that the file opens for writing. The file must
        have mode 0600. Default: none.
    upload_limit : int
        Maximum size of one upload, in bytes.
    max_rows : int
        Maximum number of rows of a job, or of nodes or edges of its graph. 0: no limit.
    jobs_per_user : int
        Maximum number of waiting and running jobs of one user.
    disk_per_user : int
        Bytes of one user's uploads and jobs beyond which uploads and new jobs are rejected. 0: no limit. The row
        of a job in the database and its result both count. The result may exceed the limit, because its size is not
        known before.
    keep_days : float
        Days until a job that has ended is deleted with its files, and days until an upload is deleted, unless they are
        pinned. An upload is kept as long as a job that names it. 0: never.
    log : str
        File for the log of jobs, which must not be a link: one line of JSON when an attempt starts, when it ends, and
        when a job ends. Empty: standard error.
    rate_per_token : float
        Average number of requests per second with one token. A burst may have 20 times as many requests.
    rate_per_address : float
        Average number of requests per second from one address without a valid token, with the same bursts.
    trusted_proxies : str
        Addresses and networks, separated by commas, whose ``X-Forwarded-For`` headers are trusted. Default: none.
    audit : str
        File of the audit log, or "-" for standard error. Default: ``audit.log`` in `data`.
    max_workers : int
        Maximum number of CPU processes on this machine that one job may request. Default: the number of cores. The
        limit does not apply to a cluster.
    max_seconds : float
        Time limit of an attempt, in seconds, not counting suspensions. 0: no limit. A job may request less, and fails
        at its limit.
    max_memory : int
        Memory limit, in bytes, of all processes of a job on this machine. Default: three quarters of the memory of the
        machine or the container. 0: no limit. Memory is measured twice a second. A job may request less.
    attempts : int
        Number of attempts after which a failure of the infrastructure fails the job.
    lost_after : float
        Seconds without a heartbeat after which an attempt is declared lost. Only time during which the checking runner
        itself ran counts.
    hung_after : float
        Seconds without a heartbeat after which a stopped process of a job, or a stopped runner, is killed and replaced.
        A process that is not stopped, but silent and idle, is killed after four times as long.
    checkpoint_seconds : float
        Time between two checkpoints of a job, from which its next attempt resumes.
    hidden : str
        Files and folders, separated by `os.pathsep`, to hide from processes that read users' data, in addition to the
        data folder, the roots, and the files that variables ``MGCLUST_..._FILE`` name.
    reader_memory : int
        Memory limit, in bytes, of a process that reads results and data for pictures and other centres.
    reader_seconds : float
        Time limit, in seconds, of one request to a process that reads results and data.
    """

    data: Path = dataclasses.field(default_factory=_data_folder)
    checkpoints: str = ""
    database: str = ""
    host: str = "127.0.0.1"
    port: int = 8700
    public_url: str = ""
    webhook_networks: str = ""
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_client_secret: str = ""
    oidc_groups_claim: str = "groups"
    oidc_admin_groups: str = ""
    oidc_user_groups: str = ""
    scheduler: str = ""
    allow_plain_scheduler: bool = False
    cpu: bool = False
    slots: int = _bounded(AT_LEAST_ONE, 1)
    roots: str = ""
    stores: str = ""
    upload_limit: int = _bounded(AT_LEAST_ONE, 64 * 2**30)
    max_rows: int = _bounded(OR_NO_LIMIT, 0)
    jobs_per_user: int = _bounded(AT_LEAST_ONE, 1_000)
    disk_per_user: int = _bounded(OR_NO_LIMIT, 0)
    keep_days: float = _bounded(OR_NO_LIMIT, 0.0)
    log: str = ""
    rate_per_token: float = _bounded(POSITIVE, 200.0)
    rate_per_address: float = _bounded(POSITIVE, 10.0)
    trusted_proxies: str = ""
    audit: str = ""
    max_workers: int = _bounded(AT_LEAST_ONE, default_factory=cores)
    max_seconds: float = _bounded(OR_NO_LIMIT, 86_400.0)
    max_memory: int = _bounded(OR_NO_LIMIT, default_factory=_memory_of_a_job)
    attempts: int = _bounded(AT_LEAST_ONE, 3)
    lost_after: float = _bounded(POSITIVE, 30.0)
    hung_after: float = _bounded(POSITIVE, 30.0)
    checkpoint_seconds: float = _bounded(POSITIVE, 60.0)
    hidden: str = ""
    reader_memory: int = _bounded(AT_LEAST_ONE, 2**30)
    reader_seconds: float = _bounded(POSITIVE, 60.0)

    @classmethod
    def read(cls, **given: Any) -> Settings:
        """Read the settings from the environment; arguments that are not None have priority."""
        values: dict[str, Any] = {}
        known = {PREFIX + field.name.upper() for field in dataclasses.fields(cls)}
        for name in sorted(os.environ):
            if name.startswith(PREFIX) and name.removesuffix("_FILE") not in known:
                raise InputError(f"{name} is not a setting of the service; use one of {', '.join(sorted(known))}.")
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
            # Check each value from a file separately: the message could quote the value, so it is replaced.
            for name in of_files:
                try:
                    cls(**{name: values[name]})
                except InputError:
                    raise InputError(
                        f"{_file_of(PREFIX + name.upper())} does not hold a valid value of {name}."
                    ) from None
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
                    remedy = f", or set {PREFIX}ALLOW_PLAIN_SCHEDULER=true"
                raise InputError(
                    f"scheduler={self.scheduler!r} should begin with tls://: {others} could run code on it; "
                    f"make certificates with mgclust certs{remedy}."
                )
        for field in dataclasses.fields(self):
            if (bound := field.metadata.get("bound")) and not bound.holds(value := getattr(self, field.name)):
                raise InputError(f"{field.name}={value} should be {bound.words}.")
        Proxies(self.trusted_proxies)
        Proxies(self.webhook_networks, "webhook_networks")
        public = urlsplit(self.public_url)
        if self.public_url and (public.scheme not in ("http", "https") or not public.netloc or public.path.strip("/")):
            raise InputError(f"public_url={self.public_url!r} should be like https://cluster.example, without a path.")
        if self.oidc_issuer:
            if not (self.public_url and self.oidc_client_id and self.oidc_client_secret):
                raise InputError("oidc_issuer needs public_url, oidc_client_id and oidc_client_secret; also set these.")
            if urlsplit(self.oidc_issuer).scheme != "https" and _is_elsewhere(self.oidc_issuer):
                raise InputError(f"oidc_issuer={self.oidc_issuer!r} should begin with https://.")
        if self.checkpoints and not os.path.isabs(self.checkpoints):
            raise InputError(f"checkpoints={self.checkpoints!r} should be the absolute path of a folder.")
        for root, folder in zip(filter(None, self.roots.split(os.pathsep)), self.folders, strict=True):
            if not os.path.isabs(root):
                raise InputError(f"root={root!r} should be the absolute path of a folder.")
            for name in ("data", "checkpoints"):
                own = Path(os.path.realpath(getattr(self, name) or self.data))
                if own.is_relative_to(folder) or folder.is_relative_to(own):
                    raise InputError(
                        f"root={root!r} should not overlap {name}={str(own)!r}, which holds files of other users."
                    )

    @property
    def audit_path(self) -> Path | None:
        """Path of the audit log; None means standard error."""
        return None if self.audit == "-" else Path(self.audit).absolute() if self.audit else self.data / "audit.log"

    @functools.cached_property
    def folders(self) -> list[Path]:
        """Folders of `roots`, resolved once, so that replacing a part of their paths later has no effect."""
        return [Path(os.path.realpath(root)) for root in self.roots.split(os.pathsep) if root]

    @property
    def concealed(self) -> list[str]:
        """Paths to hide from processes that read users' data, except paths that a request names."""
        from sqlalchemy import make_url  # imported here, because clients also make settings, but have no database

        url = make_url(self.database)
        database = url.database if url.get_backend_name() == "sqlite" else None
        files = [f"{database}{end}" for end in ("", "-wal", "-shm", "-journal")] if database else []
        mine = [os.path.expanduser(path) for path in (*SECRETS, *self.hidden.split(os.pathsep)) if path]
        kept = [self.checkpoints] if self.checkpoints else []
        kept += [os.path.abspath(self.stores)] if self.stores else []
        for log in [os.path.abspath(each) for each in (self.log, self.audit_path) if each]:
            kept += [log, *glob.glob(f"{glob.escape(log)}.*")]  # including rotated files
        return [str(self.data), *kept, *map(str, self.folders), *files, *mine]

    @property
    def is_secure(self) -> bool:
        """True if browsers reach the service over TLS."""
        return urlsplit(self.public_url).scheme == "https"

    @property
    def socket(self) -> Path:
        """Path of the socket at which the web process serves programs that can read the data folder."""
        return self.data / f"{self.port}.socket"

    def check_resources(self, resources: Mapping[str, Any]) -> None:
        """Check the resources that a job requests."""
        if self.cpu and resources.get("gpus"):
            raise InputError(
                f"gpus={resources['gpus']} are not available: the service uses no GPU; request workers instead."
            )
        workers = resources.get("workers") or 0
        if workers > self.max_workers and not self.scheduler:
            raise InputError(
                f"workers={workers} should be <= max_workers={self.max_workers}; request fewer, or ask the "
                f"administrator for a higher {PREFIX}MAX_WORKERS."
            )
        for name, limit in (("max_seconds", "max_seconds"), ("memory", "max_memory")):
            asked, most = resources.get(name) or 0, getattr(self, limit)
            if most and asked > most:
                raise InputError(
                    f"{name}={asked:.15g} should be <= {limit}={most:.15g} of the service; request less, or ask the "
                    f"administrator for a higher {PREFIX}{limit.upper()}."
                )

    def job_folder(self, id_: str) -> Path:
        """Return the folder of a job."""
        return self.data / "jobs" / id_

    def attempt_folder(self, id_: str, attempt: int) -> Path:
        """Return the folder of an attempt, which holds its log and its result."""
        return self.job_folder(id_) / f"attempt-{attempt}"

    def checkpoint_folder(self, id_: str) -> Path:
        """Return the folder of a job's checkpoints, with a subfolder per attempt. It is removed when the job ends."""
        return Path(self.checkpoints, id_) if self.checkpoints else self.job_folder(id_) / "checkpoint"

    def cache_folder(self, owner: str) -> Path:
        """Return the folder of the kernels that the jobs of a user have compiled."""
        return self.data / "cache" / "users" / owner

    def to_json(self) -> str:
        """Encode the settings as one line, for the standard input of another process."""
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def from_json(cls, line: str) -> Settings:
        """Decode a line that `to_json` encoded."""
        return cls(**parse_json(line))


def variable(name: str) -> str | None:
    """Return the value of an environment variable, or the content of the file that the variable ``..._FILE`` names.

    Raises
    ------
    InputError
        Both are set, or the file cannot be read. The message does not quote the content of the file.
    """
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return os.environ.get(name)
    if os.environ.get(name):
        raise InputError(f"{name} and {name}_FILE are both set; unset one of them.")
    try:
        # Open without blocking: a FIFO without a writer would block the start.
        with open(path, "rb", opener=lambda file, flags: os.open(file, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"{_file_of(name)} is not a regular file.")
            if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise InputError(f"{_file_of(name)} can be changed by every account; set its mode to 0600.")
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
