"""Sessions that a scheduler knows, and messages to their workers when a session ends.

This module is a part of the plugin of `mgclust.engine.dask.leases`. The plugin is sent to schedulers without mgclust,
so nothing of mgclust is imported here. A session ends when its client or one of its workers leaves.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

__all__ = ["SessionRegistry"]

RETRY_SECONDS = 1.0  # seconds between two attempts to reach a worker


@dataclass
class _Session:
    """Connections between workers, which end with their client."""

    client: str
    workers: dict[str, str]  # identities of the workers by address
    end: dict[str, Any]  # arguments of a worker's operation ``run`` that end the session there


class SessionRegistry:
    """Sessions of all clients of one scheduler.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._sessions: dict[str, _Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(self, session: str, client: str, workers: dict[str, str], end: dict[str, Any]) -> None:
        """Record a session that is about to open; end older sessions of its workers.

        Parameters
        ----------
        session, client : str
            Names of the session and of its client.
        workers : dict of str to str
            Identities of the workers by address.
        end : dict
            Arguments of a worker's operation ``run`` that end the session on a worker.
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
            Name of the session.
        """
        session = self._sessions.pop(name, None)
        for address, identity in session.workers.items() if session else ():
            task = asyncio.ensure_future(self._tell(address, identity, session.end))  # type: ignore[union-attr]
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def end_of_worker(self, worker: str) -> None:
        """End the sessions of a worker.

        Parameters
        ----------
        worker : str
            Address of the worker.
        """
        for name, session in list(self._sessions.items()):
            if worker in session.workers:
                self.end(name)

    def end_of_client(self, client: str) -> None:
        """End the sessions of a client.

        Parameters
        ----------
        client : str
            Name of the client.
        """
        for name, session in list(self._sessions.items()):
            if session.client == client:
                self.end(name)

    def connected(self, client: str, free: set[str], size: int, there: dict[str, str]) -> list[str]:
        """Find free workers that the client has connected in a session; none if there is no session of this size.

        Parameters
        ----------
        client : str
            Name of the client.
        free : set of str
            Addresses of the free workers.
        size : int
            Number of workers.
        there : dict of str to str
            Identities of all workers by address.
        """
        for session in reversed(self._sessions.values()):
            known = session.client == client and len(session.workers) == size and session.workers.keys() <= free
            if known and all(there[address] == identity for address, identity in session.workers.items()):
                return sorted(session.workers)
        return []

    def close(self) -> None:
        """Stop sending messages to workers."""
        for task in self._tasks:
            task.cancel()

    async def _tell(self, address: str, identity: str, end: dict[str, Any]) -> None:
        """End a session on a worker, however long the answer of the worker takes."""
        while self._there_is(address, identity):
            try:
                await self._scheduler.rpc(address).run(**end, wait=True)
            except OSError:  # the worker cannot be reached, or has just ended
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _there_is(self, address: str, identity: str) -> bool:
        worker = self._scheduler.workers.get(address)
        return worker is not None and worker.server_id == identity
