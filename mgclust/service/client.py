"""A job service from Python: ``mgclust.Service(url, token)``.

service = Service("https://cluster.example:8700", token)
job = service.submit("density-peaks", "points.npy", n_clusters=15)
job.wait()
result = job.result("out")
"""

from __future__ import annotations

import io
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.service.connection import CHUNK_BYTES, ServiceConnection
from mgclust.service.remote_job import RemoteJob

__all__ = ["Service"]


class Service(ServiceConnection):
    """A job service.

    Parameters
    ----------
    url : str, optional
        By default that of ``MGCLUST_URL``, else of a service on this machine.
    token : str, optional
        By default that of ``MGCLUST_TOKEN``, or of the file that ``MGCLUST_TOKEN_FILE`` names, else the one that a
        service of this account on this machine has left, which is sent to no other service.

    Raises
    ------
    InputError
        An invalid URL or token.
    """

    def submit(
        self,
        method: str,
        sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        mask: str | os.PathLike[str] | None = None,
        options: dict[str, Any] | None = None,
        resources: dict[str, float] | None = None,
        priority: int = 0,
        report: bool = True,
        remote: bool = False,
        **parameters: Any,
    ) -> RemoteJob:
        """Queue a job.

        Parameters
        ----------
        method : str
            The name on the command line.
        sources : path or sequence of paths
            Local files, which are uploaded.
        mask : path, optional
            Of a volume.
        options : dict, optional
            Options of reading: ``columns``, ``standardize``, ``detrend``, ``n_nodes``, ...; those of columns are
            text as on the command line, such as ``{"weight": "none"}`` for a graph without weights.
        resources : dict, optional
            ``gpus`` or ``workers``: their number on the service's machine or cluster; by default one of the
            machine's GPUs, or all of a cluster.
            ``max_seconds``: time limit of an attempt; ``memory``: bytes of all its processes on the service's machine.
        priority : int
            From -100 to 100; higher comes first among your own jobs. Above 0, for administrators, a job comes before
            all others.
        report : bool
            Whether the result has pictures and ``report.html``.
        remote : bool
            The paths are of files on the service's machine, below a folder that it may read.
        **parameters : object
            Of the method. An array, or the `pathlib.Path` of its file, is uploaded.

        Returns
        -------
        RemoteJob
        """
        paths = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)

        def source(path: str | os.PathLike[str]) -> dict[str, str]:
            read = {"path": os.fspath(path)} if remote else {"upload": self.upload(path)}
            return read | {"name": "".join(c if c.isprintable() else "_" for c in Path(path).name)[:255]}

        def plain(name: str, value: Any) -> Any:
            if isinstance(value, os.PathLike):
                return source(value)
            if not hasattr(value, "__array__") or np.ndim(value) == 0:
                return value
            file = io.BytesIO()
            np.save(file, np.asarray(value), allow_pickle=False)
            answer = self.call("PUT", f"/uploads/{_safe_name(f'{name}.npy')}", parts=lambda: iter([file.getvalue()]))
            return {"upload": str(answer["id"]), "name": f"{name}.npy"}

        request: dict[str, Any] = {
            "method": method, "sources": [source(path) for path in paths],
            "parameters": {name: plain(name, value) for name, value in parameters.items()},
            "options": options or {}, "resources": resources or {}, "priority": priority, "report": report,
            "key": secrets.token_hex(16),
        }  # fmt: skip
        if mask is not None:
            request["mask"] = source(mask)
        return RemoteJob(self, self.call("POST", "/jobs", json=request))

    def upload(self, path: str | os.PathLike[str]) -> str:
        """Upload a file.

        Parameters
        ----------
        path : path-like
            A file, no folder.

        Returns
        -------
        str
            Its id.

        Raises
        ------
        InputError
            It is not a file, or the service rejects it.
        """
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path} is not a file; a folder (zarr) is read from where the service may read it.")

        def parts() -> Iterator[bytes]:
            with open(path, "rb") as file:
                while part := file.read(CHUNK_BYTES):
                    yield part

        answer = self.call("PUT", f"/uploads/{_safe_name(path.name)}", parts=parts)
        return str(answer["id"])

    def uploads(self, limit: int = 50) -> list[dict[str, Any]]:
        """List the latest uploads: ``id``, ``owner``, ``name``, ``size`` in bytes, ``sha256``, ``created``.

        Parameters
        ----------
        limit : int
            Uploads to list at most.

        Returns
        -------
        list of dict
        """
        return list(self.call("GET", "/uploads", params={"limit": limit}))

    def delete_upload(self, id_: str) -> dict[str, Any]:
        """Delete an upload and return what it was.

        Parameters
        ----------
        id_ : str
            Id of the upload.

        Returns
        -------
        dict
            As in `uploads`.

        Raises
        ------
        InputError
            There is no such upload, or a waiting or running job needs it.
        """
        return dict(self.call("DELETE", f"/uploads/{_check_id(id_, 'mgclust uploads')}"))

    def users(self) -> list[dict[str, Any]]:
        """List all users: ``name``, ``role``, and the number of valid ``tokens``; for administrators."""
        return list(self.call("GET", "/users"))

    def create_user(self, name: str, role: str = "user") -> dict[str, Any]:
        """Create a user; for administrators.

        Parameters
        ----------
        name : str
        role : {"user", "admin"}

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
            By default yourself; for administrators, any user.

        Returns
        -------
        list of dict
        """
        if user is not None and not re.fullmatch("[a-z0-9._@-]+", user):
            raise InputError(f"user={user[:80]!r} should be a user's name; 'mgclust user list' lists those there are.")
        return list(self.call("GET", "/tokens" if user is None else f"/tokens/{user}"))

    def create_token(
        self, user: str | None = None, scopes: Sequence[str] | None = None, days: float | None = 365.0
    ) -> dict[str, Any]:
        """Create a token, which cannot be shown again.

        Parameters
        ----------
        user : str, optional
            By default yourself; for administrators, any user.
        scopes : sequence of str, optional
            Some of ``read``, ``submit`` and ``admin``; by default all of the user's role.
        days : float or None
            Days until it expires; None, for administrators: never.

        Returns
        -------
        dict
            ``id``, ``user`` and ``token``.
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
            raise InputError(
                f"id={id_[:80]!r} should be 16 of 0-9 and a-f; 'mgclust token list' lists those there are."
            )
        self.call("DELETE", f"/tokens/{id_}")

    def job(self, id_: str) -> RemoteJob:
        """Get a job.

        Parameters
        ----------
        id_ : str
            Id of the job.

        Returns
        -------
        mgclust.service.remote_job.RemoteJob

        Raises
        ------
        InputError
            There is no such job, or `id_` is not an id.
        """
        return RemoteJob(self, self.call("GET", f"/jobs/{_check_id(id_, 'mgclust jobs')}"))

    def jobs(self, state: str | None = None, limit: int = 50) -> list[RemoteJob]:
        """List the latest jobs, without their requests, which `mgclust.service.remote_job.RemoteJob.refresh` gets.

        Parameters
        ----------
        state : str, optional
            Only jobs in this state; by default, in any.
        limit : int
            Jobs to list at most.

        Returns
        -------
        list of mgclust.service.remote_job.RemoteJob
            The latest first.
        """
        wanted: dict[str, Any] = {"state": state} if state else {}
        found: list[dict[str, Any]] = []
        while len(found) < limit:  # a page may end early
            last = {"before": f"{found[-1]['created']!r},{found[-1]['id']}"} if found else {}
            page = self.call("GET", "/jobs", params=wanted | last | {"limit": min(limit - len(found), 1000)})
            if not page:
                break
            found += page
        return [RemoteJob(self, job) for job in found]


def _check_id(id_: str, lists: str) -> str:
    if not re.fullmatch("[0-9a-f]{32}", id_):
        raise InputError(f"id={id_[:80]!r} should be 32 of 0-9 and a-f; '{lists}' lists those there are.")
    return id_


def _safe_name(name: str) -> str:
    """A file name of characters that the service accepts, with the same suffix."""
    safe = re.sub("[^A-Za-z0-9._-]+", "_", name)[-190:]
    return safe if safe[:1].isalnum() else f"data{safe}"
