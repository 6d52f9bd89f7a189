"""Every kernel on the GPU against the same kernel on the CPU.

Two kinds of rows. On a lattice all reduced distances are small integers, exact in either number type and
however they are summed, so counts, minima and ties must agree *exactly*. On Gaussian rows: to rounding.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mgclust.algorithms.common.preparation import DOT_CONDITION
from mgclust.kernels import load
from support.gpu_cases import DIMENSIONS, NORMS, order_of, rows

cpu = load("cpu")

pytestmark = pytest.mark.gpu

ROWS, COLUMNS = 333, 2085  # no multiple of any tile; more than two tiles of columns


@pytest.fixture(scope="module")
def gpu():
    from mgclust.kernels import load

    gpu = load("cuda")
    return gpu


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(params=DIMENSIONS)
def d(request):
    return request.param


@pytest.fixture(params=NORMS)
def norm(request):
    return request.param


def on_both(gpu, name, arrays, outputs, **options):
    """Call a kernel on both devices; returns the outputs' pair as (CPU's, GPU's), both in NumPy."""
    mine = [array.copy() for array in outputs]
    getattr(cpu.pairs, name)(*arrays, **options, **dict(zip(OUTPUT_NAMES[name], mine, strict=True)))
    device = [gpu.memory.to_device(array.copy()) for array in outputs]
    moved = [gpu.memory.to_device(array) for array in arrays]
    getattr(gpu.pairs, name)(*moved, **options, **dict(zip(OUTPUT_NAMES[name], device, strict=True)))
    gpu.memory.synchronize()
    return list(zip(mine, map(gpu.memory.to_host, device), strict=True))


OUTPUT_NAMES = {
    "pair_histogram": ["out"],
    "gaussian_sum": ["out"],
    "gaussian_sums": ["out"],
    "count_within": ["out"],
    "nearest_column": ["best", "best_index"],
    "nearest_higher": ["best", "best_index"],
    "nearest_rows": ["near", "near_index"],
    "border": ["out"],
}


def bits(value, dtype):
    return int(np.array(value, dtype).view("i4" if dtype == "float32" else "i8"))


def useful(norm, s, share, x) -> float:
    """The distance below which a share of the pairs lie; for products, no less than they can resolve.

    `choose_norm` takes products only while |x|^2 <= DOT_CONDITION times that distance.
    """
    radius = float((x.astype("float64") ** 2).sum(axis=1).max())
    return max(float(np.quantile(s, share)), radius / DOT_CONDITION if norm == "l2-dot" else 0.0)


@pytest.mark.parametrize("diagonal", [False, True])
def test_pair_histogram_on_a_lattice(gpu, d, dtype, norm, diagonal):
    x, y = rows("lattice", ROWS, COLUMNS, d, dtype)
    if diagonal:
        y = x
    s = cpu.pairs.reduced_distances(x, y, norm="l1" if norm == "l1" else "l2").astype("float64")
    low, high = bits(np.quantile(s, 0.2) + 0.5, dtype), bits(np.quantile(s, 0.7) + 0.5, dtype)
    shift = max((high - low).bit_length() - 10, 0)
    out = np.zeros((1 << 10) + 1, np.int64)
    options = {"norm": norm, "diagonal": diagonal, "low": low, "shift": shift}
    [(ours, theirs)] = on_both(gpu, "pair_histogram", (x, y), [out], **options)
    np.testing.assert_array_equal(theirs, ours)
    assert theirs.sum() > 0


def test_pair_histogram_of_everything(gpu, d, dtype, norm):
    """From zero to infinity, the coarse first pass of the dc search: no pair is lost."""
    x, y = rows("normal", ROWS, COLUMNS, d, dtype)
    shift = bits(np.inf, dtype).bit_length() - 12
    out = np.zeros((1 << 12) + 1, np.int64)
    options = {"norm": norm, "diagonal": False, "low": 0, "shift": shift}
    [(ours, theirs)] = on_both(gpu, "pair_histogram", (x, y), [out], **options)
    assert theirs.sum() == ours.sum() == ROWS * COLUMNS
    # A pair on a bin's edge may round to either side of it.
    assert np.abs(np.cumsum(theirs) - np.cumsum(ours)).max() <= max(8, 2e-5 * ROWS * COLUMNS)


