"""Run one plain function on every rank at the same time.

::

    run ──> in this process: prepare, execute; Dask is not imported
        └─> on workers: wait for free workers, and keep other runs off them
                      connect the ranks, unless the client's previous run has left them connected
                      one pinned task per rank: load rows, check for NaN, compare memory; synchronize with the other
                      ranks (the run ends if any rank rejects it); run the function. The caller watches the workers
                      at the end, also after an error: stop and await all ranks, free the rows, give back the workers
                      after the loss of a worker: repeat from the last checkpoint (`mgclust.engine.retries`)

The second path is in `mgclust.engine.dask.driver`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psutil

from mgclust.base.dask_arrays import computed, is_dask, unannotated
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
BUSY = "other runs used the other workers"
NOT_REPLACED = "{} worker(s) were lost during the run, and were not replaced within seconds"
NOT_GROWN = (
    "the cluster did not grow within seconds to the {} workers for which there is work; set n_workers= to wait longer"
)


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run.

    Attributes
    ----------
    value : object
        Return value of the function on rank 0.
    arrays : dict of str to array
        Arrays that the ranks delivered (`mgclust.engine.context.Context.deliver`), as NumPy or SciPy arrays. If the
        rows are a Dask array and the client belongs to the caller, they are Dask arrays with chunks on the workers.
    timings : dict
        Seconds by stage, as seen by rank 0. "load" is the time to read and check the rows. On a cluster, there are also
        "place" (to find the rows, and to send the missing rows), "connect" (0 if the ranks were connected already) and
        "dask" (from the caller to the ranks and back).
    hardware : dict
        Devices, hosts and versions. On a cluster, there are also "workers" (how many workers there were) and "retries"
        (how often the run was tried again after a worker was lost). If a run without a number of workers used fewer
        workers than there were, "fewer_because" states the reason.
    ranks : int
        Number of ranks.
    """

    value: Any
    arrays: dict[str, Any]
    timings: dict[str, float]
    hardware: dict[str, Any]
    ranks: int


def stays_on_workers(cluster: Cluster, rows: Dataset) -> bool:
    """Return whether arrays of a result are Dask arrays: the rows are a Dask array, and the client outlives the run.

    Parameters
    ----------
    cluster : Cluster
        Where the run is.
    rows : Dataset
        Rows of the input; the arrays have one row for each of them.
    """
    return cluster.lasting and rows.dask_array is not None


@unannotated
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
        The function, its arguments and its limits.
    dataset : Dataset
        Rows of the data; each rank reads the rows that it owns.
    cluster : Cluster
        Where to run, from ``mgclust.engine.dask.cluster.connect``.
    on_progress : callable, optional
        Receives ``dict(stage, fraction, elapsed, stage_rate, stage_eta)``, in the thread that called `run`; see
        `mgclust.base.progress.paced`. If it raises an error, the run ends on all ranks; raise RunCancelled to cancel.
    beside : Dataset, optional
        Second set of rows, which the ranks combine with the rows of the data. Each rank gets a part of it, as
        ``context.beside``.

    Returns
    -------
    Outcome
        Result of the run.

    Raises
    ------
    InputError, InsufficientMemoryError
        The run was rejected before it began.
    ClusterUnavailableError
        There is no scheduler, or there are fewer workers than requested.
    WorkerLost, CollectiveTimeout, RunFailed
        The run could not be finished; WorkerLost if the retries of the cluster are used up.
    KeyboardInterrupt
        Raised after all ranks have stopped.
    """
    on_progress = paced(on_progress)
    if not cluster.lasting:  # chunks of Dask arrays belong to another client than the client of the run
        spec = replace(spec, arguments=_here(spec.arguments), row_arguments=_here(spec.row_arguments))
    offset = offset_of(dataset, np.dtype(spec.dtype), spec.metric, spec.typical)
    keep_on_workers = stays_on_workers(cluster, beside or dataset)
    receives = cluster.client is not None and not keep_on_workers
    first = RankAssignment(
        spec,
        "",
        0,
        Partition.plan(dataset.shape[0], 1),
        cluster.device,
        offset=offset,
        keep_on_workers=keep_on_workers,
        client_free=psutil.virtual_memory().available if receives else None,
    )
    if cluster.client is not None:
        return _on_workers(first, dataset, cluster, on_progress, beside)
    done = run_rank(first, dataset, Abort(), emit=on_progress, beside=beside)
    refuse([done.report], dataset.shape, spec)
    timings = {"load": done.report.seconds, **done.timings}
    return Outcome(done.value, done.delivered, timings, hardware([done.report], cluster.device), 1)


def _here(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, with Dask arrays computed."""
    return {name: computed(value) if is_dask(value) else value for name, value in arguments.items()}


def _on_workers(
    first: RankAssignment, dataset: Dataset, cluster: Cluster, on_progress: Emit | None, beside: Dataset | None
) -> Outcome:
    """Run on a cluster; repeat the run if it had too few workers for its memory, or lost a worker."""
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
            # Either an adaptive cluster had decided to retire this worker before the run got it (it does not retire
            # workers of a run), or the worker had died before the run, and the scheduler did not know yet.
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
