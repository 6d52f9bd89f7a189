"""Runs that ask for some of a cluster's workers go side by side; in order of arrival where there are not enough."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace

import distributed
import numpy as np
import pytest

from mgclust.base.errors import ClusterUnavailableError, RunCancelled
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.dask import cluster as cluster_module
from mgclust.engine.dask import leases
from mgclust.engine.dask import scheduler as questions
from mgclust.engine.dask.cluster import connect
from support import rank_jobs
from support.lease_cases import worker
from support.waiting import wait_for

pytestmark = pytest.mark.slow


def pids(folder):
    """Of the ranks of a run that has begun."""
    return {int(path.read_text()) for path in folder.glob("pid-*")}


def waiting(client):
    """How many runs wait for workers."""

    def count(dask_scheduler):
        plugin = dask_scheduler.plugins.get("mgclust-leases")
        return sum(not lease.workers for lease in plugin._leases.values()) if plugin else 0

    return client.run_on_scheduler(count)


@pytest.fixture
def begin(client, tmp_path):
    """A function that begins a run of so many workers, of a client of its own; ended by creating ``end`` in its folder.

    Yields the run's folder and a future of when it began and ended.
    """
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(8))
        folders = []

        def start(size, **options):
            folder = tmp_path / str(len(folders))
            folder.mkdir()
            folders.append(folder)

            def run():
                with (
                    distributed.Client(client.scheduler.address, set_as_default=False) as own,
                    connect(own, "cpu", n_workers=size) as cluster,
                ):
                    spec = spmd.RunSpec(rank_jobs.until_told, {"folder": str(folder)})
                    return spmd.run(spec, open_dataset(np.ones((9, 2))), cluster, **options).value

            return folder, pool.submit(run)

        yield start
        for folder in folders:
            (folder / "end").touch()


def test_runs_of_two_workers_go_side_by_side(begin):
    (one, first), (two, second) = begin(2), begin(2)
    wait_for(lambda: len(pids(one)) == len(pids(two)) == 2)
    assert not first.done()
    assert not second.done()
    assert not pids(one) & pids(two)
    for folder in (one, two):
        (folder / "end").touch()
    assert first.result()[0] == second.result()[0] == 2


def test_first_come_first_served(client, begin):
    """A run of all workers waits for both halves, and a later run of two for it, though two are free meanwhile."""
    (one, first), (two, second) = begin(2), begin(2)
    wait_for(lambda: len(pids(one)) == len(pids(two)) == 2)
    every, all_of_them = begin(4)
    wait_for(lambda: waiting(client) == 1)
    late, last = begin(2)
    wait_for(lambda: waiting(client) == 2)
    (one / "end").touch()
    first.result()
    time.sleep(0.6)
    assert not pids(every)
    assert not pids(late)
    (two / "end").touch()
    wait_for(lambda: len(pids(every)) == 4)
    assert pids(every) == pids(one) | pids(two)
    assert not pids(late)
    (every / "end").touch()
    wait_for(lambda: len(pids(late)) == 2)
    (late / "end").touch()
    ends = [each.result()[1:] for each in (second, all_of_them, last)]
    assert all(before[1] <= after[0] for before, after in pairwise(ends))


def test_a_run_that_gives_up_waiting_delays_no_other(client, begin):
    one, first = begin(3)
    wait_for(lambda: len(pids(one)) == 3)

    def cancel(event):
        if event["stage"] == "waiting for the cluster" and waiting(client) == 2:
            raise RunCancelled("enough.")

    _, impatient = begin(4, on_progress=cancel)
    wait_for(lambda: waiting(client) == 1)
    small, last = begin(1)
    with pytest.raises(RunCancelled):
        impatient.result(60)
    wait_for(lambda: pids(small))
    assert not first.done()
    for folder in (one, small):
        (folder / "end").touch()
    assert last.result()[0] == 1


def test_a_client_that_is_killed_frees_its_workers(client, begin, tmp_path):
    """Both the one that computes and the one that waits."""
    code = (
        "import sys, numpy as np, support.rank_jobs as rank_jobs\n"
        "from mgclust.data import open_dataset\n"
        "from mgclust.engine import spmd\n"
        "from mgclust.engine.dask.cluster import connect\n"
        f"with connect({client.scheduler.address!r}, 'cpu', n_workers=3) as cluster:\n"
        "    spec = spmd.RunSpec(rank_jobs.until_told, dict(folder=sys.argv[1]))\n"
        "    spmd.run(spec, open_dataset(np.ones((9, 2))), cluster)\n"
    )
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    folder = tmp_path / "killed"
    folder.mkdir()
    callers = []
    try:
        for ready in (lambda: len(pids(folder)) == 3, lambda: waiting(client) == 1):
            callers.append(subprocess.Popen([sys.executable, "-c", code, folder], env=environment))
            wait_for(ready)
    finally:
        for caller in callers:
            caller.kill()
        for caller in callers:
            caller.wait()
    every, run = begin(4)
    wait_for(lambda: len(pids(every)) == 4)
    (every / "end").touch()
    assert run.result()[0] == 4


def test_more_workers_than_are_left(client, begin, monkeypatch):
    """A run that waits for workers that have left is refused, and delays no other run."""
    monkeypatch.setattr(cluster_module, "WORKERS_TIMEOUT", 5.0)  # time for what follows to see it wait
    with connect(client, "cpu") as found:
        grown = cluster_module.Cluster(5, "cpu", client, found.workers, exact=True)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(spmd.run, spmd.RunSpec(rank_jobs.where), open_dataset(np.ones((9, 2))), grown)
            wait_for(lambda: waiting(client) == 1)
            small, _ = begin(4)
            wait_for(lambda: len(pids(small)) == 4)
            with pytest.raises(ClusterUnavailableError, match=r"has 4 worker\(s\) after 5 s, but 5 are needed"):
                asked.result(60)
    assert waiting(client) == 0


class Scheduler(SimpleNamespace):
    """As much of Dask's scheduler as leases look at."""

    def __init__(self, *workers):
        states = [worker(address) for address in workers]
        super().__init__(
            running=states,
            workers={state.address: state for state in states},
            clients={name: SimpleNamespace(last_seen=time.time()) for name in "ab"},
            handlers={},
            tasks={},
            adaptive_target=lambda target_duration=None: 1,
        )


