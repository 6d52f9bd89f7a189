"""A memory limit bounds how much a process grows, within a tenth; or the run is refused before a row is read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks.engine.memory_limits import ITEMS, LIMITS, growth, holds
from mgclust import Canopy, FuzzyCMeans
from mgclust.base.errors import InsufficientMemoryError
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


def _pids(client):
    return client.run(os.getpid)


def test_rows_that_no_worker_can_hold_are_not_sent(client, tmp_path):
    """Workers that are sent too much are ended before a rank can refuse the run."""
    before = _pids(client)
    # 16 GiB in memory as far as NumPy knows, none of which takes any.
    mapped = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(1 << 30, 4))
    rows = np.frombuffer(mapped, np.float32).reshape(mapped.shape)
    for model in (Canopy(2.0, 1.0, client=client), FuzzyCMeans(3, client=client, n_workers=4)):
        with pytest.raises(InsufficientMemoryError, match=r"rows that are sent \d.*more free memory on each worker"):
            model.fit(rows)
    assert _pids(client) == before
