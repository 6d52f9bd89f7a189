"""Distances in norms of clusters, memberships of a tile and sums of products, on the CPU, against NumPy in float64.

Of the GPU's kernels those that no other file is included in run on the CPU, too (`support.cuda_on_cpu`).
"""

from __future__ import annotations

import numpy as np
import pytest

from mgclust import kernels
from mgclust.kernels.fuzzy_c_means import cpu_covariances
from mgclust.kernels.toolkit import threads
from support import cuda_on_cpu

cpu = kernels.load("cpu").fuzzy_c_means
SHAPES = [(1, 1, 1), (31, 2, 3), (32, 3, 2), (33, 4, 1), (1025, 5, 4), (2500, 17, 3), (40, 70, 2)]


def data(n, d, c, seed=0):
    rng = np.random.default_rng([seed, n, d, c])
    factors = np.triu(rng.normal(size=(c, d, d))) + 2 * np.eye(d)
    return rng.normal(size=(n, d)), rng.normal(size=(c, d)), factors


def distances(x, centers, factors):
    return (np.einsum("jef,ijf->ije", factors, x[:, None] - centers) ** 2).sum(axis=2)


def packed(x, centers, g):
    """The sums of products as `scatter_sums` lays them out."""
    n, d = x.shape
    y = np.concatenate([x[:, None] - centers, np.ones((n, len(centers), 1))], axis=2)
    upper = np.triu_indices(d + 1)
    return np.einsum("ij,ije,ijf->jef", g, y, y)[:, *upper]


@pytest.mark.parametrize(("n", "d", "c"), SHAPES)
def test_distances(n, d, c, monkeypatch):
    x, centers, factors = data(n, d, c)
    out = np.empty((n, c))
    cpu.norm_distances(x, centers, factors, out=out)
    np.testing.assert_allclose(out, distances(x, centers, factors), rtol=1e-12)
    rows = x[[0, n // 2] * 40]
    again = np.empty((len(rows), c))
    monkeypatch.setattr(cpu_covariances, "TASK", 1)
    cpu.norm_distances(rows, centers, factors, out=again)
    np.testing.assert_array_equal(again, out[[0, n // 2] * 40])  # wherever a row is, its distances have the same bits


def test_no_distance_is_infinite():
    out = np.empty((1, 1))
    cpu.norm_distances(np.full((1, 2), 1e200), np.zeros((1, 2)), np.eye(2)[None], out=out)
    assert out[0, 0] == np.finfo(np.float64).max


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "log2_scale"), [(2.0, 0.0), (1.3, 0.0), (3.0, 5.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_tile_becomes_memberships(dtype, m, log2_scale, weighted, rng):
    s = rng.random((70, 5)) ** 4
    s[3, 2] = s[4, :2] = 0.0
    weights = rng.random(70).astype(dtype) if weighted else None
    w = np.ones((70, 1)) if weights is None else weights.astype("float64")[:, None]
    with np.errstate(divide="ignore"):
        u = np.where((s == 0).any(axis=1)[:, None], s == 0, s ** (-1 / (m - 1)))
    u /= u.sum(axis=1, keepdims=True)
    tile, scores = s.astype(dtype), np.empty((70, 3))
    cpu.tile_memberships(tile, m=m, log2_scale=log2_scale, weights=weights, scores=scores)
    tolerance = 2e-5 if dtype is np.float32 else 1e-12
    g = w * u**m * 2.0**log2_scale
    np.testing.assert_allclose(tile, g, rtol=tolerance, atol=tolerance)
    logs = np.log(np.where(u > 0, u, 1.0))
    parts = [(g * s).sum(axis=1), (w * u**2).sum(axis=1), -(w * u * logs).sum(axis=1)]
    np.testing.assert_allclose(scores, np.stack(parts, axis=1), rtol=10 * tolerance, atol=tolerance)
    tile = s.astype(dtype)
    cpu.tile_memberships(tile, m=m)
    np.testing.assert_allclose(tile, u, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("n", "d", "c"), SHAPES)
def test_sums_of_products(n, d, c, rng):
    x, centers, _ = data(n, d, c)
    g = rng.random((n, c))
    out = np.zeros((1, c, (d + 1) * (d + 2) // 2))
    cpu.scatter_sums(x, centers, g, first_row=0, block_rows=1 << 20, out=out)
    np.testing.assert_allclose(out[0], packed(x, centers, g), rtol=1e-11, atol=1e-11 * n)


def test_the_same_sums_however_rows_come(monkeypatch, rng):
    x, centers, _ = data(5000, 3, 4)
    g = rng.random((5000, 4))
    first, whole = 2048, np.zeros((4, 4, 10))
    cpu.scatter_sums(x, centers, g, first_row=first, block_rows=2048, out=whole)
    for block, (start, stop) in enumerate([(0, 2048), (2048, 4096), (4096, 5000)]):
        own = slice(start, stop)
        np.testing.assert_allclose(whole[block], packed(x[own], centers, g[own]), rtol=1e-11, atol=1e-9)
    monkeypatch.setattr(cpu_covariances, "PARTIAL_BYTES", 1)
    monkeypatch.setattr(cpu_covariances, "thread_count", lambda: 3)
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    parts = np.zeros_like(whole)
    for start, stop in [(0, 1024), (1024, 4096), (4096, 5000)]:
        own, at = slice(start, stop), start // 2048
        cpu.scatter_sums(x[own], centers, g[own], first_row=first + start, block_rows=2048, out=parts[at:])
    np.testing.assert_array_equal(parts, whole)
    with pytest.raises(ValueError, match="should be multiples of 1024"):
        cpu.scatter_sums(x, centers, g, first_row=5, block_rows=2048, out=whole)


@pytest.mark.slow
@pytest.mark.skipif(cuda_on_cpu.compiler() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_of_a_gpu(dtype, tmp_path, rng):
    """One piece of rows: 45, in steps of 32; 16 features and the 1 behind them are two tiles of 16."""
    file = cuda_on_cpu.File(tmp_path, "fuzzy_c_means/covariances.cu", np.dtype(dtype).name, "l2", {})
    for n, d, c in [(1, 1, 1), (45, 2, 3), (200, 5, 2), (45, 15, 2), (33, 16, 2), (40, 34, 1)]:
        x, centers, factors = (each.astype(dtype) for each in data(n, d, c))
        wide = [each.astype(np.float64) for each in (x, centers, factors)]
        tolerance = 1e-4 if dtype is np.float32 else 1e-11
        out, columns = np.empty((n, c), dtype), np.ascontiguousarray(x.T)
        arguments = (columns, np.int64(n), np.int32(d), centers, factors, np.int32(c), out)
        file.get_function("norm_distances")((-(-n // 128), c), (128,), arguments)
        np.testing.assert_allclose(out, distances(*wide), rtol=tolerance)
        g, partial = rng.random((n, c)).astype(dtype), np.zeros((1, c, (d + 1) * (d + 2) // 2), dtype)
        tiles = -(-(d + 1) // 16)
        arguments = (x, np.int64(n), np.int32(d), centers, g, np.int32(c), np.int32(512), partial)
        file.get_function("scatter")((tiles * (tiles + 1) // 2, c, 1), (256,), arguments)
        expected = packed(*wide[:2], g.astype(np.float64))
        np.testing.assert_allclose(partial[0], expected, rtol=tolerance, atol=tolerance * n)