@pytest.mark.parametrize("power", [1, 2])
def test_gaussian_sum(gpu, d, dtype, norm, power):
    if norm == "l2-dot" and power == 2:
        pytest.skip("choose_norm does not combine them")
    x, y = rows("normal", ROWS, COLUMNS, d, dtype)
    s = cpu.pairs.reduced_distances(x, y, norm="l1" if norm == "l1" else "l2")
    options = {"norm": norm, "scale": 1 / useful(norm, s, 0.05, x) ** power, "power": power}
    [(ours, theirs)] = on_both(gpu, "gaussian_sum", (x, y), [np.zeros(ROWS)], **options)
    np.testing.assert_allclose(theirs, ours, rtol=2e-5 if dtype == "float32" else 1e-11, atol=1e-30)


def test_gaussian_sums(gpu, d, dtype, norm):
    if norm == "l2-dot":
        pytest.skip("gaussian_sums has direct norms alone")
    x, y = rows("normal", ROWS, COLUMNS, d, dtype)
    s = cpu.pairs.reduced_distances(x, y, norm=norm)
    scales = [1 / useful(norm, s, share, x) for share in (0.05, 0.01, 0.2)]
    options = {"norm": norm, "scales": scales, "power": 1}
    [(ours, theirs)] = on_both(gpu, "gaussian_sums", (x, y), [np.zeros((3, ROWS))], **options)
    np.testing.assert_allclose(theirs, ours, rtol=2e-5 if dtype == "float32" else 1e-11, atol=1e-30)


@pytest.mark.parametrize("split", [4096])
def test_gaussian_sum_is_the_same_however_it_is_split(gpu, d, dtype, norm, split):
    x, y = rows("normal", ROWS, 2 * split + 77, d, dtype)
    x, y = gpu.memory.to_device(x), gpu.memory.to_device(y)
    options = {"norm": norm, "scale": 1.0 / d, "power": 1}
    whole, parts = gpu.xp.zeros(ROWS), gpu.xp.zeros(ROWS)
    gpu.pairs.gaussian_sum(x, y, **options, out=whole)
    for start in range(0, len(y), split):
        for a, b in ((0, 100), (100, ROWS)):
            columns = gpu.memory.to_device(y[start : start + split])
            gpu.pairs.gaussian_sum(gpu.memory.to_device(x[a:b]), columns, **options, out=parts[a:b])
    np.testing.assert_array_equal(gpu.memory.to_host(parts), gpu.memory.to_host(whole))


def test_gaussian_sum_without_the_row_itself(gpu, d, dtype, norm):
    """Rows are a part of the columns; each leaves itself out, however small what remains is."""
    _, y = rows("normal", ROWS, COLUMNS, d, dtype)
    x, numbers = y[700 : 700 + ROWS], np.arange(ROWS, dtype=np.int64) + 700 + 4096
    s = cpu.pairs.reduced_distances(x, y, norm="l1" if norm == "l1" else "l2")
    options = {"norm": norm, "scale": 1 / useful(norm, s, 0.02, y), "power": 1, "y_start": 4096}
    ours, theirs = np.zeros(ROWS), gpu.xp.zeros(ROWS)
    cpu.pairs.gaussian_sum(x, y, **options, rows=numbers, out=ours)
    gpu.pairs.gaussian_sum(
        gpu.memory.to_device(x), gpu.memory.to_device(y), **options, rows=gpu.memory.to_device(numbers), out=theirs
    )
    np.testing.assert_allclose(gpu.memory.to_host(theirs), ours, rtol=3e-5 if dtype == "float32" else 1e-11, atol=1e-30)


