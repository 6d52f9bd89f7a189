"""Work of one rank, in this process or on a worker: load and check rows, synchronize with other ranks, run, leave."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil

from mgclust import kernels as kernel_modules
from mgclust.base.errors import InputError, InsufficientMemoryError
from mgclust.engine.abort import Abort
from mgclust.engine.context import Context, Emit
from mgclust.engine.devices import cores, cpu_name, gpus
from mgclust.engine.memory import Residency, unspilled
from mgclust.engine.partition import Partition
from mgclust.engine.rows import Beside, Rows, RowSource
from mgclust.engine.run_spec import RunSpec
from mgclust.engine.transport.comm import Comm, SoloComm
from mgclust.engine.transport.session import Session
from mgclust.kernels import Kernels
from mgclust.results.versions import installed_versions

__all__ = ["Done", "RankAssignment", "Report", "gathered", "hardware", "not_finite", "refuse", "run_rank"]


@dataclass(frozen=True)
class RankAssignment:
    """Instructions that a rank gets before it loads its rows."""

    spec: RunSpec  # the same for all ranks
    run: str  # unique name of the run
    rank: int  # number of this rank
    partition: Partition  # which rank owns which rows
    device: str  # "cpu" or "cuda"
    neighbours: int = 1  # number of workers on this host, including this one; they share its memory and cores
    worker_limit: int = 0  # bytes at which Dask's nanny would end the worker; 0: never
    spillable: int = 0  # bytes of the worker's memory that Dask writes to disk if memory is needed
    offset: np.ndarray | None = None  # argument of `Rows`
    keep_on_workers: bool = False  # whether arrays of the result stay with their ranks
    client_free: int | None = None  # bytes that the client may take for arrays of the result, if it receives them


@dataclass
class _Prepared:
    """A rank with its rows loaded."""

    rows: Rows
    kernels: Kernels
    residency: Residency


@dataclass
class Report:
    """Report of a rank on its rows."""

    bad: int = 0  # number of values that are not finite
    first: int | None = None  # global number of the first row with such a value
    overflown: float = 0.0  # largest number that is too large for the dtype; 0 if there is none
    error: Exception | None = None  # why this rank rejects the run
    range_rows: int = 1  # largest number of rows of a block in `stream` that fits on this rank
    seconds: float = 0.0  # time taken to load and check the rows
    device: str = ""  # name of the GPU or processor
    host: str = ""  # name of the machine


@dataclass
class Done:
    """Outcome of a rank."""

    report: Report
    value: Any = None  # return value of the function, on rank 0
    timings: dict[str, float] = field(default_factory=dict)  # seconds by stage; empty if a rank rejected the run
    delivered: dict[str, Any] = field(default_factory=dict)  # this rank's part of each delivered array, by name
    seconds: float = 0.0  # total time


def run_rank(
    assignment: RankAssignment,
    source: RowSource,
    abort: Abort,
    session: Session | None = None,
    emit: Emit | None = None,
    beside: RowSource | None = None,
) -> Done:
    """Load this rank's rows, synchronize with the other ranks, run the function unless a rank rejects it, and leave.

    Parameters
    ----------
    assignment : RankAssignment
        Instructions for this rank.
    source : RowSource
        Source of the rows.
    abort : Abort
        Ends every wait.
    session : Session, optional
        Connections to the other ranks, if there are others. Every error except a rejection of the run closes them.
    emit : callable, optional
        Called with the progress events, on rank 0.
    beside : RowSource, optional
        Second set of rows; each rank gets a part of it in addition to its own rows.
    """
    with contextlib.ExitStack() as stack:
        prepared, report = _prepare(assignment, source, stack, session)
        range_rows = report.range_rows if prepared is not None and not report.bad else 0
        if session is None:
            if not range_rows:
                return Done(report)
            return Done(
                report, *_execute(assignment, prepared, abort, _solo(assignment, abort, range_rows), emit, beside)
            )
        try:
            host = session.begin(assignment.partition, abort, assignment.spec.timeout)
            if not host.meet(assignment.run, range_rows):
                return Done(report)
            if emit is not None and host.rank == 0:
                emit({"stage": "load", "fraction": 1.0, "elapsed": report.seconds})
            began = time.perf_counter()
            comm = host if assignment.device == "cpu" else session.on_gpus(host)
            connected = time.perf_counter() - began
            value, timings, delivered = _execute(assignment, prepared, abort, comm, emit, beside)
        except BaseException:
            session.close()
            raise
        return Done(report, value, {"connect": connected, **timings}, delivered)


def _prepare(
    assignment: RankAssignment, source: RowSource, stack: contextlib.ExitStack, session: Session | None = None
) -> tuple[_Prepared | None, Report]:
    """Load and check this rank's rows, so that every reason to reject the run is known before the first collective.

    The context of the run's memory limit is entered on `stack`, which the caller closes after the run.
    """
    began = time.perf_counter()
    report = Report(device=gpus()[0].name if assignment.device == "cuda" else cpu_name(), host=socket.gethostname())
    try:
        if session is not None and assignment.device == "cuda":
            session.check_gpus()
        kernels = kernel_modules.load(assignment.device)
        spec, partition = assignment.spec, assignment.partition
        start, stop = partition.rows_of(assignment.rank)
        dtype = np.dtype(spec.dtype)
        kernels.compile_ahead(spec.first_calls, source.shape[1], dtype)
        residency = Residency(
            free=_free_memory(assignment, kernels),
            shape=source.shape,
            itemsize=dtype.itemsize,
            size=partition.size,
            method=spec.estimate,
            reading=getattr(source, "reading_bytes", lambda rows: 0),
            keep=spec.resident,
        )
        try:
            residency.check()
        except InsufficientMemoryError as error:
            if residency.free != spec.memory_limit:
                raise
            raise InsufficientMemoryError(f"memory_limit={spec.memory_limit} is {error}") from None
        stack.enter_context(kernels.memory.bounded(spec.memory_limit))
        report.range_rows = _range_rows(residency, assignment.device, source.shape[1], stop - start)
        keep_on_host = _keep_on_host(assignment, source, residency.row_bytes)
        resident = residency.resident(residency.rows)
        rows = Rows(
            source,
            start,
            stop,
            dtype=dtype,
            kernels=kernels,
            block_rows=partition.block_rows,
            piece=residency.piece,
            chunk_rows=None if resident else residency.chunk_rows,
            keep_on_host=keep_on_host,
            offset=assignment.offset,
            metric=spec.metric,
        )
        report.bad, report.first = rows.load()
        report.overflown = rows.overflown
        kernels.memory.synchronize()
    except Exception as error:
        report.error = error
        return None, report
    report.seconds = time.perf_counter() - began
    return _Prepared(rows, kernels, residency), report


def refuse(reports: list[Report], shape: tuple[int, int], spec: RunSpec) -> None:
    """Raise the error that rejects the run, if there is one; of several errors, raise the error of the lowest rank.

    Parameters
    ----------
    reports : list of Report
        Reports of all ranks, in rank order.
    shape : tuple of int
        Shape of the whole data.
    spec : RunSpec
        The run. Values must be finite in its number type.
    """
    for report in reports:
        if report.error is not None:
            error, report.error = report.error, None
            try:
                raise error
            finally:
                # An error to which its own frames refer, here or in a report, keeps the rows until garbage collection.
                del error
    bad = sum(report.bad for report in reports)
    if not bad:
        return
    first = min(report.first for report in reports if report.first is not None)
    overflown = max(report.overflown for report in reports)
    raise not_finite(bad, first, shape, spec.dtype, overflown, any_dtype=spec.any_dtype)


def gathered(done: list[Done]) -> dict[str, Any]:
    """Join the parts of the arrays that the ranks have delivered; return the arrays by name.

    Parameters
    ----------
    done : list of Done
        Outcomes of all ranks, in rank order; the parts are removed from the outcomes.
    """
    parts = [each.delivered for each in done]
    return {name: _joined([part.pop(name) for part in parts]) for name in list(parts[0])}


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    from scipy.sparse import vstack

    return vstack(parts, format="csr")


HELD_IN_FLOAT64 = 1e150  # the squares of smaller numbers fit into float64


def not_finite(
    bad: int,
    first: int,
    shape: tuple[int, ...],
    dtype: Any,
    overflown: float = 0.0,
    name: str = "X",
    any_dtype: bool = True,
) -> InputError:
    """Make the error for `bad` non-finite values, the first of them in row `first`.

    `overflown` is the largest finite value that is too large for `dtype`. If the method has no parameter `dtype`,
    `any_dtype` is False.
    """
    remedy = "drop or fill these rows"
    if overflown:
        wider = ", or use dtype='float64'" if any_dtype and overflown < HELD_IN_FLOAT64 else ""
        remedy = f"values reach {overflown:.3g}: drop such rows, or rescale the data{wider}"
    return InputError(
        f"Input {name} contains NaN or infinity (or values too large for {dtype}): {bad} of {shape[0] * shape[1]} "
        f"values, the first in row {first} (counted from 0); {remedy}."
    )


def _execute(
    assignment: RankAssignment,
    prepared: _Prepared | None,
    abort: Abort,
    comm: Comm,
    emit: Emit | None,
    beside: RowSource | None,
) -> tuple[Any, dict[str, float], dict[str, np.ndarray]]:
    """Run the function; return its value on rank 0, the seconds by stage, and the arrays that this rank delivered."""
    assert prepared is not None
    spec = assignment.spec
    context = Context(
        comm=comm,
        partition=assignment.partition,
        rows=prepared.rows,
        kernels=prepared.kernels,
        free=prepared.residency.room(prepared.residency.held),
        spare=prepared.residency.free - prepared.residency.estimate(prepared.residency.held).needed,
        limited=spec.memory_limit is not None or bool(assignment.worker_limit and assignment.device == "cpu"),
        abort=abort,
        emit=emit,
        checkpoint=spec.checkpoint,
        room=lambda: _room(assignment),
        host_free=lambda: _host_share(assignment),
        client_free=assignment.client_free,
        beside=None if beside is None else Beside.of(beside, comm.rank, comm.size),
    )
    with contextlib.closing(context.checkpoint), context.telling_of_compiling():
        value = spec.function(context, **spec.arguments, **spec.row_arguments)
    prepared.kernels.memory.synchronize()
    comm.leave()
    return (value if comm.rank == 0 else None), context.timings, context.delivered


def _solo(assignment: RankAssignment, abort: Abort, range_rows: int) -> SoloComm:
    if assignment.device == "cpu":
        return SoloComm(assignment.partition, range_rows)
    from mgclust.engine.transport.cuda import DeviceSoloComm

    return DeviceSoloComm(assignment.partition, range_rows, abort)


def hardware(reports: list[Report], device: str) -> dict[str, Any]:
    """Describe the hardware of a run, for the provenance of its result."""
    return {
        "device": device,
        "ranks": len(reports),
        "devices": [report.device for report in reports],
        "hosts": sorted({report.host for report in reports}),
        "cpu": cpu_name(),
        "cores": cores(),
        "versions": installed_versions(),
    }


def _free_memory(assignment: RankAssignment, kernels: Kernels) -> int:
    if assignment.worker_limit and assignment.device == "cpu":
        # The first compiled function also loads the compiler, which takes more than a hundred MiB. This call loads it
        # before the free memory is measured, so that the run is not charged for it.
        one = np.ones((1, 1), np.float32)
        kernels.pairs.reduced_distances(one, one, norm="l2")
    free = int(kernels.memory.free_memory())
    if assignment.device == "cpu":
        free = min(free, _host_share(assignment))
    limit = assignment.spec.memory_limit
    return free if limit is None else min(free, limit)


def _host_share(assignment: RankAssignment) -> int:
    """Return how many bytes of host memory this rank may take; the workers of a host share its memory equally."""
    share = psutil.virtual_memory().available // assignment.neighbours
    if assignment.worker_limit:
        used = psutil.Process().memory_info().rss - assignment.spillable
        share = min(share, unspilled(assignment.worker_limit, used))
    return share


def _room(assignment: RankAssignment) -> int:
    """Return the bytes of host memory that a checkpoint may now use for copies; 0 if `memory_limit` bounds them."""
    limited = assignment.device == "cpu" and assignment.spec.memory_limit is not None
    return 0 if limited else _host_share(assignment) // 2


def _keep_on_host(assignment: RankAssignment, source: RowSource, row_bytes: int) -> bool:
    """Return whether streamed rows of a GPU are kept in host memory that is fast to read: only if they fit there."""
    start, stop = assignment.partition.rows_of(assignment.rank)
    if assignment.device != "cuda" or start == stop or (stop - start) * row_bytes >= _host_share(assignment) // 2:
        return False
    # A rank has only its own rows of an array, so one of these rows is read to find out where the array is.
    return source.kind != "array" or not hasattr(source.read(start, start + 1), "__cuda_array_interface__")


def _range_rows(residency: Residency, device: str, n_features: int, own_rows: int) -> int:
    """Return the number of rows up to which blocks are merged: a tile is worth a launch, but ends soon if cancelled."""
    # On a GPU of 2024, this number of pairs takes about 0.1 s with few features, and up to 0.6 s with 128. On two
    # cores, it takes about 0.1 s. With shorter ranges, a GPU spends much of the time on work that each call repeats for
    # every own row, such as packing the row.
    pairs = max(1 << 36, (1 << 45) // max(128, n_features)) if device == "cuda" else (1 << 33) // max(16, n_features)
    return max(1, min(residency.range_rows, pairs // max(1, own_rows)))
