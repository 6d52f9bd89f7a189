"""Clients that mgclust itself opens: they connect within a time limit, and differ from the caller's clients by class.

Dask limits only the time to connect, and waits forever for the first message of a scheduler. If another program
listens at the port, or the scheduler is stopped, a fit would hang. So the scheduler has to answer a request before a
client connects.
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
    """A client that mgclust has opened: users can neither close it nor replace its connection."""


def why_no_address(address: str) -> str:
    """Return a short reason why a text cannot be the address of a scheduler; empty if it can be one.

    Parameters
    ----------
    address : str
        Address with or without ``tcp://``, as Dask accepts it.
    """
    if address.startswith("inproc://"):  # a scheduler in this process, without a port
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
        Address of the scheduler.
    seconds : float
        Wait limit for the scheduler, in seconds.
    security : distributed.Security or None
        TLS settings; None: the settings of Dask's configuration.

    Raises
    ------
    Exception
        Any error of Dask; TimeoutError if the scheduler does not answer in time.
    """
    if not address.startswith("inproc://") and not dask.config.get("distributed.client.security-loader", None):
        _in_thread(lambda: asyncio.run(_identity(address, seconds, security)), seconds + 1)
    # The client is made in two steps, so that it can be closed here if it could not connect. Otherwise, the garbage
    # collector could close it during the start of the next client, and both clients would wait for one lock forever.
    client: Client = Client.__new__(Client)
    try:
        client.__init__(address, timeout=seconds, set_as_default=False, security=security)  # type: ignore[misc]
    except BaseException:
        with contextlib.suppress(Exception):
            client.close(timeout=1)
        raise
    return client


def client_of(cluster: Any, seconds: float) -> Any:
    """Get the client of a cluster object of Dask.

    Parameters
    ----------
    cluster : object
        An object with ``get_client()``, which may wait without a limit.
    seconds : float
        Wait limit, in seconds.

    Raises
    ------
    TimeoutError
        There is no client after `seconds`.
    Exception
        Any error of ``get_client()``.
    """
    return _in_thread(cluster.get_client, seconds)


async def _identity(address: str, seconds: float, security: Any) -> None:
    """Ask a scheduler for its identity."""
    arguments = (security or distributed.Security()).get_connection_args("client")
    scheduler = distributed.rpc(address, timeout=seconds, connection_args=arguments)
    try:
        await asyncio.wait_for(scheduler.identity(), seconds)
    finally:
        await scheduler.close_rpc()


def _in_thread(call: Callable[[], Any], seconds: float) -> Any:
    """Call a function that may not return; raise TimeoutError if it has not returned within `seconds`."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def keep() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failed.append(error)

    # The thread gets a copy of the caller's context, which holds the client of ``Client.as_current()``.
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(keep,), name="mgclust-connect", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError(f"its scheduler did not answer within {seconds:g} s")
    return found[0]
