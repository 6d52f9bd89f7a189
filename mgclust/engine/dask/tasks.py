"""Tasks on a Dask worker: the rank of a run, and the session that connects it to the other ranks.

A session belongs to one client, which keeps it between its runs. The client opens a session by two calls to all its
workers: `expect`, in which some ranks begin to listen for connections, and `open_session`. A session ends

- when its client or another of its workers leaves: the scheduler notices this, and calls `end_session`
  (`mgclust.engine.dask.session_registry`);
- when a run does not end normally: each rank closes its connections, and the others notice;
- when another session needs the worker, because a worker has one session at a time;
- when the worker ends.

The key of a session is random. The client sends the key to the ranks like all other data, so the TLS of the cluster
keeps it secret. The name of the session is in the keys of tasks, which all clients of a scheduler can see. Tasks return
failures instead of raising them, because Dask would log a traceback on every worker, but the caller needs only one
message.
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
from distributed.protocol import dask_deserialize, dask_serialize
from distributed.protocol.pickle import dumps, loads
from distributed.worker_state_machine import FreeKeysEvent
from scipy.sparse import csr_array

from mgclust.base.errors import MgclustError, RunFailed
from mgclust.engine import checkpoint_memory
from mgclust.engine.abort import Abort
from mgclust.engine.devices import cores, gpus, why_no_gpu
from mgclust.engine.rank import Done, RankAssignment, run_rank
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

TOPIC = "mgclust-progress"  # topic of the events of ranks, for users
# Topic of the same events for the client of the run. Dask keeps one handler per topic and client, and users may
# subscribe to the other topic.
CLIENT_TOPIC = "mgclust-runs"
OPENING_SECONDS = 60.0  # time limit for an expected session to open
OWNERLESS_SECONDS = 60.0  # time for which arrays of a result are kept if no client fetches them


@dataclass(eq=False)
class _Seat:
    """The place of a worker in a session."""

    name: str  # name of the session
    abort: Abort  # ends the waits of the opening, and later of the run that uses the session
    busy: bool = False  # whether a run uses the session
    listener: socket.socket | None = None
    session: Session | None = None

    def end(self, reason: str) -> None:
        """Close the session; if a run uses it, make the run close it."""
        self.abort.set(reason)
        if self.listener is not None:
            self.listener.close()
        if self.session is not None and not self.busy:
            # This runs in a thread, because NCCL takes time, and the event loop of the worker must not block.
            threading.Thread(target=self.session.close, daemon=True).start()


# Seats of this process by worker address; one process may hold several workers (processes=False).
_SEATS: dict[str, _Seat] = {}
_RUNS: dict[str, tuple[str, Abort]] = {}
_LEFT: dict[str, tuple[str, dict[str, Any]]] = {}  # the last run of a worker and its arrays by key, until Dask has them
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Offer:
    """Devices of a worker."""

    gpu: str
    why_no_gpu: str
    cores: int
    nthreads: int


class Left(NamedTuple):
    """A rank's part of an array that stays on its worker."""

    rows: int
    empty: Any  # an array like the part, but without rows


@dataclass(frozen=True)
class Failure:
    """An exception on its way to the caller."""

    error: BaseException

    @classmethod
    def of(cls, error: BaseException, rank: int, address: str) -> Failure:
        """Make a failure that keeps the error's type. If mgclust does not define it, the traceback becomes a note."""
        if not isinstance(error, MgclustError):
            error.add_note(f"on rank {rank} ({address}):\n{''.join(traceback.format_exception(error))}")
        error.__cause__ = error.__context__ = None
        error.__traceback__ = None  # frames of the traceback, and of their callers, would keep the rows
        notes = list(getattr(error, "__notes__", ()))
        try:
            arrived = list(getattr(pickle.loads(pickle.dumps(error)), "__notes__", ()))
        except Exception:
            arrived = None
        if arrived != notes:  # compiled exceptions, such as CUDA's exceptions, lose their notes
            error = RunFailed(f"rank {rank} ({address}) failed: {type(error).__name__}: {error}")
            for note in notes:
                error.add_note(note)
        return cls(error)


