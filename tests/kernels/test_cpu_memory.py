"""Rows on their way to the kernels, on the CPU: nothing travels, and what is asked for does not change."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels import load

memory = load("cpu").memory


@pytest.mark.parametrize("shape", [(0, 2), (1, 1), (5, 3)])
def test_rows_arrive_contiguous(shape, rng):
    x = np.asfortranarray(rng.normal(size=shape))
    there = memory.to_device(x)
    assert there.flags.c_contiguous
    np.testing.assert_array_equal(memory.to_host(there), x)
    assert memory.to_device(there) is there  # no copy where none is needed


def test_what_was_started_to_the_host_does_not_change():
    x = np.arange(4.0)
    kept = memory.start_to_host(x)
    memory.synchronize()
    x[:] = 0
    assert kept.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_pieces_come_one_after_the_other(count, rng):
    pieces, asked = [rng.normal(size=(3 - (k == 4), 2)) for k in range(count)], []

    def read():
        for k, piece in enumerate(pieces):
            asked.append(k)
            yield piece

    before = None
    for k, found in enumerate(memory.prefetch(read())):
        assert len(asked) <= k + 2  # no more than one is read ahead
        np.testing.assert_array_equal(found, pieces[k])
        if before is not None:
            np.testing.assert_array_equal(before, pieces[k - 1])  # still valid
        before = found
    assert asked == list(range(count))


def test_memory_of_the_host():
    assert memory.host_empty((3, 2), np.float32).shape == (3, 2)
    assert 0 < memory.free_memory() < 1 << 60
