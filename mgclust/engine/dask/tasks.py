"""Tasks on a Dask worker: the rank of a run, and the session that connects it to the other ranks.

A session belongs to one client, which keeps it between its runs. It opens in two calls to all its workers: `expect`, in
which ranks begin to listen that others dial, and `open_session`. It ends

- with its client, however that ends, or with another of its workers: the scheduler, which knows when these leave,
  calls `end_session` (`mgclust.engine.dask.session_registry`);
- with a run that does not end in order: each rank closes its connections, and the others notice;
- when another session is to have the worker, which has one at a time; and when the worker ends.

Its key is random. The client sends it to the ranks as Dask sends everything, so the cluster's TLS keeps it from others;
its name is in the keys of tasks, which all clients of a scheduler can see. Tasks return failures instead of raising
them: Dask would log a traceback on every worker, where the caller needs one sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof
from distributed import Worker, WorkerPlugin, get_worker
from distributed.comm.addressing import get_address_host
from distributed.metrics import context_meter
from distributed.worker_state_machine import FreeKeysEvent
from scipy.sparse import csr_array

from mgclust.base.errors import MgclustError, RunFailed
from mgclust.engine import checkpoint_memory
from mgclust.engine.abort import Abort
from mgclust.engine.devices import cores, gpus, why_no_gpu
from mgclust.engine.rank import RankAssignment, run_rank
from mgclust.engine.rows import Beside, RowSource
from mgclust.engine.transport.handshake import listen
from mgclust.engine.transport.session import Session
from mgclust.engine.transport.topology import Tree
from mgclust.engine.transport.wire import SessionLost, Wire
from mgclust.kernels.toolkit import threads

__all__ = [
    "CLIENT_TOPIC",
    "TOPIC",
    "Failure",
    "Left",
    "Offer",
    "OwnWorker",
    "checkpoint_of",
    "end_session",
    "expect",
    "name_of_part",
    "offer",
    "open_session",
    "publish",
    "run_task",
    "stop",
]

TOPIC = "mgclust-progress"  # of the events of ranks, for users
# The same events for the client of the run. Dask keeps one handler per topic and client, and users may subscribe to
# the other topic.
CLIENT_TOPIC = "mgclust-runs"
OPENING_SECONDS = 60.0  # seconds within which a session that is expected has to open
OWNERLESS_SECONDS = 60.0  # seconds that arrays of a result are kept which no client has asked for


@dataclass(eq=False)
class _Seat:
    """A worker's place in a session."""

    name: str  # of the session
    abort: Abort  # of the opening, and then of the run that uses it
    busy: bool = False  # whether a run does
    listener: socket.socket | None = None
    session: Session | None = None

    def end(self, reason: str) -> None:
        """Close it, or have the run that uses it do so."""
        self.abort.set(reason)
        if self.listener is not None:
            self.listener.close()
        if self.session is not None and not self.busy:
            # Beside the worker's event loop: NCCL takes its time.
            threading.Thread(target=self.session.close, daemon=True).start()


# Of this process, by worker address; one process may hold several workers (processes=False).
_SEATS: dict[str, _Seat] = {}
_RUNS: dict[str, tuple[str, Abort]] = {}
_LEFT: dict[str, tuple[str, dict[str, Any]]] = {}  # the last run and its arrays by key, until Dask has them
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Offer:
    """Devices that a worker has to compute with."""

    gpu: str
    why_no_gpu: str
    cores: int
    nthreads: int


class Left(NamedTuple):
    """A rank's part of an array that stays on its worker."""

    rows: int
    empty: Any  # the part without its rows


@dataclass(frozen=True)
class Failure:
    """An exception on its way to the caller."""

    error: BaseException

    @classmethod
    def of(cls, error: BaseException, rank: int, address: str) -> Failure:
        """Keep the type; where it is not ours, and so a mistake in code, keep the traceback as a note."""
        if not isinstance(error, MgclustError):
            error.add_note(f"on rank {rank} ({address}):\n{''.join(traceback.format_exception(error))}")
        error.__cause__ = error.__context__ = None
        notes = list(getattr(error, "__notes__", ()))
        try:
            arrived = list(getattr(pickle.loads(pickle.dumps(error)), "__notes__", ()))
        except Exception:
            arrived = None
        if arrived != notes:  # compiled exceptions, such as those of CUDA, lose them
            error = RunFailed(f"rank {rank} ({address}) failed: {type(error).__name__}: {error}")
            for note in notes:
                error.add_note(note)
        return cls(error)


