"""The caller's side of a run on Dask workers.

Dask places tasks, sends parameters and rows, and reports dead workers; the ranks communicate without Dask. The caller's
thread waits at the queue of `mgclust.engine.dask.run_monitor`.

A run is one task per rank. Before the client's first run on some workers, their ranks are connected, and the
connections are kept for later runs (`mgclust.engine.dask.sessions`). If a connection was lost in the meantime, and this
is noticed before any rank has begun, the run connects the ranks again, but only once. Every wait for a scheduler or a
silent worker has a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import secrets
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

import dask
from distributed import Client, Future, futures_of
from distributed.comm.addressing import get_address_host
from distributed.protocol.pickle import dumps

from mgclust.base.by_value import by_value
from mgclust.base.dask_arrays import is_dask
from mgclust.base.errors import CollectiveTimeout, MgclustError, RunCancelled, RunFailed, WorkerLost
from mgclust.base.progress import WAITING
from mgclust.data import Dataset, open_dataset
from mgclust.engine.checkpoint_memory import MemoryCheckpoint, files_of
from mgclust.engine.context import Emit
from mgclust.engine.dask import cluster as clusters
from mgclust.engine.dask import collections, scheduler, sessions, task_starts, tasks
from mgclust.engine.dask.candidates import candidates_of
from mgclust.engine.dask.cluster import Cluster
from mgclust.engine.dask.placement import Rows, check_workers, chunks_of, place, place_beside
from mgclust.engine.dask.run_monitor import WATCH_POLL_SECONDS, RunMonitor
from mgclust.engine.memory import unspilled
from mgclust.engine.partition import Partition
from mgclust.engine.rank import Done, RankAssignment, Report, gathered, refuse
from mgclust.engine.retries import AttemptStart, HeldCheckpoint
from mgclust.engine.rows import share_of
from mgclust.engine.transport.wire import PeerLost, SessionLost, too_late, waited_for

__all__ = ["Driver"]

STOP_GRACE_SECONDS = 20.0  # seconds after which stopped ranks are no longer awaited
NOTIFY_LIMIT_SECONDS = 5.0  # seconds that a notification of ranks may take
# Reasons for which Dask itself cancels a task; None: the client's event loop ended. All other reasons are from a caller
# of `Client.cancel`.
LOSSES = {None, "already forgotten", "lost dependencies", "scheduler-connection-lost", "scheduler-restart"}


class Driver:
    """One run. Use it as a context manager: it leases the workers, and no other run uses them inside the block.

    Parameters
    ----------
    cluster : Cluster
        A cluster with a client.
    first : RankAssignment
        Assignment of rank 0 of a run on one rank. The assignments of the ranks are copies of it with another partition,
        rank and host.
    least, most : int
        Smallest and largest number of ranks.
    on_progress : callable or None
        See `mgclust.engine.spmd.run`.
    rows : Dataset, optional
        Rows near which the ranks should be placed.
    start : AttemptStart, optional
        Checkpoint and workers of this attempt, if the run has lost a worker before.

    Attributes
    ----------
    size : int
        Number of ranks.
    there : int
        Number of workers that the run could have used when it began.
    adaptive : bool
        Whether the cluster starts and retires workers by itself.
    leased : bool
        Whether the run has leased its workers.
    monitor : RunMonitor
        Receives the events of the run's workers, and checks that the workers are alive.
    checkpoint : HeldCheckpoint or None
        Last checkpoint in memory.
    """

    def __init__(
        self,
        cluster: Cluster,
        first: RankAssignment,
        least: int,
        most: int,
        on_progress: Emit | None,
        rows: Dataset | None = None,
        start: AttemptStart | None = None,
    ) -> None:
        self._client: Client = cluster.client
        self._least, self._most = least, most
        self._among, self._rules, self._rows = list(cluster.workers), cluster.rules, rows
        self.size, self.there, self.adaptive, self.leased = least, 0, False, False
        self._first = first
        self._identities: dict[str, str] = {}  # identities of the run's workers by address
        self._room: int | None = None  # bytes that may be sent to each worker; None: no limit
        self._session: sessions.Kept | None = None
        self._all_workers: list[str] = []
        self._run = first.run
        self._start = start or AttemptStart()
        self.checkpoint = self._start.checkpoint
        self._fetching: threading.Thread | None = None
        self._on_progress = on_progress
        heard = on_progress is not None or isinstance(first.spec.checkpoint, MemoryCheckpoint)
        self.monitor = RunMonitor(cluster.client, first.run, self._receive if heard else None)
        # Name of the method, by which the dashboard groups the tasks.
        self._method = first.spec.function.__name__.strip("_").replace("_", "-")
        self._clean = True
        self._connecting = 0.0  # seconds spent on connecting the ranks

    def __enter__(self) -> Driver:
        try:
            self._wait_for_workers()
            self.monitor.subscribe()
            sessions.in_use(self._client)
        except BaseException:
            self._give_back()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, MgclustError):
            # A reference cycle through the frames would keep chunks on workers until garbage collection.
            traceback.clear_frames(trace)
        if not self._clean:
            self._abandon()
        self.monitor.unsubscribe()
        sessions.used(self._client, sessions.ADAPTIVE_IDLE_SECONDS if self.adaptive else sessions.IDLE_SECONDS)
        self._give_back()

    def run(
        self, dataset: Dataset, beside: Dataset | None
    ) -> tuple[Any, dict[str, Any], dict[str, float], list[Report]]:
        """Load and run on all ranks; return rank 0's value, all ranks' arrays, seconds by stage, and all reports."""
        self._clean = False
        began = time.perf_counter()
        self.monitor.progress({"stage": "load", "fraction": 0.0, "elapsed": 0.0})
        if self._room is not None:
            check_workers(self._first, dataset, beside, self.size, self._room)
        self._session = sessions.find(self._client, self._identities) if self.size > 1 else None
        kept = self._session.workers if self._session else self._identities
        self.monitor.workers = list(kept)
        # Workers that compute chunks of a Dask array may be silent for as long as Dask allows.
        computing = any(rows is not None and rows.dask_array is not None for rows in (dataset, beside))
        placed_rows = self.monitor.watched(
            place, self._client, dataset, self._first.partition, kept, silence=not computing
        )
        self.monitor.workers, sources, self.monitor.holders = placed_rows
        if self.monitor.workers != list(kept):
            self._session = None
        others: list[Rows] = []
        if beside is not None:
            shares = [share_of(beside.shape[0], rank, self.size) for rank in range(self.size)]
            others = self.monitor.watched(
                place_beside, self._client, beside, self.monitor.workers, shares, silence=not computing
            )
        spec = self._first.spec
        any_whole = any(is_dask(value) for value in spec.arguments.values())
        whole = self.monitor.watched(self._whole_arguments, silence=False) if any_whole else {}
        by_row = self.monitor.watched(self._row_arguments, silence=False) if spec.row_arguments else {}
        saved = self.monitor.watched(self._saved) if self._start.checkpoint else [None] * self.size
        placed = time.perf_counter()
        if self._session is None:
            self._connect()
            done = self._compute(sources, others, whole, by_row, saved)
        else:
            try:
                done = self._compute(sources, others, whole, by_row, saved)
            except SessionLost:
                self._abandon()
                self.monitor.subscribe()
                self._connect()
                done = self._compute(sources, others, whole, by_row, saved)
        self._clean = True  # each rank has freed its rows, and the connections are intact
        reports = [each.report for each in done]
        refuse(reports, dataset.shape, self._first.spec)
        arrays = self._arrays(done, beside or dataset)
        timings = {"place": placed - began, "load": reports[0].seconds, **done[0].timings}
        timings["connect"] = timings.get("connect", 0.0) + self._connecting
        timings["dask"] = time.perf_counter() - placed - self._connecting - done[0].seconds
        return done[0].value, arrays, timings, reports

    def _whole_arguments(self) -> dict[str, list[Future]]:
        """Return the chunks of arguments that are Dask arrays; they are sent separately from the other arguments."""
        spec = self._first.spec
        arrays = {name: value for name, value in spec.arguments.items() if is_dask(value)}
        others = {name: value for name, value in spec.arguments.items() if name not in arrays}
        self._first = replace(self._first, spec=replace(spec, arguments=others))
        return {name: chunks_of(self._client, array)[0] for name, array in arrays.items()}

    def _row_arguments(self) -> dict[str, list[Rows]]:
        """Return the ranks' parts of arguments with one number per row, sent as columns in addition to the rows."""
        spec, partition = self._first.spec, self._first.partition
        shares = [partition.rows_of(rank) for rank in range(self.size)]
        columns = {name: open_dataset(array[:, None]) for name, array in spec.row_arguments.items()}
        self._first = replace(self._first, spec=replace(spec, row_arguments={}))
        return {
            name: place_beside(self._client, column, self.monitor.workers, shares) for name, column in columns.items()
        }

    def _saved(self) -> list[Any]:
        """Send each rank its files of the checkpoint from which the run resumes."""
        kept, partition = self._start.checkpoint, self._first.partition
        assert kept is not None
        parts = [files_of(kept.files, partition.blocks_of(rank)) for rank in range(self.size)]
        return [
            self._client.scatter([part], workers=[address], hash=False)[0]
            for part, address in zip(parts, self.monitor.workers, strict=True)
        ]

    def _receive(self, event: dict[str, Any]) -> None:
        """Pass on an event; if it reports a checkpoint, fetch the checkpoint."""
        number = event.pop("checkpoint", None)
        if self._on_progress is not None:
            self._on_progress(event)
        if number is None or (self._fetching is not None and self._fetching.is_alive()):
            return
        self._fetching = threading.Thread(target=self._fetch_checkpoint, args=(number, time.monotonic()), daemon=True)
        self._fetching.start()

    def _fetch_checkpoint(self, number: int, saved: float) -> None:
        """Fetch the files of a checkpoint from all ranks; if a rank has none, the previous checkpoint is kept."""
        ranks = {address: rank for rank, address in enumerate(self.monitor.workers)}
        how = {"workers": list(ranks), "on_error": "return", "callback_timeout": scheduler.ANSWER_SECONDS}
        with contextlib.suppress(Exception):  # the run itself will notice errors
            parts = list(self._client.run(tasks.checkpoint_of, self._run, ranks, number, **how).values())
            if len(parts) == self.size and all(isinstance(part, dict) for part in parts):
                self.checkpoint = HeldCheckpoint({name: each for part in parts for name, each in part.items()}, saved)

    def silent(self) -> frozenset[str]:
        """Return the identities of the workers whose heartbeat timeout ended the run."""
        return frozenset(self._identities[address] for address in self.monitor.silent)

    def _arrays(self, done: list[Done], rows: Dataset) -> dict[str, Any]:
        """Return the arrays that the ranks have delivered; they have one row for each row of `rows`."""
        if not self._first.keep_on_workers:
            return gathered(done)
        parts = [each.delivered for each in done]
        try:
            arrays: dict[str, Any] = self.monitor.watched(
                collections.left_on_workers, self._client, self._run, self.monitor.workers, parts, rows
            )
            return arrays
        except collections.PartLost as error:
            raise self.monitor.lost(self.monitor.workers.index(str(error))) from None
        except (KeyError, OSError) as error:  # the scheduler does not know a worker any more, or has ended
            raise RunFailed(f"arrays of the result could not be left on the workers: {error!r}. Run again.") from None

    def _connect(self) -> None:
        """Open a session of the run's workers, if there are several; the client keeps it."""
        if self.size == 1:
            return
        began = time.perf_counter()
        name, ranks = secrets.token_hex(16), {address: rank for rank, address in enumerate(self.monitor.workers)}
        session = sessions.Kept(name, {address: self._identities[address] for address in ranks})
        self._session = session
        end = {"function": dumps(tasks.end_session), "args": dumps((name,)), "kwargs": dumps({})}
        given = {"client": self._client.id, "workers": session.workers, "end": end}
        scheduler.ask(self._client, "keep", session=name, **given)
        ports = self._call(tasks.expect, name, ranks)
        hosts = [get_address_host(address) for address in self.monitor.workers]
        addresses = list(zip(hosts, ports, strict=True))
        key, timeout = secrets.token_bytes(32), self._first.spec.timeout
        self._call(tasks.open_session, name, ranks, addresses, key, timeout)
        sessions.keep(self._client, session)
        self._connecting = time.perf_counter() - began

    def _call(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a function on each rank's worker, next to its tasks; return the values in rank order."""
        events = self.monitor.events

        async def call(rank: int, address: str) -> None:
            try:  # in the event loop, where ``run`` returns a coroutine
                value = (await self._client.run(function, *arguments, workers=[address], on_error="return"))[address]
            except (Exception, asyncio.CancelledError) as error:
                value = error
            events.put((rank, value))

        for rank, address in enumerate(self.monitor.workers):
            self._client.loop.add_callback(call, rank, address)
        values: dict[int, Any] = {}
        while len(values) < self.size:
            event = self.monitor.next([rank for rank in range(self.size) if rank not in values])
            if isinstance(event, tuple):
                rank, value = event
                if isinstance(value, OSError):
                    raise self.monitor.lost(rank)
                if isinstance(value, tasks.Failure):
                    value = value.error
                if isinstance(value, BaseException):
                    raise value
                values[rank] = value
        return [values[rank] for rank in range(self.size)]

    def _compute(
        self,
        sources: list[Rows],
        others: list[Rows],
        whole: dict[str, list[Future]],
        by_row: dict[str, list[Rows]],
        saved: list[Any],
    ) -> list[Done]:
        """Run one pinned task per rank; return their results in rank order, or raise the most informative exception."""
        futures: dict[int, Future] = {}
        session = self._session.name if self._session else ""
        # Other runs may share the hosts, so each rank uses its fraction of a host even if the run has no other worker
        # there.
        on_host = Counter(get_address_host(address) for address in self._all_workers)
        try:
            with self._span():
                for rank, address in enumerate(self.monitor.workers):
                    assignment = replace(self._first, rank=rank, neighbours=on_host[get_address_host(address)])
                    (source, arrays), (source_beside, arrays_beside) = (
                        sources[rank],
                        others[rank] if others else (None, None),
                    )
                    columns = {name: parts[rank][0] for name, parts in by_row.items()}
                    task = partial(tasks.run_task, session, assignment, address, source, source_beside, columns)
                    future = self._client.submit(
                        by_value(task),
                        arrays,
                        arrays_beside,
                        whole,
                        {name: parts[rank][1] for name, parts in by_row.items()},
                        saved[rank],
                        key=f"mgclust-{self._method}-{self._run}-{session}-{rank}",
                        workers=[address],
                        resources=self._rules.resources,
                        allow_other_workers=False,
                        pure=False,
                        retries=0,
                        priority=10,
                    )
                    futures[rank] = future
                    self._client.loop.add_callback(self._fetch, rank, future, self.monitor.events)
            return self._collect(dict(futures))
        except BaseException as error:
            self._stop(futures, error)
            raise
        finally:
            for future in futures.values():
                future.release()

    def _span(self) -> contextlib.AbstractContextManager[Any]:
        """Let Dask count all runs of a method and client as one span, unless the caller has begun a span.

        Otherwise each run would be a span of its own, and every worker would keep the times of its stages forever.
        """
        if dask.get_annotations().get("span"):
            return contextlib.nullcontext()
        ids: dict[str, str] = vars(self._client).setdefault("mgclust_spans", {})
        name = ("mgclust", self._method)
        span = {"name": name, "ids": tuple(ids.setdefault(tag, str(uuid.uuid4())) for tag in name)}
        context: contextlib.AbstractContextManager[Any] = dask.annotate(span=span)
        return context

    def _abandon(self) -> None:
        """Drop the session, whatever state it is in."""
        if self._session is not None:
            session, self._session = self._session, None
            sessions.drop(self._client, session)

    async def _fetch(self, rank: int, future: Future, events: queue.SimpleQueue) -> None:
        """Wait for the result of a task in the client's event loop, in which Dask fetches several results at once."""
        try:
            outcome = await self._client.gather(future)
        except (Exception, asyncio.CancelledError) as error:
            outcome = error
        events.put((rank, outcome))

    def _collect(self, pending: dict[int, Future]) -> list[Any]:
        values: dict[int, Any] = {}
        look = time.monotonic() + task_starts.START_SECONDS
        while pending:
            event = self.monitor.next(pending)
            if time.monotonic() > look:
                task_starts.look_at_ranks(self._client, pending)
                look = math.inf
            if isinstance(event, tuple) and event[0] in pending:
                rank, outcome = event
                values[rank] = self._value(rank, pending.pop(rank), outcome)
                if not isinstance(getattr(values[rank], "error", None), (SessionLost, WorkerLost)):
                    self.monitor.begun = True
                if isinstance(values[rank], tasks.Failure):
                    raise self._reason(values, pending)
        return [values[rank] for rank in sorted(values)]

    def _value(self, rank: int, future: Future, outcome: Any) -> Any:
        """Return the result of a finished task; if Dask itself ended the task, return a Failure."""
        if not isinstance(outcome, BaseException):
            return outcome
        if future.status == "finished":
            if not isinstance(outcome, OSError):
                raise outcome
            return tasks.Failure(self.monitor.in_words(outcome))
        if future.status == "error" and type(outcome).__name__ != "KilledWorker":
            return tasks.Failure.of(outcome, rank, self.monitor.workers[rank])
        reason: Any = getattr(outcome, "reason", None)
        if future.status == "cancelled" and reason not in LOSSES:
            return tasks.Failure(self.monitor.cancelled(rank, reason))
        return tasks.Failure(self.monitor.lost(rank))

    def _reason(self, values: dict[int, Any], pending: dict[int, Future]) -> BaseException:
        """Find why the run failed: the first failure is often only a consequence of another rank's failure."""
        self._tell(tasks.stop, self._run, "another rank failed")
        end = time.monotonic() + WATCH_POLL_SECONDS + 1.0
        while True:
            failures = [value.error for value in values.values() if isinstance(value, tasks.Failure)]
            causes = [error for error in failures if not isinstance(error, (PeerLost, RunCancelled))]
            lost: list[BaseException] = [error for error in causes if isinstance(error, WorkerLost)]
            lost += self._restarted(values)
            clear = [error for error in causes if not isinstance(error, CollectiveTimeout)]
            if lost or clear or not pending or time.monotonic() > end:
                if not lost and not clear:
                    try:
                        self.monitor.look(
                            range(self.size), now=True
                        )  # the scheduler ends the session of a worker that has left
                    except (WorkerLost, RunFailed) as error:
                        return error
                before = [error for error in failures if isinstance(error, SessionLost)]
                late = [] if before else self._late(values)
                return (lost or clear or late or causes or before or failures)[0]
            try:
                self.monitor.look(pending)
                event = self.monitor.events.get(timeout=0.1)
            except (WorkerLost, RunFailed) as error:
                return error
            except queue.Empty:
                continue
            if isinstance(event, tuple) and event[0] in pending:
                values[event[0]] = self._value(event[0], pending.pop(event[0]), event[1])

    def _late(self, values: dict[int, Any]) -> list[CollectiveTimeout]:
        """Follow the waits of ranks to the rank for which the others wait; most ranks wait for it indirectly."""
        waits = {rank: waited_for(value.error) for rank, value in values.items() if isinstance(value, tasks.Failure)}
        seen: set[int] = set()
        ahead = [rank for rank, value in values.items() if isinstance(getattr(value, "error", None), CollectiveTimeout)]
        while ahead:
            rank = ahead.pop()
            seen.add(rank)
            what, peers = waits.get(rank, ("", []))
            for peer in peers:
                if not waits.get(peer, ("", []))[1]:
                    return [CollectiveTimeout(too_late(peer, self._first.spec.timeout, what))]
                if peer not in seen:
                    ahead.append(peer)
        return []

    def _restarted(self, values: dict[int, Any]) -> list[WorkerLost | RunFailed]:
        """Find ranks without a session although others have begun: their workers died, and their tasks restarted."""
        errors = {rank: value.error for rank, value in values.items() if isinstance(value, tasks.Failure)}
        before = [rank for rank, error in errors.items() if isinstance(error, SessionLost)]
        begun = any(isinstance(error, PeerLost) and not isinstance(error, SessionLost) for error in errors.values())
        return [self.monitor.lost(rank) for rank in before if begun]

    def _stop(self, futures: dict[int, Future], error: BaseException) -> None:
        """Stop the run on all ranks, and wait until they have ended, unless they cannot be notified."""
        if self._client.status != "running":
            return
        reason = "it failed on another rank" if isinstance(error, Exception) else "it was interrupted"
        if isinstance(error, RunCancelled):
            reason = "it was cancelled"
        self._tell(tasks.stop, self._run, reason)
        with contextlib.suppress(Exception):  # tasks that no worker has yet cannot be notified
            waits = scheduler.ask(
                self._client, "waits", NOTIFY_LIMIT_SECONDS, keys=[each.key for each in futures.values()]
            )
            never = [each for each in futures.values() if waits.get(each.key, {}).get("state") == "no-worker"]
            self._aside(self._client.cancel, never)
        end = time.monotonic() + STOP_GRACE_SECONDS
        there = set(self.monitor.workers)
        while time.monotonic() < end:
            workers = {self.monitor.workers[rank] for rank, future in futures.items() if not future.done()}
            if not workers & there:
                break
            there = set(self._alive(workers & there, 0.05))
        # Tasks are cancelled, so that Dask does not run ranks of restarted workers again, and forgets ranks in long
        # kernels.
        self._aside(self._client.cancel, [future for future in futures.values() if not future.done()])

    def _alive(self, workers: Collection[str], seconds: float = 0.0) -> list[str]:
        """Return which workers are alive, after `seconds` or as soon as one of them has left."""
        try:
            given = {"workers": list(workers), "seconds": seconds}
            there = scheduler.ask(self._client, "watch", NOTIFY_LIMIT_SECONDS, **given)
        except Exception:
            return []
        return [address for address in there if address not in self.monitor.silent]

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on every worker of the run, with a wait limit, because a worker may hang."""
        alive = self._alive(self.monitor.workers)
        if alive:
            self._aside(self._client.run, function, *arguments, workers=alive, on_error="ignore")

    def _aside(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Call a function that sends a request to Dask, with a wait limit."""

        def call() -> None:
            with contextlib.suppress(Exception):
                function(*arguments, **named)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(NOTIFY_LIMIT_SECONDS)

    def _wait_for_workers(self) -> None:
        first = {"keys": self._chunks(), "resources": self._rules.resources}
        began = enough = time.monotonic()
        while True:
            asked = {"run": self._run, "client": self._client.id, "least": self._least, "most": self._most}
            asked |= {"method": self._method, "among": self._among, "without": sorted(self._start.without)}
            answer = scheduler.ask(self._client, "ask", **asked, **first)
            self._identities, self._all_workers = answer["workers"], answer["all"]
            self.there, self.adaptive = len(set(self._among).intersection(self._all_workers)), answer["adaptive"]
            if self._identities:
                self._room = min((unspilled(*each) for each in answer["memory"]), default=None)
                self.size, self.leased = len(self._identities), True
                self._first = replace(self._first, partition=Partition.plan(self._first.partition.n_rows, self.size))
                return
            self.monitor.progress(WAITING)
            first = {}
            found = candidates_of(self._client, self._rules, self._first.device)  # more workers may have come
            self._among = list(found.offers)
            able = set(self._among).intersection(self._all_workers)  # without silent workers
            if time.monotonic() - began > self._start.patience:
                raise clusters.too_few(self._client, len(able), self._least, self._start.patience, found.why())
            if len(able) >= self._least:
                enough = time.monotonic()
            elif time.monotonic() - enough > (limit := clusters.wait_limit(answer)):
                raise clusters.too_few(self._client, len(able), self._least, limit, found.why())

    def _chunks(self) -> list[Any]:
        """Return Dask's keys of the chunks of the rows, or of the arrays from which the rows are computed."""
        array = None if self._rows is None else self._rows.dask_array
        return [] if array is None else [future.key for future in futures_of(array)]

    def _give_back(self) -> None:
        scheduler.tell(self._client, "give_back", run=self._run)
