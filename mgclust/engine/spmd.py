"""Run one plain function on every rank at once.

::

    run ──> in this process: prepare, execute; Dask is not imported
        └─> on workers: wait for free ones, and keep other runs off them
                      connect the ranks, unless the client's run before has left them connected
                      one pinned task a rank: load rows, look for NaN, compare memory; meet the other ranks, where any
                      refusal ends it; run the function. The caller watches the workers meanwhile
                      whatever happens: all ranks stopped and awaited, rows freed, workers given back
                      where a worker was lost: again, from the last checkpoint (`mgclust.engine.retries`)

The second path is in `mgclust.engine.dask.driver`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mgclust.base.dask_arrays import computed, is_dask
from mgclust.base.errors import ClusterUnavailableError, InsufficientMemoryError, WorkerLost
from mgclust.base.progress import paced
from mgclust.data import Dataset
from mgclust.engine.abort import Abort
from mgclust.engine.checkpoint_memory import MemoryCheckpoint
from mgclust.engine.context import Context, Emit
from mgclust.engine.dask.cluster import Cluster
from mgclust.engine.partition import Partition
from mgclust.engine.rank import RankAssignment, hardware, refuse, run_rank
from mgclust.engine.retries import RunAttempts
from mgclust.engine.rows import offset_of
from mgclust.engine.run_spec import RunSpec, Work

__all__ = ["Context", "Outcome", "RunSpec", "Work", "run", "stays_on_workers"]

RETIRING_SECONDS = 10.0  # seconds between the decision to retire a worker and its end
BUSY = "other runs had the others"
NOT_REPLACED = "{} worker(s) were lost during the run, and none took their place within seconds"
NOT_GROWN = "within seconds the cluster did not grow to the {} workers that there is work for; n_workers= waits longer"


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
        Devices, hosts, versions. On a cluster also "workers": how many there were; and, where a run without a number
        took fewer, "fewer_because": why, in words. "retries": how often it was tried again after the loss of a worker.
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
        Receives ``dict(stage, fraction, elapsed, stage_rate, stage_eta)``, see `mgclust.base.progress.paced`, in the
        thread that called `run`. What it raises ends the run on all ranks: raise RunCancelled to cancel.
    beside : Dataset, optional
        Rows that the ranks meet with those of the data set, each a share of them: ``context.beside``.

    Raises
    ------
    InputError, InsufficientMemoryError
        Refused before the run; ClusterUnavailableError if there are fewer workers than it asks for, or no scheduler.
    WorkerLost, CollectiveTimeout, RunFailed
        It could not be finished; WorkerLost once the retries of the cluster are used up.
    KeyboardInterrupt
        After all ranks have stopped.
    """
    on_progress = paced(on_progress)
    if not cluster.lasting:  # chunks that another client has
        spec = replace(spec, arguments=_here(spec.arguments), row_arguments=_here(spec.row_arguments))
    offset = offset_of(dataset, np.dtype(spec.dtype), spec.metric, spec.typical)
    keep_on_workers = stays_on_workers(cluster, beside or dataset)
    first = RankAssignment(
        spec, "", 0, Partition.plan(dataset.shape[0], 1), cluster.device, offset=offset, keep_on_workers=keep_on_workers
    )
    if cluster.client is not None:
        return _on_workers(first, dataset, cluster, on_progress, beside)
    done = run_rank(first, dataset, Abort(), emit=on_progress, beside=beside)
    refuse([done.report], dataset.shape, spec.dtype)
    timings = {"load": done.report.seconds, **done.timings}
    return Outcome(done.value, done.delivered, timings, hardware([done.report], cluster.device), 1)


def _here(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without Dask arrays."""
    return {name: computed(value) if is_dask(value) else value for name, value in arguments.items()}


def _on_workers(
    first: RankAssignment, dataset: Dataset, cluster: Cluster, on_progress: Emit | None, beside: Dataset | None
) -> Outcome:
    """A run on a cluster, again where it took too few workers for its memory, or lost one."""
    from mgclust.engine.dask.driver import Driver

    least, most, retired, work = cluster.size if cluster.exact else 1, cluster.size, False, first.spec.work
    if work is not None and not cluster.exact:
        most = max(min(most, work.ranks(cluster.device)), work.growth(cluster.device))
    retries = RunAttempts(cluster.retries, least, most, cluster.size if cluster.exact else None)
    in_memory = cluster.retries > 0 and first.spec.checkpoint is None
    while True:
        began, name = time.monotonic(), uuid.uuid4().hex
        spec = replace(first.spec, checkpoint=MemoryCheckpoint(name)) if in_memory else first.spec
        attempt = replace(first, run=name, spec=spec)
        driver = Driver(cluster, attempt, retries.least, retries.most, on_progress, dataset, retries.start)
        try:
            with driver:
                value, arrays, timings, reports = driver.run(dataset, beside)
        except InsufficientMemoryError:
            if cluster.exact or driver.size >= driver.there:
                raise
            retries.least = retries.most = driver.there
            continue
        except ClusterUnavailableError as error:
            if driver.leased:
                raise
            retries.after_wait(error)
            continue
        except WorkerLost as error:
            # One that an adaptive cluster had decided to retire; it does not retire those that a run has. Or one
            # that had died before the run, of which the scheduler did not know yet.
            seconds = time.monotonic() - began
            early = seconds <= RETIRING_SECONDS and (driver.adaptive or not driver.monitor.begun)
            if early and not retired:
                retired = True
                continue
            retries.after_loss(error, spec, driver.size, driver.checkpoint, driver.silent(), seconds)
            continue
        found = {**hardware(reports, cluster.device), "workers": driver.there}
        if retries.used:
            found["retries"] = retries.used
        if lost := retries.not_replaced(driver.size):
            found["fewer_because"] = NOT_REPLACED.format(lost)
        elif driver.size < min(retries.most, driver.there):
            found["fewer_because"] = BUSY
        elif work is not None and driver.size < min(cluster.size, driver.there):
            found["fewer_because"] = work.sentence(cluster.device)
        elif driver.adaptive and driver.size < retries.most:
            found["fewer_because"] = NOT_GROWN.format(retries.most)
        return Outcome(value, arrays, timings, found, driver.size)