class OwnWorker(WorkerPlugin):  # type: ignore[misc]
    """Ways of a worker whose cluster a run starts and ends itself."""

    name = "mgclust-own-worker"

    def setup(self, worker: Worker) -> None:
        """Leave Ctrl-C to the caller: a terminal sends it to all processes of a local cluster at once."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def teardown(self, worker: Worker) -> None:
        """Tell nothing more: a heartbeat whose connection the worker itself closes would be logged as an error."""
        logging.disable(logging.CRITICAL)


def offer(dask_worker: Any) -> Offer:
    """Ask a worker what it has; for ``Client.run``."""
    devices = gpus()
    return Offer(devices[0].uuid if devices else "", why_no_gpu(), cores(), dask_worker.state.nthreads)


def expect(name: str, ranks: dict[str, int], dask_worker: Any) -> int:
    """Begin a session, and end the one before; for ``Client.run``.

    Returns
    -------
    int
        The port on which a rank listens that others dial when the session opens; 0 on other ranks.
    """
    address = dask_worker.address
    seat = _Seat(name, Abort())
    with _LOCK:
        older, _SEATS[address] = _SEATS.get(address), seat
    if older is not None:
        older.end("its client has gone, or has another session on the worker")
    dask_worker.loop.call_later(OPENING_SECONDS, _end_unopened, address, seat)
    if not Tree(ranks[address], len(ranks)).children:
        return 0
    seat.listener = listen(*_hosts(dask_worker))
    return seat.listener.getsockname()[1]


async def open_session(
    name: str, ranks: dict[str, int], addresses: list[tuple[str, int]], key: bytes, timeout: float, dask_worker: Any
) -> Failure | None:
    """Connect the ranks of a session that all workers expect; for ``Client.run``."""
    address = dask_worker.address
    seat = _SEATS.get(address)
    try:
        if seat is None or seat.name != name:
            raise SessionLost(f"worker {address} restarted, or works for another client now.")
        wire = Wire(key, seat.abort, timeout, *_tls(dask_worker, address))
        listener, seat.listener = seat.listener, None
        given = ranks[address], wire, addresses, listener, _hosts(dask_worker)
        seat.session = await asyncio.to_thread(Session.open, *given)
        if _SEATS.get(address) is not seat:
            seat.end("another session has the worker")
        return None
    except Exception as error:
        return Failure.of(error, ranks[address], address)


def run_task(
    session: str,
    assignment: RankAssignment,
    address: str,
    source: RowSource | Callable[[list[Any]], RowSource],
    source_beside: RowSource | Callable[[list[Any]], RowSource] | None,
    columns: dict[str, Callable[[list[Any]], RowSource]],
    arrays: list[Any] | None,
    arrays_beside: list[Any] | None,
    whole: dict[str, list[Any]],
    arrays_of_columns: dict[str, list[Any]],
    saved: dict[str, Any] | None,
) -> Any:
    """`run_rank` on a worker; Done or a Failure.

    Parameters
    ----------
    session : str
        Its name; empty for a single rank.
    assignment : RankAssignment
        What to do.
    address : str
        Of the worker that should do it.
    source : RowSource or callable
        Where rows come from, or what makes it from arrays that are here.
    source_beside : RowSource, callable or None
        Where rows come from that the ranks meet beside these.
    columns : dict of str to callable
        What makes sources of one column, arguments of the function with a number for each row.
    arrays, arrays_beside : list of arrays or None
        For callables.
    whole : dict of str to list of arrays
        Arguments of the function that were Dask arrays, in parts.
    arrays_of_columns : dict of str to list of arrays
        For those of `columns`.
    saved : dict of str to object, or None
        The checkpoint in memory from which the rank resumes: the files that it reads.
    """
    began, worker = time.perf_counter(), get_worker()
    abort = Abort(_orphaned(worker))
    seat = None
    with _LOCK:
        older, _RUNS[address] = _RUNS.get(address), (assignment.run, abort)
    if older is not None:
        older[1].set("its client has gone and another run needs the worker")
    try:
        if worker.address != address:
            raise RunFailed(f"the task of rank {assignment.rank} landed on {worker.address}, not {address}.")
        seat = _take(address, session, abort) if session else None

        def emit(event: dict[str, Any]) -> None:
            worker.log_event([TOPIC, CLIENT_TOPIC], {"run": assignment.run, **event})

        limit, in_use = int(worker.memory_manager.memory_limit or 0), _bytes_of_inputs(arrays, arrays_beside)
        assignment = replace(assignment, worker_limit=limit, spillable=max(0, _bytes_in_memory(worker) - in_use))
        given = {name: np.concatenate(parts) for name, parts in whole.items()}
        own = assignment.partition.rows_of(assignment.rank)
        by_row = {name: Beside(make(arrays_of_columns[name]), *own).read()[:, 0] for name, make in columns.items()}
        spec = replace(assignment.spec, arguments={**assignment.spec.arguments, **given}, row_arguments=by_row)
        if saved is not None:
            assert isinstance(spec.checkpoint, checkpoint_memory.MemoryCheckpoint)
            spec = replace(spec, checkpoint=replace(spec.checkpoint, saved=saved))
        assignment = replace(assignment, spec=spec)
        rows, others = _opened(source, arrays), _opened(source_beside, arrays_beside)
        with _threads(assignment):
            done = run_rank(assignment, rows, abort, seat.session if seat is not None else None, emit, others)
        for stage, seconds in {"load": done.report.seconds, **done.timings}.items():
            context_meter.digest_metric(stage, seconds, "seconds")  # for the dashboard
        if done.report.error is not None:
            done.report.error = Failure.of(done.report.error, assignment.rank, address).error  # type: ignore[assignment]
        if assignment.keep_on_workers:
            done.delivered = _leave_here(worker, assignment, done.delivered)
        done.seconds = time.perf_counter() - began
        return done
    except Exception as error:
        if seat is not None:
            seat.abort.set("it failed")
        return Failure.of(error, assignment.rank, address)
    finally:
        with _LOCK:
            if _RUNS.get(address) == (assignment.run, abort):
                del _RUNS[address]
        checkpoint_memory.forget(assignment.run, assignment.rank)
        if seat is not None:
            _leave(address, seat)


def checkpoint_of(run: str, ranks: dict[str, int], number: int, dask_worker: Any) -> dict[str, Any] | None:
    """Hand over a rank's part of a checkpoint in memory; for ``Client.run``.

    Returns
    -------
    dict of str to object, or None
        Its files by name; None if it has others by now.
    """
    return checkpoint_memory.take(run, ranks[dask_worker.address], number)


def name_of_part(run: str, name: str) -> str:
    """Name an array that stays on the workers; keys of its parts have the rank behind it."""
    return f"mgclust-{name.replace('_', '-')}-{run}"


def _leave_here(worker: Worker, assignment: RankAssignment, arrays: dict[str, Any]) -> dict[str, Left]:
    """Put the arrays of a run where `publish` finds them, unless the client has gone before it asks."""
    run, rank, address = assignment.run, assignment.rank, worker.address
    _LEFT[address] = run, {f"{name_of_part(run, name)}-{rank}": array for name, array in arrays.items()}

    def forget() -> None:
        if _LEFT.get(address, ("", {}))[0] == run:
            del _LEFT[address]

    worker.loop.add_callback(worker.loop.call_later, OWNERLESS_SECONDS, forget)
    return {name: Left(array.shape[0], array[:0]) for name, array in arrays.items()}


def publish(run: str, dask_worker: Any) -> dict[str, int]:
    """Make what a run has left here data of Dask; for ``Client.run``.

    Returns
    -------
    dict of str to int
        Bytes by key.
    """
    left, arrays = _LEFT.pop(dask_worker.address, ("", {}))
    if left != run:
        raise KeyError(run)
    loop = dask_worker.loop
    loop.call_later(OWNERLESS_SECONDS, loop.add_callback, _free_unknown, dask_worker, list(arrays))
    sizes: dict[str, int] = dask_worker.update_data(arrays)["nbytes"]
    return sizes


async def _free_unknown(worker: Worker, keys: list[str]) -> None:
    """Free data of which the scheduler was never told, since the client ended between two calls."""
    here = [key for key in keys if key in worker.data]
    known = await worker.scheduler.who_has(keys=here) if here else {}
    unknown = [key for key in here if not known.get(key)]
    if unknown:
        worker.handle_stimulus(FreeKeysEvent(keys=unknown, stimulus_id=f"mgclust-free-{time.time()}"))


@sizeof.register(csr_array)
def _bytes_of(rows: csr_array) -> int:
    """Bytes by which Dask knows how full a worker is; of this type it sees none by itself."""
    return int(rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes)


def _bytes_in_memory(worker: Worker) -> int:
    """Bytes of results of Dask that are in a worker's memory and that it can write to disk."""
    kept = getattr(worker.data, "memory", {})  # a plain dict where writing to disk is turned off
    return sum(sizeof(kept.get(key)) for key in list(kept))


