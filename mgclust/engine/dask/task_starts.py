"""Words for why a task of Dask has not begun, from what `mgclust.engine.dask.worker_costs.waits_of` finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["cannot_start", "in_words"]


def cannot_start(wait: Mapping[str, Any]) -> bool:
    """Return whether a task waits for what its worker, which is there, does not have.

    Parameters
    ----------
    wait : mapping
        One of `waits_of`.
    """
    return wait["state"] == "no-worker" and bool(wait["workers"]) and not wait["paused"]


def in_words(task: str, wait: Mapping[str, Any]) -> str:
    """Say why a task has not begun, and what helps; a sentence without its full stop.

    Parameters
    ----------
    task : str
        What to call it.
    wait : mapping
        One of `waits_of`.
    """
    where = f" on {', '.join(wait['workers'])}" if wait["workers"] else ""
    resources = f"resources={wait['resources']}" if wait["resources"] else ""
    if wait["paused"]:
        return f"{task} has not begun{where}: the worker is paused, as it is nearly out of memory; free some there"
    if wait["state"] == "no-worker":
        lacks = f" offers {resources}" if resources else " may run it"
        return (
            f"{task} cannot begin{where}: no worker{lacks} (Dask's state no-worker); give other workers= or resources="
        )
    if wait["behind"]:
        return (
            f"{task} has not begun{where}: the worker is busy with {', '.join(wait['behind'])}; wait for them, cancel "
            "them, or give other workers="
        )
    if resources:
        return f"{task} has not begun{where}: other tasks have its {resources}; wait for them, or cancel them"
    return f"{task} has not begun{where}: the worker still fetches its rows, or hangs"
