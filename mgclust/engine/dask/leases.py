"""Leases of workers, kept on the scheduler: runs of all clients have disjoint workers.

A plugin of the scheduler, which the first client sends it by value: it needs no mgclust there. So only the modules that
are sent with it are imported here, `runs_page` and `session_registry`, and clients ask by operations that take and
return plain values. `mgclust.engine.dask.scheduler` is their side, and lists the modules that are sent.

First come, first served. A run that asks for a number of workers waits until so many are free, and those behind it
wait, too. One without a number takes what is free of as many as there were: at once where that is all, else after
`WAIT_LIMIT_SECONDS`, for which workers may be given back or started; several such runs that wait share what is free.
What runs wait for is demand for an adaptive cluster, and leased workers are not retired.

What ranks say of their progress passes the scheduler, so it can show all runs: `mgclust.engine.dask.runs_page`.

A lease ends with its run, or once its client's connection is closed, or its client has been silent for
`CLIENT_TIMEOUT_SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from distributed import SchedulerPlugin
from distributed.comm.addressing import get_address_host

from mgclust.engine.dask.runs_page import add_page
from mgclust.engine.dask.session_registry import SessionRegistry
from mgclust.engine.dask.worker_costs import cheapest, costs_of, total, waits_of
from mgclust.engine.memory import unspilled

__all__ = ["PREFIX", "Leases"]

PREFIX = "mgclust_3_"  # of the names of operations; another number where their arguments change

CLIENT_TIMEOUT_SECONDS = 60.0  # seconds; clients let the scheduler hear of them every five
LOOK_SECONDS = 0.2  # seconds between two looks at workers and clients
LONGEST_STEP_SECONDS = 2.0  # seconds between two looks that count: the process may have been stopped, or the machine
WAIT_LIMIT_SECONDS = 5.0  # seconds that a run without a number waits for more workers than are free
ADAPTIVE_SECONDS = 60.0  # seconds after which a cluster that does not ask how many workers are wanted is not adaptive
REMEMBERED_RUNS = 10_000  # that are over; a question of theirs may come late
SHOWN_RUNS = 20  # that are over
TOPIC = "mgclust-progress"  # of the events of ranks, as in `mgclust.engine.dask.tasks`
FIGURES = 12  # of an event that are shown
NO_FIGURES = ("run", "worker", "stage", "fraction", "elapsed")  # of an event


@dataclass
class _Lease:
    """Request of a run for workers, and the workers that it was given."""

    client: str
    least: int  # with fewer it does not begin
    most: int  # more it does not take
    since: float
    among: frozenset[str] | None = None  # addresses of workers that it may have; None: all
    keys: tuple[Any, ...] = ()  # of the chunks of its rows, where Dask has them
    resources: dict[str, float] | None = None  # of Dask, which each rank takes
    workers: list[str] = field(default_factory=list)
    number: int = 0  # in order of arrival, for people
    method: str = ""  # empty: no run yet, but a client that looks for workers
    changed: float = 0.0  # when it came or was given its workers
    event: dict[str, Any] = field(default_factory=dict)  # the last one of its progress
    without: frozenset[str] = frozenset()  # identities of workers that it does not take

    def of(self, there: Mapping[str, str]) -> set[str]:
        """Return the addresses of workers that it may have; `there` has their identities."""
        return {
            address
            for address, identity in there.items()
            if identity not in self.without and (self.among is None or address in self.among)
        }


class Leases(SchedulerPlugin):  # type: ignore[misc]
    """Leases and sessions of one scheduler.

    Parameters
    ----------
    monotonic : callable
        Seconds.
    turn : float
        Seconds until a run that waits is told that its turn has not come.
    """

    name = "mgclust-leases"
    idempotent = True

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, turn: float = 0.5) -> None:
        self._monotonic, self._turn = monotonic, turn
        self._leases: dict[str, _Lease] = {}  # by run, in order of arrival
        self._over: deque[str] = deque(maxlen=REMEMBERED_RUNS)
        self._numbers = count(1)
        self._ended: deque[dict[str, Any]] = deque(maxlen=SHOWN_RUNS)
        self._heard: dict[str, tuple[float, float]] = {}  # when a client was heard of, and for how long not since
        self._clock = self._looked = 0.0  # seconds during which this process ran, as far as looks tell
        self._adaptive: float | None = None  # when the cluster last asked how many workers are wanted
        self._grown = 0  # number of workers beyond which an adaptive cluster did not grow
        self._joined = 0.0  # when the last worker came

    def start(self, scheduler: Any) -> None:
        """Be there; called by Dask. No coroutine: another client's plugin could come while it is awaited."""
        self._scheduler = scheduler
        self._sessions = SessionRegistry(scheduler)
        self._changed = asyncio.Event()
        self._left = asyncio.Event()  # set when a worker leaves, and replaced by another
        # Dask has no public hook for two things, which are set here only: the number of workers that an adaptive
        # cluster should have, and operations for clients.
        self._target = scheduler.adaptive_target
        scheduler.adaptive_target = self.adaptive_target  # for what asks in this process, as Dask Gateway does
        scheduler.handlers.update(
            {
                "adaptive_target": self.scale_target,
                **{
                    f"{PREFIX}{name}": getattr(self, name)
                    for name in ("ask", "give_back", "waits", "keep", "end", "watch")
                },
            }
        )
        with contextlib.suppress(Exception):  # no run fails for a page, whatever Dask's next version has changed
            add_page(scheduler, self.runs)

    async def close(self) -> None:
        """End with the scheduler."""
        self._sessions.close()

    async def ask(
        self,
        run: str,
        client: str,
        least: int,
        most: int,
        method: str,
        among: list[str] | None = None,
        without: Iterable[str] = (),
        keys: Iterable[Any] = (),
        resources: dict[str, float] | None = None,
    ) -> dict[str, Any]:
        """Queue a run, unless it is queued; wait until its turn has come, or it has been a while.

        The method is for people. A run has workers `among` these, as its last question says, and none whose identity is
        in `without`: these are silent. The first question has the keys of the chunks of its rows, and the resources
        that each rank takes.

        Returns
        -------
        dict
            ``workers``: identities of the run's workers by address, of which each process has its own; empty: ask
            again. ``all``: addresses of all that are there for it. ``adaptive``: whether the cluster grows on demand.
            ``room``: bytes that each of the run's workers may be sent, None without a limit of their memory.
        """
        end = self._monotonic() + self._turn
        if run not in self._over and run not in self._leases:
            lease = _Lease(client, least, most, self._now(), number=next(self._numbers), method=str(method))
            lease.changed, lease.keys, lease.resources = self._monotonic(), tuple(keys), resources
            lease.without = frozenset(without)
            self._leases[run] = lease
        if run in self._leases:
            self._leases[run].among = None if among is None else frozenset(among)
        while True:
            self._changed.clear()
            self._serve()
            found = self._leases.get(run)  # None: it was interrupted, or its client has gone
            if found is None or found.workers or self._monotonic() > end:
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)
        there = self._there(frozenset(without))
        taken = {address: there.get(address, "") for address in (found.workers if found else ())}
        return {"workers": taken, "all": sorted(there), "adaptive": self._is_adaptive(), "room": self._room(taken)}

    def _room(self, addresses: Iterable[str]) -> int | None:
        known = self._scheduler.workers
        limited = [known[address] for address in addresses if address in known and known[address].memory_limit]
        return min(
            (unspilled(each.memory_limit, each.metrics.get("memory", 0) - each.nbytes) for each in limited),
            default=None,
        )

    async def give_back(self, run: str) -> bool:
        """End a run's lease, or its wait for one."""
        self._over.append(run)
        self._forget(run)
        self._changed.set()
        return True  # as None would mean that there is no such operation

    async def waits(self, keys: list[Any]) -> dict[Any, dict[str, Any]]:
        """Tell why tasks have not begun."""
        return waits_of(self._scheduler, keys)

    async def keep(self, session: str, client: str, workers: dict[str, str], end: dict[str, Any]) -> bool:
        """Note a session that is about to open; those that had one of its workers are over."""
        self._sessions.keep(session, client, workers, end)
        return True

    async def end(self, session: str) -> bool:
        """End a session on all of its workers."""
        self._sessions.end(session)
        return True

    async def watch(self, workers: list[str], seconds: float) -> dict[str, float]:
        """Wait until one of these workers is not there, or for so long.

        Returns
        -------
        dict
            When the scheduler has heard last from each worker that is there, by address.
        """
        end = self._monotonic() + seconds
        while True:
            left, known = self._left, self._scheduler.workers
            there = {address: known[address].last_seen for address in workers if address in known}
            remaining = end - self._monotonic()
            if len(there) < len(workers) or remaining <= 0:
                return there
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(left.wait(), remaining)

    def adaptive_target(self, target_duration: Any = None) -> int:
        """Number of workers that the cluster should have: what Dask says, or what runs have and wait for.

        Pages that show this number and start no worker give no duration. They do not make a cluster adaptive.
        """
        if target_duration is not None:
            self._adaptive = self._monotonic()
        return max(int(self._target(target_duration)), self._wanted())

    def scale_target(self, target_duration: Any = None) -> int:
        """`adaptive_target` for another process, which starts workers: no page asks from there."""
        self._adaptive = self._monotonic()
        return self.adaptive_target(target_duration)

    def log_event(self, topic: str, msg: Any) -> None:
        """Note how far a run is; Dask tells of all events."""
        if topic == TOPIC and isinstance(msg, dict):
            lease = self._leases.get(str(msg.get("run")))
            if lease is not None:
                lease.event = msg

    def runs(self) -> dict[str, Any]:
        """Summary for people: runs that compute, that wait and for what, some that have ended, and the workers."""
        there, leases = self._there(), list(self._leases.values())
        waiting = [lease for lease in leases if not lease.workers]
        of = {address: lease.number for lease in leases for address in lease.workers}
        return {
            "running": [self._shown(lease) for lease in leases if lease.workers],
            "waiting": [
                {**self._shown(lease), "waits_for": self._waits_for(lease, waiting[:i], len(lease.of(there)), of)}
                for i, lease in enumerate(waiting)
            ],
            "ended": list(reversed(self._ended)),
            "workers": [
                {
                    "address": worker.address,
                    "name": worker.name,
                    "run": of.get(worker.address, 0),
                    "memory": worker.metrics.get("memory"),
                    "memory_limit": worker.memory_limit,
                    "gpu_memory": worker.metrics.get("gpu_memory_used"),
                    "gpu_memory_total": worker.metrics.get("gpu-memory-total"),
                    "gpu_percent": worker.metrics.get("gpu_utilization"),
                }
                for worker in sorted(self._scheduler.workers.values(), key=lambda each: each.address)
            ],
        }

    def _shown(self, lease: _Lease) -> dict[str, Any]:
        event = lease.event
        figures = [(name, value) for name, value in event.items() if name not in NO_FIGURES and value is not None]
        return {
            "number": lease.number,
            "method": lease.method,
            "client": lease.client,
            "host": self._host_of(lease.client),
            "least": lease.least,
            "most": lease.most,
            "workers": list(lease.workers),
            "stage": event.get("stage", "begins" if lease.workers else ""),
            "fraction": event.get("fraction"),
            "figures": dict(figures[:FIGURES]),
            "seconds": self._monotonic() - lease.changed,
        }

    def _host_of(self, client: str) -> str:
        """Address from which a client is connected, where Dask says so."""
        try:
            return str(get_address_host(self._scheduler.client_comms[client].comm.peer_address))
        except Exception:
            return ""

    def _waits_for(self, lease: _Lease, ahead: list[_Lease], there: int, of: dict[str, int]) -> str:
        """Say what a run that waits needs, and who has it."""
        if there < lease.least:
            return f"workers to start: {there} of {lease.least} are there"
        numbers = sorted(set(of.values()))
        reasons = []
        if numbers:
            reasons.append(f"the workers of {', '.join(f'#{number}' for number in numbers)}")
        if before := [each.number for each in ahead if each.least <= there]:
            reasons.append(f"its turn after {', '.join(f'#{number}' for number in before)}")
        if there < lease.most and self._is_adaptive():
            reasons.append(f"workers to start, for a few seconds: {there} are there")
        return "; ".join(reasons) or "its turn"

    def _forget(self, run: str) -> None:
        """End a lease; what had workers stays on the page for a while."""
        lease = self._leases.pop(run, None)
        if lease is not None and lease.workers and lease.method:
            self._ended.append(self._shown(lease))

    def _wanted(self) -> int:
        return sum(len(lease.workers) or lease.most + len(lease.without) for lease in self._leases.values())

    def valid_workers_downscaling(self, scheduler: Any, workers: list[Any]) -> list[Any]:
        """Workers that may be retired: those that no run has."""
        leased = set(chain.from_iterable(lease.workers for lease in self._leases.values()))
        return [worker for worker in workers if worker.address not in leased]

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """A worker has come."""
        self._joined = self._now()
        if len(scheduler.workers) > self._grown:
            self._grown = 0
        self._changed.set()

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """A worker has gone, and each session with it."""
        self._sessions.end_of_worker(worker)
        self._left.set()
        self._left = asyncio.Event()
        self._changed.set()

    def remove_client(self, scheduler: Any, client: str) -> None:
        """A client has gone, and with it what it had."""
        self._sessions.end_of_client(client)
        self._drop(client)

    def _drop(self, client: str) -> None:
        for run, lease in list(self._leases.items()):
            if lease.client == client:
                self._forget(run)
        self._heard.pop(client, None)
        self._changed.set()

    def _there(self, without: frozenset[str] = frozenset()) -> dict[str, str]:
        """Identities of all workers that take tasks, by address; but for some."""
        running = self._scheduler.running
        return {worker.address: worker.server_id for worker in running if worker.server_id not in without}

    def _is_adaptive(self) -> bool:
        return self._adaptive is not None and self._monotonic() - self._adaptive < ADAPTIVE_SECONDS

    def _now(self) -> float:
        now = self._monotonic()
        self._clock += min(now - self._looked, LONGEST_STEP_SECONDS)
        self._looked = now
        return self._clock

    def _serve(self) -> None:
        """Give workers to runs whose turn has come."""
        now = self._now()
        self._drop_silent(now)
        there = self._there()
        free = set(there).difference(*(lease.workers for lease in self._leases.values()))
        waiting = [
            lease for lease in self._leases.values() if not lease.workers and lease.least <= len(lease.of(there))
        ]
        sharing = sum(lease.least < lease.most for lease in waiting)
        for lease in waiting:  # those that ask for more than there is delay no other
            mine = lease.of(there) & free
            size = self._share(lease, len(mine), len(lease.of(there)), sharing, now) if mine else 0
            if size:
                sharing -= lease.least < lease.most
                lease.workers, lease.changed = self._chosen(lease, mine, size, there), self._monotonic()
            free.difference_update(lease.workers or mine)  # those behind it wait for workers that it may have

    def _chosen(self, lease: _Lease, free: set[str], size: int, there: dict[str, str]) -> list[str]:
        """Workers for a run: those that its client has connected, unless others are idler or hold more of its rows."""
        costs = costs_of(self._scheduler, free, lease.keys, lease.resources)
        best = cheapest(costs, size)
        connected = self._sessions.connected(lease.client, free, size, there)
        return connected if connected and total(costs, connected) <= total(costs, best) else best

    def _share(self, lease: _Lease, free: int, there: int, sharing: int, now: float) -> int:
        """Number of workers that the first run in the queue is given; 0: it waits on."""
        if lease.least == lease.most:
            return lease.most if lease.most <= free else 0
        grows = self._is_adaptive() and not 0 < self._grown <= there
        wanted = lease.most if grows else min(lease.most, there)
        waited = now - max(lease.since, self._joined if grows else 0.0)
        if free < wanted and waited < WAIT_LIMIT_SECONDS:
            return 0
        if grows and there < self._wanted():
            self._grown = there
        share = max(lease.least, -(-free // max(1, sharing)))
        return min(wanted, share) if lease.least <= free else 0

    def _drop_silent(self, now: float) -> None:
        """Drop what clients have that have not been heard of for long, while this process ran."""
        for client in {lease.client for lease in self._leases.values()}:
            state = self._scheduler.clients.get(client)
            if state is None:
                self._drop(client)
                continue
            heard, since = self._heard.get(client, (0.0, now))
            if heard != state.last_seen:
                heard, since = state.last_seen, now
            self._heard[client] = heard, since
            if now - since > CLIENT_TIMEOUT_SECONDS:
                self._drop(client)
