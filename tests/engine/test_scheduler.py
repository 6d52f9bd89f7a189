"""Questions to a scheduler: one that has no mgclust, that is stopped, or whose client is closed; clusters that grow."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from mgclust import Communities, FuzzyCMeans, silhouette_samples
from mgclust.algorithms.common.weights import RowWeights
from mgclust.base.errors import ClusterUnavailableError, InputError, RunFailed
from mgclust.data import open_dataset
from mgclust.engine.dask.cluster import connect
from mgclust.engine.dask.scheduler import ask, workers_of
from mgclust.engine.spmd import RunSpec, Work, run
from support import rank_jobs
from support.waiting import wait_for

X = np.random.default_rng(0).normal(size=(900, 3))
SCHEDULER = """
import asyncio, sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "mgclust":
            raise ModuleNotFoundError("No module named 'mgclust'", name="mgclust")

sys.meta_path.insert(0, Without())

from distributed import Scheduler

async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()

asyncio.run(main())
"""


def model(client, n_workers=None):
    return FuzzyCMeans(3, client=client, device="cpu", n_workers=n_workers)


@pytest.fixture(scope="module")
def expected():
    return model(None).fit(X).labels_


@contextlib.contextmanager
def apart(folder):
    """A scheduler's process without mgclust, with two workers, and a client."""
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", SCHEDULER], stdout=subprocess.PIPE, text=True)
    address = process.stdout.readline().strip()
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nworkers", "2", "--nthreads", "1"]
    workers = subprocess.Popen([*command, "--no-dashboard", "--local-directory", folder], env=environment)
    try:
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            yield client, process
    finally:
        for each in (workers, process):
            each.terminate()
            each.wait(60)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    with apart(tmp_path_factory.mktemp("workers")) as started:
        yield started


