"""Sessions and rows that a client keeps on workers between its runs, for `IDLE_SECONDS`.

`mgclust.engine.dask.tasks` has the workers' side of sessions, `mgclust.engine.dask.placement` sends rows.
"""

from __future__ import annotations

import threading
import time
import weakref
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Future

__all__ = ["Kept", "drop", "find", "keep", "sent_rows", "used"]

IDLE_SECONDS = 300.0  # seconds after a client's last run; it takes memory, and holds a worker of an adaptive cluster


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


def used(client: Client) -> None:
    """Keep what there is for `IDLE_SECONDS` from now on.

    Parameters
    ----------
    client : Client
        One that has just ended a run.
    """
    with _LOCK:
        state = vars(client)
        watched, state["mgclust_used"] = "mgclust_used" in state, time.monotonic()
    if not watched:
        client.loop.add_callback(_look, weakref.ref(client))


def sent_rows(client: Client) -> dict[str, tuple[Any, str, Future]]:
    """Rows that each worker was sent last: their form, their hash and where they are, by the worker's identity.

    Parameters
    ----------
    client : Client
        Who sent them.
    """
    rows: dict[str, tuple[Any, str, Future]] = vars(client).setdefault("mgclust_rows", {})
    return rows


def _look(reference: weakref.ref[Client]) -> None:
    """Let go of what a client keeps if it is idle, else look again when it may be; in its event loop."""
    client = reference()
    if client is None:
        return
    with _LOCK:
        left = vars(client)["mgclust_used"] + IDLE_SECONDS - time.monotonic()
        if left <= 0:
            del vars(client)["mgclust_used"]
            _of(client).clear()
            sent_rows(client).clear()
    if left > 0:
        client.loop.call_later(left, _look, reference)


def _of(client: Client) -> list[Kept]:
    """Sessions of a client; kept with it, since their futures refer to it."""
    sessions: list[Kept] = vars(client).setdefault("mgclust_sessions", [])
    return sessions
