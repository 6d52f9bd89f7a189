"""Sessions and rows that a client keeps on workers between its runs, for `IDLE_SECONDS`.

`mgclust.engine.dask.session_registry` ends sessions whose client or worker has gone. `mgclust.engine.dask.tasks` has
the workers' side of sessions. `mgclust.engine.dask.placement` sends rows.
"""

from __future__ import annotations

import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future

from mgclust.engine.dask.scheduler import is_open, tell

__all__ = ["ADAPTIVE_IDLE_SECONDS", "IDLE_SECONDS", "Kept", "drop", "find", "in_use", "keep", "sent_rows", "used"]

IDLE_SECONDS = 300.0  # seconds after a client's last run; there is a limit because sessions and rows take memory
ADAPTIVE_IDLE_SECONDS = 10.0  # on an adaptive cluster: Dask does not stop its last worker while this worker has rows


@dataclass(eq=False)
class Kept:
    """A session of a client."""

    name: str
    workers: dict[str, str]  # identities of the workers by address, in rank order; a new process has a new identity


_LOCK = threading.Lock()


def find(client: Client, workers: dict[str, str]) -> Kept | None:
    """Find a client's session on these workers, in any order of ranks.

    Parameters
    ----------
    client : Client
        Client of the run; only its own sessions can be used.
    workers : dict of str to str
        Identities of the workers by address.
    """
    with _LOCK:
        return next((kept for kept in _of(client) if kept.workers == workers), None)


def keep(client: Client, kept: Kept) -> None:
    """Keep a session; end older sessions of its workers.

    Parameters
    ----------
    client : Client
        Owner of the session.
    kept : Kept
        A session that is open on its workers.
    """
    with _LOCK:
        _of(client)[:] = [each for each in _of(client) if not each.workers.keys() & kept.workers.keys()]
        _of(client).append(kept)


def drop(client: Client, kept: Kept) -> None:
    """End a session; the scheduler notifies its workers.

    Parameters
    ----------
    client : Client
        Owner of the session.
    kept : Kept
        One of its sessions.
    """
    with _LOCK:
        _of(client)[:] = [each for each in _of(client) if each is not kept]
    tell(client, "end", session=kept.name)


def in_use(client: Client) -> None:
    """Keep sessions and rows until `used` has been called as often as this function.

    Parameters
    ----------
    client : Client
        Client that begins a run.
    """
    with _LOCK:
        vars(client)["mgclust_runs"] = vars(client).get("mgclust_runs", 0) + 1


def used(client: Client, seconds: float) -> None:
    """Undo one call of `in_use`, and keep sessions and rows for `seconds` from now on.

    Parameters
    ----------
    client : Client
        Client that has just ended a run.
    seconds : float
        `IDLE_SECONDS` or `ADAPTIVE_IDLE_SECONDS`.
    """
    with _LOCK:
        state = vars(client)
        state["mgclust_runs"] -= 1
        before = state.get("mgclust_until")
        until = state["mgclust_until"] = time.monotonic() + seconds
    if (before is None or until < before) and is_open(client):
        client.loop.add_callback(_look, weakref.ref(client))


def sent_rows(client: Client) -> dict[str, tuple[Any, str, Future]]:
    """Return the rows that each worker was sent last: their form, hash and future, by the worker's identity.

    Parameters
    ----------
    client : Client
        Client that sent them.
    """
    rows: dict[str, tuple[Any, str, Future]] = vars(client).setdefault("mgclust_rows", {})
    return rows


def _look(reference: weakref.ref[Client]) -> None:
    """Drop sessions and rows of a client that is idle, else check again later; runs in the client's event loop."""
    client = reference()
    if client is None:
        return
    ended: list[Kept] = []
    with _LOCK:
        if vars(client).get("mgclust_runs", 0):
            vars(client).pop("mgclust_until", None)  # the checks start again at the end of the run
            return
        left = vars(client).get("mgclust_until", 0.0) - time.monotonic()
        if left <= 0 and vars(client).pop("mgclust_until", None) is not None:
            ended[:], _of(client)[:] = _of(client), []
            sent_rows(client).clear()
    if left > 0:
        client.loop.call_later(left, _look, reference)
    for kept in ended:
        tell(client, "end", session=kept.name)


def _of(client: Client) -> list[Kept]:
    """Return the sessions of a client, which are stored in an attribute of the client."""
    sessions: list[Kept] = vars(client).setdefault("mgclust_sessions", [])
    return sessions
