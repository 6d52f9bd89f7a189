import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgclust.base.errors import InsufficientMemoryError
from mgclust.engine.memory import Estimate, Residency, check, human
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


def of_rows(shape, size, free):
    return Estimate({"rows": shape[0] * shape[1] // size, "tile": 1 << 30})


def of_rows_and_all(shape, size, free):
    return Estimate({"rows": 4 * shape[0] * shape[1] // size, "for each row of all": shape[0] // 8, "fixed": free // 2})


def test_a_refusal_says_what_is_needed_and_there_and_what_would_fit():
    check(of_rows, (6 << 20, 1024), 4, 5 << 29)
    with pytest.raises(InsufficientMemoryError) as caught:
        check(of_rows, (24 << 20, 1024), 4, 3 << 30)
    message = str(caught.value)
    for part in ("needs 7.0 GiB", "rows 6.0 GiB", "3.0 GiB is free", "13 workers like this one instead of 4"):
        assert part in message
    assert "4.4 GiB more free memory on each worker" in message and "about 30% of the rows" in message


def test_a_refusal_does_not_offer_workers_that_would_not_help():
    with pytest.raises(InsufficientMemoryError) as caught:
        check(lambda shape, size, free: Estimate({"rows of all": shape[0]}), (4 << 30, 1), 1, 3 << 30)
    assert "workers like" not in str(caught.value) and "about 71% of the rows" in str(caught.value)


@given(st.integers(1 << 24, 1 << 34), st.integers(1, 64), st.integers(1, 8))
def test_a_proposal_holds_where_a_little_less_is_free(n, d, size):
    def holds(free, n=n, size=size):
        check(of_rows_and_all, (n, d), size, free * 96 // 100)

    free = 3 << 28
    try:
        check(of_rows_and_all, (n, d), size, free)
    except InsufficientMemoryError as error:
        if found := re.search(r"(\d+) workers like this one", str(error)):
            holds(free, size=int(found[1]))
        if found := re.search(r"([\d.]+) (.iB) more free memory", str(error)):
            holds(free + int((float(found[1]) + 0.05) * {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}[found[2]]))
        if found := re.search(r"about (\d+)% of the rows", str(error)):
            holds(free, n=max(1, n * int(found[1]) // 100))


@given(st.integers(1 << 20, 1 << 34), st.integers(1, 1024), st.integers(1, 1 << 24), st.integers(1, 64))
def test_the_sum_is_within_the_memory_or_refused(free, d, n, size):
    """One sum of rows, temporaries, blocks on their way and a method that keeps 16 bytes for each row."""

    def kept(shape, itemsize, size, room):
        return Estimate({"kept": 16 * shape[0] // size})

    residency = Residency(free, (n, d), 4, size, kept)
    try:
        residency.check()
    except InsufficientMemoryError:
        assert residency.estimate(residency.block_rows).needed > free
        return
    rows = residency.held
    assert residency.estimate(rows).needed <= free
    assert rows * 4 * d + 16 * n // size + 48 * min(residency.piece, rows * d) <= free
    assert residency.resident(residency.rows) or rows % residency.block_rows == 0 or rows == residency.rows


def test_human():
    assert [human(5), human(3 << 10), human(3 << 30), human(5 << 40)] == [
        "5 bytes", "3.0 KiB", "3.0 GiB", "5.0 TiB",
    ]  # fmt: skip
