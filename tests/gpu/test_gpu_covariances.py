"""Distances in norms of clusters, memberships of a tile and sums of products: on a GPU as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels import load

pytestmark = pytest.mark.gpu
SHAPES = [(1, 1, 1), (129, 2, 3), (1025, 5, 4), (3000, 15, 3), (2500, 16, 2), (700, 70, 9)]


@pytest.fixture
def both():
    return load("cpu"), load("cuda")


def data(n, d, c, dtype):
    rng = np.random.default_rng([n, d, c])
    factors = np.triu(rng.normal(size=(c, d, d))) + 2 * np.eye(d)
    arrays = rng.normal(size=(n, d)), rng.normal(size=(c, d)), factors, rng.random((n, c))
    return [each.astype(dtype) for each in arrays]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "d", "c"), SHAPES)
def test_both_devices_agree(n, d, c, dtype, both):
    x, centers, factors, g = data(n, d, c, dtype)
    found, tolerance = [], 3e-5 if dtype == "float32" else 1e-11
    for kernels in both:
        to_device, to_host, xp = kernels.memory.to_device, kernels.memory.to_host, kernels.xp
        rows, v, r, weighs = (to_device(each) for each in (x, centers, factors, g))
        s = xp.empty((n, c), dtype=dtype)
        kernels.fuzzy_c_means.norm_distances(rows, v, r, out=s)
        again = xp.empty((n, c), dtype=dtype)
        kernels.fuzzy_c_means.norm_distances(xp.ascontiguousarray(rows[::-1]), v, r, out=again)
        np.testing.assert_array_equal(to_host(again)[::-1], to_host(s))
        u, tile, scores = s.copy(), s.copy(), xp.empty((n, 3))
        kernels.fuzzy_c_means.tile_memberships(u, m=1.7)
        kernels.fuzzy_c_means.tile_memberships(tile, m=1.7, log2_scale=3.0, weights=weighs[:, 0].copy(), scores=scores)
        sums = xp.zeros((-(-n // 1024), c, (d + 1) * (d + 2) // 2))
        kernels.fuzzy_c_means.scatter_sums(rows, v, weighs, first_row=2048, block_rows=1024, out=sums)
        parts = xp.zeros_like(sums)
        for start in range(0, n, 1024):
            own = slice(start, start + 1024)
            kernels.fuzzy_c_means.scatter_sums(
                rows[own], v, weighs[own], first_row=start, block_rows=1024, out=parts[start // 1024 :]
            )
        np.testing.assert_array_equal(to_host(parts), to_host(sums))
        found.append([to_host(each) for each in (s, u, tile, scores, sums)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * np.abs(theirs).max())
