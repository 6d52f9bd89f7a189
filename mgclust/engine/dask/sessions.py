"""Sessions that a client keeps between its runs: which workers have one, and what keeps it there.

`mgclust.engine.dask.tasks` has the workers' side.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from distributed import Client, Future

__all__ = ["Kept", "drop", "find", "keep"]


@dataclass(eq=False)
class Kept:
    """A session of one client."""

    name: str
    workers: dict[str, str]  # its workers' identities by address, in rank order: a new process has another
    holds: list[Future] = field(default_factory=list)  # one of each worker; without them the session ends


_LOCK = threading.Lock()


def find(client: Client, workers: dict[str, str]) -> Kept | None:
    """A client's session on these workers, in whatever order of ranks.

    Parameters
    ----------
    client : Client
        The one that would use it; no other can.
    workers : dict of str to str
        Identities by address.
    """
    with _LOCK:
        found = [kept for kept in _of(client) if kept.workers == workers]
    if found and all(hold.status == "finished" for hold in found[0].holds):
        return found[0]
    return None


def keep(client: Client, kept: Kept) -> None:
    """Keep a session; those that had one of its workers are over.

    Parameters
    ----------
    client : Client
        Whose it is.
    kept : Kept
        Open on its workers.
    """
    with _LOCK:
        _of(client)[:] = [each for each in _of(client) if not each.workers.keys() & kept.workers.keys()]
        _of(client).append(kept)


def drop(client: Client, kept: Kept) -> None:
    """End a session: its workers close it when they hear that its client has let go.

    Parameters
    ----------
    client : Client
        Whose it is.
    kept : Kept
        One of its sessions.
    """
    with _LOCK:
        _of(client)[:] = [each for each in _of(client) if each is not kept]
    kept.holds.clear()


def _of(client: Client) -> list[Kept]:
    """Sessions of a client; kept with it, since their futures refer to it."""
    sessions: list[Kept] = vars(client).setdefault("mgclust_sessions", [])
    return sessions