@pytest.mark.slow
def test_a_scheduler_without_mgclust(elsewhere, expected):
    client, _ = elsewhere
    with pytest.raises(ModuleNotFoundError):
        client.run_on_scheduler(lambda: __import__("mgclust"))
    fitted = model(client).fit(X)
    assert fitted.result_.hardware["workers"] == 2
    np.testing.assert_array_equal(fitted.labels_, expected)
    port = client.scheduler_info()["services"]["dashboard"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/mgclust") as answer:
        assert "<td>fuzzy-c-means</td>" in answer.read().decode()


@pytest.mark.slow
def test_weights_of_a_dask_array_by_a_scheduler_without_mgclust(elsewhere):
    client, _ = elsewhere
    weights = np.arange(900.0) % 7
    rows, w = (client.persist(da.from_array(array, chunks=300)) for array in (X, weights))
    fitted = model(client).fit(rows, sample_weight=w)
    expected = model(None).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(fitted.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(RowWeights.of(w).heaviest(5), RowWeights.of(weights).heaviest(5))


@pytest.mark.slow
def test_collections_by_a_scheduler_without_mgclust(elsewhere):
    """What is asked of chunks on the way: labels, masks, sparse chunks, a few rows, hashes, numbers of nodes, names."""
    client, _ = elsewhere
    with client.as_current():
        rows = client.persist(da.from_array(X, chunks=(300, 3)))
        labels = da.from_array((X[:, 0] > 0).astype("int64"), chunks=300)
        given = {"client": client, "device": "cpu"}
        found = silhouette_samples(rows, labels, **given)
        np.testing.assert_array_equal(np.asarray(found), silhouette_samples(X, labels.compute(), client=None))
        dataset = open_dataset(rows)
        assert dataset.fingerprint() == open_dataset(X).fingerprint()
        np.testing.assert_array_equal(dataset.take([5, 800, 301]), X[[5, 800, 301]])
        for chunks in (rows.map_blocks(np.ma.masked_less, -9), rows.map_blocks(csr_array)):
            np.testing.assert_array_equal(model(client).fit(chunks).labels_, model(None).fit(X).labels_)
        edges = np.random.default_rng(1).integers(0, 60, (900, 2))
        edges = edges[edges[:, 0] != edges[:, 1]]
        frame = dd.from_pandas(pd.DataFrame([[f"n{i}", f"n{j}"] for i, j in edges], columns=["a", "b"]), npartitions=3)
        numbers, names = (Communities(**given).fit(each) for each in (da.from_array(edges, chunks=(300, 2)), frame))
        assert numbers.modularity_ == pytest.approx(names.modularity_, abs=0.05)


@pytest.mark.slow
def test_a_cluster_object_whose_scheduler_is_elsewhere(elsewhere, expected):
    """As those of dask-kubernetes and Dask Gateway: it knows an address, and makes clients."""

    class Cluster(distributed.deploy.Cluster):
        def __init__(self, address):
            super().__init__(asynchronous=False)
            self.address = address
            self._loop_runner.start()
            self.sync(self._start)

        async def _start(self):
            self.scheduler_comm = distributed.rpc(self.address)
            await super()._start()

    client, _ = elsewhere
    with Cluster(client.scheduler.address) as cluster:
        fitted = model(cluster).fit(X)
    assert fitted.result_.hardware["workers"] == 2
    np.testing.assert_array_equal(fitted.labels_, expected)


@pytest.mark.slow
def test_a_scheduler_that_is_stopped(elsewhere, expected):
    client, process = elsewhere
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(ClusterUnavailableError, match="has not answered for 1 s: its process is stopped or hangs"):
            workers_of(client, 1.0)
    finally:
        process.send_signal(signal.SIGCONT)
    np.testing.assert_array_equal(model(client).fit(X).labels_, expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dask, whose client has nothing to close any more
def test_a_scheduler_that_is_killed_is_named(tmp_path):
    """Not a worker, of which Dask has forgotten the tasks with its connection."""
    with dask.config.set({"distributed.comm.timeouts.connect": "2s"}), apart(tmp_path) as (own, process):

        def kill(event):
            if event["stage"] == "slow" and process.poll() is None:
                process.kill()
                process.wait()

        with connect(own, "cpu") as cluster, pytest.raises(RunFailed, match="the connection to the scheduler was lost"):
            spec = RunSpec(rank_jobs.slow, {"folder": str(tmp_path)})
            run(spec, open_dataset(X), cluster, kill)


@pytest.mark.slow
def test_a_connection_that_is_lost_with_a_result_is_one_sentence(client, monkeypatch):
    async def lost(_, future):
        await future
        raise distributed.comm.CommClosedError("in <TCP (closed)>: Stream is closed")

    with connect(client, "cpu", n_workers=2) as cluster:
        monkeypatch.setattr(distributed.Client, "gather", lost)
        with pytest.raises(RunFailed, match=r"Dask lost a connection during the run: in <TCP .* Run again\."):
            run(RunSpec(rank_jobs.where), open_dataset(X), cluster)
        monkeypatch.undo()
        assert run(RunSpec(rank_jobs.where), open_dataset(X), cluster).ranks == 2


@pytest.mark.slow
def test_a_closed_client(client):
    own = distributed.Client(client.scheduler.address, set_as_default=False)
    own.close()
    with pytest.raises(ClusterUnavailableError, match="is closed; give an open client"):
        model(own).fit(X)


@pytest.mark.slow
def test_a_scheduler_that_takes_no_plugin(client):
    """Some sites block what a client may have a scheduler do."""
    handlers = ["register_scheduler_plugin"]
    with (
        distributed.LocalCluster(
            n_workers=1, processes=False, dashboard_address=None, scheduler_kwargs={"blocked_handlers": handlers}
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as own,
        pytest.raises(InputError, match="forbids register_scheduler_plugin"),
    ):
        model(own).fit(X)


@pytest.mark.slow
def test_runs_of_one_client_side_by_side(client, expected):
    """On parts of a cluster, from threads of one client."""
    with ThreadPoolExecutor(4) as pool:
        fits = list(pool.map(lambda size: model(client, size).fit(X), (2, 1, None, 2, 1, 4)))
    for fitted in fits:
        np.testing.assert_array_equal(fitted.labels_, expected)
    assert [fitted.result_.hardware["ranks"] for fitted in fits if fitted.n_workers] == [2, 1, 2, 1, 4]
    two = silhouette_samples(X, expected, client=client, device="cpu", n_workers=2)
    np.testing.assert_array_equal(two, silhouette_samples(X, expected, client=None, device="cpu"))


@pytest.mark.slow
def test_more_workers_than_there_are_need_a_cluster():
    with pytest.raises(InputError, match="n_workers=2 needs a cluster"):
        model(None, 2).fit(X)


@pytest.mark.slow
def test_an_adaptive_cluster_grows_for_a_fit_and_shrinks_after(expected):
    with (
        distributed.LocalCluster(n_workers=0, processes=False, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as own,
    ):
        cluster.adapt(minimum=0, maximum=4, interval="200ms", wait_count=3)
        for n_workers, there in ((None, 1), (4, 4)):
            fitted = model(own, n_workers).fit(X)
            np.testing.assert_array_equal(fitted.labels_, expected)
            assert fitted.result_.hardware["workers"] == there
        wait_for(lambda: not workers_of(own), 60)
        with ThreadPoolExecutor(3) as pool:
            fits = list(pool.map(lambda size: model(own, size).fit(X), (1, 2, None)))
        assert all(np.array_equal(fitted.labels_, expected) for fitted in fits)
        wait_for(lambda: not workers_of(own), 60)


@pytest.mark.slow
def test_an_adaptive_cluster_grows_for_a_run_without_a_number_that_has_work_for_it():
    """Where each worker has seconds of it; within seconds the run begins on what there is, and says so."""
    work = Work(17.0, "edges", {"cpu": 1.0, "cuda": 1.0}, {"cpu": 1.0, "cuda": 1.0})  # of 17 seconds: for 3 workers
    with (
        distributed.LocalCluster(n_workers=0, processes=False, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as own,
    ):
        assert ask(own, "give_back", run="none")
        wait_limit = cluster.scheduler.plugins["mgclust-leases"].ask.__func__.__globals__
        wait_limit["WAIT_LIMIT_SECONDS"] = 30.0  # so long may it take while other tests run
        for maximum, there, why in ((3, 3, ""), (2, 2, "did not grow within seconds to the 3 workers")):
            cluster.adapt(minimum=0, maximum=maximum, interval="200ms", wait_count=3)
            with connect(own, "cpu", work=work) as ranks:
                found = run(RunSpec(rank_jobs.where, work=work), open_dataset(X), ranks)
            assert (found.ranks, found.hardware["workers"]) == (there, there)
            assert why in found.hardware.get("fewer_because", "")
            wait_for(lambda: not workers_of(own), 60)
            wait_limit["WAIT_LIMIT_SECONDS"] = 3.0
