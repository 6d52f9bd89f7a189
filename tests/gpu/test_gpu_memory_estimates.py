"""The estimate of a run covers what it takes on a GPU, and a memory limit bounds the pool."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.engine.memory_limits import SMALL, TOLERANCE, method, write
from mgclust import DensityPeaks, InsufficientMemoryError
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


@pytest.mark.parametrize("limit", [150, 400])
@pytest.mark.parametrize(
    ("name", "n", "d"),
    [
        ("fuzzy c-means", 4_000_000, 16),
        ("fuzzy c-means, noise", 1_000_000, 8),
        ("canopies", 1_000_000, 16),
        ("silhouettes of means", 2_000_000, 16),
        ("silhouettes of pairs", 40_000, 1024),
        ("nearest neighbours", 40_000, 1024),
        ("density peaks", 40_000, 1024),
        ("affinity propagation", 4000, 8),
        ("adaptive affinity propagation", 3000, 8),
        ("communities", 1_000_000, 2),
    ],
)
def test_a_limit_bounds_the_pool(name, n, d, limit, tmp_path):
    cupy = load("cuda").xp
    pool, fit, where = cupy.get_default_memory_pool(), method(name), {"client": None, "device": "cuda"}

    class Peak(cupy.cuda.MemoryHook):
        name = "peak of the pool"
        most = 0

        def alloc_postprocess(self, **_):
            self.most = max(self.most, pool.total_bytes())

    write(tmp_path / "small.npy", name, SMALL, min(d, 64), 0)
    write(tmp_path / "rows.npy", name, n, d, 1)
    fit(str(tmp_path / "small.npy"), SMALL, **where)
    pool.free_all_blocks()
    before, peak = pool.total_bytes(), Peak()
    with peak:
        try:
            fit(str(tmp_path / "rows.npy"), n, memory_limit=limit << 20, **where)
        except InsufficientMemoryError as refused:
            assert "What would fit" in str(refused)
    assert peak.most - before <= TOLERANCE * (limit << 20)