class Clock:
    """Time that passes when it is told to, in steps that count."""

    now = 100.0

    def __call__(self):
        return self.now

    def run(self, seconds, look):
        """Let time pass, and look every second."""
        for _ in range(int(seconds)):
            self.now += 1.0
            look()


@pytest.fixture
def leased():
    """A function that makes the leases of a scheduler with these workers, and their clock; nothing waits there."""

    def make(*workers):
        clock, scheduler = Clock(), Scheduler(*workers)
        plugin = leases.Leases(clock, turn=-1.0)
        plugin.start(scheduler)
        return plugin, scheduler, clock

    return make


def ask(plugin, run, least, most=None, client="a"):
    return asyncio.run(plugin.ask(run, client, least, most or least, "toy"))


@pytest.mark.parametrize(
    ("sizes", "hosts"),
    [
        ((2,), ["b"]),  # the host that has just enough
        ((3,), ["a"]),
        ((1, 3), ["c", "a"]),
        ((4,), ["ab"]),  # none has enough: as few as may be
        ((2, 2, 2), ["b", "a", "ac"]),
    ],
)
def test_workers_of_a_run_are_near_each_other(leased, sizes, hosts):
    plugin, *_ = leased(*[f"tcp://{host}:{port}" for host, n in (("a", 3), ("b", 2), ("c", 1)) for port in range(n)])
    given = [list(ask(plugin, str(i), size)["workers"]) for i, size in enumerate(sizes)]
    assert [len(workers) for workers in given] == list(sizes)
    assert ["".join(sorted({address[6] for address in workers})) for workers in given] == hosts


FOUR = [f"tcp://a:{port}" for port in range(4)]


def test_workers_that_a_client_has_connected_come_first(leased):
    plugin, *_ = leased(*FOUR)
    asyncio.run(plugin.keep("pair", "b", {FOUR[2]: f"of {FOUR[2]}", FOUR[3]: f"of {FOUR[3]}"}, {}))
    assert list(ask(plugin, "one", 2, client="b")["workers"]) == FOUR[2:]
    assert list(ask(plugin, "two", 2, client="b")["workers"]) == FOUR[:2]


