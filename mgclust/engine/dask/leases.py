"""Leases of workers, kept on the scheduler, so that runs of all clients have disjoint workers.

First come, first served: a run that asks for more than is free waits, and those behind it wait, too. A lease ends with
its run. That of a killed client counts no more once its connection is closed, at the latest after
`CLIENT_SILENCE_SECONDS` of silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from itertools import chain
from typing import Any

from distributed.comm.addressing import get_address_host

__all__ = ["give_back", "take", "wait_for_turn"]

CLIENT_SILENCE_SECONDS = 60.0  # seconds; clients let the scheduler hear of them every five
TURN_SECONDS = 0.5  # seconds until a run that waits is told that its turn has not come
LOOK_SECONDS = 0.2  # seconds between two looks at workers and clients, of which leases are not told


@dataclass
class Lease:
    """Request of a run for workers, and the workers that it was given."""

    client: str
    size: int
    workers: list[str]


async def wait_for_turn(run: str, client: str, size: int, dask_scheduler: Any) -> tuple[dict[str, str], list[str]]:
    """`take` as soon as the run's turn has come, or when `TURN_SECONDS` are over; for ``Client.run_on_scheduler``."""
    end = time.monotonic() + TURN_SECONDS
    while True:
        taken = take(run, client, size, dask_scheduler)
        if taken[0] or time.monotonic() > end:
            return taken
        given_back = vars(dask_scheduler).setdefault("mgclust_given_back", asyncio.Event())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(given_back.wait(), LOOK_SECONDS)
        if run not in _leases(dask_scheduler):  # it was interrupted, or its client has gone
            return {}, taken[1]


def take(run: str, client: str, size: int, dask_scheduler: Any) -> tuple[dict[str, str], list[str]]:
    """Queue a run, unless it is queued, and see whether its turn has come.

    Returns
    -------
    workers : dict of str to str
        Identities of the run's ``size`` workers by address, of which each process has its own; empty: ask again.
    all_workers : list of str
        Those of all workers that are there.
    """
    leases = _leases(dask_scheduler)
    for name, lease in list(leases.items()):
        holder = dask_scheduler.clients.get(lease.client)
        if holder is None or time.time() - holder.last_seen > CLIENT_SILENCE_SECONDS:
            del leases[name]
    mine = leases.setdefault(run, Lease(client, size, []))
    identities = {worker.address: worker.server_id for worker in dask_scheduler.running}
    there = sorted(identities)
    free = set(there).difference(*(lease.workers for lease in leases.values()))
    for lease in leases.values():
        if lease.workers or lease.size > len(there):
            continue  # a run that asks for more than there is delays no other
        if lease.size > len(free):
            break
        lease.workers = _near_each_other(free, lease.size)
        free.difference_update(lease.workers)
    return {address: identities.get(address, "") for address in mine.workers}, there


def give_back(run: str, dask_scheduler: Any) -> None:
    """End a run's lease, or its wait for one; for ``Client.run_on_scheduler``."""
    _leases(dask_scheduler).pop(run, None)
    given_back = vars(dask_scheduler).pop("mgclust_given_back", None)
    if given_back is not None:
        given_back.set()


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
