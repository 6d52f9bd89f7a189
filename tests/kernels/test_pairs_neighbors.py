"""The nearest denser row among a row's nearest rows, against a loop over them."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels.pairs.neighbors import nearest_known


def slow(order, own_order, near, near_index):
    """The least (distance, row) of the denser rows, and whether all other rows are farther."""
    for own, distances, numbers in zip(own_order, near, near_index, strict=True):
        denser = [(s, j) for s, j in zip(distances, numbers, strict=True) if j >= 0 and order[j] < own]
        best, index = min(denser, default=(np.inf, -1))
        yield best, index, numbers[-1] < 0 or best < distances[-1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "m", "kept"), [(1, 1, 1), (5, 0, 3), (5, 5, 8), (40, 13, 1), (300, 40, 7)])
def test_least_of_the_denser_rows(n, m, kept, dtype):
    rng = np.random.default_rng([n, m, kept])
    s = rng.integers(0, 6, size=(m, n)).astype(dtype)  # many ties
    order = rng.permutation(n).astype(np.int32)
    near, near_index = np.full((m, kept), np.inf, dtype), np.full((m, kept), -1)
    for row, columns in enumerate(np.argsort(s, axis=1, kind="stable")[:, :kept]):
        near[row, : len(columns)], near_index[row, : len(columns)] = s[row, columns], columns
    own = rng.permutation(n)[:m].astype(np.int32)
    best, index, certain = nearest_known(order, own, near, near_index, np)
    assert best.dtype == dtype
    assert list(zip(best.tolist(), index.tolist(), certain.tolist(), strict=True)) == list(
        slow(order, own, near, near_index)
    )
    for row in np.flatnonzero(certain):  # and no row that the list lacks is nearer, or as near with a lower number
        denser = [(s[row, j], j) for j in range(n) if order[j] < own[row]]
        assert min(denser, default=(np.inf, -1)) == (best[row], index[row])