def _bytes_of_inputs(*inputs: list[Any] | None) -> int:
    """Bytes of a task's inputs, which stay in memory while it runs."""
    return sum(sizeof(array) for arrays in inputs for array in arrays or ())


def _opened(source: Any, arrays: list[Any] | None) -> Any:
    return source if arrays is None else source(arrays)


def stop(run: str, reason: str, dask_worker: Any) -> None:
    """Tell a rank to stop; for ``Client.run``."""
    found = _RUNS.get(dask_worker.address)
    if found is not None and found[0] == run:
        found[1].set(reason)


def end_session(name: str, dask_worker: Any) -> None:
    """End a session, also one that is being opened or used; the scheduler calls it."""
    with _LOCK:
        seat = _SEATS.get(dask_worker.address)
        if seat is None or seat.name != name:
            return
        _SEATS.pop(dask_worker.address, None)
    seat.end("its client or a rank has gone, or the run is over")


def _take(address: str, name: str, abort: Abort) -> _Seat:
    """A worker's seat for a run, which has it until `_leave`."""
    with _LOCK:
        seat = _SEATS.get(address)
        if seat is None or seat.name != name or seat.busy or seat.session is None or seat.session.broken:
            raise SessionLost(f"the session of worker {address} is over: a rank restarted, or another client had it.")
        seat.busy, seat.abort = True, abort
        return seat


