"""`first_independent` and `write_within` against plain loops over the reduced distances of the other kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mgclust.kernels import load
from mgclust.kernels.pairs import cpu_tasks as _cpu_tasks
from mgclust.kernels.toolkit import threads

cpu = load("cpu")

SHAPES = [(1, 1), (2, 3), (31, 2), (32, 2), (33, 3), (1000, 17), (4096, 2), (700, 130)]
REALS = (np.float32, np.float64)


def uniform(n: int, d: int, dtype) -> np.ndarray:
    return np.random.default_rng([n, d]).random((n, d)).astype(dtype)


def lattice(n: int, d: int, dtype) -> np.ndarray:
    """Many ties and duplicates."""
    return np.random.default_rng([n, d, 1]).integers(0, 5, (n, d)).astype(dtype)


def greedy(near: np.ndarray) -> np.ndarray:
    """The definition: rows in order, each unless a picked one before it is near."""
    picked = np.zeros(len(near), np.uint8)
    for i in range(len(near)):
        picked[i] = not near[i, picked.astype(bool)].any()
    return picked


def pick(x: np.ndarray, norm: str, threshold: float) -> np.ndarray:
    out = np.full(len(x), 7, np.uint8)
    cpu.canopy.first_independent(x, norm=norm, threshold=threshold, out=out)
    return out


def lists(x: np.ndarray, y: np.ndarray, norm: str, threshold: float, gap: int = 0) -> tuple[np.ndarray, np.ndarray]:
    counts = np.zeros(len(x), np.int64)
    cpu.pairs.count_within(x, y, norm=norm, threshold=threshold, out=counts)
    starts = np.cumsum(counts + gap) - counts
    out = np.full(int((counts + gap).sum()), -7, np.int32)
    before = starts.copy()
    cpu.canopy.write_within(x, y, norm=norm, threshold=threshold, starts=starts, out=out)
    assert (starts == before).all()
    return starts, out


@pytest.mark.quick("1-1-*", "2-3-*", "31-2-*", "33-3-*")
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("make", [uniform, lattice])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_both_are_the_definition(n, d, make, norm, dtype):
    x = make(n, d, dtype)
    y = make(n + 5, d, dtype)[::-1].copy()
    s, to_y = cpu.pairs.reduced_distances(x, x, norm=norm), cpu.pairs.reduced_distances(x, y, norm=norm)
    for share in (0.002, 0.1):
        threshold = float(np.quantile(s[:100], share))
        if threshold > 0:  # else a row is not near itself
            assert (pick(x, norm, threshold) == greedy(s < threshold)).all()
        assert (lists(x, y, norm, threshold)[1] == np.nonzero(to_y < threshold)[1]).all()


@pytest.mark.parametrize("dtype", REALS)
def test_every_row_or_a_single_one(dtype):
    x = uniform(100, 2, dtype)
    assert pick(x, "l2", np.finfo(dtype).tiny).all()
    assert pick(x, "l2", np.inf).tolist() == [1] + 99 * [0]
    starts, columns = lists(x, x, "l2", np.inf)
    assert (starts == 100 * np.arange(100)).all() and (columns.reshape(100, 100) == np.arange(100)).all()
    assert len(lists(x, x + 10, "l2", 1.0)[1]) == 0


def test_nothing_is_written_between_the_lists():
    x = uniform(300, 2, np.float64)
    starts, out = lists(x, x, "l2", 0.02, gap=3)
    inside = np.zeros(len(out), bool)
    for i, start in enumerate(starts):
        inside[start : start + (cpu.pairs.reduced_distances(x[i : i + 1], x, norm="l2") < 0.02).sum()] = True
    assert (out[~inside] == -7).all() and (out[inside] >= 0).all()


@pytest.mark.parametrize("d", [2, 40])
def test_lists_depend_neither_on_threads_nor_on_tasks_or_batches(d, monkeypatch):
    x = uniform(2100, d, np.float32)
    threshold = float(np.quantile(cpu.pairs.reduced_distances(x[:50], x, norm="l2"), 0.05))
    with threads.share(1):
        expected = lists(x, x, "l2", threshold)[1]
    monkeypatch.setattr(_cpu_tasks, "BATCH_BYTES", 1)
    monkeypatch.setattr(_cpu_tasks, "TASK_PAIRS", 1)
    with threads.share(2):
        assert (lists(x, x, "l2", threshold)[1] == expected).all()


def test_no_rows_is_no_work():
    none, x = np.zeros((0, 2), np.float32), np.zeros((3, 2), np.float32)
    assert len(pick(none, "l2", 1.0)) == 0
    assert len(lists(none, x, "l2", 1.0)[1]) == len(lists(x, none, "l2", 1.0)[1]) == 0


def trees(x: np.ndarray, numbers: np.ndarray, starts: np.ndarray, norm: str, device) -> tuple[np.ndarray, np.ndarray]:
    s, other = np.empty(len(x), x.dtype), np.empty(len(x), np.int64)
    device.canopy.spanning_trees(x, numbers, starts, norm=norm, s=s, other=other)
    return s, other


def kruskal(x: np.ndarray, numbers: np.ndarray, norm: str) -> set:
    """Edges of the only spanning tree by (s, lower number, higher number)."""
    s, parts = cpu.pairs.reduced_distances(x, x, norm=norm), np.arange(len(x))
    pairs = [(s[i, j], *sorted((numbers[i], numbers[j])), i, j) for i in range(len(x)) for j in range(i)]
    edges = set()
    for value, low, high, i, j in sorted(pairs):
        if parts[i] != parts[j]:
            parts[parts == parts[i]] = parts[j]
            edges.add((float(value), int(low), int(high)))
    return edges


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("make", [uniform, lattice])
def test_spanning_trees_are_the_only_ones(make, norm, dtype):
    starts = np.array([0, 1, 3, 36, 100, 164])
    x = make(164, 3, dtype)
    numbers = np.random.default_rng(3).permutation(1000)[:164]
    s, other = trees(x, numbers, starts, norm, cpu)
    for first, last in itertools.pairwise(starts):
        own = slice(first, last)
        assert np.isinf(s[first]) and other[first] == numbers[first]
        pairs = np.sort(np.stack([numbers[own], other[own]], axis=1), axis=1)[1:]
        found = {(float(value), *map(int, pair)) for value, pair in zip(s[own][1:], pairs, strict=True)}
        assert found == kruskal(x[own], numbers[own], norm)
    assert len(trees(x[:0], numbers[:0], np.zeros(1, np.int64), norm, cpu)[0]) == 0
