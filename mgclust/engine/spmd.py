"""Run one plain function on every rank at once.

::

    run ──> one rank: prepare, execute, in this process; Dask is not imported
        └─> several:  wait for free workers, and keep other runs off them
                      prepare on all ranks: load rows, look for NaN, compare memory; any refusal ends it here
                      execute on all ranks, one pinned task each; watch the workers meanwhile
                      whatever happens: all ranks stopped and awaited, rows freed, workers given back

The second path is in `mgclust.engine.dask.driver`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.engine.abort import Abort
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.context import Context, Emit
from mgclust.engine.dask.cluster import Cluster
from mgclust.engine.memory import Estimate, EstimateFunction
from mgclust.engine.partition import Partition
from mgclust.engine.rank import Assignment, Request, execute, hardware, prepare, refuse
from mgclust.engine.rows import offset_of
from mgclust.errors import InputError
from mgclust.progress import paced

__all__ = ["Context", "Estimate", "Outcome", "run"]

TIMEOUT = 300.0


@dataclass(frozen=True)
class Outcome:
    """What came out of a run.

    Attributes
    ----------
    value : object
        Rank 0's return value.
    timings : dict of str to float
        Seconds by stage, as rank 0 saw them; "load" is reading and checking the rows.
    hardware : dict
        Devices, hosts, versions.
    ranks : int
        How many there were.
    """

    value: Any
    timings: dict[str, float]
    hardware: dict[str, Any]
    ranks: int


def run(
    function: Callable[..., Any],
    dataset: Any,
    cluster: Cluster,
    *,
    parameters: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    memory_limit: int | None = None,
    estimate: EstimateFunction | None = None,
    on_progress: Emit | None = None,
    timeout: float = TIMEOUT,
    shift: bool = False,
    typical: np.ndarray | None = None,
    resident: bool = True,
    checkpoint: CheckpointConfig | None = None,
) -> Outcome:
    """Run ``function(context, **parameters)`` on every rank of a cluster.

    Parameters
    ----------
    function : callable
        Importable by name (workers import it). Its value on rank 0 is returned; host arrays only.
    dataset : Dataset
        Rows; each rank reads its own.
    cluster : Cluster
        From `mgclust.engine.dask.cluster.connect`.
    parameters : mapping, optional
        Keyword arguments of the function.
    dtype : {"float32", "float64", "int32"}
        Type of the rows on the device.
    memory_limit : int, optional
        Bytes of its device that each rank may use. Rows that do not fit into half of them are streamed.
    estimate : callable, optional
        ``(shape, itemsize, size, resident_limit) -> Estimate``, importable: compared with the memory that is
        free on every rank before the run.
    on_progress : callable, optional
        Receives ``dict(stage, fraction, elapsed, stage_rate, stage_eta)``, see `mgclust.progress.paced`, in the thread
        that called `run`. What it raises ends the run on all ranks: raise RunCancelled to cancel.
    timeout : float
        Seconds that one rank waits for the others in a collective. Ranks that die are noticed at once; this
        is for those that hang.
    shift : bool
        The function's answer does not change when one point is subtracted from all rows: float64 rows may be moved
        to the origin before they become float32 (`mgclust.engine.rows.offset_of`).
    typical : int array, optional
        Numbers of the rows that matter, where these are not any.
    resident : bool
        Rows that fit stay in memory; False: each is read when it is asked for, as suits a function that asks once.
    checkpoint : CheckpointConfig, optional
        Where the function may save how far it is, and goes on from (`Context.checkpoint`).

    Returns
    -------
    Outcome

    Raises
    ------
    InputError, InsufficientMemoryError
        Refused before the run; ClusterUnavailableError if workers have left, so that it would wait in vain.
    WorkerLost, CollectiveTimeout, RunFailed
        It could not be finished.
    KeyboardInterrupt
        After all ranks have stopped.
    """
    if dtype not in ("float32", "float64", "int32"):
        raise InputError(f"dtype={dtype!r} should be 'float32' or 'float64'; 'int32' for the edges of a graph.")
    on_progress = paced(on_progress)
    partition = Partition.plan(dataset.shape[0], dataset.shape[1], cluster.size)
    offset = offset_of(dataset, np.dtype(dtype), typical) if shift else None
    if cluster.client is not None:
        from mgclust.engine.dask.driver import Driver

        with Driver(cluster, dtype, memory_limit, on_progress, timeout, offset, resident) as driver:
            value, timings, reports = driver.run(
                function, dataset, partition, dict(parameters or {}), estimate, checkpoint
            )
        return Outcome(value, timings, hardware(reports, cluster.device), cluster.size)
    abort = Abort()
    assignment = Assignment(
        uuid.uuid4().hex, 0, partition, dtype, cluster.device, memory_limit, offset=offset, resident=resident
    )
    state, report = prepare(assignment, dataset, estimate, abort)
    refuse([report], dataset.shape, dtype)
    assert state is not None
    request = Request(function, dict(parameters or {}), report.run_rows, timeout=timeout, checkpoint=checkpoint)
    value, timings = execute(state, request, on_progress)
    return Outcome(value, {"load": report.seconds, **timings}, hardware([report], cluster.device), 1)
