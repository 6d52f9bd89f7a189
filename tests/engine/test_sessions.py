"""Connections of ranks that are kept between the runs of one client, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import distributed
import numpy as np
import pytest

from mgclust import DensityPeaks
from mgclust.base.errors import ClusterUnavailableError, InputError, RunFailed, WorkerLost
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.dask import driver, scheduler, sessions, tasks
from mgclust.engine.dask.cluster import connect
from mgclust.engine.dask.scheduler import ask
from mgclust.engine.transport.wire import SessionLost
from support import rank_jobs
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("workers")
X = np.random.default_rng(3).normal(size=(4500, 3)).astype(np.float32)


def connections(client, size=2):
    """Of a run of so many ranks."""
    with connect(client, "cpu", n_workers=size) as cluster:
        return spmd.run(spmd.RunSpec(rank_jobs.connections), open_dataset(X), cluster).value


def kept(client):
    """How many workers have a session."""
    return sum(seats for seats, *_ in client.run(rank_jobs.seats).values())


@pytest.fixture
def own(client):
    """A client of the same workers that ends with the test, and its sessions with it; no others are there."""
    for each in list(sessions._of(client)):
        sessions.drop(client, each)
    wait_for(lambda: not kept(client))
    with distributed.Client(client.scheduler.address, set_as_default=False) as own:
        yield own
    wait_for(lambda: not kept(client))


def test_runs_of_a_client_have_the_same_connections(own):
    first = connections(own)
    sockets = own.run(rank_jobs.seats)
    assert connections(own) == first
    hole = np.where(np.arange(4500)[:, None] == 3000, np.nan, X)
    with connect(own, "cpu", n_workers=2) as cluster, pytest.raises(InputError, match="row 3000"):
        spmd.run(spmd.RunSpec(rank_jobs.connections), open_dataset(hole), cluster)
    assert connections(own) == first
    assert own.run(rank_jobs.seats) == sockets
    assert sorted(ends[:2] for ends in sockets.values()) == [(0, 0), (0, 0), (1, 1), (1, 1)]
    assert len({listening for _, _, listening in sockets.values()}) == 1  # as many ports as without a session: Dask's


def test_a_run_that_fails_ends_the_connections(own):
    first = connections(own)
    with connect(own, "cpu", n_workers=2) as cluster, pytest.raises(InputError, match="k=3"):
        spmd.run(spmd.RunSpec(rank_jobs.fail_on, {"rank": 1}), open_dataset(X), cluster)
    wait_for(lambda: not kept(own))
    assert connections(own) != first


def test_rows_are_sent_once(own, monkeypatch):
    x = np.random.default_rng(1).normal(size=(400_000, 2)).astype(np.float32)
    sent, scatter = [], own.scatter
    monkeypatch.setattr(own, "scatter", lambda rows, **options: sent.append(len(rows)) or scatter(rows, **options))

    def sums():
        with connect(own, "cpu", n_workers=2) as cluster:
            return spmd.run(spmd.RunSpec(rank_jobs.whole_sum), open_dataset(x), cluster).value

    first = sums()
    assert sums() == first and sum(sent) == len(x)
    x[0, 0] += 1  # the same object, and so are the rows of the second rank
    changed = sums()
    assert changed != first and len(sent) == 3
    x = x.copy()
    assert sums() == changed and len(sent) == 3
    wait_for(lambda: len(own.futures) == 2)  # rows, and nothing of the session
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 0.2)
    vars(own).pop("mgclust_until")  # or the look that is due in minutes would come first
    assert sums() == changed
    wait_for(lambda: not own.futures and not kept(own))


def test_a_run_begins_when_the_workers_of_the_run_before_are_free(own, monkeypatch):
    """The message that frees them may be slow, as it has a connection of its own; two other workers are free."""
    asked = scheduler._asked

    async def late(client, question, given):
        if question == "give_back":
            await asyncio.sleep(0.3)
        return await asked(client, question, given)

    monkeypatch.setattr(scheduler, "_asked", late)
    first = connections(own)
    assert connections(own) == first


@pytest.mark.slow
def test_rows_do_not_stay_in_the_scheduler():
    """Dask keeps the last thousand messages of each connection, with whatever is in them."""
    given = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**given) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        for seed in range(8):
            x = np.random.default_rng(seed).random((60_000, 2), np.float32)
            with connect(client, "cpu", n_workers=2) as found:
                spmd.run(spmd.RunSpec(rank_jobs.whole_sum), open_dataset(x), found)
        logs = [stream.recent_message_log for stream in cluster.scheduler.stream_comms.values()]
        kept = sum(memoryview(part).nbytes for log in logs for part in distributed.protocol.dumps(list(log)))
    assert 0 < kept < x.nbytes  # of eight such


@pytest.mark.slow
def test_a_session_in_use_is_not_idle(own, monkeypatch, tmp_path):
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 0.5)
    connections(own)
    with connect(own, "cpu", n_workers=2) as cluster, ThreadPoolExecutor(1) as pool:
        spec = spmd.RunSpec(rank_jobs.until_told, {"folder": str(tmp_path)})
        run = pool.submit(spmd.run, spec, open_dataset(X), cluster)
        wait_for(lambda: run.done() or "mgclust_until" not in vars(own))  # the look that is due finds it in use
        (tmp_path / "end").touch()
        assert run.result(60).value[0] == 2
    wait_for(lambda: not kept(own))


@pytest.mark.slow
def test_each_client_has_its_own(client, own):
    """Workers have one session at a time; the client whose session ended meanwhile opens another."""
    seen = [connections(each, 4) for each in (client, own, client, own, own)]  # on all workers
    assert len({str(each) for each in seen}) == 4
    assert seen[3] == seen[4]
    assert kept(client) == 4


@pytest.mark.slow
def test_runs_on_other_workers_leave_it_alone(own):
    pair = connections(own)
    with connect(own, "cpu", n_workers=1) as cluster:
        spmd.run(spmd.RunSpec(rank_jobs.where), open_dataset(X), cluster)
    assert connections(own) == pair
    every = connections(own, 4)
    assert connections(own, 4) == every
    assert connections(own) != pair  # all four took the two


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_that_dies_between_runs(client, own, victim):
    first = connections(own, 4)
    os.kill(sorted(own.run(os.getpid).items())[victim][1], signal.SIGKILL)
    wait_for(lambda: len(own.scheduler_info(n_workers=-1)["workers"]) < 4)
    assert len(connections(own, 3)) == 3
    client.wait_for_workers(4, timeout=60)
    again = connections(own, 4)
    assert again != first and connections(own, 4) == again


@pytest.mark.slow
def test_a_scheduler_that_is_gone_is_one_sentence():
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        client = distributed.Client(cluster.scheduler_address, set_as_default=False, timeout=2)
        connections(client, 1)
    try:
        with pytest.raises(ClusterUnavailableError, match="does not answer"):
            connections(client, 1)
    finally:
        client.close(timeout=1)


@pytest.mark.slow
def test_a_worker_that_is_killed_just_before_a_run(client, own):
    """The scheduler may not know yet: the run ends with the sentence for a lost worker, or takes other workers."""
    for victim in range(3):
        connections(own, 4)
        os.kill(sorted(own.run(os.getpid).items())[victim][1], signal.SIGKILL)
        try:
            connections(own, 3)
        except WorkerLost as error:
            assert "was lost" in str(error)
        client.wait_for_workers(4, timeout=60)


SCRIPT = """
import sys, time
import numpy as np, support.rank_jobs as rank_jobs
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.dask.cluster import connect
with connect(sys.argv[1], "cpu", n_workers=3) as cluster:
    spmd.run(spmd.RunSpec(rank_jobs.where), open_dataset(np.ones((9, 2))), cluster)
    print("done", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_client_that_is_killed_between_runs(client):
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    before = client.run(rank_jobs.seats)
    arguments = [sys.executable, "-c", SCRIPT, client.scheduler.address]
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True) as caller:
        try:
            assert caller.stdout.readline() == "done\n"
            assert kept(client) == 3
        finally:
            caller.kill()
    wait_for(lambda: client.run(rank_jobs.seats) == before)


