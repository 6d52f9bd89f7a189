"""`greedy_merges` against a search through all pairs before every merge, in exact numbers; known scores."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mgclust.kernels import load
from oracles import fast_newman as reference

cpu = load("cpu")

DATA = Path(__file__).parents[1] / "sets"

# Measured with another program: modularity, communities, merges with positive gains.
KNOWN = {
    "karate": (0.3807, 3, 31),
    "celegans-metabolic": (0.4002, 10, 443),
    "netscience": (0.9551, 404, 1185),
    "citeseer": (0.8702, 486, 2841),
    "cora": (0.8068, 106, 2602),
    "power": (0.9341, 42, 4899),
    "hep-th": (0.8102, 1416, 6945),
}


def merges_of(rows, resolution: float = 1.0) -> tuple[list[tuple[int, int]], list]:
    merges, gains = cpu.greedy_merges.greedy_merges(*rows, resolution=resolution, on_progress=lambda done: None)
    assert merges.dtype == np.int32 and gains.dtype == rows[3].dtype
    return [tuple(pair) for pair in merges.tolist()], gains.tolist()


def random_graph(seed: int) -> tuple[np.ndarray, int]:
    """Few or many edges, repeated ones and loops among them, weights 1 (ties), small, or 0 too; some hubs."""
    rng = np.random.default_rng([5, seed])
    n = int(rng.integers(1, 40))
    m = int(rng.integers(0, 4 * n))
    u, v = rng.integers(0, n, (2, m))
    if seed % 4 == 3:
        v = v * rng.integers(0, 2, m)  # half of the edges meet node 0
    weights = [np.ones(m, int), rng.integers(1, 6, m), rng.integers(0, 3, m)][seed % 3]
    return np.column_stack([u, v, weights]), n


def hub_graph(n: int, seed: int) -> np.ndarray:
    """Nodes 0 to 2 each meet half of the others: rows far beyond the size at which a row becomes a hub."""
    rng = np.random.default_rng([7, seed])
    near = [np.flatnonzero(rng.random(n) < 0.5) for _ in range(3)]
    stars = np.column_stack([np.repeat([0, 1, 2], [len(x) for x in near]), np.concatenate(near)])
    edges = np.concatenate([stars, rng.integers(0, n, (n, 2))])
    return np.column_stack([edges, rng.integers(1, 3, len(edges))])


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_every_merge_is_the_definitions(dtype):
    for seed in range(200):
        edges, n = random_graph(seed)
        expected = reference.greedy(edges, n)
        assert merges_of(reference.rows_of(edges, n, dtype)) == (expected.merges, expected.gains), seed


def test_any_resolution():
    for seed in range(100):
        edges, n = random_graph(seed)
        resolution = [0.25, 0.75, 1.5, 3.0][seed % 4]  # gains are exact: strengths are small
        expected = reference.greedy(edges, n, resolution)
        assert merges_of(reference.rows_of(edges, n, np.float64), resolution) == (expected.merges, expected.gains), seed


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("seed", [0, 1, 15])  # 1 and 15 find it out if a tree's node outlives one below it
def test_hubs(seed, dtype):
    edges, n = hub_graph(2000, seed), 2000
    expected = reference.greedy_in_arrays(edges, n)
    assert merges_of(reference.rows_of(edges, n, dtype)) == (expected.merges, expected.gains)


def test_references_agree():
    for seed in range(30):
        edges, n = random_graph(seed)
        one, other = reference.greedy(edges, n), reference.greedy_in_arrays(edges, n)
        assert (one.merges, one.gains) == (other.merges, other.gains)


def as_written(rows, resolution: float) -> tuple[list[tuple[int, int]], list[float]]:
    """The definition in float64, every rounding as the kernels' contract has it."""
    starts, columns, weights, strength = rows
    near = [dict(zip(columns[a:b].tolist(), weights[a:b].tolist(), strict=True)) for a, b in pairwise(starts)]
    d, two_m = strength.tolist(), float(strength.sum())
    merges, gains = [], []
    while pairs := [
        (-(two_m * w - resolution * (d[i] * d[j])), i, j) for i, r in enumerate(near) for j, w in r.items() if i < j
    ]:
        loss, i, j = min(pairs)
        merges.append((i, j))
        gains.append(-loss)
        for k, w in near[j].items():
            del near[k][j]
            if k != i:
                near[i][k] = near[k][i] = near[i].get(k, 0.0) + w
        near[j] = {}
        d[i] += d[j]
    return merges, gains


def test_weights_that_round():
    """Tiny weights beside large ones: gains that should fall stay where they are, and ties change hands."""
    for seed in range(60):
        edges, n = random_graph(seed)
        rng = np.random.default_rng(seed)
        starts, columns, _, _ = reference.rows_of(edges, n)
        half = np.triu(10.0 ** rng.integers(-18, 1, (n, n)) * rng.integers(1, 4, (n, n)), 1)
        rows = np.repeat(np.arange(n), np.diff(starts))
        weights = (half + half.T)[rows, columns]
        strength = np.bincount(rows, weights, n)
        given = (starts, columns, weights, strength)
        assert merges_of(given, 1.3) == as_written(given, 1.3), seed


def test_progress_may_stop_it():
    edges, told = hub_graph(400, 0), []
    rows = reference.rows_of(edges, 400)
    whole = merges_of(rows)

    def stop(done: int) -> None:
        told.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cpu.greedy_merges.greedy_merges(*rows, resolution=1.0, on_progress=stop)
    assert len(told) == 1 and 0 < told[0] < len(whole[0])
    assert merges_of(rows) == whole


@pytest.mark.parametrize("name", KNOWN)
def test_known_scores(name):
    with np.load(DATA / f"{name}.npz") as file:
        edges, n = file["edges"], int(file["n"])
    rows = reference.rows_of(edges, n)
    merges, gains = merges_of(rows)
    done = sum(gain > 0 for gain in gains)
    assert all(gain <= 0 for gain in gains[done:])
    two_m = int(rows[3].sum())
    start = -sum(d * d for d in rows[3].tolist()) / two_m**2
    q, *counts = KNOWN[name]
    assert [n - done, done] == counts
    assert round(start + 2 * sum(gains[:done]) / two_m**2, 4) == q
    if len(edges) <= 3000:
        expected = reference.greedy(edges, n)
        assert (merges, gains) == (expected.merges, expected.gains)


def test_neighbours_in_any_order():
    for seed in range(50):
        starts, columns, weights, strength = reference.rows_of(*random_graph(seed), np.int64)
        row = np.repeat(np.arange(len(strength)), np.diff(starts))
        order = np.lexsort((np.random.default_rng(seed).random(len(row)), row))
        assert merges_of((starts, columns[order], weights[order], strength)) == merges_of(
            (starts, columns, weights, strength)
        ), seed
