"""A job of a service from Python: its state, its log and its result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from mgclust.base.errors import InputError, InsufficientMemoryError, MgclustError, RunCancelled, RunFailed
from mgclust.results.atomic_directory import atomic_directory, check_target
from mgclust.results.result import Result, load_result
from mgclust.service.connection import CHUNK_BYTES, Retries, RetryAfter, ServiceConnection, check
from mgclust.service.states import ENDED

__all__ = ["RemoteJob"]


class RemoteJob:
    """A job of a service.

    Parameters
    ----------
    service : mgclust.Service
    info : dict
        All that the service answers, kept as an attribute.

    Attributes
    ----------
    id : str
    state : {"PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"}
        As of the last answer; `refresh` asks again.
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
        """State as of the last answer."""
        return str(self.info["state"])

    def refresh(self) -> RemoteJob:
        """Get its current state, and return this job."""
        self.info = self._service.call("GET", f"/jobs/{self.id}")
        return self

    def watch(self) -> Iterator[dict[str, Any]]:
        """Yield `info` at each change until the job has ended; reconnect if the connection is lost."""
        retries = Retries(self._service)
        while True:
            try:
                with self._service.stream(f"/jobs/{self.id}/events") as answer:
                    check(answer)
                    for line in answer.iter_lines():
                        if line.startswith("data: "):
                            retries = Retries(self._service)
                            self.info = self.info | self._service.parse(line[6:])  # events have no request
                            yield self.info
                if self.state in ENDED:
                    return
            except (httpx.TransportError, RetryAfter) as error:
                retries.wait(error)

    def wait(self) -> RemoteJob:
        """Wait until it has ended, and return this job.

        Raises
        ------
        InputError, InsufficientMemoryError, RunCancelled, RunFailed
            The error of the job.
        """
        for _ in self.watch():
            pass
        if self.state == "SUCCEEDED":
            return self
        if self.state == "CANCELLED":
            raise RunCancelled(f"job {self.id} was cancelled.")
        kinds: dict[str, type[MgclustError]] = {"input": InputError, "memory": InsufficientMemoryError}
        raise kinds.get(self.info["fault"] or "", RunFailed)(self.info["error"])

    def cancel(self) -> RemoteJob:
        """Cancel it, and return this job."""
        self.info = self._service.call("POST", f"/jobs/{self.id}/cancel")
        return self

    def retry(self) -> RemoteJob:
        """Queue it again, and return this job."""
        self.info = self._service.call("POST", f"/jobs/{self.id}/retry")
        return self

    def delete(self) -> RemoteJob:
        """Delete it, with its result and log, and return this job; it must have ended.

        Raises
        ------
        InputError
            It waits or runs, or does not exist any more.
        """
        self.info = self._service.call("DELETE", f"/jobs/{self.id}")
        return self

    def log(self) -> str:
        """The logs of its attempts."""
        retries = Retries(self._service)
        while True:
            try:
                with self._service.stream(f"/jobs/{self.id}/log") as answer:
                    return str(check(answer).read().decode("utf-8", "replace"))
            except (httpx.TransportError, RetryAfter) as error:
                retries.wait(error)

    def download(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Fetch the result directory, which appears when it is complete.

        Parameters
        ----------
        path : path-like
            Of the directory to write.
        overwrite : bool
            Whether to replace a result that is there.

        Returns
        -------
        pathlib.Path
            The directory.
        """
        target = Path(path)
        check_target(target, overwrite)
        with atomic_directory(target, overwrite) as directory:
            for entry in self._service.call("GET", f"/jobs/{self.id}/files"):
                self._fetch(entry["name"], entry["size"], directory)
        return target

    def result(self, path: str | os.PathLike[str]) -> Result:
        """`download`, then `mgclust.load_result`.

        Parameters
        ----------
        path : path-like
            Of the directory to write; nothing may be there.

        Returns
        -------
        mgclust.Result
        """
        return load_result(self.download(path))

    def _fetch(self, name: str, size: int, directory: Path) -> None:
        path = directory / name
        if not path.resolve().is_relative_to(directory.resolve()):
            raise RunFailed(f"the service names a file outside the result: {name!r}.")
        path.parent.mkdir(parents=True, exist_ok=True)
        retries = Retries(self._service)
        with open(path, "wb") as file:
            while file.tell() < size or not size:
                try:
                    left = f"bytes={file.tell()}-"  # resumes where it was cut off
                    with self._service.stream(f"/jobs/{self.id}/files/{name}", Range=left) as answer:
                        if size:
                            for part in check(answer).iter_bytes(CHUNK_BYTES):
                                file.write(part)
                    if not size:
                        return
                except (httpx.TransportError, RetryAfter) as error:
                    retries.wait(error)