@pytest.mark.slow
def test_the_connections_of_another_client_cannot_be_had(client, own):
    """A session is known by a random name, which its client alone has."""
    from mgclust.engine.partition import Partition
    from mgclust.engine.rank import RankAssignment

    first = connections(own)
    (session,) = vars(own)["mgclust_sessions"]
    assert "mgclust_sessions" not in vars(client) or session not in vars(client)["mgclust_sessions"]
    partition = Partition.plan(len(X), 2)
    for rank, address in enumerate(session.workers):
        assignment = RankAssignment(spmd.RunSpec(rank_jobs.connections), "other", rank, partition, "cpu")
        given = ("guessed", assignment, address, open_dataset(X), None, {}, None, None, {}, {}, None)
        failure = client.submit(tasks.run_task, *given, workers=[address], pure=False).result()
        assert isinstance(failure.error, SessionLost)
    assert connections(own) == first


def test_a_worker_that_is_lost_before_the_run_is_replaced_once(client, monkeypatch):
    run, lost, case = driver.Driver.run, [], {}

    def lose(self, *given):
        if len(lost) < case["most"]:
            lost.append(self.monitor.begun)
            self.monitor.begun = case["begun"]
            raise WorkerLost("it died.")
        return run(self, *given)

    monkeypatch.setattr(driver.Driver, "run", lose)
    rows = np.random.default_rng(0).normal(size=(3000, 2))
    case.update(begun=False, most=1)
    assert DensityPeaks(3, client=client, device="cpu", retries=0).fit(rows).n_clusters_ == 3 and lost == [False]
    for begun, most in ((False, 3), (True, 4)):
        case.update(begun=begun, most=most)
        with pytest.raises(WorkerLost):
            DensityPeaks(3, client=client, device="cpu", retries=0).fit(rows)
        assert len(lost) == most


def test_connections_that_were_lost_between_runs_are_made_again_once(own, monkeypatch):
    """They are found closed before any rank has begun, so the run begins again with others."""
    first, compute, computed = connections(own), driver.Driver._compute, []

    def lose(self, *given):
        computed.append(self._session)
        if len(computed) in lost:
            raise SessionLost("a rank restarted.")
        return compute(self, *given)

    monkeypatch.setattr(driver.Driver, "_compute", lose)
    lost = [1]
    assert connections(own) != first and len(set(map(id, computed))) == len(computed) == 2
    lost = [3, 4]
    with pytest.raises(SessionLost):
        connections(own)
    assert len(computed) == 4 and len(connections(own)) == 2


def test_a_client_that_dask_has_closed_is_a_lost_scheduler(client):
    """The command line told of a client that its user should keep open, and of wrong use."""
    with connect(client.scheduler.address, "cpu") as cluster:
        cluster.client.close()
        with pytest.raises(RunFailed, match=r"the connection to the scheduler at .* was lost.* Run again"):
            ask(cluster.client, "ask")
