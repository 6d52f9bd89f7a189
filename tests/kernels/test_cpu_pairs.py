"""The CPU pair kernels against slow float64 NumPy, and their bits against every way of splitting the work."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels import load
from mgclust.kernels.pairs import cpu_tasks as _cpu_tasks
from mgclust.kernels.pairs.neighbors import nearest_known
from mgclust.kernels.toolkit import threads

cpu = load("cpu")

REALS = (np.float32, np.float64)
SHAPES = ((1, 1, 1), (5, 33, 2), (67, 1100, 3), (130, 700, 16), (41, 95, 70))
INTEGER = {4: np.int32, 8: np.int64}


def rows(m: int, d: int, dtype: type, seed: int = 0) -> np.ndarray:
    """Rows on a coarse lattice in their first half (many ties and duplicates), continuous after."""
    x = np.random.default_rng([seed, m, d]).standard_normal((m, d))
    x[: m // 2] = np.round(x[: m // 2])
    return x.astype(dtype)


def slow(x: np.ndarray, y: np.ndarray, norm: str) -> np.ndarray:
    difference = x[:, None].astype(np.float64) - y[None].astype(np.float64)
    return np.abs(difference).sum(-1) if norm == "l1" else (difference**2).sum(-1)


def whole_then_pieces(call, y_count: int, make, step: int = 512):
    """A kernel's result at once and with columns in pieces: `call(start, stop, outputs)`."""
    whole, pieces = make(), make()
    call(0, y_count, whole)
    for start in range(0, y_count, step):
        call(start, min(start + step, y_count), pieces)
    return whole, pieces


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("m, k, d", SHAPES)
def test_reduced_distances(m, k, d, norm, dtype):
    x, y = rows(m, d, dtype), rows(k, d, dtype, seed=1)
    s = cpu.pairs.reduced_distances(x, y, norm=norm)
    assert s.dtype == dtype
    np.testing.assert_allclose(s, slow(x, y, norm), rtol=(d + 2) * np.finfo(dtype).eps)
    assert (s == cpu.pairs.reduced_distances(y, x, norm=norm).T).all()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm, power", [("l2", 1), ("l2-dot", 2), ("l1", 2)])
@pytest.mark.parametrize("m, k, d", SHAPES)
def test_gaussian_sum(m, k, d, norm, power, dtype):
    x, y = rows(m, d, dtype), rows(k, d, dtype, seed=1)
    scale = 2.0 / d**power

    def call(start, stop, out):
        cpu.pairs.gaussian_sum(x, y[start:stop], norm=norm, scale=scale, power=power, out=out)

    whole, pieces = whole_then_pieces(call, k, lambda: np.zeros(m))
    assert (whole == pieces).all()
    expected = np.exp(-scale * slow(x, y, norm) ** power).sum(1)
    tolerance = 5e-6 if dtype is np.float32 else 1e-13
    np.testing.assert_allclose(whole, expected, rtol=tolerance, atol=1e-35)


@pytest.mark.parametrize("dtype", REALS)
def test_gaussian_of_one_pair_is_accurate_and_flushes_to_zero(dtype):
    s = np.concatenate([np.linspace(0, 80, 3001), [200, 1e4, 1e30]])
    x = np.sqrt(s)[:, None].astype(dtype)
    out = np.zeros(len(x))
    cpu.pairs.gaussian_sum(x, np.zeros((1, 1), dtype), norm="l2", scale=1.0, power=1, out=out)
    exact = np.exp(-(x[:3001, 0].astype(np.float64) ** 2))
    relative = np.abs(out[:3001] / exact - 1)
    assert relative[:30].max() < (3e-7 if dtype is np.float32 else 2e-15)
    assert relative.max() < (1e-5 if dtype is np.float32 else 2e-14)
    assert out[0] == 1 and (out[-2:] == 0).all()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("m, k, d", SHAPES)
def test_count_within(m, k, d, norm, dtype):
    x, y = rows(m, d, dtype), rows(k, d, dtype, seed=1)
    s = cpu.pairs.reduced_distances(x, y, norm=norm)
    threshold = float(np.quantile(s, 0.3, method="nearest"))  # some pairs lie on it

    def call(start, stop, out):
        cpu.pairs.count_within(x, y[start:stop], norm=norm, threshold=threshold, out=out)

    whole, pieces = whole_then_pieces(call, k, lambda: np.ones(m, np.int64))
    assert (whole == pieces).all()
    assert (whole == 1 + (s < dtype(threshold)).sum(1)).all()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("bracket", ["narrow", "everything", "one value"])
