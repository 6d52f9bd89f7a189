"""Run one plain function on every rank at once.

::

    run ──> one rank: prepare, execute, in this process; Dask is not imported
        └─> several:  wait for free workers, and keep other runs off them
                      connect the ranks, unless the client's run before has left them connected
                      one pinned task a rank: load rows, look for NaN, compare memory; meet the other ranks, where any
                      refusal ends it; run the function. The caller watches the workers meanwhile
                      whatever happens: all ranks stopped and awaited, rows freed, workers given back

The second path is in `mgclust.engine.dask.driver`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.data import Dataset
from mgclust.engine.abort import Abort
from mgclust.engine.context import Context, Emit
from mgclust.engine.dask.cluster import Cluster
from mgclust.engine.partition import Partition
from mgclust.engine.rank import Assignment, hardware, refuse, run_rank
from mgclust.engine.rows import offset_of
from mgclust.engine.run_spec import RunSpec
from mgclust.progress import paced

__all__ = ["Context", "Outcome", "RunSpec", "run"]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run.

    Attributes
    ----------
    value : object
        Rank 0's return value.
    timings : dict
        Seconds by stage, as rank 0 saw them; "load" is reading and checking the rows. On a cluster also "place": where
        rows are, and sending those that are not there; "connect": 0 where ranks were connected already; "dask": from
        the caller to the ranks and back.
    hardware : dict
        Devices, hosts, versions.
    ranks : int
        How many there were.
    """

    value: Any
    timings: dict[str, float]
    hardware: dict[str, Any]
    ranks: int


def run(spec: RunSpec, dataset: Dataset, cluster: Cluster, on_progress: Emit | None = None) -> Outcome:
    """Run a function on every rank of a cluster.

    Parameters
    ----------
    spec : RunSpec
        The function, its arguments, and what it may use.
    dataset : Dataset
        Rows; each rank reads its own.
    cluster : Cluster
        From ``mgclust.engine.dask.cluster.connect``.
    on_progress : callable, optional
        Receives ``dict(stage, fraction, elapsed, stage_rate, stage_eta)``, see `mgclust.progress.paced`, in the thread
        that called `run`. What it raises ends the run on all ranks: raise RunCancelled to cancel.

    Raises
    ------
    InputError, InsufficientMemoryError
        Refused before the run; ClusterUnavailableError if fewer workers are left than it asks for.
    WorkerLost, CollectiveTimeout, RunFailed
        It could not be finished.
    KeyboardInterrupt
        After all ranks have stopped.
    """
    on_progress = paced(on_progress)
    partition = Partition.plan(dataset.shape[0], cluster.size)
    offset = offset_of(dataset, np.dtype(spec.dtype), spec.typical) if spec.shift else None
    first = Assignment(spec, uuid.uuid4().hex, 0, partition, cluster.device, offset=offset)
    if cluster.client is not None:
        from mgclust.engine.dask.driver import Driver

        with Driver(cluster, first, on_progress) as driver:
            value, timings, reports = driver.run(dataset)
        return Outcome(value, timings, hardware(reports, cluster.device), cluster.size)
    done = run_rank(first, dataset, Abort(), emit=on_progress)
    refuse([done.report], dataset.shape, spec.dtype)
    return Outcome(
        done.value, {"load": done.report.seconds, **done.timings}, hardware([done.report], cluster.device), 1
    )
