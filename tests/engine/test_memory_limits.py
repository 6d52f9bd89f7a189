"""A memory limit bounds how much a process grows, within a tenth; or the run is refused before a row is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks.engine.memory_limits import ITEMS, LIMITS, growth, holds
from mgclust.engine import rank
from mgclust.engine.dask import tasks
from mgclust.engine.partition import Partition
from mgclust.engine.run_spec import RunSpec

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's peak of a process"),
    pytest.mark.xdist_group("workers"),
]


@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("item", ITEMS)
def test_a_limit_bounds_the_growth_of_the_process(item, limit):
    (found,) = growth(*ITEMS[item], [limit])
    assert holds(found), found


def test_rows_that_do_not_fit_are_streamed_within_the_limit():
    (found,) = growth("fuzzy c-means", 400_000, 32, [48])  # 49 MiB of rows
    assert not found["refused"] and holds(found), found
    assert found["grown_mib"] > 10


def test_data_that_dask_can_write_to_disk_are_not_used_memory(client):
    rows = client.scatter(np.ones(1 << 20), hash=False)
    (address,) = client.who_has(rows)[rows.key]
    kept = client.run(lambda dask_worker: tasks._bytes_in_memory(dask_worker), workers=[address])[address]
    assert kept >= 8 << 20

    used = psutil.Process().memory_info().rss
    assignment = rank.RankAssignment(
        RunSpec(len), "", 0, Partition.plan(10, 1), "cpu", worker_limit=2 * used, spillable=used // 2
    )
    without = rank._host_share(replace(assignment, spillable=0))
    assert abs(rank._host_share(assignment) - without - used // 2) < used // 10
