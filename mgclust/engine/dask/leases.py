"""Leases of workers, kept on the scheduler, so that runs of all clients use disjoint workers.

This is a plugin of the scheduler. The first client sends it by value, so the scheduler needs no mgclust. Therefore only
modules that are sent with it are imported here (`runs_page`, `session_registry`, `worker_costs`), and clients call
operations that take and return plain values. `mgclust.engine.dask.scheduler` is the clients' side, and lists the
modules that are sent.

Runs are served in the order of their arrival. If a run requests a number of workers, it waits until this number is
free, and the runs behind it also wait. A run without a number takes the free workers, up to the number of workers that
existed when it came. It starts at once if all of these workers are free, else after `WAIT_LIMIT_SECONDS`, because
workers may be given back or started in the meantime. If several runs without a number wait, they share the free
workers. An adaptive cluster is told how many workers the waiting runs need, and does not retire leased workers.

Progress events of ranks pass through the scheduler, so the scheduler can show all runs
(`mgclust.engine.dask.runs_page`).

A lease ends with its run, or when the connection of its client is closed, or when its client has been silent for
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

__all__ = ["PREFIX", "Leases"]

PREFIX = "mgclust_3_"  # prefix of the names of operations; its number changes with their arguments

CLIENT_TIMEOUT_SECONDS = 60.0  # seconds; clients send a heartbeat every five seconds
LOOK_SECONDS = 0.2  # seconds between two checks of workers and clients
LONGEST_STEP_SECONDS = 2.0  # longest time that counts between two checks, because the process may have been stopped
WAIT_LIMIT_SECONDS = 5.0  # seconds that a run without a number waits for more workers than are free
ADAPTIVE_SECONDS = 60.0  # seconds for which a cluster counts as adaptive after it requested the number of workers
REMEMBERED_RUNS = 10_000  # ended runs that are remembered, because their requests may come late
SHOWN_RUNS = 20  # ended runs that the page shows
TOPIC = "mgclust-progress"  # topic of the events of ranks, as in `mgclust.engine.dask.tasks`
FIGURES = 12  # values of an event that are shown
NO_FIGURES = ("run", "worker", "stage", "fraction", "elapsed")  # entries of an event that are not values to show


@dataclass
class _Lease:
    """Request of a run for workers, and the workers that it got."""

    client: str
    least: int  # smallest number of workers with which the run begins
    most: int  # largest number of workers that the run takes
    since: float
    among: frozenset[str] | None = None  # addresses of workers that it may use; None: all
    keys: tuple[Any, ...] = ()  # keys of the chunks of its rows, if Dask has them
    resources: dict[str, float] | None = None  # resources of Dask that each rank takes
    workers: list[str] = field(default_factory=list)
    number: int = 0  # number that the page shows, in order of arrival
    method: str = ""  # empty: not a run yet, but a client that looks for workers
    changed: float = 0.0  # time at which the request came, or at which it got its workers
    event: dict[str, Any] = field(default_factory=dict)  # last event of its progress
    without: frozenset[str] = frozenset()  # identities of workers that it does not use

    def of(self, there: Mapping[str, str]) -> set[str]:
        """Return addresses of workers that the run may use; `there` has the identities of all workers by address."""
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
        Clock that returns seconds.
    turn : float
        Seconds until a waiting run gets the answer that its turn has not come.
    """

    name = "mgclust-leases"
    idempotent = True

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, turn: float = 0.5) -> None:
        self._monotonic, self._turn = monotonic, turn
        self._leases: dict[str, _Lease] = {}  # leases by run, in order of arrival
        self._over: deque[str] = deque(maxlen=REMEMBERED_RUNS)
        self._numbers = count(1)
        self._ended: deque[dict[str, Any]] = deque(maxlen=SHOWN_RUNS)
        self._heard: dict[
            str, tuple[float, float]
        ] = {}  # heartbeat of each client, and the time since which it has not changed
        self._clock = self._looked = 0.0  # seconds during which this process ran, as far as the checks show
        self._adaptive: float | None = None  # when the cluster last requested the number of workers
        self._grown = 0  # number of workers beyond which an adaptive cluster did not grow
        self._joined = 0.0  # when the last worker joined

    def start(self, scheduler: Any) -> None:
        """Start; Dask calls this. It is not a coroutine: another client's plugin could arrive while it is awaited."""
        self._scheduler = scheduler
        self._sessions = SessionRegistry(scheduler)
        self._changed = asyncio.Event()
        self._left = asyncio.Event()  # set when a worker leaves, and then replaced by a new event
        # Dask has no public hooks for two things, so they are set here, and only here: the number of workers that an
        # adaptive cluster should have, and operations for clients.
        self._target = scheduler.adaptive_target
        scheduler.adaptive_target = self.adaptive_target  # for requests in this process, e.g. from Dask Gateway
        scheduler.handlers.update(
            {
                "adaptive_target": self.scale_target,
                **{
                    f"{PREFIX}{name}": getattr(self, name)
                    for name in ("ask", "give_back", "waits", "keep", "end", "watch", "unknown")
                },
            }
        )
        with contextlib.suppress(Exception):  # a run must not fail if the page does not fit a later version of Dask
            add_page(scheduler, self.runs)

    async def close(self) -> None:
        """Stop when the scheduler ends."""
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
        """Queue a run, unless it is queued already; wait until its turn has come, or return after a while.

        `method` is the name that the page shows. The run may use the workers `among`, as given by its last request,
        except silent workers, whose identities are in `without`. The first request has the `keys` of the chunks of the
        run's rows, and the `resources` that each rank takes.

        Returns
        -------
        dict
            ``workers``: identities of the run's workers by address (each process has its own identity); if empty, call
            this again. ``all``: addresses of all workers that the run could use. ``adaptive``: whether the cluster
            grows on demand. ``memory``: for each of the run's workers with a memory limit, this limit and the bytes in
            use that Dask cannot write to disk.
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
            found = self._leases.get(run)  # None: the run was interrupted, or its client has gone
            if found is None or found.workers or self._monotonic() > end:
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)
        there = self._there(frozenset(without))
        taken = {address: there.get(address, "") for address in (found.workers if found else ())}
        return {"workers": taken, "all": sorted(there), "adaptive": self._is_adaptive(), "memory": self._memory(taken)}

    def _memory(self, addresses: Iterable[str]) -> list[tuple[int, int]]:
        known = self._scheduler.workers
        limited = [known[address] for address in addresses if address in known and known[address].memory_limit]
        return [(each.memory_limit, each.metrics.get("memory", 0) - each.nbytes) for each in limited]

    async def give_back(self, run: str) -> bool:
        """End a run's lease, or its wait for a lease."""
        self._over.append(run)
        self._forget(run)
        self._changed.set()
        return True  # None would mean that there is no such operation

    async def waits(self, keys: list[Any]) -> dict[Any, dict[str, Any]]:
        """Return why tasks have not begun."""
        return waits_of(self._scheduler, keys)

    async def keep(self, session: str, client: str, workers: dict[str, str], end: dict[str, Any]) -> bool:
        """Record a session that is about to open; end older sessions of its workers."""
        self._sessions.keep(session, client, workers, end)
        return True

    async def end(self, session: str) -> bool:
        """End a session on all of its workers."""
        self._sessions.end(session)
        return True

    async def watch(self, workers: list[str], seconds: float) -> dict[str, float]:
        """Wait until one of these workers has left, at most for `seconds`.

        Returns
        -------
        dict
            Time of the last heartbeat of each worker that is still there, by address.
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

    async def unknown(self, clients: list[str]) -> list[str]:
        """Return which of these clients, given by their ids, are not connected to this scheduler."""
        return [each for each in clients if each not in self._scheduler.clients]

    def adaptive_target(self, target_duration: Any = None) -> int:
        """Number of workers that the cluster should have: Dask's number, or the number that runs have or wait for.

        The result is the larger number. Pages that show this number and start no workers pass no duration, so they do
        not make a cluster adaptive.
        """
        if target_duration is not None:
            self._adaptive = self._monotonic()
        return max(int(self._target(target_duration)), self._wanted())

    def scale_target(self, target_duration: Any = None) -> int:
        """Return `adaptive_target` to another process, which starts workers; pages do not call this."""
        self._adaptive = self._monotonic()
        return self.adaptive_target(target_duration)

    def log_event(self, topic: str, msg: Any) -> None:
        """Record the progress of a run; Dask calls this for all events."""
        if topic == TOPIC and isinstance(msg, dict):
            lease = self._leases.get(str(msg.get("run")))
            if lease is not None:
                lease.event = msg

    def runs(self) -> dict[str, Any]:
        """Summarize for the page: running runs, waiting runs and why they wait, some ended runs, and the workers."""
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
        """Return the address from which a client is connected; empty if Dask does not know it."""
        try:
            return str(get_address_host(self._scheduler.client_comms[client].comm.peer_address))
        except Exception:
            return ""

    def _waits_for(self, lease: _Lease, ahead: list[_Lease], there: int, of: dict[str, int]) -> str:
        """Describe what a waiting run needs, and which run has it."""
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
        """End a lease. A run that had workers stays on the page for a while."""
        lease = self._leases.pop(run, None)
        if lease is not None and lease.workers and lease.method:
            self._ended.append(self._shown(lease))

    def _wanted(self) -> int:
        return sum(len(lease.workers) or lease.most + len(lease.without) for lease in self._leases.values())

    def valid_workers_downscaling(self, scheduler: Any, workers: list[Any]) -> list[Any]:
        """Return the workers that may be retired, because no run uses them."""
        leased = set(chain.from_iterable(lease.workers for lease in self._leases.values()))
        return [worker for worker in workers if worker.address not in leased]

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Record that a worker has joined."""
        self._joined = self._now()
        if len(scheduler.workers) > self._grown:
            self._grown = 0
        self._changed.set()

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """End the sessions of a worker that has left."""
        self._sessions.end_of_worker(worker)
        self._left.set()
        self._left = asyncio.Event()
        self._changed.set()

    def remove_client(self, scheduler: Any, client: str) -> None:
        """End the leases and sessions of a client that has left."""
        self._sessions.end_of_client(client)
        self._drop(client)

    def _drop(self, client: str) -> None:
        for run, lease in list(self._leases.items()):
            if lease.client == client:
                self._forget(run)
        self._heard.pop(client, None)
        self._changed.set()

    def _there(self, without: frozenset[str] = frozenset()) -> dict[str, str]:
        """Return the identities of all workers that take tasks, by address, except the identities in `without`."""
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
        for lease in waiting:  # runs that request more workers than there are do not delay others
            mine = lease.of(there) & free
            size = self._share(lease, len(mine), len(lease.of(there)), sharing, now) if mine else 0
            if size:
                sharing -= lease.least < lease.most
                lease.workers, lease.changed = self._chosen(lease, mine, size, there), self._monotonic()
            free.difference_update(lease.workers or mine)  # runs behind it must wait for workers that it may use

    def _chosen(self, lease: _Lease, free: set[str], size: int, there: dict[str, str]) -> list[str]:
        """Choose a run's workers: workers that its client has connected, unless others are idler or hold more rows."""
        costs = costs_of(self._scheduler, free, lease.keys, lease.resources)
        best = cheapest(costs, size)
        connected = self._sessions.connected(lease.client, free, size, there)
        return connected if connected and total(costs, connected) <= total(costs, best) else best

    def _share(self, lease: _Lease, free: int, there: int, sharing: int, now: float) -> int:
        """Return the number of workers that the first run in the queue gets; 0: the run continues to wait."""
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
        """End the leases of clients that have sent no heartbeat for long while this process ran."""
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
