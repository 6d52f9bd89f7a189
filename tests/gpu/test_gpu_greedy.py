"""Greedy merging on the GPU: the CPU's merges and gains, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import mgclust.datasets
from mgclust import FastNewman
from mgclust.kernels import load

cpu = load("cpu")

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu():
    return load("cuda")


def network(edges, n, weights):
    """Rows of a symmetric matrix without a diagonal, and the degrees."""
    strength = np.zeros(n, weights.dtype)
    np.add.at(strength, edges.ravel(), np.repeat(weights, 2))
    apart = edges[:, 0] != edges[:, 1]
    u, v, w = *edges[apart].T, weights[apart]
    rows = sparse.coo_matrix((np.r_[w, w], (np.r_[u, v], np.r_[v, u])), shape=(n, n)).tocsr()
    rows.sort_indices()
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, strength


def random_network(kind, n, m, seed, dtype="int64"):
    rng = np.random.default_rng([n, m, seed])
    edges = rng.integers(0, n, (m, 2))
    if kind == "hubs":
        edges[::2, 0] = rng.integers(0, 4, len(edges[::2]))
    if kind == "apart":
        edges = edges // 7 * 7 + rng.integers(0, 7, (m, 2)) % np.minimum(7, n - edges // 7 * 7)
    if kind == "clusters":
        edges[:, 1] = (edges[:, 0] // 50 * 50 + rng.integers(0, 50, m)) % n
        edges[::5, 1] = rng.integers(0, n, len(edges[::5]))
    weights = {
        "weights": lambda: rng.integers(0, 4, m),
        "spread": lambda: 1 << rng.integers(0, 40, m),  # so far apart that float64 rounds gains, some to equal ones
    }.get(kind, lambda: np.ones(m, np.int64))()
    return network(edges, n, weights.astype(dtype))


def assert_same(gpu, rows, resolution=1.0):
    counts: list[int] = []
    expected = cpu.greedy_merges.greedy_merges(*rows, resolution=resolution, on_progress=lambda done: None)
    merges, gains = gpu.greedy_merges.greedy_merges(
        *(gpu.memory.to_device(part) for part in rows), resolution=resolution, on_progress=counts.append
    )
    assert merges.dtype == np.int32 and gains.dtype == rows[2].dtype
    np.testing.assert_array_equal(merges, expected[0])
    np.testing.assert_array_equal(gains, expected[1])
    assert counts == sorted(counts)
    assert not len(merges) or counts[-1] == len(merges)


KINDS = ["ties", "weights", "hubs", "apart", "clusters"]


@pytest.mark.parametrize("kind", KINDS)
def test_small_networks_in_integers(gpu, kind):
    for seed in range(20):
        n = 3 + 9 * seed
        assert_same(gpu, random_network(kind, n, n * (1 + seed % 4), seed))


@pytest.mark.parametrize("kind", [*KINDS, "spread"])
@pytest.mark.parametrize("resolution", [1.0, 0.3, 1.7])
def test_small_networks_in_floats(gpu, kind, resolution):
    for seed in range(10):
        n = 3 + 17 * seed
        assert_same(gpu, random_network(kind, n, n * (1 + seed % 4), seed, "float64"), resolution)


@pytest.mark.parametrize("threads", [64, 256, 512, 1024])
@pytest.mark.parametrize("kind", ["hubs", "clusters"])
def test_rows_longer_than_the_block(gpu, kind, threads, monkeypatch):
    monkeypatch.setattr("mgclust.kernels.greedy_merges.gpu.THREADS", threads)
    assert_same(gpu, random_network(kind, 6000, 24_000, 1))


def test_a_pool_that_runs_out(gpu, monkeypatch):
    from mgclust.kernels.greedy_merges import gpu as _gpu_greedy

    made, make_room = [], _gpu_greedy._make_room
    monkeypatch.setattr(_gpu_greedy, "SPARE", 0)
    monkeypatch.setattr(_gpu_greedy, "_make_room", lambda *args: made.append(make_room(*args)) or made[-1])
    for seed in range(5):
        assert_same(gpu, random_network("ties", 300, 500, seed))
        assert_same(gpu, random_network("clusters", 2000, 5000, seed, "float64"))
    assert made


def test_a_tree_larger_than_shared_memory(gpu):
    assert_same(gpu, random_network("clusters", 90_000, 200_000, 0))


def test_small_cases(gpu):
    one_edge = network(np.array([[0, 1]]), 2, np.ones(1, np.int64))
    assert_same(gpu, one_edge)
    assert_same(gpu, network(np.array([[0, 0], [2, 2]]), 3, np.ones(2, np.int64)))
    assert_same(gpu, network(np.array([[4, 1]]), 6, np.array([2.5])))
    path = np.stack([np.arange(99), np.arange(1, 100)], axis=1)
    assert_same(gpu, network(path, 100, np.ones(99, np.int64)))
    star = np.stack([np.zeros(5000, np.int64), np.arange(1, 5001)], axis=1)
    assert_same(gpu, network(star, 5001, np.ones(5000, np.int64)))


def test_a_receiver_may_stop_it(gpu):
    rows = [gpu.memory.to_device(part) for part in random_network("clusters", 30_000, 100_000, 0)]

    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gpu.greedy_merges.greedy_merges(*rows, resolution=1.0, on_progress=stop)
    gpu.memory.synchronize()
    assert_same(gpu, random_network("hubs", 100, 300, 0))


def test_too_many_edges_are_refused(gpu, monkeypatch):
    monkeypatch.setattr("mgclust.kernels.greedy_merges.gpu.MAX_ENTRIES", 100)
    with pytest.raises(ValueError, match=r"n_edges=\d+ between different nodes should be <= 50 .* device='cpu'"):
        assert_same(gpu, random_network("ties", 100, 300, 0))


@pytest.mark.parametrize(("size", "degree", "where"), [(200, 80, "cuda"), (300, 16, "cpu")])
def test_auto_merges_dense_graphs_on_the_gpu(gpu, monkeypatch, size, degree, where):
    used = []
    for device in ("cpu", "cuda"):
        module = load(device).greedy_merges
        merge = module.greedy_merges
        monkeypatch.setattr(
            module, "greedy_merges", lambda *a, merge=merge, device=device, **o: used.append(device) or merge(*a, **o)
        )
    graph = mgclust.datasets.make_random_network(5, size, degree, 0.8)
    found = {device: FastNewman(device=device, client=None).fit(graph) for device in ("auto", "cpu")}
    assert used == [where, "cpu"]
    np.testing.assert_array_equal(found["auto"].merges_, found["cpu"].merges_)
