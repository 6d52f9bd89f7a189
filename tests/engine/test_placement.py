"""Rows that were sent to a rank, and ranks that were sent none."""

import re

import numpy as np
import pytest

from mgclust.base.errors import InputError, InsufficientMemoryError
from mgclust.data import open_dataset
from mgclust.engine.dask.placement import ChunkedRows, check_workers
from mgclust.engine.partition import Partition
from mgclust.engine.rank import RankAssignment, _keep_on_host
from mgclust.engine.run_spec import RunSpec

X = np.arange(14, dtype=np.float32).reshape(7, 2)


@pytest.mark.parametrize(
    "arrays", [[], [X[:0]], [X[:0], X[:0]]], ids=["no array", "one array without rows", "two arrays without rows"]
)
@pytest.mark.parametrize("start", [0, 1000])
def test_none_of_the_rows_are_here(arrays, start):
    rows = ChunkedRows((1000, 2), start, [0] * len(arrays), arrays)
    for first, last in ((0, 1), (0, 0), (999, 1000), (1000, 1000), (0, 1000)):
        assert rows.read(first, last).shape == (0, 2)
        assert rows.read(first, last).dtype == rows.dtype


def test_some_of_the_rows_are_here():
    rows = ChunkedRows((30, 2), 10, [3, 0, 4], [X[:3], X[3:3], X[3:]])
    whole = np.full((30, 2), np.nan, np.float32)
    whole[10:17] = X
    for first in range(31):
        for last in range(first, 31):
            expected = whole[first:last]
            np.testing.assert_array_equal(rows.read(first, last), expected[~np.isnan(expected[:, 0])])


def test_chunks_that_are_not_as_long_as_they_should_be():
    """All rows behind them would be those of others."""
    for arrays in ([X[:2], X[3:]], [X[:3, :1], X[3:]]):
        with pytest.raises(InputError, match=r"has shape \(\d, \d\), but X.chunks lists \(3, 2\): call X.compute_ch"):
            ChunkedRows((30, 2), 10, [3, 4], arrays)


def test_chunks_that_are_masked():
    rows = ChunkedRows((7, 2), 0, [3, 4], [np.ma.masked_less(X[:3], 2), X[3:].astype(int)])
    np.testing.assert_array_equal(rows.read(0, 7), np.where(X < 2, np.nan, X))


@pytest.mark.parametrize("n", [1, 1000, 2000, 3000])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ranks_of_gpus_ask_for_no_rows_but_their_own(n, size):
    """A rank that looks where its rows are has them, or has none."""

    class Sent(ChunkedRows):
        def read(self, start, stop):
            assert own[0] <= start < stop <= own[1]
            return super().read(start, stop)

    partition = Partition.plan(n, size)
    for rank in range(size):
        own = partition.rows_of(rank)
        source = Sent((n, 2), own[0], [own[1] - own[0]], [np.zeros((own[1] - own[0], 2), np.float32)])
        assert _keep_on_host(RankAssignment(RunSpec(len), "run", rank, partition, "cuda"), source, 8) == (
            own[0] < own[1]
        )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_worker_is_not_sent_more_than_it_can_hold(device, tmp_path):
    """4 MB of rows and 0.8 MB of weights, divided among the ranks; 1 MB of an argument for each, twice in memory."""
    rows = np.zeros((100_000, 10), np.float32)
    np.save(tmp_path / "rows.npy", rows)
    spec = RunSpec(len, {"codes": np.zeros(250_000, np.int32)}, row_arguments={"weights": np.ones(100_000)})
    first = RankAssignment(spec, "", 0, Partition.plan(100_000, 4), device)

    def sent(dataset, beside=None, size=4):
        with pytest.raises(InsufficientMemoryError) as caught:
            check_workers(first, dataset, beside, size, 1000)
        parts = re.findall(r"(rows of the rank|arguments|rows to label) ([\d.]+) ([KM])iB", str(caught.value))
        return {
            name: round(float(number) * {"K": 1 << 10, "M": 1 << 20}[unit] / 1e6, 1) for name, number, unit in parts
        }

    here, in_file = open_dataset(rows), open_dataset(tmp_path / "rows.npy")
    assert sent(here) == {"rows of the rank": 1.2, "arguments": 2.0}
    assert sent(here, size=2) == {"rows of the rank": 2.4, "arguments": 2.0}
    assert sent(in_file, here, size=1) == {"rows of the rank": 0.8, "arguments": 2.0, "rows to label": 4.0}
    check_workers(first, here, here, 4, 400 << 20)


def test_rows_of_a_file_are_not_sent(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((100_000, 10), np.float32))
    first = RankAssignment(RunSpec(len), "", 0, Partition.plan(100_000, 4), "cpu")
    check_workers(first, open_dataset(tmp_path / "rows.npy"), None, 4, 1000)
