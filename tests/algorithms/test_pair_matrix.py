"""Order statistics of a matrix that ranks hold rows of."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.algorithms.common.pair_matrix import order_statistics
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.dask.cluster import connect

N = 70


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("between", [None, (-0.3, 0.4), (5.0, 6.0), (-0.01, -0.01)])
def test_several_ranks(dtype, between):
    """Neighbours, equal ones, far ones; with bounds that hold for some, for none."""
    values = np.random.default_rng(0).normal(size=(N, N)).astype(dtype)
    values[:, 3], values[:, 5], values[0] = -np.inf, 0.25, -0.0
    ordered = np.sort(values[values > -np.inf])
    ranks = [1, 2, 900, 2400, 2401, 3000, len(ordered)]

    def function(context):
        return order_statistics(context, lambda: [values[:30], values[30:]], ranks, between)

    with connect(None, "cpu") as cluster:
        run = spmd.RunSpec(function, dtype=dtype)
        found = spmd.run(run, open_dataset(np.zeros((N, 2), dtype)), cluster, lambda _: None).value
    np.testing.assert_array_equal(found, ordered[np.array(ranks) - 1])
