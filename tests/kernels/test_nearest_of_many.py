"""Lists of nearest columns of a block of distances, against sorting all: what a GPU does where products do not pay."""

import numpy as np
import pytest

from mgclust.kernels.pairs.nearest_of_many import keep_nearest, leave_out


def lists_of(blocks, k, left_out):
    """By `keep_nearest`, block after block."""
    m = len(blocks[0])
    near, index, start = np.full((m, k), np.inf, "float32"), np.full((m, k), -1), 0
    for block in blocks:
        s = block.copy()
        leave_out(s, left_out - start, np)
        keep_nearest(s, start, near, index, np)
        start += s.shape[1]
    return near, index


@pytest.mark.parametrize("k", [1, 16, 40])
@pytest.mark.parametrize("kind", ["random", "few values", "all equal", "a line"])
@pytest.mark.parametrize("widths", [(900,), (2000, 30, 1500), (10, 3, 2600)])
def test_equals_sorting_all(kind, widths, k, rng):
    m, c = 70, sum(widths)
    s = rng.random((m, c)).astype("float32")
    if kind == "few values":
        s = np.floor(s * 200)
    elif kind == "all equal":
        s[:] = 1.5
    elif kind == "a line":  # each column nearer than the ones before
        s = np.sort(s, axis=1)[:, ::-1].copy()
    left_out = np.append(rng.integers(0, c, m - 1), -1)
    near, index = lists_of(np.split(s, np.cumsum(widths)[:-1], axis=1), k, left_out)
    for row in range(m):
        of_row = s[row].copy()
        if left_out[row] >= 0:
            of_row[left_out[row]] = np.inf
        expected = np.lexsort((np.arange(c), of_row))[:k]
        np.testing.assert_array_equal(index[row], expected)
        np.testing.assert_array_equal(near[row], of_row[expected])


def test_fewer_columns_than_neighbours():
    near, index = lists_of([np.array([[3.0, 1.0, 2.0]], "float32")], 5, np.array([1]))
    assert index.tolist() == [[2, 0, -1, -1, -1]] and near.tolist() == [[2.0, 3.0, np.inf, np.inf, np.inf]]


def test_a_block_without_anything_nearer():
    near, index = lists_of(
        [np.arange(200.0, dtype="float32")[None], np.full((1, 200), 500, "float32")], 3, np.array([-1])
    )
    assert index.tolist() == [[0, 1, 2]] and near.tolist() == [[0.0, 1.0, 2.0]]
