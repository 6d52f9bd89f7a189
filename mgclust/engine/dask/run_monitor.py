"""Events of a run and the state of its workers, for the caller who waits for the run.

The caller's thread waits at one queue, into which the client's event loop puts events. The scheduler reports the loss
of a worker: a coroutine of the client always has an open request at the scheduler. The scheduler answers the request
when a worker leaves, or after `WATCH_SECONDS`, with the times of the last heartbeats. Every wait for a scheduler or a
silent worker has a limit.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import weakref
from collections.abc import Callable, Collection
from typing import Any

from distributed import Client

from mgclust.base.errors import ClusterUnavailableError, MgclustError, RunFailed, WorkerLost
from mgclust.engine.context import Emit
from mgclust.engine.dask import clients, scheduler, tasks
from mgclust.engine.heartbeat import HeartbeatMonitor, RunningTimeClock
from mgclust.outside.quoting import shortened

__all__ = ["WATCH_POLL_SECONDS", "RunMonitor"]

WATCH_POLL_SECONDS = 0.5  # seconds between two checks of the known state of the workers
WATCH_SECONDS = 2.0  # seconds after which the scheduler answers even if no worker has left
# Seconds without a heartbeat after which a worker counts as lost. No kernel holds Python's interpreter lock for nearly
# as long.
HEARTBEAT_TIMEOUT_SECONDS = 60.0
OF_THE_WAY = ("run", "worker")  # entries of an event that its receiver does not need

# Each client has one permanent subscription, because Dask keeps one handler per topic, and keeps the events of a topic.
_MONITORS: weakref.WeakKeyDictionary[Client, dict[str, RunMonitor]] = weakref.WeakKeyDictionary()
_MONITORS_LOCK = threading.Lock()


class RunMonitor:
    """Events of one run, and checks of its workers while the caller waits.

    Parameters
    ----------
    client : Client
        Client of the run.
    run : str
        Name of the run.
    on_progress : callable or None
        See `mgclust.engine.spmd.run`.

    Attributes
    ----------
    workers : list of str
        Addresses of the workers in rank order, once they are chosen.
    holders : set of str
        Workers from which ranks still get rows.
    begun : bool
        Whether a rank is known to have begun.
    silent : set of str
        Addresses of workers whose heartbeat timeout ended the run.
    events : queue.SimpleQueue
        Progress of ranks as dicts, and events of the caller's own threads.
    """

    def __init__(self, client: Client, run: str, on_progress: Emit | None) -> None:
        self._client, self._run, self._on_progress = client, run, on_progress
        self.workers: list[str] = []
        self.holders: set[str] = set()
        self.begun = False
        self.silent: set[str] = set()
        self.events: queue.SimpleQueue = queue.SimpleQueue()
        self._heartbeats: HeartbeatMonitor[int] = HeartbeatMonitor(RunningTimeClock())
        self._next_look = time.monotonic() + WATCH_POLL_SECONDS
        self._watching = False
        # The workers in the last request to the scheduler, and the last heartbeats of the workers that were there.
        self._known: tuple[frozenset[str], dict[str, float]] = (frozenset(), {})
        self._unanswered: MgclustError | None = None

    def subscribe(self) -> None:
        """Receive the events of this run from now on."""
        self.events = queue.SimpleQueue()  # a new queue, without late events of an earlier attempt
        with _MONITORS_LOCK:
            if self._client not in _MONITORS:
                monitors: dict[str, RunMonitor] = {}

                def dispatch(event: tuple[float, dict[str, Any]]) -> None:
                    monitor = monitors.get(event[1].get("run", ""))
                    if monitor is not None:
                        monitor.hear(event[1])

                _MONITORS[self._client] = monitors
                self._client.subscribe_topic(tasks.CLIENT_TOPIC, dispatch)
            _MONITORS[self._client][self._run] = self

    def unsubscribe(self) -> None:
        """Receive no more events of this run, and stop watching its workers."""
        self._watching = False
        self._on_progress = None  # the callback refers to the run and to its caller's data, and would keep both
        _MONITORS.get(self._client, {}).pop(self._run, None)

    def hear(self, event: dict[str, Any]) -> None:
        """Record an event, in the client's event loop; wake the caller only if it has a callback for events.

        Parameters
        ----------
        event : dict
            Progress of a rank.
        """
        self.begun = True
        if event.get("stage") != "load" or event.get("fraction"):
            self.holders = set()
        if self._on_progress is not None:
            self.events.put(event)

    def watched(self, function: Callable[..., Any], *arguments: Any, silence: bool = True) -> Any:
        """Call a function that waits for Dask; meanwhile, check the scheduler and the workers of all ranks.

        Parameters
        ----------
        function : callable
            Function to call in another thread.
        *arguments : object
            Arguments of the function.
        silence : bool
            Whether a silent worker ends the wait.

        Returns
        -------
        object
            The value of the function.
        """
        events = self.events

        def call() -> None:
            try:
                events.put(("value", function(*arguments)))
            except BaseException as error:
                events.put(("error", error))

        threading.Thread(target=call, daemon=True).start()
        while True:
            event = self.next(range(len(self.workers)), silence)
            if isinstance(event, tuple):
                kind, value = event
                if kind == "error":
                    raise self.in_words(value)
                return value

    def next(self, waiting: Collection[int], silence: bool = True) -> Any:
        """Return the next event, or None after a short time; check the workers of the ranks that are waited for.

        Parameters
        ----------
        waiting : collection of int
            Ranks that are waited for.
        silence : bool
            Whether a silent worker ends the wait.
        """
        try:
            event = self.events.get(timeout=WATCH_POLL_SECONDS)
        except queue.Empty:
            event = None
        if isinstance(event, dict):
            self.progress(event)
        if event is None or time.monotonic() >= self._next_look:
            self.look(waiting, silence)
            self._next_look = time.monotonic() + WATCH_POLL_SECONDS
        return event

    def look(self, pending: Collection[int], silence: bool = True, now: bool = False) -> None:
        """Raise WorkerLost if the worker of an unfinished rank has left the cluster, or has been silent for long.

        Parameters
        ----------
        pending : collection of int
            The unfinished ranks.
        silence : bool
            Whether a silent worker counts as lost.
        now : bool
            Whether to ask the scheduler now, instead of using its last answer.
        """
        if not scheduler.is_open(self._client):
            raise self._closed()
        if self._client.status != "running":
            raise self._no_scheduler()
        if now:
            try:
                workers = self._watched_workers()
                self._known = workers, scheduler.ask(self._client, "watch", workers=list(workers), seconds=0.0)
            except ClusterUnavailableError as error:
                self._unanswered = error
        elif not self._watching:
            self._watching = True
            self._client.loop.add_callback(self._watch)
        if self._unanswered is not None:
            if not scheduler.is_open(self._client):
                raise self._closed()
            raise RunFailed(f"the connection to the scheduler was lost during the run: {self._unanswered}")
        asked, heard = self._known
        gone = asked - heard.keys()
        for rank in pending:
            if self.workers[rank] in gone:
                raise self.lost(rank)
        if len(self.workers) > 1 and (holders := sorted(self.holders & gone)):
            # Dask would compute the lost chunks again, perhaps on a worker that waits for the rank that needs them.
            raise WorkerLost(f"worker {holders[0]}, from which ranks get rows, was lost. Run again.")
        marks = {rank: heard[self.workers[rank]] for rank in pending if self.workers[rank] in heard}
        for rank, seconds in self._heartbeats.of(marks).items():
            if silence and seconds > HEARTBEAT_TIMEOUT_SECONDS:
                self.silent.add(self.workers[rank])
                raise WorkerLost(
                    f"worker {self.workers[rank]} of rank {rank} has not answered for {seconds:.0f} s: its process "
                    "is stopped or hangs, or its machine is gone. End it, and run again."
                )

    def _watched_workers(self) -> frozenset[str]:
        return frozenset(self.workers) | self.holders

    async def _watch(self) -> None:
        """Send one request after the other to the scheduler until the run is over, in the client's event loop."""
        while self._watching:
            try:
                workers = self._watched_workers()
                given = {"workers": list(workers), "seconds": WATCH_SECONDS}
                self._known = workers, await scheduler.ask_in_loop(self._client, "watch", **given)
            except MgclustError as error:
                self._unanswered = error
            except (
                Exception,
                asyncio.CancelledError,
            ):  # if the client ends, its status shows this; else `look` starts a new request
                self._watching = False
                return
            if self._unanswered is not None or len(self._known[1]) < len(workers):
                self.events.put(None)  # wakes the caller
                if self._unanswered is not None:
                    return
                await asyncio.sleep(WATCH_SECONDS)

    def progress(self, event: dict[str, Any]) -> None:
        """Pass on an event to the caller of the run.

        Parameters
        ----------
        event : dict
            Progress of a rank.
        """
        if self._on_progress is not None:
            self._on_progress({name: value for name, value in event.items() if name not in OF_THE_WAY})

    def lost(self, rank: int) -> WorkerLost | RunFailed:
        """Make the error for a rank whose worker is lost.

        Parameters
        ----------
        rank : int
            Number of the rank.
        """
        if not scheduler.is_open(self._client):
            return self._closed()
        if self._client.status != "running":  # Dask drops the tasks of a client that has lost its connection
            return self._no_scheduler()
        when = "during the run" if self.begun else "before a rank had begun"
        return WorkerLost(
            f"worker {self.workers[rank]} of rank {rank} was lost {when}: its process died or left "
            "the cluster (its log shows why; often it ran out of memory). Run again."
        )

    def cancelled(self, rank: int, reason: str) -> RunFailed:
        """Make the error for a task that a client has cancelled, unless its worker is lost.

        Parameters
        ----------
        rank : int
            Number of the rank.
        reason : str
            Reason that the client gave; "unknown" if it gave none.
        """
        try:
            self.look([rank], silence=False, now=True)
        except RunFailed as error:
            return error
        return RunFailed(
            f"the task of rank {rank} was cancelled by a client of the cluster (Client.cancel, reason: "
            f"{shortened(reason)}). Run again; cancel your own fits with mgclust.submit(model, X).cancel()."
        )

    def in_words(self, error: BaseException) -> BaseException:
        """Convert an error of Dask to the error of the run, if a connection was lost.

        Parameters
        ----------
        error : BaseException
            Error of a call of Dask.
        """
        if not isinstance(error, OSError):
            return error
        if not scheduler.is_open(self._client):
            return self._closed()
        if self._client.status != "running":
            return self._no_scheduler()
        try:
            self.look(range(len(self.workers)), silence=False, now=True)
        except (WorkerLost, RunFailed) as found:
            return found
        return RunFailed(f"Dask lost a connection during the run: {error}. Run again.")

    def _no_scheduler(self) -> RunFailed:
        remedy = "run again when it is back" if self._is_ours() else "connect a new client to a running scheduler"
        return RunFailed(f"the connection to the scheduler was lost during the run; {remedy}.")

    def _is_ours(self) -> bool:
        """Return whether mgclust opened the client: then only Dask can have closed it, if the scheduler has gone."""
        return isinstance(self._client, clients.Client)

    def _closed(self) -> RunFailed:
        if self._is_ours():
            return self._no_scheduler()
        return RunFailed(
            "the run ended because its client was closed, by its owner, or by Dask because the scheduler has gone; "
            "close a client only after all its runs have ended."
        )