def test_count_within(gpu, d, dtype, norm):
    x, y = rows("lattice", ROWS, COLUMNS, d, dtype)
    s = cpu.pairs.reduced_distances(x, y, norm="l1" if norm == "l1" else "l2")
    threshold = float(np.floor(np.quantile(s, 0.1)))  # many pairs lie *on* it and must not count
    options = {"norm": norm, "threshold": threshold}
    [(ours, theirs)] = on_both(gpu, "count_within", (x, y), [np.zeros(ROWS, np.int64)], **options)
    np.testing.assert_array_equal(theirs, ours)
    np.testing.assert_array_equal(theirs, (s < threshold).sum(axis=1))


def test_nearest_higher_with_ties(gpu, d, dtype, norm):
    x, y = rows("lattice", ROWS, COLUMNS, d, dtype)
    x_order, y_order = order_of(ROWS, COLUMNS)
    outputs = [np.full(ROWS, np.inf, dtype), np.full(ROWS, -1, np.int64)]
    options = {"norm": norm, "y_start": 5000}
    best, index = on_both(gpu, "nearest_higher", (x, y, x_order, y_order), outputs, **options)
    np.testing.assert_array_equal(best[1], best[0])
    np.testing.assert_array_equal(index[1], index[0])


def test_nearest_column_with_ties(gpu, d, dtype, norm):
    x, y = rows("lattice", ROWS, COLUMNS, d, dtype)
    outputs = [np.full(ROWS, np.inf, dtype), np.full(ROWS, -1, np.int64)]
    best, index = on_both(gpu, "nearest_column", (x, y), outputs, norm=norm, y_start=5000)
    np.testing.assert_array_equal(best[1], best[0])
    np.testing.assert_array_equal(index[1], index[0])
    assert (index[0] >= 5000).all()


@pytest.mark.parametrize("neighbors", [1, 16, 100])
def test_nearest_rows_with_ties(gpu, d, dtype, norm, neighbors):
    if norm == "l2-dot":
        pytest.skip("always by direct differences")
    x, y = rows("lattice", ROWS, COLUMNS, d, dtype)
    outputs = [np.full((ROWS, neighbors), np.inf, dtype), np.full((ROWS, neighbors), -1, np.int64)]
    near, index = on_both(gpu, "nearest_rows", (x, y), outputs, norm=norm, y_start=5000)
    np.testing.assert_array_equal(near[1], near[0])
    np.testing.assert_array_equal(index[1], index[0])


@pytest.mark.parametrize("neighbors", [7, 30])
def test_nearest_rows_in_parts(gpu, d, dtype, neighbors):
    """Blocks of fewer columns than are wanted, and each row leaves one out."""
    x, y = rows("lattice", ROWS, COLUMNS, d, dtype)
    own = np.random.default_rng(4).integers(-1, COLUMNS, ROWS)
    near, index = np.full((ROWS, neighbors), np.inf, dtype), np.full((ROWS, neighbors), -1, np.int64)
    cpu.pairs.nearest_rows(x, y, norm="l2", y_start=0, near=near, near_index=index, rows=own)
    theirs = [gpu.xp.full(near.shape, np.inf, dtype), gpu.xp.full(near.shape, -1, np.int64)]
    edges = [0, 5, 17, 300, 1500, COLUMNS]
    for start, stop in itertools.pairwise(edges):
        arrays = [gpu.memory.to_device(a) for a in (x, y[start:stop])]
        given = {"near": theirs[0], "near_index": theirs[1], "rows": gpu.memory.to_device(own)}
        gpu.pairs.nearest_rows(*arrays, norm="l2", y_start=start, **given)
    np.testing.assert_array_equal(gpu.memory.to_host(theirs[0]), near)
    np.testing.assert_array_equal(gpu.memory.to_host(theirs[1]), index)


