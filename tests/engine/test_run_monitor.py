"""What a client hears of a run: events, whatever topics its user has subscribed to, and lost workers at once."""

from __future__ import annotations

import asyncio
import threading
import time

import distributed
import numpy as np
import pytest

from mgclust import DensityPeaks
from mgclust.base.errors import WorkerLost
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.dask import run_monitor, scheduler
from mgclust.engine.dask.cluster import connect
from support import rank_jobs
from support.lease_cases import leases_of, worker
from support.waiting import wait_for

WORKERS = ["tcp://a:1", "tcp://a:2"]


@pytest.fixture
def own(client):
    """A client of its own of the cluster of the tests."""
    with distributed.Client(client.scheduler.address, set_as_default=False) as made:
        yield made


@pytest.mark.parametrize("first", ["user", "fit"])
def test_users_and_mgclust_hear_the_same_events(own, first):
    """Dask keeps one handler per topic and client: one of them ended the other."""
    heard, reported = [], []
    x = np.random.default_rng(0).normal(size=(300, 2))

    def fit():
        DensityPeaks(2, client=own, device="cpu", n_workers=2).fit_dataset(open_dataset(x), on_progress=reported.append)

    if first == "fit":
        fit()
    own.subscribe_topic("mgclust-progress", lambda event: heard.append(event[1]["stage"]))
    reported.clear()
    fit()
    last = reported[-1]["stage"]
    assert len({event["stage"] for event in reported}) > 2
    wait_for(lambda: last in heard)
    own.unsubscribe_topic("mgclust-progress")
    reported.clear()
    fit()
    assert reported[-1]["stage"] == last


def plugin_of(there):
    states = [worker(address) for address in there]
    for number, state in enumerate(states):
        state.last_seen = float(number)
    return leases_of(states, ("a",))


@pytest.mark.parametrize("there", [WORKERS, WORKERS[1:], []])
def test_a_question_about_workers_is_answered_at_once_if_one_has_left(there):
    plugin = plugin_of(there)
    found = asyncio.run(asyncio.wait_for(plugin.watch(WORKERS, 60.0 if len(there) < 2 else 0.01), 5))
    assert found == {address: float(number) for number, address in enumerate(there)}


def test_the_loss_of_a_worker_is_pushed():
    """Also to several runs, while others come and go."""
    plugin = plugin_of([*WORKERS, "tcp://a:3"])

    def leave(address):
        del plugin._scheduler.workers[address]
        plugin.remove_worker(plugin._scheduler, address)

    async def run():
        questions = [asyncio.ensure_future(plugin.watch(WORKERS[:number], 60.0)) for number in (1, 2, 2)]
        await asyncio.sleep(0.01)
        leave("tcp://a:3")
        await asyncio.sleep(0.01)
        assert not any(question.done() for question in questions)
        leave(WORKERS[1])
        found = await asyncio.wait_for(asyncio.gather(*questions[1:]), 5)
        assert [list(each) for each in found] == [WORKERS[:1]] * 2 and not questions[0].done()
        questions[0].cancel()

    asyncio.run(run())


def test_the_client_neither_polls_all_workers_nor_misses_a_loss(tmp_path, monkeypatch):
    """The scheduler answers a question that waits there, long before it would have to."""

    def no_poll(*_):
        raise AssertionError("records of all workers were asked for")

    with (
        distributed.LocalCluster(
            n_workers=2, processes=False, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as own,
        connect(own, "cpu", n_workers=2) as ranks,
    ):
        lost = []

        def lose():
            wait_for(lambda: len(list(tmp_path.glob("pid-*"))) == 2)
            time.sleep(2 * run_monitor.WATCH_POLL_SECONDS)  # until the client watches
            address = next(iter(cluster.scheduler.workers))
            cluster.loop.add_callback(cluster.scheduler.remove_worker, address, stimulus_id="lost")
            lost.append((address, time.monotonic()))
            time.sleep(1.0)
            (tmp_path / "end").touch()

        monkeypatch.setattr(run_monitor, "WATCH_SECONDS", 60.0)
        monkeypatch.setattr(scheduler, "workers_of", no_poll)
        thread = threading.Thread(target=lose)
        thread.start()
        spec = spmd.RunSpec(rank_jobs.until_told, {"folder": str(tmp_path)})
        with pytest.raises(WorkerLost, match=r"of rank \d was lost") as caught:
            spmd.run(spec, open_dataset(np.ones((9, 2))), ranks)
        thread.join()
        assert lost[0][0] in str(caught.value)


def test_a_fit_starts_no_thread_for_each_rank(client, monkeypatch):
    """Neither to connect ranks nor to send them rows."""
    start, started = threading.Thread.start, []
    monkeypatch.setattr(threading.Thread, "start", lambda self: (started.append(self.name), start(self))[1])
    counts = []
    for n_workers in (2, 4):
        with (
            distributed.Client(client.scheduler.address, set_as_default=False) as own,
            connect(own, "cpu", n_workers=n_workers) as ranks,
        ):
            started.clear()
            spmd.run(spmd.RunSpec(rank_jobs.where), open_dataset(np.ones((9, 2))), ranks)
            counts.append(len([name for name in started if not name.startswith(("asyncio", "ThreadPool"))]))
    assert counts[0] == counts[1] <= 2
