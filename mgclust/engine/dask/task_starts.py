"""Messages on why tasks of Dask have not begun; `mgclust.engine.dask.worker_costs.waits_of` finds the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distributed import Client, Future

from mgclust.base.errors import RunFailed, WorkerWarning, warn_caller
from mgclust.engine.dask import scheduler

__all__ = ["START_SECONDS", "look_at_chunks", "look_at_ranks"]

START_SECONDS = 30.0  # seconds after which the caller is warned of tasks that have not begun


def look_at_ranks(client: Client, pending: Mapping[int, Future]) -> None:
    """Warn of ranks whose tasks have not begun.

    Parameters
    ----------
    client : Client
        Client of the run.
    pending : mapping of int to Future
        Tasks that have not ended, by rank.

    Raises
    ------
    RunFailed
        A task can never begin.
    """
    ranks = {future.key: rank for rank, future in pending.items()}
    waits = scheduler.ask(client, "waits", keys=list(ranks))
    reasons = {key: in_words(f"the task of rank {ranks[key]}", wait) for key, wait in waits.items()}
    for key, wait in waits.items():
        if cannot_start(wait):
            raise RunFailed(f"{reasons[key]}.")
    _warn(list(reasons.values()))


def look_at_chunks(client: Client, chunks: Sequence[Future]) -> None:
    """Warn of chunks that no worker may compute, because their annotations require something that no worker has.

    Parameters
    ----------
    client : Client
        Client of the run.
    chunks : sequence of Future
        The chunks.
    """
    waits = scheduler.ask(client, "waits", keys=[future.key for future in chunks])
    blocked = {wait["key"]: wait for wait in waits.values() if wait["state"] == "no-worker"}
    _warn([in_words(f"task {key} of the Dask array", wait) for key, wait in blocked.items()])


def _warn(reasons: Sequence[str]) -> None:
    if reasons:
        more = f"; {len(reasons) - 1} more task(s) wait" if len(reasons) > 1 else ""
        warn_caller(f"after {START_SECONDS:g} s {reasons[0]}{more}.", WorkerWarning)


def cannot_start(wait: Mapping[str, Any]) -> bool:
    """Return whether a task requires something that its worker does not have, although the worker is there.

    Parameters
    ----------
    wait : mapping
        One of the values of the dict that `waits_of` returns.
    """
    return wait["state"] == "no-worker" and bool(wait["workers"]) and not wait["paused"]


def in_words(task: str, wait: Mapping[str, Any]) -> str:
    """Describe why a task has not begun, and a remedy, as a sentence without its full stop.

    Parameters
    ----------
    task : str
        Name of the task in the sentence.
    wait : mapping
        One of the values of the dict that `waits_of` returns.
    """
    where = f" on {', '.join(wait['workers'])}" if wait["workers"] else ""
    resources = f"resources={wait['resources']}" if wait["resources"] else ""
    if wait["paused"]:
        return f"{task} has not begun{where}: the worker is paused, because its memory is nearly full; free some of it"
    if wait["state"] == "no-worker":
        lacks = f" offers {resources}" if resources else " may run it"
        return (
            f"{task} cannot begin{where}: no worker{lacks} (Dask's state no-worker); start such a worker, or request "
            "other workers or resources"
        )
    if wait["behind"]:
        return (
            f"{task} has not begun{where}: the worker is busy with {', '.join(wait['behind'])}; wait for them, cancel "
            "them, or choose other workers with workers="
        )
    if resources:
        return f"{task} has not begun{where}: other tasks have its {resources}; wait for them, or cancel them"
    return f"{task} has not begun{where}: the worker still fetches the rows, or hangs"
