"""Work of one rank, in-process or on a worker: load its rows, check, meet the other ranks, run the function, leave."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil

from mgclust import kernels as kernel_modules
from mgclust.base.errors import InputError
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
    rank: int  # which rank this is
    partition: Partition  # which rank owns which rows
    device: str  # "cpu" or "cuda"
    neighbours: int = 1  # workers on this host, this one included: they share its memory and cores
    worker_limit: int = 0  # bytes at which Dask's nanny would end the worker; 0: never
    spillable: int = 0  # bytes of the worker's memory that Dask writes to disk where they are needed
    offset: np.ndarray | None = None  # for `Rows`
    keep_on_workers: bool = False  # whether arrays of the result stay with their ranks


@dataclass
class _Prepared:
    """A rank with its rows loaded."""

    rows: Rows
    kernels: Kernels
    residency: Residency


@dataclass
class Report:
    """Report of a rank on its rows."""

    bad: int = 0  # values that are not finite
    first: int | None = None  # first row with one, by its global number
    overflown: float = 0.0  # largest number that is too large for the dtype; 0 without any
    error: Exception | None = None  # why this rank refuses
    range_rows: int = 1  # most rows of a block in `stream` that fit here
    seconds: float = 0.0  # taken to load and check
    device: str = ""  # name of the GPU or processor
    host: str = ""  # name of the machine


@dataclass
class Done:
    """Outcome of a rank."""

    report: Report
    value: Any = None  # what the function returned, on rank 0
    timings: dict[str, float] = field(default_factory=dict)  # seconds by stage; none where a rank refused
    delivered: dict[str, Any] = field(default_factory=dict)  # this rank's rows of arrays, by name
    seconds: float = 0.0  # taken in all


def run_rank(
    assignment: RankAssignment,
    source: RowSource,
    abort: Abort,
    session: Session | None = None,
    emit: Emit | None = None,
    beside: RowSource | None = None,
) -> Done:
    """Load this rank's rows, meet the other ranks, run the function, leave; nothing is run where a rank refuses.

    Parameters
    ----------
    assignment : RankAssignment
        What to do.
    source : RowSource
        Where rows come from.
    abort : Abort
        Ends every wait.
    session : Session, optional
        Connections to the other ranks, where there are others. Every error but a refusal closes them.
    emit : callable, optional
        Called with the events of the progress, on rank 0.
    beside : RowSource, optional
        Rows of which each rank has a share beside its own.
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
    """Load this rank's rows; find every reason to refuse before the first collective; the run ends the stack."""
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
        residency.check()
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


def refuse(reports: list[Report], shape: tuple[int, int], dtype: str) -> None:
    """Raise the one sentence with which a run is refused, if it is; of several, the lowest rank's.

    Parameters
    ----------
    reports : list of Report
        In rank order.
    shape : tuple of int
        Of the whole data.
    dtype : str
        In which values must be finite.
    """
    for report in reports:
        if report.error is not None:
            error, report.error = report.error, None
            try:
                raise error
            finally:
                # An error that its own frames know, here or in a report, keeps the rows until garbage is collected.
                del error
    bad = sum(report.bad for report in reports)
    if not bad:
        return
    first = min(report.first for report in reports if report.first is not None)
    raise not_finite(bad, first, shape, dtype, max(report.overflown for report in reports))


def gathered(done: list[Done]) -> dict[str, Any]:
    """Whole arrays of what all ranks have delivered, by name.

    Parameters
    ----------
    done : list of Done
        In rank order; they lose their parts.
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


HELD_IN_FLOAT64 = 1e150  # numbers whose squares it holds


def not_finite(
    bad: int, first: int, shape: tuple[int, ...], dtype: Any, overflown: float = 0.0, name: str = "X"
) -> InputError:
    """The refusal of so many values that are not finite, the first in this row; of finite ones the largest."""
    remedy = "drop or fill these rows"
    if overflown:
        wider = ", or use dtype='float64'" if overflown < HELD_IN_FLOAT64 else ""
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
    """Run the function; its value on rank 0, seconds by stage, and what this rank has delivered."""
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
        keep_on_workers=assignment.keep_on_workers,
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
    """Hardware of a run, for its provenance."""
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
        # The first compiled function brings the compiler with it: more than a hundred MiB that are not the run's.
        one = np.ones((1, 1), np.float32)
        kernels.pairs.reduced_distances(one, one, norm="l2")
    free = int(kernels.memory.free_memory())
    if assignment.device == "cpu":
        free = min(free, _host_share(assignment))
    limit = assignment.spec.memory_limit
    return free if limit is None else min(free, limit)


def _host_share(assignment: RankAssignment) -> int:
    """Bytes of host memory that this rank may take beside its neighbours."""
    share = psutil.virtual_memory().available // assignment.neighbours
    if assignment.worker_limit:
        used = psutil.Process().memory_info().rss - assignment.spillable
        share = min(share, unspilled(assignment.worker_limit, used))
    return share


def _room(assignment: RankAssignment) -> int:
    """Bytes of host memory that copies for a checkpoint may take now; none beside what `memory_limit` grants."""
    limited = assignment.device == "cpu" and assignment.spec.memory_limit is not None
    return 0 if limited else _host_share(assignment) // 2


def _keep_on_host(assignment: RankAssignment, source: RowSource, row_bytes: int) -> bool:
    """Return whether a GPU's streamed rows are copied to host memory that is fast to read: if they fit there."""
    start, stop = assignment.partition.rows_of(assignment.rank)
    if assignment.device != "cuda" or start == stop or (stop - start) * row_bytes >= _host_share(assignment) // 2:
        return False
    # Of an array, a rank holds its own rows alone.
    return source.kind != "array" or not hasattr(source.read(start, start + 1), "__cuda_array_interface__")


def _range_rows(residency: Residency, device: str, n_features: int, own_rows: int) -> int:
    """Blocks are merged, or a tile would be too short for its launch, while the run can still be stopped."""
    # Some 20 ms on a GPU of 2024; some 100 ms on two cores.
    pairs = 1 << 36 if device == "cuda" else (1 << 33) // max(16, n_features)
    return max(1, min(residency.range_rows, pairs // max(1, own_rows)))