class OwnWorker(WorkerPlugin):  # type: ignore[misc]
    """Behaviour of a worker whose cluster a run itself starts and ends."""

    name = "mgclust-own-worker"

    def setup(self, worker: Worker) -> None:
        """Leave Ctrl-C to the caller: a terminal sends it to all processes of a local cluster at once."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def teardown(self, worker: Worker) -> None:
        """Log nothing more: if the worker has closed the connection of heartbeats, they would be logged as errors."""
        logging.disable(logging.CRITICAL)


def offer(dask_worker: Any) -> Offer:
    """Return the devices of a worker; for ``Client.run``."""
    devices = gpus()
    return Offer(devices[0].uuid if devices else "", why_no_gpu(), cores(), dask_worker.state.nthreads)


def expect(name: str, ranks: dict[str, int], dask_worker: Any) -> int:
    """Begin a session, and end the previous session of the worker; for ``Client.run``.

    Returns
    -------
    int
        Port at which the rank listens for other ranks when the session opens; 0 for ranks that do not listen.
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
    """Call `run_rank` on a worker; return Done or a Failure.

    Parameters
    ----------
    session : str
        Name of the session; empty for a single rank.
    assignment : RankAssignment
        Instructions for the rank.
    address : str
        Address of the worker on which the rank should run.
    source : RowSource or callable
        Source of the rows, or a function that makes it from `arrays`.
    source_beside : RowSource, callable or None
        Source of the second set of rows, or a function that makes it from `arrays_beside`.
    columns : dict of str to callable
        Functions that make sources of one column from `arrays_of_columns`, for arguments with one number per row.
    arrays, arrays_beside : list of arrays or None
        Arrays for the functions `source` and `source_beside`.
    whole : dict of str to list of arrays
        Chunks of the function's arguments that were Dask arrays, by name.
    arrays_of_columns : dict of str to list of arrays
        Arrays for the functions in `columns`.
    saved : dict of str to object, or None
        Files of the checkpoint in memory from which the rank resumes.
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
            raise RunFailed(f"the task of rank {assignment.rank} ran on {worker.address}, not {address}.")
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
            context_meter.digest_metric(stage, seconds, "seconds")  # shown on the dashboard
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
    """Return a rank's part of a checkpoint in memory; for ``Client.run``.

    Returns
    -------
    dict of str to object, or None
        Files of the rank by name; None if the rank has a newer checkpoint.
    """
    return checkpoint_memory.take(run, ranks[dask_worker.address], number)


def name_of_part(run: str, name: str) -> str:
    """Return the name of an array that stays on the workers; the keys of its parts append the rank."""
    return f"mgclust-{name.replace('_', '-')}-{run}"


def _leave_here(worker: Worker, assignment: RankAssignment, arrays: dict[str, Any]) -> dict[str, Left]:
    """Put the arrays of a run where `publish` finds them; discard them if the client leaves before."""
    run, rank, address = assignment.run, assignment.rank, worker.address
    _LEFT[address] = run, {f"{name_of_part(run, name)}-{rank}": array for name, array in arrays.items()}

    def forget() -> None:
        if _LEFT.get(address, ("", {}))[0] == run:
            del _LEFT[address]

    worker.loop.add_callback(worker.loop.call_later, OWNERLESS_SECONDS, forget)
    return {name: Left(array.shape[0], array[:0]) for name, array in arrays.items()}


def publish(run: str, dask_worker: Any) -> dict[str, int]:
    """Turn the arrays that a run has left on this worker into data of Dask; for ``Client.run``.

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
    """Free data that the scheduler does not know, because the client ended between two calls."""
    here = [key for key in keys if key in worker.data]
    known = await worker.scheduler.who_has(keys=here) if here else {}
    unknown = [key for key in here if not known.get(key)]
    if unknown:
        worker.handle_stimulus(FreeKeysEvent(keys=unknown, stimulus_id=f"mgclust-free-{time.time()}"))