def few_features(kind: str, n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng([n, d])
    if kind == "clusters":
        return (rng.normal(size=(9, d)) * 8)[rng.integers(0, 9, n)] + rng.normal(size=(n, d))
    if kind == "lattice":  # so many at one distance that lists are too short
        return rng.integers(0, 3, (n, d)).astype(float)
    if kind == "equal":
        return np.ones((n, d))
    x = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-5, 6, (n, 1))  # "scales"
    x[:40] *= 1e25  # whose squares overflow
    return x


@pytest.mark.parametrize("neighbors", [1, 10, 128])
@pytest.mark.parametrize("kind", ["clusters", "lattice", "equal", "scales"])
@pytest.mark.parametrize("features", [1, 2, 3, 8, 16])
def test_nearest_rows_of_few_features(gpu, monkeypatch, features, kind, neighbors):
    """By lists, and in boxes: pieces of rows, blocks of columns, and both norms, with the bits of the CPU."""
    from mgclust.kernels.pairs import gpu_nearest_rows
    from mgclust.kernels.pairs.boxes import gpu_column_boxes

    monkeypatch.setattr(gpu_nearest_rows, "SCRATCH_BYTES", 1)
    monkeypatch.setattr(gpu_nearest_rows, "FEWEST_ROWS", 3000)
    monkeypatch.setattr(gpu_column_boxes, "FEW_ROWS", 100)
    sorted_rows, sort = [], gpu_nearest_rows.sort_rows

    def sorting(x, *rest, **given):
        sorted_rows.append(len(x))
        sort(x, *rest, **given)

    monkeypatch.setattr(gpu_nearest_rows, "sort_rows", sorting)
    n = 8000
    x = few_features(kind, n, features).astype("float32")
    own = np.arange(n)
    searches = [gpu.pairs.nearest_rows]
    if features <= gpu_column_boxes.MAX_FEATURES:

        def in_boxes(x, columns, **given):
            boxes = gpu_column_boxes.build_boxes(columns)
            gpu_column_boxes.box_neighbors(x, boxes, **given)

        searches.append(in_boxes)
    for norm, search in itertools.product(("l2", "l1"), searches):
        near, index = np.full((n, neighbors), np.inf, "float32"), np.full((n, neighbors), -1, np.int64)
        with np.errstate(over="ignore"):
            cpu.pairs.nearest_rows(x, x, norm=norm, y_start=0, near=near, near_index=index, rows=own)
        theirs = [gpu.xp.full(near.shape, np.inf, "float32"), gpu.xp.full(near.shape, -1, np.int64)]
        for start, stop in ((0, 5001), (5001, n)):
            arrays = [gpu.memory.to_device(a) for a in (x, x[start:stop])]
            given = {"near": theirs[0], "near_index": theirs[1], "rows": gpu.memory.to_device(own)}
            search(*arrays, norm=norm, y_start=start, **given)
        np.testing.assert_array_equal(gpu.memory.to_host(theirs[0]), near)
        np.testing.assert_array_equal(gpu.memory.to_host(theirs[1]), index)
    if kind == "clusters":
        assert not sorted_rows
    if kind == "equal":
        assert sorted_rows


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nearest_rows_in_boxes_where_these_pay(gpu, monkeypatch, dtype):
    """Many rows: `nearest_rows` takes boxes by itself, and finds what lists do."""
    from mgclust.kernels.pairs import gpu as pairs

    x = gpu.memory.to_device(few_features("clusters", 200_000, 3).astype(dtype))
    taken, neighbors = [], pairs.box_neighbors
    monkeypatch.setattr(pairs, "box_neighbors", lambda *given: (taken.append(1), neighbors(*given)))
    found = []
    for boxes in (True, False):
        if not boxes:
            monkeypatch.setattr(pairs, "boxes_for", lambda *given, **options: None)
        few = x if boxes or dtype == "float32" else x[:500]
        near, index = gpu.xp.full((len(few), 10), np.inf, dtype), gpu.xp.full((len(few), 10), -1, np.int64)
        own = gpu.xp.arange(len(few))
        gpu.pairs.nearest_rows(few, x, norm="l2", y_start=0, near=near, near_index=index, rows=own)
        found.append((gpu.memory.to_host(near), gpu.memory.to_host(index)))
    assert taken == [1]
    for mine, lists in zip(*found, strict=True):
        np.testing.assert_array_equal(mine[: len(lists)], lists)