@pytest.mark.parametrize("m, k, d", SHAPES)
def test_pair_histogram(m, k, d, bracket, diagonal, norm, dtype):
    if diagonal:
        k = m = max(m, k)
    x = rows(m, d, dtype)
    y = x if diagonal else rows(k, d, dtype, seed=1)
    s = cpu.pairs.reduced_distances(x, y, norm=norm)
    bits = s.view(INTEGER[s.itemsize]).astype(np.int64)
    if diagonal:
        bits = bits[np.triu_indices(m, 1)]
    flat = np.sort(bits.ravel()) if bits.size else np.zeros(1, np.int64)
    low, high, bins = {
        "narrow": (int(flat[len(flat) // 3]), int(flat[len(flat) // 2]), 64),
        "everything": (0, int(np.iinfo(INTEGER[s.itemsize]).max), 1000),
        "one value": (int(flat[len(flat) // 2]), int(flat[len(flat) // 2]), 1),
    }[bracket]
    shift = 0
    while (high - low) >> shift >= bins:
        shift += 1
    out = np.zeros(bins + 1, np.int64)
    cpu.pairs.pair_histogram(x, y, norm=norm, diagonal=diagonal, low=low, shift=shift, out=out)
    bin_of = (bits.ravel() - low) >> shift
    expected = np.bincount(bin_of[(bin_of >= 0) & (bin_of < bins)], minlength=bins)
    assert out[0] == (bits < low).sum()
    assert (out[1:] == expected).all()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("m, k, d", SHAPES)
def test_nearest_higher(m, k, d, norm, dtype):
    x, y = rows(m, d, dtype), rows(k, d, dtype, seed=1)
    order = np.random.default_rng(3).permutation(m + k).astype(np.int32)
    x_order, y_order = order[:m], order[m:]

    def call(start, stop, out):
        best, index = out
        cpu.pairs.nearest_higher(
            x,
            y[start:stop],
            x_order,
            y_order[start:stop],
            norm=norm,
            y_start=1000 + start,
            best=best,
            best_index=index,
        )

    whole, pieces = whole_then_pieces(call, k, lambda: (np.full(m, np.inf, dtype), np.full(m, -1, np.int64)), step=64)
    assert all((a == b).all() for a, b in zip(whole, pieces, strict=True))
    s = cpu.pairs.reduced_distances(x, y, norm=norm)
    s[y_order[None] >= x_order[:, None]] = np.inf
    expected = np.where(s.min(1) < np.inf, 1000 + s.argmin(1), -1)  # argmin: the first of equals
    assert (whole[0] == s.min(1)).all()
    assert (whole[1] == expected).all()


def test_nearest_higher_prefers_the_lower_index_whatever_the_order_of_columns():
    x = np.zeros((1, 2), np.float32)
    y = np.ones((40, 2), np.float32)
    best, index = np.full(1, np.inf, np.float32), np.full(1, -1)
    for y_start in (80, 0, 40):
        cpu.pairs.nearest_higher(
            x,
            y,
            np.array([5], np.int32),
            np.zeros(40, np.int32),
            norm="l2",
            y_start=y_start,
            best=best,
            best_index=index,
        )
    assert best[0] == 2 and index[0] == 0


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("m, k, d", SHAPES)
def test_border(m, k, d, norm, dtype):
    x, y = rows(m, d, dtype), rows(k, d, dtype, seed=1)
    rng = np.random.default_rng(4)
    x_labels, y_labels = rng.integers(-1, 2, m), rng.integers(-1, 2, k)
    s = cpu.pairs.reduced_distances(x, y, norm=norm)
    threshold = float(np.quantile(s, min(1, 2 / k), method="nearest"))
    out = np.zeros(m, np.uint8)
    out[0] = 1
    cpu.pairs.border(x, y, x_labels, y_labels, norm=norm, threshold=threshold, out=out)
    expected = ((s < dtype(threshold)) & (x_labels[:, None] != y_labels[None])).any(1)
    expected[0] = True
    assert (out == expected).all()


def everything(x: np.ndarray, first: int, last: int) -> list[np.ndarray]:
    """What rows first..last-1 of x receive from all kernels."""
    own, n = x[first:last], len(x)
    order = np.random.default_rng(5).permutation(n).astype(np.int32)
    rho, near, mark = np.zeros(len(own)), np.zeros(len(own), np.int64), np.zeros(len(own), np.uint8)
    best, index = np.full(len(own), np.inf, x.dtype), np.full(len(own), -1, np.int64)
    cpu.pairs.gaussian_sum(own, x, norm="l2", scale=0.5, power=1, out=rho)
    cpu.pairs.count_within(own, x, norm="l2", threshold=1.0, out=near)
    cpu.pairs.nearest_higher(own, x, order[first:last], order, norm="l2", y_start=0, best=best, best_index=index)
    cpu.pairs.border(own, x, order[first:last] % 3, order % 3, norm="l2", threshold=0.1, out=mark)
    lists = {"near": np.full((len(own), 5), np.inf, x.dtype), "near_index": np.full((len(own), 5), -1)}
    cpu.pairs.nearest_rows(own, x, norm="l2", y_start=0, **lists, rows=np.arange(first, last))
    return [rho, near, best, index, mark, *lists.values()]


@pytest.mark.parametrize("d", [2, 40])
def test_bits_depend_neither_on_threads_nor_on_tasks_batches_or_alignment(d, monkeypatch):
    x = rows(2100, d, np.float32)
    histogram, again = np.zeros(101, np.int64), np.zeros(101, np.int64)
    with threads.share(1):
        expected = everything(x, 0, len(x))
        cpu.pairs.pair_histogram(x, x, norm="l2", diagonal=True, low=0, shift=25, out=histogram)
    monkeypatch.setattr(_cpu_tasks, "BATCH_BYTES", 1)
    monkeypatch.setattr(_cpu_tasks, "TASK_PAIRS", 1)
    shifted = np.empty(x.size + 1, np.float32)[1:].reshape(x.shape)
    shifted[:] = x
    with threads.share(2):
        for bins_apart in (1 << 16, 1):  # each thread's own, and shared ones
            monkeypatch.setattr(_cpu_tasks, "MAX_APART", bins_apart)
            again[:] = 0
            cpu.pairs.pair_histogram(x, x, norm="l2", diagonal=True, low=0, shift=25, out=again)
            assert (again == histogram).all() and histogram.sum() == len(x) * (len(x) - 1) // 2
        for first, last in ((0, len(x)), (3, 1030), (1024, 2100), (7, 8)):
            for whole, part in zip(expected, everything(shifted, first, last), strict=True):
                assert (whole[first:last] == part).all()


def test_no_rows_is_no_work():
    x, none = np.zeros((3, 2), np.float32), np.zeros((0, 2), np.float32)
    out = np.zeros(3)
    cpu.pairs.gaussian_sum(x, none, norm="l2", scale=1.0, power=1, out=out)
    cpu.pairs.gaussian_sum(none, x, norm="l2", scale=1.0, power=1, out=out[:0])
    assert (out == 0).all()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("m, k, d", SHAPES)
def test_neighbors_kept_in_the_density_pass(m, k, d, norm, dtype):
    x, y = rows(m, d, dtype), rows(k, d, dtype, seed=1)
    s = cpu.pairs.reduced_distances(x, y, norm=norm)

    def call(start, stop, out):
        rho, near, index = out
        cpu.pairs.gaussian_sum(
            x, y[start:stop], norm=norm, scale=0.3, power=1, y_start=7 + start, out=rho, near=near, near_index=index
        )

    whole, pieces = whole_then_pieces(
        call, k, lambda: (np.zeros(m), np.full((m, 4), np.inf, dtype), np.full((m, 4), -1, np.int64))
    )
    assert all((a == b).all() for a, b in zip(whole, pieces, strict=True))
    rho, near, index = whole
    alone = np.zeros(m)
    cpu.pairs.gaussian_sum(x, y, norm=norm, scale=0.3, power=1, out=alone)
    assert (rho == alone).all()
    padded = np.pad(s, ((0, 0), (0, 4)), constant_values=np.inf)
    stable = np.argsort(padded, axis=1, kind="stable")[:, :4]
    assert (near == np.take_along_axis(padded, stable, 1)).all()
    assert (index == np.where(stable < k, 7 + stable, -1)).all()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm, power", [("l2", 1), ("l2", 2), ("l1", 2)])
@pytest.mark.parametrize("m, k, d", SHAPES)
def test_gaussian_sums_have_the_bits_of_each(m, k, d, norm, power, dtype):
    x, y = rows(m, d, dtype), rows(k, d, dtype, seed=1)
    own = np.random.default_rng(2).integers(-1, k, m)
    options = {"norm": norm, "power": power, "rows": np.where(own < 0, -1, own + 1024), "y_start": 1024}
    for scales in ([0.3], [0.01, 0.3, 2.0, 50.0, 7.0]):
        out = np.ones((len(scales), m))
        near, index = np.full((m, 4), np.inf, dtype), np.full((m, 4), -1, np.int64)
        cpu.pairs.gaussian_sums(x, y, scales=scales, out=out, near=near, near_index=index, **options)
        for scale, sums in zip(scales, out, strict=True):
            alone, own_near, own_index = np.ones(m), np.full((m, 4), np.inf, dtype), np.full((m, 4), -1, np.int64)
            cpu.pairs.gaussian_sum(x, y, scale=scale, out=alone, near=own_near, near_index=own_index, **options)
            assert (sums == alone).all() and (near == own_near).all() and (index == own_index).all()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("neighbors", [1, 5, 40])
@pytest.mark.parametrize("m, k, d", SHAPES)
def test_nearest_rows(m, k, d, neighbors, norm, dtype):
    """Rows of columns, too, some of which are left out; ties and fewer columns than wanted among the cases."""
    x, y = rows(m, d, dtype), rows(k, d, dtype, seed=1)
    own = np.random.default_rng(2).integers(-1, k, m)
    s = cpu.pairs.reduced_distances(x, y, norm=norm)

    def call(start, stop, out):
        near, index = out
        numbers = np.where(own < 0, -1, own + 7)
        given = {"norm": norm, "y_start": 7 + start, "near": near, "near_index": index, "rows": numbers}
        cpu.pairs.nearest_rows(x, y[start:stop], **given)

    shape = (m, neighbors)
    whole, pieces = whole_then_pieces(call, k, lambda: (np.full(shape, np.inf, dtype), np.full(shape, -1)), step=96)
    assert all((a == b).all() for a, b in zip(whole, pieces, strict=True))
    leaves = np.flatnonzero(own >= 0)
    s[leaves, own[leaves]] = np.inf
    padded = np.pad(s, ((0, 0), (0, neighbors)), constant_values=np.inf)
    stable = np.argsort(padded, axis=1, kind="stable")[:, :neighbors]
    assert (whole[0] == np.take_along_axis(padded, stable, 1)).all()
    assert (whole[1] == np.where(np.isfinite(whole[0]), 7 + stable, -1)).all()


@pytest.mark.parametrize("make", ["lattice", "continuous", "fewer than kept"])
def test_nearest_known_is_right_where_it_is_certain(make):
    n = 5 if make == "fewer than kept" else 3000
    x = np.random.default_rng(0).standard_normal((n, 3)).astype(np.float32)
    if make == "lattice":
        x = np.round(x * 4)
    rho, near, index = np.zeros(n), np.full((n, 8), np.inf, x.dtype), np.full((n, 8), -1)
    cpu.pairs.gaussian_sum(x, x, norm="l2", scale=1.0, power=1, out=rho, near=near, near_index=index)
    order = np.empty(n, np.int32)
    order[np.argsort(-rho, kind="stable")] = np.arange(n)
    best, best_index = np.full(n, np.inf, x.dtype), np.full(n, -1)
    cpu.pairs.nearest_higher(x, x, order, order, norm="l2", y_start=0, best=best, best_index=best_index)
    known, known_index, certain = nearest_known(order, order, near, index, np)
    assert (known[certain] == best[certain]).all() and (known_index[certain] == best_index[certain]).all()
    assert certain.mean() > {"lattice": 0.5, "continuous": 0.98, "fewer than kept": 0.99}[make]


def keys(v: np.ndarray) -> list[int]:
    bits = (v + v.dtype.type(0)).view(INTEGER[v.itemsize])
    largest = np.iinfo(bits.dtype).max
    return [int(b) if b >= 0 else int(b ^ largest) for b in bits.ravel()]


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("n", [1, 32, 77])
def test_value_histogram(n, dtype, monkeypatch):
    monkeypatch.setattr(threads, "TASK_ELEMENTS", 100)
    rng = np.random.default_rng(n)
    v = np.full((9, n + 3), 5, dtype)
    v[:, :n] = rng.choice([-1.0, 1.0], (9, n)) * 10.0 ** rng.uniform(-30, 30, (9, n))
    v[0, :n], v[1, :n], v[2, :n] = -np.inf, -0.0, 0.0
    v[3, 0] = np.finfo(dtype).max
    own = np.sort(keys(v[:, :n][v[:, :n] > -np.inf]))
    assert keys(np.sort(v[3, :n])) == sorted(keys(v[3, :n]))
    limits, half = np.iinfo(INTEGER[v.itemsize]), v.itemsize * 8 - 8
    cases = [(int(limits.min), half, 256), (int(own[len(own) // 3]), half - 9, 64), (0, half - 20, 1000)]
    cases += [(int(limits.max), 3, 8), (int(own[0]), 0, 4), (int(own[-1]), 0, 1)]
    for low, shift, bins in cases:
        out = np.ones(bins + 1, np.int64)
        cpu.pairs.value_histogram(v, n=n, low=low, shift=shift, out=out)
        expected = np.ones(bins + 1, np.int64)
        for key in own.tolist():
            b = (key - low) >> shift
            if key < low:
                expected[0] += 1
            elif b < bins:
                expected[1 + b] += 1
        np.testing.assert_array_equal(out, expected)
