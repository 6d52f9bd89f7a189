"""The estimate of a run covers what it takes on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust import DensityPeaks
from mgclust.algorithms.density_peaks.memory import estimate
from mgclust.kernels import load

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dc_method", ["exact", "sample"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_density_peaks_with_few_features(d, dc_method):
    n = 4_000_000
    pool = load("cuda").xp.get_default_memory_pool()
    X = load("cuda").xp.asarray(np.random.default_rng(0).normal(size=(n, d)).astype("float32"))
    pool.free_all_blocks()
    before = pool.total_bytes()
    DensityPeaks(n_clusters=5, dc=None, dc_method=dc_method, device="cuda", client=None).fit(X)
    asked = {"metric": "euclidean", "algorithm": "auto", "k": 0, "with_errors": False, "weighted": False}
    expected = estimate((n, d), 4, 1, 0, **asked, choice=True, pairs=0)
    assert pool.total_bytes() - before <= expected.needed