@dask_serialize.register((Done, csr_array))
def _to_frames(value: Any) -> tuple[dict[str, bytes], list[memoryview]]:
    """Pickle a value apart from its arrays: otherwise, Dask would copy them into the pickle before it sends them."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = dumps(value, buffer_callback=buffers.append, protocol=5)
    return {"pickled": pickled}, [buffer.raw() for buffer in buffers]


@dask_deserialize.register((Done, csr_array))
def _from_frames(header: dict[str, bytes], frames: list[Any]) -> Any:
    """Load what `_to_frames` has pickled; arrays can be written to, as in the process that made them."""
    return loads(
        header["pickled"], buffers=[each if not memoryview(each).readonly else bytearray(each) for each in frames]
    )


@sizeof.register(csr_array)
def _bytes_of(rows: csr_array) -> int:
    """Return the bytes of a sparse array for Dask, which would otherwise count none."""
    return int(rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes)


def _bytes_in_memory(worker: Worker) -> int:
    """Return the bytes of Dask's results that are in a worker's memory, and that the worker can write to disk."""
    kept = getattr(worker.data, "memory", {})  # a plain dict if writing to disk is turned off
    return sum(sizeof(kept.get(key)) for key in list(kept))


def _bytes_of_inputs(*inputs: list[Any] | None) -> int:
    """Return the bytes of a task's inputs, which stay in memory while the task runs."""
    return sum(sizeof(array) for arrays in inputs for array in arrays or ())


def _opened(source: Any, arrays: list[Any] | None) -> Any:
    return source if arrays is None else source(arrays)


def stop(run: str, reason: str, dask_worker: Any) -> None:
    """Tell a rank to stop; for ``Client.run``."""
    found = _RUNS.get(dask_worker.address)
    if found is not None and found[0] == run:
        found[1].set(reason)


def end_session(name: str, dask_worker: Any) -> None:
    """End a session, even while it is being opened or used; the scheduler calls this."""
    with _LOCK:
        seat = _SEATS.get(dask_worker.address)
        if seat is None or seat.name != name:
            return
        _SEATS.pop(dask_worker.address, None)
    seat.end("its client or a rank has gone, or the run is over")


def _take(address: str, name: str, abort: Abort) -> _Seat:
    """Take a worker's seat for a run, which has the seat until `_leave` is called."""
    with _LOCK:
        seat = _SEATS.get(address)
        if seat is None or seat.name != name or seat.busy or seat.session is None or seat.session.broken:
            raise SessionLost(
                f"the session of worker {address} has ended: a rank restarted, or another client used the worker."
            )
        seat.busy, seat.abort = True, abort
        return seat


def _leave(address: str, seat: _Seat) -> None:
    """End a run; keep the session if it is intact and has not been ended in the meantime, else close it."""
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
    """End a session that its client did not open in time."""
    with _LOCK:
        if _SEATS.get(address) is not seat or seat.session is not None:
            return
        _SEATS.pop(address, None)
    seat.end("it was not opened in time")


def _orphaned(worker: Worker) -> Any:
    """Make a function that returns whether Dask has released the calling task, e.g. because the client died."""
    key = worker.get_current_task()
    tasks = worker.state.tasks

    def orphaned() -> bool:
        task = tasks.get(key)
        return task is None or task.state in ("cancelled", "released", "forgotten")

    return orphaned


def _hosts(worker: Worker) -> tuple[str, str]:
    """Return addresses at which a rank listens for others.

    The first is the address by which others know the rank's worker. The second is the address at which the worker
    listens; it is used if the first address does not belong to this machine, e.g. behind address translation.
    """
    return get_address_host(worker.address), get_address_host(worker.listen_address)


def _tls(worker: Worker, address: str) -> tuple[Any, Any]:
    """Return the worker's TLS contexts if Dask is encrypted, so that the links of the ranks are also encrypted."""
    if not address.startswith("tls://"):
        return None, None
    security = worker.security
    return (
        security.get_connection_args("worker")["ssl_context"],
        security.get_listen_args("worker")["ssl_context"],
    )


def _threads(assignment: RankAssignment) -> contextlib.AbstractContextManager[None]:
    """Share the cores of the host among its ranks; Dask's nannies would give each rank only one thread."""
    return threads.share(max(1, cores() // assignment.neighbours))