def _leave(address: str, seat: _Seat) -> None:
    """End a run; its session goes on if it is whole and has not been ended meanwhile."""
    assert seat.session is not None
    with _LOCK:
        seat.busy = False
        mine = _SEATS.get(address) is seat
        goes_on = mine and not seat.abort.is_set and not seat.session.broken
        if mine and not goes_on:
            _SEATS.pop(address, None)
    if not goes_on:
        seat.session.close()


def _end_unopened(address: str, seat: _Seat) -> None:
    """End a session that its client did not open."""
    with _LOCK:
        if _SEATS.get(address) is not seat or seat.session is not None:
            return
        _SEATS.pop(address, None)
    seat.end("it was not opened in time")


def _orphaned(worker: Worker) -> Any:
    """Return whether Dask has lost interest in the calling task, as it does when the client dies."""
    key = worker.get_current_task()
    tasks = worker.state.tasks

    def orphaned() -> bool:
        task = tasks.get(key)
        return task is None or task.state in ("cancelled", "released", "forgotten")

    return orphaned


def _hosts(worker: Worker) -> tuple[str, str]:
    """Addresses at which a rank listens to others.

    The address by which the others know its worker, and that on which this listens where the first is not this
    machine's, as behind address translation.
    """
    return get_address_host(worker.address), get_address_host(worker.listen_address)


def _tls(worker: Worker, address: str) -> tuple[Any, Any]:
    """The worker's own TLS contexts where Dask is encrypted: the ranks' links then are, too."""
    if not address.startswith("tls://"):
        return None, None
    security = worker.security
    return (
        security.get_connection_args("worker")["ssl_context"],
        security.get_listen_args("worker")["ssl_context"],
    )


def _threads(assignment: RankAssignment) -> contextlib.AbstractContextManager[None]:
    """Share the host's cores among the ranks on it; Dask's nannies would leave one thread to each."""
    return threads.share(max(1, cores() // assignment.neighbours))
