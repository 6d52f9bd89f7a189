"""The rules of leases without a cluster; `test_leases` has them on workers and with several clients."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from mgclust.engine.dask import leases
from support.lease_cases import ask, leases_of, worker

WORKERS = [f"tcp://a:{number}" for number in range(4)]


@pytest.fixture
def clock():
    return SimpleNamespace(now=100.0)


@pytest.fixture
def plugin(clock):
    """Of four workers and two clients."""
    return leases_of([worker(address) for address in WORKERS], ("a", "b"), monotonic=lambda: clock.now)


def give_back(plugin, run):
    assert asyncio.run(plugin.give_back(run))


def pass_time(plugin, clock, seconds):
    """In steps in which the scheduler looks at what there is."""
    for _ in range(int(seconds)):
        clock.now += 1.0
        plugin._serve()


def test_no_worker_has_two_runs(plugin):
    one, two = ask(plugin, "one", "a", 2), ask(plugin, "two", "b", 2)
    assert sorted([*one, *two]) == WORKERS and one["tcp://a:0"] == "of tcp://a:0"
    assert not ask(plugin, "three", "b", 1)
    assert ask(plugin, "one", "a", 2) == one  # asked again: the same


def test_first_come_first_served(plugin):
    """Two workers are free, but the run that wants four came first; one that wants more than there are delays none."""
    ask(plugin, "one", "a", 2)
    assert not ask(plugin, "five", "a", 5) and not ask(plugin, "every", "b", 4) and not ask(plugin, "late", "a", 2)
    give_back(plugin, "one")
    assert not ask(plugin, "late", "a", 2) and sorted(ask(plugin, "every", "b", 4)) == WORKERS
    give_back(plugin, "every")
    assert len(ask(plugin, "late", "a", 2)) == 2


def test_a_run_without_a_number_waits_a_while_for_all(plugin, clock):
    ask(plugin, "one", "a", 1)
    assert not ask(plugin, "open", "b", 1, most=9)
    pass_time(plugin, clock, leases.WAIT_LIMIT_SECONDS - 1)
    assert not ask(plugin, "open", "b", 1, most=9)
    pass_time(plugin, clock, 2)
    assert len(ask(plugin, "open", "b", 1, most=9)) == 3


def test_a_run_that_is_over_gets_no_workers(plugin):
    """A question of it that comes late would keep them for ever: no one gives them back again."""
    ask(plugin, "one", "a", 4)
    give_back(plugin, "one")
    give_back(plugin, "never begun")  # interrupted before its question came
    for run in ("one", "never begun"):
        assert not ask(plugin, run, "a", 4)
    assert not plugin.runs()["running"] and not plugin.runs()["waiting"]
    assert sorted(ask(plugin, "two", "b", 4)) == WORKERS


def test_so_many_runs_that_are_over_are_remembered(plugin):
    async def end(runs):
        for run in runs:
            await plugin.give_back(str(run))

    asyncio.run(end(range(leases.REMEMBERED_RUNS + 1)))
    assert [bool(ask(plugin, run, "a", 1)) for run in ("0", "1", str(leases.REMEMBERED_RUNS))] == [True, False, False]


def test_what_a_client_had_is_free_once_it_has_gone(plugin):
    ask(plugin, "one", "a", 3)
    assert not ask(plugin, "two", "b", 2)
    plugin.remove_client(None, "a")
    assert len(ask(plugin, "two", "b", 2)) == 2


def test_a_silent_client_loses_what_it_has(plugin, clock):
    """Not one that is heard of now and then, nor while this process was stopped."""
    ask(plugin, "silent", "a", 2)
    ask(plugin, "heard", "b", 1)
    clock.now += 10 * leases.CLIENT_TIMEOUT_SECONDS
    for second in range(int(leases.CLIENT_TIMEOUT_SECONDS) - 5):
        plugin._scheduler.clients["b"].last_seen += second % 20 == 0
        pass_time(plugin, clock, 1)
    assert [each["workers"] for each in plugin.runs()["running"]] == [WORKERS[:2], WORKERS[2:3]]
    plugin._scheduler.clients["b"].last_seen += 1
    pass_time(plugin, clock, 10)
    assert [each["workers"] for each in plugin.runs()["running"]] == [WORKERS[2:3]]


def test_workers_of_runs_are_not_retired(plugin):
    ask(plugin, "one", "a", 3)
    assert not ask(plugin, "two", "b", 2)
    states = list(plugin._scheduler.workers.values())
    assert [each.address for each in plugin.valid_workers_downscaling(None, states)] == WORKERS[3:]
    assert plugin.adaptive_target() == 5
    give_back(plugin, "one")
    assert plugin.valid_workers_downscaling(None, states) == states


def task(workers, nbytes=8):
    return SimpleNamespace(who_has=list(workers), nbytes=nbytes)


def test_idle_workers_come_first_then_those_that_hold_the_rows_then_neighbours():
    hosts = "aabbcc"
    states = [worker(f"tcp://{host}:{port}") for port, host in enumerate(hosts)]
    plugin = leases_of(states, ("a", "b"))
    plugin._scheduler.tasks = {("x", 0, 0): task([states[1], states[5]], 96), ("x", 1, 0): task([states[5]], 32)}
    rows = {"keys": [("x", 0, 0), ("x", 1, 0), ("y", 0, 0)]}
    assert list(ask(plugin, "rows", "a", 1, **rows)) == ["tcp://c:5"]
    assert sorted(ask(plugin, "more rows", "a", 2, **rows)) == ["tcp://a:0", "tcp://a:1"]  # a:0 is beside it
    give_back(plugin, "more rows")
    states[1].processing = {"a task": 1.0}
    assert sorted(ask(plugin, "idle", "a", 2, **rows)) == ["tcp://b:2", "tcp://b:3"]
    states[0].processing, states[4].processing = {"a": 1.0, "b": 1.0}, {"a": 1.0}
    states[0].nthreads = states[4].nthreads = 4
    states[0].long_running = {"a"}  # a task that has given its thread away
    states[0].processing.pop("b")
    assert [list(ask(plugin, each, "b", 1)) for each in "xyz"] == [["tcp://a:0"], ["tcp://c:4"], ["tcp://a:1"]]


def test_nearly_equal_parts_of_the_rows_do_not_separate_neighbours():
    states = [worker(f"tcp://{host}:{port}") for port, host in enumerate("abab")]
    plugin = leases_of(states, ("a",))
    plugin._scheduler.tasks = {port: task([state], 100 + port) for port, state in enumerate(states)}
    assert sorted(ask(plugin, "run", "a", 2, keys=range(4))) == ["tcp://b:1", "tcp://b:3"]


def test_connected_workers_come_first_unless_others_are_idler_or_hold_more(plugin):
    pair = {address: f"of {address}" for address in WORKERS[2:]}
    asyncio.run(plugin.keep("pair", "a", pair, {}))
    states = plugin._scheduler.workers

    def pair_of(run, **more):
        found = sorted(ask(plugin, run, "a", 2, **more))
        give_back(plugin, run)
        return found

    assert pair_of("first") == WORKERS[2:]
    plugin._scheduler.tasks = {"x": task([states[WORKERS[0]], states[WORKERS[1]]])}
    assert pair_of("rows", keys=["x"]) == WORKERS[:2]
    states[WORKERS[3]].processing = {"a task": 1.0}
    assert pair_of("idle") == WORKERS[:2]


def test_a_run_has_workers_that_its_client_permits(plugin):
    """What waits for some of the workers delays no run of others."""
    ask(plugin, "one", "a", 1, among=WORKERS[1:2])
    assert [each["workers"] for each in plugin.runs()["running"]] == [WORKERS[1:2]]
    assert not ask(plugin, "two", "a", 2, among=WORKERS[1:3])
    assert not ask(plugin, "late", "b", 1, among=WORKERS[2:3])  # behind the one before
    assert list(ask(plugin, "other", "b", 1, among=WORKERS[3:])) == WORKERS[3:]
    assert list(ask(plugin, "two", "a", 2, among=[*WORKERS[1:3], WORKERS[0]])) in (
        [WORKERS[0], WORKERS[2]],
        WORKERS[::2],
    )


def test_workers_whose_resources_are_in_use_come_last(plugin):
    for address, used in zip(WORKERS, (2, 1, 2, 2), strict=True):
        state = plugin._scheduler.workers[address]
        state.resources, state.used_resources = {"GPU": 2.0}, {"GPU": used}
    assert list(ask(plugin, "one", "a", 1, resources={"GPU": 1.0})) == WORKERS[1:2]
