"""The near-linear kernels: answers from boxes bit for bit those of all pairs, the grid's within its stated error."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from mgclust.algorithms.density_peaks.passes.near_linear import tree_bytes
from mgclust.kernels import load
from mgclust.kernels.low_dimension.gaussian_grid import SPACING, GaussianGrid, grid_convolve, plan_gaussian_grid
from mgclust.kernels.pairs import cpu_tasks
from mgclust.kernels.pairs.boxes import cpu_column_boxes
from mgclust.kernels.pairs.boxes.column_boxes import NO_COLUMN
from mgclust.kernels.toolkit import threads

cpu = load("cpu")

REALS = (np.float32, np.float64)
INTEGER = {4: np.int32, 8: np.int64}


def uniform(n: int, d: int) -> np.ndarray:
    return np.random.default_rng([n, d]).random((n, d))


def blobs(n: int, d: int) -> np.ndarray:
    """Blobs of very different widths, and a far outlier."""
    rng = np.random.default_rng([n, d, 1])
    which = rng.integers(0, 7, n)
    x = rng.standard_normal((7, d))[which] * 3 + rng.standard_normal((n, d)) * 10.0 ** -which[:, None]
    x[n // 2] = 1000
    return x


def lattice(n: int, d: int) -> np.ndarray:
    """Many ties and duplicates, in random order."""
    return np.random.default_rng([n, d, 2]).integers(0, 9, (n, d)).astype(float)


def equal(n: int, d: int) -> np.ndarray:
    return np.full((n, d), 0.5)


CASES = [
    (uniform, 1, 2),
    (uniform, 2, 3),
    (uniform, 31, 1),
    (lattice, 32, 2),
    (lattice, 33, 3),
    (uniform, 1024, 2),
    (lattice, 1025, 1),
    (equal, 1500, 2),
    (blobs, 3000, 1),
    (blobs, 5000, 2),
    (lattice, 5000, 2),
    (lattice, 5000, 3),
    (blobs, 4000, 3),
    (uniform, 33000, 2),
]


@pytest.fixture(params=REALS, ids=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(params=CASES, ids=[f"{make.__name__}-{n}-{d}" for make, n, d in CASES])
def x(request, dtype):
    make, n, d = request.param
    return make(n, d).astype(dtype)


def typical(x: np.ndarray) -> float:
    """A reduced distance that some pairs have, exactly."""
    some = cpu.pairs.reduced_distances(x[:60], x[:600], norm="l2")
    return float(np.quantile(some, 0.2, method="nearest"))


def thirds(n: int) -> list[tuple[int, int]]:
    bounds = [0, n // 3, n // 3, 2 * n // 3, n]  # one rank has nothing
    return list(pairwise(bounds))


def test_boxes_hold_every_row_once_and_are_tight(x):
    rows, boxes = cpu.low_dimension.boxes_along_curve(x)
    n, d = x.shape
    index = boxes.index[:n]
    assert (np.sort(index) == np.arange(n)).all() and (boxes.index[n:] == NO_COLUMN).all()
    assert (rows == x[index]).all() and boxes.columns == n
    panel = boxes.panels.reshape(-1, d, 32).transpose(0, 2, 1).reshape(-1, d)
    assert (panel[:n] == rows).all() and (panel[n:] == np.inf).all()
    ends = [each.reshape(-1, d, 32) for each in (boxes.low, boxes.high)]
    least = boxes.least.reshape(-1, 32)
    for level, (first, last) in enumerate(pairwise(boxes.starts)):
        low, high = (each[first:last].transpose(0, 2, 1).reshape(-1, d) for each in ends)
        size = 32 ** (level + 1)
        for node in range(len(low)):
            own = slice(node * size, (node + 1) * size)
            if len(rows[own]):
                assert (low[node] == rows[own].min(0)).all() and (high[node] == rows[own].max(0)).all()
                assert least[first:last].reshape(-1)[node] == index[own].min()
            else:
                assert (low[node] == np.inf).all() and (high[node] == -np.inf).all()
                assert least[first:last].reshape(-1)[node] == NO_COLUMN


def test_nearest_higher(x):
    n = len(x)
    order = np.random.default_rng(8).permutation(n).astype(np.int32)
    expected, expected_index = np.full(n, np.inf, x.dtype), np.full(n, -1, np.int64)
    cpu.pairs.nearest_higher(x, x, order, order, norm="l2", y_start=0, best=expected, best_index=expected_index)
    rows, boxes = cpu.low_dimension.boxes_along_curve(x)
    for start, stop in thirds(n):
        best, index = np.empty(stop - start, x.dtype), np.empty(stop - start, np.int64)
        share = {"start": start, "stop": stop, "best": best, "best_index": index}
        cpu.low_dimension.nearest_higher_in_boxes(rows, boxes, order, **share)
        assert (best == expected[boxes.index[start:stop]]).all()
        assert (index == expected_index[boxes.index[start:stop]]).all()


@pytest.mark.quick("*narrow*")
@pytest.mark.parametrize("bracket", ["narrow", "wide", "everything"])
def test_pair_histogram(x, bracket):
    if bracket == "everything":  # opens every box
        x = x[:6000]
    middle = int(np.array(typical(x), x.dtype).view(INTEGER[x.itemsize]))
    width = {"narrow": 1000, "wide": 1 << (20 if x.itemsize == 4 else 49), "everything": 0}[bracket]
    low, bins = (max(0, middle - width), 100) if width else (0, 500)
    span = 2 * width if width else int(np.iinfo(INTEGER[x.itemsize]).max)
    shift = 0
    while span >> shift >= bins:
        shift += 1
    expected = np.zeros(bins + 1, np.int64)
    cpu.pairs.pair_histogram(x, x, norm="l2", diagonal=True, low=low, shift=shift, out=expected)
    rows, boxes = cpu.low_dimension.boxes_along_curve(x)
    for parts in (1, 3):
        found = np.zeros(bins + 1, np.int64)
        for part in range(parts):
            share = {"part": part, "parts": parts}
            cpu.low_dimension.pair_histogram_in_boxes(rows, boxes, **share, low=low, shift=shift, out=found)
        assert (found == expected).all()


@pytest.mark.parametrize("bins_apart", [1 << 16, 1], ids=["own", "shared"])
def test_threads_count_the_same_pairs(bins_apart, monkeypatch):
    x = uniform(8000, 2).astype(np.float32)
    rows, boxes = cpu.low_dimension.boxes_along_curve(x)
    expected, found = np.zeros(601, np.int64), np.zeros(601, np.int64)
    bracket = {"low": int(np.float32(1e-3).view(np.int32)), "shift": 17}
    with threads.share(1):
        cpu.low_dimension.pair_histogram_in_boxes(rows, boxes, part=0, parts=1, **bracket, out=expected)
    monkeypatch.setattr(cpu_tasks, "MAX_APART", bins_apart)
    monkeypatch.setattr(cpu_column_boxes, "TASK_PANELS", 1)
    with threads.share(2):
        cpu.low_dimension.pair_histogram_in_boxes(rows, boxes, part=0, parts=1, **bracket, out=found)
    assert (found == expected).all() and (expected > 0).sum() > 100


def test_count_within(x):
    n, threshold = len(x), typical(x)
    expected = np.ones(n, np.int64)
    cpu.pairs.count_within(x, x, norm="l2", threshold=threshold, out=expected)
    rows, boxes = cpu.low_dimension.boxes_along_curve(x)
    for start, stop in thirds(n):
        found = np.ones(stop - start, np.int64)
        cpu.low_dimension.count_in_boxes(rows[start:stop], boxes, threshold=threshold, out=found)
        assert (found == expected[boxes.index[start:stop]]).all()


@pytest.mark.parametrize("n_labels", [1, 2, 40])
def test_border(x, n_labels):
    n, threshold = len(x), typical(x) / 50
    labels = (x[:, 0].argsort().argsort() * n_labels // n) - 1
    expected = np.zeros(n, np.uint8)
    cpu.pairs.border(x, x, labels, labels, norm="l2", threshold=threshold, out=expected)
    rows, boxes = cpu.low_dimension.boxes_along_curve(x)
    for start, stop in thirds(n):
        found = np.zeros(stop - start, np.uint8)
        own = boxes.index[start:stop]
        cpu.low_dimension.border_in_boxes(rows[start:stop], boxes, labels[own], labels, threshold=threshold, out=found)
        assert (found == expected[own]).all()


def grid_sum(x: np.ndarray, scale: float) -> tuple[np.ndarray, GaussianGrid]:
    plan = plan_gaussian_grid(x.min(0), x.max(0), scale, len(x))
    grid = np.zeros(plan.shape, np.int64)
    cpu.low_dimension.spread(x, plan, grid)
    out = np.empty(len(x))
    cpu.low_dimension.interpolate(x, grid_convolve(grid, plan, np), plan, out)
    return out, plan


@pytest.mark.quick("*-uniform-*-0.3")
@pytest.mark.parametrize("width", [0.02, 0.3, 100.0])
@pytest.mark.parametrize("n, d", [(1, 1), (1, 3), (5000, 1), (5000, 2), (3000, 3)])
@pytest.mark.parametrize("make", [uniform, lattice])
def test_grid_sum_is_within_its_bound(make, n, d, width, dtype):
    x = make(n, d).astype(dtype)
    if make is lattice:
        width *= 9
    if width < 0.1 and d == 3:
        width *= 3
    exact = np.zeros(n)
    wide = x.astype(np.float64)
    cpu.pairs.gaussian_sum(wide, wide, norm="l2", scale=width**-2, power=1, out=exact)
    found, plan = grid_sum(x, width**-2)
    assert np.abs(found - exact).max() <= plan.error_bound + n * 1e-15
    assert plan.error_bound < n * 4e-12
    _, first, back = np.unique(x, axis=0, return_index=True, return_inverse=True)
    assert (found == found[first][back.reshape(-1)]).all(), "equal rows differ"


@pytest.mark.slow
def test_one_pair_is_within_the_stated_constants():
    """The bound for n rows is n times that for a pair, which is measured here at many relative places."""
    rng = np.random.default_rng(3)
    worst = 0.0
    for length in (0.0, 1.3, 5.0, 20.0):
        for source in rng.random(40) * length:
            x = np.concatenate([[source, 0.0, length], np.linspace(0, length, 501)])[:, None]
            plan = plan_gaussian_grid([0.0], [length], 1.0, 1)
            grid = np.zeros(plan.shape, np.int64)
            cpu.low_dimension.spread(x[:1], plan, grid)
            out = np.empty(len(x))
            cpu.low_dimension.interpolate(x, grid_convolve(grid, plan, np), plan, out)
            worst = max(worst, np.abs(out - np.exp(-((x[:, 0] - source) ** 2))).max())
    assert worst < plan.error_bound < 6e-13


def test_grid_has_the_same_bits_however_rows_are_shared_out():
    x = uniform(20000, 2).astype(np.float32)
    plan = plan_gaussian_grid(x.min(0), x.max(0), 100.0, len(x))
    expected = np.zeros(plan.shape, np.int64)
    with threads.share(1):
        cpu.low_dimension.spread(x, plan, expected)
    found = np.zeros(plan.shape, np.int64)
    with threads.share(2):
        for start, stop in ((12000, 20000), (0, 3), (3, 12000)):
            cpu.low_dimension.spread(x[start:stop][::-1].copy(), plan, found)
    assert (found == expected).all()
    values, out, backwards = grid_convolve(found, plan, np), np.empty(len(x)), np.empty(len(x))
    cpu.low_dimension.interpolate(x, values, plan, out)
    cpu.low_dimension.interpolate(x[::-1].copy(), values, plan, backwards)
    assert (out == backwards[::-1]).all()


def test_plan_says_what_it_costs():
    plan = plan_gaussian_grid([0, 0, 0], [10, 10, 10], 4.0, 10**7)
    assert plan.spacing == SPACING / 2
    assert min(plan.shape) >= 94 and max(plan.shape) <= 108
    assert plan.memory == 40 * plan.cells and plan.fraction_bits == 37


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_boxes_take_no_more_memory_than_is_estimated(d, dtype):
    n = 100_000
    x = np.random.default_rng(0).normal(size=(n, d)).astype(dtype)
    tracemalloc.start()
    rows, boxes = cpu.low_dimension.boxes_along_curve(x)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == boxes.columns == n
    gathered = x.nbytes  # another copy of the rows
    assert most + gathered <= tree_bytes(n, 0, d, x.itemsize, vectors=0)
    assert kept <= tree_bytes(n, 0, d, x.itemsize, vectors=10**9) - 10**9 + 20_000
