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
