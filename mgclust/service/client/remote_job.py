"""A job of a service, for Python programs: its state, its log and its result."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from mgclust.base.errors import InputError, InsufficientMemoryError, MgclustError, RunCancelled, RunFailed
from mgclust.output.mlflow_log import ARTIFACTS, check_mlflow, log_to_mlflow
from mgclust.results.atomic_directory import atomic_directory, check_target
from mgclust.results.result import Result, load_result
from mgclust.service.client.connection import CHUNK_BYTES, Retries, RetryAfter, ServiceConnection, check
from mgclust.service.states import ENDED

__all__ = ["RemoteJob"]


class RemoteJob:
    """A job of a service, from `mgclust.Service.submit` or `mgclust.Service.job`.

    Parameters
    ----------
    service : mgclust.Service
        The service.
    info : dict
        All facts about the job that the service has sent; also an attribute.

    Attributes
    ----------
    id : str
        Identifier of the job.
    state : {"PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"}
        State of the job when the service last answered; `refresh` gets the current state.
    """

    def __init__(self, service: ServiceConnection, info: dict[str, Any]) -> None:
        self._service, self.info = service, info

    def __repr__(self) -> str:
        return f"<RemoteJob {self.id} {self.info['method']} {self.state}>"

    @property
    def id(self) -> str:
        """Identifier of the job."""
        return str(self.info["id"])

    @property
    def state(self) -> str:
        """State of the job when the service last answered."""
        return str(self.info["state"])

    def refresh(self) -> RemoteJob:
        """Get the current state of the job; return this object."""
        self.info = self._service.call("GET", f"/jobs/{self.id}")
        return self

    def watch(self) -> Iterator[dict[str, Any]]:
        """Yield `info` at each change until the job has ended.

        If the connection is lost, or the service is away, this reconnects for 10 minutes. The job continues meanwhile.

        Raises
        ------
        RunFailed
            The service does not answer for 10 minutes. Its job is not lost.
        """
        retries = Retries(self._service, self.id)
        while True:
            try:
                with self._service.stream(f"/jobs/{self.id}/events") as answer:
                    check(answer)
                    for line in answer.iter_lines():
                        if line.startswith("data: "):
                            retries = Retries(self._service, self.id)
                            self.info = self.info | self._service.parse(line[6:])  # events leave out the job's request
                            yield self.info
                if self.state in ENDED:
                    return
            except (httpx.TransportError, RetryAfter) as error:
                retries.wait(error)

    def wait(self, report: Callable[[dict[str, Any]], None] | None = None) -> RemoteJob:
        """Wait until the job has ended. If the service is away meanwhile, the job survives; see `watch`.

        Parameters
        ----------
        report : callable, optional
            Function that is called with the facts about the job at each change.

        Returns
        -------
        RemoteJob
            This object.

        Raises
        ------
        InputError, InsufficientMemoryError, RunCancelled, RunFailed
            The job has failed or was cancelled; the type depends on the cause.
        """
        for info in self.watch():
            if report is not None:
                report(info)
        if self.state == "SUCCEEDED":
            return self
        if self.state == "CANCELLED":
            raise RunCancelled(f"job {self.id} was cancelled.")
        kinds: dict[str, type[MgclustError]] = {"input": InputError, "memory": InsufficientMemoryError}
        raise kinds.get(self.info["fault"] or "", RunFailed)(self.info["error"])

    def cancel(self) -> RemoteJob:
        """Cancel the job; return this object."""
        self.info = self._service.call("POST", f"/jobs/{self.id}/cancel")
        return self

    def retry(self) -> RemoteJob:
        """Queue a failed or cancelled job again, or the copy of its result if copying has failed.

        Returns
        -------
        RemoteJob
            This object.
        """
        self.info = self._service.call("POST", f"/jobs/{self.id}/retry")
        return self

    def delete(self) -> RemoteJob:
        """Delete the job with its result and log; return this object. The job must have ended.

        Raises
        ------
        InputError
            The job waits or runs, or does not exist any more.
        """
        self.info = self._service.call("DELETE", f"/jobs/{self.id}")
        return self

    def share(self, days: float = 7.0) -> dict[str, Any]:
        """Create a link with which anybody can read the result of this job, but nothing else.

        Whoever opens the link sees the method, scores, warnings, report and files, with the parameters and the names of
        the data files. The name, tags, user and log of the job stay private.

        Parameters
        ----------
        days : float, default=7.0
            Days until the link expires, at most 365.

        Returns
        -------
        dict
            ``id`` of the link, its ``url``, which cannot be shown again, and when it ``expires`` (seconds since 1970).
        """
        made = dict(self._service.call("POST", f"/jobs/{self.id}/links", json={"days": days}))
        return {"id": made["id"], "url": f"{self._service.pages_url}{made['path']}", "expires": made["expires"]}

    def links(self) -> list[dict[str, Any]]:
        """List the valid links to the result of this job: ``id``, ``user``, ``created``, ``expires``, ``used``."""
        return list(self._service.call("GET", f"/jobs/{self.id}/links"))

    def revoke_link(self, id_: str) -> None:
        """Revoke a link to the result of this job.

        Parameters
        ----------
        id_ : str
            Id of the link, as `links` lists it.
        """
        if not re.fullmatch("[0-9a-f]{16}", id_):
            raise InputError(
                f"id={id_[:80]!r} should be 16 characters of 0-9 and a-f; 'mgclust share ID --list' lists ids."
            )
        self._service.call("DELETE", f"/jobs/{self.id}/links/{id_}")

    def log(self) -> str:
        """Return the logs of all attempts of the job."""
        retries = Retries(self._service)
        while True:
            try:
                with self._service.stream(f"/jobs/{self.id}/log") as answer:
                    return str(check(answer).read().decode("utf-8", "replace"))
            except (httpx.TransportError, RetryAfter) as error:
                retries.wait(error)

    def download(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Fetch the result directory. The directory appears only when it is complete.

        Parameters
        ----------
        path : path-like
            Directory to write.
        overwrite : bool, default=False
            Whether to replace an existing result.

        Returns
        -------
        pathlib.Path
            The directory.

        Raises
        ------
        InputError
            The job has no result, or the directory exists and `overwrite` is False.
        """
        target = Path(path)
        check_target(target, overwrite)
        with atomic_directory(target, overwrite) as directory:
            for entry in self._service.call("GET", f"/jobs/{self.id}/files"):
                self._fetch(entry["name"], entry["size"], directory)
        return target

    def result(self, path: str | os.PathLike[str]) -> Result:
        """Fetch the result directory and load it: `download`, then `mgclust.load_result`.

        Parameters
        ----------
        path : path-like
            Directory to write, which must not exist.

        Returns
        -------
        mgclust.Result
        """
        return load_result(self.download(path))

    def log_to_mlflow(self, uri: str) -> str:
        """Log the result to a tracking server of MLflow, from this process; see `mgclust.log_to_mlflow`.

        Only ``result.json`` and ``report.html`` are fetched. The run has the name of the job.

        Parameters
        ----------
        uri : str
            Address of the tracking server, such as ``http://host:5000``.

        Returns
        -------
        str
            Id of the run of MLflow.

        Raises
        ------
        InputError
            The job has no result, the client of MLflow is not installed, or the address is invalid.
        RunFailed
            The tracking server did not store the run. The service keeps the result.
        """
        check_mlflow(uri)
        with tempfile.TemporaryDirectory() as folder:
            for entry in self._service.call("GET", f"/jobs/{self.id}/files"):
                if entry["name"] in ARTIFACTS:
                    self._fetch(entry["name"], entry["size"], Path(folder))
            return log_to_mlflow(folder, uri, name=self.info.get("name") or None, tags={"mgclust.job": self.id})

    def _fetch(self, name: str, size: int, directory: Path) -> None:
        path = directory / name
        if not path.resolve().is_relative_to(directory.resolve()):
            raise RunFailed(f"the service names a file outside the result: {name!r}.")
        path.parent.mkdir(parents=True, exist_ok=True)
        retries = Retries(self._service)
        with open(path, "wb") as file:
            while file.tell() < size or not size:
                try:
                    left = f"bytes={file.tell()}-"  # resume where the connection broke
                    with self._service.stream(f"/jobs/{self.id}/files/{name}", Range=left) as answer:
                        if size:
                            for part in check(answer).iter_bytes(CHUNK_BYTES):
                                file.write(part)
                    if not size:
                        return
                except (httpx.TransportError, RetryAfter) as error:
                    retries.wait(error)