def test_nearest_higher_in_parts(gpu, d, dtype, norm):
    """Columns come block by block; an equal distance in a later block must not replace the earlier one."""
    x, y = rows("lattice", ROWS, COLUMNS, d, dtype)
    x_order, y_order = order_of(ROWS, COLUMNS)
    best, index = gpu.xp.full(ROWS, np.inf, dtype), gpu.xp.full(ROWS, -1, np.int64)
    for start in range(0, COLUMNS, 512):
        part = slice(start, start + 512)
        arrays = [gpu.memory.to_device(a) for a in (x, y[part], x_order, y_order[part])]
        gpu.pairs.nearest_higher(*arrays, norm=norm, y_start=start, best=best, best_index=index)
    outputs = [np.full(ROWS, np.inf, dtype), np.full(ROWS, -1, np.int64)]
    whole = on_both(gpu, "nearest_higher", (x, y, x_order, y_order), outputs, norm=norm, y_start=0)
    np.testing.assert_array_equal(gpu.memory.to_host(best), whole[0][0])
    np.testing.assert_array_equal(gpu.memory.to_host(index), whole[1][0])


def test_nearest_higher_on_normal_rows(gpu, d, dtype, norm):
    x, y = rows("normal", ROWS, COLUMNS, d, dtype)
    x_order, y_order = order_of(ROWS, COLUMNS)
    outputs = [np.full(ROWS, np.inf, dtype), np.full(ROWS, -1, np.int64)]
    best, index = on_both(gpu, "nearest_higher", (x, y, x_order, y_order), outputs, norm=norm, y_start=0)
    np.testing.assert_allclose(best[1], best[0], rtol=2e-6 if dtype == "float32" else 1e-13)
    assert (index[0] != index[1]).mean() <= 0.01


def test_border(gpu, d, dtype, norm):
    x, y = rows("lattice", ROWS, COLUMNS, d, dtype)
    labels = np.random.default_rng(3).integers(0, 3, ROWS + COLUMNS).astype(np.int32)
    s = cpu.pairs.reduced_distances(x, y, norm="l1" if norm == "l1" else "l2")
    options = {"norm": norm, "threshold": float(np.floor(np.quantile(s.min(axis=1), 0.5))) + 1}
    arrays = (x, y, labels[:ROWS], labels[ROWS:])
    [(ours, theirs)] = on_both(gpu, "border", arrays, [np.zeros(ROWS, np.uint8)], **options)
    np.testing.assert_array_equal(theirs, ours)


def test_reduced_distances(gpu, d, dtype, norm):
    if norm == "l2-dot":
        pytest.skip("always by direct differences")
    x, y = rows("normal", 7, COLUMNS, d, dtype)
    theirs = gpu.memory.to_host(
        gpu.pairs.reduced_distances(gpu.memory.to_device(x), gpu.memory.to_device(y), norm=norm)
    )
    np.testing.assert_allclose(
        theirs, cpu.pairs.reduced_distances(x, y, norm=norm), rtol=3e-6 if dtype == "float32" else 1e-13
    )


def test_empty_inputs_do_nothing(gpu, dtype, norm):
    x, y = (gpu.memory.to_device(a) for a in rows("normal", 5, 8, 3, dtype))
    out = gpu.xp.zeros(5)
    gpu.pairs.gaussian_sum(x, y[:0], norm=norm, scale=1.0, power=1, out=out)
    gpu.pairs.gaussian_sum(x[:0], y, norm=norm, scale=1.0, power=1, out=out[:0])
    assert not out.any()
