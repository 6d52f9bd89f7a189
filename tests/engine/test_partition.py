import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgclust.base.errors import InsufficientMemoryError
from mgclust.engine.memory import Estimate, Residency, human
from mgclust.engine.partition import Partition

ROWS = st.integers(1, 300_000)
SIZES = st.integers(1, 70)


@given(ROWS, SIZES)
def test_every_row_has_one_owner(n, size):
    partition = Partition.plan(n, size)
    stops = [0]
    for rank in range(size):
        start, stop = partition.rows_of(rank)
        assert start == stops[-1]
        assert stop >= start
        stops.append(stop)
    assert stops[-1] == n
    for block in range(partition.blocks):
        start, stop = partition.bounds(block)
        first, last = partition.rows_of(partition.owner(block))
        assert first <= start < stop <= last


@given(ROWS, SIZES)
def test_ranks_own_equally_many_blocks(n, size):
    counts = [len(Partition.plan(n, size).blocks_of(rank)) for rank in range(size)]
    assert max(counts) - min(counts) <= 1


@given(ROWS, SIZES, SIZES)
def test_blocks_do_not_depend_on_the_number_of_ranks(n, size, other):
    a, b = Partition.plan(n, size), Partition.plan(n, other)
    assert a.block_rows == b.block_rows
    assert 1024 <= a.block_rows <= 65536
    assert a.block_rows % 1024 == 0


@given(ROWS, SIZES, st.integers(1, 200_000))
def test_spans_cover_all_rows_in_order_and_keep_to_one_owner(n, size, max_rows):
    partition = Partition.plan(n, size)
    ranges = list(partition.ranges(max_rows))
    assert [span.start for span in ranges] == [0, *(span.stop for span in ranges[:-1])]
    assert ranges[-1].stop == n
    for span in ranges:
        first, last = partition.rows_of(span.owner)
        assert first <= span.start < span.stop <= last
        assert span.start % partition.block_rows == 0
        assert span.stop - span.start <= max(max_rows, partition.block_rows)


def test_estimate_says_needed_there_and_what_would_fit():
    estimate = Estimate(6 << 30, 1 << 30, {"rows": 6 << 30, "tile": 1 << 30})
    estimate.check(7 << 30, 4)
    with pytest.raises(InsufficientMemoryError) as caught:
        estimate.check(3 << 30, 4)
    message = str(caught.value)
    for part in ("needed 7.0 GiB", "rows 6.0 GiB", "there 3.0 GiB", "12 workers like this one instead of 4"):
        assert part in message


def test_estimate_does_not_offer_workers_that_would_not_help():
    with pytest.raises(InsufficientMemoryError) as caught:
        Estimate(1, 4 << 30).check(3 << 30, 4)
    assert "workers like" not in str(caught.value)


@given(st.integers(1 << 20, 1 << 34), st.integers(4, 4096), st.integers(1, 64))
def test_residency_keeps_chunks_within_half(free, row_bytes, blocks):
    residency = Residency(free, row_bytes, 1024)
    assert residency.chunk_rows % 1024 == 0
    assert residency.chunk_rows == 1024 or residency.chunk_rows * row_bytes <= free // 4
    assert residency.resident(blocks * 1024) == (blocks * 1024 * row_bytes <= free // 2)


def test_human():
    assert [human(5), human(3 << 10), human(3 << 30), human(5 << 40)] == [
        "5 bytes", "3.0 KiB", "3.0 GiB", "5.0 TiB",
    ]  # fmt: skip
