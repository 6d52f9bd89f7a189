"""The caller's side of a run on Dask workers.

Dask places tasks, sends parameters and rows, and reports dead workers; the ranks talk to each other without it. The
caller's thread sleeps on one queue, into which Dask's threads put what happens.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from distributed import Client, Future
from distributed.comm.addressing import get_address_host

from mgclust.data import Dataset
from mgclust.engine.context import Emit
from mgclust.engine.dask import cluster as clusters
from mgclust.engine.dask import leases, tasks
from mgclust.engine.dask.cluster import Cluster, workers_of
from mgclust.engine.dask.placement import place
from mgclust.engine.rank import Assignment, Meeting, Report, refuse
from mgclust.engine.silence import Awake, Silence
from mgclust.engine.wire import PeerLost
from mgclust.errors import CollectiveTimeout, InputError, RunCancelled, RunFailed, WorkerLost

__all__ = ["Driver"]

LEASE_POLL_SECONDS = 0.2  # seconds between two questions whether there are free workers
WATCH_POLL_SECONDS = 0.5  # seconds between two looks at the workers
# Seconds without a heartbeat of a worker, which are far longer than any kernel keeps Python's interpreter to itself.
SILENCE_LIMIT_SECONDS = 60.0
STOP_GRACE_SECONDS = 20.0  # seconds that stopped ranks have to come back
NOTIFY_LIMIT_SECONDS = 5.0  # seconds that telling them may take
OF_THE_WAY = ("run", "worker")  # what events carry to find their way to the caller

# One subscription a client, for good: Dask keeps one handler for a topic, and keeps what was said under it.
_QUEUES: weakref.WeakKeyDictionary[Client, dict[str, queue.SimpleQueue]] = weakref.WeakKeyDictionary()
_QUEUES_LOCK = threading.Lock()


class Driver:
    """One run. Use as a context manager: it holds the workers, which no other run has meanwhile.

    Parameters
    ----------
    cluster : Cluster
        With a client.
    first : Assignment
        Of rank 0; those of the other ranks differ in the rank and its host.
    on_progress : callable or None
        As for `mgclust.engine.spmd.run`.
    """

    def __init__(self, cluster: Cluster, first: Assignment, on_progress: Emit | None) -> None:
        self._client: Client = cluster.client
        self._size = cluster.size
        self._first = first
        self._workers: list[str] = []
        self._all_workers: list[str] = []
        self._on_progress = on_progress
        self._run = first.run
        self._events: queue.SimpleQueue = queue.SimpleQueue()
        self._clean = True
        self._silence: Silence[int] = Silence(Awake())

    def __enter__(self) -> Driver:
        try:
            self._wait_for_workers()
            self._subscribe()
        except BaseException:
            self._give_back()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self._clean:
            self._tell(tasks.forget, self._run)
        _QUEUES.get(self._client, {}).pop(self._run, None)
        self._give_back()

    def run(self, dataset: Dataset) -> tuple[Any, dict[str, float], list[Report]]:
        """Prepare and execute on all ranks; rank 0's value and timings, and all reports."""
        self._clean = False
        self._progress({"stage": "load", "fraction": 0.0, "elapsed": 0.0})
        self._workers, sources = place(self._client, dataset, self._first.partition, self._workers)
        # Other runs share the hosts: ranks take their share of a host even if other workers on it are not theirs.
        on_host = Counter(get_address_host(address) for address in self._all_workers)
        calls = []
        for rank, address in enumerate(self._workers):
            assignment = replace(self._first, rank=rank, neighbours=on_host[get_address_host(address)])
            calls.append((assignment, address, sources[rank]))
        reports: list[Report] = self._wave(tasks.prepare_task, calls)
        del sources, calls
        refuse(reports, dataset.shape, self._first.spec.dtype)
        meeting = Meeting(
            min(report.span_rows for report in reports),
            (get_address_host(self._workers[0]), reports[0].port),
            secrets.token_bytes(32),
        )
        results = self._wave(
            tasks.execute_task,
            [(self._run, rank, address, meeting) for rank, address in enumerate(self._workers)],
        )
        self._clean = True  # each rank has freed its own
        value, timings = results[0]
        return value, {"load": reports[0].seconds, **timings}, reports

    def _wave(self, task: Callable[..., Any], calls: list[tuple]) -> list[Any]:
        """One pinned task a rank; all values in rank order, or the exception that tells most."""
        futures: dict[int, Future] = {}
        try:
            for rank, call in enumerate(calls):
                future = self._client.submit(
                    task,
                    *call,
                    key=f"mgclust-{task.__name__}-{self._run}-{rank}",
                    workers=[self._workers[rank]],
                    allow_other_workers=False,
                    pure=False,
                    retries=0,
                    priority=10,
                )
                futures[rank] = future
                future.add_done_callback(lambda _, rank=rank: self._events.put(rank))
            return self._collect(dict(futures))
        except BaseException as error:
            self._stop(futures, error)
            raise
        finally:
            for future in futures.values():
                future.release()

    def _collect(self, pending: dict[int, Future]) -> list[Any]:
        values: dict[int, Any] = {}
        next_look = time.monotonic() + WATCH_POLL_SECONDS
        while pending:
            try:
                event = self._events.get(timeout=WATCH_POLL_SECONDS)
            except queue.Empty:
                event = None
            if isinstance(event, dict):
                self._progress(event)
            elif event in pending:
                values[event] = self._value(event, pending.pop(event))
                if isinstance(values[event], tasks.Failure):
                    raise self._reason(values, pending)
            if time.monotonic() >= next_look:
                self._look(pending)
                next_look = time.monotonic() + WATCH_POLL_SECONDS
        return [values[rank] for rank in sorted(values)]

    def _value(self, rank: int, future: Future) -> Any:
        """Result of a finished task; anything that Dask itself did to it as a Failure."""
        if future.status == "finished":
            return future.result(timeout=self._first.spec.timeout)
        if future.status == "error":
            error = future.exception(timeout=self._first.spec.timeout)
            if type(error).__name__ != "KilledWorker":
                return tasks.Failure.of(error, rank, self._workers[rank])
        return tasks.Failure(self._lost(rank))

    def _look(self, pending: dict[int, Future]) -> None:
        """Raise WorkerLost if the worker of an unfinished rank has left the cluster, or is silent for long."""
        try:
            alive = workers_of(self._client)
        except Exception as error:
            raise RunFailed(f"the connection to the scheduler was lost during the run: {error}.") from None
        if self._client.status != "running":
            raise RunFailed("the connection to the scheduler was lost during the run.")
        for rank in pending:
            if self._workers[rank] not in alive:
                raise self._lost(rank)
        heard = {rank: alive[self._workers[rank]]["last_seen"] for rank in pending}
        for rank, seconds in self._silence.of(heard).items():
            if seconds > SILENCE_LIMIT_SECONDS:
                raise WorkerLost(
                    f"worker {self._workers[rank]} of rank {rank} has not answered for {seconds:.0f} s: its process "
                    "is stopped or hangs, or its machine is away. End it, and run again."
                )

    def _lost(self, rank: int) -> WorkerLost:
        return WorkerLost(
            f"worker {self._workers[rank]} of rank {rank} was lost during the run: its process died or left "
            "the cluster (its log says why; often it ran out of memory). Run again."
        )

    def _reason(self, values: dict[int, Any], pending: dict[int, Future]) -> BaseException:
        """Find why the run failed: the first failure is often only the echo of another rank's."""
        self._tell(tasks.stop, self._run, "another rank failed")
        end = time.monotonic() + WATCH_POLL_SECONDS + 1.0
        while True:
            failures = [value.error for value in values.values() if isinstance(value, tasks.Failure)]
            causes = [error for error in failures if not isinstance(error, (PeerLost, RunCancelled))]
            lost = [error for error in causes if isinstance(error, WorkerLost)]
            clear = [error for error in causes if not isinstance(error, CollectiveTimeout)]
            if lost or clear or not pending or time.monotonic() > end:
                return (lost or clear or causes or failures)[0]
            try:
                self._look(pending)
                event = self._events.get(timeout=0.1)
            except WorkerLost as error:
                return error
            except queue.Empty:
                continue
            if event in pending:
                values[event] = self._value(event, pending.pop(event))

    def _stop(self, futures: dict[int, Future], error: BaseException) -> None:
        """End the run on all ranks, and wait until they have ended."""
        reason = "it failed on another rank" if isinstance(error, Exception) else "it was interrupted"
        if isinstance(error, RunCancelled):
            reason = "it was cancelled"
        self._tell(tasks.stop, self._run, reason)
        end = time.monotonic() + STOP_GRACE_SECONDS
        while time.monotonic() < end:
            alive = self._alive()
            if all(future.done() or self._workers[rank] not in alive for rank, future in futures.items()):
                break
            time.sleep(0.05)
        # Ranks whose worker came back are not run again, and those that are deep in a kernel are forgotten.
        with contextlib.suppress(Exception):
            self._client.cancel([future for future in futures.values() if not future.done()])

    def _alive(self) -> list[str]:
        try:
            workers = workers_of(self._client)
        except Exception:
            return []
        return [address for address in self._workers if address in workers]

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on every worker of the run, but wait only so long: one of them may hang."""

        def tell() -> None:
            with contextlib.suppress(Exception):
                self._client.run(function, *arguments, workers=self._alive(), on_error="ignore")

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        thread.join(NOTIFY_LIMIT_SECONDS)

    def _progress(self, event: dict[str, Any]) -> None:
        if self._on_progress is not None:
            self._on_progress({name: value for name, value in event.items() if name not in OF_THE_WAY})

    def _subscribe(self) -> None:
        with _QUEUES_LOCK:
            if self._client not in _QUEUES:
                queues: dict[str, queue.SimpleQueue] = {}

                def dispatch(event: tuple[float, dict[str, Any]]) -> None:
                    events = queues.get(event[1].get("run", ""))
                    if events is not None:
                        events.put(event[1])

                _QUEUES[self._client] = queues
                self._client.subscribe_topic(tasks.TOPIC, dispatch)
            _QUEUES[self._client][self._run] = self._events

    def _wait_for_workers(self) -> None:
        size, enough = self._size, time.monotonic()
        while True:
            try:
                # In a thread whose end is waited for: an interrupted question must not arrive after `give_back`.
                with ThreadPoolExecutor(1) as pool:
                    asked = pool.submit(self._client.run_on_scheduler, leases.take, self._run, self._client.id, size)
                    self._workers, self._all_workers = asked.result()
            except ModuleNotFoundError as error:
                raise InputError(f"the scheduler cannot import {error.name}; install mgclust there, too.") from error
            if self._workers:
                return
            if len(self._all_workers) >= size:
                enough = time.monotonic()
            elif time.monotonic() - enough > clusters.WORKERS_TIMEOUT:
                raise clusters.too_few(self._client, len(self._all_workers), size)
            self._progress({"stage": "waiting for the cluster", "fraction": 0.0, "elapsed": 0.0})
            time.sleep(LEASE_POLL_SECONDS)

    def _give_back(self) -> None:
        with contextlib.suppress(Exception):  # a scheduler that is gone has forgotten the run
            self._client.run_on_scheduler(leases.give_back, self._run)
