"""Client of a job service for Python programs: ``mgclust.Service(url, token)``.

::

    service = Service("https://cluster.example:8700", token)
    job = service.submit("density-peaks", "points.npy", n_clusters=15)
    job.wait()
    result = job.result("out")
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mgclust.base.errors import InputError, MgclustError
from mgclust.data.subjects import subject_of
from mgclust.service.connection import CHUNK_BYTES, ServiceConnection
from mgclust.service.in_memory import array_content, file_of
from mgclust.service.remote_job import RemoteJob
from mgclust.service.remote_sweep import RemoteSweep

__all__ = ["Service"]

STORE_SECONDS = 3600.0  # time limit of the service's reading of an object
MIN_ASKED_BYTES = 1 << 20  # smaller files are sent without asking whether the service has them


class Service(ServiceConnection):
    """Client of a job service, to submit jobs, disconnect, and fetch the results later.

    Parameters
    ----------
    url : str, optional
        URL of the service. By default the value of ``MGCLUST_URL``, else the URL of a service on this machine.
    token : str, optional
        Token of the user. By default the value of ``MGCLUST_TOKEN``, else the content of the file that
        ``MGCLUST_TOKEN_FILE`` names, else the token in the data folder of a service of this account on this machine.
        The token in the data folder is sent to no other service.

    Raises
    ------
    InputError
        The URL or the token is invalid.
    """

    def submit(
        self,
        method: str,
        sources: Any,
        *,
        mask: str | os.PathLike[str] | None = None,
        confounds: Sequence[str | os.PathLike[str]] | None = None,
        surfaces: Sequence[str | os.PathLike[str]] | None = None,
        atlas: Sequence[str | os.PathLike[str]] | None = None,
        options: dict[str, Any] | None = None,
        resources: dict[str, float] | None = None,
        priority: int = 0,
        report: bool = True,
        remote: bool = False,
        name: str | None = None,
        tags: Sequence[str] = (),
        **parameters: Any,
    ) -> RemoteJob:
        """Submit a job.

        Parameters
        ----------
        method : str
            Name of the method on the command line, e.g. "density-peaks".
        sources : path, sequence of paths, array or table
            Local files to cluster, which are uploaded; or, with `remote`, files on the service's machine. An array
            (NumPy, Dask, or a sparse matrix of a graph) or a table (pandas, polars, pyarrow) is uploaded as a file.
            The service itself reads a path ``"store:NAME/PATH"`` from a store that the administrator has named.
        mask : path, optional
            Mask of a volume; see `mgclust.open_dataset`.
        confounds : sequence of paths, optional
            Table of confounds of each run of a BOLD series; see `mgclust.open_dataset`.
        surfaces : sequence of paths, optional
            Surfaces of a CIFTI file; see `mgclust.open_dataset`.
        atlas : sequence of paths, optional
            Files of labels with which the clusters are compared, and the table of the names of the labels; see
            `mgclust.open_dataset`.
        options : dict, optional
            Options for reading the files: ``columns``, ``standardize``, ``detrend``, ``n_nodes`` and others. Options
            that name columns are given as text, as on the command line: for example, ``{"weight": "none"}`` for a graph
            without weights.
        resources : dict, optional
            Resources and limits of the job:

            - ``gpus`` or ``workers``: number of GPUs or workers to use on the service's machine or cluster. By default,
              one GPU of the machine, or all GPUs or workers of a cluster.
            - ``max_seconds``: time limit of an attempt, in seconds.
            - ``memory``: memory limit of all processes of the job on the service's machine, in bytes.
        priority : int, default=0
            From -100 to 100. Jobs of higher priority run first among your own jobs. With a priority above 0
            (administrators only), a job runs before all other jobs.
        report : bool, default=True
            Whether the result has pictures and ``report.html``.
        remote : bool, default=False
            Whether the paths are files on the service's machine. They must be below a folder that the service may read.
        name : str, optional
            Name of the job in lists.
        tags : sequence of str
            Tags of the job in lists, without spaces, commas and ``#``.
        **parameters : object
            Parameters of the method. An array, or the `pathlib.Path` of a file with an array, is uploaded. A
            `mgclust.service.remote_job.RemoteJob` stands for the labels of its result.

        Returns
        -------
        RemoteJob
            The job, which waits in the queue.

        Raises
        ------
        InputError
            A file does not exist, or the service rejects the job.
        RunFailed
            The service does not answer.
        """
        more = {"mask": mask, "confounds": confounds, "surfaces": surfaces, "atlas": atlas}
        record = {
            "method": method, "options": options or {}, "resources": resources or {}, "priority": priority,
            "report": report, **({"name": name} if name else {}), **({"tags": list(tags)} if tags else {}),
        }  # fmt: skip
        return RemoteJob(self, self._send("/jobs", record, sources, more, parameters, remote))

    def sweep(
        self, method: str, sources: Any, vary: Mapping[str, Sequence[Any]], *, remote: bool = False, **given: Any
    ) -> RemoteSweep:
        """Submit a job for each combination of values of some parameters: all jobs, or none.

        Parameters
        ----------
        method, sources, remote
            As in `submit`.
        vary : dict
            Values of each parameter that varies, for example ``{"dc_fraction": [0.01, 0.02]}``. A sweep has at most 100
            jobs.
        **given : object
            Other arguments of `submit`, for all jobs.

        Returns
        -------
        mgclust.service.remote_sweep.RemoteSweep

        Raises
        ------
        InputError
            A file does not exist, or the service rejects one of the jobs.
        """
        more = {name: given.pop(name, None) for name in ("mask", "confounds", "surfaces", "atlas")}
        plain = ("options", "resources", "priority", "report", "name", "tags")
        record = {name: value for name in plain if (value := given.pop(name, None)) is not None}
        values = {name: [each.item() if hasattr(each, "item") else each for each in vary[name]] for name in vary}
        record |= {"method": method, "vary": values}
        return RemoteSweep(self, self._send("/sweeps", record, sources, more, given, remote))

    def find_sweep(self, id_: str) -> RemoteSweep:
        """Get a sweep.

        Parameters
        ----------
        id_ : str
            Id of the sweep, which is ``info["sweep"]`` of its jobs.

        Returns
        -------
        mgclust.service.remote_sweep.RemoteSweep
        """
        return RemoteSweep(self, self.call("GET", f"/sweeps/{_check_id(id_, 'mgclust jobs --json')}"))

    def _send(
        self, path: str, record: dict[str, Any], sources: Any, more: dict[str, Any], parameters: dict[str, Any],
        remote: bool,
    ) -> dict[str, Any]:  # fmt: skip
        """Upload the files of a request, and send the request; a rejected request leaves no new upload."""
        made: list[str] = []  # ids of new uploads
        file = file_of(sources)
        paths = [] if file else [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)

        def source(path: str | os.PathLike[str]) -> dict[str, str]:
            if isinstance(path, str) and path.startswith("store:"):
                return {"upload": self._read_stored(path, made), "name": path.rpartition("/")[2][:255]}
            read = {"path": os.fspath(path)} if remote else {"upload": self._upload(path, made)}
            name = Path(path).name if remote else _with_subject(Path(path))
            return read | {"name": "".join(c if c.isprintable() else "_" for c in name)[:255]}

        def content(name: str, data: bytes) -> dict[str, str]:
            return {"upload": self._put(name, lambda: iter([data]), made), "name": name}

        def plain(name: str, value: Any) -> Any:
            if isinstance(value, RemoteJob):
                return {"job": value.id, "name": f"labels of job {value.id[:8]}"}
            if isinstance(value, os.PathLike):
                return source(value)
            if not hasattr(value, "__array__") or np.ndim(value) == 0:
                return value
            return content(f"{name}.npy", array_content(value, name))

        try:
            request = record | {
                "sources": [content(*file)] if file else [source(path) for path in paths],
                "parameters": {name: plain(name, value) for name, value in parameters.items()},
                "key": secrets.token_hex(16),
            }
            for name, several in more.items():
                if several is not None:
                    request[name] = source(several) if name == "mask" else [source(path) for path in several]
            return dict(self.call("POST", path, json=request))
        except InputError:
            for id_ in made:
                with contextlib.suppress(MgclustError):
                    self.delete_upload(id_)
            raise

    def upload(self, path: str | os.PathLike[str]) -> str:
        """Upload a file.

        If only a folder of a BOLD file states the subject, the name of the upload begins with the subject:
        ``sub-01/bold.nii.gz`` becomes ``sub-01_bold.nii.gz``.

        Parameters
        ----------
        path : path-like
            Path of a file; folders cannot be uploaded.

        Returns
        -------
        str
            Id of the upload.

        Raises
        ------
        InputError
            The path is not a file, or the service rejects it.
        """
        return self._upload(path, [])

    def _upload(self, path: str | os.PathLike[str], made: list[str]) -> str:
        """Upload a file, and append the id of a new upload to `made`."""
        path = Path(path)
        if not path.is_file():
            raise InputError(
                f"{path} is not a file; put a folder (zarr) where the service may read it, and give remote=True."
            )

        def parts() -> Iterator[bytes]:
            with open(path, "rb") as file:
                while part := file.read(CHUNK_BYTES):
                    yield part

        return self._put(_with_subject(path), parts, made)

    def _put(self, name: str, parts: Callable[[], Iterator[bytes]], made: list[str]) -> str:
        """Upload the parts of a file, unless the service has a file with this name and content."""
        name, digest, size = _safe_name(name), hashlib.sha256(), 0
        for part in parts():
            digest.update(part)
            size += len(part)
        if size >= MIN_ASKED_BYTES:
            known = []
            with contextlib.suppress(InputError):  # the token may not read
                known = self.call("GET", "/uploads", params={"sha256": digest.hexdigest(), "name": name})
            if known:
                return str(known[0]["id"])
        answer = self.call("PUT", f"/uploads/{name}", parts=parts)
        if answer.get("new"):
            made.append(str(answer["id"]))
        return str(answer["id"])

    def _read_stored(self, path: str, made: list[str]) -> str:
        """Let the service read ``store:NAME/PATH``, and return the id of the upload."""
        name, slash, rest = path.removeprefix("store:").partition("/")
        if not (name and slash and rest):
            raise InputError(f"source={path[:200]!r} should be store:NAME/PATH.")
        answer = self.call("POST", "/uploads", json={"store": name, "path": rest}, timeout=STORE_SECONDS)
        if answer.get("new"):
            made.append(str(answer["id"]))
        return str(answer["id"])

    def uploads(self, limit: int = 50) -> list[dict[str, Any]]:
        """List the latest uploads.

        Parameters
        ----------
        limit : int, default=50
            Largest number of uploads to list.

        Returns
        -------
        list of dict
            The uploads, the latest first. The keys are ``id``, ``owner``, ``name``, ``size`` (bytes), ``sha256`` and
            ``created`` (seconds since 1970).
        """
        return list(self.call("GET", "/uploads", params={"limit": limit}))

    def delete_upload(self, id_: str) -> dict[str, Any]:
        """Delete an upload.

        Parameters
        ----------
        id_ : str
            Id of the upload.

        Returns
        -------
        dict
            The deleted upload, as in `uploads`.

        Raises
        ------
        InputError
            The upload does not exist, or a waiting or running job needs it.
        """
        return dict(self.call("DELETE", f"/uploads/{_check_id(id_, 'mgclust uploads')}"))

    def users(self) -> list[dict[str, Any]]:
        """List ``name``, ``role`` and the number of valid ``tokens`` of all users (administrators only)."""
        return list(self.call("GET", "/users"))

    def create_user(self, name: str, role: str = "user") -> dict[str, Any]:
        """Create a user (administrators only).

        Parameters
        ----------
        name : str
            Name of the user: up to 64 characters of a-z, 0-9 and ``. _ @ -``, beginning with a letter or digit.
        role : {"user", "admin"}
            Role of the user. An admin sees the jobs of all users, and creates users and tokens.

        Returns
        -------
        dict
            The new user, as in `users`.
        """
        return dict(self.call("POST", "/users", json={"name": name, "role": role}))

    def tokens(self, user: str | None = None) -> list[dict[str, Any]]:
        """List a user's tokens, without their secrets.

        Parameters
        ----------
        user : str, optional
            Name of the user; by default yourself. Administrators may give any user.

        Returns
        -------
        list of dict
            The tokens. The keys are ``id``, ``user``, ``scopes``, and the times ``created``, ``expires``, ``revoked``
            and ``used`` (seconds since 1970, or None).
        """
        if user is not None and not re.fullmatch("[a-z0-9._@-]+", user):
            raise InputError(f"user={user[:80]!r} should be a user's name; 'mgclust user list' lists all names.")
        return list(self.call("GET", "/tokens" if user is None else f"/tokens/{user}"))

    def create_token(
        self, user: str | None = None, scopes: Sequence[str] | None = None, days: float | None = 365.0
    ) -> dict[str, Any]:
        """Create a token. Keep it: it cannot be shown again.

        Parameters
        ----------
        user : str, optional
            Name of the user; by default yourself. Administrators may give any user.
        scopes : sequence of str, optional
            Scopes of the token: some of "read", "submit" and "admin". By default all scopes of the user's role.
        days : float or None
            Days until the token expires. With None (administrators only), it does not expire.

        Returns
        -------
        dict
            The new token, with the keys ``id``, ``user``, ``token`` (the secret) and ``expires`` (seconds since 1970,
            or None).
        """
        given = {"user": user, "days": days} | ({} if scopes is None else {"scopes": list(scopes)})
        return dict(self.call("POST", "/tokens", json=given))

    def revoke_token(self, id_: str) -> None:
        """Revoke a token.

        Parameters
        ----------
        id_ : str
            Id of the token, as `tokens` lists it.
        """
        if not re.fullmatch("[0-9a-f]{16}", id_):
            raise InputError(f"id={id_[:80]!r} should be 16 characters of 0-9 and a-f; 'mgclust token list' lists ids.")
        self.call("DELETE", f"/tokens/{id_}")

    def whoami(self) -> dict[str, Any]:
        """Return the ``user``, ``role`` and ``scopes`` of the token, its id (``token``) and when it ``expires``."""
        return dict(self.call("GET", "/session"))

    def sign_in_url(self) -> str:
        """Create an address that signs a browser in as the user of this token, once and within 10 minutes."""
        return f"{self.pages_url}{self.call('POST', '/session/codes')['path']}"

    def add_webhook(self, url: str) -> dict[str, Any]:
        """Add an address that receives a signed message at the end of each of your jobs.

        Parameters
        ----------
        url : str
            Public address, ``https://...``.

        Returns
        -------
        dict
            ``id``, ``url``, and ``secret``, the key of the signatures, which cannot be shown again.
        """
        return dict(self.call("POST", "/webhooks", json={"url": url}))

    def webhooks(self) -> list[dict[str, Any]]:
        """List your webhooks: ``id``, ``url``, ``created``, and the outcome of the ``last`` message."""
        return list(self.call("GET", "/webhooks"))

    def delete_webhook(self, id_: str) -> None:
        """Delete a webhook.

        Parameters
        ----------
        id_ : str
            Id of the webhook, as `webhooks` lists it.
        """
        if not re.fullmatch("[0-9a-f]{16}", id_):
            raise InputError(
                f"id={id_[:80]!r} should be 16 characters of 0-9 and a-f; 'mgclust webhook list' lists ids."
            )
        self.call("DELETE", f"/webhooks/{id_}")

    def rotate_local_token(self) -> dict[str, Any]:
        """Replace the token in the data folder of a service on this machine by a new token, and revoke it.

        Returns
        -------
        dict
            ``id`` of the new token, id of the ``revoked`` token, and ``path`` of the file.

        Raises
        ------
        InputError
            The token of this connection does not come from the data folder.
        """
        path = self._token_file
        if path is None or not path.exists():
            raise InputError(
                "only the token in the data folder of a service on this machine is replaced, and this connection uses "
                "another token; create a token with 'mgclust token create', then revoke the old one."
            )
        own = self.whoami()
        days = None if own["expires"] is None else 365.0
        made = self.create_token(scopes=own["scopes"], days=days)
        partial = path.with_name("token.partial")
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{made['token']}\n")
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        self.revoke_token(own["token"])
        self._http.headers["Authorization"] = f"Bearer {made['token']}"
        return {"id": made["id"], "revoked": own["token"], "path": str(path)}

    def job(self, id_: str) -> RemoteJob:
        """Get a job.

        Parameters
        ----------
        id_ : str
            Id of the job, or its first characters (at least 4) if no other job that you see begins with them.

        Returns
        -------
        mgclust.service.remote_job.RemoteJob

        Raises
        ------
        InputError
            The job does not exist, several jobs begin with `id_`, or `id_` is not an id.
        """
        return RemoteJob(self, self.call("GET", f"/jobs/{self._whole_id(id_)}"))

    def _whole_id(self, id_: str) -> str:
        if len(id_) == 32 or not re.fullmatch("[0-9a-f]{4,31}", id_):
            return _check_id(id_, "mgclust jobs")
        ids = self.call("GET", f"/job-ids/{id_}")
        if not ids:
            raise InputError(f"id={id_!r} begins no job's id; 'mgclust jobs' lists ids.")
        if len(ids) > 1:
            raise InputError(f"id={id_!r} begins several ids: {', '.join(ids)}; give more characters.")
        return str(ids[0])

    def jobs(
        self,
        state: str | None = None,
        limit: int = 50,
        *,
        search: str | None = None,
        method: str | None = None,
        tag: str | None = None,
        sort: str | None = None,
    ) -> list[RemoteJob]:
        """List the latest jobs. Their requests are left out; `mgclust.service.remote_job.RemoteJob.refresh` gets them.

        Parameters
        ----------
        state : str, optional
            List only jobs in this state. By default, jobs in any state.
        limit : int, default=50
            Largest number of jobs to list.
        search : str, optional
            Words that must occur in a job's name, ``#tags``, id, method, files or parameters.
        method, tag : str, optional
            List only jobs of this method, or with this tag.
        sort : str, optional
            Order by "name", "method", "state", "seconds" or "score:NAME" instead of the time; "-" before it reverses
            the order. The order is made among the newest 1,000 jobs that match.

        Returns
        -------
        list of mgclust.service.remote_job.RemoteJob
            The jobs, the latest first.
        """
        given = {"state": state, "search": search, "method": method, "tag": tag, "sort": sort}
        wanted: dict[str, Any] = {name: value for name, value in given.items() if value}
        found: list[dict[str, Any]] = []
        while len(found) < limit:  # a page may have fewer jobs than its limit
            last: dict[str, Any] = {}
            if found:
                last = {"skip": len(found)} if sort else {"before": f"{found[-1]['created']!r},{found[-1]['id']}"}
            page = self.call("GET", "/jobs", params=wanted | last | {"limit": min(limit - len(found), 1000)})
            if not page:
                break
            found += page
        return [RemoteJob(self, job) for job in found]

    def rename(self, id_: str, name: str | None = None, tags: Sequence[str] | None = None) -> RemoteJob:
        """Change the name and the tags of a job.

        Parameters
        ----------
        id_ : str
            Id of the job, as in `job`.
        name : str, optional
            New name; "" removes the name. By default, the name stays.
        tags : sequence of str, optional
            New tags. By default, the tags stay.
        """
        changes: dict[str, Any] = {} if name is None else {"name": name}
        changes |= {} if tags is None else {"tags": list(tags)}
        return RemoteJob(self, self.call("PATCH", f"/jobs/{self._whole_id(id_)}", json=changes))

    def compare(self, ids: Sequence[str]) -> dict[str, Any]:
        """Compare the labels of 2 to 10 jobs.

        Parameters
        ----------
        ids : sequence of str
            Ids of the jobs, as in `job`.

        Returns
        -------
        dict
            ``ari``: the adjusted Rand index of each pair of jobs, as a list of rows, or None for a pair without one;
            ``notes``: the reasons, and doubts that the rows are the same.
        """
        whole = [self._whole_id(id_) for id_ in ids]
        return dict(self.call("POST", "/jobs/compare", json={"ids": whole}))


def _check_id(id_: str, lists: str) -> str:
    if not re.fullmatch("[0-9a-f]{32}", id_):
        raise InputError(f"id={id_[:80]!r} should be 32 characters of 0-9 and a-f; '{lists}' lists ids.")
    return id_


def _with_subject(path: Path) -> str:
    """Return the name of a file; the subject comes first if only a folder or link of a BOLD series states it."""
    if path.name.lower().endswith((".nii", ".nii.gz")) and subject_of(path.name) is None:
        subject = subject_of(os.path.abspath(path)) or subject_of(os.path.realpath(path))
        return path.name if subject is None else f"{subject}_{path.name}"
    return path.name


def _safe_name(name: str) -> str:
    """Return a file name that the service accepts, with the same suffix."""
    safe = re.sub("[^A-Za-z0-9._-]+", "_", name)[-190:]
    return safe if safe[:1].isalnum() else f"data{safe}"
