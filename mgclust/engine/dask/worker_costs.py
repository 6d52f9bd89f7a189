"""Choice of workers for a run, and reasons why a task has not begun, from the states that Dask's scheduler keeps.

This module is a part of the plugin of `mgclust.engine.dask.leases`. The plugin is sent to schedulers without mgclust,
so nothing of mgclust is imported here. Only public attributes of the scheduler's states are read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from distributed.comm.addressing import get_address_host

__all__ = ["cheapest", "costs_of", "total", "waits_of"]

QUARTERS = 4  # fractions of rows are rounded to multiples of 1 / QUARTERS, so that similar fractions become equal
HEARTBEAT_SECONDS = 5.0  # seconds between heartbeats, from which the scheduler learns what a worker executes
NAMED_TASKS = 3  # number of tasks that a message names as the reason why a worker is busy

Cost = tuple[int, int]  # cost of a worker: its tasks, and the part of the rows that it does not hold


def costs_of(
    scheduler: Any, free: set[str], keys: Iterable[Any], resources: Mapping[str, float] | None
) -> dict[str, Cost]:
    """Return the cost of each free worker for a run: its tasks, then the part of the run's rows that it does not hold.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    free : set of str
        Addresses of the free workers.
    keys : iterable
        Keys of the chunks of the run's rows; unknown keys are ignored.
    resources : mapping of str to float or None
        Resources of Dask that each rank takes.
    """
    held: Counter[str] = Counter()
    for key in keys:
        task = scheduler.tasks.get(key)
        for holder in (task.who_has or ()) if task is not None else ():
            held[holder.address] += max(task.nbytes, 1)
    most = max((held[address] for address in free), default=0) or 1
    states = (scheduler.workers[address] for address in free)
    return {
        each.address: (_load(each, resources or {}), -round(QUARTERS * held[each.address] / most)) for each in states
    }


def _load(worker: Any, resources: Mapping[str, float]) -> int:
    """Return the load of a worker: 0 if it is idle, 1 if a thread is idle, more if a task would have to wait."""
    tasks, threads = len(worker.processing) - len(worker.long_running), max(1, worker.nthreads)
    load = 2 * (tasks // threads) + (tasks % threads > 0)
    lacks = any(
        worker.resources.get(name, 0) - worker.used_resources.get(name, 0) < amount
        for name, amount in resources.items()
    )
    return load + 2 * lacks


def total(costs: Mapping[str, Cost], workers: Iterable[str]) -> Cost:
    """Return the total cost of several workers, for comparison with the same number of other workers.

    Parameters
    ----------
    costs : mapping of str to (int, int)
        Costs from `costs_of`.
    workers : iterable of str
        Addresses of the workers.
    """
    each = [costs[address] for address in workers]
    return sum(load for load, _ in each), sum(rows for _, rows in each)


def cheapest(costs: Mapping[str, Cost], size: int) -> list[str]:
    """Pick the cheapest workers; at equal cost, prefer hosts of workers that are picked already, then few hosts.

    Parameters
    ----------
    costs : mapping of str to (int, int)
        Costs from `costs_of`.
    size : int
        Number of workers to pick.
    """
    last = sorted(costs.values())[size - 1]
    sure = [address for address in costs if costs[address] < last]
    equal = {address for address in costs if costs[address] == last}
    hosts = {get_address_host(address) for address in sure}
    beside = sorted(address for address in equal if get_address_host(address) in hosts)[: size - len(sure)]
    return sorted(sure + beside + _near_each_other(equal.difference(beside), size - len(sure) - len(beside)))


def _near_each_other(free: set[str], size: int) -> list[str]:
    """Pick workers on the host with the fewest free workers that suffice, else on as few hosts as possible."""
    hosts: dict[str, list[str]] = {}
    for address in sorted(free):
        hosts.setdefault(get_address_host(address), []).append(address)
    fullest = sorted(hosts.values(), key=len, reverse=True)
    enough = [workers for workers in fullest if len(workers) >= size]
    return list(chain(*enough[-1:] or fullest))[:size]


def waits_of(scheduler: Any, keys: Iterable[Any]) -> dict[Any, dict[str, Any]]:
    """Return the reasons why tasks have not begun, as plain values by key, without tasks that run or have ended.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    keys : iterable
        Keys of tasks.
    """
    found = {}
    for key in keys:
        task = scheduler.tasks.get(key)
        if task is not None and (reason := _wait_of(scheduler, task)):
            found[key] = reason
    return found


def _wait_of(scheduler: Any, task: Any) -> dict[str, Any]:
    while task.state == "waiting" and task.waiting_on:
        task = next(iter(task.waiting_on))
    if task.state == "no-worker":
        named = sorted(map(str, task.worker_restrictions or ()))
        states = [scheduler.workers[address] for address in named if address in scheduler.workers]
        behind: list[Any] = []
    elif task.state == "processing":
        worker = task.processing_on
        if task in worker.executing or time.time() - worker.last_seen > HEARTBEAT_SECONDS:
            return {}
        states, behind = [worker], [each for each in worker.executing if each is not task]
    else:
        return {}
    return {
        "key": str(task.key),
        "state": task.state,
        "workers": [each.address for each in states],
        "resources": dict(task.resource_restrictions or {}),
        "paused": [each.address for each in states if each.status.name == "paused"],
        "behind": [str(each.key) for each in behind][:NAMED_TASKS],
    }
