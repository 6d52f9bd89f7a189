"""Leases of workers, kept on the scheduler, so that runs of all clients have disjoint workers.

First come, first served: a run that asks for more than is free waits, and those behind it wait, too. A lease ends with
its run. That of a killed client counts no more once its connection is closed, at the latest after
`CLIENT_SILENCE_SECONDS` of silence.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import chain
from typing import Any

from distributed.comm.addressing import get_address_host

__all__ = ["give_back", "take"]

CLIENT_SILENCE_SECONDS = 60.0  # seconds; clients let the scheduler hear of them every five


@dataclass
class Lease:
    """Request of a run for workers, and the workers that it was given."""

    client: str
    size: int
    workers: list[str]


def take(run: str, client: str, size: int, dask_scheduler: Any) -> tuple[list[str], list[str]]:
    """Queue a run, unless it is queued, and see whether its turn has come; for ``Client.run_on_scheduler``.

    Returns
    -------
    workers : list of str
        Addresses of the run's ``size`` workers; empty: ask again.
    all_workers : list of str
        Those of all workers that are there.
    """
    leases = _leases(dask_scheduler)
    for name, lease in list(leases.items()):
        holder = dask_scheduler.clients.get(lease.client)
        if holder is None or time.time() - holder.last_seen > CLIENT_SILENCE_SECONDS:
            del leases[name]
    mine = leases.setdefault(run, Lease(client, size, []))
    there = sorted(worker.address for worker in dask_scheduler.running)
    free = set(there).difference(*(lease.workers for lease in leases.values()))
    for lease in leases.values():
        if lease.workers or lease.size > len(there):
            continue  # a run that asks for more than there is delays no other
        if lease.size > len(free):
            break
        lease.workers = _near_each_other(free, lease.size)
        free.difference_update(lease.workers)
    return mine.workers, there


def give_back(run: str, dask_scheduler: Any) -> None:
    """End a run's lease, or its wait for one; for ``Client.run_on_scheduler``."""
    _leases(dask_scheduler).pop(run, None)


def _leases(dask_scheduler: Any) -> dict[str, Lease]:
    """Leases by run, in order of arrival."""
    leases: dict[str, Lease] = vars(dask_scheduler).setdefault("mgclust_leases", {})
    return leases


def _near_each_other(free: set[str], size: int) -> list[str]:
    """Pick free workers on the host that has just enough, else on as few hosts as may be."""
    hosts: dict[str, list[str]] = {}
    for address in sorted(free):
        hosts.setdefault(get_address_host(address), []).append(address)
    fullest = sorted(hosts.values(), key=len, reverse=True)
    enough = [workers for workers in fullest if len(workers) >= size]
    return sorted(list(chain(*enough[-1:] or fullest))[:size])
