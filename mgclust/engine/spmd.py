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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mgclust.array_files import computed, is_dask
from mgclust.data import Dataset
from mgclust.engine.abort import Abort
from mgclust.engine.context import Context, Emit
from mgclust.engine.dask.cluster import Cluster
from mgclust.engine.partition import Partition
from mgclust.engine.rank import Assignment, hardware, refuse, run_rank
from mgclust.engine.rows import offset_of
from mgclust.engine.run_spec import RunSpec
from mgclust.progress import paced

__all__ = ["Context", "Outcome", "RunSpec", "run", "stays_on_workers"]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run.

    Attributes
    ----------
    value : object
        Rank 0's return value.
    arrays : dict of str to array
        What the ranks delivered (`mgclust.engine.context.Context.deliver`): NumPy or SciPy arrays, or Dask arrays whose
        chunks are on the workers, where the rows are a Dask array and the client is the caller's own.
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
    arrays: dict[str, Any]
    timings: dict[str, float]
    hardware: dict[str, Any]
    ranks: int


def stays_on_workers(cluster: Cluster, rows: Dataset) -> bool:
    """Return whether arrays of a result become Dask arrays: if the rows are one, and the client is the caller's own.

    Parameters
    ----------
    cluster : Cluster
        Where the run is.
    rows : Dataset
        Those that the arrays have a row for.
    """
    return cluster.lasting and rows.dask_array is not None


def run(
    spec: RunSpec,
    dataset: Dataset,
    cluster: Cluster,
    on_progress: Emit | None = None,
    beside: Dataset | None = None,
) -> Outcome:
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
    beside : Dataset, optional
        Rows that the ranks meet with those of the data set, each a share of them: ``context.beside``.

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
    if not cluster.lasting:  # chunks that another client has
        given = {name: computed(value) if is_dask(value) else value for name, value in spec.arguments.items()}
        spec = replace(spec, arguments=given)
    partition = Partition.plan(dataset.shape[0], cluster.size)
    offset = offset_of(dataset, np.dtype(spec.dtype), spec.typical) if spec.shift else None
    stays = stays_on_workers(cluster, beside or dataset)
    first = Assignment(spec, uuid.uuid4().hex, 0, partition, cluster.device, offset=offset, stays=stays)
    if cluster.client is not None:
        from mgclust.engine.dask.driver import Driver

        with Driver(cluster, first, on_progress) as driver:
            value, arrays, timings, reports = driver.run(dataset, beside)
        return Outcome(value, arrays, timings, hardware(reports, cluster.device), cluster.size)
    done = run_rank(first, dataset, Abort(), emit=on_progress, beside=beside)
    refuse([done.report], dataset.shape, spec.dtype)
    timings = {"load": done.report.seconds, **done.timings}
    return Outcome(done.value, done.delivered, timings, hardware([done.report], cluster.device), 1)
