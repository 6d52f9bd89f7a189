"""Clients that mgclust opens itself: each begins within a limit, and is known as not the caller's.

Dask's own limit is one of the connection alone: for the first words of a scheduler it waits for ever, so that a port
where something else listens, or a process that is stopped, would hold a fit.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import Any

import distributed
from distributed.comm.addressing import get_address_host_port

__all__ = ["Client", "client_of", "opened", "why_no_address"]


class Client(distributed.Client):  # type: ignore[misc]
    """One of mgclust's own: users can neither close it nor connect another in its place."""

    async def _start(self, **given: Any) -> Any:
        return await asyncio.wait_for(super()._start(**given), self._timeout)


def why_no_address(address: str) -> str:
    """Return why a text cannot be the address of a scheduler, in a few words; empty where it can.

    Parameters
    ----------
    address : str
        With or without ``tcp://``, as Dask takes it.
    """
    if address.startswith("inproc://"):  # of this process: no port
        return ""
    try:
        get_address_host_port(address)
    except Exception as error:
        return str(error).partition("\n")[0].rstrip(".")
    return ""


def opened(address: str, seconds: float, security: Any) -> Client:
    """Connect a client to the scheduler at an address.

    Parameters
    ----------
    address : str
    seconds : float
        How long to wait for the scheduler.
    security : distributed.Security or None
        None: as Dask's configuration says.

    Raises
    ------
    Exception
        Whatever Dask raises; TimeoutError where nothing answers in time.
    """
    # In two steps, so that a client that could not connect can be closed here: left to the garbage collector,
    # it may be closed in the middle of the next client's start, where both wait for one lock for ever.
    client: Client = Client.__new__(Client)
    try:
        client.__init__(address, timeout=seconds, set_as_default=False, security=security)  # type: ignore[misc]
    except BaseException:
        with contextlib.suppress(Exception):
            client.close(timeout=1)
        raise
    return client


def client_of(cluster: Any, seconds: float) -> Any:
    """Ask a cluster object of Dask for its client.

    Parameters
    ----------
    cluster : object
        With ``get_client()``, which has no limit that holds in all cases.
    seconds : float
        How long to wait for it.

    Raises
    ------
    TimeoutError
        There is none after so many seconds.
    Exception
        Whatever ``get_client()`` raises.
    """
    found: list[Any] = []
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            found.append(cluster.get_client())
        except BaseException as error:
            failed.append(error)

    # With the caller's context, which has the client of ``Client.as_current()``.
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(ask,), name="mgclust-get-client", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError(f"its scheduler did not answer within {seconds:g} s")
    return found[0]
