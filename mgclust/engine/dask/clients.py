"""Clients that mgclust opens itself: each begins within a limit, and is known as not the caller's.

Dask's own limit is one of the connection alone: for the first words of a scheduler it waits for ever, so that a port
where something else listens, or a process that is stopped, would hold a fit. So a scheduler has to answer a question
before a client connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import dask
import distributed
from distributed.comm.addressing import get_address_host_port

__all__ = ["Client", "client_of", "opened", "why_no_address"]


class Client(distributed.Client):  # type: ignore[misc]
    """One of mgclust's own: users can neither close it nor connect another in its place."""


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
    if not address.startswith("inproc://") and not dask.config.get("distributed.client.security-loader", None):
        _in_thread(lambda: asyncio.run(_identity(address, seconds, security)), seconds + 1)
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
    return _in_thread(cluster.get_client, seconds)


async def _identity(address: str, seconds: float, security: Any) -> None:
    """Ask a scheduler who it is."""
    arguments = (security or distributed.Security()).get_connection_args("client")
    scheduler = distributed.rpc(address, timeout=seconds, connection_args=arguments)
    try:
        await asyncio.wait_for(scheduler.identity(), seconds)
    finally:
        await scheduler.close_rpc()


def _in_thread(call: Callable[[], Any], seconds: float) -> Any:
    """Call a function that may not return; TimeoutError where it has not after so many seconds."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def keep() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failed.append(error)

    # With the caller's context, which has the client of ``Client.as_current()``.
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(keep,), name="mgclust-connect", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError(f"its scheduler did not answer within {seconds:g} s")
    return found[0]
