"""Requests of a client to its scheduler, each with a time limit, because a stopped scheduler does not answer.

The scheduler keeps leases of workers (`mgclust.engine.dask.leases`) in a plugin. The first client that needs a lease
sends the plugin by value, so the scheduler does not need mgclust.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import pickle
from collections.abc import Iterator
from typing import Any

from distributed import Client

from mgclust.base.by_value import pickled
from mgclust.base.errors import ClusterUnavailableError, InputError, MgclustError, RunFailed
from mgclust.engine.dask import clients, leases, runs_page, session_registry, worker_costs

__all__ = ["ANSWER_SECONDS", "ask", "ask_in_loop", "gone", "is_open", "tell", "workers_of"]

ANSWER_SECONDS = 60.0  # time limit for an answer; a scheduler needs a millisecond
TELL_SECONDS = 5.0  # time limit for messages that need no answer


def is_open(client: Client) -> bool:
    """Return whether requests can be sent: the client is neither closed nor closing."""
    return client.scheduler is not None and client.status not in ("closed", "closing")


def workers_of(client: Client, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """Return the scheduler's records of the present workers, by address.

    `Client.scheduler_info` may list no workers, because it reads a cache that the client clears every two seconds.

    Parameters
    ----------
    client : Client
        Client of the cluster.
    seconds : float
        Time limit for the answer.

    Raises
    ------
    ClusterUnavailableError
        There is no answer.
    """

    async def identity() -> Any:
        return await client.scheduler.identity(n_workers=-1)

    with _in_words(client, "identity", seconds):
        workers: dict[str, Any] = client.sync(identity, callback_timeout=seconds)["workers"]
    return workers


def ask(client: Client, question: str, seconds: float = ANSWER_SECONDS, /, **given: Any) -> Any:
    """Call an operation of `Leases`; if the scheduler does not have the plugin, send the plugin first.

    Parameters
    ----------
    client : Client
        Client of the cluster.
    question : str
        Name of a coroutine of `Leases`.
    seconds : float
        Time limit for the answer.
    **given
        Arguments of the coroutine.

    Raises
    ------
    ClusterUnavailableError
        There is no answer.
    InputError
        The scheduler does not accept plugins, or has the plugin of another version of mgclust.
    """
    with _in_words(client, question, seconds):
        return client.sync(_asked_in_order, client, question, given, callback_timeout=seconds)


async def ask_in_loop(client: Client, question: str, seconds: float = ANSWER_SECONDS, /, **given: Any) -> Any:
    """Call an operation as `ask` does, but from the event loop of the client, where nothing may block."""
    with _in_words(client, question, seconds):
        return await asyncio.wait_for(_asked_in_order(client, question, given), seconds)


def tell(client: Client, question: str, /, **given: Any) -> None:
    """Call an operation without waiting: an ended scheduler has lost all leases, a stopped one gets the call later.

    Later requests of `ask` and `ask_in_loop` are sent when this call has been answered. Otherwise a request could
    overtake it on another connection: a run would then get other workers than the run before, and send its rows again.
    """

    async def told() -> None:
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await asyncio.wait_for(_asked(client, question, given), TELL_SECONDS)

    def begin() -> None:
        message = asyncio.ensure_future(told())
        unanswered: set[asyncio.Task[None]] = vars(client).setdefault("mgclust_told", set())
        unanswered.add(message)
        message.add_done_callback(unanswered.discard)

    if is_open(client):
        client.loop.add_callback(begin)


def gone(client: Client, error: BaseException) -> ClusterUnavailableError:
    """Make the error for a scheduler that does not answer any more."""
    lines = str(error).splitlines()
    return ClusterUnavailableError(
        f"the scheduler at {_address(client)} does not answer ({lines[0] if lines else type(error).__name__}): it has "
        "ended, or cannot be reached; connect a new client to a running scheduler."
    )


async def _asked_in_order(client: Client, question: str, given: dict[str, Any]) -> Any:
    """Call an operation after all messages that `tell` sent before."""
    if unanswered := vars(client).get("mgclust_told"):
        await asyncio.wait(unanswered)
    return await _asked(client, question, given)


async def _asked(client: Client, question: str, given: dict[str, Any]) -> Any:
    operation, answer = f"{leases.PREFIX}{question}", None
    if "mgclust_leases" in vars(client):
        answer = await getattr(client.scheduler, operation)(**given)
    if answer is None:  # the scheduler does not know the operation; it may have been replaced
        with _in_words(client, "register_scheduler_plugin", ANSWER_SECONDS):
            await client.register_plugin(_SentLeases())  # a coroutine in the client's event loop
        vars(client)["mgclust_leases"] = True
        answer = await getattr(client.scheduler, operation)(**given)
    if answer is None:
        raise InputError(
            f"the scheduler at {client.scheduler.address} was set up by another version of mgclust; use one version in "
            "all clients, and restart the scheduler."
        )
    return answer


@contextlib.contextmanager
def _in_words(client: Client, operation: str, seconds: float) -> Iterator[None]:
    """Raise the error for a scheduler that does not answer, or that rejects an operation."""
    if not is_open(client):
        raise _closed(client)
    try:
        yield
    except MgclustError:
        raise
    except TimeoutError:
        raise ClusterUnavailableError(
            f"the scheduler at {_address(client)} has not answered for {seconds:g} s: its process is stopped or hangs, "
            "or its machine is gone. Restart the scheduler, and connect a new client."
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
    if isinstance(client, clients.Client):  # Dask has closed it, because its scheduler has gone
        return RunFailed(
            f"the connection to the scheduler at {_address(client)} was lost: the scheduler has ended, or cannot be "
            "reached. Run again when the scheduler runs."
        )
    return ClusterUnavailableError(
        f"client={client!r} is closed; give an open client, and close it only after all its runs have ended. Dask "
        "also closes a client whose scheduler has gone."
    )


def _address(client: Client) -> str:
    return getattr(client.scheduler, "address", "") or "an unknown address"


class _SentLeases(leases.Leases):
    """`Leases` that are pickled by value."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (_plugin(),)


@functools.cache
def _plugin() -> bytes:
    """Pickle `Leases`, to be loaded where there is no mgclust."""
    return pickled(leases.Leases(), leases, runs_page, session_registry, worker_costs)
