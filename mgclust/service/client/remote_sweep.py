"""A sweep of a service, for Python programs: jobs that differ in some parameters, as one."""

from __future__ import annotations

from typing import Any

from mgclust.service.client.connection import ServiceConnection
from mgclust.service.client.remote_job import RemoteJob

__all__ = ["RemoteSweep"]


class RemoteSweep:
    """A sweep of a service, from `mgclust.Service.sweep` or `mgclust.Service.find_sweep`.

    Parameters
    ----------
    service : mgclust.Service
        The service.
    info : dict
        All facts about the sweep that the service has sent; also an attribute.
    """

    def __init__(self, service: ServiceConnection, info: dict[str, Any]) -> None:
        self._service, self.info = service, info

    def __repr__(self) -> str:
        return f"<RemoteSweep {self.id} of {len(self.jobs)} jobs>"

    @property
    def id(self) -> str:
        """Identifier of the sweep."""
        return str(self.info["id"])

    @property
    def vary(self) -> dict[str, list[Any]]:
        """Values of each parameter that varies."""
        return dict(self.info["vary"])

    @property
    def jobs(self) -> list[RemoteJob]:
        """The jobs, in the order of their combinations of values."""
        return [RemoteJob(self._service, info) for info in self.info["jobs"]]

    def refresh(self) -> RemoteSweep:
        """Get the current state of all jobs; return this object."""
        self.info = self._service.call("GET", f"/sweeps/{self.id}")
        return self

    def cancel(self) -> RemoteSweep:
        """Cancel all jobs that have not ended; return this object."""
        self.info = self._service.call("POST", f"/sweeps/{self.id}/cancel")
        return self

    def delete(self) -> RemoteSweep:
        """Delete all jobs with their results and logs; return this object. All jobs must have ended.

        Raises
        ------
        InputError
            A job waits or runs, or the sweep does not exist any more.
        """
        self.info = self._service.call("DELETE", f"/sweeps/{self.id}")
        return self
