"""Sessions that a scheduler knows, and their ends on their workers.

Part of the plugin of `mgclust.engine.dask.leases`, with which it travels to schedulers without mgclust: nothing of
mgclust is imported here. A session ends with its client, and with each of its workers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

__all__ = ["SessionRegistry"]

RETRY_SECONDS = 1.0  # seconds between two tries to reach a worker


@dataclass
class _Session:
    """Connections between workers, which end with their client."""

    client: str
    workers: dict[str, str]  # identities by address
    end: dict[str, Any]  # the call that ends it on a worker, as its operation ``run`` takes it


class SessionRegistry:
    """Sessions of all clients of one scheduler.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._sessions: dict[str, _Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(self, session: str, client: str, workers: dict[str, str], end: dict[str, Any]) -> None:
        """Note a session that is about to open; those that had one of its workers are over.

        Parameters
        ----------
        session, client : str
            Names.
        workers : dict of str to str
            Identities by address.
        end : dict
            The call that ends it on a worker, as a worker's operation ``run`` takes it.
        """
        for name, other in list(self._sessions.items()):
            if other.workers.keys() & workers.keys():
                self.end(name)
        self._sessions[session] = _Session(client, dict(workers), end)
        if client not in self._scheduler.clients:
            self.end(session)

    def end(self, name: str) -> None:
        """End a session on all of its workers.

        Parameters
        ----------
        name : str
        """
        session = self._sessions.pop(name, None)
        for address, identity in session.workers.items() if session else ():
            task = asyncio.ensure_future(self._tell(address, identity, session.end))  # type: ignore[union-attr]
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def end_of_worker(self, worker: str) -> None:
        """End the sessions that had this worker.

        Parameters
        ----------
        worker : str
            Its address.
        """
        for name, session in list(self._sessions.items()):
            if worker in session.workers:
                self.end(name)

    def end_of_client(self, client: str) -> None:
        """End the sessions of this client.

        Parameters
        ----------
        client : str
            Its name.
        """
        for name, session in list(self._sessions.items()):
            if session.client == client:
                self.end(name)

    def connected(self, client: str, free: set[str], size: int, there: dict[str, str]) -> list[str]:
        """Find so many free workers that the client has connected; none if there is no such session.

        Parameters
        ----------
        client : str
            Its name.
        free : set of str
            Addresses.
        size : int
            How many workers.
        there : dict of str to str
            Identities of all workers by address.
        """
        for session in reversed(self._sessions.values()):
            known = session.client == client and len(session.workers) == size and session.workers.keys() <= free
            if known and all(there[address] == identity for address, identity in session.workers.items()):
                return sorted(session.workers)
        return []

    def close(self) -> None:
        """Stop telling workers."""
        for task in self._tasks:
            task.cancel()

    async def _tell(self, address: str, identity: str, end: dict[str, Any]) -> None:
        """Call a function on a worker, however long that takes to answer."""
        while self._there_is(address, identity):
            try:
                await self._scheduler.rpc(address).run(**end, wait=True)
            except OSError:  # it is away, or has just ended
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _there_is(self, address: str, identity: str) -> bool:
        worker = self._scheduler.workers.get(address)
        return worker is not None and worker.server_id == identity
