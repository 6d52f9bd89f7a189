"""Questions of a client to its scheduler, each with a limit: a scheduler that is stopped answers none.

The scheduler keeps leases of workers (`mgclust.engine.dask.leases`), by a plugin that the first client to ask for one
sends it by value: the scheduler need not have mgclust.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import cloudpickle
from distributed import Client

from mgclust.base.errors import ClusterUnavailableError, InputError, MgclustError, RunFailed
from mgclust.engine.dask import clients, leases, runs_page, session_registry, worker_costs

__all__ = ["ANSWER_SECONDS", "ask", "ask_in_loop", "gone", "is_open", "tell", "workers_of"]

ANSWER_SECONDS = 60.0  # seconds within which a scheduler answers what takes it a millisecond
TELL_SECONDS = 5.0  # seconds for what need not be answered
_LOCK = threading.Lock()


def is_open(client: Client) -> bool:
    """Return whether a client can be asked: neither closed nor closing."""
    return client.scheduler is not None and client.status not in ("closed", "closing")


def workers_of(client: Client, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """Records of the scheduler on each worker that is there now, by address.

    `Client.scheduler_info` may tell of none: the client forgets them every two seconds, and reads what it keeps.

    Parameters
    ----------
    client : Client
    seconds : float
        How long to wait for an answer.

    Raises
    ------
    ClusterUnavailableError
        There is none.
    """

    async def identity() -> Any:
        return await client.scheduler.identity(n_workers=-1)

    with _in_words(client, "identity", seconds):
        workers: dict[str, Any] = client.sync(identity, callback_timeout=seconds)["workers"]
    return workers


def ask(client: Client, question: str, seconds: float = ANSWER_SECONDS, /, **given: Any) -> Any:
    """Call an operation of `Leases`, which are sent there first where they are not.

    Parameters
    ----------
    client : Client
    question : str
        Name of a coroutine of `Leases`.
    seconds : float
        How long to wait for an answer.
    **given
        Its arguments.

    Raises
    ------
    ClusterUnavailableError
        There is no answer.
    InputError
        The scheduler does not take plugins, or has that of another version of mgclust.
    """
    with _in_words(client, question, seconds):
        return client.sync(_asked, client, question, given, callback_timeout=seconds)


async def ask_in_loop(client: Client, question: str, seconds: float = ANSWER_SECONDS, /, **given: Any) -> Any:
    """`ask` in the event loop of the client, where nothing may block."""
    with _in_words(client, question, seconds):
        return await asyncio.wait_for(_asked(client, question, given), seconds)


def tell(client: Client, question: str, /, **given: Any) -> None:
    """`ask` without waiting: a scheduler that is gone has forgotten all, one that is stopped hears later."""

    async def told() -> None:
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await ask_in_loop(client, question, TELL_SECONDS, **given)

    if is_open(client):
        client.loop.add_callback(told)


def gone(client: Client, error: BaseException) -> ClusterUnavailableError:
    """Make the error for a scheduler that does not answer any more."""
    lines = str(error).splitlines()
    return ClusterUnavailableError(
        f"the scheduler at {_address(client)} does not answer: {lines[0] if lines else type(error).__name__} It has "
        "ended, or cannot be reached; connect a new client to one that runs."
    )


async def _asked(client: Client, question: str, given: dict[str, Any]) -> Any:
    operation, answer = f"{leases.PREFIX}{question}", None
    if "mgclust_leases" in vars(client):
        answer = await getattr(client.scheduler, operation)(**given)
    if answer is None:  # as of an operation that a scheduler does not know; it may be another one by now
        with _in_words(client, "register_scheduler_plugin", ANSWER_SECONDS):
            await client.register_plugin(_SentLeases())  # a coroutine in the client's event loop
        vars(client)["mgclust_leases"] = True
        answer = await getattr(client.scheduler, operation)(**given)
    if answer is None:
        raise InputError(
            f"the scheduler at {client.scheduler.address} has the leases of another version of mgclust; use one "
            "version in all clients, and restart the scheduler."
        )
    return answer


@contextlib.contextmanager
def _in_words(client: Client, operation: str, seconds: float) -> Iterator[None]:
    """Make the error of a scheduler that does not answer, or not that."""
    if not is_open(client):
        raise _closed(client)
    try:
        yield
    except MgclustError:
        raise
    except TimeoutError:
        raise ClusterUnavailableError(
            f"the scheduler at {_address(client)} has not answered for {seconds:g} s: its process is stopped or hangs, "
            "or its machine is away. Start it again, and connect a new client."
        ) from None
    except OSError as error:
        mine = isinstance(client, clients.Client)
        raise (gone(client, error) if is_open(client) and not mine else _closed(client)) from None
    except (Exception, asyncio.CancelledError) as error:
        if not is_open(client):
            raise _closed(client) from None
        if "disallowed" not in str(error):
            raise
        raise InputError(
            f"the scheduler at {_address(client)} forbids {operation} (distributed.scheduler.blocked-handlers); "
            "allow it, or use client='local' or None."
        ) from None


def _closed(client: Client) -> ClusterUnavailableError | RunFailed:
    if isinstance(client, clients.Client):  # which Dask has closed, as its scheduler has gone
        return RunFailed(
            f"the connection to the scheduler at {_address(client)} was lost: it has ended, or cannot be reached. Run "
            "again once it runs."
        )
    return ClusterUnavailableError(
        f"client={client!r} is closed; give one that is open, and close it when all its runs have ended. Dask closes "
        "one, too, whose scheduler has gone."
    )


def _address(client: Client) -> str:
    return getattr(client.scheduler, "address", "") or "an unknown address"


class _SentLeases(leases.Leases):
    """`Leases` that travel by value."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (_plugin(),)


@functools.cache
def _plugin() -> bytes:
    """`Leases`, to be loaded where there is no mgclust."""
    sent = (leases, runs_page, session_registry, worker_costs)
    with _LOCK:
        for module in sent:
            cloudpickle.register_pickle_by_value(module)
        try:
            plugin: bytes = cloudpickle.dumps(leases.Leases())
        finally:
            for module in sent:
                cloudpickle.unregister_pickle_by_value(module)
    return plugin
