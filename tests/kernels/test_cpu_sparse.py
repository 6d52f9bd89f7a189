"""Sparse rows: bitwise the same decisions as direct differences of all features."""

import numpy as np
import pytest

from mgclust.kernels.canopy import cpu as canopies
from mgclust.kernels.pairs import cpu, cpu_sparse


def sparse_rows(n, d, kind, dtype, seed=0):
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, d + 1)
    rows = np.array([np.bincount(rng.choice(d, rng.integers(0, d // 20), p=share / share.sum()), minlength=d)
                     for _ in range(n)], dtype)  # fmt: skip
    rows[rng.integers(0, n, n // 5)] = rows[rng.integers(0, n, n // 5)]  # duplicates
    if kind == "binary":
        rows = (rows > 0).astype(dtype)
    if kind == "unit":
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
    if kind == "signed":
        rows *= rng.normal(size=d).astype(dtype)
        rows[rows == 0] *= -1  # minus zero
    return rows


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["counts", "binary", "unit", "signed"])
def test_decisions_and_lists_are_those_of_all_features(kind, dtype, monkeypatch):
    monkeypatch.setattr(cpu_sparse, "MIN_WORK", 0)
    x, y = sparse_rows(90, 300, kind, dtype), sparse_rows(70, 300, kind, dtype, 1)
    y[:9] = x[40:49]
    assert cpu_sparse.sparse_columns(x, y, "l2") is not None
    s = cpu.reduced_distances(x, y, norm="l2")
    own, others = np.arange(90) % 3, np.arange(70) % 2
    distinct = np.unique(s)
    thresholds = [0.0, *np.quantile(s, [0.05, 0.3, 0.7]), *distinct[[0, len(distinct) // 2]], np.inf]
    for threshold in [*thresholds, np.nextafter(distinct[len(distinct) // 2], np.array(np.inf, dtype))]:
        near = s < s.dtype.type(threshold)
        counts = np.ones(90, np.int64)
        cpu.count_within(x, y, norm="l2", threshold=threshold, out=counts)
        assert np.array_equal(counts, 1 + near.sum(axis=1))
        out = np.zeros(90, np.uint8)
        cpu.border(x, y, own, others, norm="l2", threshold=threshold, out=out)
        assert np.array_equal(out, (near & (own[:, None] != others)).any(axis=1))
        lists, starts = np.full(near.sum(), -1, np.int32), np.cumsum(near.sum(axis=1)) - near.sum(axis=1)
        canopies.write_within(x, y, norm="l2", threshold=threshold, starts=starts, out=lists)
        assert np.array_equal(lists, np.nonzero(near)[1])
        picked = np.full(90, 7, np.uint8)
        canopies.first_independent(x, norm="l2", threshold=threshold, out=picked)
        pairs, expected = cpu.reduced_distances(x, x, norm="l2") < s.dtype.type(threshold), np.zeros(90, np.uint8)
        for i in range(90):
            expected[i] = not (pairs[i, :i] & (expected[:i] == 1)).any()
        assert np.array_equal(picked, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["counts", "binary", "unit", "signed"])
def test_the_nearest_of_equally_near_columns_is_the_first(kind, dtype, monkeypatch):
    monkeypatch.setattr(cpu_sparse, "MIN_WORK", 0)
    x, y = sparse_rows(90, 300, kind, dtype), sparse_rows(70, 300, kind, dtype, 1)
    y[60:69] = y[:9] = x[40:49]
    s = cpu.reduced_distances(x, y, norm="l2")
    best, index = np.full(90, np.inf, dtype), np.full(90, -1)
    best[:10], index[:5], index[5:10] = s[:10].min(axis=1), 3, 500  # found before: the lower number stays
    cpu.nearest_column(x, y, norm="l2", y_start=100, best=best, best_index=index)
    assert np.array_equal(best, s.min(axis=1))
    assert np.array_equal(index[5:], 100 + s[5:].argmin(axis=1)) and (index[:5] == 3).all()


def test_other_rows_take_other_kernels():
    few = np.zeros((400, 300))
    few[:, :9] = 1
    large = few[:3].copy()
    dense, far = np.ones((400, 300)), few.copy()
    far[7, 7] = 1e200
    for x, y, norm in ((few, few, "l1"), (dense, few, "l2"), (few, dense, "l2"), (few, far, "l2"), (large, large, "l2"),
                       (few[:, :100], few[:, :100], "l2")):  # fmt: skip
        assert cpu_sparse.sparse_columns(np.ascontiguousarray(x), np.ascontiguousarray(y), norm) is None
    assert cpu_sparse.sparse_columns(few, few, "l2") is not None
