"""Tasks that run on a Dask worker, around `prepare` and `execute`.

Tasks return failures instead of raising them: Dask would log a traceback on every worker, where the caller
needs one sentence.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import threading
import traceback
from dataclasses import dataclass, replace
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker
from distributed.comm.addressing import get_address_host

from mgclust.engine.abort import Abort
from mgclust.engine.devices import cores, gpus, why_no_gpu
from mgclust.engine.rank import Assignment, Meeting, Report, State, execute, prepare
from mgclust.engine.rows import Source
from mgclust.errors import MgclustError, RunFailed, WorkerLost
from mgclust.kernels.toolkit import threads

__all__ = [
    "TOPIC",
    "Failure",
    "IgnoreInterrupts",
    "Offer",
    "execute_task",
    "forget",
    "offer",
    "prepare_task",
    "stop",
]

TOPIC = "mgclust-progress"

# Runs of this process by worker address; one process may hold several workers (processes=False).
_STATES: dict[str, tuple[str, Abort, State | None]] = {}
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Offer:
    """Devices that a worker has to compute with."""

    gpu: str
    why_no_gpu: str
    cores: int
    nthreads: int


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
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RunFailed(f"rank {rank} ({address}) failed: {type(error).__name__}: {error}")
        return cls(error)


class IgnoreInterrupts(WorkerPlugin):  # type: ignore[misc]
    """Leave Ctrl-C to the caller: a terminal sends it to all processes of a local cluster at once."""

    name = "mgclust-ignore-interrupts"

    def setup(self, worker: Worker) -> None:
        """Run once on each worker, in its main thread."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def offer(dask_worker: Any) -> Offer:
    """Ask a worker what it has; for ``Client.run``."""
    devices = gpus()
    return Offer(devices[0].uuid if devices else "", why_no_gpu(), cores(), dask_worker.state.nthreads)


def prepare_task(assignment: Assignment, address: str, source: Source) -> Report:
    """`prepare` on a worker; its state waits here for `execute_task`."""
    worker = get_worker()
    if worker.address != address:
        return Report(error=RunFailed(f"the task of rank {assignment.rank} landed on {worker.address}, not {address}."))
    abort = Abort(_orphaned(worker))
    with _LOCK:
        older = _STATES.pop(address, None)
        _STATES[address] = (assignment.run, abort, None)
    if older is not None:
        # The worker is leased to this run, so the client of the older one is gone.
        _close(older, "its client has gone and another run needs the worker")
    limit = worker.memory_manager.memory_limit or 0
    assignment = replace(assignment, worker_limit=int(limit))
    with _threads(assignment):
        hosts = (get_address_host(address), get_address_host(worker.listen_address)) if assignment.rank == 0 else ()
        state, report = prepare(assignment, source, abort, hosts)
    if report.error is not None:
        report.error = Failure.of(report.error, assignment.rank, address).error  # type: ignore[assignment]
    with _LOCK:
        if state is not None and _STATES.get(address, ("",))[0] == assignment.run:
            _STATES[address] = (assignment.run, abort, state)
            return report
    if state is not None:
        state.close()
    return report


def execute_task(run: str, rank: int, address: str, meeting: Meeting) -> Any:
    """`execute` on a worker; (value, timings) or a Failure."""
    worker = get_worker()
    try:
        found = _STATES.get(worker.address)
        if worker.address != address or found is None or found[0] != run or found[2] is None:
            # A worker that died and was restarted under its old address is given its task again.
            raise WorkerLost(f"worker {address} of rank {rank} was lost: it restarted during the run.")
        state = found[2]
        state.abort = found[1]
        found[1].watch(_orphaned(worker))

        def emit(event: dict[str, Any]) -> None:
            worker.log_event(TOPIC, {"run": run, **event})

        with _threads(state.assignment):
            return execute(state, meeting, emit, *_tls(worker, address))
    except Exception as error:
        return Failure.of(error, rank, address)
    finally:
        forget(run, worker)


def stop(run: str, reason: str, dask_worker: Any) -> None:
    """Tell a rank to stop; for ``Client.run``."""
    state = _STATES.get(dask_worker.address)
    if state is not None and state[0] == run:
        state[1].set(reason)


def forget(run: str, dask_worker: Any) -> None:
    """Free what a run keeps on a worker; for ``Client.run``."""
    with _LOCK:
        state = _STATES.get(dask_worker.address)
        if state is None or state[0] != run:
            return
        del _STATES[dask_worker.address]
    _close(state, "the run is over")


def _close(entry: tuple[str, Abort, State | None], reason: str) -> None:
    entry[1].set(reason)
    if entry[2] is not None:
        entry[2].close()


def _orphaned(worker: Worker) -> Any:
    """Return whether Dask has lost interest in the calling task, as it does when the client dies."""
    key = worker.get_current_task()
    tasks = worker.state.tasks

    def orphaned() -> bool:
        task = tasks.get(key)
        return task is None or task.state in ("cancelled", "released", "forgotten")

    return orphaned


def _tls(worker: Worker, address: str) -> tuple[Any, Any]:
    """The worker's own TLS contexts where Dask is encrypted: the ranks' links then are, too."""
    if not address.startswith("tls://"):
        return None, None
    security = worker.security
    return (
        security.get_connection_args("worker")["ssl_context"],
        security.get_listen_args("worker")["ssl_context"],
    )


def _threads(assignment: Assignment) -> contextlib.AbstractContextManager[None]:
    """Share the host's cores among the ranks on it; Dask's nannies would leave one thread to each."""
    return threads.share(max(1, cores() // assignment.neighbours))