def test_a_client_that_is_not_heard_of_loses_its_workers(leased):
    plugin, scheduler, clock = leased("tcp://a:1")
    assert ask(plugin, "first", 1)["workers"]

    def second():
        scheduler.clients["b"].last_seen += 1
        return ask(plugin, "second", 1, client="b")["workers"]

    clock.run(50, second)
    clock.now += 3600  # the scheduler was stopped, which is not the client's fault
    assert not second()
    clock.run(leases.CLIENT_TIMEOUT_SECONDS - 50, second)
    assert second() == {"tcp://a:1": "of tcp://a:1"}


def test_a_question_that_comes_late_takes_nothing(leased):
    plugin, *_ = leased("tcp://a:1")
    asyncio.run(plugin.give_back("run"))
    assert not ask(plugin, "run", 1)["workers"]
    assert ask(plugin, "next", 1)["workers"]


@pytest.mark.parametrize("asks", ["in its process", "from another one"])
def test_a_page_that_shows_how_many_workers_are_wanted_makes_no_cluster_adaptive(leased, asks):
    plugin, scheduler, _ = leased(*FOUR)
    assert scheduler.adaptive_target() == 1  # as pages ask
    assert not ask(plugin, "first", 5)["adaptive"] and scheduler.adaptive_target() == 5
    if asks == "in its process":  # as Dask Gateway asks
        assert scheduler.adaptive_target(target_duration=5.0) == 5
    else:
        assert scheduler.handlers["adaptive_target"]() == 5
    assert ask(plugin, "second", 5)["adaptive"]


def test_a_fixed_cluster_whose_figures_are_read_stays_fixed():
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster, set_as_default=False) as own,
    ):
        asked = {"run": "run", "client": own.id, "least": 2, "most": 2, "method": "toy"}
        assert not questions.ask(own, "ask", **asked)["adaptive"]
        port = cluster.scheduler.http_server.port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/counts.json") as answer:
            assert answer.read()
        assert not questions.ask(own, "ask", **asked)["adaptive"]


def test_runs_without_a_number_share_what_is_free(leased):
    plugin, _, clock = leased(*FOUR)
    assert len(ask(plugin, "all", 1, 9)["workers"]) == 4
    assert not any(ask(plugin, run, 1, 9)["workers"] for run in "xyz")
    asyncio.run(plugin.give_back("all"))
    clock.run(leases.WAIT_LIMIT_SECONDS, plugin._serve)
    assert sorted(len(ask(plugin, run, 1, 9)["workers"]) for run in "xyz") == [1, 1, 2]


def test_a_run_without_a_number_waits_a_little_for_others(leased):
    plugin, _, clock = leased(*FOUR)
    ask(plugin, "pair", 2)
    assert len(ask(plugin, "small", 1, 2)["workers"]) == 2  # no more would make it faster
    asyncio.run(plugin.give_back("small"))
    assert not ask(plugin, "open", 1, 4)["workers"]
    clock.run(leases.WAIT_LIMIT_SECONDS - 1, plugin._serve)
    assert not ask(plugin, "open", 1, 4)["workers"]
    clock.run(1, plugin._serve)
    assert len(ask(plugin, "open", 1, 4)["workers"]) == 2


def test_an_adaptive_cluster_is_told_what_runs_wait_for(leased):
    plugin, scheduler, clock = leased()
    assert scheduler.handlers["adaptive_target"]() == scheduler.adaptive_target() == 1  # what Dask says
    assert ask(plugin, "exact", 3)["adaptive"]
    assert not ask(plugin, "open", 1, 4)["workers"]
    assert scheduler.adaptive_target() == 7

    def come(*addresses):
        for address in addresses:
            state = worker(address)
            scheduler.workers[address] = state
            scheduler.running.append(state)
            plugin.add_worker(scheduler, address)

    come(*FOUR)
    assert len(ask(plugin, "exact", 3)["workers"]) == 3
    assert scheduler.adaptive_target() == 7 and not ask(plugin, "open", 1, 4)["workers"]
    may_go = plugin.valid_workers_downscaling(scheduler, scheduler.running)
    assert len(may_go) == 1
    clock.run(leases.WAIT_LIMIT_SECONDS, plugin._serve)  # none comes: it takes what there is
    assert list(ask(plugin, "open", 1, 4)["workers"]) == [may_go[0].address]
    for run in ("exact", "open"):
        asyncio.run(plugin.give_back(run))
    assert len(ask(plugin, "next", 1, 9)["workers"]) == 4  # at once: the cluster did not grow beyond
    assert scheduler.adaptive_target() == 4
