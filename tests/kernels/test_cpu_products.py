"""Products on the CPU against direct differences: the same decisions on data made to part them; sums by the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.algorithms.common.preparation import DOT_CONDITION
from mgclust.kernels import load
from mgclust.kernels.pairs import cpu_tasks as _cpu_tasks
from mgclust.kernels.pairs.products import cpu_products as _cpu_products

cpu = load("cpu")
ROWS, FEATURES = 1003, 40


def _blobs(rng):
    return rng.normal(size=(ROWS, FEATURES)) + 4 * rng.normal(size=(5, FEATURES))[rng.integers(5, size=ROWS)]


def _repeated(rng, factor):
    x = _blobs(rng)
    return np.concatenate([x[: ROWS // 2], x[: ROWS - ROWS // 2] * factor])


def _with(rng, row, value):
    x = _blobs(rng)
    x[row] = value
    return x


DATA = {
    "blobs": _blobs,
    "far from the origin": lambda rng: _blobs(rng) + 1e5,
    "tight clusters far apart": lambda rng: 1e-3 * _blobs(rng) + 1e3 * rng.integers(3, size=(ROWS, 1)),
    "near-duplicates": lambda rng: _repeated(rng, 1 + 1e-7),
    "duplicates": lambda rng: _repeated(rng, 1),
    "lattice": lambda rng: np.round(0.7 * rng.normal(size=(ROWS, FEATURES))),
    "norms over ten orders of magnitude": lambda rng: _blobs(rng) * 10.0 ** rng.uniform(-5, 5, (ROWS, 1)),
    "one feature dominates": lambda rng: _blobs(rng) * np.where(np.arange(FEATURES) == 3, 1e4, 1.0),
    "all equal": lambda rng: np.ones((ROWS, FEATURES)),
    "squares underflow": lambda rng: 1e-22 * _blobs(rng),
    "squares overflow": lambda rng: 1e19 * _blobs(rng),
    "not finite": lambda rng: _with(rng, [7, 9], [[np.inf], [np.nan]]),
}


@pytest.fixture(autouse=True)
def filters(monkeypatch):
    """Products for few pairs, too, several batches of columns and tasks of rows."""
    monkeypatch.setattr(_cpu_products, "MIN_WORK", 1)
    monkeypatch.setattr(_cpu_products, "COLUMNS_A_NEIGHBOR", 1)
    monkeypatch.setattr(_cpu_tasks, "BATCH_BYTES", 1)
    monkeypatch.setattr(_cpu_tasks, "MIN_TASK", 1)


def decisions(x: np.ndarray) -> list[np.ndarray]:
    """What all kernels decide about the rows of x."""
    found = []
    s = np.sort(cpu.pairs.reduced_distances(x[:100], x, norm="l2"), axis=None)
    s = s[np.isfinite(s)]
    for value in s[[0, len(s) // 50, len(s) // 2, -1]]:
        within = np.zeros(len(x), np.int64)
        cpu.pairs.count_within(x, x, norm="l2", threshold=float(value), out=within)
        low = int(value.view(f"i{x.itemsize}"))
        for diagonal, first, shift in ((True, low, 0), (False, max(low - (500 << 10), 0), 10)):
            bins = np.zeros(1001, np.int64)
            cpu.pairs.pair_histogram(x, x, norm="l2", diagonal=diagonal, low=first, shift=shift, out=bins)
            found.append(bins)
        found.append(within)
    for k, rows in ((1, np.arange(len(x))), (8, None), (40, np.arange(len(x)))):
        near, index = np.full((len(x), k), np.inf, x.dtype), np.full((len(x), k), -1)
        for first in (0, 600):  # columns in two calls
            y = x[first : 600 if first == 0 else len(x)]
            cpu.pairs.nearest_rows(x, y, norm="l2", y_start=first, near=near, near_index=index, rows=rows)
        found += [near, index]
    near, index, rho = np.full((len(x), 8), np.inf, x.dtype), np.full((len(x), 8), -1), np.zeros(len(x))
    lists = {"near": near, "near_index": index}
    cpu.pairs.gaussian_sum(x, x, norm="l2-dot", scale=0.01, power=1, out=rho, rows=np.arange(len(x)), **lists)
    return [*found, near, index]


@pytest.mark.quick("far from the origin-float32", "duplicates-float32", "norms*-float32")
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", DATA)
def test_decisions(kind, dtype, monkeypatch):
    with np.errstate(over="ignore"):
        x = DATA[kind](np.random.default_rng(1)).astype(dtype)
    products = decisions(x)
    monkeypatch.setattr(_cpu_products, "supports", lambda x, norm: False)
    for one, other in zip(products, decisions(x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_products_decide_most_pairs_of_ordinary_data(monkeypatch):
    """Neither kernel of differences meets all pairs again, so the comparisons above are of products."""
    x = _blobs(np.random.default_rng(2)).astype("float32")
    counted, listed = [], []
    direct = _cpu_products.differences
    whole, again = direct.count, direct.neighbors
    monkeypatch.setattr(direct, "count", lambda x, d, start, stop, *rest: counted.append(stop - start))
    monkeypatch.setattr(direct, "neighbors", lambda x, d, start, stop, *rest: listed.append(stop - start))
    out = np.zeros(ROWS, np.int64)
    cpu.pairs.count_within(x, x, norm="l2", threshold=300.0, out=out)
    near, index = np.full((ROWS, 8), np.inf, x.dtype), np.full((ROWS, 8), -1)
    cpu.pairs.nearest_rows(x, x, norm="l2", y_start=0, near=near, near_index=index)
    assert sum(counted) == 0 and sum(listed) == 0
    monkeypatch.setattr(direct, "count", whole)
    monkeypatch.setattr(direct, "neighbors", again)
    s = cpu.pairs.reduced_distances(x, x, norm="l2")
    assert (out == (s < 300).sum(axis=1)).all() and 0 < out.sum() - ROWS < ROWS * (ROWS - 1)
    assert (near == np.sort(s, axis=1)[:, :8]).all()


@pytest.mark.quick("64-2")
@pytest.mark.parametrize("condition", [1, 2])
@pytest.mark.parametrize("d", [17, 64, 513])
def test_gaussian_sums(d, condition):
    """Against float64, up to the largest |x|^2 / dc^2 that products are used for; bits of any cut, equal rows alike."""
    assert condition <= cpu.pairs.PRODUCT_REACH * DOT_CONDITION
    rng = np.random.default_rng(d)
    x = rng.normal(size=(ROWS, d)) + 0.5 * rng.integers(0, 3, (ROWS, 1))
    x = (x - x.mean(axis=0)).astype("float32")
    x[-50:] = x[:50]
    wide = x.astype("float64")
    dc2 = float((wide**2).sum(axis=1).max() / condition)
    first = np.concatenate([np.arange(ROWS - 50), np.arange(50)])  # of equal rows
    options = {"norm": "l2-dot", "scale": 1 / dc2, "power": 1}
    out = np.zeros(ROWS)
    cpu.pairs.gaussian_sum(x, x, out=out, rows=first, **options)
    lengths = (wide**2).sum(axis=1)
    wanted = np.exp(-(lengths[:, None] + lengths - 2 * wide @ wide.T) / dc2)
    np.testing.assert_allclose(out, wanted.sum(axis=1) - 1, rtol=1e-6)
    np.testing.assert_array_equal(out[:50], out[-50:])
    parts = np.zeros(300)
    for start in (0, 512):
        y = np.ascontiguousarray(x[start : start + 512])
        cpu.pairs.gaussian_sum(x[277:577], y, out=parts, rows=first[277:577], y_start=start, **options)
    np.testing.assert_array_equal(parts, out[277:577])


def test_the_term_of_one_equal_row_is_accurate():
    """Where it outweighs all others, its error is that of the density."""
    x = np.random.default_rng(3).normal(size=(200, 128)).astype("float32")
    scale = cpu.pairs.PRODUCT_REACH * DOT_CONDITION / float((x.astype("float64") ** 2).sum(axis=1).max())
    for row in x:
        out = np.zeros(1)
        cpu.pairs.gaussian_sum(row[None], row[None], norm="l2-dot", scale=scale, power=1, out=out)
        assert abs(out[0] - 1) < 1e-6
