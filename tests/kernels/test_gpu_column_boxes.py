"""Columns in boxes as a GPU searches them, run on the CPU (`support.cuda_on_cpu`): the bits of comparing all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels import load
from mgclust.kernels.pairs.boxes import column_boxes, cpu_column_boxes
from support import cuda_on_cpu

cpu = load("cpu")

REALS = (np.float32, np.float64)
# Each is compiled: numbers of features, norms and types with each other, but not all with all.
CASES = [
    (1, 1, "l2", np.float32), (1, 1, "l1", np.float64), (2, 33, "l2", np.float64), (2, 33, "l1", np.float32),
    (6, 1025, "l2", np.float32), (6, 1025, "l1", np.float64), (8, 2000, "l2", np.float64), (8, 2000, "l1", np.float32),
    (3, 33_000, "l2", np.float32), (3, 33_000, "l1", np.float64),
]  # fmt: skip
ROWS = 41  # no multiple of the warps of a block


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    if cuda_on_cpu.compiler() is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("kernels")
    with cuda_on_cpu.gpu_modules(folder, "pairs.boxes.gpu_column_boxes", "canopy.gpu") as modules:
        yield dict(zip(("boxes", "canopy"), modules, strict=True))


def normal(rng, n, d, dtype):
    return rng.normal(size=(n, d)).astype(dtype)


def lattice(rng, n, d, dtype):
    """Many ties and duplicates."""
    return rng.integers(0, 5, (n, d)).astype(dtype)


def equal(rng, n, d, dtype):
    return np.full((n, d), 0.5, dtype)


@pytest.mark.quick("2-33-l2-float64-normal")
@pytest.mark.parametrize("make", [normal, lattice, equal])
@pytest.mark.parametrize(("d", "k", "norm", "dtype"), CASES)
def test_searches_find_what_all_pairs_do(d, k, make, norm, dtype, gpu, monkeypatch):
    monkeypatch.setattr(gpu["boxes"], "FEW_ROWS", 10)
    monkeypatch.setattr(gpu["boxes"], "PIECE", 16)
    boxes = gpu["boxes"]
    rng = np.random.default_rng([d, k])
    x, y = make(rng, ROWS, d, dtype), make(rng, k, d, dtype)
    s = cpu.pairs.reduced_distances(x, y, norm=norm)
    x_labels, y_labels = rng.integers(0, 3, ROWS), rng.integers(0, 3, k)
    tree = boxes.build_boxes(y)
    for limit in (0.0, *np.quantile(s, [0.003, 0.3]), np.inf):
        near = s < dtype(limit)
        counts, visited = np.ones(ROWS, np.int64), np.zeros(1, np.uint64)
        boxes.box_count(x, tree, norm, float(limit), counts, visited)
        assert (counts - 1 == near.sum(axis=1)).all() and ROWS <= visited[0] <= ROWS * (2 + k // 16)
        lists = np.full(near.sum() + 1, -1, np.int32)
        boxes.box_write(x, tree, norm, float(limit), np.cumsum(counts - 1) - counts + 1, lists)
        assert (lists[:-1] == np.nonzero(near)[1]).all() and lists[-1] == -1
        marks = np.zeros(ROWS, np.uint8)
        boxes.box_border(x, tree, x_labels, y_labels, norm, float(limit), marks, in_order=limit == 0)
        assert (marks == (near & (x_labels[:, None] != y_labels)).any(axis=1)).all()
        for device in (gpu["canopy"], cpu.canopy):
            marked = np.zeros(k, np.uint8)
            device.mark_near(device.row_boxes(y), x, norm=norm, threshold=float(limit), out=marked)
            assert (marked == near.any(axis=0)).all()


@pytest.mark.quick("2-33-l2-float64-normal")
@pytest.mark.parametrize("make", [normal, lattice, equal])
@pytest.mark.parametrize(("d", "k", "norm", "dtype"), CASES)
def test_the_nearest_column_is_that_of_all_pairs(d, k, make, norm, dtype, gpu):
    boxes = gpu["boxes"]
    rng = np.random.default_rng([d, k, 1])
    x, y = make(rng, ROWS, d, dtype), make(rng, k, d, dtype)
    s = cpu.pairs.reduced_distances(x, y, norm=norm)
    best, index = np.full(ROWS, np.inf, dtype), np.full(ROWS, -1, np.int64)
    for start, stop in ((0, k // 2), (k // 2, k)):  # of equally near ones that of an earlier call stays
        if start < stop:
            boxes.box_nearest(x, boxes.build_boxes(y[start:stop].copy()), norm, start, best, index)
    assert (index == s.argmin(axis=1)).all() and (best == s.min(axis=1)).all()
    best, index = np.full(ROWS, np.quantile(s, 0.01), dtype), np.full(ROWS, -1, np.int64)
    nearer = s.min(axis=1) < best
    boxes.box_nearest(x, boxes.build_boxes(y), norm, 7, best, index)
    assert (index == np.where(nearer, s.argmin(axis=1) + 7, -1)).all()


@pytest.mark.quick("2-33-l2-float64-normal-*", "3-33000-l2-float32-*")
@pytest.mark.parametrize("neighbors", [1, 40])
@pytest.mark.parametrize("make", [normal, lattice, equal])
@pytest.mark.parametrize(("d", "k", "norm", "dtype"), CASES)
def test_the_nearest_columns_are_those_of_all_pairs(d, k, make, norm, dtype, neighbors, gpu, monkeypatch):
    boxes = gpu["boxes"]
    monkeypatch.setattr(boxes, "FEW_ROWS", 10)
    rng = np.random.default_rng([d, k, 2])
    x, y = make(rng, ROWS, d, dtype), make(rng, k, d, dtype)
    left_out = rng.integers(-1, k, ROWS)
    s = cpu.pairs.reduced_distances(x, y, norm=norm)
    s[np.arange(ROWS), left_out] = np.where(left_out >= 0, np.inf, s[np.arange(ROWS), left_out])
    order = np.argsort(s, axis=1, kind="stable")[:, :neighbors]
    near, index = np.full((ROWS, neighbors), np.inf, dtype), np.full((ROWS, neighbors), -1, np.int64)
    visited = np.zeros(1, np.uint64)
    for start, stop in ((0, k // 2), (k // 2, k)):
        if start < stop:
            columns = boxes.build_boxes(y[start:stop].copy())
            boxes.box_neighbors(x, columns, norm, start, near, index, left_out, visited)
    found = np.take_along_axis(s, order, axis=1)
    there = slice(0, order.shape[1])
    np.testing.assert_array_equal(near[:, there], found)
    np.testing.assert_array_equal(index[:, there], np.where(np.isfinite(found), order, -1))
    assert (index[:, order.shape[1] :] == -1).all()
    if make is equal and k > 1025:  # boxes with no lower number are left out, though all are at one distance
        assert visited[0] <= ROWS * (16 + k // 256)


@pytest.mark.quick("2-33-normal-float64", "3-1025-lattice-float32")
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("make", [normal, lattice, equal])
@pytest.mark.parametrize(("d", "n"), [(1, 1), (2, 33), (3, 1025), (2, 3000), (1, 1100)])
def test_rows_along_a_curve_are_searched_as_on_a_cpu(d, n, make, dtype, gpu):
    boxes = gpu["boxes"]
    rng = np.random.default_rng([d, n, 3])
    x, order, labels = make(rng, n, d, dtype), rng.permutation(n).astype(np.int32), rng.integers(0, 3, n)
    rows, tree = boxes.build_along_curve(x)
    there = cpu.low_dimension.boxes_along_curve(x)
    assert (rows == there[0]).all() and (x[tree.index[:n]] == rows).all()
    best, index = np.full(n, np.inf, dtype), np.full(n, -1, np.int64)
    cpu.pairs.nearest_higher(x, x, order, order, norm="l2", y_start=0, best=best, best_index=index)
    s = cpu.pairs.reduced_distances(x[:50], x, norm="l2")
    limit = float(np.quantile(s, 0.2, method="nearest"))
    counts, marks = np.zeros(n, np.int64), np.zeros(n, np.uint8)
    cpu.pairs.count_within(x, x, norm="l2", threshold=limit, out=counts)
    cpu.pairs.border(x, x, labels, labels, norm="l2", threshold=limit, out=marks)
    for start, stop in ((0, n // 3), (n // 3, n)):
        own = tree.index[start:stop]
        found, found_index = np.empty(stop - start, dtype), np.empty(stop - start, np.int64)
        boxes.box_nearest_higher(rows[start:stop], tree, order, start, found, found_index)
        assert (found == best[own]).all() and (found_index == index[own]).all()
        within, marked = np.zeros(stop - start, np.int64), np.zeros(stop - start, np.uint8)
        boxes.box_count(rows[start:stop], tree, "l2", limit, within, in_order=True)
        boxes.box_border(rows[start:stop], tree, labels[own], labels, "l2", limit, marked, in_order=True)
        assert (within == counts[own]).all() and (marked == marks[own]).all()
    kind = np.int32 if dtype == np.float32 else np.int64
    for low, shift in ((int(dtype(limit).view(kind)) - 50, 0), (0, 8 * np.dtype(dtype).itemsize - 8)):
        bracket = {"low": max(low, 0), "shift": shift}
        pairs, counted = np.zeros(101, np.int64), np.zeros(101, np.int64)
        cpu.pairs.pair_histogram(x, x, norm="l2", diagonal=True, **bracket, out=pairs)
        for part in range(3):
            boxes.box_histogram(tree, np.dtype(dtype), d, part, 3, *bracket.values(), counted)
        assert (counted == pairs).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [normal, lattice])
@pytest.mark.parametrize("k", [1, 64, 65, 700])
def test_rows_are_picked_in_their_order(k, kind, gpu):
    x = kind(np.random.default_rng(k), k, 2, np.float64)
    for threshold in (1e-3, 0.05, 3.0):
        ours, theirs = np.full(k, 7, np.uint8), np.full(k, 7, np.uint8)
        gpu["canopy"].first_independent(x, norm="l2", threshold=threshold, out=ours)
        cpu.canopy.first_independent(x, norm="l2", threshold=threshold, out=theirs)
        assert (ours == theirs).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [normal, lattice, equal])
def test_spanning_trees_are_those_of_the_cpu(kind, gpu):
    x = kind(np.random.default_rng(5), 400, 3, np.float64)
    starts, numbers = np.array([0, 1, 3, 40, 400]), np.random.default_rng(6).permutation(900)[:400]
    found = []
    for device in (gpu["canopy"], cpu.canopy):
        s, other = np.empty(400), np.empty(400, np.int64)
        device.spanning_trees(x, numbers, starts, norm="l2", s=s, other=other)
        found.append((s, other))
    assert (found[0][0] == found[1][0]).all() and (found[0][1] == found[1][1]).all()


@pytest.mark.parametrize("d", [2, 6])
def test_both_devices_halve_alike_well(d):
    y = np.random.default_rng(1).random((32 * 40 + 7, d))
    volumes = []
    for order in (cpu_column_boxes.halved(y), column_boxes.halved_by_sorting(y, np)):
        assert (np.sort(order) == np.arange(len(y))).all()
        sides = [np.ptp(y[order[start : start + 32]], axis=0) for start in range(0, len(y) - 7, 32)]
        volumes.append(np.median(np.prod(sides, axis=1)))
    assert volumes[1] < 1.1 * volumes[0]


def test_columns_of_features_that_overflow_or_vanish_are_put_into_boxes():
    rng = np.random.default_rng(2)
    for scale in (1e308, 1e-308):
        y = rng.uniform(-1, 1, (500, 3)) * scale
        assert (np.sort(column_boxes.halved_by_sorting(y, np)) == np.arange(500)).all()
