"""Sums over labels on the CPU against plain float64 NumPy, and their bits against every way of splitting the work."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels import load
from mgclust.kernels.affinity_propagation.messages import padded
from mgclust.kernels.label_sums import cpu as _cpu_labels
from mgclust.kernels.toolkit import threads

cpu = load("cpu")

REALS = (np.float32, np.float64)
SCALE = 2.0**24


def numbered(n: int, sizes: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, int]:
    """Labelings with so many clusters each, numbered through; the last cluster of the first has most columns."""
    rng = np.random.default_rng([seed, n])
    labels = np.stack([rng.integers(size, size=n) for size in sizes])
    labels[0, rng.random(n) < 0.8] = sizes[0] - 1
    return (labels + np.cumsum((0, *sizes[:-1]))[:, None]).astype(np.int32), sum(sizes)


def by_label(values: np.ndarray, labels: np.ndarray, clusters: int) -> np.ndarray:
    """Sums of float64 values over the columns of each cluster."""
    out = np.zeros((len(values), clusters))
    for row in labels:
        for c in np.unique(row):
            out[:, c] += values[:, row == c].sum(axis=1)
    return out


@pytest.fixture(params=[1 << 20, 1])
def task(request, monkeypatch) -> int:
    """Elements of a task: one task in all, and as many as there can be."""
    monkeypatch.setattr(threads, "TASK_ELEMENTS", request.param)
    return request.param


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("n, clusters", [(1, 1), (50, 3), (131, 131), (333, 40)])
def test_same_label_sums(n, clusters, dtype, task):
    rng = np.random.default_rng(n)
    s = -rng.random((n, padded(n))).astype(dtype)
    np.fill_diagonal(s, -np.inf)
    labels = rng.integers(clusters, size=n).astype(np.int32)
    out = np.ones(n, np.int64)
    half = n // 3
    cpu.label_sums.same_label_sums(s[:half], labels, n=n, first_row=0, scale=SCALE, out=out)
    cpu.label_sums.same_label_sums(s[half:], labels, n=n, first_row=half, scale=SCALE, out=out)
    same = (labels[:, None] == labels[None]) & ~np.eye(n, dtype=bool)
    fixed = np.rint(np.where(same, s[:, :n].astype(np.float64), 0) * SCALE).astype(np.int64)
    np.testing.assert_array_equal(out, 1 + fixed.sum(axis=0))


@pytest.mark.parametrize("dtype", REALS)
def test_best_columns_take_the_lowest_of_equals(dtype, task):
    rng = np.random.default_rng(0)
    s = -rng.integers(6, size=(203, padded(500))).astype(dtype)
    columns = np.sort(rng.choice(500, 17, replace=False))
    s[5, columns[0]] = -np.inf
    out = np.full(203, -1, np.int32)
    cpu.label_sums.best_columns(s, columns, out=out)
    np.testing.assert_array_equal(out, s[:, columns].argmax(axis=1))
    cpu.label_sums.best_columns(s, columns[3:4], out=out)
    assert (out == 0).all()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("m, k, d, sizes", [(1, 1, 1, (1,)), (33, 1030, 3, (2, 5, 300)), (70, 3100, 17, (9,))])
def test_cluster_sums(m, k, d, sizes, root, norm, dtype):
    rng = np.random.default_rng([m, k])
    x, y = rng.standard_normal((m, d)).astype(dtype), rng.standard_normal((k, d)).astype(dtype)
    labels, clusters = numbered(k, sizes)
    out = np.full((m, clusters), 3, np.int64)
    options = {"norm": norm, "root": root, "scale": SCALE}
    cpu.label_sums.cluster_sums(x, y, labels, y_start=2048, out=out, **options)
    difference = x[:, None].astype(np.float64) - y[None].astype(np.float64)
    s = np.abs(difference).sum(-1) if norm == "l1" else (difference**2).sum(-1)
    expected = by_label(np.sqrt(s) if root else s, labels, clusters)
    error = (out - 3) / SCALE - expected
    bound = 40 * np.finfo(dtype).eps * np.maximum(expected, 1) + (k // 512 + 2) / SCALE
    assert (np.abs(error) <= bound).all()

    pieces = np.full((m, clusters), 3, np.int64)
    for row in range(0, m, 29):
        for start in range(0, k, 1024):
            part = slice(start, start + 1024)
            cpu.label_sums.cluster_sums(
                x[row : row + 29], y[part], labels[:, part], y_start=start, out=pieces[row : row + 29], **options
            )
    assert (pieces == out).all()


def test_cluster_sums_are_partial_sums_of_512_columns():
    k, scale = 1500, 1.0
    x, y = np.zeros((1, 1)), np.full((k, 1), 0.001)
    out = np.zeros((1, 1), np.int64)
    cpu.label_sums.cluster_sums(
        x, y, np.zeros((1, k), np.int32), norm="l1", root=False, scale=scale, y_start=0, out=out
    )
    assert out[0, 0] == round(0.512) + round(0.512) + round(0.476)


def test_cluster_sums_refuse_a_start_within_a_group():
    x = np.zeros((1, 1))
    with pytest.raises(ValueError, match="y_start=512"):
        cpu.label_sums.cluster_sums(
            x, x, np.zeros((1, 1), np.int32), norm="l2", root=True, scale=1.0, y_start=512, out=np.zeros((1, 1), int)
        )


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("m, n, sizes", [(1, 1, (1,)), (65, 1100, (4, 90)), (40, 70, (70, 2))])
def test_add_by_label(m, n, sizes, dtype):
    values = np.random.default_rng(n).standard_normal((m, padded(n))).astype(dtype)
    values[np.arange(m), np.arange(m) % n] = -np.inf
    labels, clusters = numbered(n, sizes)
    out = np.zeros((m, clusters), np.int64)
    cpu.label_sums.add_by_label(values, labels, n=n, scale=SCALE, out=out)
    known = np.where(values[:, :n] > -np.inf, values[:, :n], 0).astype(np.float64)
    bound = 20 * np.finfo(dtype).eps * by_label(np.abs(known), labels, clusters) + 4 / SCALE
    assert (np.abs(out / SCALE - by_label(known, labels, clusters)) <= bound).all()
    pieces = np.zeros_like(out)
    for row in range(0, m, 7):
        cpu.label_sums.add_by_label(values[row : row + 7], labels, n=n, scale=SCALE, out=pieces[row : row + 7])
    assert (pieces == out).all()


def test_add_by_label_and_cluster_sums_give_the_same_bits():
    rng = np.random.default_rng(8)
    x, y = rng.standard_normal((50, 6)).astype(np.float32), rng.standard_normal((1500, 6)).astype(np.float32)
    labels, clusters = numbered(1500, (3, 50))
    ours, theirs = np.zeros((2, 50, clusters), np.int64)
    cpu.label_sums.cluster_sums(x, y, labels, norm="l2", root=False, scale=SCALE, y_start=0, out=ours)
    cpu.label_sums.add_by_label(cpu.pairs.reduced_distances(x, y, norm="l2"), labels, n=1500, scale=SCALE, out=theirs)
    assert (ours == theirs).all()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("m, d, clusters", [(1, 1, 1), (5000, 120, 7), (3000, 3, 3000)])
def test_group_sums(m, d, clusters, dtype, monkeypatch):
    rng = np.random.default_rng(m)
    x = rng.standard_normal((m, d)).astype(dtype)
    labels = rng.integers(clusters, size=m).astype(np.int32)
    expected = np.zeros((clusters, d), np.int64)
    np.add.at(expected, labels, np.rint(x.astype(np.float64) * SCALE).astype(np.int64))
    for private in (1 << 28, 1):
        monkeypatch.setattr(_cpu_labels, "PRIVATE_BYTES", private)
        out = np.zeros((clusters, d), np.int64)
        cpu.label_sums.group_sums(x, labels, scale=SCALE, out=out)
        np.testing.assert_array_equal(out, expected)
