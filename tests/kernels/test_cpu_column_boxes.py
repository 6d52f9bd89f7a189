"""Columns in boxes: the bits of comparing all pairs, and used only where that pays."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels import load
from mgclust.kernels.pairs.boxes import cpu_column_boxes as _cpu_boxes

cpu = load("cpu")

REALS = (np.float32, np.float64)
SHAPES = [(1, 1), (1, 700), (2, 31), (2, 33), (3, 1025), (4, 2000), (6, 3000), (2, 12_000)]
ROWS = 300


@pytest.fixture
def always(monkeypatch):
    """Use boxes wherever they can be."""
    monkeypatch.setattr(_cpu_boxes, "MIN_COLUMNS", 1)
    monkeypatch.setattr(_cpu_boxes, "MIN_PAIRS", 0)
    monkeypatch.setattr(_cpu_boxes, "NEAR_SHARE", 2.0)


def normal(rng, n, d, dtype):
    return rng.normal(size=(n, d)).astype(dtype)


def lattice(rng, n, d, dtype):
    """Many ties and duplicates."""
    return rng.integers(0, 12, (n, d)).astype(dtype)


def equal(rng, n, d, dtype):
    return np.full((n, d), 0.5, dtype)


def clumps(rng, n, d, dtype):
    """Of very different widths, and one far away."""
    which = rng.integers(0, 7, (n, 1))
    x = 3 * which + rng.normal(size=(n, d)) * 10.0**-which
    x[n // 2] = 1000
    return x.astype(dtype)


@pytest.mark.quick("1-700-*")
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("make", [normal, lattice, equal, clumps])
@pytest.mark.parametrize(("d", "k"), SHAPES)
def test_boxes_find_what_all_pairs_do(d, k, make, norm, dtype, always):
    rng = np.random.default_rng([d, k])
    x, y = make(rng, ROWS, d, dtype), make(rng, k, d, dtype)
    s = cpu.pairs.reduced_distances(x, y, norm=norm)
    x_labels, y_labels = rng.integers(0, 3, ROWS), rng.integers(0, 3, k)
    for limit in (0.0, *np.quantile(s, [0.003, 0.3]), np.inf):
        near = s < dtype(limit)
        within = {"norm": norm, "threshold": float(limit)}
        counts, marks = np.ones(ROWS, np.int64), np.zeros(ROWS, np.uint8)
        cpu.pairs.count_within(x, y, **within, out=counts)
        assert (counts - 1 == near.sum(axis=1)).all()
        lists = np.full(near.sum(), -1, np.int32)
        cpu.canopy.write_within(x, y, **within, starts=np.cumsum(counts - 1) - counts + 1, out=lists)
        assert (lists == np.nonzero(near)[1]).all()
        cpu.pairs.border(x, y, x_labels, y_labels, **within, out=marks)
        assert (marks == (near & (x_labels[:, None] != y_labels)).any(axis=1)).all()
    best, index = np.full(ROWS, np.inf, dtype), np.full(ROWS, -1, np.int64)
    for start, stop in ((k // 2, k), (0, k // 2)):  # a block after the other, as rows arrive
        cpu.pairs.nearest_column(x, y[start:stop], norm=norm, y_start=start, best=best, best_index=index)
    assert (index == s.argmin(axis=1)).all() and (best == s.min(axis=1)).all()
    own = rng.integers(0, k, ROWS)
    near, near_index = np.full((ROWS, 9), np.inf, dtype), np.full((ROWS, 9), -1, np.int64)
    for start, stop in ((0, k // 2), (k // 2, k)):
        y_start = {"y_start": start, "rows": own}
        cpu.pairs.nearest_rows(x, y[start:stop], norm=norm, **y_start, near=near, near_index=near_index)
    s[np.arange(ROWS), own] = np.inf
    padded = np.pad(s, ((0, 0), (0, 9)), constant_values=np.inf)
    order = np.argsort(padded, axis=1, kind="stable")[:, :9]
    assert (near == np.take_along_axis(padded, order, 1)).all()
    assert (near_index == np.where(np.isfinite(near), order, -1)).all()


def test_boxes_are_used_where_they_pay():
    rng = np.random.default_rng(0)
    x, y = rng.random((40_000, 2)), rng.random((4_000, 2))
    assert _cpu_boxes.boxes_for(x, y, False, 0.02**2) is not None
    assert _cpu_boxes.boxes_for(x, y, False) is not None
    assert _cpu_boxes.boxes_for(x, y, False, 0.5**2) is None, "most panels are near"
    assert _cpu_boxes.boxes_for(x[:2000], y, False, 0.02**2) is None, "few pairs"
    assert _cpu_boxes.boxes_for(x, y[:400], False, 0.02**2) is None, "few columns"
    assert _cpu_boxes.boxes_for(rng.random((40_000, 9)), rng.random((4_000, 9)), False) is None, "many features"


def test_columns_that_are_near_each_other_share_a_panel():
    y = np.random.default_rng(1).random((32 * 40 + 7, 2))
    order = _cpu_boxes.halved(y)
    assert (np.sort(order) == np.arange(len(y))).all()
    sides = [np.ptp(y[order[start : start + 32]], axis=0).max() for start in range(0, len(y) - 7, 32)]
    assert np.median(sides) < 2.5 * (32 / len(y)) ** 0.5


def test_some_columns_higher_than_no_row_are_left_to_all_pairs(always):
    rng = np.random.default_rng(2)
    x = rng.random((400, 2))
    order = rng.permutation(400).astype(np.int32)
    best, index = np.full(400, np.inf), np.full(400, -1, np.int64)
    cpu.pairs.nearest_higher(x, x, order, order, norm="l2", y_start=0, best=best, best_index=index)
    s = np.where(order[None] < order[:, None], cpu.pairs.reduced_distances(x, x, norm="l2"), np.inf)
    assert (best == s.min(axis=1)).all() and (index[order > 0] == s.argmin(axis=1)[order > 0]).all()
