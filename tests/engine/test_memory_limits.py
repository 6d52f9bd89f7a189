"""A memory limit bounds how much a process grows, within a tenth; or the run is refused before a row is read."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path

import dask.array as da
import numpy as np
import psutil
import pytest
from distributed.protocol import deserialize, serialize
from scipy.sparse import csr_array

from benchmarks.engine.memory_limits import ITEMS, LIMITS, growth, holds
from mgclust import Canopy, FuzzyCMeans
from mgclust.base.errors import InsufficientMemoryError
from mgclust.engine import rank
from mgclust.engine.dask import tasks
from mgclust.engine.partition import Partition
from mgclust.engine.run_spec import RunSpec
from support.waiting import wait_for

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


def test_a_worker_sends_the_arrays_of_an_outcome_without_a_copy():
    """Messages through the scheduler have pickle protocol 4, which would copy all arrays of a pickled outcome."""
    rows = csr_array((np.ones(60_000, bool), np.arange(60_000, dtype=np.int32) % 3, np.arange(0, 60_001, 3)))
    labels = np.arange(20_000)
    done = rank.Done(rank.Report(), {"n": 3}, {"load": 1.0}, {"labels": labels, "memberships": rows})
    header, frames = serialize(done, context={"pickle-protocol": 4})
    for array in (labels, rows.data, rows.indices, rows.indptr):
        assert any(np.shares_memory(np.frombuffer(frame, np.uint8), array) for frame in frames if len(frame))
    found = deserialize(header, [bytearray(frame) for frame in frames])
    assert (found.delivered["memberships"] != rows).nnz == 0 and (found.delivered["labels"] == labels).all()
    assert found.delivered["labels"].flags.writeable and (found.value, found.timings) == (done.value, done.timings)


def _pids(client):
    return client.run(os.getpid)


def test_rows_that_no_worker_can_hold_are_not_sent(client, tmp_path):
    """Workers that are sent too much are ended before a rank can refuse the run."""
    before = _pids(client)
    # 16 GiB in memory as far as NumPy knows, none of which takes any.
    mapped = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(1 << 30, 4))
    rows = np.frombuffer(mapped, np.float32).reshape(mapped.shape)
    for model in (Canopy(2.0, 1.0, client=client), FuzzyCMeans(3, client=client, n_workers=4)):
        with pytest.raises(InsufficientMemoryError, match=r"rows of the rank \d.*more free memory on each worker"):
            model.fit(rows)
    assert _pids(client) == before


def _rows_of_dask(dask_worker):
    """Chunks on a worker, and what its ranks have left behind."""
    left = [each for each in gc.get_objects() if type(each).__name__ in ("ChunkedRows", "Rows", "RankAssignment")]
    return sum("points" in key for key in map(str, dask_worker.data)) + len(left)


@pytest.mark.parametrize("limit", ["16 KiB", None], ids=["on the workers", "before the rows are computed"])
def test_a_refusal_leaves_no_rows_of_a_dask_array_behind(client, limit):
    """Neither here nor on a worker are they kept until garbage is collected."""
    rows = 1 << 16 if limit else 1 << 32
    points = da.ones((rows, 4), chunks=(rows // 4, 4), name="points", dtype=np.float32)
    client.run(gc.collect)
    client.run(gc.disable)
    gc.disable()
    try:
        with pytest.raises(InsufficientMemoryError, match="What would fit") as caught:
            FuzzyCMeans(3, client=client, n_workers=4, memory_limit=limit).fit(points)
        assert limit or "rows of the rank 16.0 GiB" in str(caught.value)
        del caught
        wait_for(lambda: not any(client.run(_rows_of_dask).values()), 20)
    finally:
        gc.enable()
        client.run(gc.enable)
