"""Rows that were sent to a rank, and ranks that were sent none."""

import numpy as np
import pytest

from mgclust.base.errors import InputError
from mgclust.engine.dask.placement import ChunkedRows
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
        with pytest.raises(InputError, match=r"has shape \(\d, \d\), where X.chunks says \(3, 2\): call X.compute_ch"):
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
