"""A memory limit bounds how much a process grows, within a tenth; or the run is refused before a row is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.engine.memory_limits import ITEMS, LIMITS, growth, holds

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's peak of a process")


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
